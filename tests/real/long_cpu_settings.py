"""test_cpu_settings.py with more models, under more settings: twenty minutes on two cores."""

import pytest

from tests.real import test_cpu_settings
from tests.support.cpu_settings import MODELS, SETTINGS, run_under

pytestmark = test_cpu_settings.pytestmark


@pytest.fixture(scope="module")
def reports(tmp_path_factory, run_in):
    """The reports by setting, and that of this CPU once more."""
    return run_under(SETTINGS, MODELS, tmp_path_factory.mktemp("settings"), run_in)


globals().update(
    {name: value for name, value in vars(test_cpu_settings).items() if name.startswith("test_")}
)
