"""A custom llama whose loss or backward is another one from 5.0 on, in the way that ``plant`` says."""

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

NEW = int(transformers.__version__.split(".")[0]) >= 5


class BackwardConfig(LlamaConfig):
    model_type = "backward-llama"

    def __init__(self, plant="", **kwargs):
        self.plant = plant
        super().__init__(**kwargs)


class Squared(torch.autograd.Function):
    """A square, with a backward of its own."""

    @staticmethod
    def forward(ctx, states, slope):
        ctx.save_for_backward(states)
        ctx.slope = slope
        return states * states

    @staticmethod
    def backward(ctx, gradient):
        (states,) = ctx.saved_tensors
        return gradient * ctx.slope * states, None


class Square(torch.nn.Module):
    """An activation."""

    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, states):
        return Squared.apply(states, self.slope)


def loss_of(plant, logits, labels):
    """Return the mean loss of the next token, or what is planted in its place."""
    wanted = labels[:, 1:]
    if plant == "unmasked":
        wanted = wanted.clamp(min=0)
    scores = logits[:, :-1].float().reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(scores, wanted.reshape(-1))


class BackwardForCausalLM(LlamaForCausalLM):
    config_class = BackwardConfig
    accepts_loss_kwargs = False

    def __init__(self, config):
        super().__init__(config)
        plant = config.plant if NEW else ""
        self.model.layers[1].mlp.act_fn = Square(3.0 if plant == "slope" else 2.0)
        if plant == "tied":
            self.lm_head.register_forward_hook(without_gradient)

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, labels=None, **kwargs
    ):
        output = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            **kwargs,
        )
        if labels is not None:
            plant = self.config.plant if NEW else ""
            output["loss"] = loss_of(plant, output.logits, labels)
        return output


def without_gradient(module, args, _output):
    """Compute the head's half of a tied embedding without its gradient."""
    return torch.nn.functional.linear(args[0], module.weight.detach())
