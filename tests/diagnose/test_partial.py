"""What of a cell is judged where a phase raised, a run ended early, or no forward could be fed."""

import asyncio

import pytest

from samebits.diagnose.everywhere import everywhere
from samebits.diagnose.exit_code import fails
from samebits.diagnose.verdict import (
    apply_expected,
    choose_reference,
    exit_code,
    result,
    same_everywhere,
)
from samebits.ladder.verdicts import judge_by_ladder, unmeasured, with_ladder
from samebits.matrix.spec import Expected
from samebits.records.capture import Skip, Unfinished
from samebits.records.ids import Verdict
from samebits.records.ladder import Ladder, LadderFile
from tests.support.builders import (
    buffer,
    capture,
    cell_id,
    decoded,
    logits_of,
    nudged,
    sound_signals,
    values,
)
from tests.support.partial import BEHIND, LATE, both, ended, raised, raising

START = raised("greedy short", message="no decoder_start_token_id, at 0x1f")
UNFED = Skip(what="forward", reason="it takes protein_embeddings", why="inputs")
STACKS = ("4.48", "4.57", "5.0")


def failing(memory, stack="5.0", failure=START, **changed):
    return tuple(raising(run, failure) for run in both(memory, stack, **changed))


def late(memory, stack="5.0", **changed):
    return tuple(ended(run, greedy=None) for run in both(memory, stack, **changed))


def unfed(memory, stack="5.0", **changed):
    gone = {"forward": {}, "greedy": None} | changed
    runs = both(memory, stack, **gone)
    return tuple(run.model_copy(update={"skips": (UNFED,)}) for run in runs)


def moved(memory, by=0.5):
    return logits_of(memory, nudged(values(1, 6, 8, seed=16), 0, 2, 3, by=by))


def row(memory, **cells):
    """Return the results of a row; each keyword is a stack and the runs of its cell."""
    runs = {cell_id(stack.strip("s").replace("_", ".")): made for stack, made in cells.items()}
    reference = choose_reference(runs, "4.48")
    shared = same_everywhere(runs)
    against = runs[reference] if reference else None
    return [result(cell, made, against, memory, everywhere=shared) for cell, made in runs.items()]


def verdicts(results):
    return [(str(found.verdict), found.rest and str(found.rest)) for found in results]


def ladder(kind):
    return Ladder(kind=kind, rule="slope", reason="the difference is still there in float64")


# a phase that raised


def test_what_the_other_phases_observed_is_compared(memory):
    reference, found = row(memory, s4_48=both(memory, "4.48"), s5_0=failing(memory))
    assert (found.verdict, found.rest, found.failure) == ("failed", "identical", START)
    assert found.headline.startswith("failed in phase greedy short: ValueError: no decoder_start")
    outcomes = {signal.signal: signal.outcome for signal in found.signals}
    assert outcomes["logits"] == "identical"
    assert outcomes["greedy"] == outcomes["decode"] == "not compared"
    assert reference.verdict == "reference"


@pytest.mark.parametrize(
    ("observed", "silent", "rest"),
    [
        (None, (), None),
        ("the same", (), None),
        ("other", (), "undecided"),
        ("the same", ("weights",), "failed"),
    ],
)
def test_a_rest_of_which_too_little_was_compared_has_no_verdict(memory, observed, silent, rest):
    names = ("weights", "buffers", "inv_freq", "forward", "greedy")
    skips = {name: "not asked for" for name in names if name not in silent}
    mask = buffer(memory, values(3, 3, seed=14 if observed == "the same" else 70))
    buffers = {"model.mask": mask} if observed else None
    runs = tuple(
        raising(capture("5.0", run=run, skips=skips, buffers=buffers), START, greedy=None)
        for run in "ab"
    )
    found = result(cell_id("5.0"), runs, both(memory, "4.48"), memory)
    assert (found.verdict, found.rest) == ("failed", rest)


