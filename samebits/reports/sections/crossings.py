"""Saved by one release, loaded by another: what does not come back, and for which models."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from samebits.text.blocks import (
    bullets,
    codes,
    details,
    fence,
    folded,
    heading,
    link,
    page,
    table,
    titled,
)
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.names import numbered, page_path
from samebits.text.numbers import count, exact, number, plural

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from samebits.records.crossing import Crossing, CrossingsReport
    from samebits.records.report import Report

TITLE = "Saved by one release, loaded by another"

ARROW = " \N{RIGHTWARDS ARROW} "

MOST_MODELS = 6
"""Models that a line names."""

MOST_FIELDS = 3
"""Config fields that a line of report.md spells out; the page of the model has all of them."""

WIDEST_MESSAGE = 110
"""Characters of an exception in report.md; the page of the model has all of it."""

LONGEST = 40
"""Lines of a table that is not folded."""


class Loss(NamedTuple):
    """Pairs of one model that lost the same; ``first`` speaks for all of them."""

    model: str
    pairs: tuple[tuple[str, str], ...]
    first: Crossing


def crossings(report: Report) -> Markdown:
    """Return the section of report.md; nothing if no model crossed."""
    if not report.crossings:
        return EMPTY
    return page(
        [
            heading(2, TITLE),
            _headline(report.crossings),
            _losses_by_pair(report),
            _losses(report),
            bullets([*_all_same(report.crossings), *_not_compared(report.crossings)]),
        ]
    )


def has_losses(model: str, report: Report) -> bool:
    """Return True if the model does not come back the same in some pair of saver and loader."""
    return any(crossing.is_loss for crossing in _of(model, report))


def crossings_of(model: str, report: Report) -> Markdown:
    """Return what the model's own page says: every pair, and every loss in full."""
    found = _of(model, report)
    if not any(crossing.is_loss for crossing in found):
        return EMPTY
    return page(
        [
            heading(2, TITLE),
            _pairs_table(found),
            *(_in_full(loss) for loss in _grouped(model, found)),
            bullets(_remarks(found)),
        ]
    )


def _of(model: str, report: Report) -> tuple[Crossing, ...]:
    return next((found.crossings for found in report.crossings if found.model == model), ())


def _headline(found: Sequence[CrossingsReport]) -> Markdown:
    pairs = [crossing for model in found for crossing in model.crossings]
    outcomes = Counter(crossing.outcome for crossing in pairs)
    losing = [model.model for model in found if any(c.is_loss for c in model.crossings)]
    n = sum(crossing.is_loss for crossing in pairs)
    lost = f"**{count(n)} {'does' if n == 1 else 'do'} not**, in {plural(len(losing), 'model')}"
    said = Markdown(lost) if n else Markdown("none comes back otherwise")
    parts = [prose(f"{count(outcomes['same bits'])} give the same bits back"), said]
    if outcomes["absent"]:
        absent = f"{count(outcomes['absent'])} have a stack that does not load the original"
        parts.append(prose(absent))
    if outcomes["not tried"]:
        parts.append(prose(f"{count(outcomes['not tried'])} were not tried"))
    extent = f"{plural(len(found), 'model')}, {plural(len(pairs), 'pair')} of saver and loader"
    return fill(
        "{}: {}. Each stack loads the original and saves it with {}; every stack then compares "
        "what it makes of that with what it makes of the original: tensors, config and the "
        "logits of one prompt. The saver may write less than it read, and either may read the "
        "original otherwise than the other does. No verdict follows from it.",
        extent,
        join(parts, "; "),
        code("save_pretrained"),
    )


def _losses_by_pair(report: Report) -> Markdown:
    """Return how many models do not come back, by saver and loader; nothing if all do."""
    pairs = [crossing for model in report.crossings for crossing in model.crossings]
    if not any(crossing.is_loss for crossing in pairs):
        return EMPTY
    told: Counter[tuple[str, str]] = Counter()
    lost: Counter[tuple[str, str]] = Counter()
    for crossing in pairs:
        pair = crossing.saver, crossing.loader
        told[pair] += crossing.is_same or crossing.is_loss
        lost[pair] += crossing.is_loss
    stacks = [stack.id for stack in report.stacks if any(stack.id in pair for pair in told)]
    rows = [[saver, *(_share(lost, told, saver, loader) for loader in stacks)] for saver in stacks]
    headers = ["saved by", *(f"loaded by {stack}" for stack in stacks)]
    return page(
        [
            titled("Models that do not come back the same, of those that both load"),
            table(headers, rows),
        ]
    )


