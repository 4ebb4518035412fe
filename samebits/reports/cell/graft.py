"""Which pieces of the reference restore its bits in a cell, and how many sets were tried."""

from __future__ import annotations

from samebits.records.comparison import CellResult
from samebits.records.graft import Graft
from samebits.records.ids import Verdict
from samebits.text.blocks import bullets, page
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import plural


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
            fill(
                "**What restores {}:** {}{}.",
                "the bits"
                if graft.decides
                else "another difference, which does not decide the verdict",
                graft.headline,
                _which_run(cell),
            ),
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
            *(_sets(shown) for shown in (graft, *differing)),
        ]
    )


def graft_in_short(cell: CellResult, named: str = "") -> str:
    """Return what restores the bits, in a few words for a list; '' if it is unknown.

    ``named`` is the tensor that is named before these words.
    """
    graft = cell.graft
    if graft is None or graft.proof not in _CONCLUSIVE:
        return ""
    only = "only " if graft.proof in {"alone", "smallest"} else ""
    everywhere = not graft.unasked and all(_agrees(graft, more) for more in graft.more)
    where = "" if everywhere and graft.decides else f" of the {graft.what} of {graft.prompt}"
    run = " of run a" if cell.judged is Verdict.UNSTABLE else ""
    aside = "" if graft.decides else ", which does not decide"
    swapped = f"{only}{' and '.join(graft.smallest)}"
    what = "it alone" if only and graft.smallest == (named,) else swapped
    return f"swapping {what} restores the bits{where}{run}{aside}"


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


def _sets(graft: Graft) -> Markdown:
    """Return how many sets of pieces were tried; report.json has each with its result."""
    n = len(graft.tried) - 1
    if n < 1:
        return EMPTY
    outputs = f"the {graft.what} of {graft.prompt}"
    return fill(
        "{} of the reference tried in {}.", plural(n, "set of pieces", "sets of pieces"), outputs
    )
