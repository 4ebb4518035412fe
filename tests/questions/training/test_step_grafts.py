"""A piece of the reference's loss that restores its step is named, if nothing put in does not."""

from samebits.questions.training.graft import graft
from samebits.questions.training.step_graft import StepDonor, StepGraftFile
from samebits.records.capture import Failure
from tests.support.builders import cell_id

DONOR = StepDonor(cell=cell_id("4.48"))


def run(*suspects, same=1, of=3, **more):
    return {"suspects": suspects, "same": same, "of": of} | more


def judged(*tried, rung="own", donor=DONOR, **more):
    patient = StepGraftFile.model_validate({"cell": cell_id("5.x"), "tried": tried} | more)
    return graft(donor, patient, "padded", rung)


def test_the_piece_that_restores_the_step_is_named():
    result = judged(run(), run("labels", same=3), run("ignore_index"))
    assert (result.smallest, result.proof, result.batch) == (("labels",), "alone", "padded")
    assert (
        result.headline
        == "with labels of the reference, loss and gradients have its bytes (3 of 3)"
    )
    assert "numbers in float64" in judged(run(), run("labels", same=3), rung="float64").headline


def test_a_part_of_the_loss_is_named_before_the_whole():
    result = judged(run(), run("labels", same=3), run("loss function", same=2, of=2))
    assert (result.smallest, result.others) == (("labels",), ("loss function",))
    alone = judged(run(), run("labels"), run("loss function", same=2, of=2))
    assert alone.smallest == ("loss function",)
    assert "the difference is in the loss" in alone.headline


def test_pieces_that_restore_only_together_are_proven_so():
    result = judged(run(), run("labels"), run("reduction"), run("labels", "reduction", same=3))
    assert (result.smallest, result.proof) == (("labels", "reduction"), "smallest")


def test_nothing_that_restores_proves_nothing():
    result = judged(run(), run("labels", same=2), run("loss function", same=1, of=2))
    assert (result.smallest, result.proof) == ((), "none")
    assert "labels, loss function were tried" in result.headline
    assert "nothing" in judged(run()).headline
    assert not judged(run(), run("labels", same=0, of=0, error="ValueError")).smallest


def test_a_step_that_is_the_references_anyway_is_no_proof():
    assert "with nothing put in" in judged(run(same=3), run("labels", same=3))
    assert "can be compared" in judged(run(same=0, of=0))
    assert "can be compared" in judged()


def test_what_does_not_fit_is_listed():
    result = judged(run(), untried=[("labels", "other positions")])
    assert [(u.what, u.reason) for u in result.untried] == [("labels", "other positions")]


def test_a_side_that_fails_or_leaks_is_a_reason():
    failure = Failure(phase="training", type="ValueError", message="no way", traceback="")
    assert judged(run(), failure=failure).endswith("@5.x: ValueError: no way")
    leaky = DONOR.model_copy(update={"leaks": ("mm",)})
    assert "lower precision than float64 comes out of mm" in judged(run(), donor=leaky)
