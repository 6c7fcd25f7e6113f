"""All knowledge of the Jupyter protocol. Its rooms are imported by name, so none pays for what another opens."""

from __future__ import annotations

__all__: list[str] = []
