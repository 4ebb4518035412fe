"""The precision ladder of one cell: the figures on every rung, and which rule decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.text.blocks import bullets, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import count, number, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.comparison import CellResult
    from samebits.records.ladder import (
        AtRisk,
        Flip,
        Kind,
        Ladder,
        LadderStep,
        Rule,
        Side,
        SplitJudgement,
    )

KINDS: dict[Kind, str] = {
    "same": "the same bits",
    "rounding": "rounding",
    "diverged": "diverged",
    "undecided": "undecided",
}

RULES: dict[Rule, str] = {
    "inputs": "what is fed",
    "stored constant": "the bytes of what is stored",
    "not finite": "NaN and infinities",
    "shape": "the shapes",
    "slope": "the slope from rung to rung",
    "dtype policy": "a cast between dtypes of what is stored, then the slope",
    "self-noise": "each side's own noise, as there is no float64",
    "choice": "what a discrete choice chooses from",
    "tokens": "the margin of the tokens",
    "nothing": "nothing: the ladder cannot tell",
}
"""Rule -> by what it decides."""

SIDES: dict[Side, str] = {"reference": "the reference", "candidate": "this cell"}

NUMBERS = ["own dtype", "float32", "float64", "float64 / float32", "own noise"]
"""Headers of the columns that are set to the right."""


def ladder_of(cell: CellResult) -> Markdown:
    """Return what the ladder says of a cell; nothing if it was not asked."""
    ladder = cell.ladder
    if ladder is None:
        return EMPTY
    return page(
        [
            fill("**{}**, decided by {}: {}.", *_said(ladder)),
            _worse(ladder),
            _steps(cell, ladder),
            _alignment(ladder),
            _tokens(ladder),
            bullets(map(_flip, ladder.flips)),
            bullets(map(prose, ladder.notes)),
        ]
    )


def _said(ladder: Ladder) -> tuple[str, str, str]:
    kind = KINDS[ladder.kind]
    return kind[0].upper() + kind[1:], RULES[ladder.rule], ladder.reason


def _worse(ladder: Ladder) -> Markdown:
    if ladder.worse is None:
        return EMPTY
    if ladder.worse_ratio is None:
        return fill("Less exact is {}: it holds the coarser numbers.", SIDES[ladder.worse])
    return fill(
        "Less exact is {}: where the difference starts it is {} times as far from its own float64 "
        "as the other side from its own.",
        SIDES[ladder.worse],
        f"{ladder.worse_ratio:.3g}",
    )


def _alignment(ladder: Ladder) -> Markdown:
    """Return what copying the tensors that are not aligned changed, unless the reason says it."""
    found = ladder.alignment
    if found is None:
        return EMPTY
    one, other = found.off
    told = fill(
        "Not aligned to 64 bytes in memory: {} of the reference and {} here. ",
        plural(one, "tensor"),
        count(other),
    )
    if found.same is None:
        return fill("{}Whether that matters is not known: {}.", told, found.note)
    came = "the same bytes" if found.same else "other bytes"
    return fill(
        "{}With them copied to where they are, both sides give {} in the {}.",
        told,
        came,
        found.what,
    )


def _steps(cell: CellResult, ladder: Ladder) -> Markdown:
    if not ladder.steps:
        return EMPTY
    noisy = any(step.noise is not None for step in ladder.steps)
    own = cell.cell.variant.dtype
    shown = [name for name in NUMBERS if _is_shown(name, own, noisy=noisy)]
    rows = [_step(step, shown) for step in ladder.steps]
    headers = ["prompt", "tensor", *(own if h == "own dtype" else h for h in shown), "says", "note"]
    title = titled("The precision ladder: largest absolute difference on each rung")
    return page([title, table(headers, rows, right=headers[2:-2])])


def _is_shown(name: str, dtype: str, *, noisy: bool) -> bool:
    if name == "own noise":
        return noisy
    return name != "float32" or dtype != "float32"


def _step(step: LadderStep, shown: list[str]) -> list[str]:
    figures = {
        "own dtype": _size(step.own),
        "float32": _size(step.float32),
        "float64": _size(step.float64),
        "float64 / float32": _size(step.ratio),
        "own noise": _size(step.noise),
    }
    cells = [figures[name] for name in shown]
    return [code(step.prompt), code(step.what), *cells, KINDS[step.kind], step.note]


def _size(value: float | None) -> str:
    return "" if value is None else number(value)


def _tokens(ladder: Ladder) -> Markdown:
    """Return of each split if it is a near-tie, and which steps could part at all."""
    lines = [*map(_split, ladder.splits), *_risks(ladder.at_risk)]
    return page([titled("Tokens"), bullets(lines)]) if lines else EMPTY


def _split(split: SplitJudgement) -> Markdown:
    told = fill("{}, step {}: ", code(split.prompt), str(split.step))
    if split.margin is None or split.drift is None:
        return fill("{}{}", told, split.note)
    words = "a near-tie" if split.near_tie else "no near-tie"
    return fill(
        "{}{}: the margin is {}, and rounding moves a logit by {} there",
        told,
        words,
        number(split.margin),
        number(split.drift),
    )


def _risks(found: tuple[AtRisk, ...]) -> Iterator[Markdown]:
    for risk in found:
        if risk.steps:
            steps = ", ".join(map(str, risk.steps))
            yield fill(
                "{}: rounding can flip {} of {} (margin at most twice the drift): {}",
                code(risk.prompt),
                count(len(risk.steps)),
                plural(risk.n_steps, "step"),
                steps,
            )


def _flip(flip: Flip) -> Markdown:
    parts = [
        fill("{} of {} takes another one", code(flip.choice), code(flip.prompt)),
        fill("at {}", plural(flip.rows, "position")),
        fill("with a margin of at most {}", number(flip.margin)),
    ]
    where = "float64 chooses differently, too" if flip.in_float64 else "float64 chooses alike"
    return fill("{}; {}", join(parts, " "), where)
