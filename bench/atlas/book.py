"""The data of the atlas, ``reports/atlas/compat.json.xz``: the types of all runs, with the borders compared directly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from samebits.records.compat import CompatFile, CompatModel, CompatRange
from samebits.reports.answer.side import NOT_KNOWN
from samebits.reports.packed import compressed, content

PATH = Path(__file__).parents[2] / "reports" / "atlas" / "compat.json.xz"
MORE_THAN_ROUNDING = ("diverged", "undecided")
"""Steps that a direct comparison says more about; an exception names its line by itself."""


class Change(NamedTuple):
    """One step of a model."""

    model: CompatModel
    last: str
    """The last release before it."""
    after: CompatRange
    """The range that it begins."""


def read(path: Path = PATH) -> CompatFile:
    """Return the committed atlas."""
    return CompatFile.model_validate_json(content(path))


def write(atlas: CompatFile, path: Path = PATH) -> None:
    """Write the atlas; equal ones give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compressed(atlas.model_dump_json(exclude_defaults=True)))


def bound(parts: Iterable[CompatFile]) -> CompatFile:
    """Return the models of several runs in the same releases, sorted by name."""
    files = [*parts]
    newest = max(files, key=lambda each: each.started)
    models = sorted((model for each in files for model in each.models), key=lambda m: m.model)
    return newest.model_copy(update={"models": tuple(models)})


def with_models(atlas: CompatFile, measured: CompatFile) -> CompatFile:
    """Return the atlas with models that were measured again in place of its own; it keeps its date.

    Raises:
        ValueError: they were measured in other releases.

    """
    if [r.id for r in measured.releases] != [r.id for r in atlas.releases]:
        raise ValueError("the releases are not those of the atlas")
    names = {model.model for model in measured.models}
    rest = tuple(model for model in atlas.models if model.model not in names)
    both = bound([atlas.model_copy(update={"models": rest}), measured])
    return both.model_copy(update={"started": atlas.started})


def changes(atlas: CompatFile) -> Iterator[Change]:
    """Yield each step of each model."""
    for model in atlas.models:
        for before, after in pairwise(model.ranges):
            yield Change(model, before.last, after)


def borders(atlas: CompatFile) -> dict[tuple[str, str], list[str]]:
    """Return the neighbouring releases to compare directly, the oldest first, each with the models that change there."""
    models: dict[tuple[str, str], list[str]] = {}
    for model, last, after in changes(atlas):
        if after.step in MORE_THAN_ROUNDING or _was_border(model, last, after):
            models.setdefault((last, after.first), []).append(model.model)
    places = {release.id: place for place, release in enumerate(atlas.releases)}
    return dict(sorted(models.items(), key=lambda item: places[item[0][1]]))


def _was_border(model: CompatModel, last: str, after: CompatRange) -> bool:
    """Return True if only a comparison of a border can have shown a step: of two releases, none the reference."""
    reference = next(each.first for each in model.ranges if each.state != "absent")
    return after.step == "rounding" and after.direct and last != reference


def with_borders(atlas: CompatFile, compared: Iterable[CompatFile]) -> CompatFile:
    """Return the atlas in which each step has what a direct comparison of its two releases shows."""
    direct = {
        (model.model, last, after.first): after
        for each in compared
        for model, last, after in changes(each)
    }
    models = []
    for model in atlas.models:
        ranges = [*model.ranges[:1]]
        for before, after in pairwise(model.ranges):
            border = direct.get((model.model, before.last, after.first))
            ranges.append(after if border is None else _with_step(after, border))
        models.append(model.model_copy(update={"ranges": tuple(ranges)}))
    return atlas.model_copy(update={"models": tuple(models)})


def with_returns(atlas: CompatFile) -> CompatFile:
    """Return the atlas in which a step of no known side says if one of its sides comes back later, or is back.

    That proves nothing: a repair and a regression that came back look alike. Bits that a release left which is known
    to be wrong are right when they return.
    """
    models = []
    for model in atlas.models:
        ranges = tuple(_with_return(model.ranges, place) for place in range(len(model.ranges)))
        models.append(model.model_copy(update={"ranges": ranges}))
    return atlas.model_copy(update={"models": tuple(models)})


def _with_return(ranges: Sequence[CompatRange], place: int) -> CompatRange:
    after = ranges[place]
    if after.step not in MORE_THAN_ROUNDING or not after.side.startswith(NOT_KNOWN):
        return after
    update = _repair(ranges, place) or {"side": _return(ranges, place) or after.side}
    return after.model_copy(update=update)


def _repair(ranges: Sequence[CompatRange], place: int) -> dict[str, str]:
    """Return side and remedy of a step back to the bits that a wrong release left; empty for any other step."""
    if place < 2:
        return {}
    earlier, left, after = ranges[place - 2 : place + 1]
    is_wrong = left.side.startswith(f"{left.first} is wrong")
    if not is_wrong or not after.bits or after.bits != earlier.bits:
        return {}
    return {"side": left.side, "do": f"Use transformers {after.first}"}


def _return(ranges: Sequence[CompatRange], place: int) -> str:
    """Return which release has bits again that a step leaves or comes to; '' if none has."""
    left, after = ranges[place - 1], ranges[place]
    back = next((each for each in ranges[place + 1 :] if each.bits == left.bits), None)
    if back is not None:
        return f"not proven, but {back.first} has the bits of {left.last} again"
    old = next((each for each in ranges[: place - 1] if each.bits == after.bits), None)
    return "" if old is None else f"not proven, but {after.first} has the bits of {old.last} again"


def _with_step(after: CompatRange, border: CompatRange) -> CompatRange:
    """Return a range with the step of a direct comparison; what it is in all releases stays."""
    fields = ("step", "direct", "what", "where", "side", "do", "findings")
    return after.model_copy(update={name: getattr(border, name) for name in fields})
