"""Tests of samebits.capsules.kept: a second run reuses a capsule unless its inputs changed."""

import asyncio

import pytest

from samebits.base.filestate import Dependencies
from samebits.capsules import kept
from samebits.capsules.asking import CannotReproduce, ReproductionFailed
from samebits.capsules.kept import CapsuleCache
from samebits.matrix.spec import Prompt
from samebits.pipeline import capsules as making
from samebits.pipeline.capsules import Capsules
from samebits.records.capture import Failure
from samebits.records.ids import Verdict
from tests.support.builders import built_stack, cell_result
from tests.support.scheduler_bench import Bench, recipe

FILES = {"4.48.py": b"print()", "checkpoint/model.safetensors": bytes(range(256))}


class Makers:
    """Replaces samebits.capsules.maker.Maker and Place, and counts both."""

    def __init__(self, monkeypatch, gives=FILES):
        self.gives = gives
        self.made, self.places = [], 0
        monkeypatch.setattr(making, "Maker", lambda *arguments: self)
        monkeypatch.setattr(making, "Place", self.place)

    def place(self, environ):
        self.places += 1
        return self

    def close(self):
        pass

    async def make(self, wanted):
        self.made.append(str(wanted.result.cell))
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


@pytest.fixture
def makers(monkeypatch):
    return Makers(monkeypatch)


def failed(plan, headline="failed"):
    reference, *_, cell = plan.cells
    failure = Failure(phase="load", type="KeyError", message="'x'", traceback="")
    return cell_result(
        cell, Verdict.FAILED, reference=reference, headline=headline, failure=failure
    )


def capsules(root, model=None, *, headline="failed", between=None, **options):
    """Observe a plan and return the capsule of its last cell, and the bench."""
    bench = Bench(root, model or recipe(), **options)

    async def main():
        bench.lab = bench.make()
        try:
            runs = await bench.lab.observe()
            if between is not None:
                between(bench.lab)
            return await asyncio.wait_for(
                Capsules(bench.lab).made([failed(bench.plan, headline)], runs), 20
            )
        finally:
            await bench.lab.close()

    (capsule,) = asyncio.run(main()).values()
    return capsule, bench


def test_a_second_run_makes_none(tmp_path, makers):
    assert capsules(tmp_path)[0] == FILES
    again, bench = capsules(tmp_path)
    assert again == FILES
    assert makers.made == ["llama/float32-sdpa@5.0"]
    assert makers.places == 1
    assert bench.jobs == []
    assert bench.progress.of("begin capsules") == []


def test_fresh_makes_it_again(tmp_path, makers):
    capsules(tmp_path)
    capsules(tmp_path, fresh=True)
    assert len(makers.made) == 2


CHANGES = {
    "verdict": {"headline": "another one"},
    "prompts": {"model": recipe().model_copy(update={"prompts": {"p": Prompt(ids=(1, 2))}})},
    "checkpoint": {"model": recipe(seed=7)},
}


@pytest.mark.parametrize("changed", CHANGES)
def test_it_is_made_again_where_something_that_it_is_made_of_changed(tmp_path, makers, changed):
    capsules(tmp_path)
    capsules(tmp_path, **CHANGES[changed])
    assert len(makers.made) == 2


def test_so_it_is_of_another_lock(tmp_path, makers, monkeypatch):
    capsules(tmp_path)
    monkeypatch.setattr(
        Bench,
        "build",
        lambda self, spec: built_stack(spec.id, "llama", python=f"python{spec.id}").model_copy(
            update={"lock_digest": f"{spec.id}-upgraded"}
        ),
    )
    capsules(tmp_path)
    assert len(makers.made) == 2


@pytest.mark.parametrize("what", ["source_digest"])
def test_so_it_is_by_another_source(tmp_path, makers, monkeypatch, what):
    capsules(tmp_path)
    monkeypatch.setattr(kept, what, lambda: "another")
    capsules(tmp_path)
    assert len(makers.made) == 2


def captures(root, run="a"):
    return sorted((root / "work" / "captures").rglob(f"5.0/*/{run}.json"))


@pytest.mark.parametrize("run", ["a", "b"])
def test_so_it_is_of_another_capture(tmp_path, makers, run):
    capsules(tmp_path)
    (path,) = captures(tmp_path, run)
    path.write_bytes(path.read_bytes())
    capsules(tmp_path)
    assert len(makers.made) == 2


def kept_files(root):
    return [path for path in (root / "work" / "kept-capsules").rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": "samebits-kept-capsule"}', None])
def test_one_that_is_damaged_is_made_again(tmp_path, makers, damage):
    capsules(tmp_path)
    (path,) = kept_files(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if damage is None else damage)
    assert capsules(tmp_path)[0] == FILES
    assert len(makers.made) == 2


def test_a_reason_is_kept_too(tmp_path, monkeypatch):
    makers = Makers(monkeypatch, CannotReproduce("its checkpoint is too large"))
    for _ in range(2):
        assert capsules(tmp_path)[0] == "its checkpoint is too large"
    assert len(makers.made) == 1


@pytest.mark.parametrize(
    "error",
    [
        ReproductionFailed("a script did not reproduce it"),
        CannotReproduce("outside samebits, 5.x raises OSError: no space"),
        CannotReproduce("4.48 fails as well: torch.OutOfMemoryError: tried to allocate"),
        ValueError("a defect of ours"),
    ],
    ids=["unproved", "disk", "memory", "defect"],
)
def test_a_reason_that_another_day_may_not_have_is_not(tmp_path, monkeypatch, error):
    makers = Makers(monkeypatch, error)
    for _ in range(2):
        assert str(error) in capsules(tmp_path)[0]
    assert len(makers.made) == 2
    assert kept_files(tmp_path) == []


def test_nor_is_a_reason_beside_a_job_that_was_lost(tmp_path, monkeypatch):
    makers = Makers(monkeypatch, CannotReproduce("4.48 gave no answer"))
    make = makers.make
    benches = []

    async def lost(wanted):
        benches[-1].stacks.processes["4.48", ()].n_lost += 1
        return await make(wanted)

    makers.make = lost
    for _ in range(2):
        capsules(tmp_path, between=benches.append)
    assert len(makers.made) == 2


def test_a_disk_that_is_full_costs_no_report(tmp_path, makers, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept, "replace", full)
    assert capsules(tmp_path)[0] == FILES


def test_a_hub_model_without_a_commit_is_another_one_tomorrow(tmp_path):
    root, dependencies = tmp_path, Dependencies()
    cache = CapsuleCache(root, dependencies)
    cache.keep(None, [], FILES)
    assert cache.find(None, []) is None
    assert list(root.iterdir()) == []
