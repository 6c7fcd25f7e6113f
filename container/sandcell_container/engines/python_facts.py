"""What a Python says of its own environment. Run by path in foreign interpreters too: standard library only."""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig

__all__ = ["describe"]


def describe() -> dict[str, object]:
    """Return the facts of the running interpreter, JSON-safe; `executable` is the one below any environment."""
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
    packages = sysconfig.get_path("purelib", scheme)
    return {
        "executable": os.path.realpath(sys.executable),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "packages": os.path.relpath(packages, sys.prefix),
        "site_dirs": [folder for folder in folders if os.path.isdir(folder)],
        "version": ".".join(str(part) for part in sys.version_info[:3]),
    }


if __name__ == "__main__":
    json.dump(describe(), sys.stdout)
