"""small: a made model is of the same kind as a large one, shows its defects, and else there is none."""

import errno
import importlib
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import cells
import torch
import transformers
from planting import plant
from raising import raised
from samebits_probe.cell import session as cell_session
from samebits_probe.model import build, forks, load, small
from samebits_probe.questions.crossings import save
from samebits_probe.questions.relations import phase as relations_phase
from samebits_probe.questions.relations import relations

for name in ("transformers.modeling_utils", "transformers.generation", "torch._dynamo"):
    importlib.import_module(name)  # once, for the forks that the tests run in
torch.set_num_threads(1)

LARGE = {"vocab_size": 30_000, "hidden_size": 1024, "num_hidden_layers": 20}
HEADS = {"num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 3000}
OPTIONS = {"samples": 0, "large": False}
SOURCE = load.Source("nowhere", None, False, "float32", "default", "cpu")
CLASSES = (
    transformers.LlamaForCausalLM,
    transformers.Gemma2ForCausalLM,
    transformers.MixtralForCausalLM,
    transformers.T5ForConditionalGeneration,
    transformers.GPT2LMHeadModel,
    transformers.BertForMaskedLM,
)
"""Named here so that they are imported once."""


def large(architecture, head="causal-lm", **config):
    """Return a model too large to be asked, as loaded; it has no values."""
    known = transformers.AutoConfig.for_model(architecture, **config)
    with torch.device("meta"):
        model = getattr(transformers, build.HEADS[head]).from_config(known).eval()
    encoder_decoder = load.is_encoder_decoder(model)
    head = load.head_of(type(model).__name__, encoder_decoder=encoder_decoder)
    assert load.n_bytes(model) > small.LIMIT
    return load.Loaded(model, known, None, head, {})


def llama(**config):
    return large("llama", **(LARGE | HEADS | config))


def reason_of_none(loaded):
    try:
        with small.made(loaded, SOURCE) as made:
            raise AssertionError(made.facts)
    except small.NoneMade as reason:
        return str(reason)


def noted_refusals():
    """Return a list that grows by the reason of each plan that is refused from now on, in this process."""
    refusals, original = [], small._made_or_reason

    def noting(plan, *rest):
        result = original(plan, *rest)
        refusals.extend([(plan.name, result)] if isinstance(result, str) else [])
        return result

    small._made_or_reason = noting
    return refusals


def broken(loaded):
    """Return the relations of the made model that are broken in float64 too."""
    with small.made(loaded, SOURCE) as made:
        signal = relations.of_made_model(made, OPTIONS)
    assert signal["asked_of"] == made.facts
    return {
        relation["relation"]
        for relation in signal["relations"]
        if relation["promoted"] and relation["promoted"]["max_abs"] > 1e-6
    }


def test_a_llama_keeps_what_its_code_depends_on():
    loaded = llama(tie_word_embeddings=True, rope_theta=5e5, rms_norm_eps=1e-4)
    with small.made(loaded, SOURCE) as made:
        config = made.model.config
        assert made.facts["n_layers"] == config.num_hidden_layers == 2
        assert made.facts["n_parameters"] < 2_000_000
        assert config.num_attention_heads == 4 * config.num_key_value_heads
        assert made.model.model.layers[0].self_attn.head_dim == 64
        assert config.rms_norm_eps == 1e-4
        assert forks.rope_settings(config)["rope_theta"] == 5e5
        assert made.model.lm_head.weight is made.model.model.embed_tokens.weight
        assert config.vocab_size < loaded.config.vocab_size == LARGE["vocab_size"]


def test_values_are_seeded_and_dtype_and_attention_are_those_of_the_cell():
    source = SOURCE._replace(dtype="bfloat16", attention="eager")
    weights, refusals = [], noted_refusals()
    for seed in (1, 2):
        torch.manual_seed(seed)
        with small.made(llama(), source) as made:
            assert made.folder.name == "width and heads apart", refusals
            assert made.model.dtype == torch.bfloat16
            assert made.model.config._attn_implementation == "eager"
            weights.append({n: p.detach().clone() for n, p in made.model.named_parameters()})
    first, second = weights
    assert {n: p.shape for n, p in first.items()} == {n: p.shape for n, p in second.items()}
    differing = {n: (first[n], second[n]) for n in first if not torch.equal(first[n], second[n])}
    assert not differing, differing


def test_a_shortage_of_the_machine_makes_no_other_model():
    for error in (
        MemoryError(),
        OSError(errno.ENOSPC, "full"),
        RuntimeError("can't start new thread"),
    ):
        save_fails_once(error)
        raised(type(error), small.made(llama(), SOURCE).__enter__)
    save_fails_once(OSError("a class refuses the config"))
    with small.made(llama(), SOURCE) as made:
        assert made.folder.name == "width and heads together"


def save_fails_once(error):
    original, calls = build.save_seeded, []

    def save(*words):
        calls.append(words)
        if len(calls) == 1:
            raise error
        return original(*words)

    build.save_seeded = save


def test_kinds_of_layers_are_kept():
    gemma = {"head_dim": 64, "sliding_window": 32, "num_hidden_layers": 21}
    with small.made(large("gemma2", **(LARGE | HEADS | gemma)), SOURCE) as made:
        layers = made.model.model.layers
        assert len(layers) == 2
        assert made.model.config.sliding_window == 32
    experts = {"num_local_experts": 32, "num_experts_per_tok": 3}
    with small.made(large("mixtral", **(LARGE | HEADS | experts)), SOURCE) as made:
        assert made.model.config.num_local_experts == 6
        assert made.model.config.num_experts_per_tok == 3


def test_other_architectures_are_made_too():
    t5 = {"d_model": 1024, "d_kv": 64, "num_heads": 16, "d_ff": 2048, "num_layers": 12}
    gpt2 = {"n_embd": 1024, "n_head": 16, "n_layer": 12}
    bert = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 12}
    for loaded in (
        large("t5", "seq2seq-lm", **t5),
        large("gpt2", **gpt2),
        large("bert", "masked-lm", **bert),
    ):
        with small.made(loaded, SOURCE) as made:
            assert made.facts["n_layers"] == 2, made.facts
            assert made.facts["n_parameters"] < 2_000_000, made.facts


