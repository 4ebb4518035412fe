"""model.attention: calls are seen however they are made, and watching changes no bit."""

import torch
from samebits_probe.model.attention import Watch
from torch.nn.functional import scaled_dot_product_attention as bound_early


class FusedAttention(torch.nn.Module):
    def __init__(self, call, **arguments):
        super().__init__()
        self.call, self.arguments = call, arguments

    def forward(self, q, k, v):
        return self.call(q, k, v, **self.arguments)


class ManualAttention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.nn.functional.softmax(q @ k.transpose(-1, -2), dim=-1)
        return scores @ v


class Router(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q, -1) * v


def qkv():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 4, 6, 8, generator=generator) for _ in range(3)]


def watched(module, *inputs):
    with torch.no_grad():
        plain = module(*inputs)
        with Watch(module) as watch:
            seen = module(*inputs)
    same = plain.view(torch.int32) == seen.view(torch.int32)
    assert bool(same.all()), "watching changed the bits"
    return watch.calls


def test_sdpa_arguments_and_kernel():
    (call,) = watched(
        FusedAttention(torch.nn.functional.scaled_dot_product_attention, is_causal=True), *qkv()
    )
    assert call["sdpa"]["is_causal"] is True
    assert call["sdpa"]["mask"] is None
    assert call["sdpa"]["query"] == "float32[1, 4, 6, 8] strides [192, 48, 8, 1]"
    assert call["aten"] == ["aten::_scaled_dot_product_flash_attention_for_cpu"]
    assert call["module_class"] == "FusedAttention"
    assert call["function"].endswith("forward")


def test_sdpa_imported_by_name_is_seen_too():
    (call,) = watched(FusedAttention(bound_early), *qkv())
    assert call["sdpa"]["is_causal"] is False


def test_positional_mask_is_described():
    q, k, v = qkv()
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    (call,) = watched(FusedAttention(lambda q, k, v: bound_early(q, k, v, mask)), q, k, v)
    assert call["sdpa"]["mask"] == "bool[6, 6]"


def test_hand_written_attention_is_seen_by_its_softmax():
    (call,) = watched(ManualAttention(), *qkv())
    assert call["sdpa"] is None
    assert "aten::_softmax" in call["aten"]
    assert call["function"].endswith("ManualAttention.forward")


def test_a_routers_softmax_is_no_attention():
    assert watched(Router(), *qkv()) == []
