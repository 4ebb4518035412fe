"""Arguments of forward on two sides: what is accused, and what is not decided."""

import pytest

from samebits.findings.case import Case
from samebits.questions.arguments.compare import differences, other_states
from samebits.questions.arguments.records import ArgumentsSignal
from samebits.questions.arguments.section import SECTION
from samebits.questions.registry import findings
from samebits_wire.arguments import STREAMS
from tests.support.asked import findings_of, report_of
from tests.support.builders import Memory, sound

READ = {"named": True, "effect": "other numbers"}
NONE = {"named": False, "effect": "none"}
RAISES = {
    "named": False,
    "effect": "raises",
    "message": "TypeError: forward() got an unexpected keyword argument 'head_mask'",
}


def signal(effect, method="effects"):
    return ArgumentsSignal.model_validate({method: {"head_mask": effect}})


def kinds(before, after):
    return [each.kind for each in differences(signal(before), signal(after))]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (READ, NONE, "ignored"),
        # a release before the argument has nothing to answer for
        (NONE, READ, None),
        (RAISES, READ, None),
        # that names it, and does not read it
        (NONE | {"named": True}, READ, "ignored"),
        (RAISES | {"named": True}, READ, "refused"),
        (RAISES | {"named": True}, NONE | {"named": True}, None),
        (RAISES | {"named": True}, {"named": True, "effect": "rounding"}, None),
        (READ, RAISES, "refused"),
        ({"named": True, "effect": "another shape"}, NONE, "ignored"),
        (READ, READ, None),
        (READ, {"named": True, "effect": "another shape"}, None),
        # what another CPU may show as no effect
        (READ, {"named": True, "effect": "rounding"}, None),
        ({"named": True, "effect": "rounding"}, NONE, None),
        # too little for any CPU to show what the argument asks for
        (READ, {"named": True, "effect": "order of sums"}, "ignored"),
        ({"named": True, "effect": "order of sums"}, READ, "ignored"),
        ({"named": True, "effect": "order of sums"}, NONE, None),
        # it had no effect to lose
        ({"named": True, "effect": "none"}, RAISES, None),
        # no side promises an effect
        (READ | {"named": False}, NONE, None),
    ],
)
def test_what_one_side_reads_and_the_other_does_not_is_accused(before, after, kind):
    assert kinds(before, after) == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (READ, NONE, "ignored"),
        (READ, RAISES, "refused"),
        # another way to the same tokens has no effect to lose, and may be refused
        ({"named": True, "effect": "none"}, RAISES, "refused"),
        ({"named": True, "effect": "rounding"}, RAISES, "refused"),
        # a default of the reference may hide it
        ({"named": True, "effect": "none"}, READ, None),
        (RAISES, READ, None),
        (RAISES, NONE, None),
        (RAISES | {"named": True}, NONE | {"named": True}, "refused"),
        (RAISES | {"named": True}, RAISES | {"named": True}, None),
        (READ, READ, None),
        ({"named": True, "effect": "rounding"}, NONE, None),
        ({"named": False, "effect": "none"}, RAISES, None),
    ],
)
def test_arguments_of_generate(before, after, kind):
    sides = (signal(effect, "generate") for effect in (before, after))
    found = [(each.method, each.kind) for each in differences(*sides)]
    assert found == ([("generate", kind)] if kind else [])


def test_arguments_stand_in_the_order_of_the_reference():
    names = [f"argument_{number}" for number in (3, 1, 4, 5, 9, 2, 6, 8, 7)]
    sides = (
        ArgumentsSignal.model_validate({"effects": dict.fromkeys(names, e)}) for e in (READ, NONE)
    )
    assert [each.argument for each in differences(*sides)] == names


def codes_of(before, after, method="effects"):
    return findings_of("arguments", signal(before, method), signal(after, method))


def test_findings_name_the_argument_and_both_effects():
    found = codes_of(READ, NONE)
    assert found.keys() == {"SB926"}
    assert found["SB926"].where == "forward(head_mask=…)"
    assert not found["SB926"].of_reference
    assert codes_of(NONE | {"named": True}, READ)["SB926"].of_reference
    assert found["SB926"].evidence == (
        "4.48: other numbers",
        "5.x: no effect; forward does not name it",
    )
    refused = codes_of(READ, RAISES)
    assert refused.keys() == {"SB927"}
    assert "unexpected keyword argument" in refused["SB927"].evidence[1]
    assert not codes_of(READ, READ)
    ignored = codes_of(READ, NONE, "generate")
    assert ignored.keys() == {"SB928"}
    assert ignored["SB928"].where == "generate(head_mask=…)"
    assert ignored["SB928"].evidence[1] == "5.x: no effect; generate does not name it"
    assert codes_of(READ, RAISES, "generate").keys() == {"SB929"}
    assert not codes_of(READ, READ, "generate")


