"""questions.classes: what other classes read of a checkpoint, on a planted base model and on sound ones."""

import json
import tempfile
from pathlib import Path

import tiny
import torch
import transformers
from samebits_probe.model import load
from samebits_probe.questions.classes import made
from samebits_probe.questions.classes.classes import (
    Own,
    _likeness,
    asked,
    declared,
    facts,
    from_base,
)

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VIT = {key: SIZES[key] for key in SIZES if key != "vocab_size"} | {"image_size": 8, "patch_size": 4}
IDS = {"input_ids": torch.arange(5, 14)[None]}
FOLDERS = []


class Renamed(transformers.BertModel):
    """A base model that looks for its tensors under another prefix."""

    base_model_prefix = "encoder_model"


class Doubled(transformers.BertModel):
    """A base model that its head has, and that changes a setting when it is loaded alone."""

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model = transformers.BertModel.from_pretrained(*args, **kwargs)
        model = model[0] if isinstance(model, tuple) else model
        model.encoder.layer[0].attention.self.num_attention_heads = 1
        model.encoder.layer[0].attention.self.attention_head_size = 16
        return model


def saved(model, scale=0.3):
    """Return the source of a model in a folder, and the model as its own class loads it."""
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)  # kept until the process ends
    with torch.no_grad():
        for parameter in model.parameters() if scale else ():
            parameter.normal_(0, scale)
    model.save_pretrained(folder.name)
    source = load.Source(str(Path(folder.name)), None, False, "float32", "default", "cpu")
    return source, load.load_model(source)


def loads(model, kwargs=IDS, classes=None):
    source, loaded = saved(model)
    own = Own(loaded, {}, kwargs)
    return facts(source, own, asked(source) if classes is None else classes)


def classes_of(source):
    return {name: kind.__name__ for name, kind in asked(source).items() if kind is not None}


def bert(kind=transformers.BertForMaskedLM, **fields):
    torch.manual_seed(0)
    return kind(transformers.BertConfig(**(SIZES | fields)))


def test_a_planted_base_model_reads_nothing_and_its_twin_reads_all():
    found = loads(bert(), classes={"Renamed": Renamed, "AutoModel": transformers.BertModel})
    planted, twin = found["Renamed"], found["AutoModel"]
    assert planted["n_left"] == planted["n_tensors"], planted
    assert "embeddings.word_embeddings.weight" in planted["fresh"]
    assert twin["n_left"] > 4
    assert all(name.startswith("cls.") for name in twin["left"]), twin
    assert twin["fresh"] == ["pooler.dense.weight", "pooler.dense.bias"], twin
    assert twin["outputs"] == "same bits"


def test_zeros_and_ones_of_a_new_model_are_not_read_from_the_files():
    source, loaded = saved(bert(), scale=0)
    classes = {"Renamed": Renamed, "AutoModel": transformers.BertModel}
    read = facts(source, Own(loaded, {}, IDS), classes)
    planted, twin = read["Renamed"], read["AutoModel"]
    assert planted["n_left"] == planted["n_tensors"], planted
    assert all(name.startswith("cls.") for name in twin["left"]), twin
    assert 0 < twin["n_left"] < twin["n_tensors"]


def test_a_place_in_memory_is_no_other_base_model():
    """What a kernel rounds depends on where a tensor begins: a mapped file is not aligned."""
    source, loaded = saved(bert())
    for parameter in loaded.model.parameters():
        room = torch.empty(parameter.numel() + 2)[2:].view_as(parameter)
        parameter.data = room.copy_(parameter.data)
    found = facts(source, Own(loaded, {}, IDS), {"AutoModel": transformers.BertModel})
    assert found["AutoModel"]["outputs"] == "same bits"


def test_a_planted_base_model_that_rounds_is_no_other_one():
    rounds = torch.tensor([1.0, 1.0 + 2**-20])
    assert _likeness([(rounds, rounds.clone())]) == "same bits"
    assert _likeness([(rounds, torch.ones(2))]) == "rounding"
    assert _likeness([(rounds, torch.tensor([1.0, 1.001]))]) == "other bits"
    assert _likeness([(rounds, torch.tensor([1.0, float("nan")]))]) == "other bits"
    assert _likeness([(rounds > 1, rounds > 0)]) == "other bits"


