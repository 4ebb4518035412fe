"""The real probes/stack.py without torch: its processes, pipes and limits over false jobs.

What a job does is told by its model's name: one of FAULTS below, or it leaves the capture that
the folder FAULTY_TEMPLATES holds for it.
"""

import ctypes
import gc
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from blake3 import blake3

PROBES = Path(__file__).parents[2] / "probes"
sys.path[:0] = [str(PROBES), str(Path(__file__).parent)]
import clock
import stack
from samebits_probe.process import files as process_files
from samebits_probe.process import progress

from samebits_wire.atomic import read_whole, replacing

FACTS = {
    "platform": "Linux",
    "cpu": "none",
    "cpu_capability": "DEFAULT",
    "cores": 2,
    "threads": 1,
    "flags": {},
}
TEMPLATES = Path(os.environ["HF_HOME"])  # one of the few variables that a probe sees
STEP = 0.005
"""Seconds between two steps of a job, for a test that kills between them."""
FAULTS = {}


def fault(function):
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


@fault
def segfault(job):
    print("about to read at zero")
    ctypes.string_at(0)


@fault
def killed_for_memory(job):
    os.kill(os.getpid(), signal.SIGKILL)


@fault
def no_memory(job):
    size = 1 << 28
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    bytearray(size)


@fault
def hang(job):
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"])
    daemon()
    print("now it hangs", flush=True)
    time.sleep(600)


@fault
def spins(job):
    progress.begin("forward short")
    while True:
        pass


@fault
def hangs_half_way(job):
    """Leave what was observed before the forward, in run a alone."""
    if job["run"] == "b":
        leave(job)
        return
    leave(job, status="unfinished", signals=("load", "config", "weights", "buffers", "inv_freq"))
    progress.begin("forward short")
    progress.tick("plain", 2, 3)
    time.sleep(600)


@fault
def killed_half_way(job):
    leave(job, status="unfinished", signals=("load", "config", "weights", "buffers", "inv_freq"))
    progress.begin("greedy short")
    os.kill(os.getpid(), signal.SIGKILL)


@fault
def crashes_half_way(job):
    leave(job, status="unfinished", signals=("load", "config", "weights", "buffers", "inv_freq"))
    progress.begin("forward short")
    ctypes.string_at(0)


@fault
def slow_but_working(job):
    """Take three times as long as may pass without progress."""
    for step in range(8):
        progress.tick("forward", step + 1, 8)
        time.sleep(0.4)
    leave(job)


@fault
def one_long_step(job):
    """Take longer than that in a step of which it is known before."""
    progress.tick("load", allowance=30)
    time.sleep(2.5)
    leave(job)


