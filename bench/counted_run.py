"""``python -m bench.counted_run matrix …``: samebits over bench/counted/stack.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from samebits import cli
from samebits.stacks import probes


def main(arguments: list[str]) -> int:
    """Run the command line; the stacks' processes count."""
    probes.STACK = Path(__file__).parent / "counted" / "stack.py"
    return cli.main(arguments, os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
