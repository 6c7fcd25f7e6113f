from __future__ import annotations

from sandcell_container.engines.launch import Launch, Program
from sandcell_container.guest.boot import GuestBoot


def test_a_launch_survives_the_way_to_the_zygote() -> None:
    boot = GuestBoot(
        sandbox_id="sbx_a",
        name="a",
        engine="local",
        token="secret",
        epoch="e",
        created_at=1.5,
        on_release="stop",
        grace=0.0,
        idle_timeout=None,
        default_timeout=300.0,
        python="/home/user/.venv/bin/python",
        runtime_dir="/run/sandcell/runtime",
        base_env={"A": "not \udcff UTF-8", "B": "x" * 200_000},
        warnings=("one",),
    )
    program = Program(argv=("/usr/bin/bwrap", "--args", "5"), identity=61200, sources=("/a", "/b"))
    launch = Launch(
        boot=boot,
        module="m",
        function="f",
        program=program,
        timeout=1.0,
        enter=True,
        import_roots=("/usr",),
    )
    assert Launch.decode(launch.encode()) == launch