def daemon():
    """Leave a process that no group and no parent leads to, and that holds all pipes."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


@fault
def leaves_a_daemon(job):
    daemon()
    leave(job)


@fault
def os_exit(job):
    print("without a word")
    os._exit(0)


@fault
def sys_exit(job):
    sys.exit("enough of this")


@fault
def prints(job):
    for number in range(60_000):
        print(f"{number:8d} " + "x" * 1000)
    print("the last words", file=sys.stderr)
    os._exit(7)


@fault
def disk_full(job):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
    leave(job)


@fault
def device_full(job):
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


@fault
def nothing(job):
    pass


@fault
def raises(job):
    raise RuntimeError(
        f"{os.environ['HOME']}/secret <b>bold</b> \x1b[31mred\x1b[0m | pipe\nand hf_abcdefgh12345678"
    )


@fault
def changes_everything(job):
    os.environ.clear()
    os.environ["LC_ALL"] = "nonsense"
    os.chdir("/")
    os.umask(0o777)
    random.seed(0)
    sys.setrecursionlimit(100)
    sys.path.clear()
    json.dumps = json.loads = stack.json.dump = None
    Path.write_text = Path.read_text = None
    time.sleep = time.monotonic = lambda *_: 1e9
    os.fork = os.waitpid = None
    os._exit(3)


@fault
def kills_its_parent(job):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@fault
def misses_a_file(job):
    """End as a job whose kept inputs are damaged, as often as the bench tells."""
    left = int((TEMPLATES / "misses").read_text())
    (TEMPLATES / f"missed-{os.getpid()}").touch()
    if len(list(TEMPLATES.glob("missed-*"))) <= left:
        process_files.read_sealed(Path("02a0.bin"))
    leave(job)


@fault
def stops_its_parent(job):
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


@fault
def closes_its_pipes(job):
    os.closerange(0, 256)
    time.sleep(0.1)
    os._exit(5)


def place_of(job):
    path = Path(job["capture"])
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@fault
def leaves_half_a_capture(job):
    place_of(job).write_text('{"format": "samebits-capture", "format_ver')


@fault
def leaves_a_pipe(job):
    os.mkfifo(place_of(job))


@fault
def leaves_a_device(job):
    place_of(job).symlink_to("/dev/zero")


@fault
def leaves_another_s_capture(job):
    other = {**job["cell"], "model": "healthy"}
    leave({**job, "cell": other})


@fault
def answers_for_others(job):
    for number in range(1, 60):
        print(json.dumps({"id": f"5.0#{number}", "exit": 0}))
    print("[" * 100_000)


@fault
def learns_nonsense(job):
    """Name a module for its parent that ends whoever imports it."""
    folder = Path(tempfile.mkdtemp())
    (folder / "leaver.py").write_text("raise SystemExit(1)")
    Path(job["log"]).with_suffix(".imports").write_text(f"leaver\n\0\n..\n{'x' * 9999}")
    leave(job)


@fault
def connects(job):
    socket.create_connection(("127.0.0.1", 9), timeout=1)


@fault
def tells_the_environment(job):
    raise RuntimeError(" ".join(sorted(os.environ)))


@fault
def tells_the_collector(job):
    raise RuntimeError(f"collecting: {gc.isenabled()}, spared: {gc.get_freeze_count() > 1000}")


# jobs that are done


def perform(job):
    if job["kind"] == "cell":
        FAULTS.get(job["cell"]["model"], leave)(job)
        return
    if job["kind"] == "ladder":
        write(job["task"]["result"], {"format": "samebits-ladder", "cell": job["cell"]})
        return
    if job["kind"] == "training.step":
        facts = {"cell": job["cell"], "reason": "nothing is trained here"}
        write(job["task"]["result"], {"format": "samebits-training", **facts})
        return
    if job["kind"] == "training.trace":
        write(job["task"]["result"], {"format": "samebits-step-trace", "cell": job["cell"]})
        return
    if job["kind"] == "inputs":
        choose(job)
        return
    {"build": build, "crossings.save": save, "crossings.load": load}.get(
        job["kind"], lambda job: None
    )(job)


def choose(job):
    said = {"model": job["name"], "stack": job["stack"]}
    if job["name"] == "cannot-be-read":
        ctypes.string_at(0)
    said["prompts"] = {name: {"reason": "no model"} for name in job["model"]["prompts"]}
    write(job["result"], said)


def build(job):
    files = {"model.safetensors": json.dumps(job["recipe"], sort_keys=True)}
    hashes = {name: blake3(text.encode()).hexdigest() for name, text in files.items()}
    said = process_files.sealed({"n_parameters": 12, "files": hashes}).decode()
    fill(job["out"], files | {"checkpoint.json": said})


def save(job):
    said = {"cell": job["cell"]}
    fill(job["out"], {"saved.json": process_files.sealed(said | {"outcome": "saved"}).decode()})


def load(job):
    loader = job["cell"]["stack"]
    found = [{"saver": saver, "loader": loader, "outcome": "same bits"} for saver in job["copies"]]
    write(job["result"], {"cell": job["cell"], "crossings": found, "parts": []})


def fill(out, files):
    """Make a folder with files in it, as a whole or not at all."""
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=Path(out).parent, prefix="."))
    for name, text in files.items():
        time.sleep(STEP)
        (aside / name).write_text(text)
    try:
        aside.rename(out)
    except OSError:
        shutil.rmtree(aside)


def leave(job, status="complete", signals=None):
    """Leave the capture that is told for this cell, values first; or what it has of some signals."""
    cell = job["cell"]
    told = TEMPLATES / f"{cell['model']}-{cell['stack']}-{job['run']}.json"
    if not told.exists():
        told = TEMPLATES / f"healthy-{cell['stack']}-{job['run']}.json"
    for source in sorted((TEMPLATES / "tensors").glob("*")):
        path = Path(job["store"]["root"]) / "tensors" / source.name[:2] / source.name
        if not holds(path, source.read_bytes()):
            write_bytes(path, source.read_bytes())
    time.sleep(STEP)
    left = json.loads(told.read_text()) | {"cell": cell, "status": status}
    if signals is not None:
        left["signals"] = {name: left["signals"][name] for name in signals}
        left["unfinished"] = {"phase": "none", "reason": "the run was still going on"}
    write(job["capture"], left)


def write(path, value):
    write_bytes(Path(path), process_files.sealed(value))


def holds(path, content):
    try:
        return read_whole(path) == content
    except OSError:
        return False


def write_bytes(path, content):
    with replacing(path, lasting=False) as file:
        file.write(content[: len(content) // 2])
        time.sleep(STEP / 50)
        file.write(content[len(content) // 2 :])


# a process that starts


def no_memory_to_start():
    print("Traceback (most recent call last):\nMemoryError", file=sys.stderr)
    sys.exit(1)


STARTS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "memory": no_memory_to_start,
    "hang": lambda: time.sleep(600),
    "broken": lambda: __import__("no_such_package"),
}


def import_everything():
    """Start as the file ``starts`` of the bench tells: a fault, and how many starts have it."""
    told = TEMPLATES / "starts"
    if told.exists():
        fault, times = told.read_text().split()
        (TEMPLATES / f"started-{os.getpid()}").touch()
        if len(list(TEMPLATES.glob("started-*"))) <= int(times):
            STARTS[fault]()
    return FACTS


clock.set_back_again_and_again(TEMPLATES)
stack.perform = perform
stack._import_everything = import_everything
stack._HEARTBEAT = 0.2
if __name__ == "__main__":
    stack.main()