def _share(
    lost: Counter[tuple[str, str]], told: Counter[tuple[str, str]], saver: str, loader: str
) -> Markdown:
    n, of = lost[saver, loader], told[saver, loader]
    share = Markdown(f"{count(n)} of {count(of)}") if of else Markdown("-")
    return fill("**{}**", share) if n else share


def _losses(report: Report) -> Markdown:
    """Return a line for each kind of loss; models that lose the same way share one."""
    groups: dict[Hashable, list[Loss]] = {}
    for model in report.crossings:
        for loss in _grouped(model.model, model.crossings):
            groups.setdefault(_kind(loss), []).append(loss)
    if not groups:
        return EMPTY
    headers = ["saved by \N{RIGHTWARDS ARROW} loaded by", "models", "outcome", "what", "logits"]
    rows = [_line(same) for same in sorted(groups.values(), key=lambda same: -len(same))]
    values = "values are the first model's, distances the largest"
    title = f"What does not come back ({plural(len(rows), 'line')}; {values})"
    return folded(title, table(headers, rows), LONGEST)


def _grouped(model: str, found: Iterable[Crossing]) -> list[Loss]:
    """Return what a model lost, pairs that lost the same together."""
    groups: dict[Hashable, list[Crossing]] = {}
    for crossing in found:
        if crossing.is_loss:
            groups.setdefault(_contents(crossing), []).append(crossing)
    return [
        Loss(model, tuple((c.saver, c.loader) for c in same), same[0]) for same in groups.values()
    ]


def _contents(crossing: Crossing) -> Hashable:
    """Return what two pairs have to share to be told together; a save fails for every loader."""
    failure = crossing.failure
    return (
        crossing.outcome,
        crossing.tensors,
        crossing.config,
        crossing.keys,
        crossing.logits,
        None if crossing.logits_max_abs is None else number(crossing.logits_max_abs),
        (failure.phase, failure.type, failure.message.partition("\n")[0]) if failure else None,
        crossing.reason,
    )


def _kind(loss: Loss) -> Hashable:
    """Return what two models have to share to stand in one line: all but values and names."""
    failure = loss.first.failure
    return (
        loss.pairs,
        loss.first.outcome,
        tuple(_field(change) for change in loss.first.config),
        bool(loss.first.tensors),
        loss.first.logits,
        (failure.phase, failure.type) if failure else None,
    )


def _field(change: str) -> str:
    return change.partition(": ")[0]


def _line(same: list[Loss]) -> list[str]:
    loss = same[0]
    sizes = [size for s in same if (size := s.first.logits_max_abs) is not None]
    logits = loss.first.logits
    largest = f"max abs {number(max(sizes))}" if sizes and logits == "differs" else logits
    return [
        _pairs(loss.pairs),
        _models([s.model for s in same]),
        Markdown(f"**{loss.first.outcome}**"),
        _what(loss.first),
        "" if loss.first.failure else largest,
    ]


def _models(names: list[str]) -> Markdown:
    shown = join(link(name, page_path(name)) for name in names[:MOST_MODELS])
    rest = len(names) - MOST_MODELS
    return fill("{} and {} more", shown, count(rest)) if rest > 0 else shown


def _what(crossing: Crossing) -> Markdown:
    """Return in short what did not come back: the exception, else config fields and tensors."""
    parts = []
    if crossing.failure is not None:
        kind = crossing.failure.type.rpartition(".")[2]
        first = crossing.failure.message.partition("\n")[0]
        said = f"{kind}: {first}" if first else kind
        parts.append(prose(clip(said, WIDEST_MESSAGE)))
    elif crossing.outcome != "differs":
        parts.append(prose(crossing.reason))
    if crossing.config:
        parts.append(fill("config {}", codes(crossing.config, MOST_FIELDS)))
    if crossing.tensors:
        parts.append(_tensors(crossing.tensors))
    if crossing.keys:
        parts.append(prose(f"loading reports {plural(len(crossing.keys), 'key')}"))
    return join(parts, "; ")


def _tensors(names: tuple[str, ...]) -> Markdown:
    """Return the tensors in short; the page of the model has all of them."""
    first = code(numbered(names)[0])
    if len(numbered(names)) == 1:
        return fill("tensor {}" if len(names) == 1 else "tensors {}", first)
    return fill("{} such as {}", plural(len(names), "tensor"), first)


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """Return ``5.2, 5.x → 4.48, 4.57`` if the pairs are all of these, else groups of them."""
    loaders: dict[str, list[str]] = {}
    for saver, loader in pairs:
        loaders.setdefault(saver, []).append(loader)
    savers: dict[tuple[str, ...], list[str]] = {}
    for saver, several in loaders.items():
        savers.setdefault(tuple(several), []).append(saver)
    return "; ".join(f"{', '.join(s)}{ARROW}{', '.join(several)}" for several, s in savers.items())


