"""What one look at the files tells before a run, and what it must leave alone."""

import asyncio
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from samebits.base.errors import SamebitsError
from samebits.matrix import known, load, yamltext
from samebits.matrix.checkpoint import further_steps
from samebits.pipeline import opening, run
from samebits.pipeline.early import EarlyError, refuse
from samebits.pipeline.order import Order

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}
LATEST = known.releases()[-1]


def safetensors(n=100):
    header = json.dumps(
        {
            "w": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]},
            "__metadata__": {"a": "b"},
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * n)


def pickle(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", bytes(200_000))


def checkpoint(folder, config=CONFIG, weights=("model.safetensors",)):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    for name in weights:
        if name.endswith(".bin"):
            pickle(folder / name)
        else:
            (folder / name).write_bytes(safetensors())
    return folder


def index(folder, names, kind="model.safetensors"):
    (folder / f"{kind}.index.json").write_text(
        json.dumps({"weight_map": dict(zip("abc", names, strict=False))})
    )


class Asked:
    """Stand for the package index, and for releases that are built: by default it has what is known."""

    def __init__(self, *newer, answers=True, knows=()):
        self.newer, self.answers, self.knows = newer, answers, knows
        self.looked = []

    def newest_release(self, spec, family):
        if not self.answers:
            return None
        known_ones = known.of_family(family) if family else known.releases()
        fitting = [v for v in self.newer if f"{v}.".startswith(family.removesuffix("x"))]
        return [None, *known_ones, *fitting][-1]

    def may_know(self, spec, name):
        self.looked.append((spec.id, name))
        return name in self.knows


SILENT = Asked(answers=False)


def faults(tmp_path, entry="{path: m}", stacks="[4.57, 5.x]", asked=None, **order):
    text = f"environments: {stacks}\nmodels:\n  m: {entry}\n"
    matrix = load.parse(yamltext.parse(text.encode()), tmp_path / "matrix.yaml")
    try:
        refuse(matrix, Order(**({"checks": True} | order)), asked or Asked())
    except EarlyError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "weights",
    [("model.safetensors",), ("pytorch_model.bin",), ("model.safetensors", "pytorch_model.bin")],
)
def test_whole_checkpoints_pass(tmp_path, weights):
    checkpoint(tmp_path / "m", weights=weights)
    assert faults(tmp_path) is None


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_shards_pass_if_they_are_all_there(tmp_path, kind):
    stem, _, suffix = kind.partition(".")
    names = [f"{stem}-0000{n}-of-00002.{suffix}" for n in (1, 2)]
    folder = checkpoint(tmp_path / "m", weights=names)
    index(folder, names, kind)
    assert faults(tmp_path) is None
    (folder / names[1]).unlink()
    assert f"names 2 files, and 1 of them is not there: {names[1]}" in faults(tmp_path)
    (folder / names[1]).write_bytes((folder / names[0]).read_bytes()[:150])
    assert f"{names[1]} is cut off" in faults(tmp_path)


def test_files_that_no_release_reads_may_be_damaged(tmp_path):
    folder = checkpoint(tmp_path / "m")
    index(folder, ["gone.safetensors"])  # model.safetensors comes before an index
    for name in ("pytorch_model.bin", "optimizer.pt", "model.fp16.safetensors", "old.safetensors"):
        (folder / name).write_bytes(b"PK damaged")
    assert faults(tmp_path) is None


def test_an_old_pickle_is_no_archive_and_passes(tmp_path):
    folder = checkpoint(tmp_path / "m", weights=())
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    assert faults(tmp_path) is None


