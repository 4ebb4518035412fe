"""questions.edits: edits of models of this release, and of planted ones that break something."""

import copy
import json
import tempfile
from pathlib import Path
from unittest import mock

import tiny
import torch
import transformers
from samebits_probe.model import load
from samebits_probe.process.quiet import be_quiet
from samebits_probe.questions.edits import edits, others, phase, resizing
from samebits_probe.questions.edits.subject import Done, Subject

IDS = {"input_ids": torch.arange(5, 14)[None]}
MORE, FEWER = (f"resize_token_embeddings(), {way}" for way in ("more tokens", "fewer tokens"))
LABELS = "from_pretrained(num_labels=…, ignore_mismatched_sizes=True)"
COPY, NEW, DISK, SHARDS, CAST = (
    "copy.deepcopy(model)",
    "load_state_dict() of a new model",
    'from_pretrained(device_map={"": "disk"})',
    "save_pretrained(max_shard_size=…, variant=…)",
    "model.to(torch.bfloat16)",
)
be_quiet()


def subject(model, kwargs=IDS):
    """Return a model that is saved and loaded by its class."""
    folder = Path(tempfile.mkdtemp())
    model.save_pretrained(folder / "own")
    source = load.Source(str(folder / "own"), None, False, "float32", "default", "cpu")
    loaded, _ = load.from_pretrained(type(model), source, 0)
    return Subject(loaded, source, kwargs, folder)


def llama(kind=transformers.LlamaForCausalLM, **changed):
    return tiny.made(kind, seed=1, std=0.2, **(tiny.SIZES | changed))


def bert(kind=transformers.BertForMaskedLM, **changed):
    return tiny.made(kind, std=0.2, **(tiny.BERT | changed))


def resized(model, **arguments):
    done = Done()
    resizing.resized(subject(model), done, arguments, is_used=True)
    return done.content()


def copies(ask, model):
    done, given = Done(), subject(model)
    first = others.Copies(given.model)
    with done.leaving_out():
        ask(given, first, given.forward(), done)
    return done.content()


class Scalar(transformers.LlamaForCausalLM):
    """A model that returns a number beside its logits, and one that is infinite."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output["aux_loss"] = output.logits.sum()
        output["mask"] = torch.full((2,), -torch.inf)
        return output


def test_sound_models_keep_all_that_they_should():
    kinds = llama(), llama(Scalar), llama(tie_word_embeddings=True), bert(), tiny.bart()
    for model in kinds:
        kwargs = IDS | (
            {"decoder_input_ids": IDS["input_ids"]} if model.config.is_encoder_decoder else {}
        )
        found = edits.edits(subject(model, kwargs))
        assert {MORE, FEWER, COPY, NEW, LABELS, SHARDS, CAST} <= found.keys(), found.keys()
        for name, done in found.items():
            assert not done.get("broken"), (type(model), name, done)
            refused = {step: text for step, text in done.get("raised", {}).items() if text}
            # an override of 4.48 does not name the argument
            refused = {} if "mean_resizing" in str(refused) and "mean_resizing" in name else refused
            assert not refused, (type(model), name, done)


def test_what_a_larger_vocabulary_is():
    found = resized(llama(), new_num_tokens=72)
    assert found["facts"]["input embeddings"] == ("64 x 16 float32", "72 x 16 float32")
    assert found["facts"]["config.vocab_size"] == ("64", "72")
    new = found["new"]["input embeddings"]
    assert new["mean"] < 1e-3
    assert new["spread"] < 1e-3
    drawn = resized(llama(), new_num_tokens=72, mean_resizing=False)["new"]["input embeddings"]
    assert 0.05 < drawn["spread"] < 0.2


class Wider(transformers.LlamaForCausalLM):
    """A model with input embeddings that no output has, as Mllama's of images."""

    def __init__(self, config):
        super().__init__(config)
        self.model.embed_tokens = torch.nn.Embedding(config.vocab_size + 4, config.hidden_size)


def test_a_head_of_fewer_tokens_keeps_what_it_has():
    found = resized(llama(Wider), new_num_tokens=72)
    assert "broken" not in found, found["broken"]


