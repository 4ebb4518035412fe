"""What a night changes: which causes are new, which are gone, and which only have other models."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.base.digests import digest_of
from samebits.watch.records import Known, WatchFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.watch.causes import Group, Night

WATCH = "watch"
"""Id of the one issue about the watch itself."""
_DIGITS = 12


class Changes(NamedTuple):
    """What is to be done after a night."""

    opens: tuple[tuple[Known, Group | None], ...]
    """New causes with their cells; None: the watch itself could not look."""
    edits: tuple[tuple[Known, Group | None], ...]
    """Causes whose models or signs are others now."""
    closes: tuple[Known, ...]
    after: WatchFile
    """What is open then; new causes have no number yet."""


def changes(before: WatchFile, night: Night) -> Changes:
    """Return what a night changes.

    A cause is the known one if they have a sign in common. It is gone if each of its models was looked at and shows
    nothing that could hide it: a model that raises elsewhere, or that differs elsewhere first, proves nothing.
    """
    left = list(night.groups)
    opens: list[tuple[Known, Group | None]] = []
    edits: list[tuple[Known, Group | None]] = []
    closes: list[Known] = []
    kept: list[Known] = []
    for known in before.causes:
        if known.id == WATCH:
            continue
        met = [g for g in night.groups if g.kind == known.kind and set(g.signs) & set(known.signs)]
        left = [group for group in left if group not in met]
        if known.decided:
            kept.append(known)
        elif met:
            now = _seen_again(known, met, night)
            edits += [(now, _joined(met))] if now != known else []
            kept.append(now)
        elif _is_gone(known, night):
            closes.append(known)
        else:
            kept.append(known)
    for group in left:
        known = Known(
            id=digest_of(list(group.signs))[:_DIGITS],
            kind=group.kind,
            signs=group.signs,
            models=group.models,
            since=night.commit,
            reference=night.reference,
        )
        opens.append((known, group))
    ran = len(night.blocked) < len(night.models)
    own = list(_own(before, night))
    after = WatchFile(
        commit=night.commit if ran else before.commit,
        reference=night.reference if ran else before.reference,
        causes=(*kept, *(known for known, _ in opens), *own),
    )
    old = next((known for known in before.causes if known.id == WATCH), None)
    if own and old is None:
        opens.append((own[0], None))
    elif own and own[0] != old and not own[0].decided:
        edits.append((own[0], None))
    elif old is not None and not own and not old.decided:
        closes.append(old)
    return Changes(tuple(opens), tuple(edits), tuple(closes), after)


def _is_gone(known: Known, night: Night) -> bool:
    models = set(known.models) & night.models
    clear = night.same if known.kind == "differs" else night.computes
    return bool(models) and models <= clear


def _seen_again(known: Known, met: list[Group], night: Night) -> Known:
    """Return a cause with tonight's models and signs; models that could not be looked at stay."""
    unseen = {model for model, _ in night.blocked} & set(known.models)
    group = _joined(met)
    models = tuple(sorted(unseen.union(group.models)))
    return known.model_copy(update={"models": models, "signs": group.signs})


def _joined(groups: list[Group]) -> Group:
    signs = sorted({sign for group in groups for sign in group.signs})
    cells = [cell for group in groups for cell in group.cells]
    return groups[0]._replace(signs=tuple(signs), cells=tuple(cells))


def _own(before: WatchFile, night: Night) -> Iterator[Known]:
    """Yield the watch's own trouble, if it has any: one, whatever the number of models."""
    if not night.blocked:
        return
    old = next((known for known in before.causes if known.id == WATCH), None)
    models = tuple(model for model, _ in night.blocked)
    yield Known(
        id=WATCH,
        kind="watch",
        models=models,
        since=old.since if old else night.commit,
        reference=old.reference if old else night.reference,
        number=old.number if old else None,
        decided=old.decided if old else False,
    )
