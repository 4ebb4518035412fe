"""A model of the command line: its folder or id, and a message for each way to miss it."""

import json

import pytest

from samebits.check import hub
from samebits.check.model import ModelError, fitting_name, read_model
from samebits.matrix.values import is_name

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "transformers_version": "4.57.1",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkpoint(folder, config=CONFIG):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def test_a_folder_is_read(folder):
    checkpoint(folder / "my model")
    model = read_model("my model")
    assert (model.name, model.path, model.hub) == ("my-model", "my model", None)
    assert (model.kind, model.saved_with) == ("LlamaForCausalLM (llama)", "4.57.1")
    assert (model.size, model.has_code, model.typed) == (1000, False, "my model")


def test_a_folder_comes_before_the_hub(folder, monkeypatch):
    checkpoint(folder / "org" / "name")
    monkeypatch.setattr(hub, "config_file", lambda *_: pytest.fail("the hub was asked"))
    assert read_model("org/name").path == "org/name"


def test_code_of_its_own_is_noticed(folder):
    checkpoint(folder / "m", CONFIG | {"auto_map": {"AutoModel": "modeling_x.X"}})
    assert read_model("m").has_code


@pytest.mark.parametrize("config", [{}, {"architectures": 3, "transformers_version": 4}])
def test_an_odd_config_is_no_crash(folder, config):
    checkpoint(folder / "m", config)
    model = read_model("m")
    assert (model.saved_with, model.has_code) == (None, False)
    assert model.kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./lama", 'does not exist: did you mean "llama"?'),
        ("nowhere/at/all", "does not exist"),
        ("llama/config.json", "is a file: name the folder that contains it, llama"),
        ("runs", "but folders in it are: name one of runs/checkpoint-10, runs/checkpoint-20"),
        ("empty", "name a folder that save_pretrained wrote"),
        ("adapter", "merge_and_unload"),
        ("cut", "cut/config.json:2:1: this is not valid JSON"),
        ("listed", "listed/config.json:1:1: a config is a mapping"),
        ("bytes", "bytes/config.json: this file cannot be read"),
    ],
)
def test_what_is_no_model_is_named_with_what_to_do(folder, text, words):
    checkpoint(folder / "llama")
    for step in (10, 20):
        checkpoint(folder / "runs" / f"checkpoint-{step}")
    (folder / "empty").mkdir()
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    checkpoint(folder / "cut", '{"model_type": "llama",\n')
    checkpoint(folder / "listed", "[]")
    checkpoint(folder / "bytes")
    (folder / "bytes" / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ModelError) as caught:
        read_model(text)
    assert words in str(caught.value)


def test_a_model_on_the_hub_is_pinned_to_its_commit(folder, monkeypatch):
    asked = []

    def config_file(id_, revision):
        asked.append((id_, revision))
        return hub.HubFile(checkpoint(folder / "cache") / "config.json", "c" * 40)

    monkeypatch.setattr(hub, "config_file", config_file)
    model = read_model("org/name@main")
    assert asked == [("org/name", "main")]
    assert (model.name, model.hub, model.revision) == ("name", "org/name", "c" * 40)
    assert (model.typed, model.size) == (f"org/name@{'c' * 40}", None)


def test_an_unknown_id_is_compared_with_the_folders_here(folder, monkeypatch):
    (folder / "llama-tiny").mkdir()
    unknown = hub.HubError("the hub has no such model", is_unknown=True)

    def config_file(*_):
        raise unknown

    monkeypatch.setattr(hub, "config_file", config_file)
    with pytest.raises(ModelError) as caught:
        read_model("lama-tiny")
    assert 'did you mean "llama-tiny"?' in str(caught.value)


def test_without_a_network_only_init_goes_on(monkeypatch):
    offline = hub.HubError("the hub cannot be reached", is_offline=True)

    def config_file(*_):
        raise offline

    monkeypatch.setattr(hub, "config_file", config_file)
    with pytest.raises(ModelError, match="cannot be reached"):
        read_model("org/name")
    assert read_model("org/name@abc", offline=True).typed == "org/name@abc"


@pytest.mark.parametrize("text", ["a b", "-x", "ä/ö", "", "..", "x" * 200, "_a"])
def test_every_name_fits_into_a_matrix(text):
    assert is_name(fitting_name(text))
