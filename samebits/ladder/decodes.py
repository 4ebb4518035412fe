"""The decodes of a cell that the ladder has to make, and those that the cell's own run has made.

A forced decode of a row that chose the forced tokens itself is the decode of the cell's own run. A
prompt whose decode has the same bytes on both sides need not be decoded at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from samebits.compare.pair import TensorSource
from samebits.compare.phases import row_subject
from samebits.records.capture import Capture, GreedyFacts
from samebits.records.ladder import LadderFile, Rung
from samebits.records.tensor import TensorRef

Forced = dict[str, tuple[int, ...]]


def differing_prompts(reference: Capture, candidate: Capture) -> tuple[str, ...]:
    """Return the prompts to decode: all but those whose decodes have equal bytes on both sides."""
    greedy, other_greedy = reference.signals.greedy or {}, candidate.signals.greedy or {}
    forced = {row: facts.ids for row, facts in greedy.items()}

    def is_equal(row: str) -> bool:
        facts, other_facts = greedy[row], other_greedy.get(row)
        return (
            other_facts is not None
            and facts.logits is not None
            and other_facts.logits is not None
            and facts.ids == other_facts.ids
            and facts.logits.hash == other_facts.logits.hash
        )

    return tuple(
        prompt
        for prompt in decoded_prompts(reference, forced)
        if not all(map(is_equal, rows_of(reference, forced, prompt)))
    )


def decoded_prompts(capture: Capture, forced: Forced) -> list[str]:
    """Return the prompts with forced tokens, in the order in which they are decoded."""
    return list(dict.fromkeys(_prompt(capture, row) for row in forced))


def rows_of(capture: Capture, forced: Forced, prompt: str) -> list[str]:
    """Return the rows of a prompt that have forced tokens."""
    return [row for row in forced if _prompt(capture, row) == prompt]


def _prompt(capture: Capture, row: str) -> str:
    return row_subject(row, capture.signals.forward or {}).prompt


def repeats(
    file: LadderFile, capture: Capture, forced: Forced, prompts: Iterable[str], values: TensorSource
) -> bool:
    """Return True if each of ``prompts`` is decoded as in the cell's own run, in the own dtype.

    A row is compared up to the first step that another token precedes.
    """
    own = file.rungs.get("own")
    greedy = capture.signals.greedy or {}
    return all(
        own is not None and _repeats(own.decode.get(row), greedy[row], forced[row], values)
        for prompt in prompts
        for row in rows_of(capture, forced, prompt)
        if row in greedy
    )


def _repeats(
    ref: TensorRef | None, facts: GreedyFacts, forced: tuple[int, ...], values: TensorSource
) -> bool:
    observed = facts.logits
    if ref is None or observed is None:
        return False
    if facts.ids == forced:
        return ref.hash == observed.hash
    if ref.dtype != observed.dtype or not (values.has(ref) and values.has(observed)):
        return False
    same = [a == b for a, b in zip(forced, facts.ids, strict=False)]
    n = 1 + (same.index(False) if False in same else len(same) - 1)
    a, b = values.tensor(ref)[:n], values.tensor(observed)[:n]
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def with_observed(file: LadderFile, capture: Capture, forced: Forced) -> LadderFile:
    """Return the results with the decodes that the cell's own run has made in the own dtype."""
    own = file.rungs.get("own")
    if own is None or not file.not_decoded:
        return file
    rows = dict(_observed_rows(capture, forced, file.not_decoded)) | own.decode
    decode = {row: rows[row] for row in forced if row in rows}
    return file.model_copy(update={"rungs": {**file.rungs, "own": _decoded(own, decode)}})


def _decoded(own: Rung, decode: Mapping[str, TensorRef]) -> Rung:
    return own.model_copy(update={"decode": dict(decode)})


def _observed_rows(
    capture: Capture, forced: Forced, prompts: Iterable[str]
) -> Iterable[tuple[str, TensorRef]]:
    greedy = capture.signals.greedy or {}
    for prompt in prompts:
        for row in rows_of(capture, forced, prompt):
            facts = greedy.get(row)
            if facts is not None and facts.ids == forced[row] and facts.logits is not None:
                yield row, facts.logits
