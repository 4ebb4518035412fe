"""What two releases make of the same texts and conversations, operation by operation.

An operation whose input is the result of another one (decoding of a text's ids) is compared only
where that result is the same, so that one defect is not counted in all that follows from it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from samebits.questions.texts.records import (
    BLOCK,
    OperationComparison,
    Outcomes,
    Place,
    TextsReport,
    TextsSignal,
    Value,
)
from samebits.records.question import compared as each_compared

ENCODE, BARE = "encode", "encode without special tokens"
STAGES = ("normalizer", "pre_tokenizer", "model")
"""Operations of the backend alone, one after the other; they explain a difference of the ids."""
PUT_BACK = "put back: "
"""Before the names of the parts that are as tokenizer.json has them in an operation that tries a
cause; its results are ids without special tokens."""
TEXT, CONTINUED, CHAT_IDS = "rendered text", "continued text", "ids"
PADDED, PLACED = "pad", "words with places"

_OF_IDS = (
    "tensors",
    "special tokens mask",
    "offsets",
    "word ids",
    "decode",
    "decode, skip_special_tokens",
    "decode, clean_up_tokenization_spaces",
    "decode by default",
    "batch decode",
    "pair",
    "token types of a pair",
    "pair, truncation longest_first",
    "pair, truncation only_first",
    "pair, truncation only_second",
    "batch",
    "windows",
    "decode with its own switches",
    "places",
)
DECODING = (
    "decode",
    "decode, skip_special_tokens",
    "decode without special tokens",
    "batch decode",
    "decode with its own switches",
)
CLEANING = ("decode by default", "decode, clean_up_tokenization_spaces")
BATCHING = (
    "pair",
    "pair, truncation longest_first",
    "pair, truncation only_first",
    "pair, truncation only_second",
    "batch",
    "attention mask of a batch",
    "windows",
    "words",
    "collators",
    PADDED,
    PLACED,
)
MARKING = (
    "places",
    "offsets",
    "word ids",
    "word ids of words",
    "special tokens mask",
    "token types of a pair",
)
OF_RENDERED = (CHAT_IDS, "assistant mask", "type")
"""Operations on a conversation that is rendered to the same text."""
GROUPS: dict[str, tuple[str, ...]] = {
    "encoding": (ENCODE, BARE, "tensors", "tokens of ids", "slow class"),
    "decoding": (*DECODING, *CLEANING, "stream"),
    "pairs and batches": BATCHING,
    "offsets and masks": MARKING,
    "chat template": ("template", TEXT, CONTINUED, *OF_RENDERED),
}
"""What the operations are about, as a report groups them."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_IDS, (ENCODE, BARE)),
    "decode without special tokens": (BARE,),
    "stream": (BARE,),
    "token types of a pair": (ENCODE, BARE, "pair"),
    "attention mask of a batch": ("batch",),
    "word ids of words": ("words",),
    "collators": (ENCODE, BARE, "special tokens mask"),
    PADDED: (ENCODE, BARE),
    "places": (ENCODE, BARE, "offsets", "word ids"),
    CHAT_IDS: (TEXT, CONTINUED),
    "assistant mask": (CHAT_IDS,),
}
"""Operation -> operations that must give the same for the same case, or for its members."""

FOLLOWS_ALL = ("words", PLACED, CHAT_IDS)
"""Operations that are compared only if every text has the same ids."""

_NAMED_IDS = frozenset(
    {ENCODE, BARE, "pair", "batch", "windows", "words", CHAT_IDS, "slow class"}
    | {operation for operation in _OF_IDS if operation.startswith("pair")}
)
"""Operations whose numbers are token ids, which are shown with their tokens."""

_DRAWN = "tokens of ids"
"""Operation that must give the same before drawn ids are decoded."""
_BEFORE, _BEHIND = 8, 40
"""Characters that are shown before and behind the first that differs."""
_N_ITEMS = 6
"""Items that are shown from the first that differs on."""


class Difference(NamedTuple):
    """One case of an operation that differs."""

    case: str
    reference: Value
    candidate: Value


def comparisons(reference: TextsSignal, candidate: TextsSignal) -> tuple[OperationComparison, ...]:
    """Compare all operations on texts and conversations, without the stages of the backend."""
    corpus = compared(reference.corpus, candidate.corpus)
    same_ids = all(o.n_differ == 0 for o in corpus if o.operation in (ENCODE, BARE))
    everything = (*corpus, *compared(reference.conversations, candidate.conversations))
    return tuple(o for o in everything if same_ids or o.operation not in FOLLOWS_ALL)


def texts_of(signals: Mapping[str, TextsSignal], reference: str) -> dict[str, TextsReport]:
    """Return each stack's comparison with the reference, or with the first stack that has one."""
    reports = each_compared(reference, signals, _report)
    return {stack: report for stack, report in reports.items() if report.operations}


