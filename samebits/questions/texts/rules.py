"""SB8xx: rules for what a tokenizer makes of many texts, of ids, and of conversations.

A rule looks only at results whose inputs are the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines, tokenizer_pair
from samebits.questions.texts.compare import (
    BARE,
    BATCHING,
    CLEANING,
    CONTINUED,
    DECODING,
    ENCODE,
    MARKING,
    OF_RENDERED,
    PADDED,
    TEXT,
    Difference,
    differences,
    is_raised,
    place,
    position_in_words,
)
from samebits.questions.texts.other_ids import different_ids
from samebits.questions.texts.records import OperationComparison, Outcomes, Place
from samebits.questions.texts.sides import compared, corpora, texts_pair
from samebits.records.tokenizer import TokenizerSignal
from samebits.text.numbers import plural

_MAX_OPERATIONS = 4
"""Operations of one finding that the evidence shows."""


def _is_returned(comparison: OperationComparison) -> bool:
    """Return True if both sides returned something, and not the same."""
    return comparison.first is not None and bool(comparison.first.position)


def _differing(*operations: str) -> Check:
    """Return a check for operations whose results differ; what raises is another rule's."""

    def check(case: Case) -> Iterator[Sighting]:
        differing = [c for c in compared(case) if c.operation in operations and _is_returned(c)]
        if differing:
            yield _sighting(case, differing)

    return check


def _sighting(case: Case, comparisons: list[OperationComparison]) -> Sighting:
    lines: list[str] = []
    for comparison in comparisons[:_MAX_OPERATIONS]:
        assert comparison.first is not None
        lines += [_summary(comparison), *_sides(case, comparison.first)]
    if len(comparisons) > _MAX_OPERATIONS:
        names = ", ".join(c.operation for c in comparisons[_MAX_OPERATIONS:])
        lines.append(f"differ as well: {names}")
    assert comparisons[0].first is not None
    return Sighting(f"{comparisons[0].operation}: {comparisons[0].first.case}", tuple(lines))


def _summary(comparison: OperationComparison) -> str:
    assert comparison.first is not None
    return (
        f"{comparison.operation}: differs in {comparison.n_differ} of "
        f"{plural(comparison.n_compared, 'case')}, first {position_in_words(comparison.first)}"
    )


def _sides(case: Case, first: Place) -> tuple[str, ...]:
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    names = (tokenizer.class_name for tokenizer in tokenizers)
    shown = (first.reference, first.candidate)
    lines = (f"{name}: {text}" for name, text in zip(names, shown, strict=True))
    return side_lines(case, *lines)


def _other_special_tokens(case: Case) -> Iterator[Sighting]:
    """Find special tokens that are added to a text and that the reference does not add.

    Fewer special tokens are SB801.
    """
    both = corpora(case)
    if both is None:
        return
    split = {difference.case for difference in differences(BARE, *both)}
    added = [d for d in differences(ENCODE, *both) if d.case not in split]
    first = next((d for d in added if d.reference.items and d.candidate.items), None)
    if first is None or first.candidate.size < first.reference.size:
        return
    position = place(ENCODE, first, *both)
    counted = f"{plural(len(added), 'text')} differ, first {position_in_words(position)}"
    yield Sighting(f"text {first.case}", (counted, *_sides(case, position)))


def _cleaned_otherwise(case: Case) -> Iterator[Sighting]:
    """Find a clean-up of spaces that differs, where decoding without it is the same."""
    everything = compared(case)
    if any(_is_returned(c) for c in everything if c.operation in DECODING):
        return
    differing = [c for c in everything if c.operation in CLEANING and _is_returned(c)]
    if differing:
        yield _sighting(case, differing)


def _streamed_otherwise(case: Case) -> Iterator[Sighting]:
    """Find a streamed text that differs, where decoding the same ids at once does not."""
    everything = {c.operation: c for c in compared(case)}
    whole, streamed = everything.get("decode without special tokens"), everything.get("stream")
    if streamed is None or whole is None or whole.n_differ:
        return
    if _is_returned(streamed):
        yield _sighting(case, [streamed])


def _other_vocabulary(case: Case) -> Iterator[Sighting]:
    """Find ids that stand for other tokens, and special tokens with other ids."""
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    lines = [*_special_changes(*tokenizers)]
    differing = [c for c in compared(case) if c.operation == "tokens of ids" and _is_returned(c)]
    for comparison in differing:
        assert comparison.first is not None
        lines += [_summary(comparison), *_sides(case, comparison.first)]
    if lines:
        yield Sighting(tokenizers[1].class_name, tuple(lines))


