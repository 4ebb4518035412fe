"""A custom model whose rule for first weights is another one from 5.0 on, as ``plant`` says."""

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


class InitialConfig(PretrainedConfig):
    model_type = "initial"

    def __init__(self, plant="", vocab_size=99, width=32, initializer_range=0.05, **kwargs):
        self.plant, self.vocab_size, self.width = plant, vocab_size, width
        self.initializer_range = initializer_range
        super().__init__(**kwargs)


class InitialForCausalLM(PreTrainedModel):
    config_class = InitialConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.width)
        self.mix = torch.nn.Linear(config.width, config.width)
        self.scale = torch.nn.Parameter(torch.empty(config.width))
        self.head = torch.nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        plant = self.config.plant if NEW else ""
        std = self.config.initializer_range
        if (isinstance(module, torch.nn.Linear) and plant != "misses") or isinstance(
            module, torch.nn.Embedding
        ):
            torch.nn.init.normal_(module.weight, std=std)
        elif module is self and plant != "unwritten":
            torch.nn.init.ones_(module.scale)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.embed(input_ids)
        hidden = hidden + self.mix(hidden).tanh() * self.scale
        return CausalLMOutput(logits=self.head(hidden))
