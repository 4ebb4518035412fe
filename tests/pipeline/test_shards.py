"""Shards: every cell is in exactly one of them, and a merge names what keeps it from being whole."""

import os
import re
import subprocess
import sys

import pytest

from samebits.base.digests import digest_of
from samebits.base.errors import SamebitsError
from samebits.cli import run as run_command
from samebits.matrix.plan import Selection, plan
from samebits.matrix.spec import Matrix
from samebits.pipeline import shards
from samebits.pipeline.opening import shard_store
from samebits.pipeline.order import Order
from samebits.pipeline.run import merge_command
from samebits.records.shard import ShardRecord
from samebits.storage.shared import SharedStore
from samebits.storage.sharing import Sharing
from tests.pipeline.test_sharing import Machine
from tests.storage.test_shared import Fake
from tests.support.builders import stack_spec
from tests.support.scheduler_bench import STACKS, recipe

MATRIX = Matrix(
    path="matrix.yaml",
    stacks=tuple(map(stack_spec, STACKS)),
    reference="4.48",
    models=tuple(recipe(name, "llama") for name in ("one", "two", "three")),
)
PLAN = plan(MATRIX, Selection())


@pytest.mark.parametrize("of", [1, 2, 3, 4, 9, 20])
def test_every_cell_is_in_exactly_one_shard(of):
    parts = [shards.part(PLAN, number, of) for number in range(1, of + 1)]
    cells = [cell for part in parts for cell in part.cells]
    assert sorted(map(str, cells)) == sorted(map(str, PLAN.cells))
    sizes = {len(part.cells) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_a_shard_has_few_stacks():
    assert [shards.part(PLAN, number, 3).stacks for number in (1, 2, 3)] == [(s,) for s in STACKS]


def test_the_merge_is_given_the_options_of_the_shards():
    order = Order(matrix="matrix.yaml", shard=(1, 2))
    assert merge_command(order, shard_store(order)) == "samebits merge shards/*"
    order = Order(
        matrix="my models/team.yaml",
        shard=(1, 2),
        selection=Selection(models=("a", "b-*")),
        level="quick",
    )
    words = "--matrix 'my models/team.yaml' --models 'a,b-*' --quick"
    said = merge_command(order, shard_store(order))
    assert said == f"samebits merge 'my models/shards'/* {words}"
    order = order.model_copy(update={"store": "s3://bucket"})
    assert merge_command(order, "s3://bucket") == f"samebits merge --store s3://bucket {words}"


RUN = """
import sys
from pathlib import Path
from samebits.matrix.load import load
from samebits.pipeline.order import Order
from samebits.pipeline.shards import run_of
path = Path(sys.argv[1])
print(run_of(load(path), Order(matrix=path), "probes"))
"""


@pytest.mark.processes
def test_shards_in_processes_of_their_own_are_of_one_run(tmp_path):
    """Python orders a set by a seed of the process, so nothing of a run may be one."""
    path = tmp_path / "matrix.yaml"
    path.write_text(
        "environments: [4.48]\ntorch: 2.13.0\npython: 3.11\nmodels:\n  llama: {build: {architecture: llama},"
        " relations: true, save_load: true, usage: true, training: true}\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", RUN, path],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(6)
    }
    assert len(runs) == 1


def test_what_a_shard_learns_of_its_own_models_leaves_the_run_the_same():
    listed = recipe().model_copy(update={"packages": ("timm",)})
    learned = listed.model_copy(update={"packages": ("timm", "pillow"), "added": ("pillow",)})
    other = listed.model_copy(update={"packages": ("timm", "pillow")})

    def run(model):
        matrix = Matrix(path="m", stacks=(stack_spec("4.57"),), reference="4.57", models=(model,))
        return shards.run_of(matrix, Order(), "probes")

    assert run(learned) == run(listed) != run(other)


def record(number, of=2, **changed):
    stacks = {"4.48": digest_of("lock")}
    fields = {"run": "r", "samebits": "1", "machine": "m", "cpu": "EPYC", "stacks": stacks}
    return ShardRecord(number=number, of=of, **fields | changed)


def completed(tmp_path, *records):
    store = SharedStore("store", Fake())
    sharing = Sharing(tmp_path, [store], store, {})
    for each in records:
        assert shards.leave(each, sharing)
    return shards.complete("r", sharing, "m", "samebits matrix --models llama")


def test_all_shards_are_there(tmp_path):
    assert completed(tmp_path, record(1), record(2)) == 2


def test_of_two_cuts_the_whole_one_counts(tmp_path):
    assert completed(tmp_path, record(1, 4), record(2, 4), record(1), record(2)) == 2


PROBLEMS = {
    "missing": ([record(2, 4), record(4, 4)], "2 shards of 4 left no result: 1/4, 3/4"),
    "command": ([record(1)], "samebits matrix --models llama --shard 2/2"),
    "machine": (
        [record(1), record(2, machine="n")],
        "another kind of processor .* shard 2/2: EPYC",
    ),
    "packages": (
        [record(1), record(2, stacks={"4.48": "x"})],
        "1/2 and 2/2 ran environment 4.48 with",
    ),
    "none": ([record(1, 1, run="other")], "no shard of this matrix"),
}


@pytest.mark.parametrize(("records", "text"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_keeps_a_merge_from_being_whole_is_named(tmp_path, records, text):
    with pytest.raises(shards.ShardsError) as error:
        completed(tmp_path, *records)
    assert error.value.exit_code == 2

    assert re.search(text, str(error.value).replace("\n", " "))


def test_a_shard_has_the_captures_of_a_whole_run(tmp_path):
    """Its checkpoints and inputs are those that the reference stack makes, which it builds for that."""
    objects, models = Fake(), [recipe(), recipe("gemma3")]
    alone = Machine(tmp_path / "alone", Fake(), *models).run()
    built = []
    for number in (1, 2, 3):
        bench = Machine(tmp_path / str(number), objects, *models)
        whole, make = bench.plan, bench.make

        def cut(bench=bench, whole=whole, make=make, number=number):
            return make(plan=shards.part(whole, number, 3), whole=whole)

        bench.make = cut
        runs = bench.run()
        assert dict(runs) == {cell: alone[cell] for cell in shards.part(whole, number, 3).cells}
        built.append(set(bench.built))
    assert built == [{"4.48", "4.57"}, {"4.48", "4.57"}, {"4.48", "4.57", "5.0"}]
    merge = Machine(tmp_path / "merge", objects, *models)
    assert merge.run() == alone
    assert merge.jobs == []


@pytest.mark.parametrize("text", ["3/2", "0/2", "2", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        run_command(["matrix", "--shard", text], {})
    assert "is no shard: write I/N" in capsys.readouterr().err


def test_a_merge_of_nothing_is_refused(tmp_path):
    with pytest.raises(SamebitsError, match="nothing to merge"):
        run_command(["merge", "--reports", str(tmp_path)], {})
    with pytest.raises(SamebitsError, match="elsewhere is no folder"):
        run_command(["merge", str(tmp_path / "elsewhere")], {})