def test_weights_under_a_name_that_nobody_looks_for_are_named(tmp_path):
    folder = checkpoint(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert "weights.safetensors is there, a name that" in faults(tmp_path)
    (folder / "weights.safetensors").unlink()
    assert faults(tmp_path).endswith("Usually the copy or the download left it out: copy it, too")


DAMAGES = {
    "cut off (140 of": lambda b: b[:140],
    "cut off in its header": lambda b: b[:40],
    "is empty": lambda b: b"",
    "does not begin with the header": lambda b: bytes(100),
    "is damaged": lambda b: b"<!DOCTYPE html><html>" + bytes(500),
    "7 bytes more than its header names": lambda b: b + bytes(7),
    "git lfs pull": lambda b: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
}


@pytest.mark.parametrize("words", DAMAGES)
def test_damaged_weights_are_named(tmp_path, words):
    folder = checkpoint(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(DAMAGES[words](path.read_bytes()))
    assert words in faults(tmp_path)
    assert str(path) in faults(tmp_path)


def test_a_pickle_that_is_cut_off_is_named(tmp_path):
    folder = checkpoint(tmp_path / "m", weights=("pytorch_model.bin",))
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:100_000])
    assert "pytorch_model.bin is cut off (100,000 bytes, and its end is missing)" in faults(
        tmp_path
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "model.safetensors or pytorch_model.bin is missing"),
        (("tf_model.h5",), "TensorFlow or Flax"),
        (("m.Q4.gguf",), "does not read GGUF"),
        (("model.fp16.safetensors",), "load: {variant: fp16}"),
        (("model-00001-of-00002.safetensors",), "copy model.safetensors.index.json, too"),
    ],
)
def test_missing_weights_are_named_with_what_is_there(tmp_path, names, words):
    checkpoint(tmp_path / "m", weights=names)
    assert words in faults(tmp_path)


def test_a_variant_that_is_asked_for_is_there(tmp_path):
    folder = checkpoint(tmp_path / "m", weights=("model.fp16.safetensors",))
    assert faults(tmp_path, "{path: m, load: {variant: fp16}}") is None
    (folder / "model.fp16.safetensors").rename(folder / "model.safetensors")
    assert "model.fp16.safetensors" in faults(tmp_path, "{path: m, load: {variant: fp16}}")


def test_a_link_to_nothing_is_told_from_a_missing_file(tmp_path):
    folder = checkpoint(tmp_path / "m", weights=())
    (folder / "model.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    assert "is a link to a file that is not there" in faults(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": None}, 'it is probably llama: write it there, as in "model_type": "llama"'),
        (
            {"model_type": "lama"},
            'no release of transformers knows model_type "lama": did you mean',
        ),
        ({"model_type": "rnabert"}, "--package NAME --import MODULE"),
        ({"architectures": ["ChronosBoltModelForForecasting"]}, "--class MODULE:NAME"),
        ({"architectures": ["LLaMAForCausalLM"]}, 'did you mean "LlamaForCausalLM"'),
        (
            {"model_type": "t5", "architectures": ["T5WithLMHeadModel"]},
            "such as --class transformers:T5ForConditionalGeneration. If a package",
        ),
        ({"torch_dtype": "float23"}, 'torch_dtype "float23" is no dtype of torch: did you mean'),
        ({"torch_dtype": "fp16"}, 'did you mean "float16"?'),
    ],
)
def test_a_config_that_no_release_can_read_is_named(tmp_path, change, words):
    checkpoint(tmp_path / "m", CONFIG | change)
    assert words in faults(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"torch_dtype": "torch.bfloat16"},
        {"torch_dtype": None, "dtype": "float8_e4m3fn"},
        {"torch_dtype": {"text_config": "float32"}},
        {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]},  # not in 4.48
        {"model_type": "deta", "architectures": ["DetaForObjectDetection"]},  # not in 5.x
        {"architectures": None},
        {"model_type": None, "pretrained_cfg": {}, "architecture": "resnet18"},
        {"quantization_config": {"quant_method": "mxfp4"}},  # loads without a package
        {
            "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": False}
        },  # a leftover
    ],
)
def test_what_some_release_reads_is_left_to_the_run(tmp_path, change):
    checkpoint(tmp_path / "m", CONFIG | change)
    assert faults(tmp_path) is None