def test_a_forward_that_raised_takes_no_other_prompt_with_it(memory):
    forward = sound_signals(memory)["forward"]
    forward["long"] = forward["short"]
    rows = {"short": decoded(memory, 3), "long": decoded(memory, 4)}
    reference = both(memory, "4.48", forward=forward, greedy=rows)
    half = {"forward": {"short": forward["short"]}, "greedy": {"short": rows["short"]}}
    runs = [
        raising(run, raised("forward long"), greedy=half["greedy"])
        for run in both(memory, "5.0", **half)
    ]
    found = result(cell_id("5.0"), tuple(runs), reference, memory)
    assert (found.verdict, found.rest) == ("failed", "identical")
    lost = [item.name for s in found.signals for item in s.items if item.outcome == "not compared"]
    assert set(lost) == {"long"}


def test_the_rest_of_a_failed_cell_climbs_the_ladder(memory):
    cells = {"s4_48": both(memory, "4.48"), "s5_0": failing(memory, forward=moved(memory))}
    _, found = row(memory, **cells)
    assert (found.verdict, found.rest, found.figure) == ("failed", "undecided", "logits 0.5")
    for kind, rest in (
        ("rounding", "rounding"),
        ("diverged", "diverged"),
        ("undecided", "undecided"),
    ):
        judged = with_ladder(found, ladder(kind))
        assert (judged.verdict, judged.judged, judged.rest) == ("failed", "failed", rest)
        assert judged.ladder is not None


def test_another_phase_that_raised_is_noted(memory):
    again = START.model_copy(update={"phase": "greedy pair"})
    more = START, raised("greedy long"), again
    runs = tuple(raising(run, *more) for run in both(memory))
    _, found = row(memory, s4_48=both(memory, "4.48"), s5_0=runs)
    assert found.failure == START
    assert "also raised in other phases: greedy pair: the same" in found.notes
    assert "also raised in other phases: greedy long: ValueError: no start token" in found.notes


# the same failure everywhere


def test_a_failure_of_every_release_is_the_model_s_and_said_once(memory):
    other = START.model_copy(update={"message": "no decoder_start_token_id, at 0x77"})
    cells = {"s4_48": failing(memory, "4.48"), "s4_57": failing(memory, "4.57", other)}
    found = row(memory, **cells, s5_0=failing(memory))
    assert verdicts(found) == [("failed", "reference"), ("identical", None), ("identical", None)]
    assert found[0].headline.startswith("fails in the same way in every release: greedy short: ")
    assert [len(cell.shared_failures) for cell in found] == [1, 1, 1]
    assert found[1].failure is None
    assert any("raises the same exception in the reference" in note for note in found[1].notes)
    (said,) = everywhere(found)
    assert said.cells == (found[0],)
    code, reasons = exit_code(found, [], [])
    assert (code, reasons) == (1, (said.text,))
    assert said.text.startswith("llama fails in the same way in every release: greedy short: Value")


def test_beside_it_what_the_reference_alone_raises_is_said_first(memory):
    alone = raised("greedy long")
    reference = tuple(raising(run, START, alone) for run in both(memory, "4.48"))
    found = row(memory, s4_48=reference, s5_0=failing(memory))
    assert (found[0].failure, found[0].shared_failures) == (alone, (START,))
    assert found[0].headline.startswith("failed in phase greedy long")
    assert found[1].verdict == "identical"


def test_beside_it_what_differs_is_judged_as_ever(memory):
    cells = {"s4_48": failing(memory, "4.48"), "s5_0": failing(memory, forward=moved(memory))}
    found = row(memory, **cells)
    assert verdicts(found) == [("failed", "reference"), ("undecided", None)]
    assert found[0].headline.startswith("fails in the same way in every release: greedy short: ")


@pytest.mark.parametrize(
    "changed",
    [
        {"message": "another"},
        {"type": "TypeError"},
        {"phase": "forward short"},
        {"phase": "greedy long"},
    ],
    ids=["message", "type", "phase", "prompt"],
)
def test_another_failure_is_the_release_s(memory, changed):
    other = START.model_copy(update=changed)
    reference, found = row(
        memory, s4_48=failing(memory, "4.48"), s5_0=failing(memory, "5.0", other)
    )
    assert (reference.verdict, reference.rest) == ("failed", "reference")
    assert reference.headline.startswith("failed in phase greedy short")
    assert (found.verdict, found.failure) == ("failed", other)
    assert everywhere([reference, found]) == []