def has_own_head(model):
    return model.lm_head.weight is not model.get_input_embeddings().weight


def test_a_head_of_its_own_stays_one_whatever_the_config_class_makes_of_it():
    sizes = {"d_model": 1024, "d_kv": 64, "num_heads": 16, "d_ff": 2048, "num_layers": 12}
    loaded = large("t5", "seq2seq-lm", **sizes, tie_word_embeddings=True)
    with small.made(loaded, SOURCE) as made:
        assert not has_own_head(made.model)
    # Flan-T5: 5.x loads its head, and has tie_word_embeddings=True in the config
    own = torch.nn.Parameter(torch.empty_like(loaded.model.lm_head.weight))
    loaded.model.lm_head.weight = own
    with small.made(loaded, SOURCE) as made:
        assert has_own_head(made.model) is (int(transformers.__version__[0]) > 4)


def test_a_sound_large_model_is_not_accused():
    assert broken(llama()) == set()


def test_a_planted_defect_of_the_class_is_seen_with_the_made_model():
    def forward(plain, self, input_ids=None, **kwargs):
        output = plain(self, input_ids, **kwargs)
        output.logits = output.logits * (1 + 0.01 * (len(input_ids) > 1))
        return output

    with plant(transformers.LlamaForCausalLM, "forward", forward):
        assert "batch size" in broken(llama())


def test_layers_that_would_be_of_another_kind_are_refused():
    loaded = llama()
    loaded.model.model.layers[7].self_attn.is_special = True
    assert "other kinds of layers" in reason_of_none(loaded)


def test_a_dimension_that_would_change_is_refused():
    loaded = llama()
    for layer in loaded.model.model.layers:
        layer.self_attn.head_dim = 65
    assert "other kinds of layers" in reason_of_none(loaded)
    loaded = llama()
    loaded.model.model.norm.window_size = 65
    assert "would not keep window_size" in reason_of_none(loaded)


def test_a_class_that_refuses_every_other_config_has_none():
    loaded = llama()

    def refuse(plain, self, config, *args, **kwargs):
        if config.num_hidden_layers < 20:
            raise ValueError("this class wants twenty layers")
        plain(self, config, *args, **kwargs)

    with plant(transformers.LlamaForCausalLM, "__init__", refuse):
        assert "wants twenty layers" in reason_of_none(loaded)