def test_a_class_from_elsewhere_is_not_looked_up(tmp_path):
    config = {"auto_map": {"AutoConfig": "c.C", "AutoModel": "m.M"}, "architectures": ["M"]}
    checkpoint(tmp_path / "m", config, weights=())
    assert faults(tmp_path, "{path: m, trust_remote_code: true}") is None
    assert "it has no model_type" in faults(tmp_path)
    checkpoint(tmp_path / "m", config | {"model_type": "baichuan"}, weights=())
    assert faults(tmp_path, "{path: m, trust_remote_code: true}") is None
    package = "{path: m, packages: my-models, import: my_models}"
    assert faults(tmp_path, package) is None


def test_own_code_without_anything_to_read_has_no_weights(tmp_path):
    own = "{path: m, trust_remote_code: true}"
    folder = checkpoint(tmp_path / "m", CONFIG | {"auto_map": {"AutoModel": "m.M"}}, weights=())
    assert faults(tmp_path, own) is None  # its code lies elsewhere
    (folder / "m.py").write_text("class M(PreTrainedModel): ...")
    assert "contains no weights" in faults(tmp_path, own)
    (folder / "weights.pt").write_bytes(b"any")
    assert faults(tmp_path, own) is None
    (folder / "weights.pt").unlink()
    (folder / "m.py").write_text("class M(PreTrainedModel):\n    def from_pretrained(cls): ...")
    assert faults(tmp_path, own) is None


def test_code_that_may_not_run_is_no_unknown_type(tmp_path):
    config = {"auto_map": {"AutoModel": "m.M"}, "architectures": ["M"], "model_type": "baichuan"}
    checkpoint(tmp_path / "m", config)
    text = faults(tmp_path, checks=False)
    assert "auto_map in config.json (m.M)" in text
    assert text.endswith("then write trust_remote_code: true")
    assert "--import" not in text
    assert faults(tmp_path).endswith("then add --trust-remote-code")


def test_a_model_of_a_newer_release_is_left_to_the_run(tmp_path):
    checkpoint(tmp_path / "m", CONFIG | {"model_type": "llama9"})
    newer = Asked("5.99.0", knows=["llama9"])
    assert faults(tmp_path, asked=newer) is None
    assert newer.looked == [("5.x", "llama9")]  # not 4.57, which the table has
    assert "llama9" in faults(tmp_path, asked=SILENT)


@pytest.mark.parametrize(
    ("change", "name", "near"),
    [
        ({"model_type": "lama"}, "lama", 'did you mean "llama"?'),
        ({"architectures": ["LlamaForCausalML"]}, "LlamaForCausalML", '"LlamaForCausalLM"?'),
    ],
)
def test_a_misspelt_name_is_refused_though_the_index_has_newer_releases(
    tmp_path, change, name, near
):
    checkpoint(tmp_path / "m", CONFIG | change)
    newer = Asked("5.99.0")
    text = faults(tmp_path, asked=newer)
    assert near in text
    assert "--package NAME --import MODULE" in text
    assert "matrix.yaml" not in text.replace(str(tmp_path), "")
    assert newer.looked == [("5.x", name)]


def test_no_release_is_asked_for_what_the_table_has(tmp_path):
    checkpoint(tmp_path / "m")
    newer = Asked("5.99.0")
    assert faults(tmp_path, asked=newer) is None
    assert newer.looked == []


def test_the_table_ends_with_the_release_that_the_tests_know():
    """tests/matrix/make_known.py adds a new one."""
    root = Path(__file__).parents[2]
    text = (root / "tests" / "newest.txt").read_text("utf-8")
    assert text.splitlines()[-1] == f"transformers<={LATEST}"


def test_a_module_that_no_package_brings_is_named(tmp_path):
    checkpoint(tmp_path / "m", CONFIG)
    assert 'no environment has the module "bacformer"' in faults(
        tmp_path, "{path: m, class: bacformer.modeling:B}"
    )
    assert faults(tmp_path, "{path: m, class: 'transformers:LlamaModel'}") is None
    stacks = "[{transformers: 4.57, packages: bacformer}, 5.x]"
    assert faults(tmp_path, "{path: m, class: bacformer.modeling:B}", stacks) is None


