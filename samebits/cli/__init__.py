"""The command line: its commands, and what becomes of their options, errors and interrupts."""

from samebits.cli.command import main, program, run
from samebits.cli.parser import parsers

__all__ = ["main", "parsers", "program", "run"]
