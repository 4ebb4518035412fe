"""What a job says of how far it is, what it may take for it, and what it does not try for its price."""

import os
import signal
import tempfile
import time
from pathlib import Path

import cells
import torch
from raising import raised
from samebits_probe.cell.session import Session
from samebits_probe.process import fork, memory, progress
from samebits_probe.process.failure import PhaseFailed

GIB = 1 << 30
torch.set_num_threads(1)


def board(limit=1.0):
    progress.use(progress.Board(limit))
    return progress.board()


def test_what_is_written_is_read():
    here = board(7.0)
    before = here.read().beats
    progress.begin("greedy long")
    progress.tick("ä" * 200, 3, 12, allowance=2.5, moves=True)
    step = here.read()
    assert (step.phase, step.step, step.of, step.allowance) == ("greedy long", 3, 12, 2.5)
    assert (step.moves, step.depth, step.pid) == (True, 0, os.getpid())
    assert step.what == "ä" * 60  # as much as there is room for, and no half of a letter
    assert step.beats > before
    assert step.place == f"{'ä' * 60}, 3 of 12"
    assert here.limit == 7.0
    progress.beat()
    assert here.read()._replace(beats=step.beats) == step
    progress.tick(allowance=float("nan"))
    assert here.read().allowance == 0.0


def test_a_forward_may_take_what_the_ones_before_took_and_before_them_what_its_size_tells():
    here = board()
    progress.loaded(torch.nn.Linear(1000, 1000, bias=False))
    ids = {"input_ids": torch.zeros(2, 50, dtype=torch.long)}
    with progress.forward(ids, "first"):
        first = here.read().allowance
    assert first == progress.FACTOR * 2 * 1_000_000 * 100 / 1e10
    with progress.forward(ids, "plain", plain=True):
        time.sleep(0.1)
    with progress.forward(ids, "another", times=2):
        assert 2.0 <= here.read().allowance < 4.0
    longer = {"input_ids": torch.zeros(4, 50, dtype=torch.long)}
    with progress.forwards(12, longer, "generate"):
        assert 24.0 <= here.read().allowance < 48.0
    assert here.forwards == 15


def test_pictures_and_sounds_are_as_many_positions_as_they_have_patches():
    assert progress.positions({"pixel_values": torch.zeros(1, 3, 224, 224)}) == 588
    assert progress.positions({"input_ids": torch.zeros(1, 9, dtype=torch.long)}) == 9
    assert progress.positions({}) == progress.positions(None) == 1


def waits(step, until):
    """Return how often one may look before the watcher of another process has had enough."""
    here = board(0.2)
    step()
    watcher = progress.Watcher(here, 0)
    end = time.monotonic() + until
    while time.monotonic() < end:
        if watcher.is_overdue():
            return watcher
        time.sleep(0.02)
    return None


def test_a_step_has_the_limit_and_its_allowance():
    assert waits(lambda: progress.tick("x"), 1.0) is not None
    assert waits(lambda: progress.tick("x", allowance=30), 1.0) is None


def test_who_waits_for_a_childs_child_is_more_patient_than_the_child():
    here = board(1.0)
    progress.tick("x")
    nearest, farther = progress.Watcher(here, 1), progress.Watcher(here, 0)
    here.write(here.read()._replace(depth=1))
    for watcher in (nearest, farther):
        watcher.look()
    assert (nearest.patience, farther.patience) == (1.0, 1.5)


def test_what_is_written_to_a_disk_is_progress_while_something_is_loaded():
    def progress_of(moves):
        here = board(0.3)
        pid = os.fork()
        if not pid:
            progress.use(here)
            progress.tick("download", moves=moves)
            with (Path(folder) / "file").open("wb", buffering=0) as file:
                for _ in range(12):
                    file.write(bytes(2 << 20))
                    os.fsync(file.fileno())
                    time.sleep(0.1)
            os._exit(0)
        time.sleep(0.05)
        watcher = progress.Watcher(here, 0)
        overdue = False
        while not os.waitpid(pid, os.WNOHANG)[0]:
            overdue = overdue or watcher.is_overdue()
            time.sleep(0.02)
        return not overdue

    # where a file is memory, or nobody may look, nothing is seen of it
    folder = tempfile.mkdtemp(dir=Path(__file__).parent)
    try:
        assert not progress_of(moves=False)
        if progress._bytes_moved(os.getpid()):
            assert progress_of(moves=True)
    finally:
        (Path(folder) / "file").unlink()
        Path(folder).rmdir()


# children that wait


def test_a_child_that_waits_sees_what_there_was_when_it_was_made():
    board(20.0)
    scale = torch.ones(4)
    child = fork.ForkedChild(lambda said: [said, *scale.tolist()])
    other = fork.ForkedChild(lambda said: [said, scale.sum().item()])
    scale.mul_(9)
    assert other.answer() == ["", 4.0]
    assert child.answer("ä b") == ["ä b", 1.0, 1.0, 1.0, 1.0]


def test_a_child_of_which_nothing_is_asked_is_gone():
    child = fork.ForkedChild(lambda _: None)
    child.forget()
    raised(ProcessLookupError, os.kill, child._pid, 0)


def test_a_child_that_was_killed_while_it_waited_is_lost():
    child = fork.ForkedChild(lambda _: None)
    os.kill(child._pid, signal.SIGKILL)
    time.sleep(0.1)
    reason = raised(fork.Lost, child.answer)
    assert "killed by signal 9" in str(reason)


def test_a_hang_two_processes_deep_costs_the_nearest_one_alone():
    board(1.0)

    def outer():
        try:
            fork.run_in_fork(lambda: time.sleep(60))
        except fork.Lost:
            return "the inner one was ended"

    assert fork.run_in_fork(outer) == "the inner one was ended"


