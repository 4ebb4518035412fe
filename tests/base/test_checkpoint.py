"""The code that comes with a checkpoint, found without running anything."""

import json
import os

import pytest

from samebits.base.checkpoint import CONFIGS, CUSTOM_GENERATE, is_checkpoint, own_code


def write(folder, name, values):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_can_name_code(tmp_path, name):
    write(tmp_path, name, {"auto_map": {"AutoTokenizer": ["own.Slow", None], "AutoModel": "own.X"}})
    code = own_code(tmp_path)
    assert code.auto_maps == {name: ("own.Slow", "own.X")}
    assert code.places == f"auto_map in {name} (own.Slow, own.X)"
    assert code.files == (name,)


def test_code_for_generate_needs_no_config_to_be_run(tmp_path):
    write(tmp_path, CUSTOM_GENERATE, "def generate(model): pass")
    code = own_code(tmp_path)
    assert (code.auto_maps, code.custom_generate) == ({}, True)
    assert code.places == CUSTOM_GENERATE


def test_a_stock_model_has_no_code(tmp_path):
    write(tmp_path, "config.json", {"model_type": "llama", "auto_map": {}})
    write(tmp_path, "tokenizer_config.json", '{"cut')
    write(tmp_path, "train.py", "print()")
    assert not own_code(tmp_path).places


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_no_file_is_no_config(tmp_path, name):
    def code():
        return own_code(tmp_path).places, is_checkpoint(tmp_path)

    os.mkfifo(tmp_path / name)
    assert code() == ("", False)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert code() == ("", False)
    (tmp_path / name).unlink()
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 200 << 30)
    assert code() == ("", False)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"model_type": "llama"}', True),
        ('{"architectures": ["X"]}', True),
        ('{"port": 8080}', False),
        ("[1]", False),
        ('{"cut', False),
    ],
)
def test_a_folder_with_the_config_of_a_model_is_a_checkpoint(tmp_path, text, answer):
    assert not is_checkpoint(tmp_path)
    write(tmp_path, "config.json", text)
    assert is_checkpoint(tmp_path) is answer
