"""Saved by one release, loaded by another: what does not come back, and for which models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from samebits.questions.crossings.parts_section import linked_models, parts_of_model, parts_of_run
from samebits.questions.crossings.records import Crossing, CrossingsOfRow, crossed
from samebits.text.blocks import (
    bullets,
    codes,
    details,
    fence,
    folded,
    heading,
    page,
    table,
    titled,
)
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import count, exact, number, plural

if TYPE_CHECKING:
    from samebits.records.report import Report, Row

    ByModel = Mapping[str, CrossingsOfRow]

TITLE = "Saved by one release, loaded by another"

ARROW = " \N{RIGHTWARDS ARROW} "

MAX_FIELDS = 3
"""Limit for the config fields in a line of report.md; the page of the model has all of them."""

MAX_MESSAGE = 110
"""Limit in characters for an exception in report.md; the page of the model has all of it."""

MAX_LINES = 40
"""Limit for the lines of a table that is not folded."""


class Loss(NamedTuple):
    """Pairs of one model that have the same loss; ``first`` represents all of them."""

    model: str
    pairs: tuple[tuple[str, str], ...]
    first: Crossing


def crossings(report: Report) -> Markdown:
    """Return the section of report.md; empty if no model was saved and loaded."""
    models = crossed(report.rows)
    if not models:
        return EMPTY
    remarks = [*_all_same(models), *_not_compared(models), *_made_models(models)]
    return page(
        [
            heading(2, TITLE),
            _headline(models),
            _losses_by_pair(models, [stack.id for stack in report.stacks]),
            _losses(models),
            bullets(remarks),
            parts_of_run(models, _pairs),
        ]
    )


def has_losses(rows: Iterable[Row]) -> bool:
    """Return True if a model does not come back the same for some pair of saver and loader."""
    answers = crossed(rows).values()
    return any(_loses(answer) or any(part.is_loss for part in answer.parts) for answer in answers)


def crossings_of(rows: Iterable[Row]) -> Markdown:
    """Return the section of the model's own page: every pair, and all details of every loss."""
    models = crossed(rows)
    losing = {model: answer for model, answer in models.items() if _loses(answer)}
    blocks = [block for model, answer in losing.items() for block in _in_detail(model, answer)]
    return page([*blocks, *(parts_of_model(model, models[model], _pairs) for model in models)])


def _in_detail(model: str, answer: CrossingsOfRow) -> Iterator[Markdown]:
    yield heading(2, TITLE)
    yield bullets(_made_models({model: answer}))
    yield _pairs_table(answer.crossings)
    yield from (_in_full(loss) for loss in _model_losses(model, answer.crossings))
    yield bullets(_remarks(answer.crossings))


def _loses(answer: CrossingsOfRow) -> bool:
    return any(crossing.is_loss for crossing in answer.crossings)


def _pairs_of(models: ByModel) -> list[Crossing]:
    return [crossing for answer in models.values() for crossing in answer.crossings]


def _headline(models: ByModel) -> Markdown:
    pairs = _pairs_of(models)
    outcomes = Counter(crossing.outcome for crossing in pairs)
    n_losing = sum(map(_loses, models.values()))
    n_losses = sum(crossing.is_loss for crossing in pairs)
    losses = (
        f"**{count(n_losses)} {'does' if n_losses == 1 else 'do'} not**, "
        f"in {plural(n_losing, 'model')}"
    )
    losses_text = Markdown(losses) if n_losses else Markdown("none differs")
    parts = [prose(f"{count(outcomes['same bits'])} give the same bits back"), losses_text]
    if outcomes["absent"]:
        absent_text = (
            f"{count(outcomes['absent'])} include an environment that cannot load the original"
        )
        parts.append(prose(absent_text))
    if outcomes["not tried"]:
        parts.append(prose(f"{count(outcomes['not tried'])} were not tried"))
    extent = f"{plural(len(models), 'model')}, {plural(len(pairs), 'pair')} of saver and loader"
    return fill(
        "{}: {}. Each environment loads the original checkpoint and saves it with {}. Every environment then "
        "loads this copy and the original, and compares tensors, config and the logits of one "
        "prompt. A difference can come from the saver, which wrote less than it read, or from the "
        "loader, which reads the copy differently. It does not affect the verdict.",
        extent,
        join(parts, "; "),
        code("save_pretrained"),
    )


