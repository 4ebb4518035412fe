"""The command line with stacks that are tests/faulty/stack.py: one command, then the end."""

import os
import sys

import host  # makes the stacks false

from samebits import cli

if __name__ == "__main__":
    assert host.KNOWN
    sys.exit(cli.program(sys.argv[1:], os.environ))
