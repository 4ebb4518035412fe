"""usage.ways: each way of generate() is observed step by step, and a planted change is seen where it is."""

import importlib
import tempfile
from pathlib import Path

import torch
import transformers
from samebits_probe.usage import ways
from samebits_probe.usage.subject import NoMeaning, Subject

for name in ("transformers.modeling_utils", "transformers.generation"):
    importlib.import_module(name)
torch.set_num_threads(1)
NAMES = {"greedy", "defaults", "sampling", "beams", "penalties", "prompt lookup", "assistant"} | {
    "end token",
    "minimum",
    "beams that end",
}


def model(architecture="llama", **changed):
    torch.manual_seed(0)
    config = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": None}
    config |= {"num_attention_heads": 4, "intermediate_size": 48, "num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(architecture, **(config | changed))
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
    return made


def ask(made):
    with torch.no_grad():
        return ways.generation(Subject(made, "causal-lm", Path(tempfile.mkdtemp())))


def test_every_way_gives_tokens():
    answer = ask(model())
    assert set(answer["ways"]) == NAMES
    refused = {name: way["refused"] for name, way in answer["ways"].items() if "refused" in way}
    assert refused == {}, refused
    assert all(len(way["tokens"][0]) <= ways.STEPS for way in answer["ways"].values())
    assert len(answer["ways"]["beams"]["tokens"]) == 2
    assert answer["ways"]["sampling"]["drew"]
    assert not answer["ways"]["greedy"]["drew"]


def test_the_same_model_answers_the_same():
    assert ask(model()) == ask(model())


def test_drafts_do_not_change_the_tokens():
    answer = ask(model())["ways"]
    for way in ("prompt lookup", "assistant"):
        assert answer[way]["tokens"] == answer["greedy"]["tokens"], way


def test_an_end_token_ends_and_a_minimum_goes_on():
    answer = ask(model())["ways"]
    assert answer["end token"]["tokens"][0] == answer["greedy"]["tokens"][0][:2]
    assert len(answer["minimum"]["tokens"][0]) >= ways.STEPS - 1


def test_steps_have_what_is_fed_what_comes_back_and_what_is_chosen_from():
    for name in ("greedy", "sampling", "beams", "penalties"):
        steps = ask(model())["ways"][name]["steps"]
        assert len(steps) == ways.STEPS
        assert all(step.keys() == {"fed", "logits", "scores", "top"} for step in steps), (
            name,
            steps,
        )


def test_the_config_has_what_the_checkpoint_says():
    made = model()
    made.generation_config.temperature = 0.25
    made.generation_config.do_sample = True
    answer = ask(made)
    assert answer["config"]["temperature"] == 0.25
    assert answer["ways"]["defaults"]["drew"]


def test_a_refusal_is_an_answer():
    made = model()
    plain = made.generate

    def generate(*args, **kwargs):
        if kwargs.get("num_beams") == 3:
            msg = "no beams here"
            raise ValueError(msg)
        return plain(*args, **kwargs)

    made.generate = generate
    answer = ask(made)["ways"]
    assert answer["beams"]["refused"] == "ValueError: no beams here"
    assert answer["beams"]["tokens"] == []
    assert "refused" not in answer["penalties"]


def test_another_penalty_is_seen_in_the_scores_and_not_in_the_logits():
    clean = ask(model())["ways"]["penalties"]
    processor = transformers.generation.logits_process.RepetitionPenaltyLogitsProcessor
    plain = processor.__call__

    def call(self, input_ids, scores):  # generate() reads the signature
        return plain(self, input_ids, scores) + 0.5 * (scores > 0)

    processor.__call__ = call
    try:
        planted = ask(model())["ways"]["penalties"]
    finally:
        processor.__call__ = plain
    first, planted_first = clean["steps"][0], planted["steps"][0]
    assert first["logits"] == planted_first["logits"]
    assert first["scores"] != planted_first["scores"]


def test_what_does_not_generate_has_no_meaning():
    made = model()
    made.can_generate = lambda: False
    try:
        ask(made)
    except NoMeaning as reason:
        assert "does not generate" in str(reason)
    else:
        raise AssertionError


def test_nothing_stays_on_the_model():
    made = model()
    ask(made)
    assert not made._forward_hooks
    assert not made._forward_pre_hooks
