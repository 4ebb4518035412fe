"""Traced and grafted training steps: which jobs run, what they are asked, and what is done with it."""

import asyncio
import json
from pathlib import Path

import pytest

from samebits.jobs import steps
from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell, ReadyPair
from samebits.jobs.lab import Lab
from samebits.pipeline.training import explained
from samebits.records.capture import Failure
from samebits.records.step_graft import StepDonor, StepGraft, StepGraftFile
from samebits.records.step_trace import StepTrace
from samebits.records.training import TrainingComparison, TrainingFile, TrainingItem
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from samebits.trace.step import NOTHING
from samebits.training.question import StepQuestion
from samebits.training.report import report_of
from samebits_wire.seal import sealed
from tests.support.builders import built_stack, cell_id, model_spec
from tests.support.traces import Builder

CHECKPOINT = Checkpoint(model="llama", source="/work/llama", said="build llama", digest="d" * 64)
REF, CELL, LATER = cell_id("4.48"), cell_id("5.x"), cell_id("5.2")
QUESTION = StepQuestion(
    REF, "padded", False, frozenset({"b"}), frozenset({"a"}), in_loss=True, no_rounding=False
)
NO = Failure(phase="training", type="ValueError", message="no way", traceback="")


def trace(cell, loss="loss", rung="float64"):
    builder = Builder(cell.stack).source("x", "input_ids", dtype="int64", structural=True)
    builder.source("w", "embed.weight").op("embedding.default", "w x", "l").mark("logits", "l")
    builder.op("nll_loss_forward.default", "l x", loss).mark("loss", loss)
    steps = builder.trace(prompt="padded", what="training", rung=rung)
    return StepTrace(cell=cell, trace=steps)


