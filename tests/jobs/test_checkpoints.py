"""Checkpoints: recipes, folders, patches and hub ids, and when their digest changes."""

import json
from pathlib import Path

import pytest

from samebits.base.errors import PatchError
from samebits.base.filestate import Dependencies, changed
from samebits.jobs.checkpoints import Checkpoint, Checkpoints, builders_of, read_facts
from samebits.matrix.spec import Recipe
from samebits_wire.seal import sealed
from tests.support.builders import built_stack, model_spec

OLD, NEW = built_stack("4.48", "gpt2", "llama"), built_stack("5.0", "gpt2", "llama", "qwen3")
COMMIT = "0123456789" * 4


def recipe(architecture="llama", **changed):
    return model_spec(build=Recipe(architecture=architecture, **changed))


@pytest.fixture
def shelf(tmp_path):
    return Checkpoints(tmp_path / "work", tmp_path, "probes")


def make(shelf, model, builder, weights=b"weights", facts=None):
    """Write the files of probes/samebits_probe/model/build.py, and return their folder."""
    folder = shelf.folder(model, builder)
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    facts = {"n_parameters": 12} if facts is None else facts
    (folder / "checkpoint.json").write_text(sealed(json.dumps(facts)), "utf-8")
    return folder


def test_a_variant_says_what_it_changes(shelf):
    model = recipe(auto=True, config_variant=2)
    assert shelf.folder(model, OLD) != shelf.folder(recipe(auto=True), OLD)
    make(shelf, model, OLD, facts={"values": ["qkv_bias=False", "rope yarn"]})
    assert (
        shelf.made(model, OLD).shown_source
        == "llama with qkv_bias=False, rope yarn, seed 0, made in 4.48"
    )


@pytest.mark.parametrize(
    ("model", "builders"),
    [
        (recipe(), [OLD]),
        (recipe("qwen3"), [NEW]),
        (recipe("nothing"), []),
        (recipe(stack="5.0"), [NEW]),
        (recipe(stack="5.9"), []),
        (recipe(auto=True), [OLD, NEW]),
    ],
    ids=["oldest", "oldest-that-knows", "unknown", "named", "named-and-not-built", "auto"],
)
def test_who_makes_a_checkpoint(model, builders):
    assert builders_of(model, [OLD, NEW]) == builders


def test_nobody_makes_one_without_stacks():
    assert builders_of(recipe(), []) == []


def test_nothing_is_there_until_it_is_made(shelf):
    model = recipe(seed=7)
    assert shelf.made(model, OLD) is None
    folder = make(shelf, model, OLD)
    checkpoint = shelf.made(model, OLD)
    assert (checkpoint.model, checkpoint.source) == ("llama", str(folder))
    assert checkpoint.shown_source == "llama, seed 7, made in 4.48"
    assert (checkpoint.parameters, checkpoint.builder, checkpoint.revision) == (12, "4.48", None)
    assert checkpoint.pinned


@pytest.mark.parametrize("text", [None, "", '{"n_parameters": 1', "[]", "3"], ids=str)
def test_a_torn_checkpoint_is_none(shelf, text):
    folder = make(shelf, recipe(), OLD)
    if text is None:
        (folder / "checkpoint.json").unlink()
    else:
        (folder / "checkpoint.json").write_text(text, "utf-8")
    assert read_facts(folder) is None
    assert shelf.made(recipe(), OLD) is None


def test_facts_without_a_count_of_parameters_are_enough(shelf):
    make(shelf, recipe(), OLD, facts={})
    assert shelf.made(recipe(), OLD).parameters is None


def test_the_folder_is_named_after_all_that_the_bytes_follow_from(shelf, tmp_path):
    folders = [
        shelf.folder(model, builder)
        for model, builder in (
            (recipe(), OLD),
            (recipe(), NEW),
            (recipe(), built_stack("4.48", lock="other\n")),
            (recipe("gpt2"), OLD),
            (recipe(seed=1), OLD),
            (recipe(gain=2.0), OLD),
            (recipe(head="base"), OLD),
            (recipe(config={"hidden_size": 8}), OLD),
        )
    ]
    folders.append(Checkpoints(tmp_path / "work", tmp_path, "other probes").folder(recipe(), OLD))
    assert len(set(folders)) == len(folders)
    assert all(folder.name.startswith("llama-") for folder in folders)
    # what is run with it changes nothing of it
    same = recipe().model_copy(update={"dtypes": ("bfloat16",), "greedy": 0, "timeout": 1.0})
    assert shelf.folder(same, OLD) == folders[0]


def test_the_digest_is_that_of_the_content(shelf, tmp_path):
    make(shelf, recipe(), OLD)
    make(shelf, recipe(), NEW)
    make(shelf, recipe(seed=1), OLD, weights=b"others")
    first, same = shelf.made(recipe(), OLD), shelf.made(recipe(), NEW)
    assert first.digest == same.digest
    assert shelf.made(recipe(seed=1), OLD).digest != first.digest
    again = Checkpoints(tmp_path / "work", tmp_path, "probes").made(recipe(), OLD)
    assert again == first


