"""model.packages: imports that register classes, a class by name, and arguments of from_pretrained."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import cells
import feeding
import tiny
import torch
import transformers
from raising import raised
from safetensors.torch import load_file, save_file
from samebits_probe.cell import code
from samebits_probe.model import build, load
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.feed import Feed
from samebits_probe.process import own
from samebits_probe.process.failure import PhaseFailed, Unknown

from samebits_wire.places import PACKAGES_VARIABLE

# here, for all forked children at once
IMPORTED = (
    transformers.AutoModelForCausalLM,
    transformers.BertModel,
    transformers.GenerationMixin,
    transformers.LlamaForCausalLM,
)
HEALTHY = Path(__file__).parents[1] / "custom" / "healthy"
REGISTERING = """
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from .configuration_tiny import TinyConfig
from .modeling_tiny import TinyForCausalLM, TinyModel
AutoConfig.register("tiny_custom", TinyConfig)
AutoModel.register(TinyConfig, TinyModel)
AutoModelForCausalLM.register(TinyConfig, TinyForCausalLM)
"""


def package(text=REGISTERING, name="own_models"):
    """Put a package with the model of tests/custom on the path."""
    root = Path(tempfile.mkdtemp()) / "site-packages"  # as a stack has it
    (root / name).mkdir(parents=True)
    for file in HEALTHY.glob("*.py"):
        shutil.copy(file, root / name)
    (root / name / "__init__.py").write_text(text)
    sys.path.append(str(root))
    return name


def checkpoint(**fields):
    folder = Path(tempfile.mkdtemp())
    shutil.copy(HEALTHY / "model.safetensors", folder)
    config = json.loads((HEALTHY / "config.json").read_text())
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def source(folder, **changed):
    model = {"source": str(folder), "trust_remote_code": False, **changed}
    return load.Source.of(model, cells.VARIANT)


def failure_of(**changed):
    return raised(PhaseFailed, load.load_model, source(checkpoint(), **changed)).failure


def test_without_its_package_a_model_is_unknown():
    reason = raised(Unknown, load.load_model, source(checkpoint()))
    assert "does not know model_type 'tiny_custom'" in str(reason)


def test_an_import_registers_the_class_of_the_architectures():
    loaded = load.load_model(source(checkpoint(), imports=[package()]))
    assert type(loaded.model).__module__ == "own_models.modeling_tiny"
    assert (loaded.facts["model_class"], loaded.head) == ("TinyForCausalLM", "causal-lm")
    assert loaded.facts["class_module"] == "own_models.modeling_tiny"
    assert loaded.facts["missing_keys"] == []


def test_a_class_of_transformers_has_no_module_of_a_package():
    loaded = load.load_model(
        source(checkpoint(), imports=[package()], model_class="own_models.modeling_tiny:TinyModel")
    )
    assert type(loaded.model).__name__ == "TinyModel"
    folder = Path(tempfile.mkdtemp())
    tiny.llama().save_pretrained(folder)
    assert load.load_model(source(folder)).facts["class_module"] == ""
    # the class that was chosen for every release, which this one has or has not
    chosen = source(folder, inputs={"model_class": "LlamaModel"})
    assert load.load_model(chosen).facts["model_class"] == "LlamaModel"
    reason = raised(Unknown, load.load_model, chosen._replace(chosen_class="LlamaForTomorrow"))
    assert "has no class LlamaForTomorrow, which was chosen for every release" in str(reason)


def test_an_architecture_that_nothing_registers_is_unknown():
    text = REGISTERING.replace("AutoModelForCausalLM.register(TinyConfig, TinyForCausalLM)", "")
    reason = raised(Unknown, load.load_model, source(checkpoint(), imports=[package(text)]))
    assert "own_models registers none of that name" in str(reason)


def test_a_class_needs_no_auto_class():
    name = package("")
    loaded = load.load_model(
        source(checkpoint(), model_class=f"{name}.modeling_tiny:TinyForCausalLM")
    )
    assert type(loaded.config).__name__ == "TinyConfig"
    assert type(loaded.model).__name__ == "TinyForCausalLM"
    assert code.of_source(source(checkpoint()))["files"].keys() == {
        f"{name}/__init__.py",
        f"{name}/configuration_tiny.py",
        f"{name}/modeling_tiny.py",
    }


def test_the_code_of_a_package_is_read_and_that_of_others_is_not():
    package()
    assert code.of_source(source(checkpoint()))["files"] == {}
    stock = source(checkpoint(), imports=["own_models"])
    load.load_model(stock)
    facts = code.of_source(stock)
    assert "own_models/modeling_tiny.py" in facts["files"]
    assert not any(name.startswith("transformers/") for name in facts["files"])
    assert "TinyModel" in {c["name"] for c in facts["classes"]}


def test_a_failing_import_is_a_failure_with_the_frames_of_the_package():
    name = package("import json\nfrom transformers.utils import NoSuchName\n")
    failure = failure_of(imports=[name])
    assert (failure["phase"], failure["type"]) == (f"import {name}", "ImportError")
    assert [(f["file"], f["line"], f["own"]) for f in failure["frames"]] == [
        (failure["frames"][0]["file"], 2, True)
    ]
    assert failure["symbols"][0]["name"] == "NoSuchName"
    # no module is left, so the code is read from the files of the package
    facts = code.of_source(source(checkpoint()))
    assert [i["symbol"]["name"] for i in facts["imports"] if not i["symbol"]["found"]] == [
        "NoSuchName"
    ]


def test_a_module_that_is_not_there_is_named_with_the_nearest():
    package()
    os.environ[PACKAGES_VARIABLE] = sys.path[-1]
    failure = failure_of(imports=["own_model"])
    assert failure["type"] == "ModuleNotFoundError"
    assert "did you mean 'own_models'?" in failure["message"]


def test_a_class_that_is_not_there_is_named_with_the_nearest():
    package("")
    failure = failure_of(model_class="own_models.modeling_tiny:TinyForCausalLm")
    assert "did you mean TinyForCausalLM?" in failure["message"]
    failure = failure_of(model_class="own_models.modeling_tiny:nn")
    assert failure["phase"] == "import"
    failure = failure_of(model_class="own_models.modeling_tiny:TinyMLP")
    assert "no from_pretrained" in failure["message"]


def test_a_recipe_may_be_of_a_class_in_a_package():
    name = package()
    recipe = {
        "architecture": "tiny_custom",
        "config": {},
        "head": "causal-lm",
        "seed": 1,
        "gain": 1.0,
    }
    for job in (
        {"recipe": recipe, "imports": [name]},
        {"recipe": recipe, "imports": [], "model_class": f"{name}.modeling_tiny:TinyForCausalLM"},
    ):
        out = Path(tempfile.mkdtemp()) / "made"
        assert build.build(job, str(out))["check_failure"] is None
        loaded = load.load_model(source(out, imports=[name]))
        assert type(loaded.model).__name__ == "TinyForCausalLM"


OVERRIDE = """