def _report(stack: str, reference: TextsSignal, candidate: TextsSignal) -> TextsReport:
    return TextsReport(reference=stack, operations=comparisons(reference, candidate))


def compared(
    reference: Outcomes | None, candidate: Outcomes | None
) -> tuple[OperationComparison, ...]:
    """Compare all operations that both sides observed."""
    if reference is None or candidate is None:
        return ()
    return tuple(
        _operation(operation, reference, candidate)
        for operation in reference.operations
        if operation in candidate.operations
        and operation not in STAGES
        and not operation.startswith(PUT_BACK)
    )


def differences(operation: str, reference: Outcomes, candidate: Outcomes) -> list[Difference]:
    """Return the cases of an operation that differ, in the order of the corpus."""
    return _differing(_pairs(operation, reference, candidate))


def _differing(pairs: Iterable[tuple[str, tuple[Value, Value]]]) -> list[Difference]:
    return [Difference(case, *values) for case, values in pairs if not same(*values)]


def same(reference: Value, candidate: Value) -> bool:
    """Return True if two values are equal; exceptions are, whatever their type and message."""
    if reference.raised or candidate.raised:
        return bool(reference.raised) == bool(candidate.raised)
    return reference == candidate


def differing_stages(
    case: str, reference: Outcomes, candidate: Outcomes, changed: Container[str]
) -> tuple[str, ...]:
    """Return the part of the backend that makes the ids of a text differ; () if none shows it.

    ``changed`` are the parts that are not the same on both sides. A model that gets the same pieces
    is the part itself, and a pre-tokenizer that gets the same text. Of two that changed, either may
    do the work of the other, where texts exist for which only the normalizer gives something else:
    then it is both, and which of them was not tried.
    """

    def differs(stage: str, name: str = case) -> bool:
        return _stage_differs(stage, name, reference, candidate)

    if not differs("pre_tokenizer"):
        return ("model",) if differs("model") else ()
    if not differs("normalizer"):
        return ("pre_tokenizer",) if "pre_tokenizer" in changed else ()
    if "pre_tokenizer" not in changed:
        return ("normalizer",)
    shares_work = any(
        differs("normalizer", name) and _is_same("pre_tokenizer", name, reference, candidate)
        for name in reference.operations.get("normalizer", {})
        if name in reference.operations.get("pre_tokenizer", {})
    )
    return ("pre_tokenizer", "normalizer") if shares_work else ("normalizer",)


class Trial(NamedTuple):
    """Parts that one side used as tokenizer.json has them, and what came of it."""

    parts: str
    """Names, with commas."""
    is_reference: bool
    """Whether it was the reference that got them."""
    n_same: int
    """Differing texts that then have the ids of the other side."""


def trials(
    differing: Sequence[Difference], reference: Outcomes, candidate: Outcomes
) -> list[Trial]:
    """Return which parts were put back, and for how many differing texts this gives equal ids."""
    return [
        Trial(operation.removeprefix(PUT_BACK), side is reference, n_same)
        for side in (candidate, reference)
        for operation in side.operations
        if operation.startswith(PUT_BACK)
        for n_same in [
            sum(
                side.value(operation, d.case) == (d.candidate if side is reference else d.reference)
                for d in differing
            )
        ]
    ]


def _stage_differs(stage: str, case: str, reference: Outcomes, candidate: Outcomes) -> bool:
    values = reference.value(stage, case), candidate.value(stage, case)
    return values[0] is not None and values[1] is not None and not same(values[0], values[1])


def _operation(operation: str, reference: Outcomes, candidate: Outcomes) -> OperationComparison:
    # where both raise, there is nothing to compare
    pairs = [
        (case, values)
        for case, values in _pairs(operation, reference, candidate)
        if not (values[0].raised and values[1].raised)
    ]
    differing = _differing(pairs)
    first = min(differing, key=is_raised, default=None)
    return OperationComparison(
        operation=operation,
        n_compared=len(pairs),
        n_differ=len(differing),
        n_raised=sum(1 for d in differing if d.candidate.raised and not d.reference.raised),
        first=place(operation, first, reference, candidate) if first is not None else None,
    )


def is_raised(difference: Difference) -> bool:
    """Return True if one of the sides raised."""
    return bool(difference.reference.raised or difference.candidate.raised)


def _pairs(
    operation: str, reference: Outcomes, candidate: Outcomes
) -> Iterator[tuple[str, tuple[Value, Value]]]:
    """Yield the cases of an operation with equal inputs, and both values."""
    for case in reference.operations.get(operation, {}):
        values = reference.value(operation, case), candidate.value(operation, case)
        if values[0] is None or values[1] is None:
            continue
        if reference.inputs.get(case) != candidate.inputs.get(case):
            continue
        if _inputs_are_same(operation, case, reference, candidate):
            yield case, (values[0], values[1])


