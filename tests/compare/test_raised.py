"""Exceptions in checks: one-sided ones differ, equal ones are no observation, the machine's are nothing."""

import pytest

from samebits.compare.raised import checks
from samebits.questions.classes.records import ClassesSignal
from samebits.questions.relations.records import Inapplicable, Relation, RelationsSignal
from samebits.questions.usage.records import Assisted, Features, Packed, PackedWay, UsageSignal
from samebits.records.capture import Failure, Skip
from samebits.records.evidence import EvidenceSignal
from samebits.records.provenance import IntegritySignal
from tests.support.builders import capture

ERROR = "TypeError: Unsupported dtype float8_e4m3fn"


def integrity(**raised):
    names = {name.replace("_", " "): text for name, text in raised.items()}
    return {"integrity": IntegritySignal(poison="0xa5", raised=names)}


def usage(**fields):
    return {"usage": UsageSignal(**fields)}


def classes(**load):
    return {"classes": ClassesSignal.model_validate({"loads": {"AutoBackbone": load}})}


def packed(refused):
    ways = (PackedWay(way="no mask", refused=refused), PackedWay(way="mask"))
    return usage(packed=Packed(ordinary=1.0, ways=ways), raised={"packed": ""})


def relations(*, refused):
    name = "cache contents"
    if refused:
        entry = Inapplicable(relation=name, reason=ERROR, raised=True)
        return {"relations": RelationsSignal(inapplicable=(entry,))}
    return {"relations": RelationsSignal(relations=(Relation(relation=name, case="", holds=True),))}


SKIPPED = {"skips": (Skip(what="integrity", reason=ERROR, raised=True, why="instrument"),)}
PAIRS = {
    "a whole phase": (integrity(), SKIPPED, "integrity"),
    "a question of a phase": (
        integrity(load_without_a_dtype=""),
        integrity(load_without_a_dtype=ERROR),
        "integrity load without a dtype",
    ),
    "a use": (usage(raised={"beams": ""}), usage(raised={"beams": ERROR}), "usage beams"),
    "an argument of generate()": (
        usage(strategies={"dola_layers": ""}),
        usage(strategies={"dola_layers": ERROR}),
        "usage strategies dola_layers",
    ),
    "a way of a use": (packed(""), packed(ERROR), "usage packed ways no mask"),
    "a field of its own name": (
        usage(assisted=Assisted(min_new_tokens="")),
        usage(assisted=Assisted(min_new_tokens=ERROR)),
        "usage assisted min_new_tokens",
    ),
    "a load with eager attention": (
        {"evidence": EvidenceSignal(raised={"eager": ""})},
        {"evidence": EvidenceSignal(raised={"eager": ERROR})},
        "evidence eager",
    ),
    "a relation": (
        relations(refused=False),
        relations(refused=True),
        "relations cache contents",
    ),
}


def sides(answers, raises):
    return capture(**answers), capture("5.x", **raises)


@pytest.mark.parametrize(("answers", "raises", "name"), PAIRS.values(), ids=PAIRS)
def test_what_answers_on_one_side_and_raises_on_the_other_differs(answers, raises, name):
    reference, candidate = sides(answers, raises)
    (check,) = checks(reference, candidate)
    assert (check.name, check.reference, check.candidate) == (name, "", ERROR)
    assert check.differs
    (reverse,) = checks(candidate, reference)
    assert (reverse.reference, reverse.candidate, reverse.differs) == (ERROR, "", True)


@pytest.mark.parametrize(("answers", "raises", "name"), PAIRS.values(), ids=PAIRS)
def test_two_answers_are_none_of_it_and_two_exceptions_no_difference(answers, raises, name):
    assert checks(*sides(answers, answers)) == ()
    (check,) = checks(*sides(raises, raises))
    assert (check.name, check.differs, check.is_same) == (name, False, True)


def test_a_check_that_a_side_did_not_make_says_nothing():
    reference, candidate = sides({}, SKIPPED)  # the reference has no such signal at all
    assert checks(reference, candidate) == ()
    not_asked = {"skips": (Skip(what="integrity", reason="--quick leaves it out", why="level"),)}
    assert checks(*sides(not_asked, SKIPPED)) == ()
    unfinished = capture(status="unfinished", **integrity())
    assert checks(unfinished, capture("5.x", **SKIPPED)) == ()
    assert checks(*sides(usage(raised={}), usage(raised={"beams": ERROR}))) == ()


@pytest.mark.parametrize(
    "not_made",
    [
        {"usage": UsageSignal(features={"get_image_features": Features(left_out="no image")})},
        classes(model_class="", raised=""),
        classes(model_class="DetrModel", left_out="timm is missing"),
    ],
)
def test_what_a_side_left_out_is_no_answer(not_made):
    of_usage = "usage" in not_made
    raising = (
        usage(features={"get_image_features": Features(refused=ERROR)})
        if of_usage
        else classes(model_class="DetrModel", raised=ERROR)
    )
    answering = (
        usage(features={"get_image_features": Features(shape=(1,))})
        if of_usage
        else classes(model_class="DetrModel")
    )
    assert checks(*sides(not_made, raising)) == ()
    assert checks(*sides(raising, not_made)) == ()
    assert [check.differs for check in checks(*sides(answering, raising))] == [True]


@pytest.mark.parametrize("text", ["OutOfMemoryError: CUDA", "OSError: disk", "MemoryError: "])
def test_a_fault_of_the_machine_is_no_difference(text):
    skips = (Skip(what="integrity", reason=text, raised=True, why="instrument"),)
    assert checks(*sides(integrity(), {"skips": skips})) == ()


def test_a_phase_that_only_explains_is_a_check_and_a_forward_is_none():
    def failing(phase):
        failure = Failure(phase=phase, type="KeyError", message="'x'", traceback="")
        return capture("5.x").model_copy(update={"failures": (failure,)})

    answering = capture(**usage())
    (check,) = checks(answering, failing("usage"))
    assert (check.name, check.candidate) == ("usage", "KeyError: 'x'")
    assert checks(answering, failing("forward short")) == ()


def test_other_exceptions_are_told_apart_from_the_same_one():
    other = "TypeError: forward() got an unexpected keyword argument 'cache_position'"
    (check,) = checks(*sides(usage(raised={"beams": ERROR}), usage(raised={"beams": other})))
    assert not check.differs
    assert not check.is_same
