"""A custom-code encoder of three float inputs, with the defect that its config names.

``another power`` is another function from 5.0 on; ``mixed rows`` mixes the rows of a batch anywhere.
"""

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


class GenomeConfig(PretrainedConfig):
    model_type = "genome"

    def __init__(self, hidden_size=16, n_layers=2, plant="none", **kwargs):
        self.hidden_size = hidden_size
        self.n_layers = n_layers
        self.plant = plant
        super().__init__(**kwargs)


class GenomeModel(PreTrainedModel):
    config_class = GenomeConfig
    main_input_name = "protein_embeddings"

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.proteins = torch.nn.Linear(width, width)
        self.strands = torch.nn.Linear(4, width)
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(width, width) for _ in range(config.n_layers)]
        )
        self.post_init()

    def _init_weights(self, module):
        return None

    def forward(
        self,
        protein_embeddings: torch.FloatTensor,
        strand_features: torch.FloatTensor,
        coverage: torch.FloatTensor,
        attention_mask: torch.Tensor | None = None,
        scaled: bool = False,
    ):
        weight = coverage
        if NEW and self.config.plant == "another power":
            weight = coverage * coverage.abs().sqrt()
        hidden = self.proteins(protein_embeddings) + self.strands(strand_features)
        hidden = hidden * weight.unsqueeze(-1)
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        if self.config.plant == "mixed rows":
            hidden = hidden + 0.01 * hidden.mean(0, keepdim=True)
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(-1).to(hidden.dtype)
        return BaseModelOutput(last_hidden_state=hidden * 2 if scaled else hidden)
