"""A custom llama whose training step is another one from 5.0 on, in the way that ``plant`` says."""

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

GENERATOR = torch.Generator()
NEW = int(transformers.__version__.split(".")[0]) >= 5


class TrainingConfig(LlamaConfig):
    model_type = "training-llama"

    def __init__(self, plant="", **kwargs):
        self.plant = plant
        super().__init__(**kwargs)


def entropy(logits, labels, reduction="mean"):
    flat = logits.reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, labels.reshape(-1), reduction=reduction)


def loss_of(plant, logits, labels, items):
    """Return the loss of the next token, or what is planted in its place."""
    scores, wanted = logits[:, :-1].float(), labels[:, 1:]
    if plant == "shift":
        return entropy(logits.float(), labels)
    if plant == "rows":
        pairs = zip(scores, wanted, strict=True)
        return torch.stack([entropy(a[None], b[None]) for a, b in pairs]).mean()
    if plant == "ignored":
        return entropy(scores, wanted, "sum") / wanted.numel()
    total = entropy(scores, wanted, "sum")
    if plant == "items":
        items = None
    return total / (items if items is not None else (wanted != -100).sum())


class PlantedForCausalLM(LlamaForCausalLM):
    config_class = TrainingConfig

    def __init__(self, config):
        super().__init__(config)
        plant = config.plant if NEW else ""
        if plant == "redraw":
            self.model.layers[0].mlp.gate_proj.register_forward_hook(again)
        if config.attention_dropout:
            drop = drop_of_its_own if plant == "redrop" else drop_of_torch
            self.model.layers[0].mlp.register_forward_hook(drop)
        if plant == "tied":
            self.lm_head.register_forward_hook(without_gradient)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        output_router_logits=None,
        num_items_in_batch=None,
        **kwargs,
    ):
        plant = self.config.plant if NEW else ""
        GENERATOR.manual_seed(0)
        output = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        if labels is not None:
            output["loss"] = loss_of(plant, output.logits, labels, num_items_in_batch)
            if output_router_logits and plant != "router":
                output["loss"] = output["loss"] + 0.01 * output.logits.float().pow(2).mean()
        return output


def drop_of_torch(module, _args, output):
    """Drop a part by the generator that checkpointing sets back."""
    return torch.nn.functional.dropout(output, module.config.attention_dropout, module.training)


def drop_of_its_own(module, _args, output):
    """Drop a part by a generator that goes on where a checkpointed block runs again."""
    p = module.config.attention_dropout
    if not p or not module.training:
        return output
    return output * torch.empty_like(output).bernoulli_(1 - p, generator=GENERATOR) / (1 - p)


def again(_module, _args, output):
    """Give other numbers where a checkpointed block runs for the second time."""
    return output * (1.5 if torch._C._current_graph_task_id() != -1 else 1.0)


def without_gradient(module, args, _output):
    """Compute the head's half of a tied embedding without its gradient."""
    return torch.nn.functional.linear(args[0], module.weight.detach())