def test_a_planted_base_model_that_computes_something_else_is_seen():
    found = loads(bert(), classes={"Doubled": Doubled})["Doubled"]
    assert found["outputs"] == "other bits", found
    assert found["elements_left"] > 0


def test_every_head_of_bert_reads_the_base_model():
    found = loads(bert())
    assert found["AutoModelForMaskedLM"] == {"model_class": "BertForMaskedLM"}
    for name in (
        "AutoModel",
        "AutoModelForSequenceClassification",
        "AutoModelForTokenClassification",
    ):
        assert found[name]["outputs"] == "same bits", name
        assert all(left.startswith("cls.") for left in found[name]["left"]), name


def test_a_checkpoint_of_the_base_model_is_read_by_heads():
    found = loads(bert(transformers.BertModel))
    assert found["AutoModel"] == {"model_class": "BertModel"}
    head = ["classifier.weight", "classifier.bias"]
    classifier = found["AutoModelForSequenceClassification"]
    assert (classifier["n_left"], classifier["fresh"]) == (0, head), classifier
    assert classifier["outputs"] == "same bits"


class OtherPrefix(transformers.BertForMaskedLM):
    """A head that looks for its base model under another prefix when that was saved alone."""

    base_model_prefix = "encoder_model"

    @property
    def base_model(self):
        return self.bert

    def get_input_embeddings(self):
        return self.bert.embeddings.word_embeddings


def read_of_base(model, kwargs=IDS):
    source, loaded = saved(model)
    found = from_base(Own(loaded, {}, kwargs), source)
    return next(iter(found.values()), None)


def with_prefix(kind):
    source, _ = saved(bert())
    loaded = load.load_model(source._replace(model_class="transformers:BertForMaskedLM"))
    loaded.model.__class__ = kind
    return next(iter(from_base(Own(loaded, {}, IDS), source).values()))


def test_a_head_that_reads_nothing_of_its_saved_base_model_is_seen_and_its_twin_is_not():
    planted, twin = with_prefix(OtherPrefix), with_prefix(transformers.BertForMaskedLM)
    assert planted["n_left"] == planted["n_tensors"] > 10, planted
    assert twin["n_left"] == 0, twin
    assert twin["outputs"] == "same bits"
    assert all(name.startswith("cls.") for name in twin["fresh"]), twin


def test_a_base_model_alone_has_no_head_to_read_it():
    assert read_of_base(bert(transformers.BertModel)) is None


def test_images_parts_and_encoders():
    torch.manual_seed(0)
    vit = loads(
        transformers.ViTForImageClassification(transformers.ViTConfig(**VIT)),
        {"pixel_values": torch.rand(1, 3, 8, 8)},
    )
    assert vit["AutoModel"]["outputs"] == "same bits"
    assert set(vit["AutoModel"]["left"]) == {"classifier.weight", "classifier.bias"}
    text = SIZES | {"projection_dim": 8}
    clip = transformers.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=8)
    found = loads(transformers.CLIPModel(clip), {})
    assert all(
        left.startswith(("vision", "text_proj", "logit")) for left in found["CLIPTextModel"]["left"]
    )
    assert not found["CLIPVisionModel"]["n_fresh"]
    projected = found["CLIPTextModelWithProjection"]  # as diffusion models load it
    assert not projected["n_fresh"], projected
    assert "dtype" not in projected
    t5 = transformers.T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2
    )
    found = loads(transformers.T5ForConditionalGeneration(t5), {})
    assert not found["AutoModelForTextEncoding"]["n_fresh"]
    assert found["AutoModelForTextEncoding"]["left"][0].startswith("decoder."), found


