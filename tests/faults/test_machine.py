"""A fault of the machine is no verdict of a model: it is tried once more, then not finished.

The command line and probes/stack.py run as they are; tests/faulty/stack.py starts as a test tells.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.faulty_bench import Bench

pytestmark = pytest.mark.processes


def starts(bench, fault, times):
    """Let that many starts of a stack's process have a fault."""
    folder = bench.folder / "templates"
    for path in folder.glob("started-*"):
        path.unlink()
    (folder / "starts").write_text(f"{fault} {times}")


def a_sound_run(host, folder, *models):
    """Return a run that nothing disturbed, and its exit code."""
    bench = Bench(folder, *models)
    return bench, host.run(bench)


@pytest.fixture(scope="module")
def healthy(host, tmp_path_factory):
    bench, code = a_sound_run(host, tmp_path_factory.mktemp("healthy"), "healthy")
    assert code == 0, bench.said
    return bench.without_times


@pytest.fixture(scope="module")
def healthy_and_odd(host, tmp_path_factory):
    bench, code = a_sound_run(host, tmp_path_factory.mktemp("odd"), "healthy", "odd")
    assert code == 1, bench.said
    return bench.without_times


def verdicts(bench):
    return {name: cell["verdict"] for name, cell in bench.cells().items()}


WORDS = {
    "killed": "the environment's process was killed by signal 9 (SIGKILL), most likely because memory ran out",
    "segfault": "the environment's process was killed by signal 11 (SIGSEGV)",
    "memory": "the environment's process ended while it imported its packages: MemoryError",
    "hang": "the environment's process did nothing for 3 s while it imported its packages",
}


@pytest.mark.parametrize("fault", WORDS)
def test_a_start_that_the_machine_ends_is_tried_again_and_is_no_failure(
    host, healthy, tmp_path, fault
):
    bench = Bench(tmp_path, "healthy")
    starts(bench, fault, 1)
    assert host.run(bench, "--fresh") == 0, bench.said
    assert bench.without_times == healthy
    starts(bench, fault, 1000)
    assert host.run(bench, "--fresh") == 3, bench.said
    assert set(verdicts(bench).values()) == {"not finished"}
    for cell in bench.cells().values():
        assert cell["unfinished"]["reason"].startswith(WORDS[fault])
        assert "failure" not in cell
    assert "Traceback" not in bench.said
    assert "the end of its log" not in bench.said
    starts(bench, fault, 0)
    assert host.run(bench) == 0, bench.said
    assert bench.without_times == healthy
    assert bench.all_end(), bench.processes()


def test_a_stack_that_truly_cannot_be_imported_is_a_failure_with_its_reason(host, tmp_path):
    bench = Bench(tmp_path, "healthy")
    starts(bench, "broken", 1000)
    assert host.run(bench) == 1, bench.said
    for cell in bench.cells().values():
        assert cell["verdict"] == "failed"
        assert "No module named 'no_such_package'" in cell["failure"]["message"]


def test_a_job_that_misses_a_kept_file_runs_again(host, tmp_path):
    bench = Bench(tmp_path, "healthy", "misses-a-file", stacks=("5.0",))
    (tmp_path / "templates" / "misses").write_text("2")
    assert host.run(bench, "--fresh") == 0 or "nothing was compared" in bench.said
    assert set(verdicts(bench).values()) == {"reference"}
    (tmp_path / "templates" / "misses").write_text("1000")
    assert host.run(bench, "--fresh") == 3, bench.said
    cell = bench.cells()["misses-a-file@5.0"]
    assert cell["verdict"] == "not finished"
    assert "failure" not in cell
    assert "also after it was made again: 02a0.bin cannot be read" in cell["unfinished"]["reason"]
    assert bench.cells()["healthy@5.0"]["verdict"] == "reference"
    (tmp_path / "templates" / "misses").write_text("0")
    host.run(bench)
    assert set(verdicts(bench).values()) == {"reference"}


def in_its_place(make):
    def put(path):
        path.unlink()
        make(path)

    return put


def filled_folder(path):
    path.mkdir()
    (path / "file").write_text("text")


