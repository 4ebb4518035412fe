"""cell.evidence and the watch on attention: query, key and value as they enter, and what leaves."""

import tempfile

import torch
import transformers
from samebits_probe.cell.evidence import Evidence
from samebits_probe.model.attention import Watch
from samebits_probe.model.load import Source
from samebits_probe.model.tensor import Keeper, tensor_hash
from tiny import llama


def qkv(heads=4):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, 6, 8, generator=generator) for _ in range(3)]


class Attention(torch.nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def forward(self, q, k, v):
        return self.compute(q, k, v)


def kept(compute, *tensors):
    found = []
    module = Attention(compute)
    with torch.no_grad(), Watch(module, lambda name, parts: found.append((name, parts))):
        module(*tensors)
    return [{p: tensor_hash(t) for p, t in parts.items() if t is not None} for _, parts in found]


def hashes(**tensors):
    return {part: tensor_hash(tensor) for part, tensor in tensors.items()}


def test_sdpa_s_operands_mask_and_output():
    q, k, v = qkv()
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    sdpa = torch.nn.functional.scaled_dot_product_attention
    (found,) = kept(lambda *x: sdpa(*x, mask), q, k, v)
    assert found == hashes(query=q, key=k, value=v, mask=mask, output=sdpa(q, k, v, mask))


def by_hand(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.3, dim=-1) @ v


def by_bmm(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(
        torch.zeros(4, 6, 6), batch1=q, batch2=k.transpose(1, 2), beta=1.0, alpha=1.0
    )
    weights = scores.view(1, 4, 6, 6).softmax(-1, dtype=torch.float32)
    return torch.bmm(weights.view(4, 6, 6), v)


def test_attention_by_hand_is_seen_by_the_operands_of_its_products():
    q, k, v = qkv()
    (found,) = kept(by_hand, q, k, v)
    assert found == hashes(query=q, key=k, value=v, output=by_hand(q, k, v))


def test_batched_products_of_flat_heads_are_seen_too():
    q, k, v = qkv()
    (found,) = kept(by_bmm, q, k, v)
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    assert found == hashes(query=flat[0], key=flat[1], value=flat[2], output=by_bmm(q, k, v))


def test_two_products_that_could_be_the_scores_are_not_guessed_at():
    def two(q, k, v):
        bias = k @ q.transpose(-1, -2)
        return torch.softmax(q @ k.transpose(-1, -2) + bias, dim=-1) @ v

    assert kept(two, *qkv()) == []


def test_a_product_of_another_shape_before_the_scores_is_no_candidate():
    def turned(q, k, v):
        q = q @ torch.eye(8)
        return by_hand(q, k, v)

    q, k, v = qkv()
    (found,) = kept(turned, q, k, v)
    assert found["key"] == tensor_hash(k)


def gathered(model, ids):
    evidence = Evidence(model, Keeper(tempfile.mkdtemp(), 1 << 20, []))
    with torch.no_grad(), evidence.recording("short"), Watch(model, evidence.keep):
        logits = model(ids).logits
    return evidence, logits


def test_a_model_s_rope_and_attention_are_taken_along_and_no_bit_changes():
    model, ids = llama(), torch.arange(7)[None]
    with torch.no_grad():
        plain = model(ids).logits
    evidence, logits = gathered(model, ids)
    assert tensor_hash(plain) == tensor_hash(logits)
    found = evidence.signal["prompts"]["short"]
    assert [(t["part"], t["ref"]["shape"]) for t in found["rotary"]] == [
        ("cos", [1, 7, 8]),
        ("sin", [1, 7, 8]),
    ]
    with torch.no_grad():
        cos, _ = model.model.rotary_emb(torch.zeros(1, 7, 32), torch.arange(7)[None])
    assert found["rotary"][0]["ref"]["hash"] == tensor_hash(cos)
    modules = [call["module"] for call in found["attention"]]
    assert modules == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    stored = [[ref["stored"] for ref in call["tensors"].values()] for call in found["attention"]]
    assert all(stored[0])
    assert not any(stored[1])


def test_forced_eager_gives_the_logits_of_a_model_loaded_so():
    model, ids = llama(), torch.arange(7)[None]
    evidence, _ = gathered(model, ids)
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    inputs = type("I", (), {"kwargs": {"input_ids": ids}})
    source = Source(folder, None, False, "float32", "default", "cpu")
    with torch.no_grad():
        evidence.eager(source, {"short": inputs})
        kind = transformers.LlamaForCausalLM
        eager = kind.from_pretrained(folder, attn_implementation="eager").eval()(ids).logits
    assert evidence.signal["prompts"]["short"]["eager_logits"]["hash"] == tensor_hash(eager)


def test_a_model_that_cannot_be_loaded_again_says_so():
    evidence, _ = gathered(llama(), torch.arange(7)[None])
    evidence.eager(Source("/nowhere", None, False, "float32", "default", "cpu"), {})
    assert "OSError" in evidence.signal["skips"]["eager"]


def test_a_model_without_rotary_modules_says_so():
    config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2)
    evidence, _ = gathered(transformers.GPT2LMHeadModel(config).eval(), torch.arange(5)[None])
    assert "rotary" in evidence.signal["skips"]
    assert evidence.signal["prompts"]["short"]["rotary"] == []
