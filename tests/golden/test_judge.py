"""Why values of a test differ: runs of a test made by hand, with answers about its call."""

import numpy as np
import pytest

from samebits.golden import judge
from samebits.golden.judge import Asked
from samebits.golden.records import Called, Change, Compared, Watched
from samebits.golden.running import Runs
from tests.support.builders import Memory

OLD = [[0.1234, -1.5], [2.0, 3.25]]


class Story:
    """A test that calls a model once and compares a slice of its output with expected values."""

    def __init__(self):
        self.memory = Memory()
        self.expected = np.float32(OLD)

    def side(
        self,
        actual,
        exact=None,
        *,
        holds=True,
        expected=None,
        again=None,
        output=(0, "logits"),
        **call,
    ):
        """Return the runs in one environment; ``exact`` are its values in float64."""
        args = {"holds": holds, "output": output, "call": call}
        wanted = self.expected if expected is None else expected
        return Runs(
            self.run(np.float32(actual), wanted, **args),
            self.run(np.float32(actual if again is None else again), wanted, **args),
            None if exact is None else self.run(np.float64(exact), wanted, **args),
        )

    def run(self, actual, expected, holds, output, call):
        values = self.memory.put(actual), self.memory.put(expected)
        place = {
            "test": "test_a.py::test_a",
            "file": "test_a.py",
            "line": 9,
            "code": "assert_close(a, b)",
        }
        compared = Compared(
            **place,
            function="torch.testing.assert_close",
            rtol=0,
            atol=1e-4,
            holds=holds,
            values=values,
            calls=(output, None),
            before=1,
        )
        fields = {
            "number": 0,
            "test": "test_a.py::test_a",
            "model_class": "transformers:LlamaForCausalLM",
            "source": "/ckpt",
            "made": False,
            "state": "1",
            "dtype": "float32",
            "attention": "default",
            "device": "cpu",
            "training": False,
            "inputs": {"input_ids": self.memory.put(np.array([[1, 2]]))},
            "outputs": {"logits": "h"},
        }
        return Watched(
            code=0,
            transformers="5.0",
            torch="2.13.0",
            outcomes={},
            compared=(compared,),
            called=(Called(**fields | call),),
            left_out=0,
        )

    def judged(self, reference, candidate, *changes, reproduced=(True, True)):
        (pair,) = judge.pairs(reference, candidate)
        asked = [Asked(changes, reproduced)] if judge.to_ask(pair) else []
        return judge.judgement(pair, asked, self.memory)


@pytest.fixture
def story():
    return Story()


def change(verdict, package="transformers", **more):
    return Change(
        package=package, before="5.0", after="5.1", verdict=verdict, headline="it", **more
    )


def moved(by):
    return (np.float64(OLD) + by).tolist()


def test_rounding_gives_the_new_values_as_the_old_ones_were_written(story):
    reference = story.side(OLD, OLD)
    candidate = story.side(moved(3e-4), moved(1e-13), holds=False)
    judged = story.judged(reference, candidate, change("rounding"))
    assert (judged.kind, judged.reason) == ("rounding", "")
    assert judged.new == "torch.tensor([[0.1237, -1.4997], [2.0003, 3.2503]])"
    assert judged.holds == (True, False)


def test_another_function_gives_no_new_values(story):
    candidate = story.side(moved(0.3), moved(0.3), holds=False)
    judged = story.judged(story.side(OLD, OLD), candidate, change("diverged"))
    assert (judged.kind, judged.new) == ("behaviour change", "")


def test_values_that_agree_in_float64_are_not_accused_for_what_the_model_does_elsewhere(story):
    candidate = story.side(moved(3e-4), moved(1e-13), holds=False)
    judged = story.judged(story.side(OLD, OLD), candidate, change("diverged"))
    assert judged.kind == "undecided"


def test_a_model_that_only_rounds_does_not_excuse_values_that_differ_in_float64(story):
    candidate = story.side(moved(0.3), moved(0.3), holds=False)
    assert story.judged(story.side(OLD, OLD), candidate, change("rounding")).kind == "undecided"


@pytest.mark.parametrize("reproduced", [(False, True), (True, False)])
def test_a_call_that_gives_other_bits_outside_of_the_test_accuses_nobody(story, reproduced):
    candidate = story.side(moved(0.3), moved(0.3), holds=False)
    judged = story.judged(
        story.side(OLD, OLD), candidate, change("diverged"), reproduced=reproduced
    )
    assert judged.kind == "undecided"
    assert "other bits" in judged.reason


