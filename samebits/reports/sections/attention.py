"""Which attention was asked for, resolved and ran: over all models, and for the page of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from samebits.text.blocks import folded, heading, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.capture import AttentionCall, AttentionSignal
    from samebits.records.report import Report, Row

FACTS = ["attention", "function", "enable_gqa", "is_causal", "mask", "ATen kernel"]

NOT_OBSERVED = "not observed"

SHARED = "integrations."
"""How the name of a function begins that all models share, its module kept."""

OWN = "the model's own"
"""Stands for every function that is a model's and not of transformers.integrations."""

MOST_MODELS = 6
"""Models that a line of report.md names."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What ran, and everywhere where just that ran."""

    models: tuple[str, ...]
    variants: tuple[str, ...]
    stacks: tuple[str, ...]
    prompts: tuple[str, ...]
    layers: tuple[str, ...]
    facts: tuple[str, ...]
    """Those of :data:`FACTS`."""


def attention_kernels(report: Report) -> Markdown:
    """Return where another kernel ran than in the stack before, and all that ran anywhere."""
    rows = [row for row in report.rows if row.attention]
    if not rows:
        return EMPTY
    order = [stack.id for stack in report.stacks]
    return page([heading(2, "Attention kernels"), _moves_table(rows), _all_that_ran(rows, order)])


def kernels_of(rows: list[Row]) -> Markdown:
    """Return what ran in the rows of one model, per stack, prompt and layer, for its own page."""
    lines = _lines(rows)
    if not lines:
        return EMPTY
    for field in ("layers", "prompts", "stacks", "variants"):
        lines = _joined(lines, field)
    drawn = table(["variant", "stacks", "prompts", "layers", *FACTS], map(_cells, lines))
    return page([heading(2, "Attention kernels"), drawn])


def changed(rows: Iterable[Row]) -> bool:
    """Return True if another attention ran on some stack of a row than on another."""
    return any(_moves(row) for row in rows)


def _all_that_ran(rows: list[Row], order: list[str]) -> Markdown:
    """Return one line for each set of facts, those of most rows first."""
    found: dict[tuple[str, ...], list[tuple[Row, str]]] = {}
    for row in rows:
        for stack in row.attention:
            for facts in {_general(line.facts): None for line in _stack_lines(row, stack)}:
                found.setdefault(facts, []).append((row, stack))
    lines = [_way(facts, places, order) for facts, places in found.items()]
    lines.sort(key=lambda line: -int(line[0]))
    drawn = table(["rows", "models", "stacks", *FACTS], lines, right=("rows",))
    return folded(plural(len(lines), "way to run attention", "ways to run attention"), drawn, 40)


def _way(facts: tuple[str, ...], places: list[tuple[Row, str]], order: list[str]) -> list[str]:
    n_rows = len({(row.model, row.variant) for row, _ in places})
    found = {stack for _, stack in places}
    stacks = ", ".join(stack for stack in order if stack in found)
    return [str(n_rows), _some(row.model for row, _ in places), stacks, *map(_fact, facts)]


def _moves_table(rows: list[Row]) -> Markdown:
    """Return from which kernels to which others the rows went, and on which stack."""
    found: dict[tuple[Markdown, ...], list[Row]] = {}
    for row in rows:
        for move in _moves(row):
            found.setdefault(move, []).append(row)
    if not found:
        return prose("In every row all stacks ran the same attention.")
    lines = [
        [since, count(len(moved)), _some(row.model for row in moved), *sides]
        for (since, *sides), moved in found.items()
    ]
    title = titled("Where rows went over to another attention than on the stack before")
    headers = ["since", "rows", "models", "before", "now"]
    return page([title, table(headers, lines, right=("rows",))])


def _some(models: Iterable[str]) -> Markdown:
    names = list(dict.fromkeys(models))
    shown = join(names[:MOST_MODELS])
    rest = len(names) - MOST_MODELS
    return fill("{} and {} more", shown, count(rest)) if rest > 0 else shown


