"""The entry point ``python -m samebits``."""

import gc
import os
import sys

from samebits import overview
from samebits.base.errors import EXIT_INTERRUPTED, INTERRUPTED
from samebits.base.streams import open_missing, write


def main() -> None:
    """Run the command line and exit with its code."""
    open_missing()
    try:
        _run()
    except KeyboardInterrupt:  # while modules were imported, or before or after a run
        write(sys.stderr, f"{INTERRUPTED}\n")
        sys.exit(EXIT_INTERRUPTED)
    finally:
        gc.freeze()  # else Python looks through all that is left before it ends


def _run() -> None:
    if overview.is_asked(sys.argv[1:]):
        overview.show(sys.argv[1:])
    if sys.argv[1:2] == ["lint"]:
        from samebits.lint.command import main as lint  # noqa: PLC0415  it needs nothing of the rest

        sys.exit(lint(sys.argv[2:]))
    if sys.argv[1:2] == ["defaults"]:
        from samebits.defaults.command import main as defaults  # noqa: PLC0415  as lint

        sys.exit(defaults(sys.argv[2:]))
    if not hasattr(os, "fork"):
        write(
            sys.stderr,
            "samebits forks its processes, which this system cannot: use Linux or macOS\n",
        )
        sys.exit(2)
    # a run holds a million records, and Python would look through them every 700 new ones
    gc.set_threshold(50_000, 20, 100)
    from samebits.storage.receipt import lookup  # noqa: PLC0415  slow, and lint does without

    stored = lookup(sys.argv[1:], os.environ)
    if stored is None:
        from samebits import cli  # noqa: PLC0415  slow, and not needed for an unchanged run

        sys.exit(cli.program(sys.argv[1:], os.environ))
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    write(sys.stdout, "".join(f"{line}\n" for line in stored.lines))
    sys.exit(stored.code)


if __name__ == "__main__":
    main()
