"""Whatever a model's code does to its process, its machine or samebits, one cell fails and says why.

The processes are real (probes/stack.py and the command line), the jobs in them are not:
tests/faulty/stack.py does what each model's name says.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.faulty_bench import STACKS, Bench, Host
from tests.support.partial import without_seconds

pytestmark = pytest.mark.processes

SIDE_EFFECTS = ("changes-everything", "answers-for-others", "learns-nonsense", "leaves-a-daemon")
REASONS = {
    "segfault": "killed by signal 11 (SIGSEGV)",
    "os-exit": "the probe ended before it wrote it",
    "sys-exit": "exited with 1: SystemExit: enough of this",
    "prints": "exited with 7",
    "nothing": "the probe ended before it wrote it",
    "raises": "exited with 1: RuntimeError",
    "changes-everything": "exited with 3",
    "closes-its-pipes": "exited with 5",
    "leaves-half-a-capture": "incomplete",
    "leaves-a-pipe": "cannot be read",
    "leaves-a-device": "cannot be read",
    "leaves-another-s-capture": "it wrote the capture of healthy/float32-default@5.0, run a",
    "answers-for-others": "the probe ended before it wrote it",
    "connects": "this process has none",
    "tells-the-collector": "collecting: True, spared: True",
}
UNFINISHED = {
    "hang": ("start", "", "no progress for N s (it used no CPU: it waits for"),
    "spins": (
        "forward short",
        "",
        "it computes; if it was still working, raise timeout: in matrix.yaml)",
    ),
    "killed-for-memory": ("start", "", "killed by signal 9 (SIGKILL), most likely"),
    "hangs-half-way": ("forward short", "plain, 2 of 3", "no progress for N s"),
    "no-memory": ("start", "", "exited with 1: MemoryError"),
    "disk-full": ("start", "", "exited with 1: OSError: [Errno 27] File too large"),
    "device-full": ("start", "", "exited with 1: OSError: [Errno 28] No space left on device"),
    "killed-half-way": ("greedy short", "", "killed by signal 9 (SIGKILL), most likely"),
}
"""Faults that are a clock's, the memory's or a disk's: phase, step and reason."""
TIMEOUTS = dict.fromkeys(("slow-but-working", "one-long-step", *UNFINISHED), 1) | {
    "hangs-half-way": 3  # what it writes before it hangs takes a busy machine more than one second
}
LAST_LINES = {
    "segfault": "about to read at zero",
    "os-exit": "without a word",
    "sys-exit": "SystemExit: enough of this",
    "prints": "the last words",
    "connects": "this process has none",
}
TOKEN = "hf_abcdefgh12345678"


@pytest.fixture(scope="module")
def bench(host, tmp_path_factory):
    """Run every fault beside two healthy models, once."""
    made = Bench(
        tmp_path_factory.mktemp("faults"),
        "healthy",
        *REASONS,
        *UNFINISHED,
        "crashes-half-way",
        "slow-but-working",
        "one-long-step",
        "learns-nonsense",
        "leaves-a-daemon",
        "tells-the-environment",
        "cannot-be-read",
        "healthy-too",
        stacks=("5.0",),
        timeouts=TIMEOUTS,
        HF_TOKEN=TOKEN,
        AWS_SECRET_ACCESS_KEY="do not tell this",
    )
    made.code = host.run(made)
    made.left_behind = not made.all_end(within=2)
    return made


@pytest.fixture(scope="module")
def cells(bench):
    return {name.partition("@")[0]: cell for name, cell in bench.cells().items()}


def test_the_run_itself_ends_as_it_should(bench):
    assert bench.code == 1, bench.said
    assert "Traceback" not in bench.said


@pytest.mark.parametrize("name", REASONS)
def test_a_fault_fails_its_cell_and_says_why(cells, name):
    assert cells[name]["verdict"] == "failed"
    assert REASONS[name] in cells[name]["failure"]["message"]


@pytest.mark.parametrize("name", UNFINISHED)
def test_what_a_clock_or_the_memory_ended_is_not_finished_and_names_its_phase(cells, name):
    phase, step, words = UNFINISHED[name]
    cell = cells[name]
    assert cell["verdict"] == "not finished"
    assert (cell["unfinished"]["phase"], cell["unfinished"].get("step", "")) == (phase, step)
    assert words in without_seconds(cell["unfinished"]["reason"])


@pytest.mark.parametrize("name", ["slow-but-working", "one-long-step"])
def test_what_makes_progress_is_not_ended(cells, name):
    assert cells[name]["verdict"] == "reference"


def test_a_crash_behind_the_load_fails_its_phase(cells):
    cell = cells["crashes-half-way"]
    assert cell["verdict"] == "failed"
    assert cell["failure"]["phase"] == "forward short"
    assert cell["failure"]["message"] == "killed by signal 11 (SIGSEGV)"


