"""The committed coverage does not fall, and its page has its numbers."""

from __future__ import annotations

import pytest

from bench.coverage import page

FLOOR = 86
"""Percent of the types with a model class whose forward runs in every release that knows them."""
MADE = {"kind": "make", "type": "a", "class": "AModel", "why": ""}
RAN = {"kind": "run", "type": "a", "class": "AModel", "why": "", "generates": "-", "trains": ""}
KNOWN = {"4.57.6": ["a", "b"], "5.23.0": ["a", "b", "c"]}


def facts(**changed):
    done = {"4.57.6": [MADE, RAN | changed], "5.23.0": [RAN]}
    return page.facts(KNOWN, done)


def test_the_committed_share_does_not_fall():
    good, total = page.share(page.read())
    assert 100 * good >= FLOOR * total > 0


def test_the_page_is_that_of_the_facts():
    assert page.PAGE.read_text("utf-8") == page.text(page.read())


def test_a_type_counts_if_it_runs_in_every_release_that_knows_it():
    assert page.share(facts()) == (1, 1)
    assert page.share(facts(why="ValueError: no")) == (0, 1)


def test_a_type_without_a_class_does_not_count():
    done = {"4.57.6": [MADE | {"why": "NoneMade: transformers has no model class for it"}]}
    assert page.share(page.facts(KNOWN, done)) == (0, 0)


def test_a_newer_release_makes_what_an_older_one_cannot():
    done = {"4.57.6": [MADE | {"why": "ValueError: no"}], "5.23.0": [MADE, RAN]}
    made = page.facts(KNOWN, done)["types"]["a"]
    assert (made["by"], made["why"], [*made["runs"]]) == ("5.23.0", "", ["5.23.0"])


def test_each_answer_has_its_letter():
    assert "| a | AModel | F.T | F.t |" in page.text(
        page.facts(
            KNOWN, {"4.57.6": [MADE, RAN], "5.23.0": [RAN | {"trains": "ImportError: needs"}]}
        )
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("HungarianMatcher requires the scipy library but it was", "needs scipy"),
        ("heads by 4, their dimensions by 8, images by 1: ValueError: a | b", "ValueError: a / b"),
        ("GlmImageVQVAE has no forward", "GlmImageVQVAE has no forward"),
        ("x" * 100, f"{'x' * 70} …"),
    ],
)
def test_a_reason_is_short(reason, words):
    assert page.short(reason) == words
