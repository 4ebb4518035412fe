"""What to trace of a pair that differs: the prompt and the phase where it shows first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from samebits.records.ids import Verdict
from samebits.trace import stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence

    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult, ItemComparison
    from samebits.records.ids import CellId
    from samebits.records.trace import Cause

_TRACED = {Verdict.DIFFERS, Verdict.ROUNDING, Verdict.DIVERGED}
_STEPS = 40
"""Steps of a decode up to which it is traced."""


class Question(NamedTuple):
    """One prompt of one pair."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    """Row -> the tokens that both sides are fed, for a decode: those that the reference chose."""
    steps: int = 0
    """Steps of a decode behind which it stops."""

    def to_its_end(self) -> Question:
        """Return the question for all steps: what rounding hides may begin behind the first."""
        longest = max(map(len, self.forced.values()), default=0)
        return self._replace(steps=min(longest, _STEPS))


def questions(result: CellResult, reference: Capture) -> list[Question]:
    """Return what may show where a cell parts from its reference, the plainest first.

    A prompt without padding shows it best; a forward is plainer than a decode.
    """
    if not _may_be_traced(result):
        return []
    forwards = reference.signals.forward or {}
    found = [
        Question(prompt, "forward", {}) for prompt in dict.fromkeys(_prompts(result, forwards))
    ]
    found.sort(key=lambda q: forwards[q.prompt].real_rows is not None)
    return found + _decodes(result, reference)


def _may_be_traced(result: CellResult) -> bool:
    finished = result.unfinished is None
    return finished and result.compared in _TRACED and result.reference not in {None, result.cell}


def _prompts(result: CellResult, known: Container[str]) -> Iterator[str]:
    for signal in result.signals:
        if signal.signal in {"hidden_states", "logits"}:
            for item in signal.items:
                prompt = item.name.partition(" · ")[0]
                if item.outcome == "differs" and not item.excused and prompt in known:
                    yield prompt


def _decodes(result: CellResult, reference: Capture) -> list[Question]:
    greedy = reference.signals.greedy or {}
    found: dict[str, Question] = {}
    for signal in result.signals:
        if signal.signal not in {"decode", "greedy"}:
            continue
        for item in signal.items:
            prompt = _prompt_of(item.name, reference)
            if item.outcome != "differs" or prompt in found:
                continue
            rows = {row: facts.ids for row, facts in greedy.items()}
            forced = {row: ids for row, ids in rows.items() if _prompt_of(row, reference) == prompt}
            if forced and all(forced.values()):
                steps = min(_first_step(item, result) + 1, _STEPS)
                found[prompt] = Question(prompt, "decode", forced, steps)
    return list(found.values())


def _first_step(item: ItemComparison, result: CellResult) -> int:
    """Return the step of a decode that differs first; the last that is traced if it is not known."""
    if item.metrics is not None and item.metrics.first_index:
        return item.metrics.first_index[0]
    return next((split.step for split in result.splits if split.prompt == item.name), _STEPS)


def _prompt_of(row: str, capture: Capture) -> str:
    """Return the prompt of a row of a batch: ``pair[1]`` is row 1 of ``pair``."""
    return row if row in (capture.signals.forward or {}) else re.sub(r"\[\d+\]$", "", row)


def same_weights(result: CellResult, reference: Capture, candidate: Capture) -> frozenset[str]:
    """Return the names of tensors in memory that hold the same checkpoint numbers on both sides."""
    differs = {
        item.name
        for signal in result.signals
        if signal.signal == "weights"
        for item in signal.items
        if item.outcome != "identical" and not item.excused
    }
    loaded = _loaded(reference) & _loaded(candidate)
    found: set[str] = set()
    for capture in (reference, candidate):
        weights = capture.signals.weights
        for name, facts in (weights.tensors if weights is not None else {}).items():
            pieces = {piece.tensor for piece in facts.pieces}
            if pieces and pieces <= loaded and not pieces & differs:
                found |= {name, *facts.aliases}
    return frozenset(found)


def _loaded(capture: Capture) -> set[str]:
    weights = capture.signals.weights
    return {
        piece.tensor
        for facts in (weights.tensors.values() if weights is not None else ())
        if facts.origin == "loaded"
        for piece in facts.pieces
    }


class Asked(NamedTuple):
    """What is asked of one pair."""

    reference: CellId
    questions: list[Question]
    same_weights: frozenset[str]
    beyond_rounding: bool
    """True if promoted float64 is asked, too: what parts first may be rounding that hides more."""


async def causes_of(
    results: Sequence[CellResult],
    runs: Mapping[CellId, tuple[Capture, ...]],
    ask: Callable[[Mapping[CellId, Asked]], Awaitable[Mapping[CellId, Cause | str]]],
    traced: Container[CellId] | None = None,
    known: Mapping[CellId, Cause | str] | None = None,
) -> dict[CellId, Cause | str]:
    """Return the cause of every cell that differs, or why none is known.

    ``traced`` are the cells that may be traced; None: all. ``known`` are causes of earlier runs.
    Where no trace tells a cause, it is the first stored tensor that differs.
    """
    known = known or {}
    wanted = [r for r in results if _may_be_traced(r) and (traced is None or r.cell in traced)]
    asked = {
        result.cell: told
        for result in wanted
        if result.reference is not None
        and result.cell not in known
        and (told := _asked(result, runs[result.reference][0], runs[result.cell][0]))
    }
    traces = await ask(asked) if asked else {}
    found = dict(known)
    for result in wanted:
        if result.cell not in known:
            cause = _told(result, traces.get(result.cell), runs[result.cell][0])
            found |= {} if cause is None else {result.cell: cause}
    return {r.cell: found[r.cell] for r in wanted if r.cell in found}


def _told(result: CellResult, cause: Cause | str | None, capture: Capture) -> Cause | str | None:
    """Return what a trace told, or the first stored tensor that differs if it told nothing."""
    if cause is not None and not isinstance(cause, str):
        return stored.named(cause, capture)
    found = stored.cause_of(result)
    if found is None:
        return cause
    if cause is not None:
        told = (*found.evidence, f"a trace says no more: {cause}")
        found = found.model_copy(update={"evidence": told})
    return stored.named(found, capture)


def with_cause(result: CellResult, cause: Cause | str | None) -> CellResult:
    """Return a result with its cause, or with a note on why none is known; None: nobody asked."""
    if isinstance(cause, str):
        note = f"where it starts is not known: {cause}"
        return result.model_copy(update={"notes": (*result.notes, note)})
    return result.model_copy(update={"cause": cause})


def _asked(result: CellResult, reference: Capture, candidate: Capture) -> Asked | None:
    found = questions(result, reference)
    if not found:
        return None
    return Asked(
        reference.cell,
        found,
        same_weights(result, reference, candidate),
        result.compared in {Verdict.DIFFERS, Verdict.DIVERGED},
    )