def _special_changes(reference: TokenizerSignal, candidate: TokenizerSignal) -> Iterator[str]:
    for name in dict.fromkeys([*reference.special, *candidate.special]):
        before, after = reference.special.get(name), candidate.special.get(name)
        if before != after:
            ids = ("none" if i is None else str(i) for i in (before, after))
            yield f"{name} token: id {' → '.join(ids)}"


def _raises(case: Case) -> Iterator[Sighting]:
    """Find operations that one side alone refuses: the cell's own calls, and those of the reference.

    A continued message for which only one side raises is SB826, and a form of rows is SB887.
    """
    operations = [c for c in compared(case) if c.operation not in (CONTINUED, PADDED)]
    for of_reference in (False, True):
        refused = {
            c: [*_refused_on(case, c.operation, of_reference=of_reference)] for c in operations
        }
        shown = [(c, places) for c, places in refused.items() if places]
        lines: list[str] = []
        for comparison, places in shown[:_MAX_OPERATIONS]:
            count = f"{len(places)} of {plural(comparison.n_compared, 'case')} raise"
            lines.append(f"{comparison.operation}: {count}, first {places[0].case}")
            lines += _sides(case, places[0])
        if shown:
            yield Sighting(shown[0][0].operation, tuple(lines), of_reference=of_reference)


def _refused_on(case: Case, operation: str, *, of_reference: bool) -> Iterator[Place]:
    """Yield the cases of an operation for which this side alone raises."""

    def is_refused(each: Difference) -> bool:
        sides = (
            (each.reference, each.candidate) if of_reference else (each.candidate, each.reference)
        )
        return bool(sides[0].raised and not sides[1].raised)

    return _places(case, operation, is_refused)


def _places(case: Case, operation: str, counts: Callable[[Difference], bool]) -> Iterator[Place]:
    """Yield the differences of one operation that count, of texts and of conversations."""
    texts = texts_pair(case)
    if texts is None:
        return
    before, after = texts
    pairs = (before.corpus, after.corpus), (before.conversations, after.conversations)
    for reference, candidate in pairs:
        if reference is not None and candidate is not None:
            differing = filter(counts, differences(operation, reference, candidate))
            yield from (place(operation, each, reference, candidate) for each in differing)


def _rendered_otherwise(case: Case) -> Iterator[Sighting]:
    """Find conversations that are rendered to another text, and a template that is not read."""
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    if tokenizers[0].chat is not None and tokenizers[1].chat is None:
        lines = ("has a chat template", "has no chat template")
        yield Sighting("chat template", side_lines(case, *lines))
        return
    texts = texts_pair(case)
    if texts is None or texts[1].conversations is None:
        return  # the instrument failed
    names = [_template_names(side.conversations) for side in texts]
    if set(names[0]) - set(names[1]):
        has = (f"has the templates {', '.join(name)}" for name in names)
        yield Sighting("named chat templates", side_lines(case, *has))
        return
    yield from _differing("template", TEXT)(case)


def _continued_otherwise(case: Case) -> Iterator[Sighting]:
    """Find continued messages that are cut otherwise, where the template renders all else alike.

    That only one side raises counts, in whichever direction.
    """
    everything = {c.operation: c for c in compared(case)}
    if any(name in everything and everything[name].n_differ for name in ("template", TEXT)):
        return
    continued = everything.get(CONTINUED)
    if continued is None or not continued.n_differ:
        return
    sighting = _sighting(case, [continued])
    by_one = _places(case, CONTINUED, is_raised)
    raised = next(by_one, None) if _is_returned(continued) else None
    if raised is not None:
        lines = (f"{CONTINUED}: {raised.case}", *_sides(case, raised))
        sighting = sighting._replace(evidence=(*sighting.evidence, *lines))
    yield sighting


def _refused_rows(case: Case) -> Iterator[Sighting]:
    """Find forms of rows that ``tokenizer.pad`` refuses on one side alone."""
    for refused in _places(case, PADDED, is_raised):
        yield Sighting(f"pad: {refused.case}", _sides(case, refused))


def _template_names(conversations: Outcomes | None) -> tuple[str, ...]:
    return tuple(conversations.operations.get("template", {})) if conversations else ()


RULES = (
    Rule("SB806", different_ids),
    Rule("SB811", _other_special_tokens),
    Rule("SB812", _differing(*DECODING)),
    Rule("SB813", _cleaned_otherwise),
    Rule("SB814", _streamed_otherwise),
    Rule("SB815", _differing(*MARKING)),
    Rule("SB816", _differing(*BATCHING)),
    Rule("SB817", _other_vocabulary),
    Rule("SB818", _raises),
    Rule("SB819", _rendered_otherwise),
    Rule("SB820", _differing(*OF_RENDERED)),
    Rule("SB826", _continued_otherwise),
    Rule("SB829", _differing("tensors")),
    Rule("SB887", _refused_rows),
)
