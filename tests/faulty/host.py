"""Runs matrices with the command line's own main, whose stacks are tests/faulty/stack.py.

For every line of JSON ({"folder", "environ"}) a process is forked that runs the matrix.yaml of that
folder and writes its report there; its process id is answered, then how it ended. Importing
samebits once makes fifty runs a matter of seconds. With "room" the work folder has no room for more
than so many files that this process keeps.
"""

import errno
import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent), str(HERE)]

import clock

from samebits import cli
from samebits.pipeline import opening
from samebits.pipeline.scheduler import Scheduler
from samebits.stacks import probes, process
from tests.support.builders import built_stack

probes.STACK = HERE / "stack.py"
process._TIME_TO_END = 1.0
process._CHECK_INTERVAL, process._MAX_SILENCE, process._MAX_IDLE = 0.5, 3.0, 3.0
KNOWN = ("llama",)


def built(spec):
    return built_stack(spec.id, *KNOWN, python=sys.executable)


opening.Scheduler = partial(Scheduler, builder=built)


def leave_room(n_files):
    """Let the work folder be full once this process has written that many files to it."""
    make = tempfile.mkstemp

    def mkstemp(*arguments, dir=None, **more):
        nonlocal n_files
        if ".samebits" in Path(dir or "").parts:
            n_files -= 1
            if n_files < 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(dir))
        return make(*arguments, dir=dir, **more)

    tempfile.mkstemp = mkstemp


def host(order):
    # a shell that starts tests in the background has them ignore it, and what they start, too
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder = Path(order["folder"])
    said = os.open(folder / "said.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(said, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    words = list(order["arguments"])
    name = words.pop(0) if words[:1] == ["merge"] else "matrix"
    command = [name, "--jobs", "4", "--reports", "report", *words]
    if order["room"] is not None:
        leave_room(order["room"])
    clock.set_back_again_and_again(Path(order["environ"]["HF_HOME"]))
    code = 130
    with suppress(KeyboardInterrupt):  # before and after the run, as in the program's entry point
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = cli.main(command, order["environ"])
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main():
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                host(json.loads(line))
            finally:
                import traceback

                traceback.print_exc()
                os._exit(99)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
