"""What runs inside the user's own interpreter: it may import ipykernel and the standard library, none of ours.

Started by path (`PYTHON .../sandcell_runtime/launch.py`), so it works in any environment that has ipykernel.
"""

from __future__ import annotations

__all__: list[str] = []
