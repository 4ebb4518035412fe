"""Tests of samebits.capsules: query, shrinking, trials, choice of cells, issue text and files."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from samebits.capsules import files, shrinking, trials
from samebits.capsules.asking import CannotReproduce, earlier_feeds, query_for
from samebits.capsules.choosing import MAX_CAPSULES, chosen
from samebits.capsules.issue import with_side
from samebits.capsules.running import Place, ScriptResult
from samebits.capsules.trials import Answers, Trial
from samebits.diagnose import verdict as diagnosis
from samebits.records.capsule import Capsule, Fed, Question, Seen
from samebits.records.capture import Unfinished
from samebits.records.ids import Verdict
from samebits.records.tensor import TensorRef
from samebits.records.trace import Side as TracedSide
from samebits.reports.answer.side import Side
from samebits.reports.cell.capsule import capsules_of
from samebits.terminal.summary import summary
from samebits.text.names import capsule_path
from tests.support.builders import (
    Memory,
    cause_in,
    cell_id,
    forward,
    nudged,
    sound,
    values,
    weight,
    weights_signal,
)
from tests.support.capsules import HOSTILE, checkpoint, failed, text
from tests.support.sample_report import sample_report


def compared(memory, reference, candidate):
    return diagnosis.result(candidate.cell, (candidate, candidate), (reference, reference), memory)


# --- asking ------------------------------------------------------------------------------


def padded_and_short(memory, logits):
    """Return forwards over a padded batch, and after it over one row, with these logits."""
    batch = np.array([[0, 0, 5, 6], [1, 2, 3, 4]])
    mask = memory.put(np.array([[0, 0, 1, 1], [1, 1, 1, 1]]))
    padded = forward(memory, ids=batch, logits=logits[0], real_rows=((2, 4), (0, 4)))
    padded = padded.model_copy(update={"inputs": padded.inputs | {"attention_mask": mask}})
    return {"padded": padded, "short": forward(memory, ids=[[7, 8, 9]], logits=logits[1])}


def test_other_logits_are_asked_for_where_no_padding_is():
    memory = Memory()
    logits = values(2, 4, 8, seed=1), values(1, 3, 8, seed=2)
    changed_logits = nudged(logits[0], 0, 3, 1), nudged(logits[1], 0, 2, 5)
    reference = sound(memory, forward=padded_and_short(memory, logits))
    candidate = sound(memory, "5.x", forward=padded_and_short(memory, changed_logits))
    query = query_for(
        compared(memory, reference, candidate), reference, (candidate, candidate), memory
    )
    assert query.contrast == "differs"
    assert query.question.kind == "forward"
    assert query.question.feed == {"input_ids": Fed(rows=((7, 8, 9),))}
    assert earlier_feeds(query.question, reference, memory)[0]["input_ids"].rows == (
        (0, 0, 5, 6),
        (1, 2, 3, 4),
    )


def test_a_script_is_asked_for_with_the_threads_of_the_cells():
    memory = Memory()
    logits = values(2, 4, 8, seed=1), values(1, 3, 8, seed=2)
    changed_logits = nudged(logits[0], 0, 3, 1), nudged(logits[1], 0, 2, 5)
    for threads in (1, 4):
        reference, candidate = (
            sound(memory, stack, forward=padded_and_short(memory, of_stack)).model_copy(
                update={"threads": threads}
            )
            for stack, of_stack in (("4.48", logits), ("5.x", changed_logits))
        )
        result = compared(memory, reference, candidate)
        question = query_for(result, reference, (candidate, candidate), memory).question
        assert question.threads == threads


def test_of_a_padded_prompt_only_real_rows_are_asked_for():
    memory = Memory()
    logits = values(2, 4, 8, seed=1), values(1, 3, 8, seed=2)
    reference = sound(memory, forward=padded_and_short(memory, logits))
    candidate = sound(
        memory, "5.x", forward=padded_and_short(memory, (nudged(logits[0], 0, 3, 1), logits[1]))
    )
    question = query_for(
        compared(memory, reference, candidate), reference, (candidate, candidate), memory
    ).question
    assert question.real == ((2, 4), (0, 4))
    trial = Trial(ref=memory.put(np.concatenate([logits[0][0, 2:4], logits[0][1]])))
    assert trials.matches_capture(question, trial, reference, memory, memory)
    assert not trials.matches_capture(question, trial, candidate, memory, memory)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        ("load", "forward"),
        ("config", "forward"),
        ("forward short", "forward"),
        ("greedy short", "generate"),
    ],
)
def test_a_failure_is_asked_for_by_what_was_being_done(phase, kind):
    memory = Memory()
    reference = sound(memory)
    query = query_for(failed(phase), reference, (), memory)
    assert (query.contrast, query.question.kind) == ("fails", kind)
    assert query.question.steps == (3 if kind == "generate" else 0)


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        *((phase, "which a script cannot") for phase in ("process", "build", "trace weights")),
        ("forward other", "the reference has no forward of prompt other"),
        ("greedy other", "the reference has no forward of prompt other"),
    ],
)
def test_a_failure_that_a_script_cannot_show_says_so(phase, reason):
    memory = Memory()
    with pytest.raises(CannotReproduce, match=reason):
        query_for(failed(phase), sound(memory), (), memory)


def test_a_load_that_fails_needs_no_forward_of_the_reference():
    memory = Memory()
    tensors = {"norm": weight(memory, values(4), "norm"), "table": weight(memory, values(4))}
    one = sound(memory, forward={}, weights=weights_signal(tensors))
    for forwards in ({}, {"short": forward(memory)}):  # none, and one that gives no tensor
        reference = sound(memory, forward=forwards, weights=weights_signal(tensors))
        question = query_for(failed("load"), reference, (), memory).question
        assert (question.kind, question.tensor) == ("parameter", "norm")
    for phase, reference in (
        ("greedy short", one),
        ("load", sound(memory, forward={}, weights=None)),
    ):
        with pytest.raises(CannotReproduce, match="the reference has no forward that"):
            query_for(failed(phase), reference, (), memory)


def test_what_a_script_cannot_be_fed_says_why():
    memory = Memory()
    lost, flat = memory.put(np.full((1, 6), 77), stored=False), memory.put(np.arange(6))
    for ref, reason in ((lost, "were not stored"), (flat, r"has shape \[6\]")):
        fed = forward(memory, logits=values(1, 6, 8))
        fed = fed.model_copy(update={"inputs": {"input_ids": ref}})
        with pytest.raises(CannotReproduce, match=reason):
            query_for(failed("forward short"), sound(memory, forward={"short": fed}), (), memory)


def test_a_failure_without_an_exception_says_so():
    result = failed("load").model_copy(update={"failure": None})
    with pytest.raises(CannotReproduce, match="it failed without an exception: failed"):
        query_for(result, sound(Memory()), (), Memory())


def test_a_forward_without_a_tensor_says_so():
    memory = Memory()
    reference = sound(memory, forward={"short": forward(memory)})
    with pytest.raises(CannotReproduce, match="of prompt short returns no tensor"):
        query_for(failed("forward short"), reference, (), memory)


def test_a_difference_that_only_layers_show_says_so():
    memory = Memory()
    hidden = forward(memory, logits=values(1, 6, 8, seed=16))
    reference, candidate = sound(memory), sound(memory, "5.x", forward={"short": hidden})
    result = failed("load").model_copy(update={"judged": Verdict.UNDECIDED})
    with pytest.raises(CannotReproduce, match="no logits and no tensor"):
        query_for(result, reference, (candidate,), memory)


def test_an_unstable_cell_is_asked_for_what_its_runs_do_not_agree_on():
    memory = Memory()
    first = sound(memory, "5.x")
    logits = {"short": forward(memory, logits=values(1, 6, 8, seed=99))}
    second = sound(memory, "5.x", run="b", forward=logits)
    result = failed("load").model_copy(update={"judged": Verdict.UNSTABLE})
    query = query_for(result, sound(memory), (first, second), memory)
    assert (query.contrast, query.question.prompt) == ("unstable", "short")


def test_a_device_is_not_asked():
    result = failed("load")
    variant = result.cell.variant.model_copy(update={"device": "cuda"})
    result = result.model_copy(update={"cell": result.cell.model_copy(update={"variant": variant})})
    with pytest.raises(CannotReproduce, match="cuda"):
        query_for(result, sound(Memory()), (), Memory())


# --- shrinking ---------------------------------------------------------------------------


def tensors(folder):
    raw = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    assert end % 8 == 0
    header = json.loads(raw[8:end])
    assert header.pop("__metadata__") == {"format": "pt"}
    numbers = {}
    for name, facts in header.items():
        start, stop = facts["data_offsets"]
        (numbers[name],) = struct.unpack("<f", raw[end + start : end + stop])
    assert len(raw) - end == 4 * len(numbers)
    return numbers


def test_a_model_with_fewer_layers_has_their_tensors_and_no_others(tmp_path):
    names = ["embed", *(f"layers.{i}.experts.{j}.w" for i in range(4) for j in range(8)), "norm.w"]
    source = checkpoint(tmp_path / "whole", *names)
    files.copy_with_layers(source, tmp_path / "small", 2)
    weights = tensors(tmp_path / "small")
    assert list(weights) == [n for n in names if not n.startswith(("layers.2", "layers.3"))]
    assert all(weights[name] == names.index(name) for name in weights)
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config == {"num_hidden_layers": 2, "layer_types": ["a", "b"], "eos": [1, 2]}
    assert not (tmp_path / "small" / "tokenizer.json").exists()
    assert len(tensors(source)) == len(names)


def test_the_stacks_of_another_length_keep_theirs(tmp_path):
    names = [*(f"conv.{i}.w" for i in range(7)), *(f"layers.{i}.w" for i in range(4))]
    files.copy_with_layers(checkpoint(tmp_path / "whole", *names), tmp_path / "small", 1)
    assert list(tensors(tmp_path / "small")) == [*names[:7], "layers.0.w"]


@pytest.mark.parametrize("broken", ["sharded", "uncounted"])
def test_a_model_that_cannot_lose_layers_says_so(tmp_path, broken):
    source = checkpoint(tmp_path / "whole", "layers.0.w")
    if broken == "sharded":
        (source / "model.safetensors").rename(source / "model-00001-of-00002.safetensors")
    else:
        (source / "config.json").write_text("{}")
    with pytest.raises(files.CannotShrink):
        files.copy_with_layers(source, tmp_path / "small", 1)


HEADER = {
    "__metadata__": {"format": "pt"},
    "embed": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    **{
        f"layers.{i}.w": {"dtype": "BF16", "shape": [4], "data_offsets": [24 + 8 * i, 32 + 8 * i]}
        for i in range(4)
    },
}


def test_a_stand_in_has_all_but_the_weights_and_loses_layers_as_they_do(tmp_path):
    source = checkpoint(tmp_path / "whole", "embed")
    for name in ("pytorch_model.bin", "model.safetensors.index.json", "modeling_x.py"):
        (source / name).write_text(name)
    files.copy_without_weights(source, tmp_path / "stand-in", HEADER)
    stand_in = tmp_path / "stand-in"
    assert {path.name for path in stand_in.iterdir()} == {
        "config.json",
        "modeling_x.py",
        "stand-in.json",
    }
    assert json.loads((stand_in / "stand-in.json").read_text()) == HEADER
    assert files.is_stand_in(stand_in)
    assert not files.is_stand_in(source)
    (stand_in / "model.safetensors").write_bytes(b"zeros that a script wrote" * 1000)
    assert files.size(stand_in) < 2000
    files.copy_with_layers(stand_in, tmp_path / "small", 1)
    small = json.loads((tmp_path / "small" / "stand-in.json").read_text())
    assert small == {name: HEADER[name] for name in ("__metadata__", "embed", "layers.0.w")}
    assert not (tmp_path / "small" / "model.safetensors").exists()


def test_one_row_of_a_batch_loses_its_padding_and_the_mask():
    feed = {
        "input_ids": Fed(rows=((0, 0, 5), (1, 2, 3))),
        "attention_mask": Fed(rows=((0, 0, 1), (1, 1, 1))),
        "decoder_input_ids": Fed(rows=((9,), (8,))),
    }
    question = Question(kind="forward", feed=feed, real=((2, 3), (0, 3)), row=1)
    first, second = shrinking.single_rows(question)
    assert first.feed == {
        "input_ids": Fed(rows=((1, 2, 3),)),
        "decoder_input_ids": Fed(rows=((8,),)),
    }
    assert second.feed["input_ids"].rows == ((5,),)
    assert (first.real, first.row) == (None, 0)


def test_a_prompt_is_cut_behind_its_first_differing_position():
    question = Question(kind="forward", feed={"input_ids": Fed(rows=(tuple(range(20)),))})
    lengths = [
        len(q.feed["input_ids"].rows[0])
        for q in shrinking.fewer_tokens(question, ((0, 4, 7), None))
    ]
    assert lengths == [2, 5, 10]
    batch = Question(kind="forward", feed={"input_ids": Fed(rows=((1, 2, 3), (4, 5, 6)))})
    assert not list(shrinking.fewer_tokens(batch, ((0, 1, 2),)))


def test_layers_are_tried_from_one_up_to_the_first_that_differs():
    memory = Memory()
    hidden = [values(1, 6, 4, seed=seed) for seed in range(4)]
    names = ["model.embed", *(f"model.layers.{i}" for i in range(3))]

    def cell(stack, last):
        from tests.support.builders import layers

        states = layers(memory, *hidden[:3], last, names=names)
        return sound(memory, stack, forward={"short": forward(memory, hidden=states)})

    reference, candidate = cell("4.48", hidden[3]), cell("5.x", nudged(hidden[3], 0, 1, 1))
    assert list(shrinking.layer_counts(compared(memory, reference, candidate), 8)) == [1, 3, 4]


# --- trials ------------------------------------------------------------------------------


def trial(memory, array=None, **fields):
    return Trial(ref=None if array is None else memory.put(array), **fields)


def answers(reference, *candidates):
    return Answers((reference,), candidates)


def test_what_holds():
    memory = Memory()
    a, b = values(1, 3, 8, seed=1), values(1, 3, 8, seed=2)
    reference, candidate, broken = (
        trial(memory, a),
        trial(memory, b),
        trial(memory, error="KeyError"),
    )
    assert trials.holds("differs", answers(reference, candidate))
    assert not trials.holds("differs", answers(reference, reference))
    assert not trials.holds("differs", answers(reference, broken))
    assert trials.holds("fails", answers(reference, broken))
    assert not trials.holds("fails", answers(broken, broken))
    assert not trials.holds("fails", answers(reference, trial(memory, message="killed")))
    assert trials.holds(
        "unstable", Answers((reference, reference, reference), (reference, reference, candidate))
    )
    assert not trials.holds(
        "unstable", Answers((reference, reference, candidate), (reference, reference, candidate))
    )
    assert not trials.holds(
        "unstable", Answers((reference, reference, reference), (candidate, candidate, candidate))
    )
    # a clock, or a number drawn by the system: memory held the same both times
    third = trial(memory, values(1, 3, 8, seed=3))
    assert not trials.holds(
        "unstable", Answers((reference, reference, reference), (reference, candidate, third))
    )
    assert not trials.holds(
        "unstable", Answers((reference, reference, reference), (reference, candidate, reference))
    )


ONE, OTHER, THIRD = (values(1, 3, 8, seed=seed) for seed in (1, 2, 3))
STACKS = ("4.48", "5.x")


def thrice(memory, *arrays):
    return tuple(trial(memory, array) for array in arrays)


@pytest.mark.parametrize(
    ("contrast", "reference", "candidate", "reason"),
    [
        ("differs", {"array": ONE}, {"array": OTHER}, ""),
        ("differs", {"array": ONE}, {"array": ONE}, "4.48 and 5.x give the same bits"),
        ("differs", {"error": "E", "message": "m\nn"}, {"array": ONE}, "4.48 fails: E: m"),
        (
            "differs",
            {"array": ONE},
            {"error": "E", "message": "no /a/b.py"},
            "5.x fails: E: no …/b.py",
        ),
        ("differs", {"message": "killed"}, {"array": ONE}, "4.48 returned nothing: killed"),
        ("fails", {"array": ONE}, {"error": "KeyError", "message": "'x'"}, ""),
        ("fails", {"array": ONE}, {"error": "KeyError", "message": "/home/x"}, ""),
        ("fails", {"array": ONE}, {"array": ONE}, "5.x does not fail"),
        ("fails", {"array": ONE}, {"message": "killed"}, "5.x returned nothing: killed"),
        (
            "fails",
            {"array": ONE},
            {"error": "KeyError", "message": "'y'"},
            "5.x raises KeyError: 'y' instead of KeyError: 'x'",
        ),
        (
            "fails",
            {"array": ONE},
            {"error": "OSError"},
            "5.x raises OSError instead of KeyError: 'x'",
        ),
        (
            "fails",
            {"error": "E", "message": "m"},
            {"error": "KeyError", "message": "'x'"},
            "4.48 fails as well: E: m",
        ),
    ],
)
def test_why_what_was_tried_does_not_show_it(contrast, reference, candidate, reason):
    memory = Memory()
    sides = answers(trial(memory, **reference), trial(memory, **candidate))
    assert trials.why_not(contrast, sides, STACKS, "KeyError: 'x'") == reason
    # another exception than that of the run holds by itself: only the run tells it apart
    assert trials.holds(contrast, sides) == (not reason or "instead of" in reason)


@pytest.mark.parametrize(
    ("reference", "candidate", "reason"),
    [
        ((ONE, ONE, ONE), (ONE, ONE, OTHER), ""),
        ((ONE, ONE, OTHER), (ONE, ONE, OTHER), "4.48 also gives different bits in two runs"),
        (
            (ONE, ONE, ONE),
            (ONE, OTHER, THIRD),
            "5.x gives different bits even if uninitialised memory holds the same, as with random numbers",
        ),
        (
            (ONE, ONE, ONE),
            (ONE, ONE, ONE),
            "5.x gives the same bits for any content of uninitialised memory",
        ),
    ],
)
def test_why_an_instability_is_none_of_memory(reference, candidate, reason):
    memory = Memory()
    sides = Answers(thrice(memory, *reference), thrice(memory, *candidate))
    assert trials.why_not("unstable", sides, STACKS) == reason
    assert trials.holds("unstable", sides) == (not reason)


def test_a_smaller_model_that_misses_a_tensor_does_not_count():
    memory = Memory()
    whole = answers(trial(memory, values(3)), trial(memory, values(3, seed=1)))
    less = {"missing_keys": ("layers.0.w",)}
    small = answers(trial(memory, values(3)), trial(memory, values(3, seed=1), loading=less))
    assert trials.holds("differs", small)
    assert not trials.holds("differs", small, whole)


def test_a_smaller_model_has_to_fail_with_the_same_words():
    memory = Memory()
    reference = trial(memory, values(3))
    whole = answers(reference, Trial(error="IndexError", message="slot 3\nmore"))
    assert trials.holds(
        "fails", answers(reference, Trial(error="IndexError", message="slot 3")), whole
    )
    assert not trials.holds(
        "fails", answers(reference, Trial(error="IndexError", message="x")), whole
    )


def steps_apart(memory, *changes, n=6):
    """Return greedy steps of both sides; ``changes`` are (step, amount) at the middle token."""
    steps = values(n, 8)
    steps[:, 0] = 9.0
    changed_steps = steps.copy()
    for step, by in changes:
        changed_steps[step, 4] += by
    return answers(trial(memory, steps), trial(memory, changed_steps))


def test_steps_end_with_the_first_that_is_about_the_largest():
    memory = Memory()
    question = Question(kind="generate", steps=6)
    sides = steps_apart(memory, (0, 1e-6), (3, 0.5), (4, 0.6))
    assert trials.steps_needed(sides, memory) == 4
    metrics = trials.distance(question, sides, memory)
    assert metrics.max_abs == pytest.approx(0.6)
    assert metrics.first_index == (0, 4)


def test_steps_behind_other_tokens_are_not_compared():
    memory = Memory()
    question = Question(kind="generate", steps=6)
    sides = steps_apart(memory, (2, 100.0), (3, 1000.0))
    assert trials.steps_needed(sides, memory) == 3
    assert trials.distance(question, sides, memory).max_abs == pytest.approx(100.0)


# --- choosing ----------------------------------------------------------------------------


def standing(model, verdict, judged=None, stack="5.x", dtype="float32"):
    cell = cell_id(stack, model, dtype)
    result = failed("load").model_copy(update={"cell": cell, "verdict": verdict})
    return result.model_copy(update={"judged": judged or verdict})


def test_unasked_only_what_fails_the_run_gets_one():
    results = [
        standing("rounding", Verdict.ROUNDING),
        standing("expected", Verdict.EXPECTED, Verdict.DIVERGED),
        standing("same", Verdict.IDENTICAL),
        standing("new", Verdict.DIVERGED),
    ]
    assert [cell.model for cell in chosen(results, "failing").cells] == ["new"]
    assert [cell.model for cell in chosen(results, "all").cells] == ["expected", "new", "rounding"]
    assert chosen(results, "none").cells == ()


def test_one_for_each_model_and_stack_and_the_worst_variant():
    results = [
        standing("llama", Verdict.ROUNDING),
        standing("llama", Verdict.DIVERGED, dtype="bfloat16"),
        standing("llama", Verdict.ROUNDING, stack="5.2"),
    ]
    choice = [(c.stack, c.variant.dtype) for c in chosen(results, "all").cells]
    assert choice == [("5.x", "bfloat16"), ("5.2", "float32")]


def test_no_more_than_some_are_made_unasked():
    results = [standing(f"m{i}", Verdict.DIVERGED) for i in range(MAX_CAPSULES + 3)]
    choice = chosen(results, "failing")
    assert (len(choice.cells), len(choice.left_out)) == (MAX_CAPSULES, 3)
    assert len(chosen(results, "all").cells) == MAX_CAPSULES + 3


def test_a_cell_without_another_side_gets_none():
    alone = standing("llama", Verdict.FAILED).model_copy(update={"reference": None})
    assert chosen([alone], "all").cells == ()


def test_a_cell_that_did_not_finish_gets_none():
    """A cell that failed and did not finish gets none; the same cell gets one if it finished."""
    late = {"unfinished": Unfinished(phase="greedy long", reason="no progress for 120 s")}
    raised = standing("t5", Verdict.FAILED)
    assert [cell.model for cell in chosen([raised], "failing").cells] == ["t5"]
    assert chosen([raised.model_copy(update=late)], "all").cells == ()
    for verdict in (Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED):
        assert chosen([standing("llama", verdict)], "all").cells == ()


# --- running -----------------------------------------------------------------------------


class Uv:
    """A stand-in for uv with a fixed exit code and a fixed cache."""

    def __init__(self, *, cached=True, ends=0, made=None):
        self.cached, self.ends, self.made = cached, ends, made
        self.commands, self.folders, self.environments = [], set(), []

    def __call__(self, command, folder, environment):
        self.commands.append(command[1:])
        self.folders.add(folder)
        self.environments.append(environment)
        assert (folder / "4.48.py").read_text() == "script"
        if command[1] == "python":
            return (
                ScriptResult(0, f"{self.made}/bin/python\n")
                if self.made
                else ScriptResult(2, "none")
            )
        if "--offline" in command and not self.cached:
            return ScriptResult(1, "error: no such package in the cache")
        return ScriptResult(self.ends, "transformers 4.48.3\nunexpected bits")


@pytest.fixture
def scripts(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "4.48.py").write_text("script")
    return folder


def run_scripts(folder, uv, environ, *, needs_hub=False):
    """Run the only script in a place and close the place."""
    place = Place(environ, uv)
    try:
        return place.run(folder, ("4.48.py",), needs_hub=needs_hub)["4.48.py"]
    finally:
        place.close()


def test_scripts_run_elsewhere_offline_and_leave_nothing(scripts, tmp_path):
    environment_folder = tmp_path / "environments-v2" / "4-48-abc"
    (environment_folder / "bin").mkdir(parents=True)
    uv = Uv(made=environment_folder)
    environ = {"PIP_FIND_LINKS": "/wheels", "ATEN_CPU_CAPABILITY": "avx2", "PYTHONPATH": "x"}
    assert run_scripts(scripts, uv, environ).code == 0
    assert uv.commands[0] == ["run", "--offline", "--quiet", "--script", "4.48.py"]
    assert [command[0] for command in uv.commands] == ["run", "python"]
    (folder,) = uv.folders
    assert scripts not in folder.parents
    assert not folder.exists()
    assert not environment_folder.exists()
    variables = uv.environments[0]
    assert variables["UV_FIND_LINKS"] == "/wheels"
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert not {"ATEN_CPU_CAPABILITY", "PYTHONPATH", "OMP_NUM_THREADS"} & set(variables)


def test_the_second_capsule_runs_where_the_first_did_without_its_files(scripts):
    uv = Uv()
    place = Place({}, uv)
    (scripts / "first.txt").write_text("x")
    place.run(scripts, ("4.48.py",), needs_hub=False)
    (scripts / "first.txt").unlink()
    place.run(scripts, ("4.48.py",), needs_hub=False)
    (folder,) = uv.folders
    assert [path.name for path in folder.iterdir()] == ["4.48.py"]
    place.close()
    assert not folder.parent.exists()


def test_the_network_is_used_only_where_the_cache_is_not_enough(scripts):
    uv = Uv(cached=False)
    run_scripts(scripts, uv, {}, needs_hub=True)
    assert ["--offline" in command for command in uv.commands[:2]] == [True, False]
    assert "HF_HUB_OFFLINE" not in uv.environments[0]


def test_a_script_that_ran_and_saw_something_else_is_not_run_again(scripts):
    uv = Uv(ends=1)
    ran = run_scripts(scripts, uv, {})
    assert (ran.code, ran.last_line) == (1, "unexpected bits")
    assert [command[0] for command in uv.commands] == ["run", "python"]


def test_only_an_environment_of_a_script_is_removed(scripts, tmp_path):
    folder = tmp_path / "usr"
    (folder / "bin").mkdir(parents=True)
    run_scripts(scripts, Uv(made=folder), {})
    assert folder.exists()


# --- the text and the report -------------------------------------------------------------


def test_the_text_says_both_sides_and_how_to_run_them():
    ref = TensorRef(hash="b" * 64, dtype="float32", shape=(1, 3, 8))
    output = text(Seen(ref=ref, sha256="c" * 64))
    assert output.startswith("# llama: different logits in 5.x.0 than in 4.48.0\n")
    assert "b" * 16 not in output  # a script does not print it
    for part in ("d" * 16, "c" * 16, "uv run 4.48.py\nuv run 5.x.py", "Shrunk to 1 of 4 layers"):
        assert part in output
    assert "unsafe-best-match" in output


@pytest.mark.parametrize("shrunk", [("1 of 4 layers",), ()])
def test_the_text_says_where_the_difference_starts(shrunk):
    cause = cause_in(TracedSide(stack="5.x"), kind="kernel", headline="at mul")
    run_result = failed("load").model_copy(update={"cause": cause})
    output = text(Seen(unstable=True), shrunk=shrunk, run_result=run_result)
    remark = " before shrinking" if shrunk else ""
    assert f"Where the difference starts{remark}, by a trace of both sides: at mul" in output


def test_what_the_run_found_stays_text():
    output = text(Seen(error="KeyError", message=HOSTILE), contrast="fails")
    assert output.startswith("# llama: KeyError in 5.x.0, not in 4.48.0\n")
    html = MarkdownIt("commonmark").enable("table").render(output)
    assert "<script>" not in html
    assert html.count("<h1>") == 1
    assert 'href="b"' not in html


@pytest.mark.parametrize("model", ["..", "../../etc", "a/b", "a\\b", "nul\0", "%2e%2e"])
def test_no_name_leads_out_of_the_folder(model, tmp_path):
    path = (tmp_path / capsule_path(model, "..")).resolve()
    assert path.parent == (tmp_path / "repro").resolve()


def test_the_last_lines_of_a_run_say_where_capsules_lie():
    report = sample_report()
    assert not any("capsule" in line for line in summary(report, [Path("r/report.md")]))
    row = report.rows[0]
    cells = (row.cells[0].model_copy(update={"capsule": Capsule(path="repro/x")}), *row.cells[1:])
    rows = (row.model_copy(update={"cells": cells}), *report.rows[1:])
    output = summary(report.model_copy(update={"rows": rows}), [Path("r/report.md")])
    assert output[:2] == ["1 reproducer: r/repro", "Report: r/report.md"]


def test_the_report_says_where_it_is_or_why_it_is_not():
    there = failed("load").model_copy(
        update={"capsule": Capsule(path="repro/llama@5.x", command="uv run 4.48.py")}
    )
    without = failed("load").model_copy(update={"capsule": Capsule(reason="a | b")})
    output = capsules_of([there, without, failed("load")], above="../")
    assert "(../repro/llama%405.x/ISSUE.md)" in output
    assert "no reproducer, because a | b" in output
    assert len(output.splitlines()) == 4
    assert not capsules_of([failed("load")])


def test_code_that_nobody_trusts_is_not_copied(tmp_path):
    source = checkpoint(tmp_path / "whole", "embed")
    code = source / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("def generate(model): pass")
    files.copy_checkpoint(source, tmp_path / "trusted")
    files.copy_checkpoint(source, tmp_path / "untrusted", code=False)
    files.copy_without_weights(source, tmp_path / "stand-in", HEADER, code=False)
    assert [path.name for path in (tmp_path / "trusted").rglob("*.py")] == ["generate.py"]
    assert not list((tmp_path / "untrusted").rglob("*.py"))
    assert (tmp_path / "untrusted" / "config.json").is_file()
    assert not list((tmp_path / "stand-in").rglob("*.py"))


def test_an_issue_names_the_wrong_side_and_who_is_hit():
    judged = Side("5.x", ("SB705",), "5.24.0 is wrong: padding or batching changes results (SB705)")
    text = with_side("# t\n", judged)
    assert "### Which side is wrong" in text
    assert "5.24.0 is wrong: padding or batching changes results (SB705)." in text
    assert "- Hit if you run rows in a batch" in text
    assert "It concerns" not in text


def test_an_issue_of_a_known_fault_names_the_calls_that_it_concerns():
    why = "5.24.0 is wrong: generate() passes a cache that XLM feeds on"
    judged = Side("5.x", (), why, concerns="generate() with use_cache, the default")
    assert "- It concerns generate() with use_cache, the default." in with_side("# t\n", judged)


def test_an_issue_accuses_nobody_where_nothing_says_which_side_is_wrong():
    assert with_side("# t\n", Side(why="not known: no finding shows it")) == "# t\n"
    assert (
        with_side("# t\n", Side("", ("SB705", "SB304"), "neither. 4.48: one; 5.x: other"))
        == "# t\n"
    )
