"""What decides a verdict is a fact of the record; the first difference is another one."""

import numpy as np
import pytest

from samebits.diagnose.deciding import with_deciding
from samebits.diagnose.failing import what_fails
from samebits.diagnose.verdict import result
from samebits.grafts.questions import with_graft
from samebits.ladder.rule import Evidence, judgement
from samebits.ladder.verdicts import with_ladder
from samebits.questions.registry import explained
from samebits.records.capture import Failure
from samebits.records.comparison import FactChange
from samebits.records.finding import Finding
from samebits.records.graft import Graft
from samebits.records.ids import Verdict
from samebits.records.ladder import Constant, Ladder, SplitJudgement
from samebits.records.subject import Subject
from samebits.records.trace import Side
from samebits.reports.plain import beginning
from samebits.trace.question import questions, with_cause
from tests.support.builders import (
    cause_in,
    cell_id,
    decoded,
    forward,
    ladder_step,
    layers,
    sound,
    step_logits,
    values,
    weight,
    weights_signal,
    with_outputs,
)

SHORT = Subject(prompt="short")
LAYER = Subject(prompt="short", layer=1, tensor="model.layers.0")
HIDDEN = [values(1, 6, 4, seed=seed) for seed in range(3)]
LOGITS = values(1, 6, 8, seed=16)


def step(signal, subject, kind, *, own=1e-5, float64=1e-14):
    return ladder_step(own, float64, kind, signal=signal, subject=subject)


def off(memory, *, hidden=0.0, logits=0.0, decode=0.0):
    """Return the signals of a cell whose layer, logits and decode are off by so much."""
    moved = [HIDDEN[0], HIDDEN[1] + np.float32(hidden), HIDDEN[2]]
    facts = forward(memory, hidden=layers(memory, *moved), logits=LOGITS + np.float32(logits))
    scores = step_logits(3, 1, 4) + np.float32(decode)
    return {
        "forward": {"short": facts},
        "greedy": {"short": decoded(memory, 3, 1, 4, logits=scores)},
    }


def judged(memory, changed, *steps, constants=(), outputs=None):
    """Return the verdict on a cell with these changes and these steps of the ladder."""
    sides = [
        [sound(memory, stack, run=run, **signals) for run in "ab"]
        for stack, signals in (("4.48", off(memory)), ("5.0", off(memory) | changed))
    ]
    if outputs:
        sides = [
            [with_outputs(memory, run, **named) for run in runs]
            for runs, named in zip(sides, outputs, strict=True)
        ]
    cell = result(cell_id("5.0"), tuple(sides[1]), tuple(sides[0]), memory)
    kind, rule, reason, rests_on = judgement(
        Evidence(cell.signals, steps=steps, constants=constants)
    )
    ladder = Ladder(kind=kind, rule=rule, reason=reason, rests_on=rests_on, steps=steps)
    return with_deciding(with_ladder(cell, ladder))


def decodes_otherwise(memory):
    """Return a cell whose layers and logits only round, and whose decode is of another function."""
    return judged(
        memory,
        off(memory, hidden=1e-6, logits=1e-5, decode=16.0),
        step("hidden_states", LAYER, "rounding"),
        step("logits", SHORT, "rounding"),
        step("decode", SHORT, "diverged", own=16.0, float64=15.5),
    )


def test_a_decode_of_another_function_decides_and_not_the_logits_that_round(memory):
    cell = decodes_otherwise(memory)
    assert (cell.verdict, cell.first.signal) == (Verdict.DIVERGED, "hidden_states")
    assert (cell.deciding.signal, cell.deciding.item) == ("decode", "short")
    assert cell.deciding.what.startswith("decode: prompt short: ")
    assert cell.deciding.what.endswith(", in float64 16")
    assert (cell.headline, cell.figure) == (cell.deciding.what, "decode 16")
    lines = beginning(cell).lines
    assert lines[0].startswith("decode: prompt short")
    assert lines[1].startswith("differs first: hidden_states: layer 1")


def test_logits_that_may_be_rounding_give_a_decode_of_another_function_no_figure(memory):
    cell = judged(
        memory,
        off(memory, hidden=1e-6, logits=1e-5, decode=16.0),
        step("hidden_states", LAYER, "rounding"),
        step("logits", SHORT, "undecided", float64=1e-9),
        step("decode", SHORT, "diverged", own=16.0, float64=15.5),
    )
    assert (cell.verdict, cell.figure) == (Verdict.DIVERGED, "decode 16")
    open_ones = judged(
        memory,
        off(memory, logits=1e-5),
        step("logits", SHORT, "undecided", float64=1e-9),
    )
    assert open_ones.figure == "logits 1e-05"


