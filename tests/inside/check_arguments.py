"""questions.arguments: what each argument of forward changes, on real models and on planted ones."""

import torch
import transformers
from samebits_probe.questions.arguments.arguments import effects, given

MAJOR = int(transformers.__version__.split(".")[0])
SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "initializer_range": 0.5,
}
IDS = {"input_ids": torch.arange(5, 14)[None]}


class Plain(torch.nn.Module):
    """A model of one table; what it reads is given to its class."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(99, 8)
        self.config = transformers.LlamaConfig(
            num_hidden_layers=2, num_attention_heads=4, head_dim=2
        )

    def logits(self, input_ids):
        return self.table(input_ids) @ self.table.weight.T


class Reads(Plain):
    def forward(self, input_ids, head_mask=None, logits_to_keep=0):
        logits = self.logits(input_ids)[:, -logits_to_keep:]
        return {"logits": logits if head_mask is None else logits * head_mask.mean()}


class Swallows(Plain):
    def forward(self, input_ids, logits_to_keep=0, **kwargs):
        return {"logits": self.logits(input_ids)[:, -logits_to_keep:]}


class Rounds(Plain):
    def forward(self, input_ids, head_mask=None):
        logits = self.logits(input_ids)
        return {"logits": logits if head_mask is None else logits * (1 + 1e-6)}


def of(model, kwargs=IDS):
    model = model.eval()
    return effects(model, kwargs, given(model, kwargs), lambda: None)


def test_a_planted_argument_that_is_swallowed_has_no_effect_and_its_twin_has_one():
    reads, swallows, rounds = of(Reads()), of(Swallows()), of(Rounds())
    assert reads["head_mask"] == {"named": True, "effect": "other numbers"}
    assert swallows["head_mask"] == {"named": False, "effect": "none"}
    assert rounds["head_mask"] == {"named": True, "effect": "rounding"}
    shape = effects(Reads().eval(), IDS, {"logits_to_keep": 1}, lambda: None)["logits_to_keep"]
    assert shape == {
        "named": True,
        "effect": "another shape",
        "message": "(1, 9, 99) → (1, 1, 99)",
    }
    assert reads["position_ids"]["effect"] == "raises"
    assert "position_ids" in reads["position_ids"]["message"]


def test_arguments_of_bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, num_hidden_layers=2, max_position_embeddings=32)
    found = {k: v["effect"] for k, v in of(transformers.BertForMaskedLM(config)).items()}
    for name in ("attention_mask", "position_ids", "token_type_ids"):
        assert found[name] == "other numbers", name
    assert found["return_dict"] == "another form"
    assert found["output_hidden_states"] == "more fields"
    assert found["head_mask"] == ("other numbers" if MAJOR == 4 else "none")


def test_arguments_of_llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_hidden_layers=2)
    found = of(transformers.LlamaForCausalLM(config))
    assert found["position_ids"] == {"named": True, "effect": "other numbers"}
    assert "token_type_ids" not in found


def test_an_argument_of_the_prompt_is_not_given_again():
    kwargs = {**IDS, "attention_mask": torch.ones_like(IDS["input_ids"])}
    assert "attention_mask" not in of(Swallows(), kwargs)
