"""A parser of a command line whose errors can be read."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors do not disappear below twenty options."""

    def error(self, message: str) -> NoReturn:
        """End with the mistake, and where the options are listed."""
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists the options\n")
