"""What was saved beside the models and does not give in its loader what it gave in its saver."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from samebits.questions.crossings.parts import OUTCOMES
from samebits.questions.texts.compare import position_in_words
from samebits.text.blocks import below, first_of, folded, heading, link, page, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from samebits.questions.crossings.records import CrossingsOfRow, PartCrossing

TITLE = "Tokenizers, processors and generation settings, saved and loaded"
_MAX_LINES = 40
MAX_MODELS = 6
"""Limit for the models that a line names."""
_MAX_OPERATIONS = 3
_MAX_MESSAGE = 110

Pairs = list[tuple[str, str]]


class PartLoss(NamedTuple):
    """Pairs of saver and loader of one model with the same loss; ``first`` stands for all of them."""

    model: str
    pairs: Pairs
    first: PartCrossing


def parts_of_run(
    models: Mapping[str, CrossingsOfRow], pairs_in_words: Callable[[Pairs], str]
) -> Markdown:
    """Return the part of the section about all models; empty if nothing was saved beside them."""
    parts = [part for answer in models.values() for part in answer.parts]
    if not parts:
        return EMPTY
    losses = [loss for model, answer in models.items() for loss in _losses(model, answer.parts)]
    groups = grouped(losses, _line_key)
    rows = [
        [
            pairs_in_words(group[0].pairs),
            linked_models(dict.fromkeys(loss.model for loss in group)),
            group[0].first.part,
            *_in_words(group[0].first),
        ]
        for group in sorted(groups.values(), key=len, reverse=True)
    ]
    headers = ["saved by \N{RIGHTWARDS ARROW} loaded by", "models", "part", "outcome", "what"]
    lines = folded(f"Differences ({plural(len(rows), 'line')})", table(headers, rows), _MAX_LINES)
    return page([titled(TITLE), _headline(parts), lines if rows else EMPTY])


def parts_of_model(
    model: str, answer: CrossingsOfRow, pairs_in_words: Callable[[Pairs], str]
) -> Markdown:
    """Return what of one model's files is not as in the saver; empty if all is."""
    rows = [
        [pairs_in_words(loss.pairs), loss.first.part, *_in_words(loss.first, 12)]
        for loss in _losses(model, answer.parts)
    ]
    headers = ["saved by \N{RIGHTWARDS ARROW} loaded by", "part", "outcome", "what"]
    return below(heading(2, TITLE), table(headers, rows))


def _headline(parts: Sequence[PartCrossing]) -> Markdown:
    outcomes = grouped(parts, lambda part: part.outcome)
    counts = [f"{count(len(outcomes[o]))} {text}" for o, text in OUTCOMES.items() if o in outcomes]
    return fill(
        "{}: {}. Right is what it gives in the release that saved it: ids, offsets, texts, conversations, the values of "
        "processors, settings of generation.",
        plural(len(parts), "pair of saver and loader", "pairs of saver and loader"),
        prose("; ".join(counts)),
    )


def _losses(model: str, parts: Iterable[PartCrossing]) -> list[PartLoss]:
    groups = grouped((p for p in parts if p.is_loss), _loss_key)
    return [
        PartLoss(model, [(p.saver, p.loader) for p in group], group[0]) for group in groups.values()
    ]


def _loss_key(part: PartCrossing) -> Hashable:
    failure = part.failure
    message = failure.first_line if failure is not None else ""
    return part.part, part.outcome, part.differences, message, part.reason


def _line_key(loss: PartLoss) -> Hashable:
    part = loss.first
    type_name = part.failure.type if part.failure is not None else ""
    operations = tuple(d.operation for d in part.differences)
    return tuple(loss.pairs), part.part, part.outcome, operations, type_name


def linked_models(names: Iterable[str]) -> Markdown:
    """Return the first models, each with a link to its page, and the number of those left out."""
    return first_of([link(name, page_path(name)) for name in names], MAX_MODELS)


def _in_words(part: PartCrossing, n_operations: int = _MAX_OPERATIONS) -> tuple[Markdown, Markdown]:
    """Return the outcome, and what differs, each with its first case."""
    outcome = fill("**{}**", OUTCOMES[part.outcome])
    if part.failure is not None:
        name = part.failure.type.rpartition(".")[2]
        return outcome, prose(clip(f"{name}: {part.failure.in_short}", _MAX_MESSAGE))
    shown = [
        fill(
            "{} ({} of {}), {}: {} \N{RIGHTWARDS ARROW} {}",
            d.operation,
            count(d.n_differ),
            count(d.n_compared),
            position_in_words(d.first),
            code(d.first.reference, 60),
            code(d.first.candidate, 60),
        )
        for d in part.differences[:n_operations]
        if d.first is not None
    ]
    more = len(part.differences) - n_operations
    return outcome, join([*shown, *([prose(f"{more} more")] if more > 0 else ())], "; ")
