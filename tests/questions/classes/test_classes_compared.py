"""Loads by other classes on two sides: what is accused, and what the verdict or another finding has."""

import pytest

from samebits.questions.classes.compare import differences
from samebits.questions.classes.records import ClassesSignal
from samebits.questions.classes.section import SECTION
from tests.support.asked import findings_of, report_of

READ = {
    "model_class": "BertModel",
    "n_tensors": 40,
    "n_left": 2,
    "elements": 1000,
    "elements_left": 20,
    "left": ("cls.bias", "cls.weight"),
    "n_fresh": 1,
    "fresh": ("pooler.weight",),
    "outputs": "same bits",
}
UNREAD = READ | {"n_left": 40, "elements_left": 1000, "n_fresh": 39, "outputs": "other bits"}
OTHER_BITS = READ | {"outputs": "other bits"}
OWN = {"model_class": "BertModel"}
HEAD = READ | {
    "model_class": "BertForTokenClassification",
    "dtype": "float64",
    "base_numbers": {"last_hidden_state(1, 2)": (0.5, -2.0)},
    "numbers": {"loss()": (0.7, 0.7), "logits(1, 2)": (1.0, -2.0)},
}


def head(loss=0.7, logits=(1.0, -2.0), base=(0.5, -2.0), **changed):
    return (
        HEAD
        | changed
        | {
            "base_numbers": {"last_hidden_state(1, 2)": base},
            "numbers": {"loss()": (loss, loss), "logits(1, 2)": logits},
        }
    )


def saved_base(load):
    name = "base_model, saved alone, by BertForMaskedLM"
    return ClassesSignal.model_validate({"from_base": {name: load} if load else {}})


def signal(load):
    return ClassesSignal.model_validate({"loads": {"AutoModel": load} if load else {}})


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (READ, UNREAD, "tensors"),
        (UNREAD, READ, "tensors"),
        (READ, OTHER_BITS, "outputs"),
        (OTHER_BITS, READ, "outputs"),
        (READ, READ | {"model_class": "BertEncoder"}, "class"),
        (READ, None, "class"),
        (READ, READ, None),
        (OWN, OWN, None),
        # a release that has a class more has nothing to answer for
        (None, READ, None),
        # both base models compute what that of the own class does not
        (OTHER_BITS, OTHER_BITS, None),
        (READ, READ | {"outputs": None}, None),
        # fused tensors are fewer, with the same elements
        (READ, READ | {"n_tensors": 30, "n_left": 1}, None),
        # the own class reads a tensor more or less, which this one has or has not
        (READ, READ | {"elements": 1100, "elements_left": 120}, None),
        (READ, READ | {"elements": 1100}, None),
        # SB931 and SB932
        (READ, {"model_class": "BertModel", "raised": "KeyError: 'x'"}, None),
        (READ, {"model_class": "BertModel", "left_out": "ImportError: timm"}, None),
    ],
)
def test_what_only_one_side_reads_is_accused(before, after, kind):
    found = [each.kind for each in differences(signal(before), signal(after))]
    assert found == ([kind] if kind else [])


WHOLE = READ | {"n_left": 0, "elements_left": 0, "left": ()}
LEFT = WHOLE | {"n_left": 3, "elements_left": 30, "left": ("pooler.weight",)}


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (WHOLE, LEFT, "SB312"),
        (WHOLE, WHOLE | {"outputs": "other bits"}, "SB314"),
        (WHOLE, WHOLE | {"raised": "KeyError: 'planted'"}, "SB931"),
        (WHOLE, WHOLE, None),
        # a part that has more tensors in one release, and a release without a base model
        (WHOLE, WHOLE | {"elements": 500}, None),
        (LEFT, LEFT | {"elements_left": 60}, None),
        (WHOLE, None, None),
    ],
)
def test_a_base_model_that_one_side_does_not_read_with_its_head_is_accused(before, after, code):
    for pair in ((before, after), (after, before)):
        found = findings_of("classes", *map(saved_base, pair))
        codes = {code, *({"SB932"} if code == "SB931" else ())} - {None}
        assert found.keys() <= codes
        assert bool(found) == bool(codes)
    report = report_of("classes", saved_base(before), saved_base(after))
    assert ("base_model, saved alone" in SECTION.of_run(report)) == (code in {"SB312", "SB314"})