def _inputs_are_same(operation: str, case: str, reference: Outcomes, candidate: Outcomes) -> bool:
    if operation != _DRAWN and case in reference.operations.get(_DRAWN, {}):
        return _is_same(_DRAWN, case, reference, candidate)
    cases = (case, *reference.members.get(case, ()))
    return all(
        _is_same(earlier, name, reference, candidate)
        for earlier in FOLLOWS.get(operation, ())
        for name in cases
    )


def _is_same(operation: str, case: str, reference: Outcomes, candidate: Outcomes) -> bool:
    """Return True if a case is the same on both sides; also if neither side has it."""
    values = reference.value(operation, case), candidate.value(operation, case)
    if values[0] is None or values[1] is None:
        return values[0] is values[1]
    return same(values[0], values[1])


def place(
    operation: str, difference: Difference, reference: Outcomes, candidate: Outcomes
) -> Place:
    """Return the first position of a difference, with what both sides have there."""
    case, *values = difference
    position, span = _position(*values)
    shown = (
        _shown(value, position, outcomes.tokens if operation in _NAMED_IDS else {})
        for value, outcomes in zip(values, (reference, candidate), strict=True)
    )
    return Place(
        case=case, position=position, span=span, reference=next(shown), candidate=next(shown)
    )


def _position(reference: Value, candidate: Value) -> tuple[tuple[int, ...], int]:
    """Return the first position that differs, and how many positions the place spans."""
    if reference.raised or candidate.raised:
        return (), 1
    pair = _sequence(reference), _sequence(candidate)
    index = _first_index(*pair)
    if index < min(map(len, pair)):
        inner = pair[0][index], pair[1][index]
        if isinstance(inner[0], (list, tuple)) and isinstance(inner[1], (list, tuple)):
            return (index, _first_index(*inner)), 1
        return (index,), 1
    blocks = zip(reference.blocks, candidate.blocks, strict=False)
    unequal = (i for i, (a, b) in enumerate(blocks) if a != b)
    block = next(unequal, None)
    if block is None:
        return (min(reference.size, candidate.size),), 1
    return (index + block * BLOCK,), BLOCK


def _sequence(value: Value) -> Sequence[Any]:
    if value.text is not None:
        return value.text
    return value.items or ()


def _first_index(reference: Sequence[Any], candidate: Sequence[Any]) -> int:
    """Return the index of the first element that differs, else the shorter length."""
    pairs = zip(reference, candidate, strict=False)
    shorter = min(len(reference), len(candidate))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)


def _shown(value: Value, position: tuple[int, ...], tokens: dict[int, str]) -> str:
    """Return a short text of a value from a position on."""
    if value.raised:
        return f"raises {value.raised}: {value.message}"
    start = position[0] if position else 0
    if len(_sequence(value)) <= start < value.size:
        return f"{value.size} in all, of which these are kept as a hash"
    if value.text is not None:
        return _shown_text(value.text, start)
    items = value.items or ()
    if len(position) > 1 and position[0] < len(items):
        return _shown_items(items[position[0]], position[1], tokens)
    return _shown_items(items, start, tokens)


def _shown_text(text: str, position: int) -> str:
    start = max(0, position - _BEFORE)
    cut = text[start : position + _BEHIND]
    before = "…" if start else ""
    behind = "…" if position + _BEHIND < len(text) else ""
    return f"{before}{visible(cut)}{behind}"


def _shown_items(items: Sequence[Any], position: int, tokens: dict[int, str]) -> str:
    window = items[position : position + _N_ITEMS]
    if not window:
        return f"ends after {len(items)}"
    words = (
        f"{item} {visible(tokens[item])}"
        if isinstance(item, int) and not isinstance(item, bool) and item in tokens
        else visible(item)
        if isinstance(item, str)
        else json.dumps(item)
        for item in window
    )
    more = ", …" if position + _N_ITEMS < len(items) else ""
    return f"{', '.join(words)}{more}"


def position_in_words(first: Place) -> str:
    """Return the case and the position of a difference in words."""
    if not first.position:
        return first.case
    if len(first.position) > 1:
        row, index = first.position[:2]
        return f"{first.case}, row {row}, index {index}"
    index = first.position[0]
    if first.span > 1:
        return f"{first.case}, between index {index} and {index + first.span - 1}"
    return f"{first.case}, index {index}"


def visible(text: str) -> str:
    """Return a text in quotes, with escapes for all that cannot be seen, or not apart."""
    letters = (letter if _is_visible(letter) else _escape(letter) for letter in text)
    return f'"{"".join(letters)}"'


def _is_visible(letter: str) -> bool:
    return letter.isprintable() and letter != '"' and not unicodedata.combining(letter)


def _escape(letter: str) -> str:
    if letter == '"':
        return '\\"'
    return letter.encode("unicode_escape").decode("ascii")
