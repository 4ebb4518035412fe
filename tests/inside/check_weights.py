"""cell.weights: every layout that carries the same numbers is traced, nothing else is."""

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from samebits_probe.cell import weights
from samebits_probe.cell.weights import Tracer
from samebits_probe.model import heap
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.fresh import Fresh
from samebits_probe.model.tensor import Keeper, OnMetaDevice, tensor_hash


def checkpoint(**tensors):
    folder = Path(tempfile.mkdtemp())
    save_file(
        {k.replace("__", "."): v.contiguous() for k, v in tensors.items()},
        folder / "model.safetensors",
    )
    return Checkpoint.find(str(folder), None)


def test_what_the_index_leaves_out_of_its_shards_is_listed():
    for named, unlisted in ((("a",), ("b",)), (("a", "b"), ())):
        folder = Path(tempfile.mkdtemp())
        save_file({"a": torch.ones(2), "b": torch.ones(3)}, folder / "shard.safetensors")
        index = {"weight_map": dict.fromkeys(named, "shard.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
        found = Checkpoint.find(str(folder), None)
        assert (set(found), found.unlisted) == ({"a", "b"}, unlisted)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def traced(tensor, name="x", **tensors):
    return Tracer(checkpoint(**tensors)).trace(name, tensor)


def test_as_it_is_and_renamed():
    a = numbers(3, 4)
    assert traced(a, "a", a=a) == ("", (("a", "", False),))
    assert traced(a, "renamed", a=a) == ("", (("a", "", False),))


def test_cast_to_the_dtype_in_memory():
    a = numbers(3, 4)
    assert traced(a.to(torch.bfloat16), "a", a=a).layout == ""


def test_transposed_and_reshaped():
    a = numbers(3, 4)
    assert traced(a.t().contiguous(), a=a) == ("transpose", (("a", "", True),))
    assert traced(a.reshape(3, 1, 4), a=a) == ("reshape", (("a", "", False),))


def test_concatenated_along_either_dimension():
    q, k = numbers(3, 4), numbers(2, 4, seed=1)
    assert traced(torch.cat([q, k]), q=q, k=k) == (
        "concat dim 0",
        (("q", "", False), ("k", "", False)),
    )
    q, k = numbers(3, 4), numbers(3, 2, seed=1)
    assert traced(torch.cat([q, k], 1), q=q, k=k).layout == "concat dim 1"


def test_split_says_which_part():
    qkv = numbers(9, 4)
    assert traced(qkv[3:6], qkv=qkv) == ("split dim 0", (("qkv", "[3:6]", False),))
    assert traced(qkv[:, 1:3].contiguous(), qkv=qkv) == (
        "split dim 1",
        (("qkv", "[:, 1:3]", False),),
    )


def test_nothing_is_no_part_of_something():
    weight, bias = numbers(3, 4), torch.zeros(5)
    for shape in ((0,), (0, 4), (3, 0), (0, 2, 2)):
        assert traced(torch.empty(shape), weight=weight, bias=bias) is None
        assert traced(torch.empty(shape), "x", x=torch.empty(shape), bias=bias).layout == ""


def test_what_a_cast_leaves_of_other_numbers_is_no_trace_of_them():
    """Any norm is True everywhere, and any small bias is zeros."""
    norm, bias = torch.full((4,), 0.5), torch.full((6,), 0.1)
    for made in (
        torch.ones(4, dtype=torch.bool),
        torch.zeros(4, dtype=torch.int8),
        torch.zeros(6, dtype=torch.int64),
        torch.ones(2, dtype=torch.bool),
        torch.ones(10, dtype=torch.bool),
    ):
        assert traced(made, "mask", norm=norm, bias=bias) is None
    flags = torch.tensor([True, False, True])
    assert traced(flags, "renamed", flags=flags, norm=norm).pieces[0][0] == "flags"
    assert traced(flags, "own", own=torch.tensor([1.5, 0.0, 2.0])).pieces[0][0] == "own"
    counts = torch.tensor([3, 4, 5])
    assert traced(counts.to(torch.int32), "renamed", counts=counts).pieces[0][0] == "counts"
    turns = torch.polar(torch.ones(3), torch.arange(3.0))
    assert traced(turns.conj(), "x", turns=turns.conj().resolve_conj()).layout == ""


def test_stacked_experts_and_their_fused_halves():
    gates = {f"e__{i}__gate": numbers(5, 4, seed=i) for i in range(3)}
    ups = {f"e__{i}__up": numbers(5, 4, seed=10 + i) for i in range(3)}
    downs = {f"e__{i}__down": numbers(4, 5, seed=20 + i) for i in range(3)}
    everything = {**gates, **ups, **downs}
    stack = traced(torch.stack(list(downs.values())), **everything)
    assert stack.layout == "stack"
    assert [piece[0] for piece in stack.pieces] == [f"e.{i}.down" for i in range(3)]
    fused = torch.stack([torch.cat([g, u]) for g, u in zip(gates.values(), ups.values())])
    assert traced(fused, **everything).layout == "stack of concat dim 0"
    turned = fused.transpose(1, 2).contiguous()
    assert traced(turned, **everything).layout == "stack of transpose of concat dim 0"


def test_one_changed_bit_anywhere_is_not_traced():
    a, b = numbers(3, 4), numbers(2, 4, seed=1)
    for tensor in (a, torch.cat([a, b]), a.t().contiguous(), torch.stack([a, a])):
        wrong = tensor.clone()
        wrong.view(-1).view(torch.int32)[5] ^= 1
        assert traced(wrong, a=a, b=b) is None


def test_minus_zero_for_zero_is_not_the_same_bits():
    assert traced(torch.tensor([-0.0, 1.0]), a=torch.tensor([0.0, 1.0])) is None


def test_equal_tensors_keep_their_own_names():
    zeros = {f"layers__{i}__bias": torch.zeros(4) for i in range(3)}
    tracer = Tracer(checkpoint(**zeros))
    for i in (2, 0, 1):
        assert tracer.trace(f"layers.{i}.bias", torch.zeros(4)).pieces[0][0] == f"layers.{i}.bias"


def test_renamed_equal_tensors_share_out_the_names():
    zeros = {f"h__{i}__bias": torch.zeros(4) for i in range(3)}
    tracer = Tracer(checkpoint(**zeros))
    names = [tracer.trace(f"layers.{i}.bias", torch.zeros(4)).pieces[0][0] for i in range(3)]
    assert names == [f"h.{i}.bias" for i in range(3)]


class Model(torch.nn.Module):
    """A parameter from the file, one by formula, one drawn at random, one never written, a tie."""

    def __init__(self):
        super().__init__()
        self.loaded = torch.nn.Parameter(numbers(4, 4))
        self.derived = torch.nn.Parameter(torch.arange(6.0))
        self.drawn = torch.nn.Parameter(torch.randn(5))
        self.nowhere = torch.nn.Parameter(torch.empty(7))
        self.tied = self.loaded
        self.register_buffer("window", torch.zeros(2), persistent=False)


def test_every_origin_is_told_apart():
    heap.fill_unwritten("a", "cpu")
    model, skipped = Model(), []
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("meta", torch.empty(3, device="meta"))
    facts = weights.weights(
        model,
        checkpoint(loaded=model.loaded.data, lost=numbers(2, seed=9)),
        None,
        Keeper(tempfile.mkdtemp(), 0, []),
        "a",
        lambda: Fresh({"derived": torch.arange(6.0), "drawn": torch.randn(5)}),
        lambda _known: {
            name: tensor_hash(t) for name, (_, t, _) in weights.named_state(Model()).items()
        },
        lambda name, reason: skipped.append((name, type(reason), str(reason))),
    )
    assert skipped == [("meta", OnMetaDevice, "on the meta device and without plain bytes")]
    origins = {name: fact["origin"] for name, fact in facts["tensors"].items()}
    assert origins == {
        "loaded": "loaded",
        "derived": "derived",
        "drawn": "reinitialised",
        "nowhere": "unwritten",
        "sparse": "unexplained",
    }
    assert facts["tensors"]["loaded"]["aliases"] == ["tied"]
    assert facts["unused"] == ["lost"]
    assert facts["checkpoint_tensors"] == 2


class Adapted(torch.nn.Module):
    """A projection with the parts of an adapter; one of them was converted by the load."""

    def __init__(self, **parts):
        super().__init__()
        self.base_layer = torch.nn.Linear(3, 3, bias=False)
        for name, tensor in parts.items():
            self.register_module(name, torch.nn.ParameterDict({"default": tensor}))


A, B, MAGNITUDE = numbers(2, 3, seed=1), torch.zeros(3, 2), numbers(3, seed=2)


def lost_of(adapter, **parts):
    model = torch.nn.Module()
    model.add_module("q", Adapted(**parts))
    file = checkpoint(**{f"base_model__model__q__{name}": t for name, t in adapter.items()})
    twin = checkpoint(q__base_layer__weight=model.q.base_layer.weight.data)
    return weights.weights(
        model,
        twin,
        file,
        Keeper(tempfile.mkdtemp(), 0, []),
        "a",
        lambda: Fresh({}),
        lambda known: known,
        lambda *_: None,
    )


def test_an_adapter_that_is_in_the_model_is_loaded():
    facts = lost_of({"lora_A__weight": A, "lora_B__weight": B}, lora_A=A, lora_B=B)
    assert facts["adapter_lost"] == {}
    assert {each["origin"] for each in facts["tensors"].values()} == {"loaded"}
    assert facts["tensors"]["q.lora_A.default"]["pieces"][0]["tensor"] == (
        "base_model.model.q.lora_A.weight"
    )


def test_a_tensor_of_an_adapter_that_no_tensor_holds_is_lost():
    adapter = {"lora_A__weight": A, "lora_magnitude_vector": MAGNITUDE}
    facts = lost_of(adapter, lora_A=A, lora_magnitude_vector=MAGNITUDE + 1)
    name = "base_model.model.q.lora_magnitude_vector"
    assert facts["adapter_lost"] == {name: "q.lora_magnitude_vector.default"}
    renamed = lost_of({"other__lora_A__weight": A}, lora_A=A + 1)
    assert renamed["adapter_lost"] == {"base_model.model.q.other.lora_A.weight": ""}
    converted = lost_of({"lora_A__weight": A}, lora_A=torch.cat([A + 1, A + 2]))
    assert converted["adapter_lost"] == {"base_model.model.q.lora_A.weight": ""}


def test_the_adapter_of_all_experts_is_made_of_those_of_each():
    down = {f"base_model__model__{e}__down__lora_B": numbers(6, 2, seed=e) for e in range(3)}
    gate, up = (
        {f"base_model__model__{e}__{name}__lora_B": numbers(4, 2, seed=9 + e + n) for e in range(3)}
        for n, name in ((0, "gate"), (10, "up"))
    )
    tracer = Tracer(checkpoint(**down, **gate, **up))
    whole = torch.stack([*down.values()], dim=-1).reshape(6, 6)
    origin = tracer.trace_of_experts("lora_B", whole)
    assert [piece[0] for piece in origin.pieces] == [n.replace("__", ".") for n in down]
    both = [torch.block_diag(*pair) for pair in zip(gate.values(), up.values(), strict=True)]
    fused = torch.stack(both, dim=-1).reshape(8, 12)
    assert len(tracer.trace_of_experts("lora_B", fused).pieces) == 6
    assert len(tracer.used) == 9
    assert tracer.trace_of_experts("lora_B", fused + 1) is None
    assert tracer.trace_of_experts("lora_B", whole.flip(0)) is None
