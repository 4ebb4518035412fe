"""The program that runs matrices for the tests of this folder."""

import pytest

from tests.support.faulty_bench import Host


@pytest.fixture(scope="module")
def host():
    made = Host()
    yield made
    made.close()
