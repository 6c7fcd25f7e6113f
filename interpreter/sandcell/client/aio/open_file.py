"""A file of the sandbox that is open: read or written piece by piece, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sandcell.client.protocol import decode_body
from sandcell_container.file_info import FileInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandcell.client.aio.answer import AsyncAnswer, AsyncUpload
    from sandcell.client.aio.transport import AsyncTransport
    from sandcell.client.protocol import Request

__all__ = ["AsyncFileReader", "AsyncFileWriter"]


class AsyncFileReader:
    """A file that is read from its place to its end. Close it, or use it in `async with`; iterating yields pieces of bytes."""

    def __init__(self, answer: AsyncAnswer) -> None:
        self._answer = answer
        self._pieces = answer.chunks()
        self._held = bytearray()
        self._has_ended = False

    @property
    def size(self) -> int | None:
        """How many bytes there are to read from the beginning; None where the system does not say, as of files in /proc."""
        length = self._answer.head.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def etag(self) -> str:
        """The tag of its content, as `FileInfo.etag`."""
        return self._answer.head.headers.get("etag", "").strip('"')

    async def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end; without a size all that are left.

        Raises:
            Unavailable (UNREACHABLE): the rest does not come.
        """
        while not self._has_ended and (size < 0 or len(self._held) < size):
            piece = await anext(self._pieces, b"")
            self._has_ended = not piece
            self._held += piece
        count = len(self._held) if size < 0 else size
        data = bytes(self._held[:count])
        del self._held[:count]
        return data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._held:
            yield await self.read(len(self._held))
        async for piece in self._pieces:
            yield piece
        self._has_ended = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give it up. Twice is fine."""
        self._answer.close()


class AsyncFileWriter:
    """A file that is written: it is there, whole, when its `async with` block has ended without an exception, and else
    what was there before is. `info` is then what is known of it."""

    def __init__(self, transport: AsyncTransport, request: Request) -> None:
        self.info: FileInfo | None = None
        self._transport = transport
        self._request = request
        self._upload: AsyncUpload | None = None

    async def write(self, data: bytes) -> int:
        """Write `data` and return how many bytes that were. Raises what the sandbox refuses it with."""
        assert self._upload is not None, "inside of its block"
        await self._upload.send(data)
        return len(data)

    async def __aenter__(self) -> Self:
        self._upload = await self._transport.begin_upload(self._request)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._upload is not None, "inside of its block"
        try:
            if kind is None:
                self.info = decode_body(await self._upload.finish(), FileInfo)
        finally:
            self._upload.close()