def test_logits_of_another_function_are_named_as_before(memory):
    cell = judged(
        memory,
        off(memory, hidden=1e-6, logits=0.5, decode=16.0),
        step("hidden_states", LAYER, "diverged", float64=1e-6),
        step("logits", SHORT, "diverged", own=0.5, float64=0.5),
        step("decode", SHORT, "diverged", own=16.0, float64=15.5),
    )
    assert cell.deciding is None
    assert (cell.decisive, cell.headline) == (cell.first, cell.first.what)
    assert (cell.first.signal, cell.figure) == ("hidden_states", "logits 0.5")
    assert not beginning(cell).first


def test_a_layer_of_another_quantity_in_a_prompt_whose_outputs_agree_does_not_decide(memory):
    other = Subject(prompt="long", layer=1, tensor="model.layers.0")
    cell = judged(
        memory,
        off(memory, hidden=1e-6, decode=16.0),
        step("hidden_states", other, "diverged", float64=1e-6),
        step("hidden_states", LAYER, "rounding"),
        step("decode", SHORT, "diverged", own=16.0, float64=16.0),
    )
    assert cell.deciding.signal == "decode"


def test_the_layer_that_diverges_decides_and_not_the_one_before_it_that_rounds(memory):
    moved = [HIDDEN[0], HIDDEN[1] + np.float32(1e-6), HIDDEN[2] + np.float32(0.5)]
    facts = forward(memory, hidden=layers(memory, *moved), logits=LOGITS)
    second = LAYER.model_copy(update={"layer": 2, "tensor": "model.layers.1"})
    cell = judged(
        memory,
        {"forward": {"short": facts}},
        step("hidden_states", LAYER, "rounding"),
        step("hidden_states", second, "diverged", own=0.5, float64=0.5),
    )
    assert cell.first.item == "short · layer 1 (model.layers.0)"
    assert cell.deciding.item == "short · layer 2 (model.layers.1)"


def test_the_tensor_that_changed_decides_and_not_the_one_before_it_that_is_cast(memory):
    names = "embed", "norm"  # of the checkpoint
    tensors = sound(memory).signals.weights.tensors
    other = {
        f"model.{name}.weight": weight(memory, values(*shape, seed=90), name)
        for name, shape in zip(names, ((8, 4), (4,)), strict=True)
    }
    found = judged(
        memory,
        {"weights": weights_signal(tensors | other)},
        constants=tuple(
            Constant(signal="weights", subject=Subject(tensor=name), kind=kind)
            for name, kind in zip(names, ("cast", "changed"), strict=True)
        ),
    )
    assert (found.first.item, found.deciding.item) == names


@pytest.mark.parametrize(
    ("near", "figure"), [(True, "hidden_states 0.5"), (False, "tokens step 2")]
)
def test_tokens_that_rounding_chose_give_a_layer_of_another_function_no_figure(
    memory, near, figure
):
    changed = off(memory, hidden=0.5)
    changed["greedy"] = {"short": decoded(memory, 3, 1, 5, logits=step_logits(3, 1, 4))}
    cell = judged(memory, changed, step("hidden_states", LAYER, "diverged", own=0.5, float64=0.5))
    split = SplitJudgement(prompt="short", step=2, margin=0.1, drift=0.1, near_tie=near)
    told = cell.ladder.model_copy(update={"splits": (split,)})
    assert with_deciding(cell.model_copy(update={"ladder": told})).figure == figure


def test_an_output_that_is_gone_decides_and_not_a_layer_that_rounds(memory):
    rope = values(1, 1)
    cell = judged(
        memory,
        off(memory, hidden=5.6e-9, logits=1e-8),
        step("hidden_states", LAYER, "rounding"),
        step("logits", SHORT, "rounding"),
        outputs=({"rope_deltas": rope, "same": rope}, {"same": rope}),
    )
    assert (cell.ladder.rule, cell.first.signal) == ("missing output", "hidden_states")
    assert (cell.deciding.signal, cell.deciding.item) == ("outputs", "short · rope_deltas")
    assert cell.figure == "outputs 1 of 2"


def test_logits_of_another_function_weigh_more_than_an_output_that_is_gone(memory):
    extra = values(1, 1)
    sides = ({"extra": extra, "same": extra}, {"same": extra})
    changed = off(memory, hidden=1e-6, logits=4.5)
    layer = step("hidden_states", LAYER, "rounding")
    cell = judged(memory, changed, layer, step("logits", SHORT, "rounding"), outputs=sides)
    assert cell.ladder.rule == "missing output"
    other = step("logits", SHORT, "diverged", own=4.5, float64=4.5)
    cell = judged(memory, changed, layer, other, outputs=sides)
    assert (cell.ladder.rule, cell.deciding.signal) == ("slope", "logits")
    assert cell.deciding.what.endswith(", in float64 4.5")
    assert cell.figure == "logits 4.5"