def test_a_table_that_torch_rounds_otherwise_is_no_other_function(story):
    candidate = story.side(moved(0.01), moved(0.01), holds=False)
    kept = change("diverged", "torch", constant="inv_freq")
    assert story.judged(story.side(OLD, OLD), candidate, kept).kind == "undecided"
    both = [kept, change("diverged")]
    assert story.judged(story.side(OLD, OLD), candidate, *both).kind == "behaviour change"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"constants": {"use_cache": False}}, "other inputs"),
        ({"dtype": "bfloat16"}, "other weights"),
        ({"source": "/other"}, "other weights"),
        ({"made": True}, "other weights"),
        ({"model_class": "transformers:LlamaModel"}, "undecided"),
    ],
)
def test_what_differs_before_the_call_is_named_and_nothing_is_asked(story, given, kind):
    candidate = story.side(moved(0.3), moved(0.3), holds=False, **given)
    assert story.judged(story.side(OLD, OLD), candidate).kind == kind


def test_a_model_with_random_weights_that_are_drawn_otherwise(story):
    reference = story.side(OLD, OLD, made=True)
    candidate = story.side(moved(0.3), moved(0.3), holds=False, made=True, state="2")
    judged = story.judged(reference, candidate)
    assert judged.kind == "other weights"
    assert "other weights before the call" in judged.reason


def test_other_weights_of_the_same_files_are_the_releases_doing(story):
    candidate = story.side(moved(0.3), moved(0.3), holds=False, state="2")
    judged = story.judged(story.side(OLD, OLD), candidate, change("diverged"))
    assert judged.kind == "behaviour change"


def test_the_same_bits_of_the_model_leave_what_comes_behind_it(story):
    candidate = story.side(moved(0.3), moved(0.3), holds=False)
    assert (
        story.judged(story.side(OLD, OLD), candidate, change("identical")).kind == "after the model"
    )
    rounds = story.side(moved(3e-4), moved(1e-13), holds=False)
    assert story.judged(story.side(OLD, OLD), rounds, change("identical")).kind == "rounding"


def test_a_test_that_gives_other_values_each_time(story):
    candidate = story.side(moved(0.3), holds=False, again=moved(0.4))
    judged = story.judged(story.side(OLD), candidate)
    assert judged.kind == "not repeatable"
    assert "candidate" in judged.reason


def test_two_computed_values_are_no_golden_ones(story):
    candidate = story.side(moved(0.3), expected=np.float32(moved(0.2)), holds=False)
    assert story.judged(story.side(OLD), candidate).kind == "not golden"


def test_the_same_values_in_both(story):
    assert (
        story.judged(story.side(OLD), story.side(OLD)).reason
        == "the environments compute the same values"
    )


def test_values_recorded_elsewhere_are_measured_against_float64(story):
    exact = moved(2e-5)
    near = story.judged(
        story.side(moved(2.01e-5), exact, holds=False),
        story.side(moved(2.01e-5), exact, holds=False),
    )
    assert near.kind == "same"
    assert "as near to the exact values as rounding leaves them" in near.reason
    exact = moved(0.01)
    far = story.judged(story.side(exact, exact, holds=False), story.side(exact, exact, holds=False))
    assert "coarser kernels" in far.reason


def test_values_that_were_wrong_before_are_not_replaced_for_rounding(story):
    reference = story.side(moved(0.5), moved(0.5), holds=False)
    candidate = story.side(moved(0.5003), moved(0.5), holds=False)
    judged = story.judged(reference, candidate, change("rounding"))
    assert (judged.kind, judged.new) == ("rounding", "")
    assert "recorded elsewhere" in judged.reason


@pytest.mark.parametrize("unable", ["generate() computed it, in many forwards"])
def test_where_the_call_cannot_be_made_again_float64_alone_may_excuse_and_not_accuse(story, unable):
    rounds = story.side(moved(3e-4), moved(1e-13), holds=False, unable=unable)
    judged = story.judged(story.side(OLD, OLD, unable=unable), rounds)
    assert judged.kind == "rounding"
    assert unable in judged.reason
    other = story.side(moved(0.3), moved(0.3), holds=False, unable=unable)
    assert story.judged(story.side(OLD, OLD, unable=unable), other).kind == "undecided"


def test_values_that_a_test_casts_have_no_float64(story):
    reference, candidate = story.side(OLD), story.side(moved(0.3), holds=False)
    cast = reference._replace(exact=story.side(OLD).first)
    judged = story.judged(cast, candidate._replace(exact=candidate.first), change("rounding"))
    assert (judged.kind, judged.exact) == ("rounding", ())


def test_the_value_that_no_call_returned_is_the_expected_one(story):
    swapped = [story.side(OLD), story.side(moved(0.3), holds=False)]
    for number, runs in enumerate(swapped):
        (compared,) = runs.first.compared
        turned = compared.model_copy(
            update={"values": compared.values[::-1], "calls": compared.calls[::-1]}
        )
        first = runs.first.model_copy(update={"compared": (turned,)})
        swapped[number] = runs._replace(first=first, again=first)
    (pair,) = judge.pairs(*swapped)
    assert (pair.golden, pair.actual) == (0, 1)
