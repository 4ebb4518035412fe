"""A custom-code model whose forward takes, asks for, or fails over what its config plants."""

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

MASK = 3
NEW = int(transformers.__version__.split(".")[0]) >= 5


class FedConfig(PretrainedConfig):
    model_type = "fed"

    def __init__(self, hidden_size=16, plant="none", **kwargs):
        self.hidden_size = hidden_size
        self.plant = plant
        super().__init__(**kwargs)


class Trunk(torch.nn.Module):
    """The part that computes, which checks what it is given."""

    def __init__(self, config):
        super().__init__()
        self.plant = config.plant
        self.embed = torch.nn.Embedding(32, config.hidden_size)
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(config.hidden_size, config.hidden_size) for _ in range(2)]
        )

    def forward(self, input_ids=None, inputs_embeds=None, structure=None):
        if NEW and self.plant == "asks for a structure" and structure is None:
            raise ValueError("You have to specify structure")
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("You must specify exactly one of input_ids or inputs_embeds")
        hidden = self.embed(input_ids) if inputs_embeds is None else inputs_embeds
        if NEW and self.plant == "leaves masks out":
            hidden = torch.where((input_ids == MASK)[..., None], 0.0, hidden)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return hidden


class Fed(PreTrainedModel):
    config_class = FedConfig

    def __init__(self, config):
        super().__init__(config)
        self.trunk = Trunk(config)
        self.head = torch.nn.Linear(config.hidden_size, 32, bias=False)
        self.post_init()

    def _init_weights(self, module):
        return None


class FedForCausalLM(Fed):
    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, structure=None):
        plant = self.config.plant
        if NEW and plant == "loses its ids":
            input_ids = None
        given = {"inputs_embeds": inputs_embeds, "structure": structure}
        if NEW and plant == "an unknown keyword":
            given["pixel_values"] = None
        return CausalLMOutput(logits=self.head(self.trunk(input_ids, **given)))


class FedForProteins(Fed):
    def forward(self, protein_embeddings, special_tokens_mask=None, return_dict=None):
        return CausalLMOutput(logits=self.head(self.trunk(inputs_embeds=protein_embeddings)))


class FedNew(Fed):
    """Takes a mask of its padding in one release, and in another none."""

    if NEW:

        def forward(self, input_ids=None):
            return CausalLMOutput(logits=self.head(self.trunk(input_ids)))

    else:

        def forward(self, input_ids=None, attention_mask=None):
            return CausalLMOutput(logits=self.head(self.trunk(input_ids)))
