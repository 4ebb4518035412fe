"""The parent of all jobs keeps a GPU usable in its forks; a made-up torch takes the driver's place."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_probe.process import device_forks

pytestmark = pytest.mark.processes
COUNTS_BY_THE_DRIVER = "import torch\ntorch.cuda.is_available()\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a machine with a GPU, on which modules can be written that a process can import."""
    torch, lost = ModuleType("torch"), []

    def is_available():
        if os.environ.get(device_forks.NVML) != "1":
            os.register_at_fork(after_in_child=lambda: lost.append(True))
        return True

    torch.version = SimpleNamespace(cuda="13.0")
    torch.cuda = SimpleNamespace(is_available=is_available, _is_in_bad_fork=lambda: bool(lost))
    node = tmp_path / "nvidiactl"
    node.touch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(device_forks, "_NODES", {"cuda": (str(node),)})
    monkeypatch.setattr(device_forks, "_refused", set())
    monkeypatch.syspath_prepend(tmp_path)

    def write(**modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        return [*modules]

    return SimpleNamespace(write=write, node=node, torch=torch)


def test_a_module_that_asks_the_driver_is_left_to_the_jobs(machine):
    names = machine.write(one="", two="", three=COUNTS_BY_THE_DRIVER, four="", five="")
    assert device_forks.harmless(names) == ["one", "two"]
    assert device_forks.harmless(names) == ["one", "two", "four", "five"]
    assert not {*names} & {*sys.modules}


def test_one_that_imports_it_is_left_to_them_as_well(machine):
    names = machine.write(importer="import asks", asks=COUNTS_BY_THE_DRIVER, other="")
    assert device_forks.harmless(names) == []
    assert device_forks.harmless(names) == []
    assert device_forks.harmless(names) == ["other"]


def test_a_module_that_ends_its_process_is_left_to_them(machine):
    names = machine.write(fine="", ends="import os\nos._exit(0)\n", later="")
    assert device_forks.harmless(names) == ["fine"]
    assert device_forks.harmless(names) == ["fine", "later"]


def test_one_that_cannot_be_imported_loses_nothing(machine):
    names = machine.write(fails="raise RuntimeError", fine="")
    assert device_forks.harmless(names) == names


def test_counting_by_nvml_loses_nothing_and_ends_with_the_job(machine, monkeypatch):
    monkeypatch.delenv(device_forks.NVML, raising=False)
    names = machine.write(three=COUNTS_BY_THE_DRIVER)
    device_forks.count_without_driver()
    assert device_forks.harmless(names) == names
    device_forks.count_as_usual()
    assert device_forks.NVML not in os.environ
    assert device_forks.harmless(names) == []


def test_a_choice_of_the_user_comes_back(monkeypatch):
    monkeypatch.setenv(device_forks.NVML, "0")
    device_forks.count_without_driver()
    device_forks.count_as_usual()
    assert os.environ[device_forks.NVML] == "0"


@pytest.mark.parametrize("without", ["device", "build"])
def test_a_machine_that_has_nothing_to_lose_rehearses_nothing(machine, monkeypatch, without):
    if without == "device":
        machine.node.unlink()
    else:
        machine.torch.version = SimpleNamespace(cuda=None)
    monkeypatch.setattr(device_forks, "_lose", pytest.fail)
    assert device_forks.harmless(["any"]) == ["any"]