def test_rounding_rests_on_everything_and_names_where_it_begins(memory):
    cell = judged(
        memory,
        off(memory, hidden=1e-6, logits=1e-5),
        step("hidden_states", LAYER, "rounding"),
        step("logits", SHORT, "rounding"),
    )
    assert (cell.verdict, cell.deciding) == (Verdict.ROUNDING, None)
    assert cell.headline == cell.first.what


def test_the_figure_is_of_what_decides_also_where_that_is_the_first_difference(memory):
    cell = judged(
        memory,
        off(memory, decode=8.9e-8),
        step("decode", SHORT, "rounding"),
        outputs=({"gone": LOGITS, "same": LOGITS}, {"same": LOGITS}),
    )
    assert (cell.verdict, cell.first.signal, cell.deciding) == (
        Verdict.DIVERGED,
        "outputs",
        None,
    )
    assert cell.figure == "outputs 1 of 2"


def test_logits_of_another_prompt_that_were_not_asked_give_other_inputs_no_figure(memory):
    cell = judged(memory, off(memory, logits=1e-5))
    (logits,) = [signal for signal in cell.signals if signal.signal == "logits"]
    inputs = logits.model_copy(update={"signal": "inputs", "n_items": 4, "n_differ": 1})
    signals = (inputs, *cell.signals)
    for rule, figure in (("inputs", "inputs 1 of 4"), ("slope", "logits 1e-05")):
        ladder = Ladder(kind="diverged", rule=rule, reason="x", rests_on=(), steps=())
        asked = cell.model_copy(update={"signals": signals, "ladder": ladder})
        assert with_deciding(asked).figure == figure


def test_an_output_that_rounds_gives_an_output_that_is_gone_no_figure(memory):
    rounds = Subject(prompt="short", tensor="rounds")
    cell = judged(
        memory,
        off(memory),
        step("outputs", rounds, "rounding"),
        outputs=(
            {"gone": LOGITS, "rounds": LOGITS},
            {"rounds": LOGITS + np.float32(1e-5)},
        ),
    )
    assert (cell.verdict, cell.figure) == (Verdict.DIVERGED, "outputs 1 of 2")


# what a cause or a graft is about


def is_of_what_decides(result, prompt, what):
    """Return whether a cause and a graft there are of what decides."""
    cause = cause_in(Side(stack="5.0"), prompt=prompt, what=what)
    graft = Graft(prompt=prompt, what=what, headline="", proof="alone", smallest=("layout",))
    cause = cause.model_copy(update={"beyond": cause})
    placed = with_graft(with_cause(result, cause), graft.model_copy(update={"more": (graft,)}))
    flags = {placed.cause.decides, placed.cause.beyond.decides}
    flags |= {placed.graft.decides, placed.graft.more[0].decides}
    (decides,) = flags
    return decides


def is_of_a_load(result):
    """Return whether a cause in the load is of what decides; no graft is about a load."""
    return with_cause(result, cause_in(Side(stack="5.0"), prompt="", what="load")).cause.decides


def questions_in_order(memory, result):
    return [(q.prompt, q.what) for q in questions(result, sound(memory, **off(memory)))]


def test_a_cause_of_rounding_is_not_one_of_the_output_that_is_gone(memory):
    cell = judged(
        memory,
        off(memory, hidden=1e-6, logits=1e-5, decode=1e-5),
        *(step(signal, SHORT, "rounding") for signal in ("logits", "decode")),
        step("hidden_states", LAYER, "rounding"),
        outputs=({"gone": LOGITS, "same": LOGITS}, {"same": LOGITS}),
    )
    assert not is_of_what_decides(cell, "short", "forward")
    assert not is_of_what_decides(cell, "short", "decode")
    assert not is_of_a_load(cell)
    assert questions_in_order(memory, cell) == [("short", "forward"), ("short", "decode")]


def test_the_decode_that_decides_is_traced_before_the_forward_that_rounds(memory):
    cell = decodes_otherwise(memory)
    assert not is_of_what_decides(cell, "short", "forward")
    assert is_of_what_decides(cell, "short", "decode")
    assert not is_of_what_decides(cell, "long", "decode")
    assert is_of_a_load(cell)
    assert questions_in_order(memory, cell) == [("short", "decode"), ("short", "forward")]


def test_a_cause_of_the_logits_that_decide_is_theirs_and_so_is_one_of_all_that_rounds(memory):
    changed = off(memory, hidden=1e-6, logits=0.5, decode=16.0)
    for kind, decode in (("diverged", 15.5), ("rounding", 1e-14)):
        cell = judged(
            memory,
            changed,
            step("hidden_states", LAYER, kind),
            step("logits", SHORT, kind),
            step("decode", SHORT, kind, float64=decode),
        )
        assert is_of_what_decides(cell, "short", "forward")
        assert is_of_what_decides(cell, "short", "decode")


