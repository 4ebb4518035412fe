"""Phase ``state``: the first prompt once more, after all that a user does with the model.

A forward that gives other bytes than its first time depends on what the forwards and generate()
between them left in the model: a rope that stays scaled, a cache in a module. This runs before the
phases that only explain, as their instruments could leave something themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import distance, draws, outputs
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.leftover import Change, Leftover
from samebits_probe.model.tensor import stored
from samebits_probe.process import progress
from samebits_probe.process.failure import phase
from samebits_probe.process.files import StoreFault

MAX_TRIED = 8
"""Changes that are undone one by one, each at the cost of a forward."""
MAX_NAMED = 20


def observe(session: Session) -> None:
    """Run the first observed prompt once more; only in run a."""
    if not session.is_run_a or session.is_short:
        return
    if (name := next(iter(session.signals.get("forward", {})), None)) is None:
        return
    phase_name = f"state {name}"
    if session.leaves_out(phase_name, session.no_time(1)):
        return
    session.begin(phase_name)
    with session.recorded_failures(phase_name), phase(phase_name):
        session.signals["state"] = _Repeat(session, name, session.inputs(name)).facts()


class _Repeat:
    """The repetition of a prompt's forward, and what makes it differ from the first."""

    def __init__(self, session: Session, name: str, inputs: Inputs) -> None:
        self._session, self._name, self._inputs = session, name, inputs
        self._first = _first_hashes(session, name)

    def facts(self) -> dict[str, Any]:
        """Return whether the bytes are those of the first time, and if not, why."""
        hashes, logits = self._forward()
        changed = [path for path in self._first if hashes.get(path) != self._first[path]]
        facts = {"prompt": self._name, "holds": not changed, "outputs": changed, "hashes": hashes}
        if not changed:
            return facts
        second, _ = self._forward()
        if second != hashes:
            facts["repeats"] = False
            with self._session.instrument("state: what is drawn"):
                facts["draws"] = draws.of(self._session.loaded.model, self._inputs.kwargs)
            return facts
        with self._session.instrument("state: what was left behind"):
            facts |= self._what_was_left(logits)
        return facts

    def _what_was_left(self, logits: torch.Tensor | None) -> dict[str, Any]:
        """Return what changed in the model since the first prompt, and what of it matters."""
        untouched = self._session.untouched
        changes, now = untouched.changes(), Leftover(self._session.loaded.model)
        first_logits = self._first_logits()
        causes: list[Change] = []
        try:
            untouched.restore()
            hashes, restored = self._forward()
            is_undone = hashes == self._first
            if is_undone:
                first_logits = restored if first_logits is None else first_logits
                causes = self._causes(untouched, changes, now)
        finally:
            now.restore()  # later phases find the model as generate() left it
        return {
            "changes": [_named(change) for change in changes[:MAX_NAMED]],
            "causes": [_named(change) for change in causes],
            "is_undone": is_undone,
            "distance": _distance(first_logits, logits),
        }

    def _causes(self, untouched: Leftover, changes: list[Change], now: Leftover) -> list[Change]:
        """Return the first change that by itself makes the difference, else all of them."""
        for change in changes[:MAX_TRIED]:
            now.restore()
            untouched.undo(change)
            if self._forward()[0] == self._first:
                return [change]
        return changes[:MAX_NAMED]

    def _forward(self) -> tuple[dict[str, str], torch.Tensor | None]:
        """Run the prompt plainly; return the hashes of all outputs, and the logits."""
        kwargs = self._inputs.kwargs
        with progress.forward(kwargs, "once more", plain=True):
            result = self._session.loaded.model(**kwargs)
        return outputs.hashes(outputs.tensors(result)), outputs.logits_of(result)

    def _first_logits(self) -> torch.Tensor | None:
        ref = self._session.signals["forward"][self._name]["logits"]
        if ref is None or not ref["stored"]:
            return None
        try:
            return stored(Path(self._session.keeper.root), ref)
        except StoreFault:
            return None


def _first_hashes(session: Session, name: str) -> dict[str, str]:
    facts = session.signals["forward"][name]
    refs = dict(session.signals.get("named", {}).get("outputs", {}).get(name, {}))
    if facts["logits"] is not None:
        refs[facts["logits_name"]] = facts["logits"]
    return {path: ref["hash"] for path, ref in refs.items()}


def _named(change: Change) -> dict[str, str]:
    return {"name": change.name, "kind": change.kind}


def _distance(first: torch.Tensor | None, second: torch.Tensor | None) -> dict[str, Any] | None:
    if first is None or second is None or not first.is_floating_point():
        return None
    return distance.distance(first, second.detach().to("cpu"))


PHASE = Phase("state", 35, observe)