class OtherRows(transformers.LlamaForCausalLM):
    """A resize that writes over an old row."""

    def resize_token_embeddings(self, *args, **kwargs):
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        embeddings.weight.data[3] = 0
        return embeddings


class Ties(transformers.LlamaForCausalLM):
    """A resize that ties what was apart."""

    def resize_token_embeddings(self, *args, **kwargs):
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        self.lm_head.weight = embeddings.weight
        return embeddings


class KeepsHead(transformers.LlamaForCausalLM):
    """A resize that forgets the head, and the config."""

    def resize_token_embeddings(self, new_num_tokens, *args, **kwargs):
        table = torch.nn.Embedding(new_num_tokens, self.config.hidden_size)
        table.weight.data[: self.config.vocab_size] = self.model.embed_tokens.weight.data
        self.model.embed_tokens = table
        return table


class NotWritten(transformers.LlamaForCausalLM):
    """A resize whose new rows are no numbers."""

    def resize_token_embeddings(self, *args, **kwargs):
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        embeddings.weight.data[-1] = float("nan")
        return embeddings


class OldSize(transformers.LlamaForCausalLM):
    """A loss that knows the number of tokens of its construction."""

    def __init__(self, config):
        super().__init__(config)
        self.n_tokens = config.vocab_size

    def forward(self, *args, labels=None, **kwargs):
        output = super().forward(*args, **kwargs)
        if labels is not None:
            output.logits.view(-1, 9, self.n_tokens)
        return output


def test_planted_resizes_are_seen():
    assert {"old rows of input embeddings", "outputs"} >= resized(
        OtherRows(llama().config), new_num_tokens=72
    )["broken"].keys()
    tied = resized(llama(Ties), new_num_tokens=72)["broken"]
    assert tied["tie"] == "apart → tied"
    assert {"old rows of output embeddings", "outputs"} <= tied.keys()
    kept = resized(llama(KeepsHead), new_num_tokens=72)["broken"]
    assert kept["sizes"] == "output embeddings of 64 for 72 tokens"
    assert kept["config"] == "vocab_size 64 for 72 tokens"
    assert resized(llama(NotWritten), new_num_tokens=72)["broken"]["finite"] == "input embeddings"
    stale = resized(llama(OldSize), new_num_tokens=72)
    assert "RuntimeError" in stale["raised"]["forward with labels"]
    assert not stale["raised"]["forward with the last token"]


class CopiesPart(transformers.LlamaForCausalLM):
    """A copy whose head is no longer the table of its tokens, and one weight another one."""

    def __deepcopy__(self, memo):
        twin = type(self)(copy.copy(self.config))
        twin.load_state_dict(self.state_dict())
        twin.lm_head.weight = torch.nn.Parameter(twin.lm_head.weight.detach().clone())
        twin.model.norm.weight.data[0] += 1
        return twin.eval()


def test_a_planted_copy_is_seen():
    broken = copies(others.copied, llama(CopiesPart, tie_word_embeddings=True))["broken"]
    assert {"tensors", "tie", "outputs"} == broken.keys()
    assert broken["tensors"] == "model.norm.weight"


def test_a_parameter_without_elements_is_tied_to_nothing():
    given, done = subject(llama()), Done()
    norm = given.model.model.norm
    norm.empty = torch.nn.Parameter(norm.weight.detach()[:0])  # at the address of another one
    others.copied(given, others.Copies(given.model), given.forward(), done)
    assert "broken" not in done.content()


def test_parameters_that_a_load_cut_from_one_tensor_are_tied_to_nothing():
    given, done = subject(llama()), Done()
    layer = given.model.model.layers[0].mlp
    both = torch.cat([layer.gate_proj.weight.detach(), layer.up_proj.weight.detach()])
    for part, weight in zip((layer.gate_proj, layer.up_proj), both.chunk(2), strict=True):
        part.weight = torch.nn.Parameter(weight)
    others.copied(given, others.Copies(given.model), given.forward(), done)
    assert "broken" not in done.content()