@pytest.mark.parametrize(
    ("after", "is_accused"),
    [
        (head(loss=0.8), True),
        (head(logits=(1.0, -2.1)), True),
        (head(logits=(1.003, -2.0)), True),
        (HEAD, False),
        # what rounds, in float64 with casts to float32, and in float32
        (head(logits=(1.001, -2.0)), False),
        (head(logits=(1.01, -2.0), dtype="float32"), False),
        (head(logits=(1.03, -2.0), dtype="float32"), True),
        # the base model moved, a little or far, or did not run
        (head(loss=0.8, base=(0.5001, -2.0)), False),
        (head(loss=0.8, base=(1.5, -2.0)), False),
        (head(loss=0.8) | {"base_numbers": {}, "numbers": {}, "dtype": None}, False),
        # the prompt has another length, as a tokenizer splits it otherwise
        (head(loss=0.8) | {"base_numbers": {"last_hidden_state(1, 3)": (0.5, -2.0)}}, False),
        # the head is filled in another order
        (head(loss=0.8, fresh=("classifier.weight",)), False),
        (head(loss=0.8, n_fresh=9), False),
        # only outputs that both have, of the same shape
        (head() | {"numbers": {"loss()": (0.7, 0.7), "logits(1, 3)": (9.0, 9.0, 9.0)}}, False),
    ],
)
def test_a_head_is_accused_where_its_base_model_computes_the_same(after, is_accused):
    for pair in ((HEAD, after), (after, HEAD)):
        found = [each.kind for each in differences(*map(signal, pair))]
        assert found == (["head"] if is_accused else [])


def test_the_finding_of_a_head_shows_what_each_side_computes():
    found = found_in(HEAD, head(loss=0.8))
    assert found.keys() == {"SB315"}
    assert found["SB315"].where == "BertForTokenClassification.forward"
    assert found["SB315"].evidence == (
        "4.48: loss 0.7",
        "5.x: loss 0.8",
        "the base model below it computes the same",
    )
    report = report_of("classes", signal(HEAD), signal(head(loss=0.8)))
    for text in (SECTION.of_run(report), SECTION.of_model(list(report.rows), report)):
        assert "computes loss 0.7" in text
        assert "computes loss 0.8" in text


def test_a_forward_that_raises_on_one_side_is_named_with_its_exception():
    found = found_in(HEAD, HEAD | {"forward_raised": "ValueError: planted"})
    assert found.keys() == {"SB931"}


def found_in(before, after):
    return findings_of("classes", signal(before), signal(after))


def test_findings_say_what_each_side_reads():
    found = found_in(UNREAD, READ)
    assert found.keys() == {"SB312"}
    assert found["SB312"].where == "AutoModel.from_pretrained"
    reference, candidate = found["SB312"].evidence
    assert reference.startswith("4.48: BertModel: 0 of 40 tensors read; 39 of its own missing")
    assert candidate.startswith("5.x: BertModel: 38 of 40 tensors read; 1 of its own missing")
    assert found["SB312"].of_reference
    assert not found_in(READ, UNREAD)["SB312"].of_reference
    assert found_in(READ, OTHER_BITS).keys() == {"SB314"}
    assert not found_in(READ, OTHER_BITS)["SB314"].of_reference
    assert found_in(OTHER_BITS, READ)["SB314"].of_reference
    assert found_in(READ, OWN | {"model_class": "BertEncoder"})["SB313"].evidence[1] == (
        "5.x: BertEncoder, the checkpoint's own class"
    )
    assert found_in(READ, None)["SB313"].evidence[1] == "5.x: no class for this config"
    assert not found_in(READ, READ)
    rounds = READ | {"outputs": "rounding"}
    assert not found_in(READ, rounds)
    assert not found_in(rounds, READ)
    assert found_in(rounds, OTHER_BITS).keys() == {"SB314"}


def test_a_load_that_raises_on_one_side_is_named_with_its_exception():
    found = found_in(READ, {"model_class": "BertModel", "raised": "KeyError: 'planted'"})
    assert found.keys() == {"SB931"}
    assert "planted" in " ".join(found["SB931"].evidence)


def test_sections_say_what_each_side_reads():
    report = report_of("classes", signal(READ), signal(UNREAD))
    for text in (SECTION.of_run(report), SECTION.of_model(list(report.rows), report)):
        assert "AutoModel" in text
        assert "0 of 40 tensors read" in text


NEW = {"norm.weight": "bfloat16", "inv_freq": "float32", "head.weight": "bfloat16"}


