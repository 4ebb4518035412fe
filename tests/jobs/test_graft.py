"""Grafts: questions about a pair, jobs of donor and patient, and their part of the report."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from samebits.capsules.asking import CannotReproduce, query_for
from samebits.diagnose.verdict import result as compare_cell
from samebits.grafts.questions import (
    GraftQuestion,
    GraftQuestions,
    grafts_of,
    questions_of,
    with_graft,
)
from samebits.jobs import graft as grafting
from samebits.jobs.common import ReadyPair
from samebits.jobs.lab import Lab
from samebits.records.capture import Failure
from samebits.records.graft import (
    DonorFile,
    DonorOutput,
    Graft,
    GraftFile,
    GraftSuspect,
    Try,
    Untried,
)
from samebits.records.ids import Verdict
from samebits.records.tensor import tensor_hash
from samebits.reports.cell import graft as shown
from samebits.reports.cell.graft import graft_in_short
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import (
    Memory,
    cell_id,
    decoded,
    forward,
    frequencies,
    layers,
    sound,
    sound_signals,
    values,
    weight,
    weights_signal,
)
from tests.support.jobs import CHECKPOINT, Child, job_cache, ready_cell

REF, CELL = cell_id("4.48"), cell_id("5.x")


# --- questions ---------------------------------------------------------------------------------


def pair(memory, *, verdict=Verdict.DIVERGED, **changed):
    """Return the captures of a reference and a candidate, and the result with ``verdict``."""
    references = (sound(memory), sound(memory, run="b"))
    candidates = (sound(memory, "5.x", **changed), sound(memory, "5.x", run="b", **changed))
    result = compare_cell(candidates[0].cell, candidates, references, memory)
    return references[0], candidates[0], result.model_copy(update={"judged": verdict})


def moved(memory, **more):
    hidden = layers(memory, *(values(1, 6, 4, seed=seed) for seed in (0, 71, 72)))
    return {"short": forward(memory, hidden=hidden, logits=values(1, 6, 8, seed=99), **more)}


def test_a_forward_is_asked_with_what_both_sides_gave_and_must_give_again():
    memory = Memory()
    reference, candidate, result = pair(memory, forward=moved(memory))
    (question,) = questions_of(result, reference, candidate, memory)
    assert (question.prompt, question.what, question.forced) == ("short", "forward", {})
    hashes = [
        [*(layer.ref.hash for layer in side.hidden_states), side.logits.hash]
        for side in (reference.signals.forward["short"], candidate.signals.forward["short"])
    ]
    assert [list(question.donor_expected), list(question.expected)] == hashes
    assert question.compared == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_the_forward_that_is_farthest_apart_is_asked_first():
    memory = Memory()
    logits = values(1, 6, 8, seed=16)
    near, far = (forward(memory, hidden=(), logits=logits + np.float32(by)) for by in (0.001, 3.0))
    same = forward(memory, hidden=(), logits=logits)
    reference = sound(memory, forward={"short": same, "long": same})
    candidate = sound(memory, "5.x", forward={"short": near, "long": far})
    result = compare_cell(candidate.cell, (candidate, candidate), (reference, reference), memory)
    result = result.model_copy(update={"judged": Verdict.DIVERGED})
    assert [ask.prompt for ask in questions_of(result, reference, candidate, memory)] == [
        "long",
        "short",
    ]


def test_layers_pair_as_the_comparison_pairs_them():
    memory = Memory()
    names = ["embeddings", "model.layers.1", "model.layers.0"]
    hidden = layers(memory, *(values(1, 6, 4, seed=s) for s in (0, 71, 72)), names=names)
    reference, candidate, result = pair(
        memory, forward={"short": forward(memory, hidden=hidden, logits=values(1, 6, 8))}
    )
    (question,) = questions_of(result, reference, candidate, memory)
    assert question.compared == ((0, 0), (1, 2), (2, 1), (3, 3))


def test_a_decode_is_asked_to_give_every_step_of_the_reference():
    memory = Memory()
    reference, candidate, result = pair(memory, greedy={"short": decoded(memory, 3, 1, 5)})
    (question,) = questions_of(result, reference, candidate, memory)
    assert question.what == "decode"
    assert question.forced == {"short": (3, 1, 4)}
    assert len(question.compared) == 3
    facts = reference.signals.greedy["short"].logits
    steps = memory.tensor(facts)
    assert question.donor_expected == tuple(
        tensor_hash(facts.dtype, step.shape, step.tobytes()) for step in steps
    )


def test_a_decode_of_a_prompt_without_a_forward_is_asked():
    """A class whose forward refuses a text may generate from it, as that of Florence-2."""
    memory = Memory()
    sides = [
        (sound(memory, stack, forward={}, greedy={"short": decoded(memory, *ids)}),) * 2
        for stack, ids in (("4.48", (3, 1, 4)), ("5.x", (3, 1, 5)))
    ]
    (reference, _), (candidate, _) = sides
    result = compare_cell(candidate.cell, sides[1], sides[0], memory)
    result = result.model_copy(update={"judged": Verdict.DIVERGED})
    (question,) = questions_of(result, reference, candidate, memory)
    assert (question.prompt, question.what) == ("short", "decode")
    with pytest.raises(CannotReproduce, match="the reference has no forward of prompt short"):
        query_for(result, reference, (candidate, candidate), memory)


def test_steps_behind_another_token_are_not_expected_of_the_cell():
    memory = Memory()
    reference, candidate, result = pair(memory, greedy={"short": decoded(memory, 3, 2, 4)})
    (question,) = questions_of(result, reference, candidate, memory)
    assert all(question.expected[:2])
    assert question.expected[2] == ""
    assert all(question.donor_expected)


@pytest.mark.parametrize("verdict", [Verdict.IDENTICAL, Verdict.FAILED, Verdict.ABSENT])
def test_a_pair_of_the_same_bits_is_never_asked(verdict):
    memory = Memory()
    reference, candidate, result = pair(memory, verdict=verdict)
    assert questions_of(result, reference, candidate, memory) == []


def test_only_what_differs_is_asked_for_and_the_rest_is_said():
    memory = Memory()
    signals = sound_signals(memory)
    tensors = dict(signals["weights"].tensors)
    tensors["model.layers.0.q.weight"] = weight(memory, values(4, 4, seed=40))
    changed = {
        "weights": weights_signal(tensors),
        "inv_freq": {
            name: frequencies(memory, values(2, seed=41), scaling=2.0)
            for name in ("model.a.inv_freq", "model.b.inv_freq")
        },
        "config": {"hidden_size": 4, "rope": {"theta": 500.0}, "new": 1},
    }
    reference, candidate, result = pair(memory, forward=moved(memory), **changed)
    (question,) = questions_of(result, reference, candidate, memory)
    assert question.weights == (("model.layers.0.q.weight", "model.layers.0.q.weight"),)
    assert question.buffers == (
        ("model.rotary_emb.inv_freq", "model.a.inv_freq", 1.0),
        ("model.rotary_emb.inv_freq", "model.b.inv_freq", 1.0),
    )
    assert question.config == {"rope.theta": (10000.0, 500.0)}
    assert question.untried == (("config field new", "the reference's config has no such field"),)


def test_a_cell_that_contradicts_itself_is_asked_prompt_by_prompt():
    memory = Memory()
    reference = sound(memory)
    candidates = [sound(memory, "5.x", run=run, forward=moved(memory)) for run in "ab"]
    second_forward = {"short": forward(memory, logits=values(1, 6, 8, seed=7))}
    candidates[1] = sound(memory, "5.x", run="b", forward=second_forward)
    result = compare_cell(candidates[0].cell, tuple(candidates), (reference, reference), memory)
    assert result.judged is Verdict.UNSTABLE
    (question,) = questions_of(result, reference, candidates[0], memory)
    assert (question.prompt, question.what) == ("short", "forward")


def test_a_cell_that_contradicts_itself_is_asked_for_the_stored_tensors_that_differ():
    """A head that 4.x ties and 5.x initializes randomly: the unstable cell has no compared signal."""
    memory = Memory()
    embed = values(8, 4)
    tied = {"embed": weight(memory, embed, "embed", aliases=("head",))}
    reference = sound(memory, weights=weights_signal(tied))
    candidates = []
    for run, seed in (("a", 5), ("b", 6)):
        drawn = weight(memory, values(8, 4, seed=seed), origin="reinitialised")
        tensors = {"embed": weight(memory, embed, "embed"), "head": drawn}
        candidates.append(sound(memory, "5.x", run=run, weights=weights_signal(tensors)))
    result = compare_cell(candidates[0].cell, tuple(candidates), (reference, reference), memory)
    assert result.judged is Verdict.UNSTABLE
    (question,) = questions_of(result, reference, candidates[0], memory)
    assert question.weights == (("embed", "head"),)
    assert result.signals == ()


def ask_grafts(memory, chosen=None, answer="because", known=None, **options):
    reference, candidate, result = pair(memory, **options)
    asked_questions = {}

    async def ask(questions):
        asked_questions.update(questions)
        return dict.fromkeys(questions, answer)

    runs = {reference.cell: (reference, reference), candidate.cell: (candidate, candidate)}
    grafts = asyncio.run(grafts_of([result], runs, memory, ask, chosen, known))
    return asked_questions, with_graft(result, grafts.get(result.cell))


def test_only_the_cells_that_may_be_are_asked_and_a_reason_becomes_a_note():
    memory = Memory()
    differs = {"forward": moved(memory)}
    questions, result = ask_grafts(memory, **differs)
    assert [graft_record.reference for graft_record in questions.values()] == [REF]
    assert any("because" in note for note in result.notes)
    assert ask_grafts(memory, set(), **differs)[0] == {}
    assert ask_grafts(memory, verdict=Verdict.IDENTICAL)[0] == {}
    assert ask_grafts(memory, answer=graft_record(), **differs)[1].graft == graft_record()


def test_what_an_earlier_run_found_is_not_asked_again():
    memory = Memory()
    questions, result = ask_grafts(memory, known={CELL: graft_record()}, forward=moved(memory))
    assert questions == {}
    assert result.graft == graft_record()
    assert (
        ask_grafts(memory, set(), known={CELL: graft_record()}, forward=moved(memory))[1].graft
        is None
    )


# --- jobs --------------------------------------------------------------------------------------

QUESTION = GraftQuestion(
    prompt="short",
    what="forward",
    expected=("", ""),
    donor_expected=("", ""),
    compared=((0, 0), (1, 1)),
)
DONOR = DonorFile(
    cell=REF,
    prompt="short",
    what="forward",
    outputs=(
        DonorOutput(
            name="logits",
            rows="x",
            ref=Memory().put(values(2)).model_copy(update={"stored": False}),
        ),
    ),
)


def patient_file(*tried, **more):
    fields = {"cell": CELL, "prompt": "short", "what": "forward", **more}
    suspects = tuple(
        GraftSuspect(kind="buffer", name=name, what="") for run in tried for name in run.suspects
    )
    return GraftFile(suspects=tuple(dict.fromkeys(suspects)), tried=tried, **fields)


PLAIN = Try(suspects=(), same=1, of=4, first="model.layers.0", max_abs=2.0)
RESTORES = Try(suspects=("inv_freq",), same=4, of=4, max_abs=0.0)
PATIENT = patient_file(PLAIN, RESTORES)


class Process(Child):
    """A stack process whose child leaves ``answers``, in turn."""

    def __init__(self, *answers):
        left = list(answers)
        super().__init__(lambda _: left.pop(0) if len(left) > 1 else left[0])


def graft(root, donor, patient, questions=(QUESTION,), **changed):
    sides = ((REF, donor), (CELL, patient))
    pair = ReadyPair(*(ready_cell(cell, process, **changed) for cell, process in sides))
    request = GraftQuestions(REF, list(questions))
    return asyncio.run(grafting.graft(Lab(job_cache(root, **changed)), pair, request))


def test_a_donor_runs_first_and_its_file_is_what_the_patient_is_told(tmp_path):
    donor, patient = Process(DONOR), Process(PATIENT)
    result = graft(tmp_path, donor, patient)
    assert result.smallest == ("inv_freq",)
    assert result.proof == "alone"
    (donor_job,), (patient_job,) = donor.jobs, patient.jobs
    assert (donor_job["kind"], donor_job["task"]["role"]) == ("graft", "donor")
    assert patient_job["task"]["role"] == "patient"
    cached, written = Path(patient_job["task"]["donor"]), Path(donor_job["task"]["result"])
    assert written.name.startswith(
        f"{cached.stem}."
    )  # until it is read, what a run left is its own
    assert cached.read_text("utf-8") == sealed(DONOR.model_dump_json())
    assert not written.exists()
    assert "donor_expected" not in patient_job["task"]


def test_a_donor_whose_values_are_damaged_runs_again(tmp_path):
    memory = Memory()
    ref = memory.put(values(3)).model_copy(update={"stored": True})
    donor_file = DONOR.model_copy(update={"seen": {"mask": ({"ref": ref.model_dump()},)}})
    path = Store(tmp_path).tensor_path(ref)
    path.parent.mkdir(parents=True)
    content = memory.arrays[ref.hash].tobytes()

    def n_donors():
        donor = Process(donor_file)
        graft(tmp_path, donor, Process(PATIENT))
        return len(donor.jobs)

    path.write_bytes(content)
    assert [n_donors(), n_donors()] == [1, 0]
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert n_donors() == 1


def test_the_same_again_runs_nothing_and_what_the_bits_follow_from_runs_it_again(tmp_path):
    def n_jobs(**changed):
        donor, patient = Process(DONOR), Process(PATIENT)
        graft(tmp_path, donor, patient, **changed)
        return len(donor.jobs), len(patient.jobs)

    assert n_jobs() == (1, 1)
    assert n_jobs() == (0, 0)
    assert n_jobs(fresh=True) == (1, 1)
    assert n_jobs(probes="other") == (1, 1)
    assert n_jobs(machine="other") == (1, 1)
    assert n_jobs(questions=[QUESTION.model_copy(update={"config": {"eps": (1.0, 2.0)}})]) == (0, 1)
    assert n_jobs(questions=[QUESTION.model_copy(update={"weights": (("a", "b"),)})]) == (1, 1)
    assert n_jobs(checkpoint=CHECKPOINT.model_copy(update={"digest": None})) == (1, 1)
    assert n_jobs(checkpoint=CHECKPOINT.model_copy(update={"digest": None})) == (1, 1)


def test_a_donor_that_left_a_tensor_that_is_gone_is_asked_again(tmp_path):
    ref = Memory().put(values(3)).model_copy(update={"stored": True})
    path = tmp_path / "tensors" / ref.hash[:2] / f"{ref.hash}.bin"
    path.parent.mkdir(parents=True)
    seen = {"rope": ({"cos": ref.model_dump(mode="json")},)}
    donor_file = DONOR.model_copy(update={"seen": seen})

    def n_jobs():
        donor, patient = Process(donor_file), Process(PATIENT)
        graft(tmp_path, donor, patient)
        return len(donor.jobs), len(patient.jobs)

    path.write_bytes(values(3).tobytes())
    assert [n_jobs(), n_jobs()] == [(1, 1), (0, 0)]
    path.unlink()
    assert n_jobs() == (1, 0)
    path.write_bytes(values(3).tobytes())
    assert n_jobs() == (0, 0)


@pytest.mark.parametrize(
    ("donor", "patient", "reason"),
    [
        (None, PATIENT, "a process wrote no result"),
        (DONOR.model_copy(update={"mismatch": "logits is not as"}), PATIENT, "@4.48: logits is"),
        (
            DONOR,
            patient_file(mismatch="logits differs from the cell's own run"),
            "@5.x: logits differs",
        ),
        (
            DONOR,
            patient_file(
                failure=Failure(phase="load", type="ValueError", message="no\nx", traceback="")
            ),
            "ValueError: no",
        ),
    ],
)
def test_what_cannot_be_answered_is_a_reason(tmp_path, donor, patient, reason):
    result = graft(tmp_path, Process(donor), Process(patient))
    assert isinstance(result, str)
    assert reason in result


def test_other_prompts_begin_with_what_restored_the_first(tmp_path):
    second_question = QUESTION.model_copy(update={"prompt": "long"})
    mismatch = patient_file(mismatch="no").model_copy(update={"prompt": "padded"})
    questions = [QUESTION, second_question, QUESTION.model_copy(update={"prompt": "padded"})]
    patient = Process(PATIENT, PATIENT.model_copy(update={"prompt": "long"}), mismatch)
    result = graft(tmp_path, Process(DONOR), patient, questions)
    assert [job["task"]["hint"] for job in patient.jobs] == [[], ["inv_freq"], ["inv_freq"]]
    assert [more.prompt for more in result.more] == ["long"]
    assert result.unasked == ("llama/float32-sdpa@5.x: no",)


def test_prompts_beyond_the_first_few_are_said_not_to_be_tried(tmp_path):
    questions = [QUESTION.model_copy(update={"prompt": f"p{n}"}) for n in range(8)]
    patient = Process(PATIENT)
    result = graft(tmp_path, Process(DONOR), patient, questions)
    assert len(patient.jobs) == 6
    assert result.unasked == ("2 more prompts were not tried",)


def test_where_nothing_restores_the_first_the_others_are_not_tried(tmp_path):
    patient = Process(patient_file(PLAIN, Try(suspects=("inv_freq",), same=1, of=4, max_abs=2.0)))
    result = graft(
        tmp_path, Process(DONOR), patient, [QUESTION, QUESTION.model_copy(update={"prompt": "x"})]
    )
    assert len(patient.jobs) == 1
    assert result.more == ()
    assert "were not tried" in result.unasked[0]


# --- report ------------------------------------------------------------------------------------


def graft_record(**changed):
    fields = {
        "prompt": "short",
        "what": "forward",
        "headline": "swapping only `inv_freq` restores bit equality",
        "proof": "alone",
        "smallest": ("inv_freq",),
        "suspects": (GraftSuspect(kind="buffer", name="inv_freq", what="float32[8]"),),
        "tried": (PLAIN, RESTORES),
        "untried": (Untried(what="cache contents", reason="another | layout"),),
    }
    return Graft(**(fields | changed))


def cell(graft):
    return compare_cell(CELL, (), None, Memory()).model_copy(update={"graft": graft})


def test_a_cell_without_a_graft_shows_nothing():
    assert shown.grafts_of(cell(None)) == ""
    assert graft_in_short(cell(None)) == ""


def test_the_sentence_stands_above_the_number_of_sets_that_were_tried():
    text = shown.grafts_of(cell(graft_record()))
    assert text.startswith("**What restores the bits:** swapping only ")
    assert "1 set of pieces of the reference tried in the forward of short." in text
    assert graft_in_short(cell(graft_record())) == "swapping only inv_freq restores the bits"
    assert graft_in_short(cell(graft_record()), "inv_freq") == "swapping it alone restores the bits"


def test_where_another_prompt_needs_more_the_short_form_claims_no_more_than_was_seen():
    same, more = (
        graft_record(prompt="long"),
        graft_record(prompt="pair", what="decode", smallest=("inv_freq", "call")),
    )
    assert graft_in_short(cell(graft_record(more=(same,)))).endswith("restores the bits")
    unlike = cell(graft_record(more=(same, more)))
    assert graft_in_short(unlike).endswith("restores the bits of the forward of short")
    text = shown.grafts_of(unlike)
    assert "The same swap restores the bits in the forward of `long` (4 of 4)." in text
    assert text.count(" tried in ") == 2
    assert graft_in_short(cell(graft_record(unasked=("why",)))).endswith("of the forward of short")


def test_of_a_cell_that_contradicts_itself_it_is_said_of_one_run():
    unstable = cell(graft_record()).model_copy(update={"judged": Verdict.UNSTABLE})
    assert graft_in_short(unstable).endswith("restores the bits of run a")
    assert "with the memory contents of run a" in shown.grafts_of(unstable)
    assert "run a" not in shown.grafts_of(cell(graft_record()))


def test_a_set_that_is_not_proven_is_not_in_the_short_form():
    assert graft_in_short(cell(graft_record(proof="none", smallest=()))) == ""
