"""What a night changes: which causes are new, which are gone, and which only have other models."""

from __future__ import annotations

from typing import NamedTuple

from samebits.base.digests import digest_of
from samebits.watch.causes import Group, Night
from samebits.watch.records import KnownCause, WatchFile

WATCH = "watch"
"""Id of the one issue about the watch itself."""
_DIGITS = 12


class Changes(NamedTuple):
    """What is to be done after a night."""

    opens: tuple[tuple[KnownCause, Group | None], ...]
    """New causes with their cells; None: the watch itself could not look."""
    edits: tuple[tuple[KnownCause, Group | None], ...]
    """Causes whose models or signs are others now."""
    closes: tuple[KnownCause, ...]
    after: WatchFile
    """What is open then; new causes have no number yet."""


def changes(before: WatchFile, night: Night) -> Changes:
    """Return what a night changes.

    A cause is the known one if they have a sign in common. It is gone if each of its models was looked at and shows
    nothing that could hide it: a model that raises elsewhere, or that differs elsewhere first, proves nothing.
    """
    left = list(night.groups)
    opens: list[tuple[KnownCause, Group | None]] = []
    edits: list[tuple[KnownCause, Group | None]] = []
    closes: list[KnownCause] = []
    causes: list[KnownCause] = []
    for cause in before.causes:
        if cause.id == WATCH:
            continue
        met = [g for g in night.groups if g.kind == cause.kind and set(g.signs) & set(cause.signs)]
        left = [group for group in left if group not in met]
        if cause.decided:
            causes.append(cause)
        elif met:
            now = _seen_again(cause, met, night)
            edits += [(now, _joined(met))] if now != cause else []
            causes.append(now)
        elif _is_gone(cause, night):
            closes.append(cause)
        else:
            causes.append(cause)
    for group in left:
        cause = KnownCause(
            id=digest_of(list(group.signs))[:_DIGITS],
            kind=group.kind,
            signs=group.signs,
            models=group.models,
            since=night.commit,
            reference=night.reference,
        )
        opens.append((cause, group))
    ran = len(night.blocked) < len(night.models)
    old = next((cause for cause in before.causes if cause.id == WATCH), None)
    own = _own(old, night) if night.blocked else None
    after = WatchFile(
        commit=night.commit if ran else before.commit,
        reference=night.reference if ran else before.reference,
        causes=(*causes, *(cause for cause, _ in opens), *filter(None, [own])),
    )
    if own and old is None:
        opens.append((own, None))
    elif own and own != old and not own.decided:
        edits.append((own, None))
    elif old is not None and own is None and not old.decided:
        closes.append(old)
    return Changes(tuple(opens), tuple(edits), tuple(closes), after)


def _is_gone(cause: KnownCause, night: Night) -> bool:
    models = set(cause.models) & night.models
    clear = night.same if cause.kind == "differs" else night.computes
    return bool(models) and models <= clear


def _seen_again(cause: KnownCause, met: list[Group], night: Night) -> KnownCause:
    """Return a cause with tonight's models and signs; models that could not be looked at stay."""
    unseen = {model for model, _ in night.blocked} & set(cause.models)
    group = _joined(met)
    models = tuple(sorted(unseen.union(group.models)))
    return cause.model_copy(update={"models": models, "signs": group.signs})


def _joined(groups: list[Group]) -> Group:
    signs = sorted({sign for group in groups for sign in group.signs})
    cells = [cell for group in groups for cell in group.cells]
    return groups[0]._replace(signs=tuple(signs), cells=tuple(cells))


def _own(old: KnownCause | None, night: Night) -> KnownCause:
    """Return the watch's own trouble: one, whatever the number of models."""
    models = tuple(model for model, _ in night.blocked)
    if old is not None:
        return old.model_copy(update={"models": models})
    return KnownCause(
        id=WATCH, kind="watch", models=models, since=night.commit, reference=night.reference
    )