def _all_same(found: Sequence[CrossingsReport]) -> list[Markdown]:
    """Return the models that come back the same in every pair of stacks that load them."""
    names = [
        model.model
        for model in found
        if any(c.is_same for c in model.crossings) and not any(c.is_loss for c in model.crossings)
    ]
    verb = "comes" if len(names) == 1 else "come"
    all_told = all(c.is_same for m in found if m.model in names for c in m.crossings)
    said = f"{plural(len(names), 'model')} {verb} back the same in every pair"
    said += "" if all_told else " that was compared"
    return [fill("{}: {}.", said, codes(names))] if names else []


def _not_compared(found: Sequence[CrossingsReport]) -> list[Markdown]:
    """Return why something was not tried, and where the same bits say nothing of the logits."""
    reasons: dict[str, dict[str, None]] = {}
    for model in found:
        for crossing in model.crossings:
            if crossing.outcome == "not tried":
                reasons.setdefault(f"not tried: {crossing.reason}", {})[model.model] = None
            if crossing.is_same and crossing.logits == "not compared":
                said = f"logits not compared: {crossing.reason}"
                reasons.setdefault(said, {})[model.model] = None
            if crossing.unsteady:
                said = "tensors not compared that two loads of the original do not agree on"
                reasons.setdefault(said, {})[model.model] = None
            if crossing.bare:
                said = "tensors not compared that have no plain bytes"
                reasons.setdefault(said, {})[model.model] = None
    return [fill("{} ({}).", reason, codes(models)) for reason, models in reasons.items()]


def _pairs_table(found: Sequence[Crossing]) -> Markdown:
    by_pair = {(crossing.saver, crossing.loader): crossing for crossing in found}
    savers = list(dict.fromkeys(crossing.saver for crossing in found))
    loaders = list(dict.fromkeys(crossing.loader for crossing in found))
    rows = [[saver, *(_outcome(by_pair[saver, loader]) for loader in loaders)] for saver in savers]
    return table(["saved by", *(f"loaded by {loader}" for loader in loaders)], rows)


def _outcome(crossing: Crossing) -> Markdown:
    word = Markdown(crossing.outcome)
    return fill("**{}**", word) if crossing.is_loss else word


def _in_full(loss: Loss) -> Markdown:
    """Return everything that a loss holds."""
    crossing = loss.first
    return page(
        [
            heading(3, f"{_pairs(loss.pairs)}: {crossing.outcome}"),
            bullets(_facts(crossing)),
            _exception(crossing),
        ]
    )


def _facts(crossing: Crossing) -> list[Markdown]:
    facts = []
    if crossing.reason:
        facts.append(prose(crossing.reason))
    facts += [fill("config {}", code(change, 400)) for change in crossing.config]
    if crossing.tensors:
        names = codes(numbered(crossing.tensors), 60)
        facts.append(fill("{}: {}", plural(len(crossing.tensors), "tensor"), names))
    if crossing.keys:
        facts.append(fill("loading reports, unlike for the original: {}", codes(crossing.keys)))
    if crossing.ignored:
        names = codes(crossing.ignored)
        facts.append(fill("fields that the loader's config does not know: {}", names))
    facts.append(_logits(crossing))
    return facts


def _logits(crossing: Crossing) -> Markdown:
    if crossing.logits == "differs" and crossing.logits_max_abs is not None:
        return fill("logits differ, max abs {}", exact(crossing.logits_max_abs))
    return fill("logits: {}", crossing.logits)


def _exception(crossing: Crossing) -> Markdown:
    failure = crossing.failure
    if failure is None:
        return EMPTY
    kind, first = failure.type, failure.message.partition("\n")[0]
    text = failure.traceback or f"{failure.type}: {failure.message}"
    return details(clip(f"{failure.phase}: {kind}: {first}", 200), fence(text))


def _remarks(found: Sequence[Crossing]) -> list[Markdown]:
    """Return what is no loss and yet to be known: chance in the loader, code put back."""
    remarks: list[Markdown] = []
    unsteady: dict[str, dict[str, None]] = {}
    restored: dict[str, tuple[str, ...]] = {}
    for crossing in found:
        unsteady.setdefault(crossing.loader, {}).update(dict.fromkeys(crossing.unsteady))
        restored[crossing.saver] = restored.get(crossing.saver, ()) or crossing.restored
    remarks += [
        fill(
            "not compared on {}, where two loads of the original do not agree: {}",
            loader,
            codes(numbered(names)),
        )
        for loader, names in unsteady.items()
        if names
    ]
    remarks += [
        fill("{} saved without the model's own {}, put back for the loaders", saver, codes(names))
        for saver, names in restored.items()
        if names
    ]
    return remarks
