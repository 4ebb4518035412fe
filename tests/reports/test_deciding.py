"""Every place that says why a cell does not pass names what decides, and the first difference apart."""

from pathlib import Path

import pytest

from samebits.records.comparison import Difference
from samebits.records.graft import Graft
from samebits.records.ids import Verdict
from samebits.records.trace import Side
from samebits.reports.cell.cause import kind_words, shown_cause
from samebits.reports.formats.github import summary, workflow_commands
from samebits.reports.formats.registry import DEFAULT, render
from samebits.reports.head import head
from samebits.reports.issue import new_issue
from samebits.terminal.screen import screen
from tests.support.builders import cause_in
from tests.support.sample_report import only_rows, with_cells, with_rows

FIRST = Difference(
    signal="hidden_states", item="short", what="hidden_states: layer 1: max abs 5.6e-09"
)
DECIDING = Difference(
    signal="outputs",
    item="short · rope_deltas",
    what="outputs: short · rope_deltas: forward no longer returns it",
)


SIDE = Side(stack="5.x", op="mul", function="apply_rotary_pos_emb")
CAUSE = cause_in(SIDE, headline="mul differs", prompt="padded", what="decode", sink="")
GRAFT = Graft(
    prompt="padded",
    what="decode",
    headline="swapping only layout restores the decode of padded",
    proof="alone",
    smallest=("layout",),
)


def report(deciding, **fields):
    (row,) = only_rows("gemma2").rows
    cells = (
        cell
        if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL)
        else cell.model_copy(
            update={
                "verdict": Verdict.DIVERGED,
                "judged": Verdict.DIVERGED,
                "rest": None,
                "failure": None,
                "expected": (),
                "first": FIRST,
                "deciding": deciding,
                "headline": (deciding or FIRST).what,
                "figure": "outputs 1 of 5",
                "cause": None,
                "graft": None,
            }
            | fields
        )
        for cell in row.cells
    )
    return with_rows(with_cells(row, *cells), expected=(), exit_code=1)


def places(sample):
    """Return every text that says why a cell does not pass, by its name."""
    files = render(sample, [*DEFAULT, "junit", "github"])
    texts = {path: text for path, text in files.items() if isinstance(text, str)}
    wanted = {
        name: next(text for path, text in texts.items() if path.endswith(name))
        for name in ("report.md", "models/gemma2.md", "junit.xml", "report.html")
    }
    return wanted | {
        "annotation": "\n".join(workflow_commands(sample)),
        "summary": summary(sample),
        "issue": new_issue(sample).body,
        "screen": "\n".join(screen(sample, [Path("report.md")], {})),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("report.md", "models/gemma2.md", "report.html", "junit.xml"),
        *("annotation", "summary", "issue", "screen"),
    ],
)
def test_what_decides_is_named_before_the_first_difference(name):
    text = places(report(DECIDING))[name].replace("\\_", "_")
    assert "forward no longer returns it" in text
    if "5.6e-09" in text:
        assert text.index("forward no longer returns it") < text.index("5.6e-09")
    clean = places(report(None))[name]
    assert "5.6e-09" in clean
    assert "forward no longer returns it" not in clean


def explained(*, decides):
    """Return a report whose cause and graft are of what decides, or of another difference."""
    update = {"decides": decides}
    cause, graft = (record.model_copy(update=update) for record in (CAUSE, GRAFT))
    return report(DECIDING, cause=cause, graft=graft)


WORDS = {
    "report.md": (
        "it starts with a different operation: apply_rotary_pos_emb; swapping only layout restores the bits",
        (
            "another difference, of the decode of padded, starts with a different operation: "
            "apply_rotary_pos_emb; swapping only layout restores the bits of the decode of padded, "
            "which does not decide"
        ),
    ),
    "models/gemma2.md": (
        "**Where it starts**",
        "**Where another difference starts**",
        "**What restores the bits:**",
        "**What restores another difference, which does not decide the verdict:**",
    ),
    "report.html": (
        "<dt>Cause</dt>",
        "<dt>Cause of another difference, which does not decide</dt>",
        "<dt>Swap test</dt>",
        "<dt>Swap test of another difference, which does not decide</dt>",
    ),
    "screen": ("apply_rotary_pos_emb: a different operation", "where outputs"),
    **dict.fromkeys(
        ("junit.xml", "annotation", "issue"),
        ("begins: mul differs", "another difference, of the decode of padded, begins: mul differs"),
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_a_cause_or_graft_of_another_difference_says_that_it_is_of_another_one(name):
    of_what_decides, of_another = (
        " ".join(places(explained(decides=decides))[name].replace("\\_", "_").split())
        for decides in (True, False)
    )
    for own, other in batched(WORDS[name]):
        assert own in of_what_decides
        assert other not in of_what_decides
        assert other in of_another
    assert other.endswith(own) or own not in of_another


def batched(words):
    return zip(words[::2], words[1::2], strict=True)


@pytest.mark.parametrize("name", ["report.md", "screen"])
def test_the_cause_of_what_decides_is_named_and_not_the_rounding_before_it(name):
    rounding = CAUSE.model_copy(
        update={"headline": "softmax rounds", "decides": False, "kind": "precision"}
    )
    text = places(report(DECIDING, cause=rounding.model_copy(update={"beyond": CAUSE})))[name]
    assert "softmax rounds" not in text
    assert "another difference" not in text


@pytest.mark.parametrize(("kind", "named"), [("memory", "operation"), ("buffer", "buffer")])
def test_a_place_in_memory_is_no_cause_of_what_float64_leaves(kind, named):
    """A processor that 5.24 leaves out was passed over for the layout of an lm_head, which only rounds."""
    beyond = CAUSE.model_copy(update={"kind": kind})
    sample = report(DECIDING, cause=CAUSE.model_copy(update={"beyond": beyond}))
    cell = next(cell for row in sample.rows for cell in row.cells if cell.cause is not None)
    assert shown_cause(cell).kind == named


def test_the_head_has_the_figure_of_what_decides():
    assert any("forward no longer returns it" in line for line in head(report(DECIDING)))


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (
            ("the reference casts float64 to int64 first",),
            "a cast: the reference casts float64 to int64",
        ),
        (("float32 in the reference", "the outputs differ"), "a different precision"),
    ],
)
def test_a_cast_is_named_with_its_dtypes(evidence, words):
    """Qwen2.5-VL of 4.57 casts second_per_grid_ts to int64: no matter of a precision."""
    cause = cause_in(Side(stack="5.23"), kind="precision", evidence=evidence)
    assert kind_words(cause) == words