@pytest.mark.parametrize(
    ("stacks", "words"),
    [
        ("[4.57.9, 5.x]", "there is no release 4.57.9 of transformers; 4.57.0 to 4.57.6 exist"),
        ("[4.57, '5.99']", f"there is no release 5.99 of transformers; the newest is {LATEST}"),
        ("[4.57, 6.x]", f"the newest is {LATEST}"),
    ],
)
def test_a_release_that_does_not_exist_is_named_with_those_that_do(tmp_path, stacks, words):
    checkpoint(tmp_path / "m")
    assert words in faults(tmp_path, stacks=stacks)


def test_a_release_newer_than_the_table_is_asked_for(tmp_path):
    checkpoint(tmp_path / "m")
    assert faults(tmp_path, stacks="[4.57, 5.99.1]", asked=Asked("5.99.1")) is None
    # without an index only what can still appear is left to the run
    assert faults(tmp_path, stacks="[4.57, '5.99']", asked=SILENT) is None
    assert "4.57.0 to 4.57.6 exist" in faults(tmp_path, stacks="[4.57.9]", asked=SILENT)


def test_known_releases_need_no_index(tmp_path):
    checkpoint(tmp_path / "m")
    asked = Asked()
    asked.newest_release = lambda *_: pytest.fail("the index was asked")
    assert faults(tmp_path, stacks="[4.48, 4.57.1, 5.x]", asked=asked) is None


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"quant_method": "gptq"}, "--package optimum --package gptqmodel"),
        ({"quant_method": "awq"}, "--package gptqmodel --package accelerate"),
        ({"load_in_4bit": True}, "--package bitsandbytes --package accelerate"),
        ({"quant_method": "fp8"}, "--package accelerate"),
    ],
)
def test_quantised_weights_name_the_packages_that_load_them(tmp_path, settings, option):
    checkpoint(tmp_path / "m", CONFIG | {"quantization_config": settings})
    assert option in faults(tmp_path)
    assert faults(tmp_path, "{path: m, packages: optimum}") is None


@pytest.mark.parametrize(("dtype", "is_left_over"), [("F32", True), ("F8_E4M3", False)])
def test_a_quantisation_that_config_alone_states_is_said_to_be_left_over(
    tmp_path, dtype, is_left_over
):
    folder = checkpoint(tmp_path / "m", CONFIG | {"quantization_config": {"quant_method": "fp8"}})
    width = 4 if dtype == "F32" else 1
    tensors = {"w": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * width]}}
    header = json.dumps(tensors).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(2 * width)
    (folder / "model.safetensors").write_bytes(content)
    said = faults(tmp_path)
    assert ("remove quantization_config if they were dequantised" in said) == is_left_over
    assert ("its weights are quantised with fp8" in said) != is_left_over
    assert "--package accelerate" in said


def test_an_adapter_that_names_another_folder_as_its_base_is_refused(tmp_path):
    """4.57 loads the other folder, whose files no cache key contains."""
    folder = checkpoint(tmp_path / "m")
    other = checkpoint(tmp_path / "other")
    for named, is_refused in ((other, True), (folder, False), ("org/model", False), (None, False)):
        values = {"base_model_name_or_path": named and str(named)}
        (folder / "adapter_config.json").write_text(json.dumps(values))
        said = faults(tmp_path, "{path: m, packages: peft}") or ""
        assert ("is another folder" in said) == is_refused, named


def test_a_matrix_names_line_and_keys(tmp_path):
    checkpoint(tmp_path / "m", CONFIG | {"model_type": "rnabert"})
    text = faults(tmp_path, checks=False)
    assert text.startswith(f"{tmp_path / 'matrix.yaml'}:3: m: ")
    assert "packages: [NAME] and import: [MODULE]" in text


