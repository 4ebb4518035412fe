"""Process of one stack that stays between runs: torch and transformers are imported once for all of them.

``samebits_warm.py PLACE SECONDS`` takes the place of stack.py. ``PLACE`` is the path of a socket in a folder
that only its user may enter. Behind it is the *keeper*, which imports what stack.py imports and forks a
process for each run; the fork goes on as stack.py does after its imports, with the streams, the
variables and the folder of the run. If there is no keeper, one is started. It ends when it has had no
run for ``SECONDS``, when it is asked to, or when the machine is short of memory and no other keeper was
used less recently.

``PLACE`` must be another one wherever an import, or what a process inherits, could differ: the
environment, its packages, the probes, the variables, the limits of the process
(samebits/stacks/warm.py). Linux only, as a keeper must notice the end of each run.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from samebits_probe.process.children import die_with_parent
from samebits_wire.places import OF_A_RUN

PROBES = Path(__file__).resolve().parent
MESSAGE = 1 << 20
"""Maximum bytes of a message."""
_CREDENTIALS = struct.Struct("3i")
"""``struct ucred`` of unix(7): process, user and group."""
_LOOK = 1.0
"""Seconds between two looks at the time and at the machine's memory."""
_SHORT = 0.15
"""Share of the machine's memory that must be available for an unused keeper to stay."""


def main(words: list[str]) -> None:
    """Run stack.py in a fork of the keeper at the place that is named, and end as it ends."""
    place, seconds = Path(words[0]), float(words[1])
    command = [sys.executable, str(PROBES / "samebits_warm.py"), "--keep", str(place)]
    with connected(place, command) as keeper:
        order = {"variables": dict(os.environ), "folder": str(Path.cwd()), "seconds": seconds}
        end_as(handed_over(keeper, order))


def handed_over(keeper: socket.socket, order: dict[str, Any]) -> int:
    """Give the standard streams to a fork of the keeper, and return its status when it has ended."""
    socket.send_fds(keeper, [json.dumps(order).encode()], [0, 1, 2])
    for descriptor in (0, 1):  # they are the fork's: their ends must be seen
        os.close(descriptor)
    return int(keeper.recv(16) or str(int(signal.SIGKILL)))


def end_as(status: int) -> None:
    """End this process as a process with this status ended."""
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):  # nothing can be said of SIGKILL
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def connected(place: Path, command: list[str]) -> socket.socket:
    """Return a connection to the keeper of a place, which ``command`` starts if there is none."""
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return connection(place)
        variables = {name: os.environ[name] for name in os.environ.keys() - OF_A_RUN}
        with place.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
            )
        while process.poll() is None:
            with contextlib.suppress(OSError):
                return connection(place)
            time.sleep(0.02)
    sys.exit(place.with_suffix(".log").read_text("utf-8", "replace"))


def connection(place: Path) -> socket.socket:
    """Return a connection to a keeper. Raises OSError if there is none."""
    keeper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        keeper.connect(str(place))
    except OSError:
        keeper.close()
        raise
    return keeper


