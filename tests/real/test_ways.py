"""generate() over real releases: what differs with the same logits is named, a twin is not accused."""

import json
from pathlib import Path

import pytest

from samebits.questions.registry import findings
from samebits.questions.usage.records import UsageSignal
from tests.real.conftest import NEW, OLD
from tests.support.builders import sound_case

pytestmark = pytest.mark.long  # for changes of questions/usage

ROOT = Path(__file__).parents[2]
ASK = """
import json, logging, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch, transformers
from samebits_probe.questions.usage import ways
from samebits_probe.questions.usage.subject import Subject
logging.disable(logging.WARNING)
SMALL = dict(vocab_size=99, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, num_key_value_heads=2)
T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4,
    decoder_start_token_id=0)
new = int(transformers.__version__.split(".")[0]) > 4

def made(auto, kind, config):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **config)
    return getattr(transformers, auto).from_config(config).eval()

def llama():
    return made("AutoModelForCausalLM", "llama", SMALL)

def other_default():
    model = llama()
    model.generation_config.repetition_penalty = 2.0 if new else 1.0
    return model

def no_beams():
    model = llama()
    plain = model.generate
    def generate(*args, **kwargs):
        if new and kwargs.get("num_beams", 1) > 1:
            raise ValueError("no beams in this release")
        return plain(*args, **kwargs)
    model.generate = generate
    return model

def fewer_penalties():
    model = llama()
    plain = model.generate
    def generate(*args, **kwargs):
        if new:
            kwargs.pop("no_repeat_ngram_size", None)
            kwargs.pop("repetition_penalty", None)
        return plain(*args, **kwargs)
    model.generate = generate
    return model

models = dict(clean=llama, t5=lambda: made("AutoModelForSeq2SeqLM", "t5", T5),
    other_default=other_default, no_beams=no_beams, fewer_penalties=fewer_penalties)
for name, model in models.items():
    with torch.no_grad():
        print(json.dumps([name, ways.generation(Subject(model(), "causal-lm", Path()))]))
"""
FINDINGS = {
    "clean": set(),
    "t5": {("SB822", "generate(): beams that end early")},
    "other_default": {("SB821", "generation_config: repetition_penalty")},
    "no_beams": {("SB824", "generate(): beams")},
    "fewer_penalties": {("SB822", "generate(): penalties")},
}
"""Model -> code and place of the newest release's findings beside 4.48."""


@pytest.fixture(scope="module")
def usages(run_script):
    """Return stack -> model -> what generate() of that release makes of it."""
    observed = {}
    for stack in (OLD, NEW):
        text = run_script(stack, "-c", ASK, ROOT / "probes")
        lines = (json.loads(line) for line in text.splitlines() if line.startswith("["))
        observed[stack] = {
            name: UsageSignal.model_validate({"generation": facts}) for name, facts in lines
        }
    return observed


@pytest.mark.parametrize("name", FINDINGS)
def test_what_generate_does_otherwise_is_named(usages, name):
    case = sound_case(*({"usage": usages[stack][name]} for stack in (NEW, OLD)))
    # 4.48 raises for prompt lookup without an end, whatever the model is
    shown = (f for f in findings(case) if f.code != "SB932")
    assert {(finding.code, finding.where) for finding in shown} == FINDINGS[name]
