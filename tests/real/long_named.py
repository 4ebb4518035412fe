"""test_named.py with all models, each in every release, those in the middle included.

To be run after a change of tests/custom, of the rules for custom code, or of the releases that are known.
"""

import pytest

from tests.real import test_named
from tests.real.test_named import NAMES, folder, pytest_generate_tests  # noqa: F401  pytest finds them

CHOSEN = {*NAMES}


@pytest.fixture(scope="module")
def at_the_ends():
    """Leave no model out of a release."""
    return ()


globals().update(
    {name: value for name, value in vars(test_named).items() if name.startswith("test_")}
)
