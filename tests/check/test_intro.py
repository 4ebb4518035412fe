"""check.intro: what the code of a model shows before its check runs."""

from pathlib import Path

from samebits.check.intro import places
from samebits.lint.problem import Problem
from samebits.lint.releases import since


def problem(code, line):
    return Problem(code, Path("m/modeling_x.py"), line, 5, line, 9, "breaks", since("5.0"), "")


def test_a_finding_has_its_first_line_and_the_number_of_the_others():
    found = places([problem("SB303", 16), problem("SB103", 19), problem("SB303", 18)])
    assert {code: str(place) for code, place in found.items()} == {
        "SB303": "modeling_x.py:16:5 and 1 more",
        "SB103": "modeling_x.py:19:5",
    }
