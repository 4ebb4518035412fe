"""Neighbouring stacks of the same bits, and what moves between them."""

from samebits.diagnose.bands import _letter, bands
from samebits.diagnose.verdict import result
from tests.support.builders import (
    capture,
    cell_id,
    decoded,
    logits_of,
    sound,
    values,
)


def logits(memory, seed):
    return {"forward": logits_of(memory, values(1, 6, 8, seed=seed))}


def row(memory, *cells):
    """Return the bands of a row whose cells are changes of signals, or what became of them."""
    runs = {}
    for place, changed in enumerate(cells):
        stack = f"5.{place}"
        if isinstance(changed, str):
            both = [capture(stack, run=run, status=changed) for run in "ab"]
        else:
            both = [sound(memory, stack, run=run, **changed) for run in "ab"]
        runs[cell_id(stack)] = tuple(both)
    reference = runs[cell_id("5.0")]
    results = [result(cell, both, reference, memory) for cell, both in runs.items()]
    return bands(results, runs, memory)


def told(found):
    return [(" ".join(band.stacks), band.does) for band in found]


def test_one_band_where_all_are_the_same(memory):
    found = row(memory, {}, {}, {})
    assert told(found) == [("5.0 5.1 5.2", "A")]
    assert found[0].moved == ()


def test_what_breaks_and_is_right_again_has_the_first_letter_again(memory):
    found = row(memory, {}, logits(memory, 1), {}, logits(memory, 1), logits(memory, 2))
    assert told(found) == [("5.0", "A"), ("5.1", "B"), ("5.2", "A"), ("5.3", "B"), ("5.4", "C")]
    assert [band.moved for band in found] == [(), *[("logits",)] * 4]


def test_cells_that_differ_from_the_reference_alike_are_one_band(memory):
    found = row(memory, {}, logits(memory, 1), logits(memory, 1))
    assert told(found) == [("5.0", "A"), ("5.1 5.2", "B")]


def test_what_moves_is_told_against_the_neighbour_and_not_the_reference(memory):
    other = logits(memory, 1)
    found = row(memory, {}, other, other | {"greedy": {"short": decoded(memory, 9)}})
    assert told(found) == [("5.0", "A"), ("5.1", "B"), ("5.2", "C")]
    assert found[1].moved == ("logits",)
    assert "logits" not in found[2].moved
    assert "greedy" in found[2].moved


def test_cells_without_bits_are_bands_of_their_own(memory):
    found = row(memory, {}, "failed", "failed", "absent", {}, logits(memory, 1))
    assert told(found) == [
        ("5.0", "A"),
        ("5.1 5.2", "failed"),
        ("5.3", "absent"),
        ("5.4", "A"),
        ("5.5", "B"),
    ]
    assert [band.moved for band in found] == [(), (), (), (), ("logits",)]


def test_a_release_that_names_itself_in_its_failure_fails_as_its_neighbour_does(memory):
    runs = {cell_id("5.0"): tuple(sound(memory, "5.0", run=run) for run in "ab")}
    for stack in ("5.1", "5.2"):
        why = f"transformers {stack}.0 has no such name"
        both = [capture(stack, run=run, status="failed") for run in "ab"]
        failure = both[0].failure.model_copy(update={"message": why})
        runs[cell_id(stack)] = tuple(c.model_copy(update={"failure": failure}) for c in both)
        absent = [capture(f"{stack}.1", run=run, status="absent") for run in "ab"]
        runs[cell_id(f"{stack}.1")] = tuple(
            c.model_copy(update={"absent": f"not in {stack}"}) for c in absent
        )
    order = ["5.0", "5.1", "5.2", "5.1.1", "5.2.1"]
    results = [result(cell_id(s), runs[cell_id(s)], runs[cell_id("5.0")], memory) for s in order]
    found = bands(results, runs, memory)
    assert told(found) == [("5.0", "A"), ("5.1 5.2", "failed"), ("5.1.1 5.2.1", "absent")]


def test_a_reference_in_the_middle_is_a_too(memory):
    runs = {
        cell_id(stack): tuple(sound(memory, stack, run=run, **changed) for run in "ab")
        for stack, changed in (("5.0", logits(memory, 1)), ("5.1", {}), ("5.2", {}))
    }
    reference = runs[cell_id("5.1")]
    results = [result(cell, both, reference, memory) for cell, both in runs.items()]
    assert told(bands(results, runs, memory)) == [("5.0", "B"), ("5.1 5.2", "A")]


def test_there_are_letters_for_any_number():
    assert [_letter(n) for n in (0, 1, 25, 26, 52)] == ["A", "B", "Z", "A1", "A2"]
    assert len({_letter(n) for n in range(500)}) == 500
