"""Models get the packages that their files need; those that list one of a group get nothing of it."""

import json
import os

import huggingface_hub
import pytest
from huggingface_hub import errors

from samebits.base import hub as base_hub
from samebits.matrix import added
from samebits.matrix.added import IMAGES, LOADS, PIECES, TOWERS, with_added_packages
from samebits.matrix.levels import at_level
from samebits.matrix.spec import Matrix
from tests.support.builders import model_spec, stack_spec

DECLARED = {
    "of today": {"preprocessor_config.json": {"image_processor_type": "ViTImageProcessor"}},
    "in a processor": {"processor_config.json": {"image_processor": {"size": 3}}},
    "of videos": {"video_preprocessor_config.json": {"video_processor_type": "X"}},
    "of old": {"preprocessor_config.json": {"feature_extractor_type": "ViT", "image_mean": [0.5]}},
}
NOT_DECLARED = {
    "nothing": {},
    "sounds": {"preprocessor_config.json": {"feature_extractor_type": "Whisper", "n_fft": 400}},
    "texts": {"processor_config.json": {"processor_class": "X"}},
    "a list": {"preprocessor_config.json": ["image_mean"]},
}


def matrix(folder, files=(), stack_packages=(), **changed):
    (folder / "model").mkdir()
    for name, content in dict(files).items():
        text = content if name.endswith(".py") else json.dumps(content)
        (folder / "model" / name).write_text(text, "utf-8")
    stack = stack_spec("4.57").model_copy(update={"packages": stack_packages})
    model = model_spec(path="model", **changed)
    return Matrix(path=str(folder / "m.yaml"), stacks=(stack,), reference="4.57", models=(model,))


def packages(matrix):
    (model,) = with_added_packages(matrix, [matrix.models[0].name]).models
    assert model.added == model.packages[len(matrix.models[0].packages) :]
    return model.packages


@pytest.mark.parametrize("files", DECLARED.values(), ids=DECLARED)
def test_a_processor_of_images_or_videos_gets_both(tmp_path, files):
    assert packages(matrix(tmp_path, files, packages=("mine",))) == ("mine", *IMAGES)


@pytest.mark.parametrize("files", NOT_DECLARED.values(), ids=NOT_DECLARED)
def test_any_other_model_gets_nothing(tmp_path, files):
    assert packages(matrix(tmp_path, files)) == ()


def test_who_lists_one_of_them_has_what_is_listed(tmp_path):
    files = DECLARED["of today"]
    assert packages(matrix(tmp_path, files, packages=("Pillow<13",))) == ("Pillow<13",)
    for folder, listed in (("a", ("pillow",)), ("b", ("torchvision==0.28",))):
        (tmp_path / folder).mkdir()
        assert packages(matrix(tmp_path / folder, files, stack_packages=listed)) == ()


def test_a_run_that_asks_no_processors_adds_nothing(tmp_path):
    quick = at_level(matrix(tmp_path, DECLARED["of today"]), "quick")
    assert packages(quick) == ()


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gemma3n", "vision_config": {"model_type": "gemma3n_vision"}},
        {"model_type": "detr", "use_timm_backbone": True},
        {"model_type": "timm_wrapper"},
    ],
)
def test_a_tower_of_timm_gets_it(tmp_path, config):
    config = config | {"vocab_size": 9}
    assert {*TOWERS} <= {*packages(matrix(tmp_path, {"config.json": config}))}


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "detr", "use_timm_backbone": False},
        {"model_type": "gemma3", "vision_config": {"model_type": "siglip_vision_model"}},
        {"model_type": "llama", "note": ["timm_wrapper"]},
        ["timm_wrapper"],
    ],
)
def test_any_other_tower_gets_no_timm(tmp_path, config):
    assert "timm" not in packages(matrix(tmp_path, {"config.json": config}))


def test_who_lists_torchvision_gets_timm_beside(tmp_path):
    listed = matrix(
        tmp_path, {"config.json": {"model_type": "timm_wrapper"}}, packages=("torchvision",)
    )
    assert packages(listed) == ("torchvision", "timm")


