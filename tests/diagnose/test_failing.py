"""Nothing that a change of CPU can flip, identical to rounding, decides whether a run fails."""

import itertools

import pytest

from samebits.compare.registry import signal_names
from samebits.diagnose.exit_code import exit_code
from samebits.diagnose.expected import apply_expected
from samebits.diagnose.failing import differing_signals, failing_signals, what_fails
from samebits.matrix.spec import Expected
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import CellId, Variant, Verdict
from samebits.records.ladder import ON_LADDER, Constant, Ladder, SplitJudgement
from samebits.records.subject import Subject
from tests.support.builders import cell_result, ladder_step

VARIANT = Variant(dtype="float32", attention="default")
SHORT, LONG = Subject(prompt="short"), Subject(prompt="long")
LAYER = Subject(prompt="short", layer=1, tensor="layers.0")


def cell_id(stack="5.x", model="m"):
    return CellId(model=model, variant=VARIANT, stack=stack)


def signal(name, *items):
    """A signal of which these items differ; 'same' if there is none."""
    compared = tuple(ItemComparison(subject=item, outcome="differs") for item in items)
    outcome = "differs" if items else "identical"
    return SignalComparison(
        signal=name, outcome=outcome, n_items=2, n_differ=len(items), items=compared
    )


def step(name, kind, **more):
    usual = {"subject": LAYER if name == "hidden_states" else SHORT, "float64": 1.0}
    return ladder_step(signal=name, kind=kind, **(usual | more))


def cell(kinds, *, stack="5.x", model="m", kind=None):
    """A cell of which each signal is 'rounding', 'diverged', 'undecided' or 'same'.

    The ladder and the verdict say of the cell what the worst of its signals is.
    """
    worst = next((k for k in ("diverged", "undecided", "rounding") if k in kinds.values()), None)
    kind = kind or worst
    items = {name: LAYER if name == "hidden_states" else SHORT for name in kinds}
    signals = [signal(n, *([items[n]] if k != "same" else [])) for n, k in kinds.items()]
    steps = [step(n, k) for n, k in kinds.items() if n in ON_LADDER and k != "same"]
    stored = {"rounding": "cast", "diverged": "changed", "undecided": "not known"}
    constants = [
        Constant(signal=n, subject=SHORT, kind=stored[k])
        for n, k in kinds.items()
        if n in ("weights", "buffers", "inv_freq") and k != "same"
    ]
    near = {"rounding": True, "diverged": False, "undecided": None}
    splits = [
        SplitJudgement(prompt="short", step=0, margin=0.1, drift=0.1, near_tie=near[k])
        for n, k in kinds.items()
        if n == "greedy" and k != "same"
    ]
    verdict = {
        "diverged": Verdict.DIVERGED,
        "undecided": Verdict.UNDECIDED,
        "rounding": Verdict.ROUNDING,
        None: Verdict.IDENTICAL,
    }[kind]
    said = Ladder(
        kind=kind or "same",
        rule="slope",
        reason="",
        steps=tuple(steps),
        constants=tuple(constants),
        splits=tuple(splits),
    )
    fields = {"signals": tuple(signals), "ladder": said if kind else None}
    return cell_result(cell_id(stack, model), verdict, reference=cell_id("4.48", model), **fields)


def names(signals):
    return [found.signal for found in signals]


def ended(cells, *rules):
    """Return the exit code and what is fixed, of a run of these cells under these entries."""
    results, reports = apply_expected(cells, rules, [found.cell for found in cells], "4.48")
    code, _ = exit_code(results, reports, [])
    return code, [report.fixed for report in reports]


def expected(**more):
    told = {"model": ("m",), "stack": ("5.x",), "reason": "known"} | more
    return Expected(**told)


@pytest.mark.parametrize(
    "name", [s for s in signal_names() if s in ON_LADDER or s in ("weights", "greedy")]
)
@pytest.mark.parametrize(
    ("kind", "fails"), [("rounding", False), ("diverged", True), ("undecided", True)]
)
def test_a_signal_fails_unless_the_ladder_shows_that_it_rounds(name, kind, fails):
    found = cell({"inputs": "same", name: kind})
    assert names(differing_signals(found)) == [name]
    assert names(failing_signals(found)) == [name] * fails


def test_what_the_ladder_did_not_see_fails():
    found = cell({"logits": "rounding"})
    unseen = found.model_copy(update={"signals": (signal("logits", SHORT, LONG),)})
    assert names(failing_signals(unseen)) == ["logits"]
    assert names(failing_signals(found.model_copy(update={"ladder": None}))) == ["logits"]
    inputs = cell({"inputs": "diverged", "logits": "rounding"})
    assert names(failing_signals(inputs)) == ["inputs"]


def test_one_prompt_that_diverges_is_enough():
    found = cell({"decode": "rounding"})
    both = found.ladder.model_copy(
        update={"steps": (*found.ladder.steps, step("decode", "diverged", subject=LONG))}
    )
    of_both = (signal("decode", SHORT, LONG),)
    found = found.model_copy(update={"ladder": both, "signals": of_both})
    assert names(failing_signals(found)) == ["decode"]