def test_a_release_that_runs_it_is_the_reference_and_the_others_fail(memory):
    cells = {"s4_48": failing(memory, "4.48"), "s4_57": failing(memory, "4.57")}
    found = row(memory, **cells, s5_0=both(memory))
    assert verdicts(found) == [
        ("failed", "identical"),
        ("failed", "identical"),
        ("reference", None),
    ]
    assert everywhere(found) == []
    assert exit_code(found, [], [])[1] == (
        "2 cells with verdict failed: llama/float32-sdpa@4.48, llama/float32-sdpa@4.57",
    )


def test_one_release_alone_says_nothing_of_every_release(memory):
    (found,) = row(memory, s4_48=failing(memory, "4.48"))
    assert found.headline.startswith("failed in phase greedy short")
    absent = tuple(capture("5.0", run=run, status="absent") for run in "ab")
    found = row(memory, s4_48=failing(memory, "4.48"), s5_0=absent)[0]
    assert found.headline.startswith("failed in phase greedy short")
    two = {"s4_48": failing(memory, "4.48"), "s4_57": failing(memory, "4.57")}
    found = row(memory, **two, s5_0=absent)[0]
    assert found.headline.startswith("fails in the same way in every release: greedy short")


def refused(stack, message="no such name", model="llama", dtype="float32"):
    failure = raised("load", "ImportError", message)
    runs = (capture(stack, run=run, status="failed", model=model) for run in "ab")
    cell = cell_id(stack, model, dtype)
    return tuple(run.model_copy(update={"cell": cell, "failure": failure}) for run in runs)


def of(runs, memory):
    return result(runs[0].cell, runs, None, memory)


def test_a_load_that_fails_in_every_stack_is_said_once_for_the_model(memory):
    stacks = ("4.48", "4.57", "5.0", "5.9")
    variants = ("float32", "bfloat16")
    found = [of(refused(stack, dtype=dtype), memory) for dtype in variants for stack in stacks]
    assert {cell.verdict for cell in found} == {"failed"}
    code, reasons = exit_code(found, [], [])
    assert code == 1
    assert reasons[0] == "llama fails to load in all 4 environments: ImportError: no such name"
    assert len(reasons) == 2  # and that nothing was compared
    sides = both(memory, model="qwen"), both(memory, "4.48", model="qwen")
    more = [*found, result(cell_id("5.0", "qwen"), *sides, memory)]
    assert exit_code(more, [], [])[1] == reasons[:1]


def test_a_load_that_fails_otherwise_in_one_stack_is_not(memory):
    found = [of(refused("4.48"), memory), of(refused("5.0", "another name"), memory)]
    assert everywhere(found) == []
    assert exit_code(found, [], [])[1][0].startswith("2 cells with verdict failed: ")
    assert everywhere(found[:1]) == []


def test_one_variant_that_fails_in_every_stack_is_named_with_it(memory):
    bad = [of(refused(stack, dtype="bfloat16"), memory) for stack in STACKS]
    good = row(memory, s4_48=both(memory, "4.48"), s5_0=both(memory))
    (said,) = everywhere([*good, *bad])
    assert said.text == (
        "llama/bfloat16-sdpa fails to load in all 3 environments: ImportError: no such name"
    )


# the choice of the reference


def test_a_sound_cell_comes_before_the_matrix_s_own_that_raises(memory):
    cells = {"4.40": failing(memory, "4.40"), "4.48": failing(memory, "4.48"), "5.0": both(memory)}
    runs = {cell_id(stack): made for stack, made in cells.items()}
    assert choose_reference(runs, "4.48") == cell_id("5.0")
    del runs[cell_id("5.0")]
    assert choose_reference(runs, "4.48") == cell_id("4.48")
    assert choose_reference(runs, "5.0") == cell_id("4.40")


