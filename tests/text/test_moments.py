"""Moments as readers see them."""

import pytest

from samebits.text.moments import moment


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-23T09:06:22Z", "23 Nov 2026 09:06 UTC"),
        ("2026-01-02T23:59:59+00:00", "2 Jan 2026 23:59 UTC"),
        ("soon", "soon"),
    ],
)
def test_a_moment_is_words_and_any_other_text_stays(text, shown):
    assert moment(text) == shown
