"""What cells cost that can be told before they run: forwards, and bytes of checkpoints to read.

Both are ranges. A prompt may not apply to a model, a decoding may end early, and an observation
that would take too much time or memory is left out. What only follows from a difference is not
included: second looks, the precision ladder, causes, grafts, capsules; nor are crossings and training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import Level

_FIRST_TOKEN = 2
_SHORT_STEPS = 2
_RELATIONS = 1050
"""Largest number of forwards of the relations, each in float64 counted as three plain ones."""
_SWEEP = 8
"""How many times more a sweep of all shapes takes."""
_USAGE = 60
_ROUND_TRIP = 4


class Range(NamedTuple):
    """The least and the most of something."""

    least: int
    most: int

    def __add__(self, more: object) -> Range:
        """Return the range of the sum."""
        assert isinstance(more, Range)
        return Range(self.least + more.least, self.most + more.most)

    def times(self, number: int) -> Range:
        """Return the range of a multiple."""
        return Range(self.least * number, self.most * number)


_CHECKED = Range(2, 5)
"""Forwards of a prompt in run a: watched, and plainly as a check. Where the check fails, three more: with
its layers watched, without, with its attention watched."""


class PricedCell(NamedTuple):
    """A cell that is to run."""

    model: ModelSpec
    size: int | None
    """Bytes of its checkpoint; None if they are not known yet."""
    usage: bool
    """Whether common uses are tried in it."""


def forwards(model: ModelSpec, *, usage: bool, sweep: bool = False) -> Range:
    """Return the number of forwards of both runs of a cell, those in generate() included."""
    prompts, steps = len(model.prompts), model.greedy
    total = Range(_CHECKED.least, _CHECKED.most * prompts)
    total += Range(0, (steps + _FIRST_TOKEN if steps else 0) * prompts)
    if model.second_in_full:
        total += Range(2, (2 + steps) * prompts)
    else:
        total += Range(1, (1 + min(_SHORT_STEPS, steps)) * prompts)
    if model.reloads:
        total += Range(0, prompts + _ROUND_TRIP)
    if model.relations:
        total += Range(0, _RELATIONS * (_SWEEP if sweep else 1) + 2 * model.samples)
    return total + Range(0, _USAGE if usage else 0)


def reads(model: ModelSpec, *, usage: bool) -> Range:
    """Return how many times both runs of a cell read its checkpoint."""
    total = Range(2, 3)  # the load, the origin of the tensors, and a load with another seed
    total += Range(2, 3) if model.second_in_full else Range(1, 1)
    if model.reloads:
        total += Range(0, 5)
    if model.relations:
        total += Range(0, 1)
    return total + Range(0, 2 if usage else 0)


def described(cells: Iterable[PricedCell], level: Level, *, sweep: bool = False) -> str:
    """Return the price of cells in one line; '' if there is none to run."""
    cells = list(cells)
    if not cells:
        return ""
    n_forwards, n_bytes, unknown = Range(0, 0), Range(0, 0), set()
    for model, size, usage in cells:
        n_forwards += forwards(model, usage=usage, sweep=sweep)
        if size is None:
            unknown.add(model.name)
            continue
        n_bytes += reads(model, usage=usage).times(size)
    option = "" if level == "default" else f" with --{level}"
    read = f"{_shown_range(n_bytes)} of checkpoints to read" if n_bytes.most else ""
    without = f"{plural(len(unknown), 'checkpoint')} of unknown size" if unknown else ""
    files = " and ".join(filter(None, (read, without)))
    return (
        f"{plural(len(cells), 'new cell')}{option}: {n_forwards.least:,} to {n_forwards.most:,} "
        f"forwards, {files}; crossings, training and differences add to it"
    )


def _shown_range(size: Range) -> str:
    least, most = (f"{n / 1e9:.1f}" if n >= 1e8 else f"{n / 1e9:.2g}" for n in size)
    return f"{least} GB" if least == most else f"{least} to {most} GB"
