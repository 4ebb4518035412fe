"""The precision ladder of one cell: the figures on every rung, and the rule that decided."""

from __future__ import annotations

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
from samebits.text.blocks import below, bullets, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import count, number, plural

KIND_WORDS: dict[Kind, str] = {
    "same": "the same bits",
    "rounding": "rounding",
    "diverged": "diverged",
    "undecided": "undecided",
}

RULE_WORDS: dict[Rule, str] = {
    "inputs": "the inputs",
    "stored constant": "the bytes of stored tensors",
    "not finite": "NaN and infinities",
    "shape": "the shapes",
    "slope": "the change from one precision to the next",
    "dtype policy": "a cast of stored tensors between dtypes, then the change with precision",
    "self-noise": "the noise of each side, because there is no float64",
    "choice": "the scores of a discrete choice",
    "missing output": "the names of the outputs",
    "state": "a forward that depends on those before it",
    "tokens": "the margin of the tokens",
    "probe": "what a probe of one's own returned",
    "nothing": "nothing: the float64 check is inconclusive",
}
"""Rule -> what it decides by."""

SIDE_WORDS: dict[Side, str] = {"reference": "the reference", "candidate": "this cell"}

NUMBER_HEADERS = ["own dtype", "float32", "float64", "float64 / float32", "own noise"]
"""Headers of the right-aligned columns."""


def ladder_of(cell: CellResult) -> Markdown:
    """Return the result of the ladder for a cell; empty if the ladder did not run."""
    ladder = cell.ladder
    if ladder is None:
        return EMPTY
    return page(
        [
            fill("**{}**, decided by {}: {}.", *_judgement(ladder)),
            _worse(ladder),
            _steps(cell, ladder.steps),
            _alignment(ladder),
            _tokens(ladder),
            bullets(map(_flip, ladder.flips)),
            bullets(map(prose, ladder.notes)),
        ]
    )


def _judgement(ladder: Ladder) -> tuple[str, str, str]:
    kind = KIND_WORDS[ladder.kind]
    return kind[0].upper() + kind[1:], RULE_WORDS[ladder.rule], ladder.reason


def _worse(ladder: Ladder) -> Markdown:
    if ladder.worse is None:
        return EMPTY
    if ladder.worse_ratio is None:
        return fill(
            "The less exact side is {}: it holds the coarser numbers.", SIDE_WORDS[ladder.worse]
        )
    return fill(
        "The less exact side is {}: where the difference starts, it is {} times as far from its "
        "own float64 result as the other side is from its own.",
        SIDE_WORDS[ladder.worse],
        f"{ladder.worse_ratio:.3g}",
    )


def _alignment(ladder: Ladder) -> Markdown:
    """Return what copying the unaligned tensors changed, unless the reason already gives it."""
    alignment = ladder.alignment
    if alignment is None:
        return EMPTY
    n_reference, n_candidate = alignment.off
    intro = fill(
        "Not aligned to 64 bytes in memory: {} of the reference and {} of this cell. ",
        plural(n_reference, "tensor"),
        count(n_candidate),
    )
    if alignment.same is None:
        return fill("{}It is not known whether this matters: {}.", intro, alignment.note)
    result = "the same bytes" if alignment.same else "different bytes"
    return fill(
        "{}With aligned copies of them, both sides give {} in the {}.",
        intro,
        result,
        alignment.what,
    )


def informing_steps_of(cell: CellResult) -> Markdown:
    """Return the tensors of the user's probes that only inform, on the ladder."""
    return _steps(cell, cell.informing_steps)


def _steps(cell: CellResult, steps: tuple[LadderStep, ...]) -> Markdown:
    if not steps:
        return EMPTY
    noisy = any(step.noise is not None for step in steps)
    own_dtype = cell.cell.variant.dtype
    columns = [name for name in NUMBER_HEADERS if _is_shown(name, own_dtype, noisy=noisy)]
    rows = [_step(step, columns) for step in steps]
    headers = [
        "prompt",
        "tensor",
        *(own_dtype if column == "own dtype" else column for column in columns),
        "result",
        "note",
    ]
    title = titled("Float64 check: largest absolute difference at each precision")
    return page([title, table(headers, rows, right=headers[2:-2])])


def _is_shown(name: str, dtype: str, *, noisy: bool) -> bool:
    if name == "own noise":
        return noisy
    return name != "float32" or dtype != "float32"


def _step(step: LadderStep, columns: list[str]) -> list[str]:
    figures = {
        "own dtype": _size(step.own),
        "float32": _size(step.float32),
        "float64": _size(step.float64),
        "float64 / float32": _size(step.ratio),
        "own noise": _size(step.noise),
    }
    cells = [figures[name] for name in columns]
    return [
        code(step.prompt or step.signal),
        code(step.what),
        *cells,
        KIND_WORDS[step.kind],
        step.note,
    ]


def _size(value: float | None) -> str:
    return "" if value is None else number(value)


def _tokens(ladder: Ladder) -> Markdown:
    """Return for each split whether it is a near-tie, and which steps rounding could flip."""
    lines = [*map(_split, ladder.splits), *_risks(ladder.at_risk)]
    return below(titled("Tokens"), bullets(lines))


def _split(split: SplitJudgement) -> Markdown:
    place = fill("{}, step {}: ", code(split.prompt), str(split.step))
    if split.margin is None or split.drift is None:
        return fill("{}{}", place, split.note)
    verdict = "a near-tie" if split.near_tie else "not a near-tie"
    return fill(
        "{}{}: the margin is {}, and rounding moves a logit by {} there",
        place,
        verdict,
        number(split.margin),
        number(split.drift),
    )


def _risks(risks: tuple[AtRisk, ...]) -> Iterator[Markdown]:
    for risk in risks:
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
        fill("{} of {} chooses differently", code(flip.choice), code(flip.prompt)),
        fill("at {}", plural(flip.rows, "position")),
        fill("with a margin of at most {}", number(flip.margin)),
    ]
    float64_choice = (
        "float64 also chooses differently" if flip.in_float64 else "in float64 the choices agree"
    )
    return fill("{}; {}", join(parts, " "), float64_choice)
