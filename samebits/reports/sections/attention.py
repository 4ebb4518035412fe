"""Attention: what was requested, resolved and ran, over all models and for the page of one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from samebits.records.capture import AttentionCall, AttentionSignal
from samebits.records.report import Report, Row
from samebits.text.blocks import below, first_of, folded, heading, page, table, titled
from samebits.text.lists import joined
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import count, plural

FACT_HEADERS = ["attention", "function", "enable_gqa", "is_causal", "mask", "ATen kernel"]

NOT_OBSERVED = "not observed"

SHARED_PREFIX = "integrations."
"""Prefix of the names of functions that all models share; the module is part of the name."""

MODEL_FUNCTION = "the model's own"
"""Shown instead of any function of a model that is not from transformers.integrations."""

MAX_MODELS = 6
"""Limit for the models that a line of report.md names."""


@dataclass(frozen=True, kw_only=True)
class AttentionLine:
    """Facts about attention, with everything for which exactly these facts hold."""

    models: tuple[str, ...]
    variants: tuple[str, ...]
    stacks: tuple[str, ...]
    prompts: tuple[str, ...]
    layers: tuple[str, ...]
    facts: tuple[str, ...]
    """Values for the columns :data:`FACT_HEADERS`."""


def attention_kernels(report: Report) -> Markdown:
    """Return where the kernel changed from the stack before, and all kernels that ran."""
    rows = [row for row in report.rows if row.attention]
    if not rows:
        return EMPTY
    order = [stack.id for stack in report.stacks]
    return page([heading(2, "Attention kernels"), _moves_table(rows), _all_runs(rows, order)])


def kernels_of(rows: list[Row]) -> Markdown:
    """Return what ran in the rows of one model, per stack, prompt and layer, for its own page."""
    lines = joined(_lines(rows), "layers", "prompts", "stacks", "variants")
    headers = ["variant", "environments", "prompts", "layers", *FACT_HEADERS]
    return below(heading(2, "Attention kernels"), table(headers, map(_cells, lines)))


def has_changed(rows: Iterable[Row]) -> bool:
    """Return True if a row has different attention on two of its stacks."""
    return any(_moves(row) for row in rows)


def _all_runs(rows: list[Row], order: list[str]) -> Markdown:
    """Return one line for each set of facts, those of the most rows first."""
    by_facts: dict[tuple[str, ...], list[tuple[Row, str]]] = {}
    for row in rows:
        for stack in row.attention:
            for facts in {_generalised(line.facts): None for line in _stack_lines(row, stack)}:
                by_facts.setdefault(facts, []).append((row, stack))
    lines = [_run_line(facts, places, order) for facts, places in by_facts.items()]
    lines.sort(key=lambda line: -int(line[0]))
    run_table = table(["rows", "models", "environments", *FACT_HEADERS], lines, right=("rows",))
    return folded(
        plural(len(lines), "way in which attention was run", "ways in which attention was run"),
        run_table,
        40,
    )


def _run_line(facts: tuple[str, ...], places: list[tuple[Row, str]], order: list[str]) -> list[str]:
    n_rows = len({(row.model, row.variant) for row, _ in places})
    with_these_facts = {stack for _, stack in places}
    stacks = ", ".join(stack for stack in order if stack in with_these_facts)
    return [str(n_rows), _model_names(row.model for row, _ in places), stacks, *map(_fact, facts)]


def _moves_table(rows: list[Row]) -> Markdown:
    """Return the kernels before and after each change, and the stack where it happened."""
    by_move: dict[tuple[Markdown, ...], list[Row]] = {}
    for row in rows:
        for move in _moves(row):
            by_move.setdefault(move, []).append(row)
    if not by_move:
        return prose("In every row, all environments used the same attention kernels.")
    lines = [
        [since, count(len(moved_rows)), _model_names(row.model for row in moved_rows), *sides]
        for (since, *sides), moved_rows in by_move.items()
    ]
    title = titled("Where the attention kernel changed from one environment to the next")
    headers = ["since", "rows", "models", "before", "now"]
    return page([title, table(headers, lines, right=("rows",))])


def _model_names(models: Iterable[str]) -> Markdown:
    return first_of(list(dict.fromkeys(models)), MAX_MODELS)


def _moves(row: Row) -> list[tuple[Markdown, ...]]:
    """Return stack, kernels before and kernels now, where they differ.

    The way a call is written (mask, enable_gqa) changes with most releases and is not counted.
    """
    kernels_by_stack = [(stack, _kernels(row.ran(stack))) for stack in row.attention]
    observed = [(stack, kernels) for stack, kernels in kernels_by_stack if kernels]
    return [
        (prose(stack), _without(before, now), _without(now, before))
        for (_, before), (stack, now) in pairwise(observed)
        if set(before) != set(now)
    ]


def _kernels(signal: AttentionSignal) -> list[Markdown]:
    facts = (
        _generalised(_facts(signal, call)) for calls in signal.calls.values() for call in calls
    )
    return list(dict.fromkeys(map(_kernel, facts)))


def _kernel(facts: tuple[str, ...]) -> Markdown:
    resolution, function, *_, aten = facts
    return fill("{} by {}: {}", resolution, _fact(function), code(aten))


def _without(kernels: list[Markdown], excluded: list[Markdown]) -> Markdown:
    return join((kernel for kernel in kernels if kernel not in excluded), "; ")


def _lines(rows: Iterable[Row]) -> list[AttentionLine]:
    return [line for row in rows for stack in row.attention for line in _stack_lines(row, stack)]


def _stack_lines(row: Row, stack: str) -> list[AttentionLine]:
    signal = row.ran(stack)
    template = AttentionLine(
        models=(row.model,),
        variants=(str(row.variant),),
        stacks=(stack,),
        prompts=(),
        layers=(),
        facts=(),
    )
    if not signal.calls:
        return [replace(template, facts=(_resolution(signal), NOT_OBSERVED, "", "", "", ""))]
    return [
        replace(template, prompts=(prompt,), layers=(call.module,), facts=_facts(signal, call))
        for prompt, calls in signal.calls.items()
        for call in calls
    ]


def _resolution(signal: AttentionSignal) -> str:
    """Return what was requested, and what it resolved to if that is different."""
    if signal.resolved == signal.requested:
        return signal.requested
    return f"{signal.requested} → {signal.resolved or 'unknown'}"


def _facts(signal: AttentionSignal, call: AttentionCall) -> tuple[str, ...]:
    """Return what makes two calls equal: no line numbers, because every release changes them."""
    sdpa = call.sdpa
    arguments = (
        ("", "", "")
        if sdpa is None
        else (str(sdpa.enable_gqa), str(sdpa.is_causal), sdpa.mask or "none")
    )
    function = ".".join(call.function.split(".")[-2:])
    return _resolution(signal), function, *arguments, ", ".join(call.aten)


def _generalised(facts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the facts without what is specific to a model: names of its classes, its shapes."""
    resolution, function, gqa, causal, mask, aten = facts
    is_model_function = "." in function and not function.startswith(SHARED_PREFIX)
    return (
        resolution,
        MODEL_FUNCTION if is_model_function else function,
        gqa,
        causal,
        _kind_of_mask(mask),
        aten,
    )


def _kind_of_mask(mask: str) -> str:
    dtype = mask.partition("[")[0]
    return "float" if "float" in dtype else dtype


def _cells(line: AttentionLine) -> list[str]:
    return [
        join(line.variants),
        ", ".join(line.stacks),
        ", ".join(line.prompts),
        join(map(code, numbered(line.layers))),
        *map(_fact, line.facts),
    ]


def _fact(fact: str) -> Markdown:
    return prose(fact) if fact == MODEL_FUNCTION or not set(fact) & set("_:[.→") else code(fact)