def _losses_by_pair(models: ByModel, ids: Iterable[str]) -> Markdown:
    """Return how many models do not come back, by saver and loader; empty if all come back."""
    pairs = _pairs_of(models)
    if not any(crossing.is_loss for crossing in pairs):
        return EMPTY
    compared: Counter[tuple[str, str]] = Counter()
    n_lost: Counter[tuple[str, str]] = Counter()
    for crossing in pairs:
        pair = crossing.saver, crossing.loader
        compared[pair] += crossing.is_same or crossing.is_loss
        n_lost[pair] += crossing.is_loss
    stacks = [id for id in ids if any(id in pair for pair in compared)]
    rows = [
        [saver, *(_share(n_lost, compared, saver, loader) for loader in stacks)] for saver in stacks
    ]
    headers = ["saved by", *(f"loaded by {stack}" for stack in stacks)]
    return page(
        [
            titled(
                "Models whose copy differs from the original, out of those that both environments load"
            ),
            table(headers, rows),
        ]
    )


def _share(
    n_lost: Counter[tuple[str, str]], compared: Counter[tuple[str, str]], saver: str, loader: str
) -> Markdown:
    n, n_compared = n_lost[saver, loader], compared[saver, loader]
    share = Markdown(f"{count(n)} of {count(n_compared)}") if n_compared else Markdown("-")
    return fill("**{}**", share) if n else share


def _losses(models: ByModel) -> Markdown:
    """Return a line for each kind of loss; models with the same loss share a line."""
    losses = (
        loss for model, answer in models.items() for loss in _model_losses(model, answer.crossings)
    )
    groups = grouped(losses, _line_key)
    if not groups:
        return EMPTY
    headers = ["saved by \N{RIGHTWARDS ARROW} loaded by", "models", "outcome", "what", "logits"]
    rows = [_line(group) for group in sorted(groups.values(), key=lambda group: -len(group))]
    values = "values of the first model, largest distances"
    title = f"Differences ({plural(len(rows), 'line')}; {values})"
    return folded(title, table(headers, rows), MAX_LINES)


def _model_losses(model: str, model_crossings: Iterable[Crossing]) -> list[Loss]:
    """Return the losses of a model; pairs with the same loss are joined."""
    groups = grouped((c for c in model_crossings if c.is_loss), _loss_key)
    return [
        Loss(model, tuple((pair.saver, pair.loader) for pair in group), group[0])
        for group in groups.values()
    ]


def _loss_key(crossing: Crossing) -> Hashable:
    """Return a key that is equal for pairs with the same loss; a save fails for every loader."""
    failure = crossing.failure
    return (
        crossing.outcome,
        crossing.tensors,
        crossing.config,
        crossing.keys,
        crossing.logits,
        None if crossing.logits_max_abs is None else number(crossing.logits_max_abs),
        (failure.phase, failure.type, failure.first_line) if failure else None,
        crossing.reason,
    )


def _line_key(loss: Loss) -> Hashable:
    """Return a key that is equal for models in one line: it leaves out values and names."""
    failure = loss.first.failure
    return (
        loss.pairs,
        loss.first.outcome,
        tuple(change.partition(": ")[0] for change in loss.first.config),
        bool(loss.first.tensors),
        loss.first.logits,
        (failure.phase, failure.type) if failure else None,
    )


def _line(group: list[Loss]) -> list[str]:
    loss = group[0]
    sizes = [size for member in group if (size := member.first.logits_max_abs) is not None]
    logits = loss.first.logits
    largest = f"max abs {number(max(sizes))}" if sizes and logits == "differs" else logits
    return [
        _pairs(loss.pairs),
        linked_models(member.model for member in group),
        Markdown(f"**{loss.first.outcome}**"),
        _loss_in_short(loss.first),
        "" if loss.first.failure else largest,
    ]


def _loss_in_short(crossing: Crossing) -> Markdown:
    """Return in short what did not come back: the exception, or config fields and tensors."""
    parts = []
    if crossing.failure is not None:
        exception_name = crossing.failure.type.rpartition(".")[2]
        first_line = crossing.failure.first_line
        message = f"{exception_name}: {first_line}" if first_line else exception_name
        parts.append(prose(clip(message, MAX_MESSAGE)))
    elif crossing.outcome != "differs":
        parts.append(prose(crossing.reason))
    if crossing.config:
        parts.append(fill("config {}", codes(crossing.config, MAX_FIELDS)))
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
    """Return ``5.2, 5.x → 4.48, 4.57`` if the pairs are all of these, or else groups of them."""
    loaders_by_saver: dict[str, list[str]] = {}
    for saver, loader in pairs:
        loaders_by_saver.setdefault(saver, []).append(loader)
    savers_by_loaders: dict[tuple[str, ...], list[str]] = {}
    for saver, loaders in loaders_by_saver.items():
        savers_by_loaders.setdefault(tuple(loaders), []).append(saver)
    return "; ".join(
        f"{', '.join(savers)}{ARROW}{', '.join(loaders)}"
        for loaders, savers in savers_by_loaders.items()
    )


