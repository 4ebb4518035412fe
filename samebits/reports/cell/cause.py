"""Where a difference starts: both sides side by side, the proof, and what changed in the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.text.blocks import bullets, details, fence, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose

if TYPE_CHECKING:
    from samebits.records.comparison import CellResult
    from samebits.records.trace import Cause, CauseKind, Side, SourceDiff

WORDS: dict[CauseKind, str] = {
    "input": "what is fed",
    "weight": "a weight",
    "buffer": "a buffer",
    "constant": "a constant",
    "mask": "the mask",
    "padding": "what stands in the padding",
    "keys": "which keys attention is given",
    "positions": "positions or indices",
    "argument": "an argument of an operation",
    "kernel": "another attention kernel",
    "precision": "another precision",
    "memory": "where numbers lie in memory",
    "layout": "the same elements in other places",
    "shape": "the same numbers in other shapes",
    "wiring": "another tensor at an input",
    "operation": "another operation",
}


def causes_of(cell: CellResult) -> Markdown:
    """Return where a cell parts from its reference; empty if it was not traced."""
    if cell.cause is None:
        return EMPTY
    cause = cell.cause
    beyond = EMPTY
    if cause.beyond is not None:
        beyond = page([titled("What float64 leaves begins here"), _cause(cause.beyond)])
    return page([_cause(cause), prose(_sentence(cause.float64)), beyond])


def cause_in_short(cell: CellResult) -> str:
    """Return the cause in a few words for a table; '' if there is none."""
    cause = cell.cause
    if cause is None:
        return ""
    told = cause.beyond or cause
    side = told.candidate
    place = side.tensor if side.tensor not in {"", "constant"} else side.function
    return f"{WORDS[told.kind]}: {place}" if place else WORDS[told.kind]


def _cause(cause: Cause) -> Markdown:
    seen = fill(
        "Seen in the {} of prompt {}, on the way to {}.",
        cause.what,
        code(cause.prompt),
        code(cause.sink),
    )
    if cause.what == "load":
        seen = fill("Seen by comparing {}.", code(cause.sink))
    where = fill("**Where it starts** ({}): {}. {}", WORDS[cause.kind], cause.headline, seen)
    evidence = [*cause.evidence, cause.replay]
    also = (
        [titled("Other places on the way that part by themselves"), bullets(map(code, cause.also))]
        if cause.also
        else []
    )
    return page(
        [
            where,
            _sides(cause),
            bullets(prose(line) for line in evidence if line),
            *also,
            *map(_diff, cause.diffs),
        ]
    )


def _sides(cause: Cause) -> Markdown:
    sides = [side for side in (cause.reference, cause.candidate) if side is not None]
    told = [_told(side) for side in sides]
    rows = [
        (title, *(side[title] for side in told))
        for title in told[0]
        if any(side[title] for side in told)
    ]
    return table(("", *(side.stack for side in sides)), rows)


def _told(side: Side) -> dict[str, Markdown]:
    lines = {
        "operation": (f"{side.op}({side.arguments})",) if side.op else (),
        "tensor": (side.tensor,),
        "takes": side.inputs,
        "gives": side.outputs,
        "module": (side.module,),
        "function": (side.function,),
        "source": (side.source,),
        "attention": (side.attention,),
    }
    return {title: join(map(code, filter(None, words))) for title, words in lines.items()}


def _diff(diff: SourceDiff) -> Markdown:
    places = " → ".join(dict.fromkeys((diff.reference, diff.candidate)))
    more = f"\n… {diff.cut:,} more lines" if diff.cut else ""
    title = f"{diff.function} changed ({places})"
    return details(title, fence(f"{diff.diff}{more}", "diff"))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