def made(dtypes, asked="bfloat16"):
    dtypes = {
        name: dtype if isinstance(dtype, tuple) else (dtype,) for name, dtype in dtypes.items()
    }
    return ClassesSignal.model_validate({"made": {"asked": {"asked": asked, "dtypes": dtypes}}})


@pytest.mark.parametrize("asked", ["bfloat16", "float32", ""])
def test_a_new_model_with_another_dtype_than_in_the_reference_is_accused(asked):
    before = dict.fromkeys(NEW, "float32") | {"head.weight": asked or "float32"}
    after = before | {"norm.weight": ("bfloat16", "float32") if asked == "bfloat16" else "float64"}
    found = findings_of("classes", made(before, asked), made(after, asked))
    assert found.keys() == {"SB316"}
    assert found["SB316"].where == "from_config, asked"
    assert found["SB316"].evidence[0] == "under 4.48 or 5.x"
    assert found["SB316"].evidence[1].startswith("norm.weight: float32 or ")
    assert len(found["SB316"].evidence) == 2


def test_a_new_model_that_has_what_was_asked_for_is_no_defect_of_its_release():
    """CSM of 4.57 makes its parts in float32 whatever is asked for, and 5.24 in bfloat16."""
    sides = made(dict.fromkeys(NEW, "float32")), made(dict.fromkeys(NEW, "bfloat16"))
    assert findings_of("classes", *sides)["SB316"].of_reference
    assert not findings_of("classes", *reversed(sides))["SB316"].of_reference


def test_a_new_model_with_fewer_bits_than_were_asked_for_is_accused_in_its_own_release():
    clean, planted = (
        dict.fromkeys(NEW, "float32"),
        dict.fromkeys(NEW, "float32") | {"alpha": "bfloat16"},
    )
    clean |= {"alpha": "float32"}
    found = findings_of("classes", made(clean, "float32"), made(planted, "float32"))
    assert found["SB316"].evidence == ("alpha: bfloat16",)
    assert not findings_of("classes", made(planted, "float32"), made(clean, "float32"))
    many = {f"alpha_{i}": "float16" for i in range(9)}
    found = findings_of("classes", made(many, "float32"), made(many, "float32"))
    assert found["SB316"].evidence[-1] == "and 5 more tensors"


@pytest.mark.parametrize(
    "after",
    [
        NEW,
        # a tensor that one release alone has
        NEW | {"original_inv_freq": "float32"},
        {"norm.weight": "bfloat16"},
        {},
    ],
)
def test_a_new_model_as_in_the_reference_is_not_accused(after):
    assert not findings_of("classes", made(NEW), made(after))
    # what stays in float32 has more bits than were asked for
    assert not findings_of("classes", ClassesSignal(), made(after))


def test_a_new_model_that_raises_on_one_side_is_named_with_its_exception():
    raises = {"made": {"dtype=bfloat16": {"raised": "ValueError: planted"}}}
    works = {"made": {"dtype=bfloat16": {"asked": "bfloat16", "dtypes": {}}}}
    sides = [ClassesSignal.model_validate(side) for side in (works, raises)]
    for pair in (sides, sides[::-1]):
        found = findings_of("classes", *pair)
        assert found.keys() == {"SB931"}
        assert "dtype=bfloat16" in found["SB931"].where


def of_masks(load):
    loads = {"AutoModel": OWN, "AutoModelForMaskGeneration": load}
    return ClassesSignal.model_validate({"loads": {n: v for n, v in loads.items() if v}})


def test_a_table_that_lacks_a_class_which_the_release_has_is_the_references_defect():
    found = findings_of("classes", of_masks({"model_class": ""}), of_masks(OWN))
    assert found.keys() == {"SB313"}
    assert found["SB313"].of_reference
    assert found["SB313"].evidence[0].endswith("no class for this config")


def test_a_new_class_and_a_new_table_are_no_defect():
    new = {"model_class": "BertForMasks"}
    assert findings_of("classes", of_masks({"model_class": ""}), of_masks(new)) == {}
    assert findings_of("classes", of_masks(None), of_masks(OWN)) == {}
    assert findings_of("classes", of_masks({"model_class": ""}), of_masks(None)) == {}
    assert (
        findings_of("classes", of_masks({"model_class": ""}), of_masks({"model_class": ""})) == {}
    )


def test_a_table_that_lost_its_class_is_the_candidates_defect():
    found = findings_of("classes", of_masks(OWN), of_masks({"model_class": ""}))
    assert found.keys() == {"SB313"}
    assert not found["SB313"].of_reference
