"""Which decodes the ladder makes, which it takes from the cells' own runs, and when it may not."""

import asyncio

import numpy as np
import pytest

from samebits.compare.signals import compare
from samebits.diagnose.verdict import result
from samebits.ladder.asking import Ask, asks, is_repeated, merged, whole, without_known
from samebits.ladder.decodes import with_observed
from samebits.ladder.verdicts import judge_by_ladder
from samebits.records.ladder import LadderFile, Rung, RungForward
from tests.support.builders import (
    cell_id,
    decoded,
    forward,
    sound,
    step_logits,
    values,
    with_signals,
)

PROMPTS = ("short", "long", "padded")
TOKENS = (3, 5, 7)
STEPS = step_logits(*TOKENS)
LOGITS = values(1, 6, 16, seed=3)
NEAR, TINY = np.float32(1e-6), 1e-15


def side(memory, stack, *differing, ids=TOKENS):
    """Return a cell whose decodes of some prompts are moved by a rounding."""

    def row(name):
        logits = STEPS + NEAR if name in differing else STEPS
        return decoded(memory, *ids, logits=logits)

    return sound(
        memory,
        stack,
        forward={name: forward(memory, logits=LOGITS) for name in PROMPTS},
        greedy={name: row(name) for name in PROMPTS},
    )


def asked(memory, *differing, **more):
    """Return the job of the candidate."""
    one, other = side(memory, "4.48"), side(memory, "5.x", *differing, **more)
    _, ask = asks(one, other, compare(one, other, memory), memory)
    return without_known(ask, other, memory)


def test_all_that_differs_is_decoded_and_known_in_the_own_dtype(memory):
    ask = asked(memory, *PROMPTS)
    assert (ask.decodes, ask.own_decodes) == (None, ())


@pytest.mark.parametrize(
    ("differing", "decodes", "own"),
    [
        (("padded",), ("padded",), ("padded",)),
        (("short",), ("short",), ()),
        (("long",), ("long",), ("long",)),
        (("short", "padded"), ("short", "padded"), ("padded",)),
        (("short", "long"), ("short", "long"), ()),
    ],
)
def test_a_decode_with_equal_bytes_is_left_out_and_those_behind_it_are_checked(
    memory, differing, decodes, own
):
    ask = asked(memory, *differing)
    assert (ask.decodes, ask.own_decodes) == (decodes, own)


def test_a_check_that_costs_more_than_it_saves_is_not_made(memory):
    ask = asked(memory, "long", "padded")
    assert (ask.decodes, ask.own_decodes) == (None, ())


def test_other_tokens_and_values_that_are_not_stored_are_decoded_in_the_own_dtype(memory):
    assert asked(memory, *PROMPTS, ids=(3, 5, 6)).own_decodes == PROMPTS
    one, other = side(memory, "4.48"), side(memory, "5.x", *PROMPTS)
    greedy = other.signals.greedy
    lost = greedy["long"].logits.model_copy(update={"stored": False, "hash": "0" * 64})
    greedy = greedy | {"long": greedy["long"].model_copy(update={"logits": lost})}
    other = with_signals(other, greedy=greedy)
    _, ask = asks(one, other, compare(one, other, memory), memory)
    assert without_known(ask, other, memory).own_decodes == ("long",)


def test_jobs_of_a_reference_are_one_job_with_all_that_its_candidates_need(memory):
    one = side(memory, "4.48")
    others = side(memory, "5.0", "long"), side(memory, "5.x", "padded")
    first, second = (asks(one, o, compare(one, o, memory), memory)[0] for o in others)
    assert first != second
    both = merged([first, second])
    assert both[0] == both[1]
    assert both[0].decodes == ("long", "padded")
    assert both[0].again == ("decode long", "decode padded")
    assert set(both[0].observed) == {"decode long", "decode padded"}
    tables = second.model_copy(update={"tables": True})
    assert merged([first, tables]) == [first, tables]
    assert merged([first, whole(first)]) == [first, whole(first)]


def own_decode(memory, one, name, logits):
    rung = Rung(decode={name: memory.put(logits)})
    return LadderFile(cell=one.cell, rungs={"own": rung})


def test_a_decode_behind_one_that_was_left_out_must_give_the_bits_of_the_cells_run(memory):
    other = side(memory, "5.x", "padded")
    ask = asked(memory, "padded")
    for logits, repeats in ((STEPS + NEAR, True), (STEPS, False)):
        file = own_decode(memory, other, "padded", logits)
        assert is_repeated(file, other, ask, memory) is repeats
    assert not is_repeated(LadderFile(cell=other.cell), other, ask, memory)
    assert is_repeated(LadderFile(cell=other.cell), other, whole(ask), memory)


