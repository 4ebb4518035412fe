"""Rules for torch's settings and for kernels of a GPU: each names its defect, and no clean twin."""

import pytest

from samebits.compare.facts import changes
from samebits.findings.case import Case
from samebits.questions.registry import findings
from samebits.questions.relations.records import Relation, RelationsSignal
from samebits.records.device import DeviceProbe
from samebits.records.distance import Distance
from samebits.records.settings import BATCH_INVARIANT, SettingChange, SettingsSignal
from tests.support.builders import Memory, sound, values, with_signals

MATMUL = "torch.get_float32_matmul_precision()"
DEFAULTS = {MATMUL: "highest", BATCH_INVARIANT: "off"}


def with_settings(stack, *set_by, **changed):
    """Return a sound run whose settings were changed by each of ``set_by``."""
    now = DEFAULTS | changed.pop("values", {})
    history = tuple(
        SettingChange(name=MATMUL, before="highest", after=now[MATMUL], by=by) for by in set_by
    )
    settings = SettingsSignal(values=now, changes=history)
    return sound(Memory(), stack, settings=settings, **changed)


def found(candidate, reference=None):
    case = Case(capture=candidate, reference=reference or with_settings("4.48"))
    return {f.code: f for f in findings(case) if f.code.startswith("SB92")}


@pytest.mark.parametrize(
    ("by", "code"), [("import", "SB921"), ("load", "SB922"), ("prompts", "SB922")]
)
def test_a_setting_that_one_side_switched_is_named_with_what_set_it(by, code):
    ((name, finding),) = found(with_settings("5.x", by, values={MATMUL: "high"})).items()
    assert name == code
    (line,) = finding.evidence
    assert MATMUL in line
    assert "highest in 4.48, torch's default" in line
    assert "high in 5.x, set by" in line


def test_the_reference_may_be_the_side_that_switched():
    reference = with_settings("4.48", "load", values={MATMUL: "high"})
    assert [*found(with_settings("5.x"), reference)] == ["SB922"]


def test_another_default_of_torch_is_of_the_release():
    assert [*found(with_settings("5.x", values={MATMUL: "high"}))] == ["SB921"]


def test_the_same_settings_are_no_finding_whoever_set_them():
    assert found(with_settings("5.x")) == {}
    both = [with_settings(s, "load", values={MATMUL: "high"}) for s in ("5.x", "4.48")]
    assert found(*both) == {}


def test_a_setting_that_only_one_torch_has_is_no_finding():
    newer = with_settings("5.x", values={"torch.backends.fp32_precision": "ieee"})
    assert found(newer) == {}
    assert "settings" not in changes(with_settings("4.48"), newer)


def test_a_switched_setting_is_a_change_that_may_explain_a_difference():
    (change,) = changes(with_settings("4.48"), with_settings("5.x", values={MATMUL: "high"}))[
        "settings"
    ]
    assert (change.what, change.reference, change.candidate) == (MATMUL, "highest", "high")


def related(holds, name="batch size", *, mode="batch_invariant_ops"):
    distance = Distance(n=8, n_differ=0 if holds else 3, max_abs=0.0 if holds else 1e-7, mean_abs=0)
    relation = Relation(relation=name, case="2 rows", holds=holds, distance=distance)
    relations = RelationsSignal(relations=(relation,))
    return with_settings("4.48", values={BATCH_INVARIANT: mode}, relations=relations)


@pytest.mark.parametrize("name", ["batch size", "batch position", "row order"])
def test_with_a_batch_invariant_mode_rows_must_hold_by_bytes(name):
    run = related(False, name)
    assert [*found(run, run)] == ["SB923"]
    assert "batch_invariant_ops is on" in found(run, run)["SB923"].evidence


@pytest.mark.parametrize(
    "run", [related(True), related(False, mode="off"), related(False, "left padding")]
)
def test_no_mode_no_difference_and_no_padding_is_accused(run):
    assert found(run, run) == {}


def with_probe(stack, seed, *, repeats=True, logits=1, skipped=""):
    memory = Memory()
    run = sound(memory, stack)
    facts = run.signals.forward["short"]
    own = facts.model_copy(update={"logits": memory.put(values(1, 3, 5, seed=logits))})
    ref = None if skipped else memory.put(values(1, 3, 5, seed=seed))
    probe = DeviceProbe(
        name="flash_attention_2",
        prompt="short",
        skipped=skipped,
        repeats=None if skipped else repeats,
        logits=ref,
    )
    update = {"forward": {**run.signals.forward, "short": own}, "device": (probe,)}
    return with_signals(run, **update)


def test_a_kernel_of_a_gpu_with_other_bits_is_named_where_the_own_way_agrees():
    finding = found(with_probe("5.x", 8), with_probe("4.48", 7))["SB924"]
    assert "flash_attention_2" in finding.evidence[0]


@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        (with_probe("5.x", 7), with_probe("4.48", 7)),
        (with_probe("5.x", 8, repeats=False), with_probe("4.48", 7)),
        (with_probe("5.x", 8, logits=2), with_probe("4.48", 7)),
        (with_probe("5.x", 8, skipped="no package"), with_probe("4.48", 7)),
    ],
    ids=["same bits", "does not repeat", "own way differs", "skipped"],
)
def test_a_kernel_is_not_accused_without_proof(candidate, reference):
    assert found(candidate, reference) == {}
