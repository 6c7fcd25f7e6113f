"""Kernelspecs of the user's environment."""

from __future__ import annotations

import json

import pytest

from sandcell.kernelspecs import folders_of, parse_kernelspec

SPEC = {
    "argv": ["prog", "-f", "{connection_file}", "{resource_dir}/x"],
    "language": "Toy",
    "display_name": "T",
}


def test_a_spec_is_read_and_filled_in() -> None:
    text = {
        **SPEC,
        "env": {"A": "${HOME}/a", "B": "${NONE}"},
        "interrupt_mode": "message",
        "metadata": {"x": 1},
    }
    spec = parse_kernelspec("toy", json.dumps(text).encode(), folder="/specs/toy")
    assert spec is not None
    assert spec.command("/c.json") == ("prog", "-f", "/c.json", "/specs/toy/x")
    assert spec.environment({"HOME": "/h"}) == {
        "HOME": "/h",
        "A": "/h/a",
        "B": "${NONE}",
        "JPY_PARENT_PID": "1",
    }
    assert (spec.language, spec.interrupts) == ("Toy", "message")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"argv": []}',
        b'{"argv": [""]}',
        b'{"argv": "prog"}',
        b'{"argv": ["python", "-m", "sandcell.launch_kernel", "-f", "{connection_file}"]}',
    ],
)
def test_what_cannot_be_started_here_is_none(text: bytes) -> None:
    assert parse_kernelspec("toy", text) is None


def test_folders_are_those_of_the_environment() -> None:
    env = {"HOME": "/home/user", "PATH": "/venv/bin:/opt/tools:/usr/bin:/bin:/usr/bin"}
    assert folders_of(env) == [
        "/home/user/.local/share/jupyter/kernels",
        "/venv/share/jupyter/kernels",
        "/usr/share/jupyter/kernels",
        "/share/jupyter/kernels",
    ]