def test_what_shows_in_float64_alone_is_no_difference_of_the_cell():
    found = cell({"hidden_states": "rounding"})
    hidden = step("hidden_states", "undecided", own=0.0, float32=0.0, float64=6e-8)
    zeros = step("hidden_states", "undecided", own=0.0, float32=0.0, float64=0.0)
    for more, failing in ((hidden, []), (zeros, ["hidden_states"])):
        steps = (*found.ladder.steps, more)
        said = found.ladder.model_copy(update={"steps": steps})
        assert names(failing_signals(found.model_copy(update={"ladder": said}))) == failing


def test_each_signal_and_each_tensor_is_judged_by_its_own_steps():
    beside = cell({"logits": "diverged", "decode": "rounding"})
    assert names(failing_signals(beside)) == ["logits"]
    stored = cell({"weights": "rounding", "buffers": "diverged"})
    assert names(failing_signals(stored)) == ["buffers"]
    tensors = Subject(tensor="a.weight"), Subject(tensor="b.weight")
    for kinds, failing in ((("cast", "cast"), []), (("changed", "cast"), ["weights"])):
        found = cell({"weights": "rounding"})
        constants = tuple(
            Constant(signal="weights", subject=tensor, kind=kind)
            for tensor, kind in zip(tensors, kinds, strict=True)
        )
        told = {
            "signals": (signal("weights", *tensors),),
            "ladder": found.ladder.model_copy(update={"constants": constants}),
        }
        found = found.model_copy(update=told)
        assert names(failing_signals(found)) == failing
        assert [str(i.subject) for s in what_fails(found) for i in s.items] == ["a.weight"] * len(
            failing
        )


def test_a_prompt_rounds_with_all_its_layers_and_one_that_is_identical_need_not_be_asked():
    found = cell({"hidden_states": "rounding"})
    layers = [
        ItemComparison(subject=LAYER, outcome="differs"),
        ItemComparison(
            subject=LAYER.model_copy(update={"layer": 2, "tensor": "layers.1"}), outcome="differs"
        ),
        ItemComparison(subject=LAYER.model_copy(update={"prompt": "long"}), outcome="identical"),
    ]
    hidden = signal("hidden_states", LAYER)

    def failing(*items):
        signals = (hidden.model_copy(update={"items": items}),)
        return names(failing_signals(found.model_copy(update={"signals": signals})))

    assert failing(*layers) == []
    diverged = cell({"hidden_states": "diverged"})
    signals = (hidden.model_copy(update={"items": (layers[0], layers[2])}),)
    (what,) = what_fails(diverged.model_copy(update={"signals": signals}))
    assert (what.items, what.n_differ) == ((layers[0],), 1)
    unasked = layers[2].model_copy(update={"outcome": "differs"})
    assert failing(*layers[:2], unasked) == ["hidden_states"]


def test_tokens_follow_from_logits_that_diverge():
    assert names(failing_signals(cell({"decode": "diverged", "greedy": "diverged"}))) == ["decode"]
    assert names(failing_signals(cell({"decode": "rounding", "greedy": "diverged"}))) == ["greedy"]


OTHER_CPU = ("same", "rounding")
FAILING = ("logits", "decode", "hidden_states")


@pytest.mark.parametrize("diverged", FAILING)
def test_entries_cover_a_diverged_cell_on_every_cpu(diverged):
    """Beside the signal that diverges, every other one may round or not: the entry covers it."""
    others = [name for name in (*FAILING, "greedy") if name != diverged]
    codes = set()
    for kinds in itertools.product(OTHER_CPU, repeat=len(others)):
        told = {diverged: "diverged"} | dict(zip(others, kinds, strict=True))
        ordered = {name: told[name] for name in signal_names() if name in told}
        found = cell(ordered)
        codes.add(ended([found], expected(signal=(diverged,)))[0])
        # an entry that names only what rounds there is fixed, whether it rounds on this CPU or not
        wrong = expected(signal=tuple(others))
        assert ended([found], wrong) == (1, [("m", "5.x")])
    assert codes == {0}


@pytest.mark.parametrize("kind", ["differs", "diverged"])
def test_whether_an_entry_is_fixed_follows_from_no_rounding(kind):
    ends = set()
    for told in OTHER_CPU:
        cells = [cell({"logits": told}, model="m"), cell({"logits": "diverged"}, model="n")]
        code, fixed = ended(cells, expected(model=("m", "n"), verdict=kind))
        ends.add((code, *fixed))
        assert ended(cells[1:], expected(model=("n",), verdict=kind)) == (0, [()])
    assert ends == {(1, ("m",))}


def test_rounding_is_covered_by_no_entry():
    results, (report,) = apply_expected(
        [cell({"logits": "rounding"})], [expected()], [cell_id()], "4.48"
    )
    assert (results[0].verdict, report.cells) == (Verdict.ROUNDING, ())
    assert report.fixed == ("m", "5.x")


def test_a_choice_by_another_rule_is_covered_though_every_step_rounds():
    """Experts that are chosen otherwise: the ladder's rule is `choice`, and no signal diverges."""
    kinds = {"hidden_states": "rounding", "logits": "rounding", "decode": "rounding"}
    for told in (kinds, kinds | {"decode": "same"}):
        found = cell(told, kind="diverged")
        assert ended([found], expected(signal=("hidden_states", "logits"))) == (0, [()])
        assert ended([found])[0] == 1
