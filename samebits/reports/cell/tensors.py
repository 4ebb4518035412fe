"""Tables of what differs inside one cell: signals, layers, tensors, logits, tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby, pairwise

from samebits.records.comparison import (
    CellResult,
    Extreme,
    ItemComparison,
    Metrics,
    SignalComparison,
    TokenSplit,
)
from samebits.records.ids import Signal
from samebits.records.tensor import TensorRef
from samebits.text.blocks import below, bullets, folded, page, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import count, exact, number, pair, part, plural, ulp

NUMBER_HEADERS = (
    "max abs",
    "mean abs",
    "max rel",
    "max ULP",
    "cosine",
    "items",
    "differ",
    "elements that differ",
    "step",
    "margin",
)
"""Headers of the right-aligned columns."""

MAX_ITEMS = 8
"""Limit for the tensors of a table; report.json has them all."""


MAX_SIZES = 12
"""Limit for the figures in one line of growth; a reader cannot take in more at a glance."""

LOGITS: dict[Signal, tuple[str, str]] = {
    "logits": ("positions", "logits"),
    "decode": ("greedy steps", "logits of the greedy steps"),
}
"""Signals whose last axis is the vocabulary -> names of the axis before it and of the values."""


def signal_table(cell: CellResult) -> Markdown:
    """Return every compared signal with its outcome."""
    if not cell.signals:
        return EMPTY
    if all(signal.outcome == "identical" for signal in cell.signals):
        return fill("All {} signals are identical.", count(len(cell.signals)))
    headers = ["signal", "outcome", "items", "differ", "note"]
    return table(headers, map(_signal, cell.signals), right=NUMBER_HEADERS)


def _signal(signal: SignalComparison) -> list[str]:
    return [
        code(signal.signal),
        signal.outcome,
        count(signal.n_items),
        count(signal.n_differ),
        signal.note,
    ]


def tensor_tables(cell: CellResult) -> Markdown:
    """Return a table of tensors for every signal that is not identical."""
    return page(signal_items(signal) for signal in cell.signals if signal.outcome != "identical")


def signal_items(signal: SignalComparison) -> Markdown:
    """Return the table of what differs in one signal."""
    if signal.signal == "hidden_states":
        return _layers(signal.items)
    differing = [item for item in signal.items if item.outcome != "identical"]
    parts = [_items(f"{signal.signal}: what differs", differing)]
    if signal.signal in LOGITS:
        measured = [(item.name, item.metrics) for item in differing if item.metrics]
        parts += _logits(*LOGITS[signal.signal], measured)
    return page(parts)


def _layers(items: tuple[ItemComparison, ...]) -> Markdown:
    """Return one table per prompt, which shows how the difference grows through the model."""
    prompts = grouped(items, _prompt)
    return page(_prompt_layers(prompt, layers) for prompt, layers in prompts.items())


def _prompt(item: ItemComparison) -> str:
    return item.subject.prompt


def growth_line(cell: CellResult) -> Markdown:
    """Return how the difference grows through the model, for the prompt where it is largest."""
    items = [s.items for s in cell.signals if s.signal == "hidden_states" and s.n_differ]
    prompts = grouped(items[0], _prompt) if items else {}
    largest = {prompt: max(map(_size, layers)) for prompt, layers in prompts.items()}
    worst_prompt = max(largest, key=largest.__getitem__, default="")
    if not largest.get(worst_prompt):
        return EMPTY
    sizes = _sizes(prompts[worst_prompt])
    return fill(
        "layers 0→{} of {}, max abs: {}",
        str(len(prompts[worst_prompt]) - 1),
        code(worst_prompt),
        ", ".join(sizes),
    )


def _size(item: ItemComparison) -> float:
    return item.metrics.max_abs if item.metrics else 0.0


def _sizes(layers: list[ItemComparison]) -> list[str]:
    """Return one figure per layer.

    Equal neighbours are joined, and the middle of a long list is left out.
    """
    runs = ((size, len(list(run))) for size, run in groupby(map(_layer_size, layers)))
    sizes = [f"{size} ({n} layers)" if n > 1 else size for size, n in runs]
    if len(sizes) <= MAX_SIZES:
        return sizes
    return [*sizes[: MAX_SIZES - 4], "…", *sizes[-3:]]


def _layer_size(item: ItemComparison) -> str:
    if item.metrics is None:
        return "0" if item.outcome == "identical" else item.outcome
    return number(item.metrics.max_abs)


def _prompt_layers(prompt: str, layers: list[ItemComparison]) -> Markdown:
    if all(item.outcome == "identical" and item.pad_rows != "differ" for item in layers):
        n = plural(len(layers), "layer")
        return fill("hidden_states of {}: {}, all identical.", code(prompt), n)
    growth = fill(
        "hidden_states of {}, layers 0→{}, max abs: {}",
        code(prompt),
        str(len(layers) - 1),
        ", ".join(_sizes(layers)),
    )
    return page([growth, _largest_step(layers), bullets(map(prose, _layer_remarks(layers)))])


def _layer_remarks(layers: list[ItemComparison]) -> Iterable[str]:
    """Return the remarks on layers, and of all padding rows the largest difference."""
    remarks = ("; ".join(_facts(item)) for item in layers)
    worst = max(layers, key=lambda item: (item.pad_rows == "differ", _pad_size(item)))
    return filter(None, dict.fromkeys([*remarks, _pads(worst)]))


def _largest_step(layers: list[ItemComparison]) -> Markdown:
    """Return the layer at which the difference grows most, if it grows over several layers."""
    sizes = [(item.name, item.metrics.max_abs) for item in layers if item.metrics]
    steps = [
        (current / previous, name)
        for (_, previous), (name, current) in pairwise(sizes)
        if previous > 0
    ]
    if len(steps) < 2 or not math.isfinite(max(steps)[0]):
        return EMPTY
    factor, name = max(steps)
    return fill("The largest growth is {} times, at {}.", f"{factor:.3g}", code(name))


def _items(name: str, items: list[ItemComparison]) -> Markdown:
    headers = [
        "item",
        "outcome",
        "dtype and shape",
        "max abs",
        "mean abs",
        "max rel",
        "max ULP",
        "elements that differ",
        "cosine",
        "note",
    ]
    if not items:
        return EMPTY
    measured = [_item(item, item.metrics) for item in items if item.metrics is not None]
    rows = [*measured, *_unmeasured(items)]
    item_table = table(headers, rows[:MAX_ITEMS], right=NUMBER_HEADERS)
    rest = len(rows) - MAX_ITEMS
    more = fill("… and {} more in report.json.", count(rest)) if rest > 0 else EMPTY
    return folded(name, page([item_table, more]))


def _unmeasured(items: list[ItemComparison]) -> list[list[str]]:
    """Return the rows of items without figures; items with equal cells share a row."""
    names: dict[tuple[str, Markdown, str], list[str]] = {}
    for item in items:
        if item.metrics is None:
            cells = (item.outcome, _shapes(item), _remark(item))
            names.setdefault(cells, []).append(item.name)
    return [
        [code(name), outcome, shapes, *[""] * 6, remark]
        for (outcome, shapes, remark), item_names in names.items()
        for name in numbered(item_names)
    ]


def _item(item: ItemComparison, metrics: Metrics) -> list[str]:
    return [
        code(item.name),
        item.outcome,
        _shapes(item),
        exact(metrics.max_abs),
        exact(metrics.mean_abs),
        number(metrics.max_rel),
        "" if metrics.max_ulp is None else ulp(metrics.max_ulp),
        part(metrics.n_differ, metrics.n),
        "" if metrics.cosine is None else f"{metrics.cosine:.9g}",
        _remark(item),
    ]


def _shapes(item: ItemComparison) -> Markdown:
    sides = dict.fromkeys(_shape(ref) for ref in (item.reference, item.candidate) if ref)
    return join(map(code, sides), " → ")


def _shape(ref: TensorRef) -> str:
    return f"{ref.dtype}[{', '.join(map(str, ref.shape))}]"


def _remark(item: ItemComparison) -> str:
    return "; ".join(filter(None, [*_facts(item), _pads(item)]))


def _facts(item: ItemComparison) -> list[str]:
    return [*([item.note] if item.note else []), *_not_finite(item.metrics)]


def _not_finite(metrics: Metrics | None) -> list[str]:
    if metrics is None:
        return []
    kinds = (("NaN", metrics.n_nan), ("infinite", metrics.n_inf))
    return [
        f"{kind}: {n_reference:,} → {n_candidate:,}"
        for kind, (n_reference, n_candidate) in kinds
        if n_reference or n_candidate
    ]


def _pads(item: ItemComparison) -> str:
    """Return how the padding rows differ, which no verdict counts."""
    if item.pad_rows != "differ":
        return ""
    figure = f" by up to {number(_pad_size(item))}" if item.pad_metrics else ""
    return f"padding rows, which do not affect the verdict, differ{figure}"


def _pad_size(item: ItemComparison) -> float:
    return item.pad_metrics.max_abs if item.pad_metrics else 0.0


def _logits(places: str, what: str, measured: list[tuple[str, Metrics]]) -> list[Markdown]:
    """Return the effect on each prompt's logits, and the largest differences of the worst one."""
    facts = bullets(
        fill("{}: {}", code(name), "; ".join(effects))
        for name, metrics in measured
        if (effects := _logits_facts(places, metrics))
    )
    measured = [(name, metrics) for name, metrics in measured if metrics.top]
    if not measured:
        return [facts]
    name, metrics = max(measured, key=lambda named: named[1].max_abs)
    return [facts, _extremes(what, name, metrics.top)]