class OfNoFile(transformers.LlamaForCausalLM):
    """A model that computes with what its state_dict does not have."""

    def __init__(self, config):
        super().__init__(config)
        self.factor = 1.0

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        loaded = super().from_pretrained(*args, **kwargs)
        (loaded[0] if isinstance(loaded, tuple) else loaded).factor = 2.0
        return loaded

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * self.factor
        return output


def test_a_new_model_with_the_same_tensors_that_computes_otherwise_is_seen():
    assert "outputs" in copies(others.refilled, llama(OfNoFile))["broken"]
    assert "broken" not in copies(others.refilled, llama())


class AllNewForSequenceClassification(transformers.BertForSequenceClassification):
    """A load with other sizes that leaves a tensor that fits as a new model has it."""

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        loaded = super().from_pretrained(*args, **kwargs)
        if kwargs.get("ignore_mismatched_sizes"):
            model = loaded[0] if isinstance(loaded, tuple) else loaded
            model.bert.pooler.dense.weight.data.zero_()
        return loaded


def test_other_labels_keep_what_fits():
    sound = copies(others.relabelled, bert(transformers.BertForSequenceClassification))
    assert "broken" not in sound
    assert sound["facts"]["new parameters"] == ("", "4, 4 x 16")
    assert sound["facts"]["num_labels"] == ("", "4")
    planted = copies(others.relabelled, bert(AllNewForSequenceClassification))
    assert planted["broken"] == {"other parameters": "bert.pooler.dense.weight"}


def test_a_config_of_the_same_name_has_no_classifier_of_the_library():
    of_library = bert()
    assert "facts" in copies(others.relabelled, of_library)
    namesake = type("BertConfig", (transformers.BertConfig,), {})
    own = type("BertForMaskedLM", (transformers.BertForMaskedLM,), {"config_class": namesake})
    of_library.config.__class__, of_library.__class__ = namesake, own
    assert type(of_library.config) in transformers.AutoModelForSequenceClassification._model_mapping
    assert copies(others.relabelled, of_library) == {"left_out": "no classifier for its config"}


class Float32Inside(transformers.LlamaForCausalLM):
    """A forward that multiplies what it has cast by what it has not."""

    def forward(self, *args, **kwargs):
        torch.ones(1, 16) @ self.model.norm.weight
        return super().forward(*args, **kwargs)


class FromDisk(transformers.LlamaForCausalLM):
    """A model that is loaded without accelerate, and is saved as ``then`` has it where it was loaded onto disk."""

    then = "as it is"

    @classmethod
    def from_pretrained(cls, *args, device_map=None, offload_folder=None, **kwargs):
        model = super().from_pretrained(*args, **kwargs)
        if device_map == {"": "disk"}:
            model.on_disk = cls.then
        return model

    def save_pretrained(self, folder, **kwargs):
        then = getattr(self, "on_disk", "as it is")
        if then == "refused":
            raise NotImplementedError("no data")
        if then == "zeros":
            self.model.norm.weight.data.zero_()
        if then == "more":
            self.model.norm.register_buffer("late", torch.ones(1))
        super().save_pretrained(folder, **kwargs)


def test_a_save_of_a_model_on_disk_is_compared_with_a_plain_one():
    expected = {
        "as it is": {},
        "zeros": {"saved tensors": "model.norm.weight"},
        "more": {"names": "model.norm.late"},
    }
    with mock.patch.object(others, "_has_accelerate", return_value=True):
        for then, broken in expected.items():
            found = copies(others.on_disk, llama(type("FromDisk", (FromDisk,), {"then": then})))
            assert found.get("broken", {}) == broken, then
            assert set(found["raised"].values()) == {""}
        refused = copies(others.on_disk, llama(type("FromDisk", (FromDisk,), {"then": "refused"})))
        assert "no data" in refused["raised"]["save_pretrained"]
    with mock.patch.object(others, "_has_accelerate", return_value=False):
        done, given = Done(), subject(llama())
        with done.leaving_out():
            others.on_disk(given, None, {}, done)
        assert done.content() == {"left_out": "the environment has no accelerate"}


def test_a_forward_that_cannot_be_cast_says_so():
    found = copies(others.cast, llama(Float32Inside))
    assert "RuntimeError" in found["raised"]["forward in bfloat16"]
    assert not found["raised"]["forward after float()"]
    assert not copies(others.cast, llama())["raised"]["forward in bfloat16"]


