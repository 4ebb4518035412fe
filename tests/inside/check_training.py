"""training: a step is found whole, and each planted defect of one is named, none where there is none."""

import functools
import math
import tempfile
import time
from pathlib import Path

import torch
import transformers
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.tensor import Keeper
from samebits_probe.training import batches, origin, relations, signals
from samebits_probe.training.learner import Learner, without_chance

torch.set_num_threads(1)


def model(architecture="llama", **changed):
    torch.manual_seed(0)
    config = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": None}
    config |= {"num_attention_heads": 4, "intermediate_size": 48, "num_key_value_heads": 2}
    known = transformers.AutoConfig.for_model(architecture, **(config | changed))
    made = transformers.AutoModelForCausalLM.from_config(known).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.25)
    return made


def step(made, where=None):
    made_batches = batches.batches(made, "causal-lm", {})
    where = where or origin.places(made, None)
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    return signals.signals(Learner(made, torch.float32), made_batches, where, keeper)


def ways(made, names=None):
    """Return the relations by name; all, or those whose names begin so."""
    kept = relations.RELATIONS
    if names is not None:
        relations.RELATIONS = tuple(r for r in kept if r.name.startswith(names))
    main = batches.batches(made, "causal-lm", {})[0]
    learner = Learner(made, torch.float32)
    try:
        answer = relations.observe(learner, main, "causal-lm", time.perf_counter() + 600)
    finally:
        relations.RELATIONS = kept
    assert not answer["no_float64"], answer["no_float64"]
    return {r["relation"]: r for r in answer["relations"]}, answer["inapplicable"]


def test_a_clean_model_breaks_no_way_to_train():
    for architecture in ("llama", "mixtral"):
        answer, skipped = ways(model(architecture, num_local_experts=4))
        assert not [name for name, r in answer.items() if r["broken"]], answer
        assert {s["relation"] for s in skipped} <= {"packed = padded"}, skipped
        assert answer["train() without dropout = eval()"]["holds"]
        assert answer["gradient checkpointing = without"]["holds"]


def test_the_step_is_that_of_plain_torch():
    made = model()
    facts = step(made)
    batch = batches.batches(made, "causal-lm", {})[0]
    made.zero_grad()
    inputs = {k: v for k, v in batch.kwargs.items() if k != "labels"}
    logits = made(**inputs).logits[:, :-1].float().reshape(-1, 99)
    loss = torch.nn.functional.cross_entropy(logits, batch.labels[:, 1:].reshape(-1))
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(made.parameters(), 1e9)
    assert math.isclose(facts["batches"]["padded"]["loss"], float(loss), rel_tol=1e-6)
    assert math.isclose(facts["norm"], float(norm), rel_tol=1e-5)
    assert facts["behind"] < facts["batches"]["padded"]["loss"]
    assert facts["batches"]["padded"]["formula"] == "mean over the labels, the next token"
    items = facts["batches"]["items"]["formula"]
    assert items == "sum over the labels / num_items_in_batch, the next token"
    assert not facts["without"]


def test_the_weights_are_as_they_were():
    made = model()
    before = {name: p.detach().clone() for name, p in made.named_parameters()}
    step(made)
    assert all(bool((p == before[name]).all()) for name, p in made.named_parameters())


