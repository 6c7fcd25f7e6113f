"""What engines are checked with, shipped for engines of others: the checks, a guest that does as it is told, and who tells it."""

from sandcell_container.conformance.asking import Asker, Ran
from sandcell_container.conformance.checks import CHECKS, Check, Outcome, run_checks
from sandcell_container.conformance.plain_guest import command
from sandcell_container.conformance.subject import Box, Runner, Subject

__all__ = ["CHECKS", "Asker", "Box", "Check", "Outcome", "Ran", "Runner", "Subject", "command", "run_checks"]