class Keeper:
    """The process that has imported everything: it forks one process per run, and answers questions."""

    def __init__(self, place: Path, become: Callable[[dict[str, Any]], None]) -> None:
        self._place = place
        self._become = become
        self._runs: dict[int, Run] = {}
        """The descriptor of its process -> a run."""
        self._n_runs = 0
        self._seconds = 60.0
        self._used = time.monotonic()
        self._asked_to_end = False
        self._inode = 0

    def serve(self, learn: Callable[[Path], None]) -> None:
        """Fork a process for each connection until it is time to end; ``learn`` reads what a run wrote."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            self._open(listener)
            while not self._is_over() or self._is_wanted(listener):
                left = {run.peer.fileno(): run for run in self._runs.values()}
                waited = [listener.fileno(), *self._runs, *left]
                for ready in select.select(waited, [], [], _LOOK)[0]:
                    if ready == listener.fileno():
                        self._answer(listener.accept()[0], listener)
                    elif ready in self._runs:
                        self._finish(ready, learn)
                    elif ready in left:  # the process that it stands for was killed
                        left[ready].kill()

    def _is_wanted(self, listener: socket.socket) -> bool:
        """Give up the place; return True if a run has connected before that."""
        if self._is_reachable():
            self._place.unlink(missing_ok=True)
        return bool(select.select([listener], [], [], 0)[0])

    def _open(self, listener: socket.socket) -> None:
        """Listen at the place: the socket gets its name when it can be connected to."""
        new = self._place.with_suffix(".new")
        new.unlink(missing_ok=True)
        listener.bind(str(new))
        listener.listen(64)
        self._inode = new.stat().st_ino
        new.replace(self._place)

    def _is_reachable(self) -> bool:
        """Return True if its socket is still the one at the place."""
        with contextlib.suppress(OSError):
            return self._place.stat().st_ino == self._inode
        return False

    def _is_over(self) -> bool:
        if self._runs:
            return False
        if not self._is_reachable():
            return True
        unused = time.monotonic() - self._used
        return self._asked_to_end or unused >= self._seconds or self._is_in_the_way()

    def _is_in_the_way(self) -> bool:
        """Return True if the machine is short of memory, and no other keeper was used less recently."""
        if not self._n_runs or _available() >= _SHORT:
            return False
        used = {}
        for place in self._place.parent.glob(f"*{self._place.suffix}"):
            with contextlib.suppress(OSError):
                used[place] = place.stat().st_mtime
        return min(used, key=used.__getitem__, default=self._place) == self._place

    def _answer(self, peer: socket.socket, listener: socket.socket) -> None:
        """Fork a process for a run, or answer a question; another user gets neither."""
        with contextlib.suppress(OSError, ValueError):
            content, streams, *_ = socket.recv_fds(peer, MESSAGE, 3)
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[1] == os.getuid():
                order = json.loads(content)
                if "ask" not in order:
                    self._start(order, peer, streams, listener)
                    return
                self._asked_to_end |= order["ask"] == "end"
                peer.send(json.dumps(self._facts()).encode())
        peer.close()

    def _facts(self) -> dict[str, Any]:
        """Return what a list of keepers shows; times in seconds, memory in bytes."""
        unused = 0.0 if self._runs else time.monotonic() - self._used
        return {
            "pid": os.getpid(),
            "environment": str(Path(sys.prefix)),
            "running": len(self._runs),
            "runs": self._n_runs,
            "unused": round(unused, 1),
            "ends_in": round(max(0.0, self._seconds - unused), 1),
            "memory": _own_memory(),
        }

    def _start(
        self,
        order: dict[str, Any],
        peer: socket.socket,
        streams: list[int],
        listener: socket.socket,
    ) -> None:
        self._n_runs += 1
        self._seconds = float(order["seconds"])
        with contextlib.suppress(OSError):
            os.utime(self._place)
        keeper, pid = os.getpid(), os.fork()
        if pid:
            for descriptor in streams:
                os.close(descriptor)
            self._runs[os.pidfd_open(pid)] = Run(pid, peer, self._learned_file(pid))
            return
        others = [*self._runs, *(run.peer.fileno() for run in self._runs.values())]
        order |= {"keeper": keeper, "learned": str(self._learned_file(os.getpid()))}
        _go_on(order, streams, [*others, listener.fileno(), peer.fileno()], self._become)

    def _learned_file(self, pid: int) -> Path:
        return self._place.with_suffix(f".{pid}.learned")

    def _finish(self, descriptor: int, learn: Callable[[Path], None]) -> None:
        run = self._runs.pop(descriptor)
        status = os.waitpid(run.pid, 0)[1]
        os.close(descriptor)
        with run.peer, contextlib.suppress(OSError):
            run.peer.send(str(status).encode())
        learn(run.learned)
        self._used = time.monotonic()


class Run:
    """A process that a keeper forked for a run, and the connection to the process that it stands for."""

    def __init__(self, pid: int, peer: socket.socket, learned: Path) -> None:
        self.pid = pid
        self.peer = peer
        self.learned = learned

    def kill(self) -> None:
        """End the process at once; its jobs end with it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _go_on(
    order: dict[str, Any],
    streams: list[int],
    others: Collection[int],
    become: Callable[[dict[str, Any]], None],
) -> None:
    """Take the streams, the variables and the folder of a run, and become its process."""
    code = 1
    try:
        die_with_parent(order["keeper"])
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in (*streams, *others):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(order["variables"])
        os.chdir(order["folder"])
        become(order)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001  the process ends here, whatever happened
        import traceback  # noqa: PLC0415  a keeper needs it only here

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _available() -> float:
    """Return the share of the machine's memory that is available; 1.0 if it is not known."""
    kilobytes = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            kilobytes[name] = int(value.split()[0])
    return kilobytes.get("MemAvailable", 1) / max(1, kilobytes.get("MemTotal", 1))


def _own_memory() -> int:
    """Return the bytes that this process alone holds, and its share of what others hold, too (PSS)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/self/smaps_rollup").read_text("ascii")
        return int(text.partition("\nPss:")[2].split()[0]) << 10
    return 0


def keep(
    place: Path,
    keeper: type[Keeper] = Keeper,
    run_script: Callable[[list[str]], None] = lambda _words: None,
) -> None:
    """Import what stack.py imports, and serve until it is time to end.

    A run with ``words`` is one of ``run_script``, which the tests have.
    """
    import stack  # noqa: PLC0415  a process that only connects does without
    from samebits_probe.process import learned, own  # noqa: PLC0415

    gc.disable()
    own.use_packages()
    facts = stack._import_everything()
    os.chdir("/")

    def become(order: dict[str, Any]) -> None:
        if words := order.get("words"):
            run_script(words)
            return
        stack._import_everything = lambda: facts
        mark = learned.mark()
        stack.main()
        learned.write(mark, Path(order["learned"]))

    keeper(place, become).serve(learned.read)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        keep(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
