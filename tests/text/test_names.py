"""Names of releases in one phrase."""

import pytest

from samebits.text.names import spanned


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["5.0"], "5.0"),
        (["5.0", "5.1"], "5.0, 5.1"),
        (["4.54", "4.55", "4.56"], "4.54 to 4.56"),
        (["4.56", "4.57", "5.0", "5.1", "5.3"], "4.56 to 5.1, 5.3"),
        (["5.8", "5.9", "5.10", "5.24.0"], "5.8 to 5.10, 5.24.0"),
        (["5.2", "5.1", "5.0"], "5.2, 5.1, 5.0"),  # not in the order of releases
        (["4.48", "4.57", "5.2", "5.x"], "4.48, 4.57, 5.2, 5.x"),  # what lies between did not run
        (["2.11.0", "2.12.0", "2.13.0"], "2.11.0, 2.12.0, 2.13.0"),  # a patch may lie between
    ],
)
def test_only_releases_without_a_gap_are_a_span(names, text):
    assert spanned(names) == text