def _logits_facts(places: str, metrics: Metrics) -> list[str]:
    facts = []
    if metrics.n_argmax is not None and metrics.n_positions:
        share = part(metrics.n_argmax, metrics.n_positions)
        facts.append(f"argmax changes at {share} {places}")
    if metrics.kl_max is not None:
        mean = "" if metrics.kl_mean is None else f", on average {number(metrics.kl_mean)}"
        facts.append(f"KL(reference || candidate): at most {number(metrics.kl_max)} nats{mean}")
    return facts


def _extremes(what: str, name: str, top: tuple[Extreme, ...]) -> Markdown:
    headers = ["index", "reference", "candidate", "abs diff", "token"]
    title = fill("The {} between the {} of {}:", _largest(len(top)), what, code(name))
    return page([title, table(headers, map(_extreme, top), right=headers[1:4])])


def _largest(n: int) -> str:
    return "largest difference" if n == 1 else f"{n} largest differences"


def _extreme(extreme: Extreme) -> list[str]:
    reference, candidate = pair(extreme.reference, extreme.candidate)
    return [
        code(str(list(extreme.index))),
        reference,
        candidate,
        exact(abs(extreme.reference - extreme.candidate)),
        code(extreme.token) if extreme.token is not None else EMPTY,
    ]


def split_table(splits: tuple[TokenSplit, ...]) -> Markdown:
    """Return where greedy decoding diverges, with the two largest logits of both sides."""
    headers = ["prompt", "step", "reference", "margin", "candidate", "margin"]
    rows = [
        [code(split.prompt), str(split.step), *_choice(split.reference), *_choice(split.candidate)]
        for split in splits
    ]
    title = titled("Greedy decoding chooses another token (id and logit of the best two)")
    return below(title, table(headers, rows, right=NUMBER_HEADERS))


def _choice(top2: tuple[tuple[int, float], tuple[int, float]] | None) -> list[str]:
    if top2 is None:
        return ["not recorded", ""]
    (best, high), (second, low) = top2
    best_logit, second_logit = pair(high, low)
    return [f"{best} ({best_logit}), then {second} ({second_logit})", number(high - low)]
