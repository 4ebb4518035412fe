"""The checks of tests/inside/ that test_inside.py leaves out in the oldest release.

To be run after a change of probes/, and after a new release is known.
"""

import pytest

from tests.real.conftest import OLD
from tests.real.test_inside import FILES, in_oldest, inside  # noqa: F401  a fixture


@pytest.mark.parametrize("path", [p for p in FILES if not in_oldest(p)], ids=lambda p: p.stem)
def test_inside_the_oldest(inside, path):  # noqa: F811  the fixture
    inside(OLD, path)
