"""The proxy over real connections: a server on this machine's loopback, and names that only the test's resolver knows."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from sandcell_container.network import parse_allowed
from sandcell_container.proxy import Proxy, ProxyLimits, Refused, resolve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

_PATIENCE = 20.0


class World:
    """A server, and the names and lists around it. `asked` is what the resolver was asked, `came` what the server got."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.names: dict[str, list[str]] = {}
        self.items: list[str] = [f"127.0.0.1:{port}", f"site.test:{port}"]
        self.asked = list[str]()
        self.came = list[bytes]()
        self.refused = list[Refused]()
        self.own = set[str]()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]

    @asynccontextmanager
    async def proxy(self, limits: ProxyLimits = ProxyLimits()) -> AsyncGenerator[int]:  # noqa: B008 -- frozen
        """A proxy in this world; yields its port."""
        made = Proxy(
            lambda: parse_allowed(self.items),
            resolve=self.resolve,
            tell=self.refused.append,
            is_own=self.own.__contains__,
            limits=limits,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        server = await made.listen(listener)
        yield listener.getsockname()[1]
        server.close()

    async def ask(self, proxy: int, text: str, *, then: str = "") -> str:
        """Send `text`, with PORT for the server's, `then` after the first line that is answered; return the whole answer."""
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
            writer.write(text.replace("PORT", str(self.port)).encode())
            said = await reader.readline() if then else b""
            writer.write(then.encode())
            said += await reader.read()
            writer.close()
            await writer.wait_closed()
        return said.decode()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A server that answers the first line that it gets, in capitals."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        made.came.append(line)
        writer.write(line.upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    made = World(server.sockets[0].getsockname()[1])
    yield made
    server.close()
    await server.wait_closed()


async def test_a_tunnel_carries_anything(world: World) -> None:
    world.names["site.test"] = ["127.0.0.1"]
    async with world.proxy() as port:
        said = await world.ask(port, "CONNECT site.test:PORT HTTP/1.1\r\n\r\n", then="\x01secret\n")
    assert said == "HTTP/1.1 200 Connection established\r\n\r\n\x01SECRET\n"
    assert world.asked == ["site.test"]  # once: what it is a moment later does not matter


async def test_a_request_is_passed_on(world: World) -> None:
    async with world.proxy() as port:
        assert await world.ask(port, "GET http://127.0.0.1:PORT/p HTTP/1.1\r\n\r\n") == "GET /P HTTP/1.1\r\n"
    assert world.asked == []


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("other.test", {"other.test": ["127.0.0.1"]}),  # not on the list: its name is not even looked up
        ("127.0.0.2", {}),
        ("[::1]", {}),
        ("169.254.169.254", {}),
    ],
)
async def test_what_is_not_listed_is_refused_and_told_once(
    world: World, host: str, names: dict[str, list[str]]
) -> None:
    world.names = names
    async with world.proxy() as port:
        for _ in range(2):
            said = await world.ask(port, f"CONNECT {host}:PORT HTTP/1.1\r\n\r\n")
            assert said.startswith("HTTP/1.1 403 Forbidden: HOST_NOT_ALLOWED")
            assert f"{host}:{world.port}" in said
    assert [each.host for each in world.refused] == [host.strip("[]")]
    assert world.asked == []


@pytest.mark.parametrize("address", ["127.0.0.2", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"])
async def test_a_listed_name_leads_to_no_address_that_is_not(world: World, address: str) -> None:
    world.names["site.test"] = [address]
    async with world.proxy() as port:
        said = await world.ask(port, "CONNECT site.test:PORT HTTP/1.1\r\n\r\n")
    assert "HOST_NOT_ALLOWED" in said
    assert address in said
    assert world.came == []


async def test_a_listed_name_does_not_lead_to_this_machine_by_its_public_address(world: World) -> None:
    world.names["site.test"] = ["93.184.215.14"]
    world.own = {"93.184.215.14"}
    async with world.proxy() as port:
        said = await world.ask(port, "CONNECT site.test:PORT HTTP/1.1\r\n\r\n")
    assert "it is 93.184.215.14, which is not public, or this machine's own" in said


async def test_of_several_addresses_the_allowed_one_is_taken(world: World) -> None:
    world.names["site.test"] = ["10.0.0.1", "127.0.0.1"]
    async with world.proxy() as port:
        said = await world.ask(port, "CONNECT site.test:PORT HTTP/1.1\r\n\r\n", then="a\n")
    assert said.endswith("A\n")


async def test_another_list_counts_from_the_next_connection_on(world: World) -> None:
    async with world.proxy() as port:
        world.items = []
        assert " 403 " in await world.ask(port, "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n")
        world.items = ["127.0.0.0/8", f"127.0.0.1:{world.port}"]
        assert " 200 " in await world.ask(port, "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n", then="a\n")


@pytest.mark.parametrize("items", [[], ["site.test:PORT"]])
async def test_a_connection_ends_when_its_host_is_taken_from_the_list(world: World, items: list[str]) -> None:
    world.names["site.test"] = ["127.0.0.1"]
    async with world.proxy() as port, asyncio.timeout(_PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT site.test:{world.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        world.items = [each.replace("PORT", str(world.port)) for each in items]
        writer.write(b"a\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert world.came == [b""]


async def test_what_is_not_there_is_told(world: World) -> None:
    world.items += ["127.0.0.1:1"]
    async with world.proxy() as port:
        for host in ("site.test:PORT", "127.0.0.1:1"):
            said = await world.ask(port, f"CONNECT {host} HTTP/1.1\r\n\r\n")
            assert said.startswith("HTTP/1.1 502 Bad Gateway: UNREACHABLE")
    assert world.refused == []


async def test_a_head_that_never_ends_is_refused(world: World) -> None:
    async with world.proxy() as port:
        said = await world.ask(port, "GET http://127.0.0.1/ HTTP/1.1\r\nA: " + "a" * 40_000)
    assert " 400 " in said
    assert "TOO_LARGE" in said


async def test_a_client_that_says_nothing_is_let_go(world: World) -> None:
    async with world.proxy(ProxyLimits(head=0.05)) as port:
        assert await world.ask(port, "GET http://127.0.0.1/") == ""


async def test_a_connection_on_which_nothing_comes_ends(world: World) -> None:
    async with world.proxy(ProxyLimits(idle=0.05)) as port:
        said = await world.ask(port, "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n")
    assert said == "HTTP/1.1 200 Connection established\r\n\r\n"


async def test_there_are_only_so_many_connections(world: World) -> None:
    async with world.proxy(ProxyLimits(connections=0)) as port:
        assert " 503 " in await world.ask(port, "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n")


async def test_this_machines_resolver_is_asked() -> None:
    assert "127.0.0.1" in await resolve("localhost", 80)
    with pytest.raises(OSError, match=r"."):
        await resolve("no-such-name.invalid", 80)
