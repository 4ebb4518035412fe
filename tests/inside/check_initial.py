"""questions.initial: how first weights are drawn, in planted classes of a model and in real ones, as NEW has them."""

import tempfile
from pathlib import Path

import numpy as np
import tiny
import torch
import transformers
from samebits_probe.model import forks, heap, load
from samebits_probe.questions.classes import classes
from samebits_probe.questions.initial import drawn

NEW = int(transformers.__version__.partition(".")[0]) >= 5
FOLDERS = []


class Config(transformers.PretrainedConfig):
    model_type = "planted_initial"

    def __init__(self, initializer_range=0.05, **kwargs):
        self.initializer_range = initializer_range
        super().__init__(**kwargs)


class Clean(transformers.PreTrainedModel):
    """A model whose rule writes each parameter."""

    config_class = config = Config
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))
        self.table = torch.nn.Embedding(40, 16, padding_idx=3)
        self.scale = torch.nn.Parameter(torch.empty(24))
        self.register_buffer("steps", torch.arange(5, dtype=torch.float32))
        self.register_buffer("hidden", torch.ones(4), persistent=False)
        self.post_init()

    def _init_weights(self, module):
        std = self.config.initializer_range
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=std)
            torch.nn.init.zeros_(module.bias)
        elif isinstance(module, torch.nn.Embedding):
            torch.nn.init.uniform_(module.weight, -std, std)
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()
        elif module is self:
            torch.nn.init.ones_(module.scale)
            module.steps.copy_(torch.arange(5))
            module.hidden.fill_(1.0)


class MissesAParameter(Clean):
    def _init_weights(self, module):
        if module is not self:
            super()._init_weights(module)


class MissesAModule(Clean):
    def _init_weights(self, module):
        if not isinstance(module, torch.nn.Linear):
            super()._init_weights(module)


class Unseeded(Clean):
    def _init_weights(self, module):
        super()._init_weights(module)
        if module is self:
            values = np.random.default_rng().random(24)
            with torch.no_grad():
                module.scale.copy_(torch.from_numpy(values))


def made_by(kind, config=None, of=drawn.facts):
    heap.fill_unwritten("a", "cpu")
    FOLDERS.append(tempfile.TemporaryDirectory())
    source = load.Source(FOLDERS[-1].name, None, False, "float32", "default", "cpu")
    return of(source, kind, config or Config())


def tensors(kind):
    facts = made_by(kind)["made"]["from_config"]
    assert facts["model_class"] == kind.__name__
    return facts["tensors"]


def test_a_clean_model_is_described():
    found = tensors(Clean)
    assert found.keys() == {"layers.*.weight", "layers.*.bias", "table.weight", "scale", "steps"}
    weight = found["layers.*.weight"]
    assert not weight["is_fixed"]
    assert weight["n_tensors"] == 2
    assert 5000 < weight["n_values"] <= 2 * 3 * 1024  # two tensors of three models
    assert abs(weight["std"] - 0.05) < 0.003
    assert abs(weight["kurtosis"] - 3) < 0.5
    table = found["table.weight"]
    assert table["zero_rows"] == 1
    assert table["kurtosis"] < 2.1
    assert (found["layers.*.bias"]["is_fixed"], found["layers.*.bias"]["largest"]) == (True, 0.0)
    assert (found["steps"]["is_fixed"], found["steps"]["largest"]) == (True, 4.0)
    assert all(each["repeats"] and each["is_finite"] for each in found.values())
    assert not any(each["n_unwritten"] for each in found.values())


def test_the_line_that_wrote_a_tensor_last_is_named():
    writer = tensors(Clean)["layers.*.weight"]["writer"]
    assert writer["function"].endswith("_init_weights"), writer
    assert writer["place"].startswith("check_initial.py:")
    assert writer["code"] == "torch.nn.init.normal_(module.weight, std=std)"
    writer = tensors(MissesAModule)["layers.*.weight"]["writer"]
    assert "torch.nn.Linear(32, 32)" in writer["code"], writer


def test_planted_unwritten_memory_and_unseeded_numbers_are_seen():
    found = tensors(MissesAParameter)
    assert found["scale"]["n_unwritten"] == 24, found["scale"]
    assert not found["layers.*.weight"]["n_unwritten"]
    found = tensors(Unseeded)
    assert not found["scale"]["repeats"]
    assert not found["scale"]["n_unwritten"]


def test_a_rule_that_misses_a_module_leaves_what_torch_draws():
    found = tensors(MissesAModule)["layers.*.weight"]
    assert abs(found["std"] - 1 / (3 * 32) ** 0.5) < 0.005  # kaiming's uniform one
    assert found["kurtosis"] < 2.0


def test_a_model_of_the_meta_device_is_written_by_a_clean_rule():
    assert made_by(Clean, of=drawn.on_meta) == {}
    planted = made_by(MissesAParameter, of=drawn.on_meta).get(drawn.ON_META)
    if not NEW:  # init_weights does nothing there
        assert planted is None
        return
    assert planted["tensors"].keys() == {"scale", "steps", "hidden"}
    assert planted["tensors"]["scale"]["n_unwritten"] == 24


def saved(model):
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)  # kept until the process ends
    model.save_pretrained(folder.name)
    heap.fill_unwritten("a", "cpu")
    return load.Source(str(Path(folder.name)), None, False, "float32", "default", "cpu")


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**tiny.BERT))


def test_a_new_head_of_bert_has_the_scale_of_its_config():
    found = drawn.facts(saved(bert()), transformers.BertForMaskedLM, bert().config)
    assert found["scales"] == {"initializer_range": 0.02}
    head = found["made"]["AutoModelForSequenceClassification.from_pretrained"]
    assert head["model_class"] == "BertForSequenceClassification"
    tensors = head["tensors"]
    names = {
        f"{name}.{part}"
        for name in ("classifier", "bert.pooler.dense")
        for part in ("weight", "bias")
    }
    assert tensors.keys() == names, tensors
    assert abs(tensors["classifier.weight"]["std"] - 0.02) < 0.01
    assert tensors["classifier.bias"]["is_fixed"]
    assert tensors["classifier.weight"]["writer"]["function"].endswith("._init_weights")


class Forgetful(transformers.BertForSequenceClassification):
    """A head with a parameter that nothing writes."""

    def __init__(self, config):
        super().__init__(config)
        self.centres = torch.nn.Parameter(torch.empty(16, 4))
        self.post_init()


def test_a_planted_head_with_unwritten_memory_is_seen_and_its_twin_is_not():
    source = saved(bert())
    own = classes.Own(load.load_model(source), {}, None)
    asked = {"Forgetful": Forgetful, "Twin": transformers.BertForSequenceClassification}
    found = classes.facts(source, own, asked)
    assert found["Forgetful"]["unwritten"] == ["centres"]
    assert found["Twin"]["unwritten"] == []


def test_what_raises_is_a_result():
    class Raises(Clean):
        def _init_weights(self, module):
            raise KeyError("planted")

    facts = made_by(Raises)["made"]["from_config"]
    assert facts["raised"].startswith("KeyError: 'planted'"), facts


def test_parts_of_a_config_state_their_own_scales():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "initializer_range": 0.5}
    config = transformers.CLIPConfig(text_config=sizes)
    assert drawn.scales(config)["text_config.initializer_range"] == 0.5
    assert (
        forks.value_of(config, "initializer_factor") == drawn.scales(config)["initializer_factor"]
    )
