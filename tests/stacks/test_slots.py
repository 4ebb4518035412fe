"""The slots of a run: jobs with several threads take several cores."""

import asyncio
from pathlib import Path

import pytest

from samebits.stacks.process import StackProcess
from samebits.stacks.slots import Slots
from tests.support.fakes import FakeProcess, FakeStarter, ended


def most_at_once(slots, threads):
    """Run jobs with these numbers of threads; return the most jobs and threads at one time."""
    running, most = [], [0, 0]

    async def job(number):
        async with slots.taken(number):
            running.append(number)
            most[0] = max(most[0], len(running))
            most[1] = max(most[1], sum(running))
            await asyncio.sleep(0.001)
            running.remove(number)

    async def main():
        await asyncio.wait_for(asyncio.gather(*map(job, threads)), 10)

    asyncio.run(main())
    return tuple(most)


@pytest.mark.parametrize(
    ("jobs", "cores", "threads", "most"),
    [
        (4, 4, [1] * 9, (4, 4)),
        (4, 4, [4] * 3, (1, 4)),
        (8, 8, [4] * 5, (2, 8)),
        (2, 2, [4, 1, 4, 1], (2, 4)),
        (1, 8, [4] * 3, (1, 4)),  # --jobs 1
        (4, 8, [4] * 6, (2, 8)),
        (4, 8, [1] * 9, (4, 4)),
        (16, 2, [1] * 40, (16, 16)),  # more jobs than cores, as the user wants it
    ],
)
def test_jobs_and_threads_are_limited(jobs, cores, threads, most):
    assert most_at_once(Slots(jobs, cores), threads) <= most


def test_jobs_of_several_threads_do_not_run_beside_others_on_few_cores():
    assert most_at_once(Slots(2, 2), [4, 4, 4]) == (1, 4)
    assert most_at_once(Slots(2, 2), [1, 1, 1]) == (2, 2)  # the same without the threads


def test_a_large_job_is_not_passed_by_forever():
    order = []

    async def job(name, threads):
        async with slots.taken(threads):
            order.append(name)
            await asyncio.sleep(0)

    async def main():
        names = [("s1", 1), ("s2", 1), ("large", 4), *((f"late{n}", 1) for n in range(20))]
        await asyncio.gather(*(job(*name) for name in names))

    slots = Slots(4, 4)
    asyncio.run(main())
    assert order.index("large") == 2


def test_a_job_that_is_cancelled_while_it_waits_gives_back_what_it_has():
    async def main():
        slots = Slots(4, 4)
        async with slots.taken(3):
            waiting = asyncio.create_task(enter(slots, 4))
            await asyncio.sleep(0.001)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(enter(slots, 4), 1)

    async def enter(slots, threads):
        async with slots.taken(threads):
            pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("jobs", "cores", "threads", "beside"),
    [(8, 8, 1, 8), (8, 8, 4, 2), (6, 6, 4, 2), (2, 2, 4, 1), (1, 8, 4, 1), (4, 8, 4, 4)],
)
def test_the_memory_of_all_jobs_that_run_at_once_is_shared_among_them(jobs, cores, threads, beside):
    slots = Slots(jobs, cores)
    assert slots.beside(threads) == beside
    assert slots.share(threads) == jobs / beside


def test_a_process_sends_and_counts_what_a_job_takes():
    async def main():
        starter = FakeStarter(lambda: FakeProcess(ended))
        process = StackProcess("4.48", "python", {}, Path("stack.log"), Slots(8, 8), starter)
        for threads in (1, 4):
            await process.run({"kind": "cell", "timeout": 1, "threads": threads})
        await process.close()
        return starter.processes[0].jobs, [spent.seconds for spent in process.costs]

    jobs, seconds = asyncio.run(main())
    assert [job["slots"] for job in jobs] == [8, 2]
    assert seconds == [0.5, 2.0]
