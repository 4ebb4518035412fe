"""What counts as a change of a definition."""

import os
import subprocess
import sys

import pytest

from samebits.questions.changes.source import read

BASE = '''
"""A module."""

from __future__ import annotations

SIZE = 4


class Model(Base):
    """A model."""

    keep = ["inv_freq"]

    @property
    def width(self):
        return SIZE

    def forward(self, x, scale=1.0):
        """Compute."""
        total = x * scale
        if total is None:
            raise ValueError("no x")
        return total


def helper(x):
    def inner(y):
        return y + 1

    return inner(x)
'''


def digests(text):
    return {name: d.digest for name, d in read(text.encode(), "m.py").definitions.items()}


def test_functions_classes_and_constants_are_definitions():
    assert {n: d.kind for n, d in read(BASE.encode(), "m.py").definitions.items()} == {
        "SIZE": "constant",
        "Model": "class",
        "Model.width": "function",
        "Model.forward": "function",
        "helper": "function",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""Compute."""', '"""Compute otherwise."""'),
        ('"""A module."""', ""),
        ("total", "result"),
        (
            "def forward(self, x, scale=1.0)",
            "def forward(self, x: Tensor, scale: float = 1.0) -> Tensor",
        ),
        ('"no x"', '"x is missing"'),
        ("        total = x * scale\n", "\n        # a comment\n        total = x * scale\n"),
        ("        return total\n", '        logger.warning_once("slow")\n        return total\n'),
        ("    keep = ", "    keep: list[str] = "),
        ("    @property", "    @add_start_docstrings(DOC)\n    @property"),
    ],
)
def test_what_only_tells_something_is_no_change(before, after):
    changed = BASE.replace(before, after)
    assert changed != BASE
    assert digests(changed) == digests(BASE)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("x * scale", "x / scale", "Model.forward"),
        ("scale=1.0", "scale=2.0", "Model.forward"),
        ("forward(self, x, scale", "forward(self, x, factor", "Model.forward"),
        ("raise ValueError", "raise KeyError", "Model.forward"),
        ("y + 1", "y + 2", "helper"),
        ("SIZE = 4", "SIZE = 8", "SIZE"),
        ('["inv_freq"]', "[]", "Model"),
        ("Model(Base)", "Model(Other)", "Model"),
        ("@property", "@cached_property", "Model.width"),
    ],
)
def test_what_computes_otherwise_is_a_change_of_that_definition_alone(before, after, name):
    changed = BASE.replace(before, after).replace(
        "x * scale", "x * factor" if "factor" in after else "x * scale"
    )
    old, new = digests(BASE), digests(changed)
    assert {key for key in old if old[key] != new[key]} == {name}


@pytest.mark.parametrize(
    ("before", "after", "is_change"),
    [
        ("x in {0, 8}", "x in {8, 0}", False),  # both collide in the table of the set
        ("x in {0, 8}", "x in {0, 16}", True),
        ("x in (0, 8)", "x in (8, 0)", True),
        ("x in {(0, 8), 1}", "x in {1, (0, 8)}", False),
        ("x in {(0, 8), 1}", "x in {(8, 0), 1}", True),
    ],
)
def test_a_set_has_no_order_and_a_tuple_has(before, after, is_change):
    old, new = (digests(f"def f(x):\n    return {test}\n") for test in (before, after))
    assert (old != new) == is_change


@pytest.mark.processes
def test_every_process_gives_a_definition_the_same_digest():
    text = "def f(x):\n    return x in {'images', 'text', 'audio', 'videos'}\n"
    code = f"from samebits.questions.changes.source import read\nprint(read({text.encode()!r}, 'm.py').definitions)"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split("names")[0]
        for seed in range(3)
    }
    assert len(printed) == 1


def test_a_nested_function_and_a_decorated_one_are_found_by_their_first_lines():
    source = read(BASE.encode(), "m.py")
    lines = BASE.splitlines()
    assert source.by_line[lines.index("    @property") + 1] == "Model.width"
    assert source.by_line[lines.index("    def inner(y):") + 1] == "helper"


def test_a_lambda_belongs_to_the_function_around_it():
    text = "def f(x):\n    keys = [\n        lambda y: y,\n    ]\n    raise (\n        lambda: x\n    )(keys)\n"
    assert read(text.encode(), "m.py").by_line == {1: "f", 3: "f", 6: "f"}


def test_definitions_behind_conditions_count_together():
    text = "if a:\n    def f():\n        return 1\nelse:\n    def f():\n        return {}\n"
    assert digests(text.format(2)) != digests(text.format(3))


@pytest.mark.parametrize(
    ("statement", "modules"),
    [
        ("import transformers.utils", ("transformers.utils",)),
        ("from ...utils import logging", ("...utils", "...utils.logging")),
        ("from . import cache", (".", ".cache")),
    ],
)
def test_imports_are_listed_as_they_are_written(statement, modules):
    assert read(statement.encode(), "m.py").imports == modules


def test_functions_that_an_import_calls_are_noted():
    text = "def f(x):\n    return g(x)\n\nclass A:\n    b = h()\n\nif True:\n    A = f(A)\nX.register(A)\n"
    assert read(text.encode(), "a.py").at_import == {"f"}


@pytest.mark.parametrize(
    ("body", "behind", "others"),
    [
        ("if self.config.is_encoder_decoder:\n        a()", {"a"}, {"self", "config"}),
        ("if x and config.is_encoder_decoder:\n        a()", {"a"}, {"x"}),
        ("if self.config.is_encoder_decoder:\n        a()\n    else:\n        b()", {"a"}, {"b"}),
        ("y = a() if config.is_encoder_decoder else b()", {"a"}, {"b"}),
        ("if config.is_encoder_decoder:\n        a()\n    a()", set(), {"a"}),
        ("if x or config.is_encoder_decoder:\n        a()", set(), {"a"}),
        ("if not config.is_encoder_decoder:\n        a()", set(), {"a"}),
        ("if x.is_encoder_decoder:\n        a()", set(), {"a"}),
    ],
)
def test_names_behind_a_field_of_the_config_stand_apart(body, behind, others):
    text = f"def f(self, x, config):\n    {body}\n"
    definition = read(text.encode(), "a.py").definitions["f"]
    assert definition.table.get("is_encoder_decoder", set()) == behind
    assert others & {"a", "b"} <= definition.names
    assert not behind & definition.names


def test_a_file_that_is_no_python_raises():
    with pytest.raises(SyntaxError):
        read(b"def f(:\n", "m.py")
