"""SB92x: rules for torch's settings, and for kernels that only a GPU has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.facts import setting_changes
from samebits.findings.rule import Rule, Sighting
from samebits.records.finding import RuleText
from samebits.records.settings import BATCH_INVARIANT, OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture
    from samebits.records.comparison import FactChange
    from samebits.records.device import DeviceProbe
    from samebits.records.relations import RelationName
    from samebits.records.settings import By

_OF_BATCHES: tuple[RelationName, ...] = ("batch size", "batch position", "row order")
"""The relations that a batch-invariant mode promises byte for byte. Padding changes the length, too."""
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


def _switched(*, by_model: bool) -> Callable[[Case], Iterator[Sighting]]:
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


def _batch_dependent(case: Case) -> Iterator[Sighting]:
    """Find a row whose bytes depend on its batch, though a mode is on that promises otherwise."""
    signals = case.capture.signals
    mode = signals.settings.values.get(BATCH_INVARIANT, OFF) if signals.settings else OFF
    if mode == OFF or signals.relations is None:
        return
    broken = [
        f"{relation.relation} ({relation.case}): the bytes differ"
        for relation in signals.relations.relations
        if relation.relation in _OF_BATCHES and not relation.holds
    ]
    if broken:
        yield Sighting(BATCH_INVARIANT, (f"{mode} is on", *broken, *case.asked_of))


def _other_kernel(case: Case) -> Iterator[Sighting]:
    """Find a kernel of a GPU that gives other bits, where the cell's own way gives the same."""
    if case.reference is None:
        return
    reference = {probe.name: probe for probe in case.reference.signals.device or ()}
    lines = [
        f"{probe.name}, prompt {probe.prompt}: other logits than in {case.reference.cell.stack}; the cell's "
        "own way gives the same"
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
    Rule(
        RuleText(
            code="SB921",
            name="a release has another setting of torch, such as TF32",
            kind="silent",
            scope="release",
            looks_for="a setting of torch for precision, determinism or the choice of kernels that has "
            "another value than in the reference, and that neither the load of the model nor its "
            "prompts set",
            cause="These settings hold for the whole process. A package that is imported with "
            "transformers can change them, and another torch can have another default. With TF32, "
            "products of float32 on a GPU have 10 bits of mantissa in place of 23. Affected: every "
            "model in the process, whether or not its bits differ on the machine of this run.",
            remedy="Set what you need after the imports. The evidence has the expressions that read the "
            "settings.",
            example='torch.set_float32_matmul_precision("highest")  # no TF32 in products\n'
            "torch.backends.cudnn.allow_tf32 = False  # none in convolutions",
            releases="depends on the stack; none of 4.48, 4.57, 5.2 and 5.23 changes one on import",
            references=(
                "torch/backends/__init__.py",
                "https://docs.pytorch.org/docs/stable/notes/cuda.html",
            ),
        ),
        _switched(by_model=False),
    ),
    Rule(
        RuleText(
            code="SB922",
            name="a model sets torch's settings in one release only",
            kind="silent",
            looks_for="a setting of torch for precision, determinism or the choice of kernels that has "
            "another value than in the reference, and that the load of the model or its prompts set in "
            "one of the two releases",
            cause="The model's code, or code of the release that runs for it, changes a setting for the "
            "whole process, in one release and not in the other. Affected: this model, and every "
            "other one that is loaded after it.",
            remedy="Change no global setting in a model. Use a context manager around the operation that "
            "needs it.",
            example="with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):\n"
            "    hidden = self.convolution(hidden)",
            releases="depends on the model",
            references=("torch/backends/__init__.py", "tests/findings/test_devices.py"),
        ),
        _switched(by_model=True),
    ),
    Rule(
        RuleText(
            code="SB923",
            name="a batch-invariant mode is on, and a row depends on its batch",
            kind="silent",
            looks_for="a batch-invariant mode (a module named batch_invariant… whose "
            "is_batch_invariant_mode_enabled() is true) and a relation between a row alone and the same "
            "row in a batch that does not hold byte for byte",
            cause="The mode replaces some operations of torch by kernels whose result for a row does not "
            "depend on the other rows. An operation that it does not replace still depends on them. "
            "Affected: code that relies on the mode, such as for a policy's log probabilities in "
            "reinforcement learning.",
            remedy="Trace both ways and look which operation differs first, then replace it, too.",
            releases="depends on the mode and on the operations that a release uses",
            references=("https://github.com/thinking-machines-lab/batch_invariant_ops",),
        ),
        _batch_dependent,
    ),
    Rule(
        RuleText(
            code="SB924",
            name="a kernel that only a GPU has computes other bits",
            kind="silent",
            looks_for="logits of flash attention, grouped experts or TF32 that differ from the "
            "reference's, where each repeats its bytes and the cell's own way gives the same logits in "
            "both releases",
            cause="The release calls the kernel in another way, or chooses another one. Whether that is "
            "rounding is not known: run the kernel as a variant, such as `attention: flash_attention_2`. "
            "Affected: users of that kernel.",
            remedy="Add the kernel to the model's variants in matrix.yaml. Its cells have a verdict.",
            example="models:\n  mine: {path: mine, dtypes: bfloat16, devices: cuda, "
            "attention: [default, flash_attention_2]}",
            releases="depends on the model",
            references=("transformers/modeling_flash_attention_utils.py",),
        ),
        _other_kernel,
    ),
)