class Draws(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + torch.rand(1)
        return output


def test_nothing_is_asked_of_a_forward_that_draws_or_raises():
    assert edits.edits(subject(llama(Draws))) == {}
    assert edits.edits(subject(llama(), {"input_ids": torch.tensor([[999]])})) == {}


def test_a_model_of_images_is_copied_and_not_resized():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_attention_heads=2, **sizes)
    model = transformers.ViTForImageClassification(config)
    found = edits.edits(subject(model, {"pixel_values": torch.ones(1, 3, 8, 8)}))
    assert {COPY, NEW, LABELS, DISK, SHARDS, CAST} == found.keys()
    assert not any(done.get("broken") for done in found.values())


def test_what_a_save_breaks_without_an_edit_is_no_fault_of_the_edit():
    class Forgets(transformers.LlamaForCausalLM):
        def save_pretrained(self, *args, **kwargs):
            twin = copy.deepcopy(self)
            twin.model.norm.weight.data.zero_()
            transformers.LlamaForCausalLM.save_pretrained(twin, *args, **kwargs)

    class Refuses(transformers.LlamaForCausalLM):
        def save_pretrained(self, folder, *args, **kwargs):
            if not str(folder).endswith("own"):
                raise RuntimeError(folder)
            transformers.LlamaForCausalLM.save_pretrained(self, folder, *args, **kwargs)

    raised = edits.edits(subject(llama(Refuses)))[MORE]["raised"]
    assert "forward" in raised
    assert "save_pretrained" not in raised
    done = edits.edits(subject(llama(Forgets)))[MORE]
    assert not any(part.startswith("saved") for part in done.get("broken", {})), done


def test_a_model_with_adapters_or_quantized_weights_is_left_alone():
    for adapted, quantized in ((False, None), (True, None), (False, {"bits": 4})):
        session = tiny.session_of(llama(), {}, questions={"edits": {"large": False}})
        session.loaded.model._hf_peft_config_loaded = adapted
        session.loaded.config.quantization_config = quantized
        assert (phase.untouched(session) is None) == (adapted or quantized is not None)


class InShards(transformers.LlamaForCausalLM):
    """A model whose files are changed behind a save, as ``then`` has it."""

    then = "as it is"

    def save_pretrained(self, folder, **kwargs):
        super().save_pretrained(folder, **kwargs)
        folder, (index, *_) = Path(folder), (*Path(folder).glob("*.index*.json"), None)
        if self.then == "renamed" and index is not None:
            index.rename(folder / index.name.replace(".other", "-other"))
        if self.then == "unlisted" and index is not None:
            content = json.loads(index.read_text("utf-8"))
            content["weight_map"].pop("lm_head.weight")
            index.write_text(json.dumps(content), "utf-8")
        if self.then == "lost" and index is not None:
            content = json.loads(index.read_text("utf-8"))
            name = content["weight_map"].pop("lm_head.weight")
            (folder / name).write_bytes(
                (folder / name).read_bytes().replace(b"lm_head", b"lm_hand")
            )
            index.write_text(json.dumps(content), "utf-8")


def test_a_variant_in_several_files_is_loaded_as_it_was_saved():
    names = "model.other-N-of-N.safetensors, model.safetensors.index.other.json"
    found = copies(others.sharded, llama(InShards))
    assert found == {
        "raised": {"save_pretrained": "", "from_pretrained": ""},
        "facts": {"files": ("", names)},
    }
    unlisted = copies(others.sharded, llama(type("Unlisted", (InShards,), {"then": "unlisted"})))
    assert unlisted["broken"]["names"] == "lm_head.weight", unlisted
    lost = copies(others.sharded, llama(type("Lost", (InShards,), {"then": "lost"})))
    assert lost["broken"]["saved tensors"] == "lm_head.weight", lost
    renamed = copies(others.sharded, llama(type("Renamed", (InShards,), {"then": "renamed"})))
    assert renamed["facts"]["files"][1] == names.replace("index.other", "index-other")
    assert renamed["raised"]["from_pretrained"]