def test_auto_classes_of_a_part_are_those_of_the_whole_checkpoint():
    clip = transformers.CLIPConfig(text_config=SIZES, vision_config=VIT, projection_dim=8)
    whole, loaded = saved(transformers.CLIPModel(clip))
    part = whole._replace(model_class="transformers:CLIPTextModel")
    assert load.load_model(part).model.config.model_type == "clip_text_model"
    names = classes_of(part)
    assert names["AutoModel"] == type(loaded.model).__name__ == "CLIPModel"
    assert names == classes_of(whole)


def test_a_config_of_an_unknown_type_has_no_auto_class():
    source, _ = saved(bert())
    config = Path(source.where) / "config.json"
    config.write_text(config.read_text().replace('"bert"', '"no_such_type"'))
    assert asked(source) == {}


def test_a_class_that_raises_says_so():
    class Raises(transformers.BertModel):
        def __init__(self, config):
            raise KeyError(config)

    assert "KeyError" in loads(bert(), classes={"Raises": Raises})["Raises"]["raised"]


class LastToken(transformers.BertForSequenceClassification):
    """A head that takes the last token, padded or not, in place of the first one."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        states = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.classifier(states[:, -1])
        loss = torch.nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)


class Raising(LastToken):
    """A head whose loss raises."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        if labels is not None:
            raise ValueError("no loss")
        return super().forward(input_ids, attention_mask)


def near(one, other):
    return all(abs(a - b) <= 1e-9 * max(1.0, abs(a)) for a, b in zip(one, other, strict=True))


def test_a_planted_head_computes_other_numbers_on_the_same_base_model():
    classes = {"LastToken": LastToken, "twin": transformers.BertForSequenceClassification}
    found = loads(bert(pad_token_id=0), classes=classes)
    planted, twin = found["LastToken"], found["twin"]
    assert planted["fresh"] == twin["fresh"]
    assert planted["base_numbers"].keys() == twin["base_numbers"].keys() != set()
    for name, values in twin["base_numbers"].items():
        assert near(planted["base_numbers"][name], values), name
    assert set(twin["numbers"]) == {"loss()", "logits(3, 2)"}
    assert not near(planted["numbers"]["logits(3, 2)"], twin["numbers"]["logits(3, 2)"])


def test_a_head_computes_the_same_numbers_whenever_it_is_loaded():
    first, second = (loads(bert(pad_token_id=0)) for _ in range(2))
    assert first == second
    for name in ("SequenceClassification", "TokenClassification", "QuestionAnswering"):
        assert "loss()" in first[f"AutoModelFor{name}"]["numbers"], first[f"AutoModelFor{name}"]


def test_a_head_whose_loss_raises_says_so():
    found = loads(bert(pad_token_id=0), classes={"Raising": Raising})["Raising"]
    assert found["forward_raised"] == "ValueError: no loss"


def test_heads_of_an_encoder_decoder_and_of_images_are_run():
    bart = transformers.BartConfig(vocab_size=40, d_model=16, **tiny.halves(ffn=16))
    model = transformers.BartForConditionalGeneration(bart)
    found = loads(model, IDS | {"decoder_input_ids": IDS["input_ids"]})
    assert "loss()" in found["AutoModelForSequenceClassification"]["numbers"], found
    vit = transformers.ViTModel(transformers.ViTConfig(**VIT))
    found = loads(vit, {"pixel_values": torch.rand(2, 3, 8, 8)})
    assert "loss()" in found["AutoModelForImageClassification"]["numbers"], found


def test_an_abstract_base_whose_name_is_like_that_of_a_head_is_none():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Dinov2WithRegistersConfig(**sizes, image_size=28, patch_size=14)
    source, _ = saved(transformers.Dinov2WithRegistersModel(config))
    found = classes_of(source)
    assert "Dinov2WithRegistersForImageClassification" in found.values()
    assert "Dinov2WithRegistersPreTrainedModel" not in found.values()


class OtherEnd(transformers.T5ForQuestionAnswering):
    """A head that takes the start of a span for its end."""

    def forward(self, input_ids=None, start_positions=None, end_positions=None, **kwargs):
        result = super().forward(
            input_ids, start_positions=start_positions, end_positions=end_positions, **kwargs
        )
        result.end_logits = result.start_logits
        return result


