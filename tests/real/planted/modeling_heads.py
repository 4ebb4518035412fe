"""Custom BERT heads by task; with ``plant`` the last layer of a head gives other numbers from 5.0 on."""

import torch
import transformers
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

NEW = int(transformers.__version__.split(".")[0]) >= 5


class HeadsConfig(BertConfig):
    model_type = "heads-bert"

    def __init__(self, plant=False, **kwargs):
        self.plant = plant
        super().__init__(**kwargs)


class Planted:
    """Scales what the last linear layer gives, in the planted model and from 5.0 on."""

    config_class = HeadsConfig

    def __init__(self, config):
        super().__init__(config)
        if config.plant and NEW:
            last = [m for m in self.modules() if isinstance(m, torch.nn.Linear)][-1]
            last.register_forward_hook(lambda _module, _args, output: output * 1.5)


class PlantedForSequenceClassification(Planted, BertForSequenceClassification):
    pass


class PlantedForTokenClassification(Planted, BertForTokenClassification):
    pass


class PlantedForQuestionAnswering(Planted, BertForQuestionAnswering):
    pass


class PlantedForMultipleChoice(Planted, BertForMultipleChoice):
    pass


class PlantedModel(Planted, BertModel):
    pass
