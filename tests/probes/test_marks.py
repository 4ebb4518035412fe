"""Marks in functions: which parts of them ran, and that nothing else about them changes."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import CodeType

import pytest
from samebits_probe.process import marks
from samebits_probe.process.marks import marked

PROBES = str(Path(marks.__file__).parents[2])
SOURCE = '''import functools

@functools.lru_cache
def cached(x):
    """A docstring."""
    if x > 2:
        return "large"
    elif x:
        return "small"
    return "zero"

def loop(xs):
    total = 0
    for x in xs:
        if x < 0:
            break
        total += x
    else:
        total += 100
    while total > 1000:
        total -= 1
    return total

def tried(f):
    with open("/dev/null"):
        try:
            f()
        except KeyError:
            return "key"
        except ValueError:
            return "value"
        else:
            return "none"
        finally:
            f.done = True

def outer(x):
    def inner():
        return x
    if x:
        def other():
            return -x
        return other()
    return inner()

def matched(x):
    match x:
        case 1:
            return "one"
        case _:
            return "other"

def generated(x):
    yield x
    if x:
        yield 2

def short(x): return x

class Model:
    half = staticmethod(lambda x: x / 2)

    @property
    def width(self):
        return 5

    def late(self, x):
        if x:
            raise ValueError
        x = 3
        return x
'''
NAMES = SOURCE.splitlines()


def fail(error):
    def f():
        raise error

    return f


def quiet():
    return None


def ran(use, *, compiles=False):
    """Return the lines of the regions that a use of the module runs."""
    lines, code = marked(SOURCE.encode(), "source.py")
    marks_of_file = bytearray(len(lines))
    module = {"__samebits_marks__": marks_of_file, "__samebits_compiles__": lambda: compiles}
    exec(code, module)  # noqa: S102
    result = use(module)
    return result, [
        NAMES[n - 1].strip() for n, mark in zip(lines, marks_of_file, strict=True) if mark
    ]


@pytest.mark.parametrize(
    ("use", "result", "lines"),
    [
        (lambda m: m["cached"](3), "large", ["@functools.lru_cache", 'return "large"']),
        (lambda m: m["cached"](1), "small", ["@functools.lru_cache", 'return "small"']),
        (lambda m: m["cached"](0), "zero", ["@functools.lru_cache", 'return "zero"']),
        (lambda m: m["loop"]([]), 100, ["def loop(xs):", "total += 100", "while total > 1000:"]),
        (
            lambda m: m["loop"]([1, -1]),
            1,
            ["def loop(xs):", "if x < 0:", "while total > 1000:", "break", "total += x"],
        ),
        (lambda m: m["loop"]([-1]), 0, ["def loop(xs):", "if x < 0:", "while total > 1000:", "break"]),
        (lambda m: m["tried"](quiet), "none", ["def tried(f):", 'return "none"']),
        (lambda m: m["tried"](fail(KeyError())), "key", ["def tried(f):", 'return "key"']),
        (lambda m: m["tried"](fail(ValueError())), "value", ["def tried(f):", 'return "value"']),
        (lambda m: m["outer"](0), 0, ["def outer(x):", "return inner()", "def inner():"]),
        (lambda m: m["outer"](2), -2, ["def outer(x):", "def other():"]),
        (lambda m: m["matched"](1), "one", ["def matched(x):", 'return "one"']),
        (lambda m: list(m["generated"](0)), [0], ["def generated(x):"]),
        (lambda m: list(m["generated"](1)), [1, 2], ["def generated(x):", "yield 2"]),
        (lambda m: m["short"](4), 4, ["def short(x): return x"]),
        (lambda m: m["Model"]().width, 5, ["@property"]),
        (lambda m: m["Model"]().late(0), 3, ["def late(self, x):", "x = 3"]),
        (lambda m: m["Model"].half(4), 2, []),
    ],
)  # fmt: skip
def test_a_region_is_marked_when_it_runs_and_no_other_one(use, result, lines):
    given, shown = ran(use)
    assert given == result
    assert sorted(shown) == sorted(lines)


def test_what_torch_compiles_marks_nothing():
    assert ran(lambda m: m["cached"](3), compiles=True) == ("large", [])


def _facts(code):
    """Return what marks must not change: names, lines, variables, documentation."""
    yield code.co_name, code.co_firstlineno, code.co_varnames, code.co_freevars, code.co_flags
    first = code.co_consts[0] if code.co_consts else None
    yield code.co_name, first if isinstance(first, str) else None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _facts(constant)


LIBRARY = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


@pytest.mark.parametrize("path", LIBRARY[::4], ids=lambda path: path.stem)
def test_the_standard_library_compiles_with_marks_and_keeps_its_names_and_lines(path):
    source = path.read_bytes()
    lines, code = marked(source, str(path))
    bare = compile(source, str(path), "exec", dont_inherit=True)
    assert list(_facts(code)) == list(_facts(bare))
    assert all(0 < line <= source.count(b"\n") + 1 for line in lines)


PROGRAM = """
import json, sys
sys.prefix = sys.argv[1]
sys.path[:0] = [sys.argv[2], sys.argv[1] + "/site-packages"]
from samebits_probe.process import own
own.use_packages()
from samebits_probe.process.calls import Calls
from samebits_probe.process.marks import MARKS
MARKS.install()
import torch
import transformers
for name in sys.argv[3:]:
    __import__(name)
