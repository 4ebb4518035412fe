"""A folder with an adapter alone is its base with the adapter in it."""

import json

import pytest

from samebits.check import adapter, hub
from samebits.check.command import prepare
from samebits.check.options import Options
from samebits.matrix.added import with_added_packages
from samebits.matrix.checkpoint import CheckpointError
from tests.check.test_model import checkpoint


def lora(folder, base, **settings):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": base, **settings})
    )
    for name in ("adapter_model.safetensors", "tokenizer.json", "README.md", ".gitattributes"):
        (folder / name).write_text("of the adapter")
    return folder


@pytest.fixture
def environ(tmp_path):
    return {"SAMEBITS_CACHE": str(tmp_path / "cache")}


def test_the_files_of_both_are_in_one_folder_and_those_of_the_adapter_come_first(tmp_path, environ):
    base = checkpoint(tmp_path / "base")
    (base / "tokenizer.json").write_text("of the base")
    (base / "part").mkdir()
    own = lora(tmp_path / "own", str(base))
    for _ in range(2):  # the second time finds the first one's links
        folder = adapter.joined(own, environ)
        names = {entry.name for entry in folder.iterdir()}
        assert names == {
            *(e.name for e in base.iterdir()),
            "adapter_config.json",
            "adapter_model.safetensors",
        }
        assert (folder / "tokenizer.json").read_text() == "of the adapter"
        assert (folder / "config.json").resolve() == (base / "config.json").resolve()
        settings = json.loads((folder / "adapter_config.json").read_text())
        assert settings == {"peft_type": "LORA", "base_model_name_or_path": str(folder)}
    # nothing is written into the folders of the user
    assert json.loads((own / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        base
    )


def test_a_base_is_looked_for_from_here_then_from_the_adapter_then_on_the_hub(
    tmp_path, environ, monkeypatch
):
    asked = []
    monkeypatch.setattr(hub, "whole_folder", lambda *words: asked.append(words))
    monkeypatch.chdir(tmp_path)
    here, beside = checkpoint(tmp_path / "here"), checkpoint(tmp_path / "runs")
    for number, (named, found) in enumerate((("here", here), ("../runs", beside))):
        folder = adapter.joined(lora(tmp_path / f"a{number}", named), environ)
        assert (folder / "config.json").resolve() == (found / "config.json").resolve()
    assert asked == []
    with pytest.raises(CheckpointError, match=r'its base "org/gone" is neither a folder'):
        adapter.joined(lora(tmp_path / "b", "org/gone", revision="v1"), environ)
    assert asked == [("org/gone", "v1")]
    with pytest.raises(CheckpointError, match="is empty, so nothing says"):
        adapter.joined(lora(tmp_path / "c", None), environ)


def test_a_check_has_the_adapter_by_its_own_name_and_peft(tmp_path, environ, monkeypatch):
    monkeypatch.setenv("SAMEBITS_CACHE", environ["SAMEBITS_CACHE"])
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "base")
    lora(tmp_path / "own", "../base")
    check = prepare(Options(model="own", first="4.57", last="5.2"))
    (model,) = with_added_packages(check.matrix, []).models
    assert (model.name, model.packages) == ("own", ("peft",))
    assert check.command.to_type([]).startswith("samebits check own ")
    assert check.intro[0].startswith("own: LlamaForCausalLM (llama), with an adapter, ")