@pytest.mark.parametrize(
    ("argument", "codes"),
    [
        ("assistant_model (of another tokenizer)", {"SB958"}),
        ("assistant_model (its decoder)", {"SB929"}),
        ("assistant_model", {"SB929"}),
        ("assistant_early_exit", {"SB958"}),
        ("prefill_chunk_size", {"SB958"}),
        ("prefill_chunk_size (with more than text)", {"SB929"}),
        ("watermarking_config (as a dict)", {"SB958"}),
    ],
)
def test_what_a_release_refuses_whatever_the_model_is_of_the_release(argument, codes):
    sides = (
        ArgumentsSignal.model_validate({"generate": {argument: effect}})
        for effect in ({"named": True, "effect": "none"}, RAISES | {"named": True})
    )
    assert findings_of("arguments", *sides).keys() == codes


def lookups(effect, argument="prompt_lookup_num_tokens"):
    effects = {argument: {"named": True, "effect": effect}}
    return ArgumentsSignal.model_validate({"generate": effects})


@pytest.mark.parametrize(
    ("before", "after", "of_reference"),
    [
        ("another shape", "none", True),
        ("rounding", "another shape", False),
        # tokens end otherwise on both sides, or on none
        ("another shape", "another shape", None),
        ("none", "none", None),
        ("none", "rounding", None),
    ],
)
def test_a_way_to_the_same_tokens_that_ends_otherwise_is_named(before, after, of_reference):
    found = findings_of("arguments", lookups(before), lookups(after))
    assert found.keys() == (set() if of_reference is None else {"SB962"})
    if of_reference is not None:
        assert found["SB962"].of_reference is of_reference
    # what is there to change the tokens is the question of others
    others = (lookups(effect, "num_beams") for effect in (before, after))
    assert "SB962" not in findings_of("arguments", *others)


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("raises", "other numbers", {"SB896", "SB929"}),
        ("none", "order of sums", set()),
        # each cell answers for itself, as the reference does in its own
        ("other numbers", "none", set()),
        ("other numbers", "other numbers", {"SB896"}),
    ],
)
def test_codes_without_a_cache_are_those_with_it_or_the_release_is_named(before, after, codes):
    name = f"use_cache ({STREAMS})"
    found = findings_of("arguments", lookups(before, name), lookups(after, name))
    assert found.keys() == codes
    # rows of token ids are the question of relations
    sides = (lookups(effect, "use_cache") for effect in (before, after))
    assert "SB896" not in findings_of("arguments", *sides)


def counted(without, with_it, name="max_length"):
    numbers = {"without": (without,), "numbers": (with_it,)}
    effect = {"named": True, "effect": "another shape", "message": f"{without} to {with_it}"}
    return ArgumentsSignal.model_validate({"generate": {name: effect | numbers}})


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ((94, 92), (94, 93), {"SB949"}),
        ((94, 92), (94, 92), set()),
        # without the argument one side stops earlier
        ((94, 92), (93, 92), set()),
    ],
)
def test_an_argument_that_leads_to_another_number_of_tokens_is_named(before, after, codes):
    found = findings_of("arguments", counted(*before), counted(*after))
    assert found.keys() == codes
    if codes:
        assert found["SB949"].evidence[1] == "5.x: another shape (94 to 93)"


HELD = ("embeddings", "layer 0", "layer 1", "")


def states(*held, field="hidden_states"):
    return ArgumentsSignal.model_validate({"states": {"short": {field: held}}})


@pytest.mark.parametrize(
    ("after", "is_accused"),
    [
        (HELD, False),
        (("embeddings", "layer 0", "", ""), True),
        (HELD[:3], True),
        # no hook of that release saw a layer
        (("", "", "", ""), False),
    ],
)
def test_hidden_states_that_hold_another_layer_are_accused(after, is_accused):
    for sides in ((HELD, after), (after, HELD)):
        assert bool([*other_states(*(states(*held) for held in sides))]) is is_accused


def test_a_field_that_one_release_lacks_is_no_difference_of_its_entries():
    assert not [*other_states(states(*HELD), states(*HELD, field="decoder_hidden_states"))]


def test_the_finding_of_hidden_states_names_the_prompt_and_both_sides():
    found = findings_of("arguments", states(*HELD), states("embeddings", "layer 0", "", ""))
    assert found.keys() == {"SB947"}
    assert found["SB947"].where == "forward(output_hidden_states=True): short · hidden_states"
    assert found["SB947"].evidence == (
        "4.48: embeddings, layer 0, layer 1, no layer's output",
        "5.x: embeddings, layer 0, no layer's output, no layer's output",
    )
    assert not findings_of("arguments", states(*HELD), states(*HELD))


def test_prompts_with_the_same_difference_are_one_finding():
    texts = ("short", "long")
    before = dict.fromkeys(texts, HELD) | {"image": ("", "", "layer 1", "")}
    after = dict.fromkeys(texts, HELD[:3]) | {"image": ("", "layer 0", "layer 1", "")}
    sides = [{p: {"hidden_states": held} for p, held in side.items()} for side in (before, after)]
    reference, candidate = (ArgumentsSignal.model_validate({"states": side}) for side in sides)
    case = Case(
        capture=sound(Memory(), "5.x", arguments=candidate),
        reference=sound(Memory(), "4.48", arguments=reference),
    )
    places = [each.where.rpartition(": ")[2] for each in findings(case)]
    assert places == ["short · hidden_states", "image · hidden_states"]


