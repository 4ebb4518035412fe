"""A small causal model with rope, norms, a soft-cap and routed experts; 5.x plants a defect.

Every defect is one that two releases of transformers really had, or its smallest relative.
"""

import torch
import transformers
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5
HEADS, SIZE = 4, 16


class LadderConfig(PretrainedConfig):
    model_type = "ladder"

    def __init__(self, vocab_size=64, hidden_size=64, num_hidden_layers=2, defect="none", **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.defect = defect
        super().__init__(**kwargs)


class Rope(torch.nn.Module):
    def __init__(self):
        super().__init__()
        # from the checkpoint: what a constructor computes, 5.x throws away
        self.register_buffer("inv_freq", torch.ones(SIZE // 2))

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device).float()
        angles = torch.outer(places, self.inv_freq.float())
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def turned(x):
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


class Layer(torch.nn.Module):
    def __init__(self, config, planted):
        super().__init__()
        n = config.hidden_size
        self.planted, self.defect = planted, config.defect
        self.norm = torch.nn.Parameter(torch.ones(n))
        self.qkv = torch.nn.Linear(n, 3 * n, bias=False)
        self.out = torch.nn.Linear(n, n, bias=False)
        self.router = torch.nn.Linear(n, 4, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(n, n, bias=False) for _ in range(4))

    def normed(self, x):
        wide = x.to(torch.float32)
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.norm * scaled.to(x.dtype)

    def attention(self, x, cos, sin):
        heads = [t.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]
        query, key = (t * cos + turned(t) * sin for t in heads[:2])
        scale = SIZE**-0.5 * (1.0001 if self.planted == "scale" else 1.0)
        scores = query @ key.transpose(-1, -2) * scale
        if self.planted != "soft-cap":
            scores = torch.tanh(scores / 30.0) * 30.0
        shift = 1 if self.planted != "mask" else 2
        ones = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device)
        scores = scores.masked_fill(ones.triu(shift), torch.finfo(scores.dtype).min)
        if self.planted == "softmax":
            weights = torch.softmax(scores.bfloat16(), -1).to(x.dtype)
        else:
            weights = torch.softmax(scores, -1, dtype=torch.float32).to(x.dtype)
        return self.out((weights @ heads[2]).transpose(1, 2).flatten(2))

    def routed(self, x):
        if self.defect not in ("router", "refuses router"):
            return self.experts[0](x)
        scores = summed(x, self.router.weight) if self.planted == "router" else self.router(x)
        chosen = torch.topk(scores, 1, dim=-1).indices
        every = torch.stack([expert(x) for expert in self.experts], -2)
        return every.gather(-2, chosen[..., None].expand(*chosen.shape, x.shape[-1])).squeeze(-2)

    def forward(self, hidden_states, cos, sin):
        x = hidden_states + self.attention(self.normed(hidden_states), cos, sin)
        within = self.normed(x)
        if self.defect.startswith("refuses") and within.element_size() == 8:
            raise NotImplementedError("this kernel has no float64")
        x = x + torch.tanh(self.routed(within))
        if self.defect == "alignment":
            # as a kernel does that takes another path behind a 64-byte boundary
            off = self.out.weight.data_ptr() % 64
            return x + (summed(within, self.out.weight) if off else self.out(within))
        if self.planted in ("reordered", "refuses reordered"):
            return x + summed(within, self.out.weight)
        if self.defect in ("reordered", "refuses reordered", "refuses scale"):
            more = 1.0001 if self.planted == "refuses scale" else 1.0
            return x + self.out(within) * more
        return x


def summed(x, weight):
    """Multiply as torch.nn.Linear does, and sum in another order."""
    half = weight.shape[1] // 2
    late = torch.nn.functional.linear(x[..., half:], weight[:, half:])
    return late + torch.nn.functional.linear(x[..., :half], weight[:, :half])


class LadderForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = LadderConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        planted = config.defect if NEW else "none"
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.rope = Rope()
        self.layers = torch.nn.ModuleList(
            Layer(config, planted) for _ in range(config.num_hidden_layers)
        )
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        return None

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}

    def forward(self, input_ids, attention_mask=None, **kwargs):
        hidden = self.embed(input_ids)
        cos, sin = self.rope(hidden)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin)
        return CausalLMOutput(logits=self.head(hidden))

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        weight = model.layers[1].out.weight
        frequencies = model.rope.inv_freq
        with torch.no_grad():
            if NEW and model.config.defect == "one ulp":
                frequencies[3] = torch.nextafter(frequencies[3], torch.tensor(9.0))
            if NEW and model.config.defect == "weight":
                weight[2, 3] = torch.nextafter(weight[2, 3], torch.tensor(9.0))
            if NEW and model.config.defect == "policy":
                model.layers[1].norm.data = model.layers[1].norm.data.bfloat16()
        return loaded


class CopiedForCausalLM(LadderForCausalLM):
    """A class whose parameters 4.48 copies, as it does those of GPT-J; 5.x takes the file's memory."""

    _supports_param_buffer_assignment = False
