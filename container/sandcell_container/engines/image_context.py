"""The build context of the runtime image: made of this installation, from a source tree or a wheel alike."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import sandcell_container
from sandcell_container.errors import ErrorCode, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["image_files", "own_version", "pack_context", "read_bundle"]

_DISTRIBUTION = "sandcell"
_PACKAGES = ("sandcell", "sandcell_container", "sandcell_kernel", "sandcell_runtime")


def own_version() -> str:
    """Return the version of Sandcell that runs here."""
    return distribution(_DISTRIBUTION).version


def image_files(*, ca_bundle: bytes = b"") -> dict[str, bytes]:
    """Return the files of the context by their names. `ca_bundle` is what pip trusts during the build, and not after."""
    folder = _image_folder()
    found = {name: (folder / name).read_bytes() for name in ("Dockerfile", "entry.py")}
    found["ca.crt"] = ca_bundle
    found["requirements.txt"] = "".join(f"{each}\n" for each in _requirements()).encode()
    for package in _PACKAGES:
        found |= {f"packages/{name}": data for name, data in _files_of(package)}
    metadata = distribution(_DISTRIBUTION).read_text("METADATA") or ""
    found[f"packages/{_DISTRIBUTION}-{own_version()}.dist-info/METADATA"] = metadata.encode()
    return found


def pack_context(files: Mapping[str, bytes]) -> io.BytesIO:
    """Return a tar of `files`, the same for the same files, so that the daemon's cache of steps holds. What begins as a script
    may be executed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mode = 0o755 if files[name].startswith(b"#!") else 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    packed.seek(0)
    return packed


def read_bundle(path: str | None) -> bytes:
    """Return the certificates in the file `path`, nothing for None.

    Raises:
        InvalidRequest (INVALID_ARGUMENT): it cannot be read, or holds none.
    """
    if path is None:
        return b""
    try:
        found = Path(path).read_bytes()
    except OSError as problem:
        raise error(
            ErrorCode.INVALID_ARGUMENT, f"the CA bundle {path} cannot be read: {problem.strerror}"
        ) from problem
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise error(
            ErrorCode.INVALID_ARGUMENT, f"{path} holds no certificate", hint="a file of PEM certificates"
        )
    return found


def _image_folder() -> Path:
    """In a wheel the folder is the package's own, in a source tree it lies beside it."""
    package = Path(sandcell_container.__path__[0])
    inside = package / "image"
    return inside if inside.is_dir() else package.parent / "image"


def _requirements() -> Iterator[str]:
    return (each for each in distribution(_DISTRIBUTION).requires or () if "extra ==" not in each)


def _files_of(package: str) -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations if spec else None) or ():
        root = Path(place)
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(root)}", path.read_bytes()
