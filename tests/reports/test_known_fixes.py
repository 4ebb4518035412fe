"""Faults that a later release mends: the table, and the side that it calls wrong."""

import pytest
from packaging.version import Version

from samebits.records.ids import Variant, Verdict
from samebits.records.trace import Cause, Side, SourceDiff
from samebits.reports.answer import answer, faults
from samebits.reports.answer.known_fixes import blamed, known_fixes
from tests.support.sample_report import cell, ended, row, sample_report, with_rows

VARIANT = Variant(dtype="float32", attention="default")
FIX = next(fix for fix in known_fixes() if "mamba2" in fix.folders and "n_groups" in fix.when)
OLD, NEW = "5.13.1", FIX.before
SOURCE = "transformers/models/mamba2/modeling_mamba2.py:115"


def place(stack, source=SOURCE, function="MambaRMSNormGated.forward"):
    return Side(stack=stack, function=function, source=source)


def caused(old, new, **fields):
    """Return the comparison of two releases, and the place where it begins to differ."""
    at = {"kind": "shape", "headline": "h", "prompt": "short", "what": "forward", "sink": "logits"}
    sides = {"reference": place(old), "candidate": place(new)}
    cause = Cause.model_validate(at | sides | fields)
    compared = cell("m", VARIANT, new, Verdict.DIVERGED)
    reference = cell("m", VARIANT, old, Verdict.REFERENCE).cell
    return compared.model_copy(update={"reference": reference, "cause": cause})


def fault(*releases, **fields):
    return blamed(caused(*releases, **fields), *releases)


@pytest.mark.parametrize(("releases", "is_reference"), [((OLD, NEW), True), ((NEW, OLD), False)])
def test_the_side_with_the_fault_is_wrong_whichever_it_is(releases, is_reference):
    blame = fault(*releases)
    assert blame is not None
    assert blame.is_reference is is_reference
    assert blame.fix == FIX


def test_a_development_version_that_differs_there_counts_as_its_release():
    blame = fault(OLD, f"{NEW}.dev0")
    assert blame is not None
    assert blame.is_reference


def test_a_fault_that_no_release_mends_yet_is_the_newer_ones():
    at = {"function": "XLMModel.forward", "source": "transformers/models/xlm/modeling_xlm.py:827"}
    sides = {"reference": place("5.23.0", **at), "candidate": place("5.24.0", **at)}
    blame = fault("5.23.0", "5.24.0", what="decode", **sides)
    assert blame is not None
    assert not blame.is_reference
    assert "modeling_xlm.py of transformers v5.24.0" in blame.fix.name
    assert fault("5.23.0", "5.24.0", what="forward", **sides) is None, "only generate() is hit"


@pytest.mark.parametrize(
    "releases", [(OLD, "4.57.6"), (NEW, f"{Version(NEW).major + 1}.0.0"), (OLD, "a checkout")]
)
def test_two_releases_with_it_or_without_it_and_unknown_ones_are_not_accused(releases):
    assert fault(*releases) is None


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"function": "Mamba2Mixer.torch_forward"},
        {"source": "transformers/models/zamba2/modeling_zamba2.py:60"},
        {"source": "modeling_mamba2.py:115"},  # remote code with a class of the same name
    ],
)
def test_a_difference_that_begins_elsewhere_is_not_explained(elsewhere):
    sides = {"reference": place(OLD, **elsewhere), "candidate": place(NEW, **elsewhere)}
    assert fault(OLD, NEW, **sides) is None


def test_the_cause_of_another_difference_decides_nothing():
    assert fault(OLD, NEW, decides=False) is None


SHARED = {"source": "transformers/integrations/sdpa_attention.py:54", "function": "sdpa"}
ELSEWHERE = {"function": "Mamba2Block.forward"}


@pytest.mark.parametrize(
    ("kind", "at", "is_named"),
    [
        ("mask", SHARED, True),
        ("argument", SHARED, True),
        ("mask", ELSEWHERE, True),
        (
            "operation",
            ELSEWHERE,
            False,
        ),  # a changed function before it is not the place where it begins
    ],
)
def test_what_an_operation_is_given_counts_where_it_is_made(kind, at, is_named):
    made = SourceDiff(
        function=FIX.functions[0], reference=SOURCE, candidate=SOURCE, diff="-old\n+new"
    )
    sides = {"reference": place(OLD, **at), "candidate": place(NEW, **at)}
    assert (fault(OLD, NEW, kind=kind, diffs=(made,), **sides) is not None) is is_named