def test_a_stored_tensor_decides_what_is_computed_from_it(memory):
    cell = lost_positions(memory, step("logits", SHORT, "rounding"))
    assert [signal.signal for signal in what_fails(cell)] == ["weights"]
    assert is_of_what_decides(cell, "short", "forward")


def test_a_load_decides_which_tokens_follow_from_it(memory):
    changed = {"greedy": {"short": decoded(memory, 3, 1, 5, logits=step_logits(3, 1, 4))}}
    cell = judged(memory, changed)
    assert [signal.signal for signal in what_fails(cell)] == ["greedy"]
    assert is_of_a_load(cell)
    assert is_of_what_decides(cell, "short", "decode")
    assert not is_of_what_decides(cell, "short", "forward")


# what explains it


def finding(code, where="forward"):
    return Finding(code=code, where=where, evidence=("seen",))


def lost_positions(memory, *steps):
    """Return a cell that no longer has a tensor of the reference, and computes another function."""
    tensors = {"model.norm.weight": weight(memory, values(4, seed=13), "norm")}
    gone = Constant(
        signal="weights", subject=Subject(tensor="model.embed.weight"), kind="changed", note=""
    )
    changed = off(memory, logits=0.4) | {"weights": weights_signal(tensors)}
    return judged(memory, changed, *steps, constants=(gone,))


def codes(cell, own=(), reference=()):
    row = {"5.0": tuple(own), "4.48": tuple(reference)}
    return [(e.code, e.stack) for e in explained(cell, row).explained_by]


def test_a_defect_of_training_saving_or_tokens_explains_no_verdict(memory):
    cell = lost_positions(memory)
    assert cell.decisive.signal == "weights"
    beside = [finding(code) for code in ("SB843", "SB207", "SB307", "SB842", "SB806", "SB704")]
    assert codes(cell, beside) == []
    assert explained(cell, {"5.0": tuple(beside)}).findings == tuple(beside)


def test_a_stored_tensor_is_explained_by_a_defect_of_that_tensor(memory):
    cell = lost_positions(memory)
    assert codes(cell, [finding("SB404", "another.weight")]) == []
    assert codes(cell, [finding("SB404", cell.decisive.item)]) == [("SB404", "5.0")]


def test_a_defect_of_the_reference_explains_the_cell_and_accuses_the_reference(memory):
    cell = decodes_otherwise(memory)
    row = {"5.0": (), "4.48": (finding("SB704"),)}
    accusing = explained(cell, row)
    assert codes(cell, (), row["4.48"]) == [("SB704", "4.48")]
    assert [explanation.stack for explanation in accusing.explained_by] == ["4.48"]
    of_candidate = explained(cell, {"5.0": row["4.48"], "4.48": ()})
    assert [explanation.stack for explanation in of_candidate.explained_by] == ["5.0"]


def test_the_fused_attention_is_accused_wherever_the_finding_is_shown(memory):
    cell = judged(
        memory,
        off(memory, hidden=0.5),
        step("hidden_states", LAYER, "diverged", own=0.5, float64=0.5),
    )
    fused, eager = {"is_causal": True}, None

    def accused(before, now):
        fact = FactChange(what="sdpa", module="m", reference=before, candidate=now)
        changed = cell.model_copy(update={"changes": {"attention.kernel": (fact,)}})
        return codes(changed, [finding("SB605")])

    assert accused(fused, eager) == [("SB605", "4.48")]
    assert accused(eager, fused) == [("SB605", "5.0")]
    assert accused(fused, fused) == [("SB605", "5.0")]


def test_a_defect_that_both_sides_have_explains_no_difference(memory):
    cell = decodes_otherwise(memory)
    assert codes(cell, [finding("SB704")], [finding("SB704")]) == []


def test_rounding_is_explained_by_what_rounds_and_by_nothing_else(memory):
    cell = judged(memory, off(memory, logits=1e-5), step("logits", SHORT, "rounding"))
    assert codes(cell, [finding("SB605"), finding("SB601")]) == [("SB601", "5.0")]


def test_an_exception_is_explained_by_a_rule_for_exceptions(memory):
    raised = Failure(phase="forward short", type="AttributeError", message="no", traceback="")
    runs = tuple(
        sound(memory, "5.0", run=run).model_copy(update={"failures": (raised,)}) for run in "ab"
    )
    reference = tuple(sound(memory, run=run) for run in "ab")
    cell = result(cell_id("5.0"), runs, reference, memory)
    assert cell.verdict is Verdict.FAILED
    evidence = ("AttributeError in phase forward short: no",)
    about = [finding(code).model_copy(update={"evidence": evidence}) for code in ("SB701", "SB704")]
    assert codes(cell, about) == [("SB701", "5.0")]
    assert codes(cell, [finding("SB701")]) == []  # of another exception
