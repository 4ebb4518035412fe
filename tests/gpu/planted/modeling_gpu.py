"""A model whose config names one defect; each of them shows on a GPU, and some of them only there.

``NEW`` is true under transformers 5: the reference, 4.x, has no defect.
"""

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


class GpuConfig(PretrainedConfig):
    model_type = "gpu"

    def __init__(
        self, vocab_size=64, hidden_size=256, num_hidden_layers=2, defect="none", **kwargs
    ):
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.defect = num_hidden_layers, defect


class Layer(torch.nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.proj = torch.nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.defect, self.index = config.defect if NEW else "none", index

    def forward(self, hidden_states):
        out = hidden_states + torch.tanh(self.product(hidden_states))
        if self.defect == "atomics" and self.index == 1:
            out = out + summed_in_any_order(out)
        if self.defect == "reads beyond" and self.index == 1:
            out = out + out[:, out.shape[1] + torch.zeros(1, dtype=torch.long, device=out.device)]
        if self.defect == "doubled on a GPU" and self.index == 1 and out.is_cuda:
            out = out * 2
        return out

    def product(self, hidden_states):
        if self.defect != "halves":
            return self.proj(hidden_states)
        left, right = hidden_states.chunk(2, dim=-1)
        first, second = self.proj.weight.chunk(2, dim=-1)
        return left @ first.T + right @ second.T


def summed_in_any_order(hidden_states):
    """Return one sum of many terms; on a GPU, index_add_ adds them in no fixed order (its docs)."""
    terms = torch.linspace(-1.0, 1.0, 1 << 18, device=hidden_states.device)
    terms = torch.sin(terms * 1e4).to(hidden_states.dtype)
    places = torch.zeros(len(terms), dtype=torch.long, device=hidden_states.device)
    return torch.zeros_like(terms[:1]).index_add_(0, places, terms)


class GpuForCausalLM(PreTrainedModel):
    config_class = GpuConfig

    def __init__(self, config):
        super().__init__(config)
        if NEW and config.defect == "sets TF32":
            torch.backends.cuda.matmul.allow_tf32 = True
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = torch.nn.ModuleList(
            [Layer(config, i) for i in range(config.num_hidden_layers)]
        )
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        return None

    def forward(self, input_ids, attention_mask=None, **kwargs):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return CausalLMOutput(logits=self.head(hidden))
