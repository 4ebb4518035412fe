"""Which pieces of the reference restore its bits in a cell, and every set that was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.describe import short
from samebits.records.ids import Verdict
from samebits.text.blocks import bullets, details, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose

if TYPE_CHECKING:
    from samebits.records.comparison import CellResult
    from samebits.records.graft import Graft, Try

MAX_SETS = 24
"""Limit for the sets in the table; sets that restore the bits always have a row."""


def grafts_of(cell: CellResult) -> Markdown:
    """Return what swapping pieces shows for a cell; empty if no piece was swapped."""
    if cell.graft is None:
        return EMPTY
    graft = cell.graft
    agreeing = [more for more in graft.more if _agrees(graft, more)]
    differing = [more for more in graft.more if not _agrees(graft, more)]
    agreeing_places = join((_where(more) for more in agreeing), "; ")
    return page(
        [
            fill("**What restores the bits:** {}{}.", graft.headline, _which_run(cell)),
            fill("The same swap restores the bits in {}.", agreeing_places) if agreeing else EMPTY,
            fill("Each of these alone also restores them: {}.", join(map(code, graft.others)))
            if graft.others
            else EMPTY,
            bullets(
                [
                    *(prose(more.headline) for more in differing),
                    *(prose(reason) for reason in graft.unasked),
                ]
            ),
            *(_folded(shown) for shown in (graft, *differing)),
        ]
    )


def graft_in_short(cell: CellResult) -> str:
    """Return what restores the bits, in a few words for a list; '' if it is unknown."""
    graft = cell.graft
    if graft is None or graft.proof not in _CONCLUSIVE:
        return ""
    only = "only " if graft.proof in {"alone", "smallest"} else ""
    everywhere = not graft.unasked and all(_agrees(graft, more) for more in graft.more)
    where = "" if everywhere else f" of the {graft.what} of {graft.prompt}"
    run = " of run a" if cell.judged is Verdict.UNSTABLE else ""
    return f"swapping {only}{' and '.join(graft.smallest)} restores the bits{where}{run}"


def _which_run(cell: CellResult) -> str:
    """Return for which run it holds, if the two runs of a cell do not agree."""
    if cell.judged is not Verdict.UNSTABLE:
        return ""
    return "; tried with the memory contents of run a, which are different in run b"


_CONCLUSIVE = frozenset({"alone", "smallest", "irreducible"})


def _agrees(graft: Graft, more: Graft) -> bool:
    return graft.proof in _CONCLUSIVE and more.smallest == graft.smallest


def _where(graft: Graft) -> Markdown:
    n_outputs = graft.tried[0].of if graft.tried else 0
    return fill(
        "the {} of {} ({} of {})",
        graft.what,
        code(graft.prompt),
        f"{n_outputs:,}",
        f"{n_outputs:,}",
    )


def _folded(graft: Graft) -> Markdown:
    n = len(graft.tried) - 1
    outputs = f"the {graft.what} of {graft.prompt}"
    title = f"Pieces of the reference put into {outputs}: {n:,} set{'s' * (n != 1)} tried"
    blocks = page([_suspects(graft), _tried(graft), _untried(graft)])
    return details(title, blocks) if blocks else EMPTY


def _suspects(graft: Graft) -> Markdown:
    rows = [(code(s.name), prose(s.kind), prose(s.what)) for s in graft.suspects]
    return table(("suspect", "kind", "what it is"), rows) if rows else EMPTY


def _tried(graft: Graft) -> Markdown:
    restoring = [run for run in graft.tried if run.restores]
    failing = [run for run in graft.tried if not run.restores]
    shown = [*failing[: MAX_SETS - len(restoring)], *restoring]
    rows = [
        (
            join(map(code, run.suspects)) if run.suspects else prose("nothing"),
            prose("restores" if run.restores else ""),
            prose(f"{run.same:,} of {run.of:,}"),
            prose(_remaining(run)),
        )
        for run in shown
    ]
    if not rows:
        return EMPTY
    set_table = table(
        ("put in", "verdict", "outputs with the reference's bytes", "remaining difference"), rows
    )
    n_hidden = len(graft.tried) - len(shown)
    more = fill("{} more sets do not restore the bits.", f"{n_hidden:,}") if n_hidden > 0 else EMPTY
    return page([set_table, more])


def _remaining(run: Try) -> str:
    if run.error:
        return f"could not be run: {run.error}"
    parts = [f"first {run.first}"] if run.first else []
    if run.first and run.max_abs is not None:
        parts.append(f"logits {short(run.max_abs)} apart")
    if run.idle:
        parts.append(f"{', '.join(run.idle)}: not reached by the forward")
    return "; ".join(parts)


def _untried(graft: Graft) -> Markdown:
    if not graft.untried:
        return EMPTY
    lines = bullets(fill("{}: {}", u.what, u.reason) for u in graft.untried)
    return page([prose("Not tried:"), lines])