def test_what_only_rounds_before_it_is_not_the_place():
    at = {
        "source": "transformers/models/mamba2/modeling_mamba2.py:9",
        "function": "Mamba2Block.forward",
    }
    later = {"reference": place(OLD, **at), "candidate": place(NEW, **at)}
    first = caused(OLD, NEW).cause
    assert fault(OLD, NEW, beyond=first.model_copy(update=later)) is None
    assert fault(OLD, NEW, beyond=first, **later) is not None


def test_groups_that_are_repeated_otherwise_are_a_layout_and_nothing_else_in_that_long_function():
    at = {
        "function": "BambaMixer.torch_forward",
        "source": "transformers/models/bamba/modeling_bamba.py:696",
    }
    sides = {"reference": place("4.51.3", **at), "candidate": place("4.54.1", **at)}
    blame = fault("4.51.3", "4.54.1", kind="layout", **sides)
    assert blame is not None
    assert [fix.before for fix in blame.others] == [FIX.before], (
        "4.54.1 has the other fault of groups"
    )
    assert fault("4.51.3", "4.54.1", kind="operation", **sides) is None


def masked(old, new, model, function, **fields):
    """Return the fault of a mask that shared attention is given, made by a function of a model."""
    source = f"transformers/models/{model}/modeling_{model}.py:9"
    made = SourceDiff(function=function, reference=source, candidate=source, diff="-old\n+new")
    sides = {"reference": place(old, **SHARED), "candidate": place(new, **SHARED)}
    return fault(old, new, kind="mask", diffs=(made,), **sides, **fields)


@pytest.mark.parametrize(
    ("releases", "prompt", "wrong"),
    [
        (("4.51.3", "4.54.1"), "two-images", "4.51.3"),
        (("4.53.3", "4.54.1"), "two-images", "4.53.3"),
        (("4.51.3", "4.54.1"), "image", ""),  # of one image nothing is known to be wrong
        (("4.52.4", "4.54.1"), "two-images", ""),
    ],
)
def test_a_fault_of_two_images_is_named_where_these_show_it_first(releases, prompt, wrong):
    blame = masked(*releases, "gemma3", "Gemma3ForConditionalGeneration.forward", prompt=prompt)
    assert (releases[0] if blame and blame.is_reference else "") == wrong


def test_releases_before_a_fault_that_have_one_of_their_own_are_not_called_right():
    where = ("qwen2", "Qwen2Attention.forward")
    blame = masked("4.51.3", "4.54.1", *where)
    assert blame is not None
    assert blame.is_reference
    assert masked("4.48.3", "4.51.3", *where) is None, "each has a fault of the window"
    older = masked("4.48.3", "4.57.6", *where)
    assert older is not None
    assert older.is_reference
    assert older.fix != blame.fix


def test_the_answer_names_the_fault_and_the_release_that_mends_it():
    compared = caused(OLD, NEW)
    before = cell("m", VARIANT, OLD, Verdict.REFERENCE)
    made = row("m", VARIANT, {OLD: before, NEW: compared}).model_copy(update={"reference": OLD})
    stacks = [
        s.model_copy(update={"id": n, "transformers": n})
        for n, s in zip((OLD, NEW), sample_report().stacks, strict=False)
    ]
    report = ended(with_rows(made, stacks=tuple(stacks)))
    side = answer(report).side
    assert (side.wrong, side.by) == (OLD, FIX.name)
    assert side.why == f"{OLD} is wrong: {FIX.why} (mended in {FIX.before}, {FIX.name})"
    assert side.concerns == FIX.when
    assert faults(report.rows[0], report) == {OLD: (FIX.name,)}


@pytest.mark.parametrize(
    "fix", known_fixes(), ids=lambda fix: f"{fix.folders[0]}-{fix.since}-{fix.before}"
)
def test_an_entry_says_why_when_and_what_proves_it(fix):
    assert not fix.before or Version(fix.since) < Version(fix.before)
    assert fix.source.startswith("https://")
    assert len(fix.why) <= 90, "it ends a sentence on the screen"
    assert not fix.why.endswith(".")
    assert fix.when
    assert len(fix.proof) > 40