calls = Calls()
before = [*MARKS.ran()]
calls.begin()
transformers.outer()
for name in sys.argv[3:]:
    sys.modules[name].value()
assert transformers.outer.__code__.co_filename == transformers.__file__
print(json.dumps([before, calls.table()]))
"""
OUTER = """def registered(function):
    return function

def outer():
    from transformers import later
    return later.value()

outer = registered(outer)
"""
LATER = """def made():
    return 1

VALUE = made()

def value():
    return VALUE
"""


@pytest.fixture
def stack(tmp_path):
    """Return the folder of an environment with a torch and a transformers of few lines."""
    package = tmp_path / "site-packages" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OUTER)
    (package / "later.py").write_text(LATER)
    torch = "class compiler:\n    @staticmethod\n    def is_compiling():\n        return False\n"
    (package.parent / "torch.py").write_text(torch)
    (tmp_path / "samebits-stack.json").write_text("{}")
    return tmp_path


def run(stack, *modules, **variables):
    command = [sys.executable, "-c", PROGRAM, str(stack), PROBES, *modules]
    environ = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    before, table = json.loads(done.stdout)
    assert before == []  # what an import runs does not count
    return table


def compiled(stack):
    return sorted(path.name for path in stack.rglob("*.opt-samebits.pyc"))


@pytest.mark.processes
def test_the_compiled_modules_are_kept_and_those_of_another_source_or_damaged_are_made_anew(stack):
    expected = {"__init__.py": [4], "later.py": [6]}
    assert run(stack) == expected
    assert len(compiled(stack)) == 2
    assert run(stack) == expected
    for path in stack.rglob("*.opt-samebits.pyc"):
        path.write_bytes(path.read_bytes()[:-9])
    assert run(stack) == expected
    later = stack / "site-packages" / "transformers" / "later.py"
    later.write_text(f"\n{LATER}")
    assert run(stack) == {"__init__.py": [4], "later.py": [7]}


@pytest.mark.processes
def test_the_code_of_an_environment_that_was_moved_names_its_files(stack, tmp_path):
    assert run(stack)
    moved = stack.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert run(moved) == {"__init__.py": [4], "later.py": [6]}
    assert len(compiled(moved)) == 2


@pytest.mark.processes
def test_a_commit_of_a_package_comes_first_and_gets_marks(stack):
    commit = stack / "commit" / "site-packages"
    (commit / "my_models").mkdir(parents=True)
    (commit / "my_models" / "__init__.py").write_text(LATER)
    (commit / "json.py").write_text("raise ImportError('it stands for the standard library')")
    older = stack / "site-packages" / "my_models"
    older.mkdir()
    (older / "__init__.py").write_text("def value():\n    return 2\n")
    beside = {"SAMEBITS_COMMIT": str(commit)}
    of_transformers = {"__init__.py": [4], "later.py": [6]}
    expected = {"../my_models/__init__.py": [6], **of_transformers}
    assert run(stack, "my_models", **beside) == expected
    assert run(stack, "my_models") == of_transformers


@pytest.mark.processes
def test_an_environment_of_the_user_is_left_alone(stack):
    (stack / "samebits-stack.json").unlink()
    assert run(stack) == {}
    assert compiled(stack) == []
