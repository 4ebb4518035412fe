"""The atlas binds runs, takes what direct comparisons show, and writes pages that are current."""

import json
import re

import pytest
import yaml

from bench.atlas import book, pages, plan
from samebits.matrix.load import load
from samebits.matrix.plan import Selection
from samebits.matrix.plan import plan as make_plan
from samebits.records.compat import CompatFile, CompatModel, CompatRange, CompatRelease
from samebits.reports.answer.side import NOT_KNOWN

RELEASES = ("4.48.3", "4.57.6", "5.0.0")


def of(model, *ranges):
    return CompatModel(model=model, variant="float32-default", source="build", ranges=ranges)


def span(first, last, state="computes", **more):
    return CompatRange(first=first, last=last, state=state, **more)


def atlas(*models, releases=RELEASES, started="2026-01-01T00:00:00Z"):
    return CompatFile(
        samebits="0",
        started=started,
        level="quick",
        releases=tuple(CompatRelease(id=release, transformers=release) for release in releases),
        models=models,
    )


SAME = of("bart", span("4.48.3", "5.0.0", bits="A"))
MOVED = of(
    "llama",
    span("4.48.3", "4.48.3", bits="A"),
    span("4.57.6", "5.0.0", bits="B", step="undecided", what="by the oldest", wrong=("SB308",)),
)
RAISES = of(
    "t5",
    span("4.48.3", "4.57.6", state="absent"),
    span("5.0.0", "5.0.0", state="raises", step="fails", what="IndexError in generate()"),
)


def test_runs_are_bound_by_name():
    bound = book.bound([atlas(RAISES, MOVED), atlas(SAME, started="2026-01-02T00:00:00Z")])
    assert [model.model for model in bound.models] == ["bart", "llama", "t5"]
    assert bound.started == "2026-01-02T00:00:00Z"


def test_types_that_are_measured_again_take_the_place_of_their_rows():
    old = atlas(of("a", span("1", "3")), of("b", span("1", "3")))
    again = atlas(of("b", span("2", "3")), started="2026-02-02T00:00:00Z")
    both = book.with_models(old, again)
    assert both.models == (old.models[0], again.models[0])
    assert both.started == old.started
    with pytest.raises(ValueError, match="releases"):
        book.with_models(old, atlas(of("b", span("1", "1")), releases=("1",)))


def test_borders_are_what_a_direct_comparison_decides():
    assert book.borders(atlas(SAME, MOVED, RAISES)) == {("4.48.3", "4.57.6"): ["llama"]}


def test_a_border_stays_one_when_its_comparison_showed_rounding():
    rounds = {"step": "rounding", "direct": True}
    left, moved = span("4.48.3", "4.48.3", bits="A"), span("4.57.6", "4.57.6", bits="B", **rounds)
    later = span("5.0.0", "5.0.0", bits="C", **rounds)
    assert book.borders(atlas(of("x", left, moved))) == {}
    assert book.borders(atlas(of("x", left, moved, later))) == {("4.57.6", "5.0.0"): ["x"]}


def test_a_direct_comparison_tells_the_step_and_nothing_else():
    shown = span("4.57.6", "4.57.6", bits="B", step="rounding", direct=True, what="rounding only")
    direct = atlas(of("llama", span("4.48.3", "4.48.3", bits="A"), shown), releases=RELEASES[:2])
    first, second = book.with_borders(atlas(MOVED), [direct]).models[0].ranges
    assert first == MOVED.ranges[0]
    assert (second.step, second.direct, second.what) == ("rounding", True, "rounding only")
    assert (second.last, second.wrong) == ("5.0.0", ("SB308",))


def test_a_border_without_a_difference_keeps_what_is_known():
    direct = atlas(of("llama", span("4.48.3", "4.57.6", bits="A")), releases=RELEASES[:2])
    assert book.with_borders(atlas(MOVED), [direct]).models == (MOVED,)


