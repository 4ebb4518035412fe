"""Small language models with seeded weights, and sessions that observe them."""

import tempfile
from types import SimpleNamespace

import torch
import transformers
from samebits_probe.cell.session import Session
from samebits_probe.model.tensor import Keeper

RELEASE = tuple(int(part) for part in transformers.__version__.split(".")[:2])
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
BERT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def model(architecture="llama", **changed):
    """Return one to learn with, in evaluation mode; ``changed`` are fields of its config."""
    torch.manual_seed(0)
    fields = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": None}
    fields |= {"num_attention_heads": 4, "intermediate_size": 48, "num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(architecture, **(fields | changed))
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25)
    return model


def made(kind, *, seed=0, std=None, **fields):
    """Return a model of a class, in evaluation mode; ``std``: of all its parameters, as far as the class gives others."""
    torch.manual_seed(seed)
    model = kind(kind.config_class(**fields)).eval()
    if std is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=std)
    return model


def halves(layers=1, heads=2, ffn=32):
    """Return the sizes of both halves of an encoder-decoder."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": ffn}
    return {f"{half}_{name}": n for half in ("encoder", "decoder") for name, n in sizes.items()}


def bart(*, seed=0, **changed):
    """Return a BART; ``changed`` are fields of its config."""
    fields = {"vocab_size": 64, "d_model": 32, "max_position_embeddings": 64} | halves()
    return made(transformers.BartForConditionalGeneration, seed=seed, **(fields | changed))


def whisper(*, std=None, **changed):
    """Return a Whisper that forces and suppresses no token; ``changed`` are fields of its config."""
    fields = {"vocab_size": 64, "d_model": 32, "num_mel_bins": 8, "max_target_positions": 32}
    fields |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    fields |= {"suppress_tokens": None, "begin_suppress_tokens": None} | halves()
    return made(transformers.WhisperForConditionalGeneration, std=std, **(fields | changed))


def llama(kind=transformers.LlamaForCausalLM, **changed):
    """Return a Llama as its class makes it; ``changed`` are fields of its config."""
    return made(kind, seed=1, **(SIZES | changed))


def session_of(model, prompts, *, run="a", limit=0, **options):
    """Return a session of a cell that has loaded a model; ``options`` are those of its job's model."""
    session = Session.__new__(Session)
    session.job = {"run": run, "model": {"prompts": prompts, **options}}
    session.loaded = SimpleNamespace(
        model=model, head="causal-lm", tokenizer=None, config=getattr(model, "config", None)
    )
    session.source = SimpleNamespace(attention="default", device="cpu", dtype="float32")
    session.skips, session.failures, session.first_tokens = [], [], {}
    session.signals = {"load": {"activation_dtypes": {}}, "code": {}}
    session.keeper = Keeper(tempfile.mkdtemp(), limit, [])
    session.effect, session.is_apart, session.started = "not checked", False, 0.0
    session.begin, session.no_time = lambda phase: None, lambda n_forwards: ""
    session.inputs, session.prompts = prompts.__getitem__, lambda: prompts
    return session