class Swapped(transformers.T5ForQuestionAnswering):
    """A head whose layer has its two sizes in the other order."""

    def __init__(self, config):
        super().__init__(config)
        self.qa_outputs = torch.nn.Linear(config.num_labels, config.hidden_size)


def test_heads_of_t5_are_run_with_a_base_model_and_without_one():
    config = transformers.T5Config(
        vocab_size=40,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    kwargs = IDS | {"decoder_input_ids": IDS["input_ids"]}
    model = transformers.T5ForConditionalGeneration(config)
    names = {name: each for name, each in globals().items() if name in {"OtherEnd", "Swapped"}}
    found = loads(model, kwargs, names | {"twin": transformers.T5ForQuestionAnswering})
    planted, twin = found["OtherEnd"], found["twin"]
    assert planted["base_numbers"] == twin["base_numbers"], found
    assert {name.partition(" ")[0] for name in twin["base_numbers"]} == {"encoder", "decoder"}
    assert planted["numbers"]["end_logits(3, 9)"] != twin["numbers"]["end_logits(3, 9)"]
    assert planted["numbers"]["start_logits(3, 9)"] == twin["numbers"]["start_logits(3, 9)"]
    assert "loss()" in twin["numbers"]
    assert "shapes cannot be multiplied" in found["Swapped"]["forward_raised"]
    assert "forward_raised" not in twin
    of_rows = loads(model, kwargs)["AutoModelForSequenceClassification"]
    assert "loss()" in of_rows["numbers"], of_rows
    assert of_rows["base_numbers"], of_rows


class Narrow(transformers.BertForMaskedLM):
    """A model with a parameter of a dtype of its own, which only a release that plants it has."""

    def __init__(self, config):
        super().__init__(config)
        self.scale = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.register_buffer("table", torch.ones(2, dtype=torch.float32), persistent=False)


def test_a_tensor_that_the_asked_dtype_does_not_reach_shows_and_others_do_not():
    default = torch.get_default_dtype()
    source, _ = saved(bert())
    clean, planted = (made.facts(source, kind) for kind in (transformers.BertForMaskedLM, Narrow))
    assert clean.keys() == planted.keys() == {"no dtype", "dtype=bfloat16", "dtype=float32"}
    for arguments, new in clean.items():
        wanted = new["asked"] or "float32"
        assert all(dtypes == [wanted] for dtypes in new["dtypes"].values()), arguments
        more = {"scale": ["bfloat16"], "table": ["float32"]}
        assert planted[arguments]["dtypes"] == new["dtypes"] | more
    assert "bert.encoder.layer.*.output.dense.weight" in clean["no dtype"]["dtypes"]
    assert torch.get_default_dtype() == default


def test_a_constructor_that_raises_is_said_and_leaves_the_default_dtype():
    class Raising(transformers.BertForMaskedLM):
        def __init__(self, config):
            super().__init__(config)
            raise ValueError(torch.get_default_dtype())

    source, _ = saved(bert())
    found = made.facts(source, Raising)
    assert "ValueError: torch.bfloat16" in found["dtype=bfloat16"]["raised"]
    assert torch.get_default_dtype() == torch.float32


def test_a_head_whose_rows_are_choices_computes():
    found = loads(bert(pad_token_id=0))["AutoModelForMultipleChoice"]
    assert "logits(1, 3)" in found["numbers"], found
    assert "loss()" in found["numbers"]


def test_a_table_without_the_config_has_no_class():
    found = loads(bert())
    assert found["AutoModelForCTC"] == {"model_class": ""}
    assert found["AutoModelForNextSentencePrediction"]["model_class"].endswith("Prediction")


class Drawing(transformers.BertForSequenceClassification):
    """A head that draws numbers."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + torch.rand(1)
        return output


def test_a_head_that_draws_numbers_has_none_to_compare():
    found = loads(bert(), classes={"Drawing": Drawing})["Drawing"]
    assert not found.get("numbers"), found


SERIES = {"past_values": torch.sin(torch.arange(32.0)).reshape(1, 16, 2)}


def patchtst():
    torch.manual_seed(0)
    sizes = {"d_model": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 8}
    config = transformers.PatchTSTConfig(
        num_input_channels=2,
        context_length=16,
        prediction_length=4,
        patch_length=4,
        patch_stride=4,
        num_targets=3,
        **sizes,
    )
    return transformers.PatchTSTForPretraining(config)


class AnotherLoss(transformers.PatchTSTForPrediction):
    def forward(self, past_values, future_values=None):
        output = super().forward(past_values, future_values=future_values)
        if output.loss is not None:
            output.loss = 2 * output.loss
        return output


def test_heads_that_no_auto_class_loads_are_asked_and_a_planted_loss_of_series_is_another_one():
    found = loads(patchtst(), SERIES)
    heads = {name for name in found if name.startswith("PatchTSTFor")}
    assert {"PatchTSTForPrediction", "PatchTSTForRegression", "PatchTSTForClassification"} <= heads
    clean = found["PatchTSTForPrediction"]
    assert "loss()" in clean["numbers"], clean
    twins = {"twin": transformers.PatchTSTForPrediction, "planted": AnotherLoss}
    others = loads(patchtst(), SERIES, twins)
    assert near(others["twin"]["numbers"]["loss()"], clean["numbers"]["loss()"])
    assert not near(others["planted"]["numbers"]["loss()"], clean["numbers"]["loss()"])


def test_a_head_of_pixels_has_a_loss():
    torch.manual_seed(0)
    config = transformers.SegformerConfig(
        num_encoder_blocks=1,
        depths=[1],
        sr_ratios=[1],
        hidden_sizes=[8],
        patch_sizes=[3],
        strides=[2],
        num_attention_heads=[2],
        mlp_ratios=[2],
        decoder_hidden_size=8,
        num_labels=3,
    )
    pixels = {"pixel_values": torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)}
    found = loads(transformers.SegformerForImageClassification(config), pixels)
    assert "loss()" in found["AutoModelForSemanticSegmentation"]["numbers"]


CODE = """
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification

class OwnConfig(BertConfig):
    model_type = "own_bert"

class OwnForMaskedLM(BertForMaskedLM):
    config_class = OwnConfig

class OwnForTokens(BertForTokenClassification):
    config_class = OwnConfig

    def forward(self, input_ids, attention_mask=None):
        logits = super().forward(input_ids, attention_mask).logits
        if {planted}:
            self.no_such_helper()
        return (logits,)
"""
HEADS = {
    "AutoModelForMaskedLM": "OwnForMaskedLM",
    "AutoModelForTokenClassification": "OwnForTokens",
}


def declared_loads(planted):
    """Return what the Auto classes of a model of its own code load, whose second head raises if it is planted."""
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)
    bert().save_pretrained(folder.name)
    (Path(folder.name) / "own.py").write_text(CODE.format(planted=planted))
    config = Path(folder.name) / "config.json"
    auto_map = {name: f"own.{kind}" for name, kind in (HEADS | {"AutoConfig": "OwnConfig"}).items()}
    fields = json.loads(config.read_text()) | {"model_type": "own_bert", "auto_map": auto_map}
    config.write_text(json.dumps(fields))
    source = load.Source(folder.name, None, True, "float32", "default", "cpu")
    loaded = load.load_model(source)
    return facts(source, Own(loaded, {}, IDS), declared(source, loaded.model))


def test_heads_that_auto_map_names_are_loaded_by_their_auto_class_and_run():
    planted, twin = declared_loads(True), declared_loads(False)
    assert planted.keys() == twin.keys() == {"AutoModelForTokenClassification"}
    first, second = (loads["AutoModelForTokenClassification"] for loads in (planted, twin))
    assert "no_such_helper" in first["forward_raised"], first
    assert "forward_raised" not in second, second
    assert second["n_fresh"] == 2, second
