"""The releases of a check: from the one that saved the model to the newest, or as named."""

import pytest

from samebits.check.releases import MINORS, ReleaseError, minor_of, span


@pytest.mark.parametrize(
    ("saved", "minor"),
    [
        ("4.57.1", "4.57"),
        ("4.52.0.dev0", "4.52"),
        ("4.31.0", "4.48"),  # older than any that is supported
        ("4.58.0.dev0", "4.57"),  # never released
        ("5.99.0.dev0", MINORS[-1]),  # not released yet
        ("5.99.0", "5.99"),  # newer than this list
        (None, None),
        ("main", None),
    ],
)
def test_the_release_nearest_to_the_one_that_saved_it(saved, minor):
    assert minor_of(saved) == minor


@pytest.mark.parametrize(
    ("saved", "first", "last", "stacks"),
    [
        ("4.57.1", None, None, ("4.57", "5.x")),
        ("4.57.1", "4.50", None, ("4.50", "5.x")),
        ("4.52.3", None, "5.2", ("4.52", "5.2")),
        ("4.52.3", "5.0.0", "5.2.0", ("5.0.0", "5.2.0")),
        (None, None, None, ("4.48", "4.57", "5.2", "5.x")),
        (None, None, "5.0", ("4.48", "4.57", "5.0")),
        (f"{MINORS[-1]}.0", None, None, ("5.2", "5.x")),  # the newest release saved it
        ("5.10.1", None, "5.2", ("4.57", "5.2")),  # saved after the release to judge
        ("4.57.1", "5.2", "5.2", ("5.2",)),
        ("4.48.0", "4.48.0", "4.48", ("4.48.0", "4.48")),
    ],
)
def test_the_releases_that_are_compared(saved, first, last, stacks):
    assert span(saved, first, last).stacks == stacks


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("4.58", None, 'did you mean "4.57"?'),
        ("latest", None, "is no release of transformers"),
        ("4.30", None, "is too old"),
        (None, "4.47.1", "is too old"),
        ("5.2", "4.57", "--from 5.2 is newer than --to 4.57"),
    ],
)
def test_a_release_that_does_not_exist_is_a_mistake(first, last, words):
    with pytest.raises(ReleaseError) as caught:
        span("4.57.1", first, last)
    assert words in str(caught.value)


def test_the_oldest_release_has_nothing_to_be_compared_with():
    with pytest.raises(ReleaseError, match="name a newer one"):
        span("4.48.1", None, "4.48")


def test_a_checkout_is_newer_than_every_release():
    assert span("4.57.1", None, "../transformers").stacks == ("4.57", "../transformers")
    assert span(None, "5.15", "../transformers").stacks == ("5.15", "../transformers")
    with pytest.raises(ReleaseError, match="is newer than"):
        span(None, "../transformers", "5.15")
