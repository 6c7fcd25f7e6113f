"""The version of Sandcell; the build takes it from here.

Asking the installed metadata for it costs every kernel and every guest the import of a parser of mail.
"""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