def test_bits_that_return_are_told_where_no_side_is_known():
    unknown = {"step": "diverged", "side": NOT_KNOWN}
    left = span("4.48.3", "4.48.3", bits="A")
    moved = span("4.57.6", "4.57.6", bits="B", **unknown)
    back = span("5.0.0", "5.0.0", bits="A", **unknown)
    _, second, third = book.with_returns(atlas(of("x", left, moved, back))).models[0].ranges
    assert second.side == third.side == "not proven, but 5.0.0 has the bits of 4.48.3 again"
    other = back.model_copy(update={"bits": "C"})
    known = moved.model_copy(update={"side": "4.57.6 is wrong: a check"})
    for ranges in ((left, moved, other), (left, known, other)):
        assert book.with_returns(atlas(of("x", *ranges))).models[0].ranges == ranges


def test_bits_that_come_back_after_a_wrong_release_are_right():
    left = span("4.48.3", "4.48.3", bits="A")
    why = "4.57.6 is wrong: a check"
    moved = span("4.57.6", "4.57.6", bits="B", step="diverged", side=why)
    back = span("5.0.0", "5.0.0", bits="A", step="diverged", side=NOT_KNOWN)
    third = book.with_returns(atlas(of("x", left, moved, back))).models[0].ranges[2]
    assert (third.side, third.do) == (why, "Use transformers 5.0.0")
    other = back.model_copy(update={"bits": "C"})
    assert book.with_returns(atlas(of("x", left, moved, other))).models[0].ranges[2] == other


def test_each_release_has_a_page_with_what_it_changes():
    written = pages.render(atlas(SAME, MOVED, RAISES))
    assert [*written] == [
        "atlas.md",
        "atlas/4.57.6.md",
        "atlas/5.0.0.md",
        "atlas/types/llama.md",
        "atlas/types/t5.md",
    ]
    assert "undecided whether by rounding: 1 type" in written["atlas/4.57.6.md"]
    assert "IndexError in generate()" in written["atlas/5.0.0.md"]
    assert "llama" not in written["atlas/5.0.0.md"]


def test_the_table_marks_each_release():
    index = pages.render(atlas(SAME, MOVED, RAISES))["atlas.md"]
    (line,) = re.findall(r"^\| \[llama\].*$", index, re.MULTILINE)
    assert [cell.strip() for cell in line.split("|")[2:5]] == ["=", "?", "="]
    (line,) = re.findall(r"^\| \[t5\].*$", index, re.MULTILINE)
    assert [cell.strip() for cell in line.split("|")[2:5]] == ["", "", "**↯**"]
    assert "`bart`" in index.partition("rounding at most")[2]


def test_the_matrices_hold_each_type_once(tmp_path):
    names = plan.types()
    parts = [*plan.parts(names)]
    assert [name for part in parts for name in part] == names
    assert len({*names}) == len(names) >= 600
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.safe_dump(plan.matrix(parts[0], plan.RELEASES)), "utf-8")
    assert len(load(path).models) == len(parts[0])


@pytest.fixture(scope="module")
def committed():
    return book.read()


def test_the_first_edition_is_wide(committed):
    present = [m for m in committed.models if any(r.state == "computes" for r in m.ranges)]
    assert len(present) >= 300
    assert len(committed.releases) >= 8


def test_the_pages_are_current(committed):
    for name, text in pages.render(committed).items():
        assert (pages.DOCS / name).read_text("utf-8") == text, "run: nox -s atlas -- --pages"


def test_a_border_is_asked_what_shows_the_side_that_is_right():
    asked = plan.of_border(["llama"], RELEASES[:2])["defaults"]["questions"]
    assert "relations" in asked
    assert "training" not in asked


def test_the_checkpoint_of_a_border_is_that_of_the_run_which_shows_it(tmp_path):
    older, border = ("4.48.3", "4.57.6"), ("4.57.6", "5.0.0")
    (tmp_path / "matrix.yaml").write_text(json.dumps(plan.of_border(["llama"], border, older)))
    matrix = load(tmp_path / "matrix.yaml")
    assert [stack.id for stack in matrix.stacks] == ["4.48.3", "4.57.6", "5.0.0"]
    assert matrix.reference == "4.57.6"
    (row,) = make_plan(matrix, Selection()).rows
    assert [cell.stack for cell in row.cells] == [*border]
