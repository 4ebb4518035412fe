"""Inputs of a model: chosen once by one stack, cached, and part of every result's key."""

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest

from samebits.base.filestate import Dependencies
from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell, follows_from, model_of
from samebits.jobs.inputs import NO_STACK, Feeder
from samebits.matrix.spec import Prompt
from samebits.records.inputs import InputsFile
from samebits.records.tensor import TensorRef, tensor_hash
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import built_stack, cell_id, model_spec
from tests.support.jobs import CHECKPOINT

HUB = Checkpoint(model="llama", source="org/llama", shown_source="hub org/llama")
OLD, NEW = built_stack("4.48"), built_stack("5.0")
IDS = bytes(8 * 6)


class Process:
    """A stack process that chooses inputs, or writes ``record`` instead, or nothing."""

    def __init__(self, record=None, *, leaves=True):
        self.record, self.leaves = record, leaves
        self.jobs = []

    async def run(self, job):
        self.jobs.append(job)
        path = Path(job["result"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.leaves:
            head = {"model": job["name"], "stack": job["stack"]}
            path.write_text(sealed(json.dumps(head | (self.record or self.chosen(job)))))
        return Ended(exit=0)

    def chosen(self, job):
        ref = TensorRef(
            hash=tensor_hash("int64", (1, 6), IDS), dtype="int64", shape=(1, 6), stored=True
        )
        file = Path(job["store"]["root"]) / "tensors" / ref.hash[:2] / f"{ref.hash}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(IDS)
        fed = {"tensors": {"input_ids": ref.model_dump(mode="json")}}
        return {"prompts": dict.fromkeys(job["model"]["prompts"], fed)}


def choose(root, *choosers, **changed):
    options = {
        "probes": "p",
        "fresh": False,
        "model": model_spec(),
        "checkpoint": CHECKPOINT,
    } | changed
    cache = JobCache(
        root,
        Store(root),
        options["probes"],
        fresh=options["fresh"],
        dependencies=options.get("dependencies"),
    )
    feeder = Feeder(cache)
    return asyncio.run(feeder.choose(options["model"], options["checkpoint"], choosers)).inputs


def has_to_choose(root, stack=OLD, **changed):
    """Return True if the stack has to choose."""
    process = Process()
    choose(root, (stack, process), **changed)
    return bool(process.jobs)


def test_the_job_says_what_the_probe_expects(tmp_path):
    process = Process()
    inputs = choose(tmp_path, (OLD, process))
    (job,) = process.jobs
    assert (job["kind"], job["name"], job["stack"]) == ("inputs", "llama", "4.48")
    assert job["model"]["source"] == CHECKPOINT.source
    assert job["model"]["prompts"] == {"short": {"length": 6}}
    assert (inputs.root, inputs.reason) == (str(tmp_path), "")
    assert InputsFile.model_validate(record_of(inputs)).digest == inputs.digest


def record_of(inputs):
    record = json.loads(Path(inputs.record).read_text())
    record.pop("seal")
    return record


def test_the_same_again_asks_no_stack(tmp_path):
    assert has_to_choose(tmp_path)
    assert not has_to_choose(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"probes": "q"},
        {"fresh": True},
        {"checkpoint": CHECKPOINT.model_copy(update={"digest": "e" * 64})},
        {"stack": built_stack("4.48", lock="transformers==4.48.9\n")},
        {"model": model_spec(prompts={"short": Prompt(length=7)})},
        {"model": model_spec(trust_remote_code=True)},
    ],
    ids=["probes", "fresh", "checkpoint", "stack", "prompts", "trust"],
)
def test_whatever_the_choice_follows_from_asks_again(tmp_path, changed):
    assert has_to_choose(tmp_path)
    assert has_to_choose(tmp_path, **changed)


def test_dtype_and_device_make_no_other_choice(tmp_path):
    assert has_to_choose(tmp_path)
    assert not has_to_choose(
        tmp_path, model=model_spec(dtypes=("bfloat16",), devices=("cuda",), greedy=9)
    )


def test_a_model_that_may_be_another_tomorrow_asks_every_time(tmp_path):
    assert has_to_choose(tmp_path, checkpoint=HUB)
    assert has_to_choose(tmp_path, checkpoint=HUB)


@pytest.mark.parametrize("damage", ["record", "bytes", "no bytes"])
def test_what_is_not_whole_is_made_again(tmp_path, damage):
    inputs = choose(tmp_path, (OLD, Process()))
    (tensor,) = (tmp_path / "tensors").rglob("*.bin")
    if damage == "record":
        record = Path(inputs.record)
        record.write_text(record.read_text().replace("llama", "Llama"))
    elif damage == "bytes":
        tensor.write_bytes(b"\1" * len(IDS))
    else:
        tensor.unlink()
    process = Process()
    assert choose(tmp_path, (OLD, process)) == inputs
    assert process.jobs
    assert sha256(tensor.read_bytes()).digest() == sha256(IDS).digest()


FAILURE = {"phase": "inputs", "type": "ImportError", "message": "no LossKwargs", "traceback": ""}
NOT_CHOSEN = {
    "absent": {"absent": "transformers 4.48 does not know it"},
    "failure": {"failure": FAILURE},
}


@pytest.mark.parametrize("why", NOT_CHOSEN)
def test_where_a_stack_cannot_read_the_model_the_next_one_chooses_and_both_answers_are_kept(
    tmp_path, why
):
    for jobs in (1, 0):
        first, second = Process(NOT_CHOSEN[why]), Process()
        inputs = choose(tmp_path, (OLD, first), (NEW, second))
        assert (len(first.jobs), len(second.jobs)) == (jobs, jobs)
        assert record_of(inputs)["stack"] == "5.0"


def test_a_stack_that_left_nothing_is_asked_again_another_time(tmp_path):
    dependencies = Dependencies()
    inputs = choose(
        tmp_path, (OLD, Process(leaves=False)), (NEW, Process()), dependencies=dependencies
    )
    assert record_of(inputs)["stack"] == "5.0"
    assert dependencies.unrepeatable
    assert has_to_choose(tmp_path)


def test_which_stack_chose_changes_no_digest(tmp_path):
    old, new = (choose(tmp_path, (stack, Process())) for stack in (OLD, NEW))
    assert old.record != new.record
    assert old.digest == new.digest


def test_where_no_stack_can_the_reason_goes_to_the_cells(tmp_path):
    inputs = choose(tmp_path, (OLD, Process({"failure": FAILURE})), (NEW, Process(leaves=False)))
    assert inputs.record == ""
    assert inputs.reason == f"{NO_STACK}: 4.48: ImportError: no LossKwargs"
    assert choose(tmp_path).reason == NO_STACK


def test_cells_that_are_fed_otherwise_never_meet(tmp_path):
    cell, model = cell_id("4.48"), model_spec()
    first = CHECKPOINT.model_copy(update={"inputs": choose(tmp_path, (OLD, Process()))})
    tensor = {"hash": "9" * 64, "dtype": "int64", "shape": [1, 6]}
    process = Process({"prompts": {"short": {"tensors": {"input_ids": tensor}}}})
    second = CHECKPOINT.model_copy(update={"inputs": choose(tmp_path, (OLD, process), fresh=True)})
    fed, fed_otherwise, unfed = (
        follows_from(ReadyCell(cell, model, checkpoint, OLD, None))
        for checkpoint in (first, second, CHECKPOINT)
    )
    assert fed not in (fed_otherwise, unfed)
    assert model_of(model, first)["inputs"] == first.inputs.as_json()
    assert model_of(model, CHECKPOINT)["inputs"]["reason"]
