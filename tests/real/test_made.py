"""A model above the limit is asked through a made one, unless its own entry insists."""

import pytest

from samebits.reports.document import render
from tests.real.conftest import NEW, OLD
from tests.real.long_real_size import make
from tests.support.pages import beside_models

MATRIX = f"""
environments: ["{OLD}", "{NEW}"]
defaults: {{greedy: 2, questions: [relations, usage]}}
models:
  large: {{path: model}}
"""


ITSELF = "  itself: {path: model, relations: true}\n"


def reported(run_in, folder, matrix):
    """Return the rows of a model above the limit, and the page of the report beside them."""
    assert make(folder / "model", layers=3, vocabulary=2000) > 64 << 20
    (folder / "matrix.yaml").write_text(matrix)
    report = run_in(folder, jobs=2)
    return {row.model: row for row in report.rows}, beside_models(render(report))


@pytest.fixture(scope="module")
def rows(run_in, tmp_path_factory):
    return reported(run_in, tmp_path_factory.mktemp("made"), MATRIX)


@pytest.fixture(scope="module")
def with_itself(run_in, tmp_path_factory):
    """Ask the model itself, too, which takes twenty times as long."""
    return reported(run_in, tmp_path_factory.mktemp("itself"), MATRIX + ITSELF)


def answers_of(row):
    return [row.answers[question].stacks for question in ("relations", "usage")]


def test_a_made_model_answers_in_every_stack(rows):
    of_model, text = rows
    for signals in answers_of(of_model["large"]):
        assert signals.keys() == {OLD, NEW}
        assert {signal.asked_of.n_layers for signal in signals.values()} == {2}
    assert "checked with a tiny model of 2 layers" in text


@pytest.mark.long
def test_the_model_itself_answers_if_its_entry_asks(with_itself):
    of_model, _ = with_itself
    for signals in answers_of(of_model["itself"]):
        assert signals.keys() == {OLD, NEW}
        assert {signal.asked_of for signal in signals.values()} == {None}


@pytest.mark.long
def test_both_say_the_same_of_a_sound_class(with_itself):
    of_model, _ = with_itself
    tried = [
        # a made model is not asked for those of embeddings
        {
            relation.relation
            for relation in signal.relations
            if "embeddings" not in relation.relation
        }
        for row in of_model.values()
        for signal in row.answers["relations"].stacks.values()
    ]
    assert all(names == tried[0] for names in tried)
    answers = [
        (signal.saved.files, signal.checkpointing, signal.strategies)
        for stack in (OLD, NEW)
        for signal in (row.answers["usage"].stacks[stack] for row in of_model.values())
    ]
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
