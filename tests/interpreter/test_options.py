"""What a caller may ask for, and how it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from sandcell.client.container_options import engine_for, fit_engine
from sandcell.client.options import (
    make_command,
    make_context,
    make_execution,
    make_limits,
    make_spec,
    refuse_later,
)
from sandcell.config import Config
from sandcell_container.errors import ErrorCode, SandcellError

if TYPE_CHECKING:
    from sandcell_container.spec import SandboxSpec


def spec_of(**options: Any) -> SandboxSpec:
    return make_spec(Config(), None, options)  # type: ignore[arg-type]  # any keywords on purpose


def refusal_of(call: Any, *args: Any, **options: Any) -> SandcellError:
    with pytest.raises(SandcellError) as caught:
        call(*args, **options)
    assert caught.value.hint or caught.value.details
    return caught.value


def test_what_is_not_given_comes_from_the_config() -> None:
    spec = spec_of()
    assert (spec.default_timeout, spec.idle_timeout, spec.start_timeout) == (300.0, 600.0, 60.0)
    assert spec.name == spec.id
    assert spec.on_release == "remove"


def test_none_is_no_limit() -> None:
    assert spec_of(default_timeout=None, idle_timeout=None).default_timeout is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "Not A Name"}, ErrorCode.INVALID_NAME),
        ({"name": ""}, ErrorCode.INVALID_NAME),
        ({"on_release": "explode"}, ErrorCode.INVALID_ARGUMENT),
        ({"default_timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"default_timeout": float("nan")}, ErrorCode.INVALID_ARGUMENT),
        ({"env": {"A=B": "c"}}, ErrorCode.INVALID_ENV_NAME),
        ({"memory": "much"}, ErrorCode.INVALID_ARGUMENT),
        ({"cpus": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"name": 5}, ErrorCode.INVALID_NAME),
        ({"engine": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"cpus": "a"}, ErrorCode.INVALID_ARGUMENT),
        ({"cpus": float("inf")}, ErrorCode.INVALID_ARGUMENT),
        ({"memory": float("nan")}, ErrorCode.INVALID_ARGUMENT),
        ({"memory": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"pids": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"idle_timeout": "x"}, ErrorCode.INVALID_ARGUMENT),
        ({"default_timeout": float("inf")}, ErrorCode.INVALID_ARGUMENT),
        ({"env": {"A": 1}}, ErrorCode.INVALID_ARGUMENT),
        ({"env": ["A"]}, ErrorCode.INVALID_ARGUMENT),
        ({"env": {1: "a"}}, ErrorCode.INVALID_ENV_NAME),
        ({"network": "pypi.org"}, ErrorCode.INVALID_ARGUMENT),
        ({"network": ["https://pypi.org"]}, ErrorCode.INVALID_ARGUMENT),
        ({"network": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"packages": "pandas"}, ErrorCode.INVALID_ARGUMENT),
        ({"packages": ["--index-url=x"]}, ErrorCode.INVALID_ARGUMENT),
        ({"packages": ["a\nb"]}, ErrorCode.INVALID_ARGUMENT),
        ({"apt": ["-y"]}, ErrorCode.INVALID_ARGUMENT),
        ({"apt": ["a; b"]}, ErrorCode.INVALID_ARGUMENT),
        ({"preset": "everything"}, ErrorCode.INVALID_ARGUMENT),
        ({"mounts": ["/a"]}, ErrorCode.INVALID_ARGUMENT),
        ({"mounts": "/a:/b"}, ErrorCode.INVALID_ARGUMENT),
        ({"publish": ["http"]}, ErrorCode.INVALID_ARGUMENT),
        ({"dns": ["localhost"]}, ErrorCode.INVALID_ARGUMENT),
        ({"hostname": "-x"}, ErrorCode.INVALID_ARGUMENT),
        ({"hostname": "a b"}, ErrorCode.INVALID_ARGUMENT),
        ({"runtime": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"secrets": {"A": None}}, ErrorCode.INVALID_ARGUMENT),
        ({"secrets": ["A"]}, ErrorCode.INVALID_ARGUMENT),
        ({"secrets": {"A B": "c"}}, ErrorCode.INVALID_ENV_NAME),
        ({"read_only": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"url": "https://gateway"}, ErrorCode.UNSUPPORTED),
    ],
)
def test_a_wrong_option_is_refused_with_its_code(options: dict[str, Any], code: ErrorCode) -> None:
    problem = refusal_of(spec_of, **options)
    assert problem.code is code


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="color"):
        spec_of(color="red")


def test_limits_are_numbers() -> None:
    limits = make_limits({"memory": "512MiB", "disk": 1000, "cpus": 1.5})
    assert (limits.memory, limits.disk, limits.cpus, limits.pids) == (2**29, 1000, 1.5, None)


def test_an_empty_option_of_later_asks_for_nothing() -> None:
    refuse_later(packages=(), pass_env=(), runtime=None, read_only=False)


def test_a_run_always_has_an_id_so_that_it_can_be_asked_for_again() -> None:
    body = make_execution("1")
    assert body.id is not None
    assert body.id.startswith("run_")
    assert body.timeout is UNSET


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"timeout": "5"}, ErrorCode.INVALID_ARGUMENT),
        ({"timeout": True}, ErrorCode.INVALID_ARGUMENT),
        ({"cwd": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"language": 5}, ErrorCode.INVALID_ARGUMENT),
        ({"context": 5}, ErrorCode.INVALID_NAME),
        ({"timeout": -1.0}, ErrorCode.INVALID_ARGUMENT),
        ({"queue_timeout": 0}, ErrorCode.INVALID_ARGUMENT),
        ({"id": "NO"}, ErrorCode.INVALID_NAME),
        ({"context": "../x"}, ErrorCode.INVALID_NAME),
        ({"env": {"": "x"}}, ErrorCode.INVALID_ENV_NAME),
        ({"env": {"A": "x\0y"}}, ErrorCode.INVALID_ENV_NAME),
    ],
)
def test_a_wrong_run_is_refused_before_it_is_sent(options: dict[str, Any], code: ErrorCode) -> None:
    assert refusal_of(make_execution, "1", **options).code is code


def test_code_has_to_be_text() -> None:
    assert refusal_of(make_execution, b"1").details == {"field": "code"}


def command(words: Any, **options: Any) -> Any:
    given: dict[str, Any] = {
        "cwd": None,
        "env": None,
        "stdin": None,
        "timeout": None,
        "max_output": 10,
        "stream": False,
    }
    return make_command(words, **given | options)


def test_a_command_is_a_line_or_words() -> None:
    assert command("ls -l").command == "ls -l"
    assert command(["ls", "-l"]).command == ("ls", "-l")
    assert command("cat", stdin=b"in").stdin == b"in"


@pytest.mark.parametrize("words", ["", [], ["ls", 1], 7, b"ls", "\ud800"])
def test_a_command_that_is_none_is_refused(words: Any) -> None:
    assert refusal_of(command, words).code is ErrorCode.INVALID_ARGUMENT


def test_a_context_may_have_a_memory_limit_in_text() -> None:
    body = make_context(language="python", id=None, cwd="/", env=None, memory="1GiB")
    assert body.memory == 2**30


@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize(
    "options",
    [
        {"mounts": ["/a:/b"]},
        {"publish": [80]},
        {"dns": ["192.0.2.1"]},
        {"read_only": True},
        {"runtime": "runsc"},
    ],
)
def test_an_engine_without_containers_refuses_what_it_cannot_do(engine: str, options: dict[str, Any]) -> None:
    spec = spec_of(**options)
    assert fit_engine(spec, "docker", None) == fit_engine(spec, "podman", None) == spec
    problem = refusal_of(fit_engine, spec, engine, None)
    assert problem.code is ErrorCode.UNSUPPORTED
    assert problem.details["field"] in options


def test_an_open_network_takes_the_engine_that_has_one() -> None:
    assert engine_for(spec_of(network="open"), "auto", None) == "local"
    assert engine_for(spec_of(network=["open", "10.0.0.1"]), "auto", None) == "local"
    assert engine_for(spec_of(network="open"), "docker", None) == "docker"
    for spec, image in (
        (spec_of(network="open"), "debian"),
        (spec_of(network=["a.org"]), None),
        (spec_of(), None),
    ):
        assert engine_for(spec, "auto", image) == "auto"


def test_a_host_name_needs_a_sandbox_with_its_own() -> None:
    spec = spec_of(hostname="lab-1")
    assert fit_engine(spec, "local", None).hostname == "lab-1"
    assert refusal_of(fit_engine, spec, "process", None).details["field"] == "hostname"


def test_more_variables_than_a_program_can_be_given_are_refused_at_once() -> None:
    assert spec_of(env={"A": "x" * (2**17 - 3)}).env
    for options in (
        {"env": {"A": "x" * 2**17}},
        {"secrets": {"A": "x" * 2**17}},
        {
            "env": {f"A{n}": "x" * 100_000 for n in range(6)},
            "secrets": {f"S{n}": "x" * 100_000 for n in range(6)},
        },
    ):
        assert refusal_of(spec_of, **options).code is ErrorCode.TOO_LARGE