def _moves(row: Row) -> list[tuple[Markdown, ...]]:
    """Return stack, what ran before and what runs now, where that is not the same.

    How the call is written (mask, enable_gqa) moves with most releases, and is no such move.
    """
    ran = [(stack, _kernels(row.ran(stack))) for stack in row.attention]
    observed = [(stack, kernels) for stack, kernels in ran if kernels]
    return [
        (prose(stack), _without(before, now), _without(now, before))
        for (_, before), (stack, now) in pairwise(observed)
        if set(before) != set(now)
    ]


def _kernels(signal: AttentionSignal) -> list[Markdown]:
    facts = (_general(_facts(signal, call)) for calls in signal.calls.values() for call in calls)
    return list(dict.fromkeys(map(_kernel, facts)))


def _kernel(facts: tuple[str, ...]) -> Markdown:
    resolution, function, *_, aten = facts
    return fill("{} by {}: {}", resolution, _fact(function), code(aten))


def _without(these: list[Markdown], others: list[Markdown]) -> Markdown:
    return join((kernel for kernel in these if kernel not in others), "; ")


def _lines(rows: Iterable[Row]) -> list[Ran]:
    return [line for row in rows for stack in row.attention for line in _stack_lines(row, stack)]


def _stack_lines(row: Row, stack: str) -> list[Ran]:
    signal = row.ran(stack)
    start = Ran(
        models=(row.model,),
        variants=(str(row.variant),),
        stacks=(stack,),
        prompts=(),
        layers=(),
        facts=(),
    )
    if not signal.calls:
        return [replace(start, facts=(_resolution(signal), NOT_OBSERVED, "", "", "", ""))]
    return [
        replace(start, prompts=(prompt,), layers=(call.module,), facts=_facts(signal, call))
        for prompt, calls in signal.calls.items()
        for call in calls
    ]


def _resolution(signal: AttentionSignal) -> str:
    """Return what was asked for, and what that became if it became something else."""
    if signal.resolved == signal.requested:
        return signal.requested
    return f"{signal.requested} → {signal.resolved or 'unknown'}"


def _facts(signal: AttentionSignal, call: AttentionCall) -> tuple[str, ...]:
    """Return what makes two calls the same; line numbers move with every release and do not."""
    sdpa = call.sdpa
    arguments = (
        ("", "", "")
        if sdpa is None
        else (str(sdpa.enable_gqa), str(sdpa.is_causal), sdpa.mask or "none")
    )
    function = ".".join(call.function.split(".")[-2:])
    return _resolution(signal), function, *arguments, ", ".join(call.aten)


def _general(facts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the facts without what is one model's own: the names of its classes, its shapes."""
    resolution, function, gqa, causal, mask, aten = facts
    own = "." in function and not function.startswith(SHARED)
    return resolution, OWN if own else function, gqa, causal, _kind_of_mask(mask), aten


def _kind_of_mask(mask: str) -> str:
    dtype = mask.partition("[")[0]
    return "float" if "float" in dtype else dtype


def _joined(lines: Iterable[Ran], field: str) -> list[Ran]:
    """Return the lines with those joined that are equal but for ``field``."""
    groups: dict[Ran, dict[str, None]] = {}
    for line in lines:
        rest = replace(line, **{field: ()})
        groups.setdefault(rest, {}).update(dict.fromkeys(getattr(line, field)))
    return [replace(rest, **{field: tuple(values)}) for rest, values in groups.items()]


def _cells(ran: Ran) -> list[str]:
    return [
        join(ran.variants),
        ", ".join(ran.stacks),
        ", ".join(ran.prompts),
        join(map(code, numbered(ran.layers))),
        *map(_fact, ran.facts),
    ]


def _fact(fact: str) -> Markdown:
    return prose(fact) if fact == OWN or not set(fact) & set("_:[.→") else code(fact)
