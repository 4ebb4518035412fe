"""The search on a line of commits, with states in a list."""

import asyncio

import pytest

from samebits.bisect.search import search


def run(states, tiers=(), width=2):
    """Search a list of states; return the changes as pairs, and how many were asked."""
    asked = []

    async def ask(positions):
        asked.extend(positions)
        return {position: states[position] for position in positions}

    found = asyncio.run(search(len(states) - 1, tiers, ask, width))
    return found, asked


def pairs(found):
    return [(change.before, change.after) for change in found.changes]


@pytest.mark.parametrize("first_bad", range(1, 9))
@pytest.mark.parametrize("width", [1, 2, 4])
def test_one_change_is_found_at_every_place(first_bad, width):
    found, asked = run(["a"] * first_bad + ["b"] * (9 - first_bad), width=width)
    assert pairs(found) == [(first_bad - 1, first_bad)]
    assert len(asked) == len(set(asked))


def test_a_long_line_takes_few_trials():
    _, asked = run(["a"] * 190 + ["b"] * 60)
    assert len(asked) <= 16


def test_a_suspect_and_the_commit_before_it_prove_the_change():
    found, asked = run(["a"] * 120 + ["b"] * 130, tiers=([120],))
    assert pairs(found) == [(119, 120)]
    assert sorted(asked) == [0, 119, 120, 249]


def test_where_no_suspect_did_it_the_others_are_tried():
    found, _ = run(["a"] * 70 + ["b"] * 180, tiers=([120, 200], [30]))
    assert pairs(found) == [(69, 70)]


def test_several_changes_on_the_way_are_told_apart():
    found, _ = run(["a"] * 5 + ["b"] * 7 + ["c"] * 4)
    assert pairs(found) == [(4, 5), (11, 12)]


def test_of_more_changes_than_are_followed_no_commit_is_named_that_was_not_parted_from_the_one_before():
    found, asked = run([letter for letter in "abcdefgh" for _ in range(10)])
    assert pairs(found) == [(9, 10), (19, 20), (29, 30), (39, 40)]
    assert {c.skipped for c in found.changes} == {()}
    assert found.open[0].before <= 49
    assert found.open[-1].after >= 70
    assert all(change.skipped for change in found.open)
    assert len(asked) < 40
    four, _ = run([letter for letter in "abcde" for _ in range(10)])
    assert (len(four.changes), four.open) == (4, ())


def test_ends_that_do_the_same_ask_for_nothing_more():
    found, asked = run(["a", "b", "b", "a"])
    assert (pairs(found), asked) == ([], [0, 3])


def test_commits_that_cannot_be_tried_are_skipped():
    found, _ = run(["a", "a", None, "b", "b", "b"])
    assert pairs(found) == [(1, 3)]
    assert found.changes[0].skipped == (2,)


def test_a_skipped_commit_elsewhere_does_not_blur_the_change():
    found, _ = run(["a", None, "a", "a", "b", None, "b", "b"])
    assert pairs(found) == [(3, 4)]
    assert found.changes[0].skipped == ()


def test_an_end_that_cannot_be_tried_ends_the_search():
    found, asked = run([None, "a", "b"])
    assert (pairs(found), asked) == ([], [0, 2])