@pytest.mark.parametrize("name", LAST_LINES)
def test_the_last_lines_of_the_log_are_told(cells, name):
    assert LAST_LINES[name] in cells[name]["failure"]["traceback"]


def test_a_model_whose_signature_no_process_survives_to_read_still_runs_its_cells(cells, bench):
    assert cells["cannot-be-read"]["verdict"] == "reference"
    (log,) = (bench.folder / ".samebits" / "inputs" / "cannot-be-read").rglob("*.log")
    assert not list(log.parent.glob("*.json"))


@pytest.mark.parametrize("name", ["healthy", "healthy-too", "learns-nonsense", "leaves-a-daemon"])
def test_all_others_are_unaffected(cells, name):
    assert cells[name]["verdict"] == "reference"
    assert "failure" not in cells[name]


def test_nothing_is_left_behind(bench):
    assert not bench.left_behind, bench.processes()


def test_a_log_is_bounded(bench):
    logs = list((bench.folder / ".samebits" / "captures" / "prints").rglob("*.log"))
    assert len(logs) == 2
    assert all(10_000 < log.stat().st_size <= 1 << 20 for log in logs)


def test_no_token_and_no_home_is_told(bench):
    """The exception of ``raises`` holds both, and markup."""
    written = [path for path in (bench.folder / "report").rglob("*") if path.is_file()]
    assert len(written) > 10
    for path in written:
        text = path.read_text()
        assert TOKEN not in text
        assert str(bench.home) not in text
        assert "do not tell this" not in text
        assert "\x1b" not in text
        if path.suffix == ".md":
            assert "<b>" not in html_of(text)


def html_of(markdown):
    """Return what a page holds of raw HTML."""
    blocks = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    tokens = [token for block in blocks for token in (block, *(block.children or ()))]
    return "".join(token.content for token in tokens if token.type.startswith("html"))


def test_what_stands_in_their_place(cells):
    message = cells["raises"]["failure"]["message"]
    assert "…/secret" in message
    assert "(HF_TOKEN)" in message


def test_nothing_of_the_terminal_is_set_by_a_message(bench):
    assert "\x1b" not in bench.said


def test_probes_see_a_listed_environment(bench, cells):
    from samebits.stacks.environment import FIXED, PASSED_ON

    seen = set(cells["tells-the-environment"]["failure"]["message"].split()[4:])
    # Python itself sets LC_CTYPE where there is no locale
    assert seen - {"HF_MODULES_CACHE", "LC_CTYPE"} <= {*FIXED, *PASSED_ON}
    assert {"HF_HUB_OFFLINE", "PYTHONUTF8", "OMP_NUM_THREADS"} <= seen
    assert "HF_TOKEN" not in seen
    told = bench.report["machine"]["environment"]
    assert {*FIXED, "HF_HUB_OFFLINE"} == set(told)


# the environment's process itself


def test_the_death_of_the_stack_s_process_ends_who_did_it_and_no_other(host, tmp_path):
    """A SIGKILL may be the kernel's, who lacks memory: it is no failure of the model."""
    names = ["healthy", "kills-its-parent", "healthy-too", "healthy-three"]
    bench = Bench(tmp_path, *names, stacks=("5.0",))
    assert host.run(bench) == 3, bench.said
    cells = bench.cells()
    reason = cells["kills-its-parent@5.0"]["unfinished"]["reason"]
    assert reason.startswith("the environment's process was killed by signal 9 (SIGKILL)")
    verdicts = {name: cells[f"{name}@5.0"]["verdict"] for name in names}
    assert verdicts == dict.fromkeys(names, "reference") | {"kills-its-parent": "not finished"}
    assert bench.all_end(), bench.processes()


def test_a_stack_s_process_that_is_stopped_is_replaced(host, tmp_path):
    names = ["healthy", "stops-its-parent", "healthy-too"]
    bench = Bench(tmp_path, *names, stacks=("5.0",), timeouts={"stops-its-parent": 1, "healthy": 2})
    assert host.run(bench) == 3, bench.said
    cells = bench.cells()
    reason = without_seconds(cells["stops-its-parent@5.0"]["unfinished"]["reason"])
    assert reason.startswith(("the environment's process stopped answering", "no progress for N s"))
    assert cells["healthy@5.0"]["verdict"] == cells["healthy-too@5.0"]["verdict"] == "reference"
    assert bench.all_end(), bench.processes()


