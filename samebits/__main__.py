"""``python -m samebits``."""

import os
import sys

from samebits import cli


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(cli.main(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
