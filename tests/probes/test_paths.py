"""A line of code is shown by the file that its author knows."""

import pytest
from samebits_probe.process.paths import package_path

MODULES = "/cache/modules/transformers_modules"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/env/lib/python3.11/site-packages/transformers/trainer.py", "transformers/trainer.py"),
        (f"{MODULES}/own_hyphen_tied/modeling_own.py", "modeling_own.py"),
        (f"{MODULES}/own_hyphen_tied/4209b79f952f7985/modeling_own.py", "modeling_own.py"),
        (f"{MODULES}/org/name/{'a1' * 20}/layers/norm.py", "layers/norm.py"),
        (f"{MODULES}/modeling_own.py", "modeling_own.py"),
        ("/home/me/model.py", "model.py"),
    ],
)
def test_a_file_is_named_without_the_folders_of_the_machine_and_of_its_copy(path, shown):
    assert package_path(path) == shown
