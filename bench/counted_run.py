"""``python -m bench.counted_run matrix …``: samebits over bench/counted/probe_stack.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from samebits import cli, probing


def main(arguments: list[str]) -> int:
    """Run the command line; the stacks' processes count."""
    probing.PROBES = Path(__file__).parent / "counted"
    return cli.main(arguments, os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
