"""A custom-code model whose config plants one defect of loading, or none."""

import json
import mmap
import random
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5
SHARED = {}
N = 12


class LeakyConfig(PretrainedConfig):
    model_type = "leaky"

    def __init__(self, vocab_size=32, hidden_size=8, defect="none", note="n", **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.defect = defect
        self.note = note
        super().__init__(**kwargs)


def healthy():
    return {
        "positions": torch.arange(N).float(),
        "nothing": torch.full((N,), float("nan")),
        "mask": torch.full((3, N), float("-inf")).triu(1),
        "largest": torch.full((N,), torch.iinfo(torch.int64).max),
        "allowed": torch.ones(N, dtype=torch.bool),
        "byte": torch.full((N,), 0x3F, dtype=torch.uint8),
        "small": torch.full((N,), 0.7461, dtype=torch.bfloat16),
    }


def halves():
    table = torch.empty(N)
    table[:7] = 1.0
    return {"table": table}


def integers():
    return {
        "long": torch.empty(N, dtype=torch.int64),
        "bools": torch.empty(N, dtype=torch.bool),
        "one_bool": torch.empty((), dtype=torch.bool),
        "one_byte": torch.empty((), dtype=torch.uint8),
        "two_bytes": torch.empty(5, dtype=torch.bfloat16),
    }


def other_memory():
    zeros = mmap.mmap(-1, 4 * N)
    return {
        "from_numpy": torch.from_numpy(np.empty(N, dtype=np.float32)),
        "large_from_numpy": torch.from_numpy(np.empty(100_003, dtype=np.float32)),
        "storage": torch.tensor([], device="cpu").set_(torch.UntypedStorage(4 * N, device="cpu")),
        "new_empty": torch.zeros(1, device="cpu").new_empty(N),
        "constructor": torch.FloatTensor(N),
        "written_numpy": torch.from_numpy(np.arange(N, dtype=np.float32)),
        "mapped": torch.frombuffer(zeros, dtype=torch.float32),
    }


def shared():
    if "table" not in SHARED:
        SHARED["table"] = torch.empty(N, device="cpu")
    return {"table": SHARED["table"]}


def drawn():
    return {"noise": torch.rand(N)}


def computed_tables():
    return {
        "order": torch.arange(N)[None],
        "parts": torch.arange(N) / 7,
    }


BUFFERS = {
    "none": healthy,
    "computes tables": computed_tables,
    "in the state_dict": computed_tables,
    "halves": halves,
    "integers": integers,
    "other memory": other_memory,
    "shared": shared,
    "computed": lambda: {"table": torch.empty(N) * 2 + 1},
    "drawn": drawn,
}


class Tables(torch.nn.Module):
    """Buffers that are made in the constructor and, as 5.x asks, once more after the load."""

    def __init__(self, defect):
        super().__init__()
        self.defect = defect
        if defect == "not refilled":
            self.register_buffer("table", torch.full((N,), 0.5), persistent=False)
        self.fill()

    def fill(self):
        for name, tensor in BUFFERS.get(self.defect, dict)().items():
            self.register_buffer(name, tensor, persistent=self.defect == "in the state_dict")


class LeakyForCausalLM(PreTrainedModel):
    config_class = LeakyConfig
    base_model_prefix = "leaky"
    if NEW:  # target: source, and the checkpoint has the target
        _tied_weights_keys = {"embed.weight": "head.weight"}

    def __init__(self, config):
        super().__init__(config)
        if config.defect == "tied":
            self._tied_weights_keys = {"head.weight": "embed.weight"} if NEW else ["head.weight"]
        if config.defect == "turned ties of a constructor":
            self._tied_weights_keys = {r"emb.*\.weight": "head.weight"}
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.proj = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tables = Tables(config.defect)
        if config.defect == "buffer of a parameter":
            self.register_buffer("copied", self.head.weight.detach() * 0 + 2, persistent=False)
        if config.defect == "reads a parameter" and self.head.weight.isfinite().all():
            self.register_buffer("finite", torch.ones(N), persistent=False)
        self.factor = 1 + random.random() if config.defect == "draws a factor" else 1
        if config.defect == "missing":
            self.scale = torch.nn.Parameter(torch.full((4,), 3.0))
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, Tables):
            module.fill()
        if self.config.defect == "drawn by init" and module is self.proj:
            module.weight.data.normal_()
        if self.config.defect == "a row zeroed by init" and module is self.proj:
            module.weight.data[0].zero_()
        if self.config.defect.startswith("turned ties") and module is self.head:
            module.weight.data.normal_()

    def tie_weights(self, *args, **kwargs):
        if self.config.defect.startswith("turned ties"):  # as declared, as releases before 5.1 do
            for target, source in self.get_expanded_tied_weights_keys().items():
                owner = self.get_submodule(target.rpartition(".")[0])
                owner.weight = self.get_parameter(source)
            return
        super().tie_weights(*args, **kwargs)
        if self.config.defect == "drawn by tie":
            self.proj.weight.data.normal_()

    def get_input_embeddings(self):
        return self.embed

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, attention_mask=None, **kwargs):
        factor = 1 + random.random() if self.config.defect == "draws in forward" else self.factor
        if self.config.defect == "rounds by place":
            factor += self.proj.weight.data_ptr() % 64 / 1024
        hidden = torch.tanh(self.proj(self.embed(input_ids)))
        return CausalLMOutput(logits=self.head(hidden) * factor)

    def save_pretrained(self, folder, **kwargs):
        defect = self.config.defect
        if defect == "refuses to be saved":
            msg = f"cannot write {folder}/x"
            raise OSError(msg)
        state = dict(self.state_dict())
        if defect == "forgets":
            del state["proj.bias"]
        if defect == "saves another bit":
            state["proj.bias"] = (state["proj.bias"].view(torch.int32) ^ 1).view(torch.float32)
        if defect == "saves another name":
            state["renamed"] = state.pop("proj.bias")
        if defect == "adds a field":
            self.config.added = 1
        super().save_pretrained(folder, state_dict=state, **kwargs)
        if defect == "forgets":
            path = Path(folder) / "config.json"
            written = json.loads(path.read_text())
            del written["note"]
            path.write_text(json.dumps(written))
        if defect == "rots":
            (Path(folder) / "config.json").write_text("{")

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        with torch.no_grad():
            if model.config.defect == "drawn again":
                model.proj.weight.normal_()
            if model.config.defect.endswith("by init"):  # as 5.0 does with remote code
                model._init_weights(model.proj)
            if model.config.defect == "overwritten":
                model.proj.bias.zero_()
        return loaded
