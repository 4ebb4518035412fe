"""The command line with stacks that are tests/faulty/stack.py: one command, then the end."""

import host  # makes the stacks false

from samebits.__main__ import main

if __name__ == "__main__":
    assert host.KNOWN
    main()
