"""Where a difference starts: both sides next to each other, the proof, and the source's changes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from samebits.records.comparison import CellResult
from samebits.records.trace import Cause, CauseKind, Side, SourceDiff
from samebits.text.blocks import bullets, codes, details, fence, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose

MAX_DIFFS = 1
"""Limit for the functions whose change is shown; report.json has them all."""
MAX_DIFF_LINES = 40

KIND_WORDS: dict[CauseKind, str] = {
    "input": "an input of the model",
    "weight": "a weight",
    "buffer": "a buffer",
    "constant": "a constant",
    "mask": "the mask",
    "padding": "the contents of padding",
    "keys": "the keys that attention is given",
    "positions": "positions or indices",
    "argument": "an argument of an operation",
    "kernel": "a different attention kernel",
    "precision": "a different precision",
    "memory": "the place of tensors in memory",
    "layout": "the same elements in different places",
    "shape": "the same numbers in different shapes",
    "wiring": "a different tensor as input",
    "operation": "a different operation",
}


_CAST = re.compile(r"the (?:reference|candidate) casts \w+ to \w+(?= first$)")


def kind_words(cause: Cause) -> str:
    """Return the kind of a cause; of a cast, which side casts from what to what."""
    lines = cause.evidence if cause.kind == "precision" else ()
    cast = next(filter(None, map(_CAST.search, lines)), None)
    return KIND_WORDS[cause.kind] if cast is None else f"a cast: {cast[0]}"


def causes_of(cell: CellResult, *, diffs: bool = True) -> Markdown:
    """Return where a cell starts to differ from its reference; empty if it was not traced.

    Without ``diffs`` the changes of source are left out, for a page that shows them in another way.
    """
    if cell.cause is None:
        return EMPTY
    cause = cell.cause
    beyond = EMPTY
    if cause.beyond is not None:
        beyond = page(
            [
                titled("Where the part that float64 does not remove starts"),
                _cause(cause.beyond, diffs=diffs),
            ]
        )
    return page([_cause(cause, diffs=diffs), prose(_sentence(cause.float64)), beyond])


def shown_cause(cell: CellResult) -> Cause | None:
    """Return the one cause to name: of what decides if there is one, and of more than rounding.

    A place in memory only rounds, so it is none of a difference that float64 leaves, where the trace shows another one.
    """
    both = [cause for cause in (cell.cause and cell.cause.beyond, cell.cause) if cause]
    causes = [cause for cause in both if cause.kind != "memory"] or both
    return next((cause for cause in causes if cause.decides), causes[0] if causes else None)


def cause_in_short(cell: CellResult, subject: str = "") -> str:
    """Return where a cell starts to differ, in a few words for a list; '' without a cause.

    ``subject`` stands before it, unless it is the cause of another difference.
    """
    cause = shown_cause(cell)
    if cause is None:
        return ""
    side = cause.candidate
    location = side.tensor if side.tensor not in {"", "constant"} else side.function
    words = f"{kind_words(cause)}: {location}" if location else kind_words(cause)
    subject = subject if cause.decides else f"another difference, {place(cause)}, "
    return f"{subject}starts with {words}"


def place(cause: Cause) -> str:
    """Return where a cause was seen."""
    return "of what is loaded" if cause.what == "load" else f"of the {cause.what} of {cause.prompt}"


def _cause(cause: Cause, *, diffs: bool) -> Markdown:
    context = fill(
        "Seen in the {} of prompt {}, on the path to {}.",
        cause.what,
        code(cause.prompt),
        code(cause.sink),
    )
    if cause.what == "load":
        context = fill("Seen by comparing {}.", code(cause.sink))
    start = fill(
        "**Where {} starts** ({}): {}. {}{}",
        "it" if cause.decides else "another difference",
        kind_words(cause),
        cause.headline,
        context,
        "" if cause.decides else Markdown(" It does not decide the verdict."),
    )
    evidence = [*cause.evidence, cause.replay]
    changed = cause.diffs if diffs else ()
    other_places = (
        [
            titled("Other independent points of divergence before this layer"),
            bullets(map(code, cause.also)),
        ]
        if cause.also
        else []
    )
    return page(
        [
            start,
            _sides(cause),
            bullets(prose(line) for line in evidence if line),
            *other_places,
            *map(_diff, changed[:MAX_DIFFS]),
            _other_diffs(changed[MAX_DIFFS:]),
        ]
    )


def _sides(cause: Cause) -> Markdown:
    sides = [side for side in (cause.reference, cause.candidate) if side is not None]
    columns = [_side_lines(side) for side in sides]
    rows = [
        (fill("{} (differs)", title) if len(set(values)) > 1 else prose(title), *values)
        for title in columns[0]
        if any(values := [side[title] for side in columns])
    ]
    return table(("", *(side.stack for side in sides)), rows)


def _side_lines(side: Side) -> dict[str, Markdown]:
    values = {
        "operation": (f"{side.op}({side.arguments})",) if side.op else (),
        "tensor": (side.tensor,),
        "takes": side.inputs,
        "gives": side.outputs,
        "module": (side.module,),
        "function": (side.function,),
        "source": (side.source,),
        "attention": (side.attention,),
    }
    return {title: join(map(code, filter(None, parts))) for title, parts in values.items()}


def _other_diffs(diffs: Sequence[SourceDiff]) -> Markdown:
    names = codes(diff.function for diff in diffs)
    return (
        fill("Changed before it, too: {} (report.json has the changes).", names) if diffs else EMPTY
    )


def _diff(diff: SourceDiff) -> Markdown:
    places = " → ".join(dict.fromkeys((diff.reference, diff.candidate)))
    lines = diff.diff.splitlines()
    n_cut = diff.cut + max(0, len(lines) - MAX_DIFF_LINES)
    cut_note = f"\n… {n_cut:,} more lines" if n_cut else ""
    title = f"{diff.function} changed ({places})"
    return details(title, fence("\n".join(lines[:MAX_DIFF_LINES]) + cut_note, "diff"))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
