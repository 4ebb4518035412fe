"""Tests of former names in matrix.yaml: they mean what the names of now mean, with a hint."""

import pytest

import samebits.questions  # noqa: F401  whose switches the file has
from samebits.base.errors import MatrixError
from samebits.matrix.load import load

NOW = """\
environments: ["4.57", 5.x]
defaults:
  save_load: false
models:
  made: {build: {architecture: llama, environment: "4.57"}, save_load: true}
exclude:
  - {environment: 5.x, variant: "*"}
expected:
  - {model: made, environment: 5.x, reason: known}
"""


def loaded(folder, text):
    path = folder / "matrix.yaml"
    path.write_text(text)
    return load(path)


def former(text):
    text = text.replace("environments:", "stacks:").replace("environment:", "stack:")
    return text.replace("save_load:", "crossings:")


def test_former_names_are_read_with_one_hint_each(tmp_path):
    now = loaded(tmp_path, NOW)
    before = loaded(tmp_path, former(NOW))
    assert now.hints == ()
    assert before.model_copy(update={"hints": ()}) == now
    assert now.models[0].questions == {"crossings": True}
    path = tmp_path / "matrix.yaml"
    assert before.hints == (
        f"{path}:1: `stacks` is now called `environments`; both are read",
        f"{path}:3: `crossings` is now called `save_load`; both are read",
        f"{path}:5: `stack` is now called `environment`; both are read",
    )


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("stacks: [5.2]\n", "stacks: the former name of environments, which is set as well"),
        (
            "include:\n  - {environment: 5.x, stack: 5.x}\n",
            "stack: the former name of environment, which is set as well",
        ),
    ],
)
def test_a_mapping_with_both_names_is_a_mistake(tmp_path, added, words):
    with pytest.raises(MatrixError, match=words):
        loaded(tmp_path, NOW + added)


def test_a_mistake_below_a_former_name_has_its_place(tmp_path):
    with pytest.raises(MatrixError, match=r'matrix.yaml:1:18: transformers: "5.y"'):
        loaded(tmp_path, former(NOW).replace("5.x]", "5.y]"))
