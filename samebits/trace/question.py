"""Selection of the traces for a pair that differs: the prompt and phase where it shows first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from samebits.compare.phases import row_subject
from samebits.diagnose.deciding import with_place
from samebits.diagnose.failing import decides
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult, ItemComparison
from samebits.records.ids import CellId, Verdict
from samebits.records.trace import Cause
from samebits.trace import stored

_TRACED = {Verdict.UNDECIDED, Verdict.ROUNDING, Verdict.DIVERGED}
_MAX_STEPS = 40
"""Steps of a decode that are traced."""


class TracePhase(NamedTuple):
    """One forward or decode of a pair to trace."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    """Row -> tokens that both sides are fed in a decode: those that the reference chose."""
    steps: int = 0
    """Number of decode steps."""

    def to_its_end(self) -> TracePhase:
        """Return the question for all steps: rounding may hide a cause that starts later."""
        longest = max(map(len, self.forced.values()), default=0)
        return self._replace(steps=min(longest, _MAX_STEPS))


def questions(result: CellResult, reference: Capture) -> list[TracePhase]:
    """Return the traces that may show where a cell diverges from its reference, simplest first.

    What decides the verdict comes before what only rounds, then a prompt without padding before one
    with, and a forward before a decode.
    """
    if not _may_be_traced(result):
        return []
    forwards = reference.signals.forward or {}
    forward_questions = [
        TracePhase(prompt, "forward", {}) for prompt in dict.fromkeys(_prompts(result, forwards))
    ]
    forward_questions.sort(key=lambda q: forwards[q.prompt].real_rows is not None)
    all_questions = forward_questions + _decode_questions(result, reference)
    return sorted(all_questions, key=lambda q: not decides(result, q.prompt, q.what))


def _may_be_traced(result: CellResult) -> bool:
    finished = result.unfinished is None
    return finished and result.compared in _TRACED and result.reference not in {None, result.cell}


def _prompts(result: CellResult, prompts: Container[str]) -> Iterator[str]:
    for signal in result.signals:
        if signal.signal in {"hidden_states", "logits"}:
            for item in signal.items:
                prompt = item.subject.prompt
                if item.outcome == "differs" and not item.excused and prompt in prompts:
                    yield prompt


def _decode_questions(result: CellResult, reference: Capture) -> list[TracePhase]:
    greedy, forwards = reference.signals.greedy or {}, reference.signals.forward or {}
    by_prompt: dict[str, TracePhase] = {}
    for signal in result.signals:
        if signal.signal not in {"decode", "greedy"}:
            continue
        for item in signal.items:
            prompt = item.subject.prompt
            if item.outcome != "differs" or prompt in by_prompt:
                continue
            rows = {row: facts.ids for row, facts in greedy.items()}
            forced = {
                row: ids for row, ids in rows.items() if row_subject(row, forwards).prompt == prompt
            }
            if forced and all(forced.values()):
                steps = min(_first_step(item, result) + 1, _MAX_STEPS)
                by_prompt[prompt] = TracePhase(prompt, "decode", forced, steps)
    return list(by_prompt.values())


def _first_step(item: ItemComparison, result: CellResult) -> int:
    """Return the first step of a decode that differs; the last traced step if it is not known."""
    if item.metrics is not None and item.metrics.first_index:
        return item.metrics.first_index[0]
    row = item.subject.prompt_row
    return next((split.step for split in result.splits if split.prompt == row), _MAX_STEPS)


def same_weights(result: CellResult, reference: Capture, candidate: Capture) -> frozenset[str]:
    """Return the names of tensors in memory that hold the same checkpoint numbers on both sides."""
    differs = {
        item.subject.tensor
        for signal in result.signals
        if signal.signal == "weights"
        for item in signal.items
        if item.outcome != "identical" and not item.excused
    }
    loaded = _loaded_tensors(reference) & _loaded_tensors(candidate)
    sides = _pieces(reference), _pieces(candidate)
    # lm_head.weight may be a tensor of the file on one side, and the embeddings on the other
    others = {
        name for name in sides[0].keys() & sides[1].keys() if sides[0][name] != sides[1][name]
    }
    return frozenset(
        name
        for side in sides
        for name, pieces in side.items()
        if pieces and pieces <= loaded and not pieces & differs and name not in others
    )


def _pieces(capture: Capture) -> dict[str, set[str]]:
    """Return the tensors of the checkpoint that each tensor in memory has, under all of its names."""
    return {
        alias: {piece.tensor for piece in facts.pieces}
        for name, facts in capture.signals.tensors.items()
        for alias in (name, *facts.aliases)
    }


def _loaded_tensors(capture: Capture) -> set[str]:
    weights = capture.signals.weights
    return {
        piece.tensor
        for facts in (weights.tensors.values() if weights is not None else ())
        if facts.origin == "loaded"
        for piece in facts.pieces
    }


class TraceRequest(NamedTuple):
    """The traces requested of one pair."""

    reference: CellId
    questions: list[TracePhase]
    same_weights: frozenset[str]
    beyond_rounding: bool
    """True to trace in float64, too: the first divergence may be rounding that hides more."""


async def causes_of(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    ask: Callable[[Mapping[CellId, TraceRequest]], Awaitable[Mapping[CellId, Cause | str]]],
    traced: Container[CellId] | None = None,
    known: Mapping[CellId, Cause | str] | None = None,
) -> dict[CellId, Cause | str]:
    """Return the cause of every cell that differs, or why none is known.

    ``traced`` are the cells that may be traced; None: all. ``known`` are causes of earlier runs.
    If no trace gives a cause, the cause is the first stored tensor that differs.
    """
    known = known or {}
    traceable = [r for r in results if _may_be_traced(r) and (traced is None or r.cell in traced)]
    requests = {
        result.cell: request
        for result in traceable
        if result.reference is not None
        and result.cell not in known
        and (request := _request(result, runs[result.reference][0], runs[result.cell][0]))
    }
    traces = await ask(requests) if requests else {}
    causes = dict(known)
    for result in traceable:
        if result.cell not in known:
            assert result.reference is not None
            reference, candidate = runs[result.reference][0], runs[result.cell][0]
            cause = _best_cause(result, traces.get(result.cell), reference, candidate)
            causes |= {} if cause is None else {result.cell: cause}
    return {r.cell: causes[r.cell] for r in traceable if r.cell in causes}


def _best_cause(
    result: CellResult, cause: Cause | str | None, reference: Capture, candidate: Capture
) -> Cause | str | None:
    """Return the cause from a trace, else the first stored tensor that differs."""
    if cause is not None and not isinstance(cause, str):
        held = stored.with_held(cause, reference, candidate)
        return stored.with_tensor_kind(held, candidate)
    stored_cause = stored.cause_of(result)
    if stored_cause is None:
        return cause
    if cause is not None:
        evidence = (*stored_cause.evidence, f"no trace shows more: {cause}")
        stored_cause = stored_cause.model_copy(update={"evidence": evidence})
    return stored.with_tensor_kind(stored_cause, candidate)


def with_cause(result: CellResult, cause: Cause | str | None) -> CellResult:
    """Return a result with its cause, or with a note on why none is known; None: not requested."""
    if isinstance(cause, str):
        note = f"the start of the difference is not known: {cause}"
        return result.model_copy(update={"notes": (*result.notes, note)})
    return result.model_copy(update={"cause": cause and with_place(result, cause)})


def _request(result: CellResult, reference: Capture, candidate: Capture) -> TraceRequest | None:
    pair_questions = questions(result, reference)
    if not pair_questions:
        return None
    return TraceRequest(
        reference.cell,
        pair_questions,
        same_weights(result, reference, candidate),
        result.compared in {Verdict.UNDECIDED, Verdict.DIVERGED},
    )