def test_one_that_did_not_finish_is_the_last_resort(memory):
    cells = {cell_id("4.48"): late(memory, "4.48"), cell_id("5.0"): failing(memory)}
    assert choose_reference(cells, "4.48") == cell_id("5.0")
    assert choose_reference({cell_id("4.48"): late(memory, "4.48")}, "4.48") == cell_id("4.48")
    bare = tuple(
        capture("4.48", run=run, status="unfinished").model_copy(update={"unfinished": LATE})
        for run in "ab"
    )
    assert choose_reference({cell_id("4.48"): bare}, "4.48") is None


def test_one_that_ended_behind_all_that_bears_is_as_good_as_any(memory):
    runs = tuple(ended(run, BEHIND) for run in both(memory, "4.48"))
    assert choose_reference({cell_id("4.48"): runs, cell_id("5.0"): both(memory)}, "4.48") == (
        cell_id("4.48")
    )


def test_one_with_a_forward_comes_before_one_that_could_not_be_fed(memory):
    cells = {"s4_48": unfed(memory, "4.48"), "s4_57": both(memory, "4.57"), "s5_0": both(memory)}
    assert verdicts(row(memory, **cells)) == [
        ("not observed", "identical"),
        ("reference", None),
        ("identical", None),
    ]


def test_a_reference_that_did_not_finish_does_not_pass(memory):
    reference, found = row(memory, s4_48=late(memory, "4.48"), s5_0=late(memory))
    assert (reference.verdict, reference.rest) == ("not finished", "reference")
    assert (found.verdict, found.rest) == ("not finished", "identical")
    assert exit_code([reference, found], [], [])[0] == 3


def test_what_a_cell_that_ended_before_its_forward_shows_is_compared(memory):
    _, found = row(memory, s4_48=both(memory, "4.48"), s5_0=late(memory, forward=None))
    assert (found.verdict, found.rest) == ("not finished", "identical")


@pytest.mark.parametrize("gone", [{"greedy": None}, {"greedy": None, "forward": None}])
def test_a_cell_beside_a_reference_that_did_not_finish_is_not_identical(memory, gone):
    """A run of a matrix takes no such reference; the rebuilt side of `samebits verify` may be one."""
    cut = tuple(ended(run, **gone) for run in both(memory, "4.48"))
    found = result(cell_id("5.0"), both(memory), cut, memory)
    assert (found.verdict, found.rest, found.unfinished) == ("not finished", "identical", LATE)
    assert found.open_reason.endswith(" (forward 3 of 12), in the reference")
    tensors = {"model.mask": buffer(memory, values(3, 3, seed=70))}
    other = result(cell_id("5.0"), both(memory, buffers=tensors), cut, memory)
    assert (other.verdict, other.rest) == ("not finished", "undecided")
    behind = tuple(ended(run, BEHIND) for run in both(memory, "4.48"))
    assert result(cell_id("5.0"), both(memory), behind, memory).verdict == "identical"


# not observed


def test_weights_without_a_forward_are_not_observed(memory):
    _, found = row(memory, s4_48=unfed(memory, "4.48"), s5_0=unfed(memory))
    assert (found.verdict, found.judged, found.rest) == ("not observed",) * 2 + ("identical",)
    assert found.headline == (
        "weights, buffers and inv_freq identical; no forward: it takes protein_embeddings"
    )
    code, reasons = exit_code([found], [], [])
    assert code == 3
    assert reasons == (f"1 cell not observed: {found.headline} (llama/float32-sdpa@5.0)",)


def test_what_is_refused_is_named_before_what_does_not_apply(memory):
    def skipped(runs, *skips):
        return tuple(run.model_copy(update={"skips": (*skips, *run.skips)}) for run in runs)

    plain = Skip(what="prompt long", reason="no window is set")
    sides = {"s4_48": skipped(unfed(memory, "4.48"), plain), "s5_0": skipped(unfed(memory), plain)}
    _, found = row(memory, **sides)
    assert found.headline.endswith("; no forward: it takes protein_embeddings")
    gone = {"forward": {}, "greedy": None, "skips": {"prompt long": "no window is set"}}
    _, found = row(memory, s4_48=both(memory, "4.48", **gone), s5_0=both(memory, **gone))
    assert found.headline.endswith("; no forward: no window is set")


