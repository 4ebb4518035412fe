"""The price of cells before they run: ranges of forwards and of bytes to read."""

import pytest

from samebits.matrix.levels import at_level
from samebits.matrix.spec import Matrix
from samebits.stacks.price import PricedCell, described, forwards, reads
from tests.support.builders import model_spec, stack_spec

MODEL = model_spec(greedy=12, reloads=False, relations=False)


def at(level, model=MODEL):
    stacks = (stack_spec("4.48"),)
    matrix = Matrix(path="m.yaml", stacks=stacks, reference="4.48", models=(model,))
    return at_level(matrix, level).models[0]


@pytest.mark.parametrize(
    ("level", "most"),
    [
        # one prompt: plain, watched, and if they differ layers, plain, attention; 12 steps; 2 for the first
        # token; short run b 1 + 2
        ("quick", 5 + 12 + 2 + 3),
        ("default", 5 + 12 + 2 + 3),
        ("deep", 5 + 12 + 2 + 2 + 12),
    ],
)
def test_forwards_of_what_the_verdict_needs(level, most):
    assert forwards(at(level), usage=False).most == most


def test_every_question_has_a_price():
    plain = forwards(MODEL, usage=False)
    for asked in ({"reloads": True}, {"relations": True}):
        assert forwards(MODEL.model_copy(update=asked), usage=False).most > plain.most
        assert reads(MODEL.model_copy(update=asked), usage=False).most > 4
    assert forwards(MODEL, usage=True).most > plain.most
    swept = MODEL.model_copy(update={"relations": True})
    most = forwards(swept, usage=False).most
    assert forwards(swept, usage=False, sweep=True).most > 4 * most


def test_no_decoding_costs_no_steps():
    most = forwards(MODEL.model_copy(update={"greedy": 0}), usage=False).most
    assert most == 5 + 1


def test_the_line_tells_a_range():
    cells = [PricedCell(at("quick"), 10**9, usage=False)] * 2
    assert described(cells, "quick") == (
        "2 new cells with --quick: 6 to 44 forwards, 6.0 to 8.0 GB of checkpoints to read; "
        "crossings, training and differences add to it"
    )


def test_what_is_not_known_is_said():
    cells = [PricedCell(MODEL, None, usage=False)]
    assert "forwards, 1 checkpoint of unknown size; " in described(cells, "default")
    both = [
        *cells,
        PricedCell(model_spec("gpt2", reloads=False, relations=False), 10**9, usage=False),
    ]
    assert "to read and 1 checkpoint of unknown size; " in described(both, "default")


def test_nothing_to_run_has_no_price():
    assert described([], "deep") == ""