class Process:
    """A stack process whose child leaves an answer to each job, and None for none."""

    def __init__(self, answer):
        self.answer = answer
        self.jobs = []

    async def run(self, job):
        self.jobs.append(job)
        answer = self.answer(job)
        if answer is not None:
            path = Path((job.get("step") or job["graft"])["result"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sealed(answer.model_dump_json()), "utf-8")
        return Ended(exit=0)


def tracing(cell, loss="loss", own="loss"):
    return Process(lambda job: trace(cell, loss if job["step"]["rung"] == "float64" else own))


def origin(root, *processes, question=QUESTION, cells=(CELL,)):
    """Return the origins of candidates, the reference's process first."""
    return asyncio.run(of_pairs(root, steps.step_origin, processes, question, cells))


async def of_pairs(root, explain, processes, question, cells):
    lab = Lab(JobCache(root, Store(root), "p", "m", fresh=False))
    reference, *candidates = (
        ReadyCell(cell, model_spec(), CHECKPOINT, built_stack(cell.stack), process)
        for cell, process in zip((REF, *cells), processes, strict=True)
    )
    return await asyncio.gather(
        *(explain(lab, ReadyPair(reference, candidate), question) for candidate in candidates)
    )


def test_both_sides_are_traced_in_float64(tmp_path):
    reference, candidate = tracing(REF), tracing(CELL, "LOSS")
    (found,) = origin(tmp_path, reference, candidate)
    assert (found.side.op, found.rung) == ("nll_loss_forward.default", "float64")
    (job,) = candidate.jobs
    assert job["kind"] == "step-trace"
    assert job["step"] | {"result": ""} == {
        "batch": "padded",
        "backward": False,
        "rung": "float64",
        "large": False,
        "result": "",
    }


def test_a_reference_of_several_pairs_is_traced_once(tmp_path):
    reference = tracing(REF)
    candidates = tracing(CELL, "LOSS"), tracing(LATER, "OTHER")
    assert len(origin(tmp_path, reference, *candidates, cells=(CELL, LATER))) == 2
    assert len(reference.jobs) == 1


def test_own_bits_are_asked_only_where_nothing_is_rounding(tmp_path):
    candidate = tracing(CELL, own="LOSS")
    assert origin(tmp_path / "a", tracing(REF), candidate) == [NOTHING]
    assert [job["step"]["rung"] for job in candidate.jobs] == ["float64"]
    exact = QUESTION._replace(no_rounding=True)
    (found,) = origin(tmp_path / "b", tracing(REF), candidate, question=exact)
    assert found.side.op == "nll_loss_forward.default"


def test_a_trace_that_was_not_written_is_a_reason(tmp_path):
    assert origin(tmp_path, tracing(REF), Process(lambda _job: None)) == ["a trace was not written"]


DONOR = StepDonor(cell=REF, results={"loss": "1"})
PATIENT = StepGraftFile.model_validate(
    {
        "cell": CELL,
        "tried": [
            {"suspects": [], "same": 0, "of": 1},
            {"suspects": ["labels"], "same": 1, "of": 1},
        ],
    }
)


def grafted(root, donor, patient, question=QUESTION):
    processes = donor, patient
    (result,) = asyncio.run(of_pairs(root, steps.step_graft, processes, question, (CELL,)))
    return result


def test_the_donors_file_is_what_the_patient_gets(tmp_path):
    donor, patient = Process(lambda _job: DONOR), Process(lambda _job: PATIENT)
    result = grafted(tmp_path, donor, patient)
    assert (result.smallest, result.rung) == (("labels",), "float64")
    (donor_job,), (patient_job,) = donor.jobs, patient.jobs
    assert (donor_job["graft"]["role"], patient_job["graft"]["role"]) == ("donor", "graft")
    assert (patient_job["graft"]["skipped"], patient_job["graft"]["without"]) == (["b"], ["a"])
    cached = json.loads(Path(patient_job["graft"]["donor"]).read_text("utf-8"))
    assert cached["results"] == {"loss": "1"}


def test_bytes_are_compared_where_nothing_is_rounding(tmp_path):
    donor, patient = Process(lambda _job: DONOR), Process(lambda _job: PATIENT)
    result = grafted(tmp_path, donor, patient, QUESTION._replace(no_rounding=True))
    assert result.rung == donor.jobs[0]["graft"]["rung"] == "own"


@pytest.mark.parametrize(
    ("donor", "patient", "reason"),
    [
        (None, PATIENT, "stored no pieces"),
        (DONOR.model_copy(update={"failure": NO}), PATIENT, "no way"),
        (DONOR, None, "tried no pieces"),
        (DONOR, PATIENT.model_copy(update={"failure": NO}), "no way"),
    ],
)
def test_what_left_no_result_is_a_reason(tmp_path, donor, patient, reason):
    processes = Process(lambda _job: donor), Process(lambda _job: patient)
    assert reason in grafted(tmp_path, *processes)


class Scheduler:
    """Answers with what it was asked."""

    def __init__(self):
        self.grafted = {}

    async def step_origins(self, questions):
        return {cell: f"traced {q.batch}" for cell, q in questions.items()}

    async def step_grafts(self, questions):
        self.grafted = questions
        known = StepGraft(batch="padded", rung="own", headline="labels", proof="none")
        return dict.fromkeys(questions, known)


def test_only_steps_that_diverged_are_explained_and_only_losses_grafted():
    own = {"batches": {"padded": {"loss": 1.0}}, "gradients": {}, "norm": 1.0, "behind": 1.0}
    cells = {REF: None, CELL: "loss", LATER: "gradients", cell_id("5.1"): ""}
    files, reports = {}, {}
    for cell, signal in cells.items():
        files[cell] = TrainingFile.model_validate({"cell": cell, "own": own})
        item = TrainingItem(signal=signal, outcome="diverged") if signal else None
        standing = "diverged" if signal else "rounding"
        comparison = TrainingComparison(reference="4.48", standing=standing, first=item)
        reports[cell] = report_of(files[cell], None if cell == REF else comparison)
    scheduler = Scheduler()
    pairs = dict.fromkeys((CELL, LATER, cell_id("5.1")), REF)
    result = asyncio.run(explained(reports, files, pairs, scheduler))
    assert result[CELL].comparison.no_origin == "traced padded"
    assert result[LATER].comparison.no_origin == "traced padded"
    assert list(scheduler.grafted) == [CELL]
    assert result[CELL].comparison.graft.headline == "labels"
    assert result[LATER].comparison.graft is None
    assert result[cell_id("5.1")] == reports[cell_id("5.1")]
    assert result[REF] == reports[REF]