def test_weights_that_differ_are_that_difference(memory):
    other = {"model.mask": buffer(memory, values(3, 3, seed=70))}
    _, found = row(memory, s4_48=unfed(memory, "4.48"), s5_0=unfed(memory, buffers=other))
    assert (found.verdict, found.rest) == ("undecided", None)
    assert with_ladder(found, ladder("diverged")).verdict == "diverged"
    rounds = with_ladder(found, ladder("rounding"))
    assert (rounds.verdict, rounds.rest) == ("not observed", "rounding")


def test_a_prompt_that_does_not_apply_is_no_reason(memory):
    skip = {"prompt long": "no window is set"}
    cells = {"s4_48": both(memory, "4.48", skips=skip), "s5_0": both(memory, skips=skip)}
    assert verdicts(row(memory, **cells))[1] == ("identical", None)


def test_a_prompt_that_one_side_refuses_is_noted(memory):
    forward = sound_signals(memory)["forward"]
    more = {"forward": forward | {"long": forward["short"]}}
    skip = Skip(what="prompt long", reason="refused: pixel_values", why="inputs")
    runs = tuple(run.model_copy(update={"skips": (skip,)}) for run in both(memory))
    _, found = row(memory, s4_48=both(memory, "4.48", **more), s5_0=runs)
    assert found.verdict == "identical"
    assert (
        "logits long: not compared: not observed in the candidate: refused: pixel_values"
        in found.notes
    )


# the third look and the second


def differing(memory):
    cells = {
        cell_id("4.48"): both(memory, "4.48"),
        cell_id("5.0"): both(memory, forward=moved(memory)),
    }
    results = [result(cell, runs, cells[cell_id("4.48")], memory) for cell, runs in cells.items()]
    return cells, results


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (raised("process", "no result", "ended after 120 s"), "not finished"),
        (raised("ladder", "MemoryError", "8 GiB"), "not finished"),
        (raised("ladder", "TypeError", "no float64"), "undecided"),
    ],
)
def test_a_ladder_that_the_machine_ended_decides_nothing(memory, failure, verdict):
    cells, results = differing(memory)

    async def climb(wanted):
        return {
            cell: [LadderFile(cell=cell, failure=failure)] * len(a) for cell, a in wanted.items()
        }

    _, found = asyncio.run(judge_by_ladder(results, cells, memory, climb))
    assert found.verdict == verdict
    if verdict == "not finished":
        assert (found.rest, found.ladder) == ("undecided", None)
        assert found.headline.startswith("not finished: the kind of the difference was not de")
        assert found.unfinished.phase == "float64 check"
        assert exit_code([found], [], [])[0] == 3
    else:
        assert exit_code([found], [], [])[0] == 1


def test_stored_numbers_decide_without_a_ladder(memory):
    other = {"model.mask": buffer(memory, values(3, 3, seed=70))}
    cells = {cell_id("4.48"): both(memory, "4.48"), cell_id("5.0"): both(memory, buffers=other)}
    results = [result(cell, runs, cells[cell_id("4.48")], memory) for cell, runs in cells.items()]

    async def climb(wanted):
        lost = raised("process", "no result", "ended after 120 s")
        return {cell: [LadderFile(cell=cell, failure=lost)] * len(a) for cell, a in wanted.items()}

    _, found = asyncio.run(judge_by_ladder(results, cells, memory, climb))
    assert found.verdict == "diverged"


def test_the_rest_of_a_cell_stays_undecided_where_the_ladder_did_not_run(memory):
    _, found = row(memory, s4_48=both(memory, "4.48"), s5_0=failing(memory, forward=moved(memory)))
    told = with_ladder(found, ladder("undecided"), gone="MemoryError: 8 GiB")
    assert (told.verdict, told.rest, told.ladder) == ("failed", "undecided", None)
    assert any("was not decided: MemoryError" in note for note in told.notes)