# the host


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_nothing_outlives_the_host_and_the_next_run_goes_on(host, tmp_path, name):
    bench = Bench(tmp_path, "healthy", "hang", stacks=("5.0",), timeouts={"hang": 60})
    pid = host.begin(bench)
    bench.until(lambda: bench.files("captures/healthy/*/*/*/b.json"))
    bench.until(lambda: bench.logged("now it hangs"))
    assert len(bench.processes()) > 4
    os.kill(pid, getattr(signal, name))
    code = host.end()
    assert bench.all_end(), bench.processes()
    if name == "SIGKILL":
        assert code == -signal.SIGKILL
    else:
        assert code == 130
        assert bench.said.endswith("interrupted; run the same command again to continue\n")
    assert not (tmp_path / "report").exists()
    captures = sorted((tmp_path / ".samebits").rglob("captures/healthy/*/*/*/*.json"))
    before = [path.stat().st_mtime_ns for path in captures]
    host.run(bench, "--models", "healthy")
    assert bench.cells()["healthy@5.0"]["verdict"] == "reference", bench.said
    assert [path.stat().st_mtime_ns for path in captures] == before


# killed anywhere


ENDINGS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS = [12, pytest.param(50, marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def undisturbed(host, tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("undisturbed"), "healthy", "odd")
    started = time.monotonic()
    assert host.run(bench) == 1, bench.said
    bench.took = time.monotonic() - started
    assert bench.cells()["odd@5.0"]["verdict"] == "undecided"
    return bench


@pytest.mark.parametrize("n_kills", KILLS)
def test_a_run_that_was_killed_anywhere_ends_with_the_same_report(
    host, undisturbed, tmp_path, n_kills
):
    """A run is ended at a random moment, again and again, and the next one goes on from there."""
    chance = random.Random(20)
    kills, benches = 0, []
    while kills < n_kills:
        bench = Bench(tmp_path / str(len(benches)), "healthy", "odd")
        benches.append(bench)
        left, longest = chance.randint(4, 12), undisturbed.took
        while left:
            pid, began = host.begin(bench), time.monotonic()
            if host.ends_within(chance.uniform(0, longest)):
                longest = time.monotonic() - began  # as much is left to do, and no more
            else:
                with suppress(ProcessLookupError):
                    os.kill(pid, chance.choice(ENDINGS))
            killed = host.end() not in (0, 1)
            kills, left = kills + killed, left - killed
        assert bench.all_end(), bench.processes()
        assert host.run(bench) == 1, bench.said
        assert "Traceback" not in bench.said
        assert bench.without_times == undisturbed.without_times
    assert len(benches) > n_kills / 14


def test_a_run_whose_stacks_are_killed_ends_with_the_same_report(host, undisturbed, tmp_path):
    """A stack's process may die at any moment: what it was at runs again in another one."""
    chance = random.Random(21)
    for number in range(5):
        bench = Bench(tmp_path / str(number), "healthy", "odd")
        host.begin(bench)
        bench.until(lambda bench=bench: all(bench.at_work(stack) for stack in STACKS))
        time.sleep(chance.uniform(0, undisturbed.took / 2))
        for pid in stack_processes(bench):
            with suppress(ProcessLookupError):  # one may have just ended
                os.kill(pid, signal.SIGKILL)
        assert host.end() == 1, bench.said
        assert bench.without_times == undisturbed.without_times, bench.said
        assert bench.all_end(), bench.processes()


def stack_processes(bench):
    """Return the processes that are told their jobs: their parents are none of the bench's."""
    pids, found = bench.processes(), []
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):  # it may have just ended
            if os.getsid(pid) == pid and parent_of(pid) not in pids:
                found.append(pid)
    return found


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_facts_of_the_machine_are_asked_for_again_if_nobody_kept_them(host, tmp_path):
    bench = Bench(tmp_path, "healthy", "odd")
    assert host.run(bench) == 1, bench.said
    kept = bench.without_times
    (facts,) = (tmp_path / ".samebits").glob("machine-*.json")
    facts.unlink()
    assert host.run(bench, "--jobs", "3") == 1  # another question, which no receipt answers
    assert bench.without_times["machine"] == kept["machine"]
    assert facts.exists()


def test_two_runs_at_once_in_one_folder_give_the_same_report(host, undisturbed, tmp_path):
    other = Host()
    for number in range(5):
        bench = Bench(tmp_path / str(number), "healthy", "odd")
        if number % 2:  # over what an earlier run left, which one of them uses and one does not
            assert host.run(bench) == 1, bench.said
        first = threading.Thread(target=host.run, args=(bench, "--fresh"))
        first.start()
        time.sleep(number * undisturbed.took / 10)
        assert other.run(bench) == 1, bench.said
        first.join()
        assert "Traceback" not in bench.said
        assert bench.without_times == undisturbed.without_times
        assert host.run(bench) == 1
        assert bench.without_times == undisturbed.without_times
    other.close()