def test_dropout_of_every_kind_is_off():
    made = model("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.5)
    assert any(m.p for m in made.modules() if isinstance(m, torch.nn.Dropout))
    without_chance(made)
    assert not any(m.p for m in made.modules() if isinstance(m, torch.nn.Dropout))
    made = model(attention_dropout=0.5)
    without_chance(made)
    assert made.config.attention_dropout == 0
    assert step(made)["norm"] == step(made)["norm"]


def places_of(made):
    folder = tempfile.mkdtemp()
    made.save_pretrained(folder)
    loaded = type(made).from_pretrained(folder)
    checkpoint = Checkpoint.find(folder, None)
    return loaded, origin.places(loaded, checkpoint), checkpoint


def test_gradients_are_in_checkpoint_space():
    """Stacked experts, tied embeddings and a transposed convolution: each as the file has it."""
    for architecture, changed in (
        ("mixtral", {"num_local_experts": 4}),
        ("llama", {"tie_word_embeddings": True}),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ):
        loaded, where, checkpoint = places_of(model(architecture, **changed))
        facts = step(loaded, where)
        assert set(facts["gradients"]) == set(checkpoint), architecture
        for name, ref in facts["gradients"].items():
            assert tuple(ref["shape"]) == checkpoint.shape(name), name
        assert not where.uncertain
        assert not facts["carriers"]


def test_a_cut_undoes_what_a_release_did():
    """Fused, transposed and stacked by hand: the cuts give the checkpoint's own bytes back."""

    class Tiny(torch.nn.Module):
        def __init__(self, **tensors):
            super().__init__()
            for name, tensor in tensors.items():
                self.register_parameter(name, torch.nn.Parameter(tensor.clone()))

    from safetensors.torch import save_file

    torch.manual_seed(0)
    names = ("q", "k", "a", "b", "c", "d")
    tensors = {name: torch.randn(4, 6) for name in names}
    folder = tempfile.mkdtemp()
    save_file(tensors, str(Path(folder) / "model.safetensors"))
    fused = torch.cat([tensors["q"], tensors["k"]])
    turned = torch.stack(
        [torch.cat([tensors["a"], tensors["b"]]).T, torch.cat([tensors["c"], tensors["d"]]).T]
    )
    tiny = Tiny(fused=fused, turned=turned)
    where = origin.places(tiny, Checkpoint.find(folder, None))
    for parameter in tiny.parameters():
        parameter.grad = parameter.detach() * 2
    found, carriers, without = origin.gradients(tiny, where)
    assert set(found) == set(names), found.keys()
    assert all(bool((found[name] == 2 * tensors[name]).all()) for name in names)
    assert not without
    assert not any(n > 1 for n in carriers.values())


def test_a_lost_tie_is_seen():
    loaded, _, checkpoint = places_of(model(tie_word_embeddings=True))
    loaded.lm_head.weight = torch.nn.Parameter(loaded.lm_head.weight.detach().clone())
    facts = step(loaded, origin.places(loaded, checkpoint))
    assert list(facts["carriers"].values()) == [2], facts["carriers"]


def patched(made, change):
    """Give a model another forward, which gets the old one."""
    base = made.__class__
    kind = type(base.__name__, (base,), {})

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        old = functools.partial(base.forward, self)
        return change(old, input_ids, attention_mask, labels, kwargs)

    kind.forward = forward
    made.__class__ = kind
    return made


def own_loss(loss):
    """Return a model with a loss of its own: of logits and labels of the next token."""

    def change(old, ids, mask, labels, kwargs):
        items = kwargs.pop("num_items_in_batch", None)
        output = old(input_ids=ids, attention_mask=mask, **kwargs)
        if labels is not None:
            output["loss"] = loss(output.logits, labels, items)
        return output

    return patched(model(), change)


def cross_entropy(logits, labels, reduction="mean"):
    flat = logits.reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, labels.reshape(-1), reduction=reduction)


def formula_of(loss):
    return step(own_loss(loss))["batches"]["padded"]["formula"]


def test_planted_losses_are_named():
    def right(logits, labels, _items):
        return cross_entropy(logits[:, :-1], labels[:, 1:])

    def unshifted(logits, labels, _items):
        return cross_entropy(logits, labels)

    def of_rows(logits, labels, items):
        pairs = zip(logits, labels, strict=True)
        return torch.stack([right(a[None], b[None], items) for a, b in pairs]).mean()

    def over_everything(logits, labels, _items):
        wanted = labels[:, 1:]
        return cross_entropy(logits[:, :-1], wanted, "sum") / wanted.numel()

    assert formula_of(right) == "mean over the labels, the next token"
    assert formula_of(unshifted) == "mean over the labels, the same token"
    assert formula_of(of_rows) == "mean of the means of rows, the next token"
    assert formula_of(over_everything) == "mean over all positions, the next token"


def test_accumulation_without_the_number_of_items_is_broken():
    def ignores(logits, labels, _items):
        return cross_entropy(logits[:, :-1], labels[:, 1:])

    def divides(logits, labels, items):
        total = cross_entropy(logits[:, :-1], labels[:, 1:], "sum")
        return total / (items or (labels[:, 1:] != -100).sum())

    name = "rows accumulated = one batch"
    assert ways(own_loss(ignores), name)[0][name]["broken"]
    assert not ways(own_loss(divides), name)[0][name]["broken"]


def test_a_checkpointed_block_that_draws_again_is_broken():
    made = model()
    name = "gradient checkpointing = without"
    assert not ways(made, name)[0][name]["broken"]
    made.model.layers[0].mlp.gate_proj.register_forward_hook(
        lambda _module, _args, output: output * (1.5 if in_backward() else 1.0)
    )
    assert ways(made, name)[0][name]["broken"]


def in_backward():
    return torch._C._current_graph_task_id() != -1


def test_a_training_branch_is_broken():
    made = model()
    made.model.layers[1].mlp.register_forward_hook(
        lambda module, _args, output: output * 1.25 if module.training else output
    )
    answer, _ = ways(made, ("train()", "logprobs"))
    assert [r["broken"] for r in answer.values()] == [True, True], answer


def test_a_frozen_layer_that_cuts_the_graph_is_broken():
    made = model()
    name = "frozen layers leave other gradients"
    made.model.layers[1].input_layernorm.register_forward_hook(
        lambda _module, args, output: output if args[0].requires_grad else output.detach()
    )
    answer = ways(made, name)[0][name]
    assert answer["broken"]
    assert answer["missing"] == ["model.layers.1.input_layernorm.weight"]


def test_a_model_without_labels_has_no_loss():
    made = transformers.AutoModel.from_config(model().config)
    try:
        batches.batches(made, "base", {})
    except batches.NoLoss as reason:
        assert "takes no labels" in str(reason)
    else:
        raise AssertionError