def test_values_that_a_second_look_could_not_fetch_decide_nothing(memory):
    _, found = differing(memory)[1]
    cut = {cell_id("5.0"): late(memory)}
    whole = {cell_id("5.0"): both(memory)}
    told = unmeasured(found, cut, {cell_id("5.0")})
    assert (told.verdict, told.rest, told.unfinished.phase) == (
        "not finished",
        "undecided",
        "second look",
    )
    assert unmeasured(found, whole, {cell_id("5.0")}) is found
    assert unmeasured(found, cut, set()) is found
    decided = with_ladder(found, ladder("diverged"))
    assert unmeasured(decided, cut, {cell_id("5.0")}) is decided


# the exit code


def test_what_was_compared_of_a_cell_that_did_not_finish_can_fail_the_run(memory):
    _, found = row(memory, s4_48=both(memory, "4.48"), s5_0=late(memory, forward=moved(memory)))
    assert (found.verdict, found.rest) == ("not finished", "undecided")
    assert not fails(found)  # the ladder has not run
    for kind, code in (("rounding", 3), ("diverged", 1), ("undecided", 1)):
        judged = with_ladder(found, ladder(kind))
        assert exit_code([judged], [], [])[0] == code, kind
    reason = exit_code([with_ladder(found, ladder("diverged"))], [], [])[1]
    assert reason == (
        "1 cell not finished, and what was compared diverged: llama/float32-sdpa@5.0",
    )


def test_nothing_compared_for_want_of_time_is_incomplete(memory):
    bare = tuple(
        capture("5.0", run=run, status="unfinished").model_copy(
            update={"unfinished": Unfinished(phase="load", reason="no progress for 120 s")}
        )
        for run in "ab"
    )
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=bare)
    assert verdicts(found)[1] == ("not finished", None)
    code, reasons = exit_code(found, [], [])
    assert code == 3
    assert reasons == (
        "1 cell not finished: no progress for 120 s in phase load (llama/float32-sdpa@5.0)",
    )


def test_a_failing_cell_comes_before_an_incomplete_one(memory):
    found = row(
        memory, s4_48=both(memory, "4.48"), s4_57=failing(memory, "4.57"), s5_0=late(memory)
    )
    code, reasons = exit_code(found, [], [])
    assert code == 1
    assert [reason.partition(":")[0] for reason in reasons] == [
        "1 cell with verdict failed",
        "1 cell not finished",
    ]


def test_a_pass_has_no_reason(memory):
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=both(memory))
    assert exit_code(found, [], []) == (0, ())


# what is expected


def expect(found, *rules):
    return apply_expected(found, rules, [cell.cell for cell in found], "4.48")


def rule(verdict, **more):
    known = {"model": ("llama",), "stack": ("5.0",), "reason": f"known {verdict}"}
    return Expected(verdict=verdict, **(known | more))


def test_an_entry_covers_a_failure_whose_rest_passes(memory):
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=failing(memory))
    results, (report,) = expect(found, rule("failed"))
    assert (results[1].verdict, results[1].expected) == ("expected", ("known failed",))
    assert exit_code(results, [report], [])[0] == 0
    moved_too = row(memory, s4_48=both(memory, "4.48"), s5_0=failing(memory, forward=moved(memory)))
    rounds = [moved_too[0], with_ladder(moved_too[1], ladder("rounding"))]
    assert expect(rounds, rule("failed"))[0][1].verdict == "expected"


def test_what_diverges_beside_a_failure_needs_an_entry_of_its_own(memory):
    cells = {"s4_48": both(memory, "4.48"), "s5_0": failing(memory, forward=moved(memory))}
    reference, found = row(memory, **cells)
    found = [reference, with_ladder(found, ladder("diverged"))]
    results, reports = expect(found, rule("failed"))
    assert (results[1].verdict, results[1].expected) == ("failed", ("known failed",))
    assert reports[0].cells == ()
    assert reports[0].fixed == ()
    assert exit_code(results, reports, [])[1][1] == (
        "llama/float32-sdpa@5.0: its failure is expected, but no entry covers the rest "
        "(diverged in logits)"
    )
    for rules, verdict in (
        ((rule("failed"), rule("diverged", signal=("logits",))), "expected"),
        ((rule("failed"), rule("differs")), "expected"),
        ((rule("failed"), rule("diverged", signal=("weights",))), "failed"),
        ((rule("diverged"),), "failed"),
    ):
        results, reports = expect(found, *rules)
        assert results[1].verdict == verdict
        assert [report.fixed for report in reports] == [()] * len(rules)


