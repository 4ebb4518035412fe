"""A folder with a matrix whose stacks are tests/faulty/stack.py, and hosts that run it."""

import glob
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support.builders import Memory, forward, layers, sound, values

STACKS = ("4.48", "5.0")
PROGRAM = Path(__file__).parents[1] / "faulty" / "host.py"
TIMES = {"seconds", "spent", "started"}


class Host:
    """A program that runs matrices on demand, each in a process that a test may kill."""

    def __init__(self):
        self._running = None
        self._program = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def begin(self, bench, *arguments):
        """Start a run and return its process id; a run that a failed test left is ended first."""
        self.abandon()
        order = {"folder": str(bench.folder), "environ": bench.environ, "arguments": arguments}
        order["room"] = bench.room
        self._program.stdin.write(json.dumps(order) + "\n")
        self._program.stdin.flush()
        self._running = int(self._program.stdout.readline())
        return self._running

    def ends_within(self, seconds):
        """Return True as soon as the run has ended, False if it goes on for longer."""
        ready, _, _ = select.select([self._program.stdout], [], [], seconds)
        return bool(ready)

    def end(self):
        """Return how the run ended: its exit code, or the negative number of a signal."""
        code = int(self._program.stdout.readline())
        self._running = None
        return code

    def abandon(self):
        """Kill the run whose end no test has read: its answer is not the next test's."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.kill(self._running, signal.SIGKILL)
            self.end()

    def run(self, bench, *arguments):
        self.begin(bench, *arguments)
        return self.end()

    def close(self):
        self._program.stdin.close()
        self._program.wait()
        self._program.stdout.close()


class Bench:
    """A matrix in a folder; ``environ`` is what its user's shell holds."""

    def __init__(self, folder, *models, stacks=STACKS, timeouts=None, more="", **environ):
        self.folder = folder
        self.room = None
        """How many files of the host the work folder has room for; None: any number."""
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        names = ", ".join(f'"{stack}"' for stack in stacks)
        lines = [f"environments: [{names}]", "defaults: {relations: false, timeout: 30}", "models:"]
        for name in models:
            timeout = (timeouts or {}).get(name, 30)
            lines.append(f"  {name}: {{build: {{architecture: llama}}, timeout: {timeout}}}")
        (folder / "matrix.yaml").write_text("\n".join(lines) + "\n" + more)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(folder),  # marks every process of this bench
            "HF_HOME": str(templates(folder / "templates", stacks)),
        } | environ

    @property
    def said(self):
        """Return what the run printed so far."""
        try:
            return (self.folder / "said.log").read_text("utf-8", "replace")
        except FileNotFoundError:  # its process has not started yet
            return ""

    @property
    def report(self):
        return json.loads((self.folder / "report" / "report.json").read_text())

    @property
    def without_times(self):
        return timeless(self.report)

    def cells(self):
        return {
            f"{cell['cell']['model']}@{cell['cell']['stack']}": cell
            for row in self.report["rows"]
            for cell in row["cells"]
        }

    def at_work(self, stack):
        """Return True if a stack has begun with a cell."""
        return bool(self.files(f"captures/*/*/{stack}/*/*"))

    def files(self, pattern):
        """Return what matches in the work folder; a folder that vanishes meanwhile holds nothing.

        ``Path.glob`` raises there, and a run renames its folders at any moment.
        """
        root = self.folder / ".samebits"
        return [root / name for name in glob.glob(pattern, root_dir=root, recursive=True)]  # noqa: PTH207

    def logged(self, line):
        """Return True if a log of a cell has this text."""
        for path in self.files("captures/**/[ab].*.log"):
            with suppress(FileNotFoundError):
                if line in path.read_text():
                    return True
        return False

    def until(self, true, within=20):
        """Wait until something is true of the run."""
        deadline = time.monotonic() + within
        while not true():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def processes(self):
        """Return the process ids of all that lives of this bench's stacks."""
        return processes_with("TMPDIR", self.folder)

    def all_end(self, within=5.0):
        """Return True if no process is left after some time."""
        return all_end("TMPDIR", self.folder, within)


def processes_with(variable, value):
    """Return the process ids of all that lives with a variable of that value."""
    marker = f"{variable}={value}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def all_end(variable, value, within=5.0):
    """Return True if none of them is left after some time."""
    deadline = time.monotonic() + within
    while processes_with(variable, value):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def timeless(value):
    """Return a report without what differs between any two runs; a page says when it was written."""
    if isinstance(value, dict):
        items = {key: timeless(item) for key, item in value.items() if key not in TIMES}
        unordered = "rows" in value and "files" in value
        return items | ({"files": sorted(value["files"])} if unordered else {})
    return [timeless(item) for item in value] if isinstance(value, list) else value


def templates(folder, stacks):
    """Write what the cells are to leave: ``healthy`` everywhere alike, ``odd`` not in the last."""
    (folder / "tensors").mkdir(parents=True)
    memory = Memory()
    hidden = [values(1, 6, 4, seed=seed) for seed in range(3)]
    other = forward(memory, hidden=layers(memory, *hidden), logits=values(1, 6, 8, seed=99))
    for stack in stacks:
        for run in ("a", "b"):
            changed = {"forward": {"short": other}} if stack == stacks[-1] else {}
            for name, more in (("healthy", {}), ("odd", changed)):
                left = sound(memory, stack, run=run, model=name, **more)
                (folder / f"{name}-{stack}-{run}.json").write_text(left.model_dump_json())
    for hash, array in memory.arrays.items():
        (folder / "tensors" / f"{hash}.bin").write_bytes(array.tobytes())
    return folder