def test_a_row_is_checked_up_to_its_first_other_token(memory):
    other = side(memory, "5.x", "padded", ids=(3, 6, 7))
    ask = Ask(forced=dict.fromkeys(PROMPTS, TOKENS), decodes=("padded",), own_decodes=("padded",))
    for step, repeats in ((0, False), (1, False), (2, True)):
        logits = (STEPS + NEAR).copy()
        logits[step] += 1
        file = own_decode(memory, other, "padded", logits)
        assert is_repeated(file, other, ask, memory) is repeats, step


def test_decodes_of_the_cells_run_stand_in_the_order_of_the_prompts(memory):
    one = side(memory, "4.48")
    forced = dict.fromkeys(PROMPTS, TOKENS)
    file = own_decode(memory, one, "long", STEPS + NEAR)
    assert with_observed(file, one, forced) == file
    known = file.model_copy(update={"not_decoded": ("padded", "short")})
    rows = with_observed(known, one, forced).rungs["own"].decode
    assert list(rows) == list(PROMPTS)
    assert rows["short"] == one.signals.greedy["short"].logits
    assert rows["long"] == file.rungs["own"].decode["long"]
    split = with_observed(known, one, forced | {"short": (3, 5, 6)})
    assert list(split.rungs["own"].decode) == ["long", "padded"]


# --- the third look --------------------------------------------------------------------------


def judged(memory, *, stateful, deep=False, left=TINY):
    """Return the verdict of a cell whose decode of padded differs, and the jobs it took.

    In a stateful cell it has other bits unless the decode of long precedes it.
    """
    pair = side(memory, "4.48"), side(memory, "5.x", "padded")
    runs = {one.cell: (one, one) for one in pair}
    results = [result(one.cell, (one, one), (pair[0], pair[0]), memory) for one in pair]
    wanted = []

    def file_of(cell, ask):
        wanted.append((cell.stack, ask))
        moved = NEAR if cell.stack == "5.x" else np.float32(0)
        alone = ask.decodes is not None and stateful and cell.stack == "5.x"
        names = ask.decodes or PROMPTS
        own = names if ask.own_decodes is None else ask.own_decodes
        logits = memory.put(LOGITS)
        told = {name: RungForward(logits=logits, hidden_states=()) for name in PROMPTS}
        far = 0.0 if cell.stack == "4.48" or alone else left
        exact = {
            name: STEPS.astype(np.float64) + (far if name == "padded" else 0) for name in names
        }
        native = {n: STEPS + (1 if alone else moved if n == "padded" else 0) for n in own}
        rungs = {
            "own": (told, native),
            "float64": (
                dict.fromkeys(PROMPTS, RungForward(logits=memory.put(LOGITS * 1.0))),
                exact,
            ),
        }
        made = {
            name: Rung(forward=f, decode={row: memory.put(a) for row, a in rows.items()})
            for name, (f, rows) in rungs.items()
        }
        return LadderFile(
            cell=cell, rungs=made, not_decoded=tuple(n for n in PROMPTS if n not in own)
        )

    async def climb(questions):
        return {cell: [file_of(cell, ask) for ask in asks] for cell, asks in questions.items()}

    (_, found) = asyncio.run(judge_by_ladder(results, runs, memory, climb, deep=deep))
    return found, wanted


def test_a_cell_without_state_gets_the_same_verdict_from_fewer_decodes(memory):
    found, wanted = judged(memory, stateful=False)
    deep, deep_wanted = judged(memory, stateful=False, deep=True)
    assert (found.verdict, found.ladder.rule, found.ladder.reason) == (
        deep.verdict,
        deep.ladder.rule,
        deep.ladder.reason,
    )
    assert found.verdict == "rounding"

    def kinds(cell):
        return [(step.signal, step.prompt, step.kind, step.own) for step in cell.ladder.steps]

    assert kinds(found) == kinds(deep)
    assert [ask.decodes for _, ask in wanted] == [("padded",)] * 2
    assert [ask.decodes for _, ask in deep_wanted] == [None] * 2


def test_a_state_that_a_left_out_prompt_leaves_is_seen_and_all_prompts_are_decoded(memory):
    found, wanted = judged(memory, stateful=True, left=1e-6)
    assert [(stack, ask.is_whole) for stack, ask in wanted] == [
        ("4.48", False),
        ("5.x", False),
        ("5.x", True),
    ]
    assert (found.verdict, found.ladder.rule) == ("diverged", "slope"), found.ladder.reason
    assert cell_id("5.x").stack == found.cell.stack
