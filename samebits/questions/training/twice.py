"""Training of cells as they are, and in float64, too, where a pair differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from samebits.questions.question import Run
from samebits.questions.training.judge import Compared, Trained, needs_values
from samebits.records.ids import CellId

T = TypeVar("T", bound=Trained)
C = TypeVar("C", bound=Compared)


class Train(Protocol[T]):
    """Trains cells side by side."""

    async def __call__(
        self, cells: Sequence[CellId], *, values: bool = False, again: bool = False
    ) -> dict[CellId, T]:
        """Return what they leave; with ``values`` in float64, too.

        ``again`` is set where the same cells ran before without float64.
        """


def pairs_of(run: Run, cells: Collection[CellId]) -> dict[CellId, CellId]:
    """Return cell -> its reference, for the cells whose reference is another one of them."""
    references = ((cell, run.results[cell].reference) for cell in cells)
    return {
        cell: ref for cell, ref in references if ref is not None and ref in cells and ref != cell
    }


async def trained(
    cells: Sequence[CellId],
    pairs: Mapping[CellId, CellId],
    differs: Callable[[CellId], bool],
    train: Train[T],
    compare: Callable[[T, T], C],
) -> tuple[dict[CellId, T], dict[CellId, C]]:
    """Return what cells leave at first, and how pairs compare by what they leave at last.

    Pairs that differ are compared in float64, too: at once where it is known before, else in a
    second run. A run in float64 may end the process, such as by its memory; then the cell runs
    without it.
    """
    differing = _sides({c: r for c, r in pairs.items() if differs(c)})
    files = await train(differing, values=True)
    lost = [cell for cell, file in files.items() if file.failure is not None]
    files |= await train([cell for cell in cells if cell not in differing or cell in lost])
    comparisons = {c: compare(files[r], files[c]) for c, r in pairs.items()}
    still = {c: r for c, r in pairs.items() if needs_values(comparisons[c])}
    # whether or not float64 worked
    without = [c for c in _sides(still) if files[c].float64 is None and not files[c].no_float64]
    values = await train(without, values=True, again=True)
    last = files | {cell: file for cell, file in values.items() if file.own is not None}
    return files, comparisons | {c: compare(last[r], last[c]) for c, r in still.items()}


def _sides(pairs: Mapping[CellId, CellId]) -> list[CellId]:
    """Return the references and the candidates of pairs, each once."""
    return list(dict.fromkeys((*pairs.values(), *pairs)))
