"""Traced and grafted training steps: which jobs run, what they are asked, and what is done with it."""

import asyncio
import json
from pathlib import Path

import pytest

from samebits.jobs.common import ReadyPair
from samebits.jobs.lab import Lab
from samebits.questions.training import explain as steps
from samebits.questions.training.ask import explained
from samebits.questions.training.origin import NOTHING
from samebits.questions.training.records import TrainingComparison, TrainingFile, TrainingItem
from samebits.questions.training.report import report_of
from samebits.questions.training.step_graft import StepDonor, StepGraft, StepGraftFile
from samebits.questions.training.step_question import StepQuestion
from samebits.questions.training.step_trace import StepTrace
from samebits.records.capture import Failure
from tests.support.asked_run import AskedRun
from tests.support.builders import cell_id
from tests.support.jobs import Child as Process
from tests.support.jobs import job_cache, ready_cell
from tests.support.traces import Builder

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


def tracing(cell, loss="loss", own="loss"):
    return Process(lambda job: trace(cell, loss if job["task"]["rung"] == "float64" else own))


def origin(root, *processes, question=QUESTION, cells=(CELL,)):
    """Return the origins of candidates, the reference's process first."""
    return asyncio.run(of_pairs(root, steps.step_origin, processes, question, cells))


async def of_pairs(root, explain, processes, question, cells):
    lab = Lab(job_cache(root))
    reference, *candidates = map(ready_cell, (REF, *cells), processes)
    return await asyncio.gather(
        *(explain(lab, ReadyPair(reference, candidate), question) for candidate in candidates)
    )


def test_both_sides_are_traced_in_float64(tmp_path):
    reference, candidate = tracing(REF), tracing(CELL, "LOSS")
    (first,) = origin(tmp_path, reference, candidate)
    assert (first.side.op, first.rung) == ("nll_loss_forward.default", "float64")
    (job,) = candidate.jobs
    assert job["kind"] == "training.trace"
    assert job["task"] | {"result": ""} == {
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
    assert [job["task"]["rung"] for job in candidate.jobs] == ["float64"]
    exact = QUESTION._replace(no_rounding=True)
    (first,) = origin(tmp_path / "b", tracing(REF), candidate, question=exact)
    assert first.side.op == "nll_loss_forward.default"


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
    assert (donor_job["task"]["role"], patient_job["task"]["role"]) == ("donor", "graft")
    assert (patient_job["task"]["skipped"], patient_job["task"]["without"]) == (["b"], ["a"])
    cached = json.loads(Path(patient_job["task"]["donor"]).read_text("utf-8"))
    assert cached["results"] == {"loss": "1"}


def test_bytes_are_compared_where_nothing_is_rounding(tmp_path):
    donor, patient = Process(lambda _job: DONOR), Process(lambda _job: PATIENT)
    result = grafted(tmp_path, donor, patient, QUESTION._replace(no_rounding=True))
    assert result.rung == donor.jobs[0]["task"]["rung"] == "own"


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


def test_only_steps_that_diverged_are_explained_and_only_losses_grafted(monkeypatch):
    grafted = []

    async def step_origin(lab, pair, question):
        return f"traced {question.batch}"

    async def step_graft(lab, pair, question):
        grafted.append(pair.candidate.cell)
        return StepGraft(batch="padded", rung="own", headline="labels", proof="none")

    monkeypatch.setattr(steps, "step_origin", step_origin)
    monkeypatch.setattr(steps, "step_graft", step_graft)
    own = {"batches": {"padded": {"loss": 1.0}}, "gradients": {}, "norm": 1.0, "behind": 1.0}
    cells = {REF: None, CELL: "loss", LATER: "gradients", cell_id("5.1"): ""}
    files, reports = {}, {}
    for cell, signal in cells.items():
        files[cell] = TrainingFile.model_validate({"cell": cell, "own": own})
        item = TrainingItem(signal=signal, outcome="diverged") if signal else None
        standing = "diverged" if signal else "rounding"
        comparison = TrainingComparison(reference="4.48", standing=standing, first=item)
        reports[cell] = report_of(files[cell], None if cell == REF else comparison)
    pairs = dict.fromkeys((CELL, LATER, cell_id("5.1")), REF)
    result = asyncio.run(explained(AskedRun(None, None), reports, files, pairs))
    assert result[CELL].comparison.no_origin == "traced padded"
    assert result[LATER].comparison.no_origin == "traced padded"
    assert grafted == [CELL]
    assert result[CELL].comparison.graft.headline == "labels"
    assert result[LATER].comparison.graft is None
    assert result[cell_id("5.1")] == reports[cell_id("5.1")]
    assert result[REF] == reports[REF]
