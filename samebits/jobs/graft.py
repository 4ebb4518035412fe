"""Pieces of the reference put into the candidate, to see which of them restore its bits.

The donor job stores pieces of the reference; the patient job tries sets of them in the candidate.
"""

from __future__ import annotations

from samebits.grafts import judge
from samebits.grafts.questions import GraftQuestion, GraftQuestions
from samebits.jobs.common import ReadyPair
from samebits.jobs.lab import Lab
from samebits.jobs.records import DonorTask, PatientTask
from samebits.records.capture import Failure
from samebits.records.graft import DonorFile, Graft, GraftFile
from samebits.records.kinds import DONOR, PATIENT

BUDGET = 48
"""Maximum number of sets to run for the first prompt of a cell."""
BUDGET_ELSEWHERE = 24
"""The same for a later prompt, if the set that restored the first one does not restore it."""
SECONDS = 120.0
"""Seconds after which no further set is started."""
MAX_QUESTIONS = 6
"""Maximum number of prompts and decodes of one cell to run."""
NOTHING_RESTORES = "other prompts were not tried, because nothing restores the bits here"
NO_RESULT = "a process wrote no result"


async def graft(lab: Lab, pair: ReadyPair, request: GraftQuestions) -> Graft | str:
    """Return which pieces of the reference restore the candidate, or why none was tried."""
    grafts: list[Graft] = []
    reasons: dict[str, None] = {}
    for question in request.questions[:MAX_QUESTIONS]:
        if grafts and not grafts[0].smallest:
            reasons[NOTHING_RESTORES] = None
            break
        hint = grafts[0].smallest if grafts else ()
        of_question = await _graft_for(lab, pair, question, hint)
        if isinstance(of_question, str):
            reasons[of_question] = None
        else:
            grafts.append(of_question)
    if not grafts:
        return "; ".join(reasons)
    if len(request.questions) > MAX_QUESTIONS:
        reasons[f"{len(request.questions) - MAX_QUESTIONS:,} more prompts were not tried"] = None
    return grafts[0].model_copy(update={"more": tuple(grafts[1:]), "unasked": tuple(reasons)})


async def _graft_for(
    lab: Lab, pair: ReadyPair, question: GraftQuestion, hint: tuple[str, ...]
) -> Graft | str:
    task = DonorTask(
        prompt=question.prompt,
        what=question.what,
        forced=question.forced,
        expected=question.donor_expected,
        weights=tuple(reference_name for reference_name, _ in question.weights),
    )
    donor = await lab.ask(DONOR, task, pair.reference)
    if isinstance(donor, Failure):
        return NO_RESULT
    if reason := _unusable_reason(donor):
        return reason
    search = PatientTask(
        **question.model_dump(exclude={"donor_expected"}),
        donor=str(lab.path(DONOR, task, pair.reference)),
        hint=hint,
        budget=BUDGET_ELSEWHERE if hint else BUDGET,
        seconds=SECONDS,
    )
    patient = await lab.ask(PATIENT, search, pair.candidate)
    if isinstance(patient, Failure):
        return NO_RESULT
    return _unusable_reason(patient) or judge.graft(donor, patient)


def _unusable_reason(result: DonorFile | GraftFile) -> str:
    """Return why a result cannot be used; '' if it can."""
    if result.failure is not None:
        return f"{result.cell}: {result.failure.type}: {result.failure.first_line}"
    return f"{result.cell}: {result.mismatch}" if result.mismatch else ""
