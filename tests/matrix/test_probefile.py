"""Files of probes: every mistake has line and column, and the repaired line."""

import ast

import pytest

from samebits.base.errors import MatrixError
from samebits.compare.registry import signal_names
from samebits.jobs.cells import CellRunner
from samebits.jobs.common import ReadyCell
from samebits.matrix.load import load
from samebits.matrix.probefile import PARAMETERS, bad_probe, probe_file
from samebits.stacks.probes import PROBES

GOOD = """\
import math

def pooling(model, inputs, *, scale=2.0):
    return {"mean": 1.0}

def _helper():
    pass

async_name = 3
"""
MATRIX = """\
models:
  llama:
    build: llama
    probes: {}
"""


@pytest.fixture
def fault(tmp_path):
    def of(source, name="my_probe.py"):
        (tmp_path / name).write_text(source)
        return bad_probe(tmp_path, name)

    return of


@pytest.fixture
def loaded(tmp_path):
    def of(probes, source=GOOD, more="", name="my_probe.py"):
        (tmp_path / name).write_text(source)
        (tmp_path / "matrix.yaml").write_text(MATRIX.format(probes) + more)
        return load(tmp_path / "matrix.yaml")

    return of


def problem(loaded, *arguments, **more):
    with pytest.raises(MatrixError) as error:
        loaded(*arguments, **more)
    return str(error.value)


def test_the_public_functions_of_a_sound_file_are_its_probes(fault, tmp_path):
    assert fault(GOOD) is None
    file = probe_file(tmp_path / "my_probe.py", verdict=True)
    assert (file.name, file.functions, file.verdict) == ("my_probe", ("pooling",), True)
    assert file.source == GOOD


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def a(model):\n    return (1\n", "my_probe.py:2:12: syntax error:"),
        ("x = 1\n", "my_probe.py:1:1: it has no probe"),
        ("def a(modle):\n    return 1\n", 'my_probe.py:1:7: a asks for "modle"'),
        (
            "def a(modle, torch):\n    return 1\n",
            'did you mean "model"? Write def a(model, torch):',
        ),
        ("\ndef a(model):\n    model.eval()\n", "my_probe.py:2:1: a returns nothing: end it with"),
        ("def a(model):\n    def b():\n        return 1\n", "a returns nothing"),
        ("def a(model):\n    yield 1\n", "a yields: return a dict"),
        ("async def a(model):\n    return 1\n", "a is async"),
        ("def a(**all):\n    return 1\n", "my_probe.py:1:9: a takes *all: name what it needs"),
        ("def a(model, /):\n    return 1\n", "remove the /"),
        ("def a():\n    return 1\ndef a():\n    return 2\n", "my_probe.py:3:1: a is defined twice"),
    ],
)
def test_a_mistake_has_its_place_and_its_remedy(fault, source, text):
    assert text in fault(source)


def test_every_mistake_of_a_file_is_named(fault):
    source = "def a(modle):\n    return 1\ndef b(inputs):\n    pass\n"
    assert fault(source).count("my_probe.py:") == 2


def test_a_probe_that_only_raises_may_return_nothing(fault):
    assert fault("def a(model):\n    raise ValueError\n") is None


def test_names_that_are_signals_of_samebits_are_taken(fault):
    assert "rename the file, to my_logits.py" in fault(GOOD, "logits.py")
    assert "rename the file" in fault(GOOD, "my-probe.py")
    # a verdict counts every signal that is compared, so no probe may be named as one that explains
    for name in (*signal_names(), "tokenizer", "usage"):
        assert "rename the file" in fault(GOOD, f"{name}.py"), name


def test_a_missing_file_has_its_nearest_name(fault, tmp_path):
    fault(GOOD)
    assert 'did you mean "my_probe.py"?' in bad_probe(tmp_path, "my_prope.py")
    assert "is no Python file" in bad_probe(tmp_path, ".")


def test_the_stacks_provide_what_a_probe_may_ask_for():
    source = (PROBES / "samebits_probe" / "model" / "probing.py").read_text("utf-8")
    (names,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES"
    ]
    assert names == PARAMETERS


def test_a_text_is_short_for_a_file_that_informs(loaded):
    (short,) = loaded("[my_probe.py]").models[0].probe_files
    (counting,) = loaded("[{path: my_probe.py, verdict: true}]").models[0].probe_files
    assert (short.verdict, counting.verdict) == (False, True)
    assert short.source == counting.source == GOOD


def test_defaults_hold_for_models_without_their_own(loaded):
    more = "  other: {build: llama}\ndefaults: {probes: [my_probe.py]}\n"
    own, inherited = loaded("[]", more=more).models
    assert (own.probe_files, len(inherited.probe_files)) == ((), 1)


def test_a_mistake_in_the_file_is_shown_at_its_entry(loaded):
    text = problem(loaded, "[my_probe.py]", source="def a(modle):\n    return 1\n")
    assert "matrix.yaml:4:14: path: my_probe.py:1:7: a asks for" in text


def test_two_files_of_one_name_are_a_mistake(loaded, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "my_probe.py").write_text(GOOD)
    text = problem(loaded, "[my_probe.py, more/my_probe.py]")
    assert 'two files of probes have the name "my_probe"' in text


def expected(signal):
    return f'expected:\n  - {{model: llama, environment: "5.x", signal: [{signal}], reason: a}}\n'


def test_a_probe_that_counts_may_be_expected_to_differ(loaded):
    probes = "[{path: my_probe.py, verdict: true}]"
    (entry,) = loaded(probes, more=expected("my_probe")).expected
    assert entry.signal == ("my_probe",)
    text = problem(loaded, probes, more=expected("my_prope"))
    assert '"my_prope" matches no signal: did you mean "my_probe"?' in text


def test_one_that_informs_cannot_be_expected(loaded):
    text = problem(loaded, "[my_probe.py]", more=expected("my_probe"))
    assert '"my_probe" is a probe that only informs' in text
    assert "verdict: true" in text


def test_the_content_of_the_file_names_the_captures(loaded, tmp_path):
    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.storage.store import Store
    from tests.support.builders import built_stack, cell_id

    cache = JobCache(tmp_path, Store(tmp_path), "p", "m")
    checkpoint = Checkpoint(model="llama", source="/c", shown_source="c", digest="d", n_bytes=1)

    def folder(probes, source=GOOD):
        model = loaded(probes, source).models[0]
        return CellRunner(cache).folder(
            ReadyCell(cell_id("5.x"), model, checkpoint, built_stack("5.x"), None)
        )

    plain = folder("[my_probe.py]")
    assert plain == folder("[my_probe.py]")
    others = [folder("[]"), folder("[{path: my_probe.py, verdict: true}]")]
    others.append(folder("[my_probe.py]", GOOD + "#\n"))
    assert len({plain, *others}) == 4