def test_logits_that_are_no_numbers_are_refused():
    loaded = llama()

    def forward(plain, *args, **kwargs):
        output = plain(*args, **kwargs)
        output.logits = output.logits * float("nan")
        return output

    with plant(transformers.LlamaForCausalLM, "forward", forward):
        assert "not finite" in reason_of_none(loaded)


def test_quantized_weights_have_none():
    loaded = llama()
    loaded.config.quantization_config = {"quant_method": "gptq"}
    assert "quantized" in reason_of_none(loaded)


def test_only_a_large_model_that_is_not_insisted_on_has_a_stand_in():
    model = llama().model
    assert small.stands_in(model, {})
    assert small.stands_in(model, {"questions": {"relations": OPTIONS}})
    insisting = {"questions": {"usage": {"large": False}, "relations": OPTIONS | {"large": True}}}
    assert not small.stands_in(model, insisting)
    assert not small.stands_in(torch.nn.Linear(4, 4), {"questions": {"relations": OPTIONS}})


class Session(SimpleNamespace):
    """As much of a session as the phase uses."""

    def skip(self, what, reason, why="plain"):
        self.skips.append((what, why))

    leaves_out = cell_session.Session.leaves_out

    def options(self, question):
        return self.job["model"]["questions"].get(question)

    def answer(self, question, record):
        self.signals[question] = record

    def begin(self, _phase):
        pass

    def no_time(self, *_):
        return ""

    no_room = no_time

    def instrument(self, _what):
        return torch.no_grad()


def session(loaded, **options):
    job = {"model": {"questions": {"relations": OPTIONS | options}}}
    return Session(
        job=job,
        loaded=loaded,
        source=SOURCE,
        is_run_a=True,
        signals={},
        skips=[],
        seconds={"load": 0},
    )


def test_the_phase_leaves_a_large_model_out_where_none_can_be_made():
    config = {"num_hidden_layers": 40, "hidden_size": 2048, "intermediate_size": 8192}
    loaded = llama(**config)
    loaded.config.quantization_config = {"quant_method": "gptq"}
    asked = session(loaded)
    relations_phase.observe(asked)
    assert asked.signals == {}
    assert asked.skips == [("relations: made model", "cost"), ("relations", "cost")]


def test_the_phase_says_what_was_asked_and_what_was_not():
    asked = session(llama(), samples=3)
    relations_phase.observe(asked)
    signal = asked.signals["relations"]
    assert signal["asked_of"]["n_layers"] == 2
    assert signal["averages"] is None
    assert {bits["what"] for bits in signal["precision"]} == {"activations", "logits"}
    assert asked.skips == [("relations: averages", "cost")]


# what is saved and loaded in place of a large model


def save_made(loaded):
    """Return what a job leaves that makes a model in place of ``loaded``: its record and folder."""
    save.load_model = lambda _source: loaded
    out = Path(tempfile.mkdtemp()) / "made"
    save.run(
        {
            "kind": "crossings.save",
            "makes": True,
            "out": str(out),
            "limit": 0,
            "cell": cells.CELL,
            "threads": 1,
            "model": {"source": "nowhere", "trust_remote_code": False},
        }
    )
    return json.loads((out / "saved.json").read_text()), out


def test_a_job_leaves_a_made_model_that_loads():
    record, out = save_made(llama())
    assert record["outcome"] == "saved"
    assert record["files"].keys() >= {"config.json", "model.safetensors"}
    assert all(save.file_hash(out / name) == h for name, h in record["files"].items())
    model = load.load_model(SOURCE._replace(where=str(out))).model
    n_parameters = sum(p.numel() for p in model.parameters())
    assert n_parameters == record["made"]["n_parameters"]
    assert 4 * n_parameters <= small.MAX_BYTES


def test_a_job_that_can_make_none_leaves_the_reason_and_no_files():
    loaded = llama()
    loaded.config.quantization_config = {"quant_method": "gptq"}
    record, out = save_made(loaded)
    assert (record["outcome"], record["reason"]) == ("skipped", reason_of_none(loaded))
    assert [path.name for path in out.iterdir()] == ["saved.json"]
