"""Takes the place of probes/stack.py in the tests: one import of a release serves many runs.

The interpreter of a stack runs this file. The first time it starts a parent, which imports what probes/stack.py
imports. Each time the parent forks a child, which goes on as probes/stack.py does after its imports; its own jobs
are forks of that child. With arguments the child runs a script instead, or ``-c`` code. A run with other variables
than usual gets probes/stack.py itself, and so does every run where there is no Linux.

The file is run by a link in a folder named after the process of the tests, which has the sockets of the parents.
They end with that process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).absolute().parent
PROBES = Path(__file__).resolve().parents[2] / "probes"
ENVIRONMENT = Path(sys.prefix).resolve()
"""The folder of the stack, to which the projects of tests have links."""
OF_A_RUN = {"HF_MODULES_CACHE", "SAMEBITS_ACCELERATE", "SAMEBITS_COMMIT", "SAMEBITS_PILLOW"}
"""Variables that a run has of its own: no import depends on them."""


def main(words: list[str]) -> None:
    """Pass standard streams and variables on to a child of the parent, and end as it ends."""
    variables = {name: os.environ[name] for name in os.environ.keys() - OF_A_RUN}
    is_usual = bool(words) or variables == json.loads((HERE / "usual.json").read_text())
    if sys.platform != "linux" or not is_usual:
        os.execv(sys.executable, [sys.executable, *(words or [str(PROBES / "stack.py")])])
    place = HERE / hashlib.sha256(str(ENVIRONMENT).encode()).hexdigest()[:8]
    with connected(place) as parent:
        order = {"variables": dict(os.environ), "words": words, "folder": str(Path.cwd())}
        socket.send_fds(parent, [json.dumps(order).encode()], [0, 1, 2])
        for descriptor in (0, 1):  # they are the child's: their ends must be seen
            os.close(descriptor)
        status = int(parent.recv(16) or b"9")  # without an answer the parent was killed
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def connected(place: Path) -> socket.socket:
    """Return a connection to the parent of this environment, which is started if there is none."""
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return connection(place)
        command = [str(ENVIRONMENT / "bin" / "python"), __file__, "--parent", str(place)]
        with place.with_suffix(".log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while process.poll() is None:
            with contextlib.suppress(OSError):
                return connection(place)
            time.sleep(0.02)
    sys.exit(place.with_suffix(".log").read_text("utf-8", "replace"))


def connection(place: Path) -> socket.socket:
    parent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        parent.connect(str(place))
    except OSError:
        parent.close()
        raise
    return parent


def serve(place: Path) -> None:
    """Import what a stack's process imports, and fork it for each connection until the tests end."""
    sys.path[0] = str(PROBES)
    import stack
    from samebits_probe.process import learned

    stack.gc.disable()
    facts = stack._import_everything()
    tests = int(place.parent.name.rpartition("-")[2])
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen(64)
        children: dict[int, tuple[int, socket.socket]] = {}  # its descriptor -> child, its peer
        while exists(tests):
            gone = {peer.fileno(): child for child, peer in children.values()}
            for ready in select.select([listener, *children, *gone], [], [], 1.0)[0]:
                if ready is listener:
                    peer = listener.accept()[0]
                    others = [*children, *gone, listener.fileno(), peer.fileno()]
                    child = forked(peer, others, stack, facts, place)
                    children[os.pidfd_open(child)] = child, peer
                elif ready in children:
                    child, peer = children.pop(ready)
                    status = os.waitpid(child, 0)[1]
                    os.close(ready)
                    learned.read(learned_file(place, child))
                    with peer, contextlib.suppress(OSError):
                        peer.send(str(status).encode())
                elif ready in gone:  # the process that it stands for was killed
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(gone[ready], signal.SIGKILL)
        for child, _ in children.values():
            os.kill(child, signal.SIGKILL)


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def learned_file(place: Path, child: int) -> Path:
    return place.with_suffix(f".{child}.learned")


def forked(peer: socket.socket, others: list[int], stack, facts, place: Path) -> int:
    """Fork a child that becomes the environment's process of one run, or runs one script."""
    content, streams, *_ = socket.recv_fds(peer, 1 << 20, 3)
    child = os.fork()
    if child:
        for descriptor in streams:
            os.close(descriptor)
        return child
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for descriptor in (*streams, *others):
            os.close(descriptor)
        become(json.loads(content), stack, facts, learned_file(place, os.getpid()))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001  the child ends here, whatever happened
        stack.traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def become(order: dict, stack, facts, file: Path) -> None:
    os.environ.clear()
    os.environ.update(order["variables"])
    os.chdir(order["folder"])
    words = order["words"]
    if not words:
        from samebits_probe.process import learned

        stack._import_everything = lambda: facts
        mark = learned.mark()
        stack.main([])
        learned.write(mark, file)
        return
    stack.gc.freeze()  # as before each job: a collection would copy the pages of all that was imported
    stack.gc.enable()
    stack._separate_remote_code()
    stack.inherit_orphans()
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path[0] = ""
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        return
    sys.argv = words
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--parent"]:
        serve(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
