"""Edits of a loaded model: those that leave it as it is in one child, each of the others in a child of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from samebits_probe.model.distance import same_bytes
from samebits_probe.process import fork, progress
from samebits_probe.questions.edits import others, resizing
from samebits_probe.questions.edits.subject import (
    EDIT,
    SAVING,
    Done,
    Facts,
    LeftOut,
    Subject,
    save_and_load,
)

_PLAIN = ""
"""Name of what the model does without an edit."""
_LABELS = "forward with labels"
_FIELDS = ("raised", "broken")


def edits(subject: Subject) -> dict[str, Facts]:
    """Return edit -> what comes of it; {} if forward raises before one, or gives other numbers each time."""
    progress.tick("copies")
    edits: dict[str, Facts] = _in_child(subject, _others)
    if (plain := edits.pop(_PLAIN)).get("left_out"):
        return {}
    ways = _sizes(subject)
    for i, (name, arguments) in enumerate(ways.items(), 1):
        progress.tick(name, i, len(ways))
        resize = partial(_resized, arguments=arguments, is_used=name in resizing.USED)
        facts = edits[f"resize_token_embeddings(), {name}"] = _in_child(subject, resize)
        if i == 1 and facts.get("raised", {}).get(EDIT):
            break  # the other ways raise the same
    if any(_fails_saved(facts) for facts in edits.values()):
        saved = _in_child(subject, _saved)
        plain = {field: plain.get(field, {}) | saved.get(field, {}) for field in _FIELDS}
    return {name: _without(facts, plain) for name, facts in edits.items()}


def _in_child(subject: Subject, ask: Callable[[Subject], Any]) -> Any:
    def asked() -> Any:
        with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
            return ask(subject._replace(folder=Path(folder)))

    return fork.run_in_fork(asked)


def _others(subject: Subject) -> dict[str, Facts]:
    """Return what the model does without an edit, and what comes of those that need no other child."""
    first = others.Copies(subject.model)
    done, plain = Done(), {}
    with done.leaving_out():
        plain = _plain(subject, done)
    edits = {_PLAIN: done.content()}
    if done.left_out:
        return edits
    for name, ask in others.EDITS.items():
        done = Done()
        with done.leaving_out():
            ask(subject, first, plain, done)
        edits[name] = done.content()
    return edits


def _plain(subject: Subject, done: Done) -> dict[str, Any]:
    """Return what the model computes, and note whether it takes labels.

    Raises:
        LeftOut: forward raises, or gives other numbers each time.

    """
    try:
        plain, again = subject.forward(), subject.forward()
    except Exception as error:  # the forward of the cell has it
        raise LeftOut("forward raises") from error
    if not all(same_bytes(plain[name], again[name]) for name in plain):
        raise LeftOut("forward gives other numbers each time")
    ids = {name: subject.kwargs[name] for name in resizing.IDS if name in subject.kwargs}
    labels = resizing.with_labels(subject, ids)
    if labels is not None:
        done.step(_LABELS, lambda: subject.forward(**labels))
    return plain


def _sizes(subject: Subject) -> dict[str, Facts]:
    try:
        return dict(resizing.sizes(subject))
    except LeftOut:
        return {}


def _resized(subject: Subject, arguments: Facts, *, is_used: bool) -> Facts:
    done = Done()
    with done.leaving_out():
        resizing.resized(subject, done, arguments, is_used=is_used)
    return done.content()


def _saved(subject: Subject) -> Facts:
    """Return what a save and a load change without an edit."""
    done = Done()
    subject.forward()  # as before an edit
    save_and_load(subject, subject.model, done, "untouched")
    return done.content()


def _fails_saved(facts: Facts) -> bool:
    """Return True if a save or a load of an edited model raises or changes something."""
    raised, broken = (facts.get(field, {}) for field in _FIELDS)
    is_changed = any(part.startswith("saved") for part in broken)
    return is_changed or any(raised.get(step) for step in SAVING)


def _without(edited: Facts, plain: Facts) -> Facts:
    """Return what comes of an edit, without what is so before one."""
    for field in _FIELDS:
        known = {name for name, value in plain.get(field, {}).items() if value}
        if field in edited:
            edited[field] = {n: value for n, value in edited[field].items() if n not in known}
    return edited
