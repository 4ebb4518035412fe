"""process.threads: the same number of threads gives the same bits, and forks of several threads work."""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
from raising import raised
from samebits_probe.model import heap
from samebits_probe.process import fork, progress, threads

SMALL, LARGE = 100_000, 3_000_001


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sums():
    """Return the hash of what is summed over threads: a reduction, a product, attention, float64."""
    row, keys = numbers(LARGE), numbers(1, 4, 300, 64)
    wide, high = numbers(4, 30_000, seed=1), numbers(30_000, 8, seed=2)
    parts = (
        row.sum(),
        row.double().sum(),
        wide @ high,
        wide.bfloat16().float() @ high,
        torch.nn.functional.scaled_dot_product_attention(keys[:, :, :1], keys, keys),
        torch.nn.functional.linear(numbers(13, 512), numbers(700, 512, seed=3)),
    )
    return hashlib.sha256(
        b"".join(part.contiguous().numpy().tobytes() for part in parts)
    ).hexdigest()


def added():
    """Return what many rows add to the same few elements."""
    places = torch.randint(0, 50, (SMALL,), generator=torch.Generator().manual_seed(0))
    return torch.zeros(50).index_put_((places,), numbers(SMALL), accumulate=True)


def n_tasks():
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def in_child(number, change=lambda: None):
    """Return the sums of a new child with that many threads."""

    def of_child():
        change()
        threads.use(number)
        return sums()

    return fork.run_in_fork(of_child)


def test_the_environment_does_not_cap_the_number():
    assert os.environ.get("OMP_NUM_THREADS", "1") == "1"
    for number in (1, 2, 4):

        def tasks(number=number):
            threads.use(number)
            before = n_tasks()
            sums()
            return [torch.get_num_threads(), n_tasks() - before]

        assert fork.run_in_fork(tasks) == [number, number - 1]


def test_the_same_number_gives_the_same_bits_whatever_runs_beside_and_on_how_many_cores():
    for number in (2, 4):
        alone = in_child(number)
        assert alone == in_child(number)
        core = min(os.sched_getaffinity(0))
        assert alone == in_child(number, lambda core=core: os.sched_setaffinity(0, {core}))
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
        try:
            assert alone == in_child(number)
        finally:
            for process in busy:
                process.kill()
                process.wait()


def test_another_number_gives_other_bits():
    assert len({in_child(number) for number in (1, 2, 4)}) == 3


def test_several_threads_add_to_one_element_in_one_order():
    torch.set_num_threads(1)
    expected = added()
    torch.set_num_threads(4)
    assert any(not torch.equal(added(), expected) for _ in range(100))  # the defect
    threads.use(4)
    assert all(torch.equal(added(), expected) for _ in range(20))


def test_a_fork_computes_what_its_parent_computes():
    threads.use(4)
    before = sums()
    assert fork.refusal("cpu") == ""
    waiting = fork.ForkedChild(lambda _: sums())
    assert sums() == before
    assert fork.run_in_fork(sums) == before
    assert fork.run_in_fork(lambda: [sums(), fork.run_in_fork(sums)]) == [before, before]
    assert waiting.answer() == before
    assert sums() == before
    assert torch.get_num_threads() == 4


def test_a_fork_hangs_unless_the_pool_is_given_up():
    threads.use(4)
    sums()
    threads.release = lambda: True
    progress.use(progress.Board(1.0))
    raised(fork.Lost, fork.run_in_fork, sums)


def test_no_fork_is_made_where_the_pool_cannot_be_given_up():
    class WithoutPause:
        CDLL = staticmethod(lambda _: object())

    threads.ctypes = WithoutPause
    assert fork.refusal("cpu") == ""  # one thread needs no pool
    threads.use(2)
    assert "threads" in fork.refusal("cpu")


def test_new_memory_holds_the_pattern_in_every_thread():
    heap.fill_unwritten("a", "cpu")
    threads.use(4)
    sums()
    holds = []

    def allocate():
        sums()
        shapes = (1, 2, 33, 1000, 100_000, 3_000_000, 20_000_000)
        holds.extend(heap.holds_pattern(torch.empty(n), "a") for n in shapes)
        for n in shapes:
            written = numbers(n)
            holds.append(not heap.holds_pattern(written, "a"))

    workers = [threading.Thread(target=allocate) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    allocate()
    assert len(holds) == 4 * 14
    assert all(holds), holds


def test_a_poisoned_load_is_seen_with_several_threads():
    heap.fill_unwritten("a", "cpu")
    threads.use(4)
    sums()
    with heap.poisoned("a", "cpu") as said:
        unwritten, written = torch.empty(100_000), numbers(100_000)
        assert bool(heap.elements_with_poison(unwritten).all()), said
        assert not bool(heap.elements_with_poison(written).any())
    assert heap.holds_pattern(torch.empty(100_000), "a")  # and torch does not go on filling
