"""Which models cross in a run, and how it is shown."""

import asyncio

from samebits.matrix.spec import Recipe
from samebits.pipeline.answers import ComparedRun
from samebits.questions.crossings.ask import ask
from tests.support.builders import model_spec
from tests.support.fakes import Crossed
from tests.support.scheduler_bench import STACKS, Bench, probe, recipe


def crossed(root, *models, **options):
    """Observe and cross; return savers and loaders by model, and the lines on crossings."""
    crossing = Crossed()

    def does(job):
        return crossing(job) if job["kind"].startswith("crossings.") else probe(job)

    bench = Bench(root, *models, does=dict.fromkeys(STACKS, does), **options)

    async def main():
        scheduler = bench.make()
        try:
            await scheduler.observe()
            return await asyncio.wait_for(ask(ComparedRun(scheduler, [])), 10)
        finally:
            await scheduler.close()

    answers = asyncio.run(main())
    assert {row.variant for row in answers} <= {"float32-sdpa"}
    pairs = {row.model: [(c.saver, c.loader) for c in a.crossings] for row, a in answers.items()}
    return pairs, bench.progress.of("begin crossings")


def test_every_model_crosses_between_all_stacks(tmp_path):
    pairs, notes = crossed(tmp_path, recipe(), recipe("small", "llama"))
    all_pairs = [(saver, loader) for saver in STACKS for loader in STACKS]
    assert pairs == {"llama": all_pairs, "small": all_pairs}
    description = "2 models saved in one release, loaded in the others"
    assert notes == [f"begin crossings (2): {description}"]


def test_a_stack_that_was_not_built_takes_no_part(tmp_path):
    pairs, _ = crossed(tmp_path, failing=("4.57",))
    assert {stack for pair in pairs["llama"] for stack in pair} == {"4.48", "5.0"}
    assert crossed(tmp_path, failing=("4.57", "5.0"))[0] == {}


def test_a_model_without_a_checkpoint_does_not_cross(tmp_path):
    pairs, _ = crossed(tmp_path, recipe(), recipe("nobody"))
    assert list(pairs) == ["llama"]


def test_nothing_crosses_where_it_is_switched_off(tmp_path):
    off = model_spec("llama", build=Recipe(architecture="llama"), save_load=False)
    assert crossed(tmp_path, off) == ({}, [])
