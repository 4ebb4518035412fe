"""matrix.yaml is what a newcomer reads; zoo.yaml is what is known, and each entry of it is reachable."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from samebits.matrix import load
from samebits.matrix.plan import Selection, plan

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "matrix.yaml").read_text("utf-8")
FILES = ("matrix.yaml", "zoo.yaml")


@pytest.fixture(scope="module")
def matrices():
    return {name: load.load(ROOT / name) for name in FILES}


@pytest.fixture
def default(matrices):
    return matrices["matrix.yaml"]


@pytest.fixture
def zoo(matrices):
    return matrices["zoo.yaml"]


def test_the_default_matrix_fits_on_two_screens():
    lines = TEXT.splitlines()
    assert len(lines) <= 140
    assert max(map(len, lines)) <= 110


def test_the_default_matrix_says_where_to_add_a_model():
    lines = TEXT.splitlines()
    marks = [i for i, line in enumerate(lines) if "Put your model here" in line]
    assert marks == [lines.index("models:") + 1]
    assert lines[0] == "# yaml-language-server: $schema=samebits/schemas/matrix.schema.json"


def test_the_default_matrix_is_small_and_plain(default):
    assert len(default.models) <= 17
    cells = plan(default, Selection()).cells
    assert len(cells) <= 72
    asking = {
        question: [m.name for m in default.models if m.asks(question)]
        for question in ("relations", "crossings", "usage")
    }
    # gemma2's relations say that the reference is wrong, which no diff of two releases can
    assert asking == {"relations": ["llama", "gemma2"], "crossings": ["llama"], "usage": ["llama"]}
    assert all(model.build or model.trust_remote_code for model in default.models)


def test_each_matrix_has_a_model_of_images_and_text(default, zoo):
    def of_images(matrix):
        return [m for m in matrix.models if m.build and m.build.head == "image-text-to-text"]

    # an environment with pillow would be one more process for each release
    assert [m.packages for m in of_images(default)] == [()]
    names = {
        m.build.processor["processor_config"].get("image_token")
        for m in of_images(zoo)
        if m.build.processor
    }
    assert "<image>" in names


def test_one_custom_model_has_a_defect_and_its_repair(default):
    defect, repaired = (model for model in default.models if model.trust_remote_code)
    assert defect.path == repaired.path
    assert repaired.patch[: len(defect.patch)] == defect.patch
    assert len(repaired.patch) == len(defect.patch) + 1
    known = [entry for entry in default.expected if defect.name in entry.model]
    assert [entry.verdict for entry in known] == ["unstable"]
    assert not [entry for entry in default.expected if repaired.name in entry.model]


@pytest.mark.parametrize("name", FILES)
def test_each_item_of_each_entry_names_cells_of_the_plan(matrices, name):
    """An item without a cell is never found fixed: it would stay for ever."""
    matrix = matrices[name]
    cells = plan(matrix, Selection()).cells
    for entry in matrix.expected:
        for model in entry.model:
            for stack in entry.stack:
                of = [c for c in cells if fnmatchcase(c.model, model) and c.stack == stack]
                variants = {str(cell.variant) for cell in of}
                named = [v for v in variants if any(fnmatchcase(v, p) for p in entry.variant)]
                assert named, (entry.line, model, stack)


@pytest.mark.parametrize("name", FILES)
def test_an_entry_says_why_and_that_it_is_no_rounding(matrices, name):
    for entry in matrices[name].expected:
        assert len(entry.reason) > 30, entry.line
        assert entry.reference, entry.line
        assert not entry.reason.startswith("Rounding"), entry.line


def test_every_model_of_the_zoo_is_reached_by_its_name(zoo):
    rows = plan(zoo, Selection()).rows
    assert {row.model for row in rows} == {model.name for model in zoo.models}
    for model in zoo.models:
        found = plan(zoo, Selection(models=(model.name,)))
        assert found.models == (model.name,)


def test_the_zoo_has_what_the_default_matrix_has(default, zoo):
    """The default matrix is a first look at the zoo: the same releases, and no architecture more."""
    assert zoo.stacks == default.stacks
    known = {model.build.architecture for model in zoo.models if model.build}
    assert {model.build.architecture for model in default.models if model.build} <= known
