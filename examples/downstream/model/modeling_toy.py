"""A toy model with code of its own, and the defect of many real ones: frequencies in a buffer."""

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class ToyConfig(PretrainedConfig):
    model_type = "toy"

    def __init__(self, vocab_size=64, hidden_size=32, num_hidden_layers=2, **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        super().__init__(**kwargs)


class ToyRotary(nn.Module):
    """Angles of positions."""

    def __init__(self, config):
        super().__init__()
        steps = torch.arange(0, config.hidden_size, 2, dtype=torch.float32)
        inv_freq = 1.0 / (10000.0 ** (steps / config.hidden_size))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, positions):
        return positions[:, None].to(torch.float32) * self.inv_freq


class ToyLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(self, hidden, angles, mask):
        q, k = rotated(self.q(hidden), angles), rotated(self.k(hidden), angles)
        out = nn.functional.scaled_dot_product_attention(q, k, self.v(hidden), attn_mask=mask)
        return hidden + self.o(out)


def rotated(x, angles):
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class ToyForCausalLM(PreTrainedModel):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary = ToyRotary(config)
        self.layers = nn.ModuleList([ToyLayer(config) for _ in range(config.num_hidden_layers)])
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        return None

    def forward(self, input_ids, attention_mask=None, **kwargs):
        length = input_ids.shape[1]
        angles = self.rotary(torch.arange(length, device=input_ids.device))
        mask = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, angles, mask)
        return CausalLMOutput(logits=self.head(hidden))