def test_only_models_that_run_are_looked_at(tmp_path, monkeypatch):
    checkpoint(tmp_path / "m")
    checkpoint(tmp_path / "bad", {})
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text("environments: [5.x]\nmodels:\n  m: {path: m}\n  bad: {path: bad}\n")
    monkeypatch.setattr(opening, "Scheduler", lambda *_, **__: pytest.fail("a run began"))
    with pytest.raises(EarlyError, match=r"matrix.yaml:4: bad: .*model_type"):
        asyncio.run(run.run_matrix(Order(matrix=matrix), {}, lambda _: pytest.fail("progress")))
    refuse(load.load(matrix), Order(selection={"models": ("m",)}), SILENT)
    with pytest.raises(EarlyError):
        refuse(load.load(matrix), Order(selection={"models": ("b*",)}), SILENT)


def test_the_steps_of_a_sentence_model_are_read_from_its_modules(tmp_path):
    folder = checkpoint(tmp_path / "m")
    assert list(further_steps(folder)) == []
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert list(further_steps(folder)) == ["Pooling (1_Pooling)", "Normalize (2_Normalize)"]
    (folder / "modules.json").write_text(json.dumps(modules[:1]))
    assert list(further_steps(folder)) == []
    for odd in ("{}", "[1]", '"x"', "\x00"):
        (folder / "modules.json").write_text(odd)
        assert list(further_steps(folder)) == []
    assert faults(tmp_path) is None


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer_config.json",
        "preprocessor_config.json",
        "modules.json",
        "generation_config.json",
        "tokenizer.json",
        "spiece.model",
        "source.spm",
        "qwen.tiktoken",
        "model.safetensors",
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(tmp_path, name):
    folder = checkpoint(tmp_path / "m")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert f"{folder / name} is a pipe and no file" in faults(tmp_path)


def test_a_device_in_the_place_of_a_file_is_named_and_not_read(tmp_path):
    folder = checkpoint(tmp_path / "m")
    (folder / "tokenizer_config.json").symlink_to("/dev/zero")
    assert "tokenizer_config.json is a device and no file" in faults(tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "is_named"),
    [
        ("config.json", 200 << 30, True),
        ("tokenizer_config.json", 200 << 30, True),
        ("tokenizer.json", 200 << 30, True),
        ("model.safetensors.index.json", 200 << 30, True),
        ("tokenizer.json", 200 << 20, False),
        ("trainer_state.json", 200 << 30, False),  # no load reads it
        ("optimizer.pt", 200 << 30, False),
    ],
)
def test_a_file_of_an_absurd_size_is_named_and_not_read(tmp_path, name, size, is_named):
    folder = checkpoint(tmp_path / "m")
    (folder / name).touch()
    os.truncate(folder / name, size)
    found = faults(tmp_path)
    assert (found is not None) == is_named
    assert not is_named or f"{folder / name} has 214,748,364,800 bytes" in found


@pytest.mark.parametrize("name", ["../m.safetensors", "a/../../m.safetensors", "/m.safetensors"])
def test_an_index_that_leads_outside_of_the_folder_is_refused(tmp_path, name):
    folder = checkpoint(tmp_path / "m", weights=())
    index(folder, [name])
    (tmp_path / "m.safetensors").write_bytes(safetensors())
    assert f"names {name}, which lies outside of the folder" in faults(tmp_path)


def test_an_index_may_name_a_subfolder_and_a_link(tmp_path):
    folder = checkpoint(tmp_path / "m", weights=())
    (folder / "shards").mkdir()
    (folder / "shards" / "a.safetensors").write_bytes(safetensors())
    (tmp_path / "blob").write_bytes(safetensors())
    (folder / "..b.safetensors").symlink_to(tmp_path / "blob")
    index(folder, ["shards/a.safetensors", "..b.safetensors"])
    assert faults(tmp_path) is None


def test_its_errors_are_the_users():
    assert issubclass(EarlyError, SamebitsError)
    assert EarlyError("x").exit_code == 2