def test_a_child_that_loses_its_own_child_is_lost_as_well():
    board(20.0)
    killed = lambda: os.kill(os.getpid(), signal.SIGKILL)
    reason = raised(fork.Lost, fork.run_in_fork, lambda: fork.run_in_fork(killed))
    assert str(reason).startswith("it was killed by signal 9")


# memory


def machine(folder, available=None, version=2, **groups):
    """Write what a kernel says: bytes available, and group -> (limit, usage, files to drop)."""
    root = Path(folder)
    (root / "proc/self").mkdir(parents=True)
    if available is not None:
        text = f"MemTotal: 99 kB\nMemAvailable: {available >> 10} kB\n"
        (root / "proc/meminfo").write_text(text)
    path = "/" + "/".join(groups)
    line = f"0::{path}\n" if version == 2 else f"5:cpu,memory:{path}\n2:pids:/elsewhere\n"
    (root / "proc/self/cgroup").write_text(line)
    here = root / "sys/fs/cgroup" / ("" if version == 2 else "memory")
    here.mkdir(parents=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    for group, (limit, usage, droppable) in groups.items():
        here = here / group
        here.mkdir()
        (here / names[0]).write_text(f"{limit}\n")
        (here / names[1]).write_text(f"{usage}\n")
        (here / "memory.stat").write_text(f"anon 7\n{names[2]} {droppable}\nfile 9\n")
    return root


def test_the_least_of_the_machine_and_its_groups_is_there():
    def left(available, version=2, **groups):
        with tempfile.TemporaryDirectory() as folder:
            return memory.available(machine(folder, available, version, **groups))

    assert left(8 * GIB) == 8 * GIB
    assert left(8 * GIB, one=("max", 3 * GIB, 0)) == 8 * GIB
    assert left(8 * GIB, one=(4 * GIB, 3 * GIB, GIB // 2)) == 3 * GIB // 2
    assert left(8 * GIB, one=(2 * GIB, GIB, 0), two=(9 * GIB, GIB, 0)) == GIB
    assert left(8 * GIB, version=1, one=(4 * GIB, 3 * GIB, GIB // 2)) == 3 * GIB // 2
    assert left(2 * GIB, one=(9 * GIB, GIB, 0)) == 2 * GIB
    assert left(8 * GIB, one=(GIB, 2 * GIB, 0)) == 0
    with tempfile.TemporaryDirectory() as folder:
        assert memory.available(Path(folder)) is None


def test_each_of_several_jobs_has_its_part_and_the_reason_has_the_numbers_and_the_switch():
    with tempfile.TemporaryDirectory() as folder:
        root = machine(folder, 6 * GIB)
        assert memory.shortage(4 * GIB, 1, root) == ""
        assert memory.shortage(3 * GIB, 2, root) == ""
        assert memory.shortage(4 * GIB, 2, root) == (
            "it needs about 4.0 GiB more memory, and 6.0 GiB are available, of which each of 2 jobs "
            "may take 3.0 GiB"
        )
        alone = "it needs about 7.0 GiB more memory, and 6.0 GiB are available"
        assert memory.shortage(7 * GIB, 1, root) == alone
    assert "--jobs 1" in memory.remedy(2)
    assert "--jobs" not in memory.remedy(1)


def test_what_nothing_is_known_of_is_tried():
    with tempfile.TemporaryDirectory() as folder:
        assert memory.shortage(1 << 60, 2, Path(folder)) == ""


def test_a_copy_that_has_no_room_is_not_asked_for():
    memory.require(1, 1)
    failed = raised(PhaseFailed, memory.require, 1 << 60, 2)
    memory_failure = failed.failure
    assert (memory_failure["phase"], memory_failure["type"]) == ("memory", "not asked")
    assert memory_failure["message"].endswith("use --jobs 1, or a machine with more memory")


# a cell


def cell(**changed):
    model = {"source": "x", "trust_remote_code": False}
    return Session(cells.job(tempfile.mkdtemp(), model, **({"budget": 100.0} | changed)))


def test_what_makes_no_verdict_is_in_the_budget_or_named_with_its_price():
    here = board()
    made = cell()
    assert made.no_time(10**9) == ""  # no forward was measured
    here.record_forward(0.5, 9)
    assert made.no_time(150) == ""
    assert made.no_time(150, more=40.0) == (
        "it takes about 115 s (forwards of up to 0.5 s each), and 0 s of the budget of 100 s are used: "
        "raise budget: in matrix.yaml to have it"
    )
    made.started -= 50
    assert made.no_time(150)


def test_the_price_is_that_of_the_latest_forward_over_the_most_positions():
    """A GPU loads kernels in the first forward of a shape; a CPU that is busy with other work has slow ones, too."""
    here = board()
    made = cell()
    for seconds, positions in ((0.8, 9), (0.9, 36), (0.01, 9)):
        here.record_forward(seconds, positions)
    assert made.no_time(1000) == ""
    assert made.no_time(3000).startswith("it takes about 120 s (forwards of up to 0.04 s each)")


def test_a_phase_that_raises_is_told_and_the_next_one_goes_on():
    made = cell()
    with made.recorded_failures("greedy short"):
        raise PhaseFailed({"phase": "greedy short", "type": "ValueError", "message": "no\nmore"})
    with made.recorded_failures("greedy long"):
        pass
    with made.recorded_failures("buffers", "inv_freq"):
        {}["x"]
    assert [f["phase"] for f in made.failures] == ["greedy short", "probe"]
    reason = "failed in phase probe: KeyError: 'x'"
    assert made.skips == [
        {"what": "greedy short", "reason": "failed in phase greedy short: ValueError: no"},
        {"what": "buffers", "reason": reason},
        {"what": "inv_freq", "reason": reason},
    ]
