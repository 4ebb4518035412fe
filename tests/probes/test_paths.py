"""A line of code is shown by the file that its author knows."""

import sys
from types import SimpleNamespace

import pytest
from samebits_probe.process import paths
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


def test_files_of_the_probes_and_of_torch_are_known_by_where_they_are(monkeypatch):
    torch = SimpleNamespace(__file__="/env/lib/python3.11/site-packages/torch/__init__.py")
    monkeypatch.setitem(sys.modules, "torch", torch)
    is_of_torch = paths.is_of_torch.__wrapped__
    assert is_of_torch("/env/lib/python3.11/site-packages/torch/nn/functional.py")
    assert paths.is_of_probes(paths.__file__)
    for path in ("/home/me/probes/run.py", "/data/torch/models/modeling_own.py"):
        assert not paths.is_of_probes(path)
        assert not is_of_torch(path)


def test_the_probes_of_an_installed_samebits_know_their_own_files(monkeypatch):
    installed = "/venv/lib/python3.11/site-packages/samebits/_probes/"
    monkeypatch.setattr(paths, "_PROBES", installed)
    is_of_probes = paths.is_of_probes.__wrapped__
    assert is_of_probes(f"{installed}samebits_probe/model/attention.py")
    assert not is_of_probes("/venv/lib/python3.11/site-packages/torch/nn.py")