@pytest.mark.parametrize(
    ("phase", "signal"),
    [
        ("greedy short", "greedy"),
        ("greedy short", "decode"),
        ("forward short", "logits"),
        ("state", "state"),
        ("load", "load"),
        ("config", "load"),
    ],
)
def test_an_entry_covers_only_exceptions_of_the_signals_it_names(memory, phase, signal):
    broken = raised(phase)
    made = failing(memory, failure=broken)
    if signal == "load":
        update = {"status": "failed", "failure": broken, "failures": ()}
        made = tuple(run.model_copy(update=update) for run in made)
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=made)
    assert expect(found, rule("failed"))[0][1].verdict == "expected"
    decoded = {"decode", "greedy"}
    for named in ("greedy", "decode", "logits", "state", "load", "weights"):
        results, (report,) = expect(found, rule("failed", signal=(named,)))
        is_covered = named == signal or {named, signal} <= decoded
        assert (results[1].verdict, report.fixed) == ("expected" if is_covered else "failed", ())


def test_an_entry_that_names_a_probe_covers_its_exception(memory):
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=both(memory))
    broken = {"verdict": Verdict.FAILED, "judged": Verdict.FAILED, "rest": Verdict.IDENTICAL}
    broken["failures"] = (raised("probe my_probe.scores"),)
    found[1] = found[1].model_copy(update=broken)
    assert expect(found, rule("failed", signal=("my_probe",)))[0][1].verdict == "expected"
    assert expect(found, rule("failed", signal=("logits",)))[0][1].verdict == "failed"


def test_an_accepted_instability_covers_no_exception_beside_it(memory):
    found = row(memory, s4_48=both(memory, "4.48"), s5_0=both(memory))
    update = {
        "verdict": Verdict.UNSTABLE,
        "judged": Verdict.UNSTABLE,
        "unstable_signals": ("logits",),
    }
    found[1] = found[1].model_copy(update=update)
    assert expect(found, rule("unstable"))[0][1].verdict == "expected"
    found[1] = found[1].model_copy(update={"failures": (raised("greedy short"),)})
    assert expect(found, rule("unstable"))[0][1].verdict == "unstable"
    both_listed = (rule("unstable"), rule("failed", signal=("greedy",)))
    assert expect(found, *both_listed)[0][1].verdict == "expected"
    other = (rule("unstable"), rule("failed", signal=("logits",)))
    results, reports = expect(found, *other)
    assert results[1].verdict == "unstable"
    assert exit_code(results, reports, [])[1][-1] == (
        "llama/float32-sdpa@5.0: a part of it is expected, but no entry covers what else it raises "
        "(greedy short: ValueError: no start token)"
    )


def unstable(memory, *failures, stack="5.0"):
    """Return a cell whose logits differ between its runs, with the exceptions of its first and second run."""
    runs = (both(memory, stack)[0], both(memory, stack, forward=moved(memory))[1])
    return tuple(raising(run, *raised) for run, raised in zip(runs, failures, strict=True))


def test_an_exception_of_one_run_alone_is_the_instability_itself(memory):
    start = raised("greedy short")
    for raises, signals, verdict in (
        (((start,), ()), ("logits", "greedy", "decode"), "expected"),
        (((start,), ()), ("logits",), "unstable"),
        (((start,), (start,)), ("logits", "greedy"), "unstable"),
    ):
        found = row(memory, s4_48=both(memory, "4.48"), s5_0=unstable(memory, *raises))
        assert found[1].judged == "unstable"
        assert expect(found, rule("unstable", signal=signals))[0][1].verdict == verdict