def test_a_release_that_loads_nothing_without_accelerate_gets_it(tmp_path):
    built = matrix(tmp_path)
    assert packages(built) == ()
    (stack,) = built.stacks
    stacks = (stack, stack.model_copy(update={"id": "old", "transformers": "4.51.0"}))
    assert packages(built.model_copy(update={"stacks": stacks})) == LOADS


def test_a_damaged_file_is_none_of_images(tmp_path):
    built = matrix(tmp_path)
    (tmp_path / "model" / "preprocessor_config.json").write_text('{"image_mean"', "utf-8")
    assert packages(built) == ()


class _Hub:
    def __init__(self, cached, *, reached):
        self.cached, self.reached, self.asked, self.downloads = cached, reached, 0, []

    def is_reached(self, _id, _revision):
        self.asked += 1
        return self.reached

    def download(self, _id, name, revision):
        self.downloads.append(name)
        raise errors.EntryNotFoundError(name)


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("is_cached", [True, False])
def test_a_file_of_the_hub_is_downloaded_only_if_the_cache_lacks_it_and_the_hub_answers(
    tmp_path, monkeypatch, reached, is_cached
):
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"image_processor_type": "X"}', "utf-8")
    hub = _Hub({file.name: str(file)} if is_cached else {}, reached=reached)
    monkeypatch.setattr(added, "is_reached", hub.is_reached)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub.download)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda _id, name, revision: hub.cached.get(name)
    )
    own = matrix(tmp_path).model_copy(update={"models": (model_spec(hub="a/b"),)})
    assert (packages(own)[-2:] == IMAGES) == is_cached
    missing = ["tokenizer.json", *added.PIECE_FILES, added.ADAPTER, "config.json", *added.FILES]
    missing += ["tokenizer_config.json"]
    assert hub.asked == len(missing) - is_cached
    assert hub.downloads == ([n for n in missing if n not in hub.cached] if reached else [])


@pytest.mark.parametrize(
    ("names", "expected"), [(["spm.model"], PIECES), (["spm.model", "tokenizer.json"], ())], ids=str
)
def test_pieces_of_the_hub_count_where_it_has_no_tokenizer_json(
    tmp_path, monkeypatch, names, expected
):
    hub = _Hub({name: str(tmp_path / name) for name in names}, reached=False)
    monkeypatch.setattr(added, "is_reached", hub.is_reached)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda _id, name, revision: hub.cached.get(name)
    )
    own = matrix(tmp_path).model_copy(update={"models": (model_spec(hub="a/b"),)})
    assert packages(own) == expected


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    calls = []

    def refuse(url, timeout):
        calls.append(timeout)
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    base_hub.is_reached.cache_clear()
    assert [base_hub.is_reached("a/b", None) for _ in range(3)] == [False] * 3
    base_hub.is_reached.cache_clear()
    assert len(calls) == 1
    assert calls[0] <= 5


def test_a_pipe_declares_nothing(tmp_path):
    made = matrix(tmp_path)
    os.mkfifo(tmp_path / "model" / "preprocessor_config.json")
    assert packages(made) == ()


@pytest.mark.parametrize("name", added.PIECE_FILES)
def test_a_tokenizer_of_pieces_alone_gets_what_reads_it(tmp_path, name):
    made = matrix(tmp_path)
    (tmp_path / "model" / name).write_bytes(b"")
    assert packages(made) == PIECES
    assert packages(at_level(made, "quick")) == PIECES  # it is loaded at every level
    (tmp_path / "model" / "tokenizer.json").write_text("{}", "utf-8")
    assert packages(made) == ()


def test_a_feature_extractor_gets_what_it_imports_and_a_stack_that_lists_it_has_its_own(tmp_path):
    files = {"preprocessor_config.json": {"feature_extractor_type": "LasrFeatureExtractor"}}
    made = matrix(tmp_path, files)
    assert packages(made) == ("librosa",)
    listed = tuple(s.model_copy(update={"packages": ("librosa<1",)}) for s in made.stacks)
    assert packages(made.model_copy(update={"stacks": listed})) == ()


