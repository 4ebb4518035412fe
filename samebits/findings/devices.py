"""SB92x: rules for torch's settings, and for kernels that only a GPU has."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.facts import setting_changes
from samebits.findings.case import Case
from samebits.findings.rule import COMPUTED, Check, Rule, Sighting
from samebits.records.capture import Capture
from samebits.records.comparison import FactChange
from samebits.records.device import DeviceProbe
from samebits.records.settings import By

_WHERE: dict[By, str] = {
    "import": "set by the import of transformers",
    "load": "set by the load of the model",
    "prompts": "set by the model's forward or by generate()",
}
_SETTINGS = "torch's settings"


def _set_by(capture: Capture, name: str) -> By | None:
    """Return what set a setting last in a run; None if it has torch's default."""
    settings = capture.signals.settings
    changes = settings.changes if settings is not None else ()
    return next((change.by for change in reversed(changes) if change.name == name), None)


def _switched(*, by_model: bool) -> Check:
    """Return a check for settings that differ: set with the model, or by the release alone."""

    def check(case: Case) -> Iterator[Sighting]:
        if case.reference is None:
            return
        lines = []
        for change in setting_changes(case.reference, case.capture):
            setters = {_set_by(run, change.what) for run in (case.reference, case.capture)}
            if bool(setters & {"load", "prompts"}) == by_model:
                lines.append(_line(case.reference, case.capture, change))
        if lines:
            yield Sighting(_SETTINGS, tuple(lines))

    return check


def _line(reference: Capture, candidate: Capture, change: FactChange) -> str:
    sides = ((reference, change.reference), (candidate, change.candidate))
    return f"{change.what}: " + "; ".join(
        f"{value} in {run.cell.stack}, {_setter(run, change.what)}" for run, value in sides
    )


def _setter(capture: Capture, name: str) -> str:
    by = _set_by(capture, name)
    return "torch's default" if by is None else _WHERE[by]


def _other_kernel(case: Case) -> Iterator[Sighting]:
    """Find a kernel of a GPU that gives other bits, where the cell's own way gives the same."""
    if case.reference is None:
        return
    reference = {probe.name: probe for probe in case.reference.signals.device or ()}
    lines = [
        f"{probe.name}, prompt {probe.prompt}: different logits than in {case.reference.cell.stack}; the "
        "cell's own kernel gives the same"
        for probe in case.capture.signals.device or ()
        if probe.name in reference and _differ(case, reference[probe.name], probe)
    ]
    if lines:
        yield Sighting("kernels of the GPU", tuple(lines))


def _differ(case: Case, reference: DeviceProbe, candidate: DeviceProbe) -> bool:
    assert case.reference is not None
    if reference.prompt != candidate.prompt or not (reference.repeats and candidate.repeats):
        return False
    before, after = (_own_logits(run, candidate.prompt) for run in (case.reference, case.capture))
    if before is None or before != after or reference.logits is None or candidate.logits is None:
        return False
    return reference.logits.hash != candidate.logits.hash


def _own_logits(capture: Capture, prompt: str) -> str | None:
    facts = (capture.signals.forward or {}).get(prompt)
    return facts.logits.hash if facts is not None and facts.logits is not None else None


RULES = (
    Rule("SB921", _switched(by_model=False)),
    Rule("SB922", _switched(by_model=True), explains=COMPUTED),
    Rule("SB924", _other_kernel, explains=COMPUTED),
)