class Works(TinyForCausalLM):
    @classmethod
    def from_pretrained(cls, path, *args, **kwargs):
        model = super().from_pretrained(path, *args, **kwargs)
        model.name_of_override = type(model).__name__  # fails with a pair, as span-marker's does
        return model


class PassesOn(TinyForCausalLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        return super().from_pretrained(*args, **kwargs)


class AsksItself(TinyForCausalLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model, cls.info = super().from_pretrained(*args, **kwargs, output_loading_info=True)
        return model


class Wraps(TinyForCausalLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        inner = TinyForCausalLM.from_pretrained(*args, **kwargs)
        model = cls(inner.config)
        model.load_state_dict(inner.state_dict())
        return model


class Broken(TinyForCausalLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model, info = super().from_pretrained(*args, **kwargs)  # raises without samebits, too
        return model
"""


def test_a_class_may_have_its_own_from_pretrained():
    name = package("")
    with (Path(sys.path[-1]) / name / "modeling_tiny.py").open("a") as file:
        file.write(OVERRIDE)
    folder = checkpoint()
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    original = transformers.PreTrainedModel.from_pretrained
    facts = {
        of: load.load_model(source(folder, model_class=f"{name}.modeling_tiny:{of}")).facts
        for of in ("TinyForCausalLM", "Works", "PassesOn", "AsksItself", "Wraps")
    }
    assert transformers.PreTrainedModel.from_pretrained == original
    wraps = facts.pop("Wraps")
    assert [f["missing_keys"] for f in facts.values()] == [["model.norm.weight"]] * 4
    assert not any("are not known" in text for f in facts.values() for text in f["messages"])
    assert any("unexpected keys are not known" in text for text in wraps["messages"])
    failure = failure_of(model_class=f"{name}.modeling_tiny:Broken")
    assert (failure["phase"], failure["type"]) == ("load", "TypeError")


def bert(folder):
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**tiny.BERT, max_position_embeddings=32))
    model.save_pretrained(folder)
    return model


def test_arguments_reach_config_model_and_fresh_twin():
    folder = Path(tempfile.mkdtemp())
    bert(folder)
    asked = source(folder, load={"add_pooling_layer": False, "hidden_dropout_prob": 0.25})
    loaded = load.load_model(asked)
    assert loaded.model.pooler is None
    assert loaded.model.config.hidden_dropout_prob == loaded.config.hidden_dropout_prob == 0.25
    twin = load.fresh_twin(loaded.model, loaded.config, asked)
    assert twin.keys() == {
        *dict(loaded.model.named_parameters()),
        *dict(loaded.model.named_buffers()),
    }
    again = load.loaded_with(loaded, asked, {"attn_implementation": "eager"}, {})
    assert again.pooler is None
    assert again.config._attn_implementation == "eager"
    plain = load.load_model(source(folder))
    assert plain.model.pooler is not None


def test_a_variant_s_files_are_those_that_are_traced_and_not_of_a_saved_copy():
    folder = Path(tempfile.mkdtemp())
    model = bert(folder)
    (folder / "model.safetensors").rename(folder / "model.half.safetensors")
    asked = source(folder, load={"variant": "half"})
    loaded = load.load_model(asked)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
    assert "embeddings.word_embeddings.weight" in Checkpoint.of(asked)
    copy = Path(tempfile.mkdtemp())
    loaded.model.save_pretrained(copy)
    load.load_model(asked.at(str(copy)))


def test_several_choices_are_fed_and_taken():
    folder = Path(tempfile.mkdtemp())
    bert(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMultipleChoice"]
    (folder / "config.json").write_text(json.dumps(config))
    prompts = {
        "short": {"length": 5},
        "padded": {"batch": [{"length": 3}, {"length": 6}]},
        "text": {"text": "a"},
    }
    chosen = feeding.chosen({"source": str(folder), "trust_remote_code": False, "prompts": prompts})
    record = feeding.record_of(chosen)["prompts"]
    assert record["short"]["tensors"]["input_ids"]["shape"] == [1, 3, 5]
    assert record["padded"]["tensors"]["attention_mask"]["shape"] == [2, 3, 6]
    assert "give the prompt a length" in record["text"]["reason"]
    fed = Feed(chosen, torch.float32, "cpu")
    model = load.load_model(source(folder)).model
    rows = fed.inputs("padded", None).kwargs
    assert not torch.equal(rows["input_ids"][:, 0], rows["input_ids"][:, 1])
    with torch.no_grad():
        logits = model(**rows).logits
    assert logits.shape == (2, 3)


def test_the_path_of_a_stack_s_process_ends_with_the_packages():
    os.environ[PACKAGES_VARIABLE] = "/some/packages"
    own.use_packages()
    own.use_packages()
    assert sys.path.count("/some/packages") == 1
    assert sys.path[-1] == "/some/packages"


def test_what_stands_in_for_a_package_of_the_stack_comes_before_it():
    before = list(sys.path)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "instead").mkdir()
        os.environ[PACKAGES_VARIABLE] = str(Path(folder) / "site-packages")
        own.use_packages()
        (first,) = (i for i, path in enumerate(sys.path) if path == str(Path(folder) / "instead"))
        assert not any(Path(path).name == "site-packages" for path in sys.path[:first])
        assert Path(sys.path[first + 1]).name == "site-packages"
        assert sys.path[-1] == os.environ.pop(PACKAGES_VARIABLE)
    sys.path[:] = before


def test_remote_code_is_loaded_by_the_auto_class_of_the_class_that_saved_it():
    auto_map = {
        "AutoConfig": "configuration_tiny.TinyConfig",
        "AutoModel": "modeling_tiny.TinyModel",
        "AutoModelForCausalLM": "modeling_tiny.TinyForCausalLM",
        "AutoModelForSequenceClassification": "a/b--modeling_tiny.TinyForSequenceClassification",
    }
    cases = {
        "TinyModel": "AutoModel",
        "TinyForCausalLM": "AutoModelForCausalLM",
        "TinyForSequenceClassification": "AutoModelForSequenceClassification",
        "Unknown": "AutoModelForCausalLM",
    }
    for architecture, auto_class in cases.items():
        assert load.auto_class_of(auto_map, [architecture]) == auto_class
    del auto_map["AutoModelForCausalLM"]
    assert load.auto_class_of(auto_map, []) == "AutoModel"
    assert load.auto_class_of({"AutoConfig": "a.B"}, ["Other"]) == "AutoModel"
    same = dict.fromkeys(("AutoModel", "AutoModelForCausalLM"), "modeling_tiny.TinyForCausalLM")
    assert load.auto_class_of(same, ["TinyForCausalLM"]) == "AutoModelForCausalLM"


def test_a_class_that_is_not_there_names_those_that_are_below_too():
    name = package("")
    for wrong, words in {
        "TinyForCausalLM": f"did you mean {name}.modeling_tiny:TinyForCausalLM?",
        "Zzz": f"with from_pretrained there are {name}.configuration_tiny:TinyConfig",
    }.items():
        error = raised(
            PhaseFailed, load.load_config, source(checkpoint(), model_class=f"{name}:{wrong}")
        )
        text = f"{error} {error.__cause__}"
        assert words in text, text
    empty = Path(sys.path[-1]) / "empty_one.py"
    empty.write_text("")
    error = raised(PhaseFailed, load.load_config, source(checkpoint(), model_class="empty_one:Zzz"))
    assert "neither it nor a module below it" in f"{error} {error.__cause__}"
