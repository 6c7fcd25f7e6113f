"""What an engine is checked with: a guest that does as it is told, and who tells it. Shipped for engines of others."""

from sandcell_container.conformance.asking import Asker, Ran
from sandcell_container.conformance.plain_guest import command

__all__ = ["Asker", "Ran", "command"]
