"""Small language models with seeded weights, and sessions that observe them."""

import tempfile
from types import SimpleNamespace

import torch
import transformers
from samebits_probe.cell.session import Session
from samebits_probe.model.tensor import Keeper

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
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.25)
    return made


def llama(kind=transformers.LlamaForCausalLM, **changed):
    """Return a Llama as its class makes it; ``changed`` are fields of its config."""
    torch.manual_seed(1)
    return kind(transformers.LlamaConfig(**(SIZES | changed))).eval()


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
