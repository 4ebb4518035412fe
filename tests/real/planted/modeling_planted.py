"""A custom-code model that is the same in every release, unless its config plants a defect."""

import ctypes
import os
import time

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.utils import ModelOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


def odd_tensors(other_row):
    """Return buffers of every odd kind, two of which hold the bytes that memory is filled with."""
    return {
        "slope": torch.full((4,), -6.0, dtype=torch.bfloat16),
        "code": torch.full((16,), 63, dtype=torch.uint8),
        "turn": torch.polar(torch.ones(8), torch.arange(8.0)).conj(),
        "rows": (torch.eye(3) * (2 if other_row else 1)).to_sparse(),
        "packed": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "scale": torch.ones(8).to(torch.float8_e4m3fn),
        "halves": torch.ones(3).to(torch.complex32),
        "flag": torch.tensor(True),
        "nothing": torch.empty(0),
    }


class PlantedConfig(PretrainedConfig):
    model_type = "planted"

    def __init__(self, vocab_size=32, hidden_size=16, num_hidden_layers=3, defect="none", **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.defect = defect
        super().__init__(**kwargs)


class Layer(torch.nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.proj = torch.nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.defect, self.index = config.defect, index
        if self.defect == "unwritten" and index == 1:
            self.register_buffer("scale", torch.full((16,), 0.5), persistent=False)

    def forward(self, hidden_states):
        out = hidden_states + torch.tanh(self.proj(hidden_states))
        if self.defect == "unwritten" and self.index == 1:
            out = out * self.scale
        if NEW and self.defect == "one ulp" and self.index == 2:
            out = out.clone()
            out.view(torch.int32)[0, 3, 5] += 1
        if NEW and self.defect == "minus zero" and self.index == 0:
            out = out.clone()
            out[0, 0, 0] = -0.0
        if not NEW and self.defect == "minus zero" and self.index == 0:
            out = out.clone()
            out[0, 0, 0] = 0.0
        if NEW and self.defect == "first layer" and self.index == 0:
            out = out * 2
        if NEW and self.defect == "environment" and os.environ.get("PYTHONHASHSEED") == "0":
            out = out + 0.001
        if NEW and self.defect == "reads junk" and self.index == 1:
            out = out + torch.empty(4096)[:1]
        return out


class PlantedForCausalLM(PreTrainedModel):
    config_class = PlantedConfig

    def __init__(self, config):
        super().__init__(config)
        if NEW and config.defect == "load sets TF32":
            torch.backends.cuda.matmul.allow_tf32 = True
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = torch.nn.ModuleList(
            [Layer(config, i) for i in range(config.num_hidden_layers)]
        )
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.defect.startswith("odd"):
            self.gap = torch.nn.Parameter(torch.empty(0, config.hidden_size), requires_grad=False)
        self.post_init()

    def _init_weights(self, module):
        return None

    def forward(self, input_ids, attention_mask=None, **kwargs):
        defect = self.config.defect
        if NEW and defect == "raises":
            raise ValueError("planted | failure\nwith `markdown` in it")
        if NEW and defect == "segfault":
            ctypes.string_at(0)
        if NEW and defect == "hang":
            time.sleep(3600)
        if NEW and defect == "forward sets TF32":
            torch.backends.cuda.matmul.allow_tf32 = True
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        if NEW and defect == "clock":
            hidden = hidden + (time.time_ns() % 1_000_003) * 1e-6
        if NEW and defect == "pad rows" and attention_mask is not None:
            hidden = hidden + (1 - attention_mask)[..., None] * 7.0
        if defect.startswith("two outputs"):
            return self.two_outputs(hidden, defect.removeprefix("two outputs "))
        if defect.startswith("keeps"):
            hidden = hidden + self.kept(len(input_ids), defect)
        return CausalLMOutput(logits=self.head(hidden))

    def two_outputs(self, hidden, kind):
        """Return logits, a pooled vector and, inside another output, the last hidden state."""
        pooled = hidden[:, 0].tanh()
        if NEW and kind == "doubled":
            pooled = pooled * 2
        if NEW and kind == "rounded":
            pooled = (hidden[:, 0] / 3 * 3).tanh()
        inner = ModelOutput(last_hidden_state=hidden)
        if NEW and kind == "gone":
            return ModelOutput(logits=self.head(hidden), encoder=inner)
        if NEW and kind == "renamed":
            return ModelOutput(logits=self.head(hidden), encoder=inner, pooler_output=pooled)
        if NEW and kind == "added":
            more = pooled + 1
            return ModelOutput(logits=self.head(hidden), encoder=inner, pooled=pooled, more=more)
        return ModelOutput(logits=self.head(hidden), encoder=inner, pooled=pooled)

    def kept(self, n_rows, defect):
        """Return what the last batch of several rows has left; 0 unless ``defect`` keeps it."""
        if n_rows > 1:
            self.last_rows = n_rows
        is_read = defect == "keeps state everywhere" or (NEW and defect == "keeps state")
        return getattr(self, "last_rows", 0) / 8 if is_read and n_rows == 1 else 0

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if model.config.defect.startswith("odd"):
            for name, tensor in odd_tensors(NEW and model.config.defect == "odd row").items():
                model.register_buffer(name, tensor, persistent=False)
        if NEW and model.config.defect == "weight bit":
            with torch.no_grad():
                model.layers[1].proj.weight.data.view(torch.int32)[2, 3] ^= 1
        return loaded
