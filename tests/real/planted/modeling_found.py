"""A custom model that is told where to look, or finds objects, or is fed embeddings: another one from 5.0 on, as ``plant`` says."""

from dataclasses import dataclass

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

NEW = int(transformers.__version__.split(".")[0]) >= 5


class FoundConfig(PretrainedConfig):
    model_type = "found"

    def __init__(self, plant="", width=24, **kwargs):
        self.plant, self.width, self.image_size = plant, width, 16
        super().__init__(**kwargs)


class FoundForObjectDetection(PreTrainedModel):
    config_class = FoundConfig
    base_model_prefix = "found"
    main_input_name = "pixel_values"

    def __init__(self, config):
        super().__init__(config)
        self.mix = torch.nn.Linear(48, config.width)
        self.boxes = torch.nn.Linear(config.width, 4)
        self.classes = torch.nn.Linear(config.width, config.num_labels)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(
        self,
        pixel_values,
        input_boxes=None,
        input_points=None,
        input_labels=None,
        input_masks=None,
        labels: list[dict] | None = None,
    ):
        plant = self.config.plant if NEW else ""
        states = self.mix(pixel_values.reshape(len(pixel_values), 16, 48)).tanh()
        if input_boxes is not None:
            shift = 0.1 if plant == "boxes" else 0.0
            states = states + (input_boxes.sum((1, 2)) + shift)[:, None, None]
        boxes, logits = self.boxes(states).sigmoid(), self.classes(states)
        loss, parts = None, None
        if labels is not None:
            n = sum(len(of["boxes"]) for of in labels) if plant != "loss" else len(labels)
            near = [
                (b[: len(of["boxes"])] - of["boxes"]).abs().sum()
                for b, of in zip(boxes, labels, strict=True)
            ]
            named = [
                c[: len(of["class_labels"])].logsumexp(-1).sum()
                for c, of in zip(logits, labels, strict=True)
            ]
            parts = {"loss_bbox": sum(near) / n, "loss_ce": sum(named) / 4}
            loss = sum(parts.values())
        return FoundOutput(loss=loss, loss_dict=parts, logits=logits, pred_boxes=boxes)


@dataclass
class FoundOutput(ModelOutput):
    loss: torch.Tensor | None = None
    loss_dict: dict | None = None
    logits: torch.Tensor | None = None
    pred_boxes: torch.Tensor | None = None


class EmbeddedConfig(LlamaConfig):
    model_type = "embedded-llama"

    def __init__(self, plant="", **kwargs):
        self.plant = plant
        super().__init__(**kwargs)


class EmbeddedForCausalLM(LlamaForCausalLM):
    config_class = EmbeddedConfig

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        **kwargs,
    ):
        if NEW and self.config.plant == "embeddings" and inputs_embeds is not None:
            inputs_embeds = inputs_embeds * 1.01
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