def _all_same(models: ByModel) -> list[Markdown]:
    """Return the models that come back the same in every pair of stacks that load them."""
    same = {
        model: answer
        for model, answer in models.items()
        if any(c.is_same for c in answer.crossings) and not _loses(answer)
    }
    verb = "comes" if len(same) == 1 else "come"
    all_compared = all(crossing.is_same for crossing in _pairs_of(same))
    sentence = f"{plural(len(same), 'model')} {verb} back the same for every pair of environments"
    sentence += "" if all_compared else " that was compared"
    return [fill("{}: {}.", sentence, codes(same))] if same else []


def _not_compared(models: ByModel) -> list[Markdown]:
    """Return why pairs were not tried, and where equal bits do not include the logits."""
    reasons: dict[str, dict[str, None]] = {}
    for model, answer in models.items():
        for crossing in answer.crossings:
            for reason in _why_not_compared(crossing):
                reasons.setdefault(reason, {})[model] = None
    return [fill("{} ({}).", reason, codes(names)) for reason, names in reasons.items()]


def _why_not_compared(crossing: Crossing) -> Iterator[str]:
    if crossing.outcome == "not tried":
        yield f"not tried: {crossing.reason}"
    if crossing.is_same and crossing.logits == "not compared":
        yield f"logits not compared: {crossing.reason}"
    if crossing.unsteady:
        yield "tensors not compared, because two loads of the original give different bytes"
    if crossing.bare:
        yield "tensors not compared, because they do not have plain bytes"


def _made_models(models: ByModel) -> list[Markdown]:
    """Return which models were too large to be saved, and what was saved in their place."""
    return [
        fill("{}: saved and loaded with {}.", code(model), answer.asked_of.in_words)
        for model, answer in models.items()
        if answer.asked_of is not None
    ]


def _pairs_table(model_crossings: Sequence[Crossing]) -> Markdown:
    by_pair = {(crossing.saver, crossing.loader): crossing for crossing in model_crossings}
    savers = list(dict.fromkeys(crossing.saver for crossing in model_crossings))
    loaders = list(dict.fromkeys(crossing.loader for crossing in model_crossings))
    rows = [[saver, *(_outcome(by_pair[saver, loader]) for loader in loaders)] for saver in savers]
    return table(["saved by", *(f"loaded by {loader}" for loader in loaders)], rows)


def _outcome(crossing: Crossing) -> Markdown:
    word = Markdown(crossing.outcome)
    return fill("**{}**", word) if crossing.is_loss else word


def _in_full(loss: Loss) -> Markdown:
    """Return all details of a loss."""
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
        facts.append(
            fill("reported by this load, and not by that of the original: {}", codes(crossing.keys))
        )
    if crossing.ignored:
        names = codes(crossing.ignored)
        facts.append(fill("config fields that the loader's release does not have: {}", names))
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
    text = failure.traceback or f"{failure.type}: {failure.message}"
    title = f"{failure.phase}: {failure.type}: {failure.first_line}"
    return details(clip(title, 200), fence(text))


def _remarks(model_crossings: Sequence[Crossing]) -> list[Markdown]:
    """Return remarks that are no losses: chance in the loader, code that was restored."""
    remarks: list[Markdown] = []
    unsteady: dict[str, dict[str, None]] = {}
    restored: dict[str, tuple[str, ...]] = {}
    for crossing in model_crossings:
        unsteady.setdefault(crossing.loader, {}).update(dict.fromkeys(crossing.unsteady))
        restored[crossing.saver] = restored.get(crossing.saver, ()) or crossing.restored
    remarks += [
        fill(
            "not compared on {}, where two loads of the original give different bytes: {}",
            loader,
            codes(numbered(names)),
        )
        for loader, names in unsteady.items()
        if names
    ]
    remarks += [
        fill(
            "{} did not save {} of the model's own code; samebits added it for the loaders",
            saver,
            codes(names),
        )
        for saver, names in restored.items()
        if names
    ]
    return remarks