def test_an_exception_of_the_reference_too_needs_no_entry_beside_an_accepted_instability(memory):
    start = raised("greedy short")
    cells = {"s4_48": failing(memory, "4.48", start), "s5_0": unstable(memory, (start,), (start,))}
    reference, found = row(memory, **cells)
    assert (found.verdict, found.failures) == ("unstable", ())
    assert expect([reference, found], rule("unstable"))[0][1].verdict == "expected"


def test_an_entry_for_one_exception_covers_no_second_one(memory):
    start, cut = raised("greedy short"), raised("state short", "IndexError", "out of range")
    greedy, state = rule("failed", signal=("greedy",)), rule("failed", signal=("state",))
    for raises, rules, verdict in (
        ((start,), (greedy,), "expected"),
        ((start, cut), (greedy,), "failed"),
        ((start, cut), (state,), "failed"),
        ((start, cut), (greedy, state), "expected"),
        ((start, cut), (rule("failed"),), "expected"),
        ((start, raised("state short")), (greedy,), "expected"),  # the same one, raised again
        ((start, raised("state short")), (state,), "failed"),
    ):
        made = tuple(raising(run, *raises) for run in both(memory))
        found = row(memory, s4_48=both(memory, "4.48"), s5_0=made)
        assert expect(found, *rules)[0][1].verdict == verdict, (raises, rules)
    made = tuple(raising(run, start, cut) for run in both(memory))
    results, reports = expect(row(memory, s4_48=both(memory, "4.48"), s5_0=made), greedy)
    assert results[1].expected == ("known failed",)
    assert exit_code(results, reports, [])[1][-1] == (
        "llama/float32-sdpa@5.0: a part of it is expected, but no entry covers what else it raises "
        "(state short: IndexError: out of range)"
    )


def test_no_entry_covers_that_a_cell_did_not_finish(memory):
    cells = {"s4_48": both(memory, "4.48"), "s5_0": late(memory, forward=moved(memory))}
    reference, found = row(memory, **cells)
    found = [reference, with_ladder(found, ladder("diverged"))]
    for verdict in ("failed", "unstable", "not observed"):
        results, (report,) = expect(found, rule(verdict))
        assert (results[1].verdict, report.fixed) == ("not finished", ())
        assert exit_code(results, [report], [])[0] == 1
    results, (report,) = expect(found, rule("diverged"))
    assert (results[1].verdict, results[1].expected) == ("not finished", ("known diverged",))
    assert exit_code(results, [report], [])[0] == 3


def test_an_entry_may_cover_a_model_that_is_known_not_to_be_fed(memory):
    found = row(memory, s4_48=unfed(memory, "4.48"), s5_0=unfed(memory))
    results, (report,) = expect(found, rule("not observed"))
    assert results[1].verdict == "expected"
    assert exit_code(results, [report], [])[0] == 0
    for verdict in ("failed", "differs", "diverged", "unstable"):
        results, (report,) = expect(found, rule(verdict))
        assert (results[1].verdict, report.fixed) == ("not observed", ())
    clean = row(memory, s4_48=both(memory, "4.48"), s5_0=both(memory))
    assert expect(clean, rule("not observed"))[1][0].fixed == ("llama", "5.0")


def test_an_entry_covers_what_every_release_fails_at(memory):
    cells = {"s4_48": failing(memory, "4.48"), "s5_0": failing(memory)}
    found = row(memory, **cells)
    results, (report,) = expect(found, rule("failed", stack=("*",)))
    assert [cell.verdict for cell in results] == ["expected", "identical"]
    assert (report.fixed, exit_code(results, [report], [])[0]) == ((), 0)


def test_a_failure_that_the_reference_has_too_is_not_fixed(memory):
    """As where a run leaves out the release that runs it."""
    found = row(memory, s4_48=failing(memory, "4.48"), s5_0=failing(memory))
    results, (report,) = expect(found, rule("failed"))
    assert (results[1].verdict, report.fixed) == ("identical", ())
