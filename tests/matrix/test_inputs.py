"""``inputs:`` of matrix.yaml: its forms, its files, and its mistakes with position and repair."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.base.errors import MatrixError
from samebits.jobs.inputs import _with_whole_paths
from samebits.matrix import yamltext
from samebits.matrix.arguments import InputSet
from samebits.matrix.load import load, parse
from samebits.matrix.sources import bad_arrays, bad_function

MODEL = "models:\n  m:\n    build: llama\n    inputs:\n"


def loaded(tmp_path, text):
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    return load(path)


def fed(tmp_path, lines):
    return loaded(tmp_path, MODEL + lines).models[0].prompts


@pytest.fixture
def arrays(tmp_path):
    np.savez(tmp_path / "given.npz", embeddings=np.zeros((1, 3, 4), np.float32))
    return tmp_path


def test_declared_arguments_keep_their_types(tmp_path):
    lines = (
        "      mine: {arguments: {x: {shape: [1, 12, text_config.hidden_size], "
        "dtype: torch.bfloat16}}}\n"
    )
    lines += (
        "      more: {arguments: {ids: {shape: [2], dtype: int64, high: vocab_size}, flag: true, "
        "scale: 0.5, mode: mean, table: [[1, 2], [3, 4]], mask: {shape: [2, 9], mask: [left 3, ones]}}}\n"
    )
    prompts = fed(tmp_path, lines)
    assert list(prompts) == ["mine", "more"]
    x = prompts["mine"].arguments["x"]
    assert (x.shape, x.dtype) == ((1, 12, "text_config.hidden_size"), "bfloat16")
    more = prompts["more"].arguments
    values = [more[name].value for name in ("flag", "scale", "mode", "table")]
    assert values == [True, 0.5, "mean", [[1, 2], [3, 4]]]
    assert values[0] is True
    assert more["ids"].high == "vocab_size"
    assert more["mask"].mask == ("left 3", "ones")


def test_a_set_knows_where_it_is_and_a_result_does_not_depend_on_it(tmp_path):
    (mine,) = fed(
        tmp_path, "      mine:\n        arguments:\n          x: 1\n          y: 2\n"
    ).values()
    assert mine.places == {
        "": "matrix.yaml:5:7",
        "x": "matrix.yaml:7:11",
        "y": "matrix.yaml:8:11",
    }
    assert mine.folder == str(tmp_path)
    assert not mine.model_dump().keys() & {"places", "folder"}


def test_beside_inputs_only_prompts_that_are_written_are_run(tmp_path):
    inputs = "inputs: {mine: {arguments: {x: 1}}}"

    def names(defaults, entry):
        text = f"defaults: {{greedy: 3{defaults}}}\nmodels: {{m: {{build: llama{entry}}}}}\n"
        return list(loaded(tmp_path, text).models[0].prompts)

    assert names("", "") == ["short", "long", "padded"]
    assert names("", f", {inputs}") == ["mine"]
    assert names("", f", {inputs}, prompts: {{p: hello}}") == ["p", "mine"]
    assert names(", prompts: {q: hello}", f", {inputs}") == ["mine"]
    assert names(f", prompts: {{q: hello}}, {inputs}", "") == ["q", "mine"]
    assert names(f", {inputs}", "") == ["mine"]
    assert names(f", {inputs}", ", prompts: {p: hello}") == ["p", "mine"]


MISTAKES = {
    "an unknown key": (
        "{mine: {arguments: {x: {shap: [1], dtype: int8}}}}",
        '5:30: unknown key "shap" in x: did you mean "shape"?',
    ),
    "an unknown key of a set": (
        "{mine: {argument: {x: 1}}}",
        '5:14: unknown key "argument" in mine: did you mean "arguments"?',
    ),
    "a dtype": (
        "{mine: {arguments: {x: {shape: [1], dtype: float23}}}}",
        '5:49: dtype: "float23" is not a dtype of an argument: did you mean "float32"?',
    ),
    "no dtype": (
        "{mine: {arguments: {x: {shape: [1, hidden_size]}}}}",
        "5:26: x: dtype is missing: write {shape: [1, hidden_size], dtype: float32}",
    ),
    "no shape": (
        "{mine: {arguments: {x: {dtype: int8}}}}",
        "5:26: x: shape is missing: write one such as {shape: [1, 12, hidden_size], dtype: float32}",
    ),
    "no bound": (
        "{mine: {arguments: {x: {shape: [1], dtype: int64}}}}",
        (
            "5:26: x: int64 needs high, which all numbers are below: write {shape: [1], dtype: int64, "
            "high: vocab_size}"
        ),
    ),
    "bounds": (
        "{mine: {arguments: {x: {shape: [1], dtype: int64, low: 5, high: 5}}}}",
        "5:70: high: low is 5 and high is 5: write a high above low",
    ),
    "a size": (
        "{mine: {arguments: {x: {shape: [0], dtype: int64, high: 2}}}}",
        (
            '5:38: shape: "0" is not a size: write a number from 1 to 268,435,456, or a field of the '
            "config such as hidden_size or text_config.hidden_size"
        ),
    ),
    "a mask": (
        "{mine: {arguments: {x: {shape: [1, 3], mask: left}}}}",
        (
            '5:51: mask: "left" is not a mask: write ones, zeros, or a side and the number of positions '
            "of padding, such as left 3 or right 3"
        ),
    ),
    "two kinds": (
        "{mine: {arguments: {x: {value: 3, mask: ones}}}}",
        "5:46: mask: mask beside value: remove one of the two",
    ),
    "an empty set": (
        "{mine: {}}",
        "5:7: mine: the set is empty: write file, function or arguments",
    ),
    "no file": (
        "{mine: gifen.npz}",
        '5:13: file: "gifen.npz" does not exist: did you mean "given.npz"?',
    ),
    "a pickle": (
        "{mine: given.pt}",
        (
            '5:13: file: "given.pt" is a file which has no names, or runs code when it is read: save it '
            "with numpy.savez or safetensors"
        ),
    ),
    "a function as a file": (
        "{mine: 'own.py:make'}",
        '5:13: file: "own.py:make" is no file of arrays: write {function: own.py:make, trust: true}',
    ),
    "an argument twice": (
        "{mine: {file: given.npz, arguments: {embeddings: 1}}}",
        '5:20: file: "embeddings" is an array of "given.npz" and under arguments: remove one',
    ),
    "no trust": (
        "{mine: {function: 'own.py:make'}}",
        (
            '5:24: function: the function runs Python code of "own.py": read it, then write {function: '
            "own.py:make, trust: true}"
        ),
    ),
    "another function": (
        "{mine: {function: 'own.py:maek', trust: true}}",
        '5:24: function: "own.py" has no function "maek": did you mean "make"?',
    ),
    "too few parameters": (
        "{mine: {function: 'own.py:other', trust: true}}",
        (
            "5:24: function: own.py:4: other is called with (config, seed, torch): write def "
            "other(config, seed, torch):"
        ),
    ),
    "trust without a function": (
        "{mine: {file: given.npz, trust: true}}",
        "5:38: trust: trust is for the code of a function: remove the key",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake, arrays):
    lines, expected = MISTAKES[mistake]
    (arrays / "own.py").write_text(
        "def make(config, seed, torch):\n    return {}\n\ndef other(config):\n    return {}\n"
    )
    (arrays / "given.pt").write_bytes(b"")
    text = MODEL.replace("inputs:\n", "inputs:\n      ") + lines[1:-1]
    with pytest.raises(MatrixError) as caught:
        loaded(arrays, text + "\n")
    problems = [str(line).partition("matrix.yaml:")[2] for line in caught.value.problems]
    assert problems == [expected]


def test_a_set_with_the_name_of_a_prompt_is_a_mistake(tmp_path):
    text = "models: {m: {build: llama, prompts: {p: hi}, inputs: {p: {arguments: {x: 1}}}}}\n"
    with pytest.raises(MatrixError, match='a prompt has the name "p", too'):
        loaded(tmp_path, text)


def test_an_array_of_objects_is_refused_unread(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    np.savez(tmp_path / "evil.npz", x=np.array([Evil()], dtype=object))
    fault = bad_arrays(tmp_path, "evil.npz")
    assert "holds Python objects, which only pickle reads" in fault
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("dtype", "is_fine"),
    [("float32", 1), ("int64", 1), ("bool", 1), ("complex64", 0), ("<U3", 0), ("uint64", 0)],
)
def test_arrays_have_dtypes_that_forward_may_take(tmp_path, dtype, is_fine):
    np.savez(tmp_path / "a.npz", x=np.zeros(3, dtype))
    assert (bad_arrays(tmp_path, "a.npz") is None) == bool(is_fine)


def test_arrays_without_names_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **{"no name": np.zeros(3, np.float32)})
    assert "has no name that an argument can have" in bad_arrays(tmp_path, "a.npz")
    np.savez(tmp_path / "b.npz")
    assert "has no array" in bad_arrays(tmp_path, "b.npz")


def test_a_file_of_safetensors_is_read_by_its_header(tmp_path):
    header = {"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}
    text = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"00")
    assert bad_arrays(tmp_path, "a.safetensors") is None
    text = text.replace(b"BF16", b"C64 ")
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"00")
    assert "save it as float32" in bad_arrays(tmp_path, "a.safetensors")


@given(content=st.binary(max_size=200), suffix=st.sampled_from([".npz", ".safetensors"]))
def test_a_damaged_file_is_named_and_never_raises(tmp_path_factory, content, suffix):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / f"damaged{suffix}").write_bytes(content)
    fault = bad_arrays(folder, f"damaged{suffix}")
    assert fault is None or "damaged" in fault


@given(st.text(max_size=120))
def test_any_text_as_a_python_file_is_read_without_running_it(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "any.py").write_text(text, "utf-8", "surrogatepass")
    fault = bad_function(folder, "any.py:make")
    assert fault is None or "any.py" in fault


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["shape", "dtype", "mask", "low", "high", "value", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_argument_is_accepted_or_named_with_a_position(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("inputs") / "matrix.yaml"
    text = {"models": {"m": {"build": "llama", "inputs": {"s": {"arguments": {"x": value}}}}}}
    yaml = yamltext.parse(json.dumps(text).encode())
    problems, sets = (), ()
    with suppress(MatrixError):
        sets = tuple(parse(yaml, path).models[0].prompts.values())
    if not sets:
        with pytest.raises(MatrixError) as caught:
            parse(yaml, path)
        problems = caught.value.problems
    assert all(isinstance(each, InputSet) for each in sets)
    assert all(line.startswith(f"{path}:1:") for line in problems)
    assert bool(sets) != bool(problems)


def test_a_job_gets_whole_paths_and_the_model_keeps_its_own(arrays):
    model = loaded(arrays, MODEL + "      mine: given.npz\n").models[0]
    whole = _with_whole_paths(model.prompts)["mine"]
    assert whole.file == str(arrays / "given.npz")
    assert model.prompts["mine"].file == "given.npz"
