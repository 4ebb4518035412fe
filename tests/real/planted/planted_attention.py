"""An attention by hand with a switch for each defect that a trace is to find."""

import torch

DEFECT = ""
WINDOW = 4


def seen(length):
    places = torch.arange(length)
    apart = places[:, None] - places[None, :]
    first = 0 if DEFECT != "mask" else -1
    last = {"window-1": WINDOW - 1, "window": WINDOW}.get(DEFECT, length)
    return (apart >= first) & (apart < last)


def scores_of(query, key, scale):
    return torch.matmul(query, key.transpose(2, 3)) * scale


def capped(scores):
    return torch.tanh(scores / 2.0) * 2.0


def spread(value):
    """Give the first two heads to all four, by turns or side by side."""
    if DEFECT == "by-turns":
        return value[:, :2].repeat(1, 2, 1, 1)
    if DEFECT == "side-by-side":
        return value[:, :2].repeat_interleave(2, dim=1)
    return value


def weights_of(scores, dtype):
    # torch's own softmax computes in float32 whatever it is given
    if DEFECT.startswith("softmax"):
        scores = scores.float() if DEFECT == "softmax-float32" else scores
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (powers / powers.sum(-1, keepdim=True)).to(dtype)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(dtype)


def summed(weights, value):
    if DEFECT != "sum":
        return torch.matmul(weights, value)
    half = weights.shape[-1] // 2
    tail = torch.matmul(weights[..., half:], value[:, :, half:])
    return torch.matmul(weights[..., :half], value[:, :, :half]) + tail


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **more):
    if DEFECT == "kernel":
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling
        )
        return out.transpose(1, 2).contiguous(), None
    scores = scores_of(query, key, scaling * (1.0001 if DEFECT == "scale" else 1.0))
    if DEFECT == "cap":
        scores = capped(scores)
    mask = seen(query.shape[2])
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    out = summed(weights_of(scores, query.dtype), spread(value))
    return out.transpose(1, 2).contiguous(), None