ODD = {
    "a pipe": in_its_place(os.mkfifo),
    "a folder": in_its_place(filled_folder),
    "a device": in_its_place(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": in_its_place(lambda path: path.symlink_to(path)),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_lies_in_the_place_of_kept_files_stops_no_run_and_thins_no_report(host, tmp_path, odd):
    chance = random.Random(3)
    bench = Bench(tmp_path, "healthy", "odd")
    host.run(bench)
    sound_report = bench.without_times
    work = tmp_path / ".samebits"
    kinds = {}
    for path in sorted(work.rglob("*")):
        if path.is_file() and path.suffix != ".log":
            kinds.setdefault(path.relative_to(work).parts[0].partition("-")[0], []).append(path)
    assert len(kinds) > 8
    for paths in kinds.values():
        for path in chance.sample(paths, min(3, len(paths))):
            ODD[odd](path)
    host.begin(bench)
    assert host.ends_within(60), bench.said
    assert host.end() == 1, bench.said
    assert bench.without_times == sound_report
    assert "Traceback" not in bench.said
    assert not list(work.rglob("*.tmp"))


@pytest.mark.parametrize("room", range(6))
def test_a_work_folder_without_room_for_what_is_kept_costs_no_report(
    host, healthy_and_odd, tmp_path, room
):
    bench = Bench(tmp_path, "healthy", "odd")
    bench.room = room
    assert host.run(bench) == 1, bench.said
    assert bench.without_times == healthy_and_odd
    assert "No space left" not in bench.said
    bench.room = None
    assert host.run(bench) == 1, bench.said
    assert bench.without_times == healthy_and_odd


# the end of a run

PROGRAM = Path(__file__).parents[1] / "faulty" / "program.py"
SOON = 7.0
"""Seconds that a run has to end after a signal on an idle machine: five, and some more."""


def soon():
    """Return the same for this machine, of which a run gets less than a core if more wait for one."""
    return SOON * min(5.0, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def with_large_file(bench):
    """Add a model whose file takes minutes to be read; it takes no room on the disk."""
    with (bench.folder / "matrix.yaml").open("a") as file:
        file.write("  large: {path: large}\n")
    (bench.folder / "large").mkdir()
    (bench.folder / "large" / "config.json").write_text('{"model_type": "llama"}')
    n_bytes = 150 << 30
    entry = {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}
    header = json.dumps({"w": entry}).encode()
    with (bench.folder / "large" / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + n_bytes)
    return bench


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_run_that_hashes_a_large_file_ends_soon(tmp_path, name):
    """The command line as it is: it must not wait for its threads either."""
    bench = with_large_file(Bench(tmp_path, "healthy"))
    with (tmp_path / "said.log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "matrix"],
            cwd=tmp_path,
            env=bench.environ,
            stdout=said,
            stderr=said,
        )
    bench.until(lambda: "checkpoints:" in bench.said, within=60)
    time.sleep(2)
    assert process.poll() is None, bench.said
    process.send_signal(getattr(signal, name))
    assert process.wait(soon()) == 130
    assert bench.said.endswith("interrupted; run the same command again to continue\n")
    assert bench.all_end(), bench.processes()


def test_a_run_whose_stacks_hang_while_they_start_ends_soon(host, tmp_path):
    bench = Bench(tmp_path, "healthy")
    starts(bench, "hang", 1000)
    pid = host.begin(bench)
    bench.until(lambda: "checkpoints:" in bench.said, within=60)
    time.sleep(1)
    os.kill(pid, signal.SIGINT)
    assert host.ends_within(soon()), bench.said
    assert host.end() == 130
    assert bench.all_end(), bench.processes()


def test_a_stack_that_starts_ends_with_a_host_that_is_killed(host, tmp_path):
    bench = Bench(tmp_path, "healthy", stacks=("5.0",))
    starts(bench, "hang", 1000)
    pid = host.begin(bench)
    bench.until(lambda: "checkpoints:" in bench.said, within=60)
    time.sleep(1)
    assert bench.processes()
    os.kill(pid, signal.SIGKILL)
    host.end()
    assert bench.all_end(), bench.processes()


BLOCKED = """
import sys, time
from samebits.cli import interrupts
interrupts._MAX_TO_END = 1.0

async def run():
    print("blocked", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.1)

interrupts.run_async(run())
"""


def test_a_run_that_does_not_look_at_a_signal_is_left_all_the_same():
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(soon()) == 130
        assert process.stderr.read() == "interrupted; run the same command again to continue\n"


@pytest.mark.parametrize("shell", [">/dev/full", ">&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_run_without_a_place_to_print_writes_its_report(tmp_path, shell):
    bench = Bench(tmp_path, "healthy")
    command = ["bash", "-c", f'"$0" "$1" matrix --reports report {shell}']
    for _ in range(2):  # the second time a receipt answers
        code = subprocess.run(
            [*command, sys.executable, str(PROGRAM)],
            cwd=tmp_path,
            env=bench.environ,
            capture_output=True,
            check=False,
        )
        assert code.returncode == 0, code.stderr
        assert b"Error" not in code.stderr
        assert set(verdicts(bench).values()) == {"reference", "identical"}
