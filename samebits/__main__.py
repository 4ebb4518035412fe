"""``python -m samebits``."""

import os
import sys

from samebits.storage.receipt import answer


def main() -> None:
    """Run the command line and exit with its code."""
    left = answer(sys.argv[1:], os.environ)
    if left is None:
        from samebits import cli  # noqa: PLC0415  what an unchanged run has no use for

        sys.exit(cli.program(sys.argv[1:], os.environ))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    print(*left.lines, sep="\n")
    sys.exit(left.code)


if __name__ == "__main__":
    main()