OF_LOSSES = [("eomt", ("scipy",)), ("vit", ()), (["x"], ()), ("dab-detr", ("scipy", "pillow"))]


@pytest.mark.parametrize(("type_", "expected"), OF_LOSSES)
def test_a_model_gets_what_its_loss_imports(tmp_path, type_, expected):
    assert packages(matrix(tmp_path, {"config.json": {"model_type": type_}})) == expected


def test_a_loss_of_boxes_is_no_reason_where_no_step_is_trained_or_the_user_lists_it(tmp_path):
    files = {"config.json": {"model_type": "detr"}, **DECLARED["of today"]}
    made = matrix(tmp_path, files)
    assert packages(made) == ("scipy", *IMAGES)
    (model,) = made.models
    untrained = made.model_copy(update={"models": (model.without(["training"]),)})
    assert packages(untrained) == IMAGES
    listed = made.model_copy(
        update={"models": (model.model_copy(update={"packages": ("scipy",)}),)}
    )
    assert packages(listed) == ("scipy", *IMAGES)


def test_the_hub_is_asked_for_models_of_the_run_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "samebits.matrix.added._hub_files", lambda m, _: iter(asked.append(m.name) or ())
    )
    models = tuple(model_spec(name, hub=f"org/{name}") for name in ("one", "two"))
    matrix = Matrix(path="m.yaml", stacks=(stack_spec("4.57"),), reference="4.57", models=models)
    assert with_added_packages(matrix, ()).models == models
    assert asked == []
    with_added_packages(matrix, ["two"])
    assert {*asked} == {"two"}


def test_a_copy_of_a_matrix_with_other_models_finds_those():
    first, second = (model_spec(name) for name in ("one", "two"))
    matrix = Matrix(path="m.yaml", stacks=(stack_spec("4.57"),), reference="4.57", models=(first,))
    assert matrix.model("one") == first
    assert matrix.model_copy(update={"models": (second,)}).model("two") == second


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("processor_config.json", {"processor_class": "SmolVLMProcessor"}, ("num2words",)),
        ("tokenizer_config.json", {"tokenizer_class": "XLMTokenizer"}, ("sacremoses",)),
        ("config.json", {"model_type": "deta"}, ("torchvision",)),
        ("processor_config.json", {"processor_class": "CLIPProcessor"}, ()),
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer"}, ()),
        ("config.json", {"model_type": "llama"}, ()),
    ],
)
def test_a_class_or_a_type_gets_what_its_module_imports(tmp_path, file, content, expected):
    found = packages(matrix(tmp_path, {file: content}))
    assert {*expected} <= {*found}
    assert bool(found) == bool(expected)


AUTO_MAP = {"config.json": {"auto_map": {"AutoModel": "modeling_x.M", "AutoConfig": "a/b--c.C"}}}
OWN = {
    "modeling_x.py": "import einops, torch\nfrom .parts import P\n",
    "parts.py": "from PIL import Image\nfrom . import more, gone\nfrom .modeling_x import M\n",
    "more.py": "def f():\n    from timm.layers import DropPath\n",
    "aside.py": "import scipy\n",
}


def test_the_code_of_a_checkpoint_gets_what_it_imports(tmp_path):
    spec = matrix(tmp_path, AUTO_MAP | OWN, trust_remote_code=True)
    assert packages(spec) == ("einops", "pillow", "timm")


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import einops\nexcept ImportError:\n    pass\n",
        "if is_einops_available():\n    import einops\n",
        "import einops_exts\nfrom .. import einops\n",
        "import einops (",
    ],
)
def test_code_that_loads_without_a_package_gets_none(tmp_path, code):
    spec = matrix(tmp_path, AUTO_MAP | {"modeling_x.py": code}, trust_remote_code=True)
    assert packages(spec) == ()


def test_code_that_is_not_run_gets_nothing(tmp_path):
    assert packages(matrix(tmp_path, AUTO_MAP | OWN)) == ()
