"""Which functions of transformers a job entered."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from samebits_probe.process import calls
from samebits_probe.process.calls import Calls, are_wanted

SOURCE = """import functools

def outer():
    return inner()

def inner():
    return [each() for each in [lambda: 1]]

def unused():
    return 2

def kept(function):
    @functools.wraps(function)
    def around():
        return function()
    return around

@kept
def wrapped():
    return 3

@functools.lru_cache
def cached():
    return 4

class Model:
    @staticmethod
    def still():
        return 5

    @property
    def width(self):
        return 6

    @functools.cached_property
    def height(self):
        return 7

half = functools.partial(outer)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a module of transformers, as if it had been imported."""
    path = tmp_path / "site-packages" / "transformers" / "models" / "tiny.py"
    made = ModuleType("transformers.tiny")
    exec(compile(SOURCE, str(path), "exec"), vars(made))  # noqa: S102
    vars(made)["Model"].__module__ = made.__name__
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def line(text):
    return SOURCE.splitlines().index(text) + 1


def entered(module, use):
    recorder = Calls()
    recorder.begin()
    before = recorder.table().get("models/tiny.py", [])
    use(module)
    return [n for n in recorder.table()["models/tiny.py"] if n not in before]


needs_counters = pytest.mark.skipif(
    hasattr(sys, "monitoring"), reason="this Python does not count in code objects"
)


@pytest.mark.parametrize(
    ("use", "texts"),
    [
        (lambda m: m.outer(), ["def outer():", "def inner():"]),
        (lambda m: m.half(), ["def outer():", "def inner():"]),
        (lambda m: m.wrapped(), ["    @functools.wraps(function)", "@kept"]),
        (lambda m: m.cached(), ["@functools.lru_cache"]),
        (lambda m: m.Model.still(), ["    @staticmethod"]),
        (lambda m: m.Model().width, ["    @property"]),
        (lambda m: m.Model().height, ["    @functools.cached_property"]),
    ],
)
@needs_counters
def test_what_is_entered_is_listed_by_its_first_line(module, use, texts):
    found = entered(module, use)
    assert {line(text) for text in texts} <= set(found)
    assert line("def unused():") not in found


@needs_counters
def test_what_ran_often_still_counts(module):
    assert line("def unused():") in entered(module, lambda m: [m.unused() for _ in range(5000)])


@needs_counters
def test_a_module_that_is_imported_later_counts(module, monkeypatch):
    monkeypatch.delitem(sys.modules, module.__name__)
    recorder = Calls()
    recorder.begin()
    assert "models/tiny.py" not in recorder.table()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.unused()
    assert line("def unused():") in recorder.table()["models/tiny.py"]


def test_children_add_what_they_entered():
    recorder = Calls()
    recorder.begin()
    recorder.add_table({"cache.py": [7, 3]})
    assert recorder.table()["cache.py"] == [3, 7]


def test_nothing_is_recorded_unless_it_was_begun():
    recorder = Calls()
    recorder.add_table({"cache.py": [7]})
    assert recorder.table() == {}


def test_a_python_that_counts_nothing_records_nothing(module, monkeypatch):
    monkeypatch.setattr(calls, "_counter", lambda: None)
    monkeypatch.delattr(sys, "monitoring", raising=False)
    recorder = Calls()
    recorder.begin()
    module.outer()
    assert recorder.table() == {}


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from samebits_probe.process.calls import Calls
recorder = Calls()
recorder.begin()
sys.path.insert(0, sys.argv[2])
import transformers
transformers.outer()
print(recorder.table())
"""


@pytest.mark.processes
@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_every_python_lists_the_same(tmp_path, minor):
    python = shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-V"], check=False).returncode:
        pytest.skip("this Python is not installed")
    folder = tmp_path / "site-packages" / "transformers"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def outer():\n    return 1\n\ndef unused():\n    pass\n")
    probes = str(Path(calls.__file__).parents[2])
    command = [python, "-c", PROGRAM, probes, str(folder.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'__init__.py': [1]}"


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ({"kind": "cell", "run": "a"}, True),
        ({"kind": "cell", "run": "b"}, False),
        ({"kind": "training.step"}, True),
        ({"kind": "ladder"}, False),
        ({"kind": "build", "model": "llama"}, False),
    ],
)
def test_only_checks_are_recorded(job, wanted):
    assert are_wanted(job) is wanted