def masked(effect):
    return ArgumentsSignal.model_validate({"ones": {"image": {"named": True, "effect": effect}}})


@pytest.mark.parametrize(
    ("other", "is_accused"),
    [("none", True), ("rounding", True), ("other numbers", False), ("raises", False)],
)
def test_a_mask_of_ones_that_changes_numbers_on_one_side_alone_is_accused(other, is_accused):
    for sides in (
        (masked("other numbers"), masked(other)),
        (masked(other), masked("other numbers")),
    ):
        assert findings_of("arguments", *sides).keys() == ({"SB948"} if is_accused else set())
    assert not findings_of("arguments", masked("none"), masked("rounding"))
    assert not findings_of("arguments", masked("other numbers"), ArgumentsSignal())


@pytest.mark.parametrize(
    ("effects", "is_of_reference"),
    [(("other numbers", "none"), True), (("rounding", "other numbers"), False)],
)
def test_the_finding_of_a_mask_of_ones_names_prompt_effects_and_side(effects, is_of_reference):
    found = findings_of("arguments", *map(masked, effects))["SB948"]
    assert found.where == "forward(attention_mask=ones): image"
    before, after = (effect.replace("none", "no effect") for effect in effects)
    assert found.evidence == (f"4.48: {before}", f"5.x: {after}")
    assert found.of_reference is is_of_reference


def test_sections_list_what_differs_and_nothing_else():
    report = report_of("arguments", signal(READ), signal(NONE))
    assert SECTION.has_details(report.rows, report)
    for text in (SECTION.of_run(report), SECTION.of_model(list(report.rows), report)):
        assert "head_mask" in text
        assert "no effect" in text
    same = report_of("arguments", signal(READ), signal(READ))
    assert not SECTION.has_details(same.rows, same)
    assert not SECTION.of_run(same)
    assert not SECTION.of_model(list(same.rows), same)


@pytest.mark.parametrize(
    "name",
    ["use_cache", "prompt_lookup_num_tokens", "assistant_model", "assistant_model, its decoder"],
)
def test_an_argument_that_computes_the_same_tokens_in_another_way_is_never_ignored(name):
    """A release whose tokens change with it has the defect, and the other one does as it must."""

    def of(effect):
        return ArgumentsSignal.model_validate({"generate": {name: effect}})

    shorter = {"named": True, "effect": "another shape"}
    assert not [*differences(of(shorter), of(NONE | {"named": True}))]
    assert [each.kind for each in differences(of(NONE | {"named": True}), of(RAISES))] == [
        "refused"
    ]


def led(values, without=(1.0, -2.0, 2.2), **more):
    effect = READ | {"numbers": values, "without": without} | more
    return ArgumentsSignal(effects={"global_attention_mask": effect})


@pytest.mark.parametrize(
    ("candidate", "is_accused"),
    [
        (led((1.5, 2.0, 2.5)), True),
        (led((0.5, 2.0, 3.5)), True),  # the values that are kept agree, and their norm does not
        (led((0.5, 2.001, 2.5)), False),
        # without the argument it computes something else, or something of another shape
        (led((1.5, 2.0, 2.5), (1.5, -2.0, 2.5)), False),
        (led((1.5, 2.0, 2.5, 4.0), (1.0, -2.0, 2.2, 0.0)), False),
        (led((), ()), False),
        (led((1.5, 2.0, 2.5), named=False), False),
    ],
)
def test_an_argument_that_leads_to_other_numbers_on_each_side_is_accused(candidate, is_accused):
    reference = led((0.5, 2.0, 2.5))
    found = findings_of("arguments", reference, candidate)
    assert found.keys() == ({"SB949"} if is_accused else set())
    assert reference.trimmed().effects["global_attention_mask"].numbers == ()


def test_an_argument_of_generate_that_leads_to_other_scores_names_them():
    sides = [
        ArgumentsSignal(generate={"guidance_scale": READ | {"numbers": v, "without": (1.0, 2.2)}})
        for v in ((0.5, 2.5), (1.5, 2.5), (0.501, 2.5))
    ]
    found = findings_of("arguments", sides[0], sides[1])["SB949"]
    assert found.where == "generate(guidance_scale=…)"
    assert found.evidence == (
        "4.48: scores 0.5, …",
        "5.x: scores 1.5, …",
        "without it both compute 1, …",
    )
    assert not findings_of("arguments", sides[0], sides[2])
    assert sides[0].trimmed().generate["guidance_scale"].numbers == ()


@pytest.mark.parametrize(("token", "codes"), [(7, {"SB949"}), (8, set())])
def test_scores_of_a_second_token_are_compared_behind_the_same_first_token(token, codes):
    sides = (
        ArgumentsSignal.model_validate(
            {
                "generate": {
                    "guidance_scale (second token)": READ
                    | {"numbers": (value, 2.2), "without": (1.0, 2.2), "message": message}
                }
            }
        )
        for value, message in ((1.0, "behind token 5 → 7"), (-1.0, f"behind token 5 → {token}"))
    )
    assert findings_of("arguments", *sides).keys() == codes
