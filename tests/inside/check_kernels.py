"""SDPA and eager attention of one release: a planted scale that SDPA lacks is caught, and a clean twin is not accused."""

import copy

import torch
import transformers
from samebits_probe.questions.relations import kernels
from samebits_probe.questions.relations.relations import observe
from tiny import model

torch.set_num_threads(1)
IDS = torch.tensor([[5, 17, 44, 23, 9, 61, 33, 12, 7]])
PROMPT = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
PADDED = {"input_ids": IDS, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]])}


class Scaled(transformers.LlamaForCausalLM):
    """Eager attention of it scales the queries, and its SDPA does not, as GPT-2's in 4.57."""

    def forward(self, input_ids=None, **kwargs):
        q = self.model.layers[1].self_attn.q_proj
        factor = 3.0 if self.config._attn_implementation == "eager" else 1.0
        hook = q.register_forward_hook(lambda _m, _a, output: output * factor)
        try:
            return super().forward(input_ids=input_ids, **kwargs)
        finally:
            hook.remove()


def with_eager(made):
    def load():
        twin = type(made)._from_config(copy.deepcopy(made.config), attn_implementation="eager")
        twin.load_state_dict(made.state_dict())
        return twin.eval()

    return load


def answer(made_class=None, prompts=(("short", PROMPT),), attention="sdpa"):
    made = model()
    kind = made_class or type(made)
    twin = kind._from_config(copy.deepcopy(made.config), attn_implementation=attention)
    twin.load_state_dict(made.state_dict())
    twin.eval()
    return kernels.observe(twin, prompts, with_eager(twin))


def test_a_clean_model_holds_it_or_rounds():
    (relation,) = answer().relations
    assert relation["relation"] == kernels.NAME
    assert relation["case"] == "40 tokens"
    assert relation["tried"] == 1
    assert relation["holds"] or relation["promoted"]["max_abs"] < 1e-12, relation


def test_what_eager_attention_alone_does_is_no_rounding():
    (relation,) = answer(Scaled).relations
    assert not relation["holds"]
    assert relation["promoted"]["max_abs"] > 1e-3, relation
    (clean,) = answer().relations
    sdpa, eager = (torch.tensor(values) for values in relation["values"])
    assert torch.allclose(sdpa, torch.tensor(clean["values"][0]))
    assert not torch.allclose(sdpa, eager)


def test_outputs_that_are_no_numbers_are_no_other_function():
    class Broken(transformers.LlamaForCausalLM):
        def forward(self, input_ids=None, **kwargs):
            output = super().forward(input_ids=input_ids, **kwargs)
            if self.config._attn_implementation == "eager":
                output.logits = output.logits * float("nan")
            return output

    of = answer(Broken)
    assert not of.relations
    assert all("not all outputs are numbers" in skip["reason"] for skip in of.inapplicable)


def test_a_padded_prompt_is_left_out_for_one_without_padding():
    (relation,) = answer(prompts=[("padded", PADDED)]).relations
    assert relation["case"] == "40 tokens"
    assert relation["tried"] == 1


def test_it_is_not_tried_where_attention_is_eager_or_eager_attention_cannot_be_loaded():
    (skip,) = answer(attention="eager").inapplicable
    assert skip["reason"] == "its attention is not SDPA"

    def refuses():
        raise ValueError("no eager attention")

    (skip,) = kernels.observe(model(), [("short", PROMPT)], refuses).inapplicable
    assert "no eager attention" in skip["reason"]
    assert "raised" not in skip


def test_a_class_that_calls_sdpa_with_eager_attention_too_is_not_compared_with_itself():
    made = model()
    (skip,) = kernels.observe(made, [("short", PROMPT)], lambda: made).inapplicable
    assert "calls SDPA with eager attention, too" in skip["reason"]


def test_relations_try_it_where_a_model_can_be_loaded_once_more():
    made = model()
    of = observe(
        made, "causal-lm", made.config, {"samples": 0}, [("short", PROMPT)], with_eager(made)
    )
    assert kernels.NAME in [relation["relation"] for relation in of["relations"]]
    without = observe(made, "causal-lm", made.config, {"samples": 0}, [("short", PROMPT)])
    assert kernels.NAME not in str(without)
