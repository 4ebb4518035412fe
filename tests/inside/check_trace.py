"""trace.trace, trace.values: contents and not tensors, before and behind every operation."""

import types

import torch
import torch._dynamo  # a dispatch mode imports it: once here, and not in every test's child
from samebits_probe.trace.trace import Trace
from samebits_probe.trace.values import Values, coarsened, digest, without_pads
from tiny import llama


class Model(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
        self.register_buffer("table", torch.tensor([0.5, 0.25]))
        self._run = forward

    def forward(self, x):
        return self._run(self, x)


def traced(forward, x, **options):
    model = Model(forward)
    with torch.no_grad(), Trace(model, {"x": x}, **options) as trace:
        result = model(x)
        trace.mark("logits", result)
    return trace.facts(), result


def names(facts):
    return [facts["names"][op[0]] for op in facts["ops"]]


def test_a_view_keeps_the_identity_and_a_transpose_does_not():
    def forward(model, x):
        return x.reshape(2, 6).unsqueeze(0).contiguous().t_() if x is None else x.reshape(6, 2) * 1

    facts, _ = traced(forward, torch.randn(3, 4))
    assert names(facts) == ["mul.Tensor"]
    (op,) = facts["ops"]
    assert facts["sources"][str(op[2][0])] == "x"
    facts, _ = traced(lambda m, x: x.t() + 0.0, torch.randn(3, 4))
    assert names(facts) == ["t.default", "add.Tensor"]


def test_equal_contents_are_one_value_whatever_made_them():
    facts, _ = traced(lambda m, x: (x + x) - (x * 2.0), torch.randn(5))
    add, mul, sub = facts["ops"]
    assert add[3] == mul[3]
    assert sub[2] == add[3] * 2


def test_inputs_are_read_before_an_operation_writes_into_them():
    def forward(model, x):
        made = x * 2.0
        before = made + 1.0
        made.add_(1.0)
        return made * before

    facts, _ = traced(forward, torch.randn(5))
    mul, _, add_, last = facts["ops"]
    assert facts["names"][add_[0]] == "add_.Tensor"
    assert add_[2] == mul[3]
    assert add_[3] != mul[3]
    # what was written equals what was computed before, and is found as the same content
    assert last[2] == [add_[3][0]] * 2


def test_a_write_through_a_view_reaches_the_tensor_behind_it():
    def forward(model, x):
        made = torch.zeros(3, 4)
        made[:, :2] = x[:, :2]
        return made * 2.0

    facts, _ = traced(forward, torch.randn(3, 4))
    told = names(facts)
    assert told[-2:] == ["write", "mul.Tensor"]
    write, mul = facts["ops"][-2:]
    assert mul[2] == write[3]
    copied = next(op for op in facts["ops"] if facts["names"][op[0]] == "copy_.default")
    assert copied[3][0] in write[2]


def test_parameters_buffers_inputs_and_constants_have_names():
    facts, _ = traced(
        lambda m, x: (m.weight * m.table[0] + x) * torch.tensor(3.0), torch.ones(3, 4)
    )
    assert set(facts["sources"].values()) == {"weight", "table", "x", "constant"}


def test_what_follows_from_integers_alone_is_structural():
    def forward(model, x):
        mask = torch.full((3, 3), -1e9).triu(1)
        return (x @ x.t()) + mask

    facts, _ = traced(forward, torch.randn(3, 4))
    last = facts["ops"][-1]
    assert [facts["values"][v].get("structural", False) for v in last[2]] == [False, True]


def test_a_large_parameter_is_hashed_once_and_its_views_by_their_layout():
    model = Model(lambda m, x: x @ m.weight.t())
    model.weight = torch.nn.Parameter(torch.randn(300, 300))
    x = torch.ones(2, 300)
    with torch.no_grad(), Trace(model, {}) as trace:
        model(x)
    facts = trace.facts()
    first = facts["ops"][0]
    assert facts["names"][first[0]] == "t.default"
    hashes = [facts["values"][v]["hash"] for v in (first[2][0], first[3][0])]
    assert hashes[0] == digest(model.weight, None)
    assert len(set(hashes)) == 2
    assert all(hashes)
    assert not hasattr(model.weight, "_samebits_value")


def test_a_view_of_a_tensor_that_was_written_into_is_no_write():
    model = Model(lambda m, x: (x @ m.weight.t()).split(150, dim=-1)[0].unsqueeze(0) * 2.0)
    model.weight = torch.nn.Parameter(torch.randn(300, 300))
    with torch.no_grad():
        model.weight.mul_(2.0)  # as loading does, which copies in place
        x = torch.ones(2, 300).mul_(3.0)
        with Trace(model, {"x": x}) as trace:
            model(x)
    facts = trace.facts()
    assert names(facts) == ["t.default", "mm.default", "split.Tensor", "mul.Tensor"]
    transposed, product = facts["ops"][:2]
    assert product[2][1] == transposed[3][0]


def test_functions_are_told_alike_whatever_module_an_operation_ran_in():
    def chains(facts):
        told = facts["functions"]
        return [[told[int(n)]["name"] for n in c.split()] for c in facts["chains"]]

    model, ids = llama(), torch.arange(6)[None]
    with torch.no_grad(), Trace(model, {}) as trace:
        model(ids)
    facts = trace.facts()
    for chain in chains(facts):
        assert "LlamaForCausalLM.forward" in chain, chain
    scores = next(i for i, n in enumerate(names(facts)) if "scaled_dot_product" in n)
    chain = chains(facts)[facts["ops"][scores][5]]
    assert chain[0] == "sdpa_attention_forward"
    layers = [name for name in chain if name.startswith("Llama")]  # decorators stand between
    assert layers[:2] == ["LlamaAttention.forward", "LlamaDecoderLayer.forward"]


def test_rows_of_padding_count_for_nothing():
    pads = torch.tensor([[True, False, False], [False, False, False]])
    one, other = torch.ones(2, 3, 4), torch.ones(2, 3, 4)
    other[0, 0] = 7.0
    assert digest(one, None) != digest(other, None)
    assert digest(one, pads) == digest(other, pads)
    other[0, 1] = 7.0
    assert digest(one, pads) != digest(other, pads)
    assert without_pads(torch.ones(5), pads).equal(torch.ones(5))
    flat = without_pads(torch.ones(6, 4), pads)
    assert flat[0].sum() == 0
    assert flat[1:].sum() == 20


def test_the_same_elements_in_another_order_are_recognised_and_other_ones_are_not():
    values = Values()
    one = torch.randn(4, 6)
    told = values.fact(one)
    turned = values.fact(one.t().contiguous())
    assert told["hash"] != turned["hash"]
    assert told["bag"] == turned["bag"]
    moved = one.clone()
    moved[0, 0] = torch.nextafter(moved[0, 0], torch.tensor(9.0))
    assert values.fact(moved)["bag"] != told["bag"]
    swapped = values.fact(one[[1, 0, 2, 3]])
    assert swapped["rows"] != told["rows"]
    assert swapped["bag"] == told["bag"]
    minus = values.fact(torch.where(one == one[0, 0], -one, one))
    assert minus["bag"] != told["bag"]


def test_a_coarse_identity_does_not_see_rounding_and_sees_anything_larger():
    one = torch.randn(50, dtype=torch.float64).numpy()
    assert (coarsened(one) == coarsened(one * (1 + 1e-15))).all()
    assert (coarsened(one) != coarsened(one * 1.0001)).any()
    for low in (torch.finfo(torch.float32).min, torch.finfo(torch.float64).min, -torch.inf):
        masked = torch.tensor([1.0, low], dtype=torch.float64).numpy()
        other = torch.tensor([1.0, -1e38], dtype=torch.float64).numpy()
        assert coarsened(masked).tolist() == coarsened(other).tolist()


def of_llama(model):
    ids = torch.arange(6)[None]
    with torch.no_grad():
        plain = model(ids).logits
        with Trace(model, {"input_ids": ids}) as trace:
            logits = model(ids).logits
            trace.mark("logits", logits)
    return trace.facts(), plain, logits


def test_tracing_changes_no_bit_and_can_be_repeated():
    model = llama()
    facts, plain, logits = of_llama(model)
    assert plain.equal(logits)
    again, _, _ = of_llama(model)
    assert again["ops"] == facts["ops"]
    assert again["values"] == facts["values"]


def test_operations_know_their_module_their_function_and_their_line():
    facts, _, _ = of_llama(llama())
    found = set()
    for op in facts["ops"]:
        chain = facts["chains"][op[5]].split()
        if chain:
            function = facts["functions"][int(chain[0])]
            assert function["file"].startswith("transformers/")
            assert op[6] >= function["line"]
            found.add((facts["modules"][op[4]], function["name"].rpartition(".")[0]))
    assert ("model.layers.1.mlp.down_proj", "LlamaMLP") in found
    assert ("model.rotary_emb", "LlamaRotaryEmbedding") in found


def test_operations_know_the_constructors_of_the_modules_around_them():
    seen = []

    def look(index, func, args, more):
        numbers = trace.constructors()
        seen.append((numbers, trace.texts(set(numbers))))

    model = llama()
    trace = Trace(model, {}, look=look)
    with torch.no_grad(), trace:
        model(torch.arange(1, 7)[None])
    functions = trace.facts()["functions"]
    names = [[functions[number]["name"] for number in numbers] for numbers, _ in seen]
    assert any(chain[:2] == ["LlamaMLP.__init__", "LlamaDecoderLayer.__init__"] for chain in names)
    assert any("self.down_proj = " in text for _, texts in seen for text in texts.values())
    # those of torch are of no interest; 5.2 decorates a constructor
    plain = {name for chain in names for name in chain if "<locals>" not in name}
    assert all(name.startswith("Llama") for name in plain), plain


def test_eager_and_sdpa_have_the_same_mask():
    told = [
        of_llama(llama(attn_implementation=kind))[0]["attentions"] for kind in ("eager", "sdpa")
    ]
    assert len(told[0]) == len(told[1]) == 2
    for one, other in zip(*told, strict=True):
        assert one["shape"] == other["shape"] == [1, 1, 6, 6]
        assert one["allowed"] == other["allowed"]


def test_layers_are_marked_in_order():
    facts, _, _ = of_llama(llama())
    assert [name for name, _ in facts["marks"]] == [
        "embeddings",
        "model.layers.0",
        "model.layers.1",
        "logits",
    ]


def test_a_look_sees_an_operation_before_and_behind():
    seen = []

    def look(index, func, args, more):
        seen.append((index, func is not None))

    traced(lambda m, x: x * 2.0 + 1.0, torch.randn(3), look=look)
    assert seen == [(0, True), (0, False), (1, True), (1, False)]


def test_frames_of_other_code_are_left_out():
    module = types.ModuleType("elsewhere")
    exec("def f(m, x):\n    return x * 2.0\n", module.__dict__)  # noqa: S102
    facts, _ = traced(module.f, torch.randn(3))
    assert facts["functions"] == []
