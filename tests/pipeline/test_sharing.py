"""Runs on several machines with one store: what one of them computed the others do not compute."""

import asyncio
from pathlib import Path

import pytest

from samebits.records.capture import Failure
from samebits.storage.shared import SharedStore
from samebits.storage.sharing import Sharing
from samebits_wire.seal import sealed
from tests.storage.test_shared import LIES, Fake
from tests.support.builders import capture, cell_id
from tests.support.scheduler_bench import Bench, probe, recipe, statuses

COMPLETE = ["complete"] * 2


class Machine(Bench):
    """A machine with a work folder of its own and a store that it shares."""

    def __init__(self, root, objects, *models, store=None, **options):
        self.store = store or SharedStore("s3://bucket", objects, pauses=(0, 0), deadline=0.3)

        def sharing(work):
            return Sharing(work, [self.store], self.store, {})

        super().__init__(root, *models, sharing=sharing, **options)


def test_a_second_machine_runs_nothing(tmp_path):
    objects = Fake()
    first = Machine(tmp_path / "one", objects, recipe(), recipe("small", "llama"))
    runs = first.run()
    second = Machine(tmp_path / "two", objects, recipe(), recipe("small", "llama"))
    assert second.run() == runs
    assert second.jobs == []
    assert second.store.problems == []


def test_a_run_puts_what_an_earlier_one_without_a_store_left_into_it(tmp_path):
    objects = Fake()
    runs = Bench(tmp_path / "one").run()
    Machine(tmp_path / "one", objects).run()
    second = Machine(tmp_path / "two", objects)
    assert second.run() == runs
    assert second.jobs == []


def test_fresh_asks_no_store(tmp_path):
    objects = Fake()
    Machine(tmp_path / "one", objects).run()
    second = Machine(tmp_path / "two", objects, fresh=True)
    second.run()
    assert len(second.jobs_of("cell")) == 6


def test_captures_of_another_cpu_are_not_taken(tmp_path, monkeypatch):
    objects = Fake()
    Machine(tmp_path / "one", objects).run()
    monkeypatch.setattr("samebits.pipeline.scope.machine_fingerprint", lambda kernels: "another")
    second = Machine(tmp_path / "two", objects)
    second.run()
    assert len(second.jobs_of("cell")) == 6


def test_captures_of_another_gpu_are_not_taken(tmp_path, monkeypatch):
    bench = Machine(tmp_path / "one", Fake())
    bench.run()
    cache = bench.lab.lab.cache
    variant = cell_id("4.48").variant
    cuda = variant.model_copy(update={"device": "cuda"})
    cpu = cache.machine_of(variant)
    facts = {"a100": ["Model: \t\t NVIDIA A100"], "h100": ["Model: \t\t NVIDIA H100"]}
    machines = set()
    for gpus in facts.values():
        monkeypatch.setattr("samebits.jobs.cache.accelerator_facts", lambda gpus=gpus: gpus)
        machines.add(cache.machine_of(cuda))
        assert cache.machine_of(variant) == cpu
    assert len(machines | {cpu}) == 3


@pytest.mark.parametrize(
    "objects",
    [
        Fake(failures=10**6),
        Fake(failures=10**6, error=RuntimeError),
        Fake(delay=5),
        *(Fake(lie=lie) for lie in LIES.values()),
    ],
    ids=["fails", "raises", "hangs", *LIES],
)
def test_no_store_changes_a_run(tmp_path, objects):
    alone = Bench(tmp_path / "alone").run()
    lie, objects.lie = objects.lie, lambda content: content
    Machine(tmp_path / "one", objects).run()
    objects.lie = lie
    second = Machine(tmp_path / "two", objects)
    assert second.run() == alone
    assert second.store.problems
    assert second.progress.of("note")


def test_a_slow_store_serves(tmp_path):
    objects = Fake(delay=0.02)
    Machine(tmp_path / "one", objects).run()
    second = Machine(tmp_path / "two", objects)
    assert list(statuses(second.run()).values()) == [COMPLETE] * 3
    assert second.jobs == []
    assert second.store.problems == []


def test_two_machines_at_once_have_the_same_captures(tmp_path):
    objects = Fake(delay=0.001)
    machines = [Machine(tmp_path / name, objects) for name in ("one", "two")]

    async def observe(machine):
        lab = machine.make()
        try:
            return await lab.observe()
        finally:
            await lab.close()

    async def both():
        return await asyncio.gather(*map(observe, machines))

    first, second = asyncio.run(both())
    assert dict(first) == dict(second)
    third = Machine(tmp_path / "three", objects)
    assert third.run() == first
    assert third.jobs == []


def failing(failure):
    """Return what a stack does whose cells all fail in the same way."""

    def leave(job):
        answer = probe(job)
        if job["kind"] == "cell":
            path = Path(job["capture"])
            left = capture(job["cell"]["stack"], run=job["run"], status="failed")
            path.write_text(sealed(left.model_copy(update={"failure": failure}).model_dump_json()))
        return answer

    return leave


@pytest.mark.parametrize(("kind", "n_again"), [("MemoryError", 2), ("ValueError", 0)])
def test_what_the_machine_may_have_caused_is_not_shared(tmp_path, kind, n_again):
    objects = Fake()
    failure = Failure(phase="forward", type=kind, message="no", traceback="")
    does = {"5.0": failing(failure)}
    Machine(tmp_path / "one", objects, does=does).run()
    second = Machine(tmp_path / "two", objects, does=does)
    second.run()
    assert len(second.jobs_of("cell")) == n_again