def test_a_run_goes_by_the_link_that_names_a_folder(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}", "utf-8")
    (tmp_path / "link").symlink_to("one")
    dependencies = Dependencies()
    Checkpoints(tmp_path / "work", tmp_path, "probes", dependencies=dependencies).given(
        model_spec(path="link")
    )
    assert changed(dependencies.files, dependencies.folders) is None
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")
    assert changed(dependencies.files, dependencies.folders) is not None


def test_a_folder_is_relative_to_the_matrix_and_known_by_its_content(shelf, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "config.json").write_text("{}", "utf-8")
    checkpoint = shelf.given(model_spec(path="models"))
    assert checkpoint.source == str((tmp_path / "models").resolve())
    assert checkpoint.shown_source == "path models"
    absolute = shelf.given(model_spec(path=str(tmp_path / "models")))
    assert absolute.source == checkpoint.source
    assert absolute.shown_source == "path models"
    assert checkpoint.pinned
    (tmp_path / "models" / "config.json").write_text('{"a": 1}', "utf-8")
    assert shelf.given(model_spec(path="models")).digest != checkpoint.digest


DIFF = "--- a/code.py\n+++ b/code.py\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture
def patched(tmp_path):
    """A folder, two patches of it, and the model that names all three."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "code.py").write_text("one\n", "utf-8")
    (tmp_path / "first.diff").write_text(DIFF, "utf-8")
    (tmp_path / "second.diff").write_text(DIFF.replace("two", "2").replace("one", "two"), "utf-8")
    return model_spec(path="models", patch=("first.diff", "second.diff"))


def test_a_patched_folder_is_a_copy_and_says_its_patches(shelf, patched, tmp_path):
    checkpoint = shelf.given(patched)
    assert checkpoint.shown_source == "path models + first.diff + second.diff"
    assert Path(checkpoint.source).parent == tmp_path / "work" / "checkpoints"
    assert (Path(checkpoint.source) / "code.py").read_text("utf-8") == "2\n"
    assert (tmp_path / "models" / "code.py").read_text("utf-8") == "one\n"


def test_a_patched_folder_is_known_by_its_content(shelf, patched, tmp_path):
    checkpoint = shelf.given(patched)
    assert checkpoint.digest != shelf.given(model_spec(path="models")).digest
    assert shelf.given(patched) == checkpoint
    (tmp_path / "models" / "code.py").write_text("2\n", "utf-8")
    assert shelf.given(model_spec(path="models")).digest == checkpoint.digest


def test_a_copy_that_is_not_whole_is_made_anew(shelf, patched):
    checkpoint = shelf.given(patched)
    code = Path(checkpoint.source) / "code.py"
    for damage in (lambda: code.write_text("3\n"), code.unlink, (code.parent / "more.py").touch):
        damage()
        assert shelf.given(patched) == checkpoint
        assert code.read_text() == "2\n"
        assert [path.name for path in code.parent.iterdir()] == ["code.py"]


def test_another_patch_makes_another_copy(shelf, patched, tmp_path):
    first = shelf.given(patched)
    (tmp_path / "second.diff").write_text(DIFF.replace("two", "3").replace("one", "two"), "utf-8")
    again = shelf.given(patched)
    assert again.source != first.source
    assert (Path(again.source) / "code.py").read_text("utf-8") == "3\n"


def test_a_patch_that_does_not_apply_leaves_no_copy(shelf, patched, tmp_path):
    (tmp_path / "models" / "code.py").write_text("other\n", "utf-8")
    with pytest.raises(PatchError, match="hunk 1"):
        shelf.given(patched)
    assert list((tmp_path / "work" / "checkpoints").glob("*")) == []


@pytest.mark.parametrize(
    ("revision", "said", "pinned"),
    [
        (None, "hub org/name", False),
        ("main", "hub org/name@main", False),
        ("v1.0", "hub org/name@v1.0", False),
        (COMMIT[:7], f"hub org/name@{COMMIT[:7]}", False),
        (COMMIT, f"hub org/name@{COMMIT}", True),
        (f"{COMMIT}\n", f"hub org/name@{COMMIT}\n", False),
    ],
    ids=["none", "branch", "tag", "short", "commit", "newline"],
)
def test_a_hub_model_is_pinned_by_a_commit_alone(shelf, revision, said, pinned):
    model = model_spec(hub="org/name").model_copy(update={"revision": revision})
    checkpoint = shelf.given(model)
    assert (checkpoint.source, checkpoint.revision, checkpoint.digest) == (
        "org/name",
        revision,
        None,
    )
    assert (checkpoint.shown_source, checkpoint.pinned) == (said, pinned)


def test_a_digest_pins(shelf):
    assert Checkpoint(model="m", source="s", shown_source="s", digest="d").pinned
    assert not Checkpoint(model="m", source="s", shown_source="s").pinned
