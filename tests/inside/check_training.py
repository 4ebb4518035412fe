"""training: a step is found whole, and each planted defect of one is named, none where there is none."""

import functools
import math
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
import transformers
from raising import raised
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.tensor import Keeper
from samebits_probe.questions.training import batches, origin, relations, signals
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.way import Setting
from tiny import model

torch.set_num_threads(1)
WITH_DROPOUT = "gradient checkpointing with dropout = without"
IDS_OF_LABELS = "decoder ids by collators = by forward"
ROUTER = "router loss by config = by argument"
CHECKPOINTED = "gradient checkpointing, reentrant, only layers learn = without"
WITH_IMAGES = {"packed = padded, with images", f"{CHECKPOINTED}, with images"}


def step(made, where=None, head="causal-lm"):
    made_batches = batches.batches(made, head, {})
    where = where or origin.places(made, None)
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    return signals.signals(Learner(made, torch.float32), made_batches, where, keeper)


SEEN = {"packed = padded"} if transformers.__version__.startswith("4.48.") else set()
"""4.48 keeps packed sequences apart with flash attention alone."""


def ways(made, names=None, head="causal-lm", *, n_rows=None):
    """Return the relations by name; all, or those whose names begin so; of the first rows of a batch."""
    asked = tuple(r for r in relations.RELATIONS if names is None or r.name.startswith(names))
    main = batches.batches(made, head, {})[0]
    if n_rows is not None:
        main = main._replace(kwargs=main.rows(0, n_rows))
    learner = Learner(made, torch.float32)
    with mock.patch.object(relations, "RELATIONS", asked):
        answer = relations.observe(learner, Setting(main, head), time.perf_counter() + 600)
    assert not answer["no_float64"], answer["no_float64"]
    return {r["relation"]: r for r in answer["relations"]}, answer["inapplicable"]


def test_a_clean_model_breaks_no_way_to_train():
    for architecture in ("llama", "mixtral"):
        answer, skipped = ways(model(architecture, num_local_experts=4))
        assert not [name for name, r in answer.items() if r["broken"]], answer
        untried = {WITH_DROPOUT, IDS_OF_LABELS, *WITH_IMAGES, *SEEN}
        untried |= {ROUTER} if architecture == "llama" else set()
        assert {s["relation"] for s in skipped} <= untried, skipped
        # experts that get other tokens round otherwise
        assert answer["ids of padding have no effect"]["holds"] or architecture == "mixtral"
        assert answer["train() without dropout = eval()"]["holds"]
        assert answer["gradient checkpointing = without"]["holds"]


def test_layers_that_get_no_gradient_under_checkpointing_are_seen():
    """https://github.com/huggingface/transformers/pull/41993."""
    made = model()
    answer, _ = ways(made, (CHECKPOINTED,))
    assert answer[CHECKPOINTED]["broken"] is False
    assert not made.get_input_embeddings()._forward_hooks
    made.enable_input_require_grads = made.disable_input_require_grads = lambda: None
    answer, skipped = ways(made, (CHECKPOINTED,))
    raised = {s["relation"] for s in skipped if s["raised"]}
    assert CHECKPOINTED in raised or answer[CHECKPOINTED]["broken"], skipped


def test_a_class_that_cannot_ask_for_gradients_of_its_inputs_is_tried_without():
    """Canine of 4.57, which loses gradients that the hook of 5.24 does not save either."""
    made = model()

    def refuse():
        raise NotImplementedError

    enable = made.gradient_checkpointing_enable

    def without_the_hook_of_5(options):
        with mock.patch.object(made, "enable_input_require_grads"):
            enable(options)

    made.gradient_checkpointing_enable = without_the_hook_of_5
    made.enable_input_require_grads = refuse
    plain = "gradient checkpointing, reentrant = without"
    answer, skipped = ways(made, (plain,))
    assert answer[plain]["broken"] is False, skipped


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


def test_logits_of_padding_are_left_out():
    """Under a sliding window, padding attends to padding alone. Releases fill such rows with different numbers."""

    def logits_of(value, position):
        made = model()
        mask = next(iter(batches.batches(made, "causal-lm", {}))).kwargs["attention_mask"]

        def spoil(module, args, kwargs, output):
            if kwargs.get("attention_mask") is not None:
                output.logits.data[mask == position] = value

        made.register_forward_hook(spoil, with_kwargs=True)
        facts = step(made)["batches"]
        assert facts["padded"]["logits"]["shape"] == [int(mask.sum()), 99]
        return facts["padded"]["logits"]["hash"], facts["plain"]["logits"]["hash"]

    assert logits_of(1.0, 0) == logits_of(2.0, 0)
    assert logits_of(1.0, 1)[0] != logits_of(2.0, 1)[0]
    assert logits_of(1.0, 1)[1] == logits_of(2.0, 1)[1]


def test_the_weights_are_as_they_were():
    made = model()
    before = {name: p.detach().clone() for name, p in made.named_parameters()}
    step(made)
    assert all(bool((p == before[name]).all()) for name, p in made.named_parameters())


def test_dropout_of_every_kind_is_off():
    made = model("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.5)
    assert any(m.p for m in made.modules() if isinstance(m, torch.nn.Dropout))
    Learner(made, torch.float32)
    assert not any(m.p for m in made.modules() if isinstance(m, torch.nn.Dropout))
    made = model(attention_dropout=0.5)
    Learner(made, torch.float32)
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


def ignores(logits, labels, _items):
    return cross_entropy(logits[:, :-1], labels[:, 1:])


def divides(logits, labels, items):
    total = cross_entropy(logits[:, :-1], labels[:, 1:], "sum")
    return total / (items or (labels[:, 1:] != -100).sum())


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

    def unshifted_twice(logits, labels, _items):
        return cross_entropy(logits[:, :-2], labels[:, 2:])

    assert formula_of(unshifted_twice) == "mean over the labels, the token after the next"
    assert formula_of(right) == "mean over the labels, the next token"
    assert formula_of(unshifted) == "mean over the labels, the same token"
    assert formula_of(of_rows) == "mean of the means of rows, the next token"
    assert formula_of(over_everything) == "mean over all positions, the next token"


def headed(auto, architecture="bert", **changed):
    torch.manual_seed(0)
    config = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0}
    config |= {"num_attention_heads": 4, "intermediate_size": 48}
    config |= {"num_labels": 2 if auto == "QuestionAnswering" else 3}
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    known = transformers.AutoConfig.for_model(architecture, **(config | changed))
    return getattr(transformers, f"AutoModelFor{auto}").from_config(known).eval()


def facts_of(made, head):
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    learner = Learner(made, torch.float32)
    made_batches = batches.batches(made, head, {})
    where = origin.places(made, None)
    return signals.signals(learner, made_batches, where, keeper)["batches"]


def test_every_head_with_a_loss_has_one():
    expected = {
        "MaskedLM": {"padded"},
        "TokenClassification": {"padded"},
        "SequenceClassification": {"padded", "regression", "multi_label_classification"},
        "QuestionAnswering": {"padded", "beyond"},
    }
    for auto, names in expected.items():
        facts = facts_of(headed(auto), "base")
        assert names <= set(facts) <= {*names, "items"}, (auto, facts.keys())
        assert not [f["refused"] for f in facts.values() if "refused" in f], auto
        assert len({facts[name]["loss"] for name in names}) == len(names), auto
    made = headed("SequenceClassification")
    facts_of(made, "base")
    assert made.config.problem_type == "single_label_classification"


def test_a_loss_that_no_usual_formula_gives_has_no_name():
    made = headed("SequenceClassification")
    made.config.class_weights = [0.2, 1.0, 3.0]
    made.config.problem_type = None
    base = type(made)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        output = base.forward(self, input_ids=input_ids, attention_mask=attention_mask)
        if labels is not None and not labels.is_floating_point():
            weights = torch.tensor(self.config.class_weights)
            output["loss"] = torch.nn.functional.cross_entropy(output.logits, labels, weights)
        return output

    made.__class__ = type(base.__name__, (base,), {"forward": forward})
    assert facts_of(made, "base")["padded"]["formula"] == ""
    assert facts_of(headed("SequenceClassification"), "base")["padded"]["formula"] == (
        "mean over the labels"
    )


def test_a_classifier_that_takes_the_number_of_items_and_ignores_it_is_broken():
    name = "rows accumulated = one batch"

    def judged(divides):
        made = headed("SequenceClassification")
        base = type(made)

        def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
            items = kwargs.pop("num_items_in_batch", None)
            output = base.forward(self, input_ids=input_ids, attention_mask=attention_mask)
            if labels is not None:
                total = torch.nn.functional.cross_entropy(output.logits, labels, reduction="sum")
                output["loss"] = total / ((items if divides else None) or len(labels))
            return output

        made.__class__ = type(base.__name__, (base,), {"forward": forward})
        return ways(made, name, "base")[0][name]["broken"]

    assert judged(divides=False)
    assert not judged(divides=True)


def test_accumulation_is_tried_on_a_batch_of_one_row():
    """A model without a padding token, or of sounds, has one row: it is repeated."""
    name = "rows accumulated = one batch"
    for loss, is_broken in ((ignores, True), (divides, False)):
        found, inapplicable = ways(own_loss(loss), name, n_rows=1)
        assert found[name]["broken"] == is_broken, inapplicable


def test_a_batch_of_one_row_is_not_taken_for_its_double():
    """A loss that is a sum, as CTC's can be, is twice as large for both rows."""

    def summed(logits, labels, _items):
        return cross_entropy(logits[:, :-1], labels[:, 1:], "sum")

    names = ("rows accumulated = one batch", "eager backward = sdpa backward")
    found, _ = ways(own_loss(summed), names, n_rows=1)
    assert not found["rows accumulated = one batch"]["broken"]
    eager = found["eager backward = sdpa backward"]
    assert not eager["broken"], eager
    assert eager["distance"] is None or eager["distance"]["max_abs"] < 1e-3, eager


def test_accumulation_without_the_number_of_items_is_broken():
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


def dropping(**changed):
    return model(attention_dropout=0.2, **changed)


def test_a_block_that_draws_its_dropout_again_is_broken():
    """Its own generator is not one that checkpointing sets back."""
    made = dropping()
    clean = ways(made, WITH_DROPOUT)[0][WITH_DROPOUT]
    assert not clean["broken"]
    assert clean["holds"]
    made = dropping()
    generator = torch.Generator()
    made.register_forward_pre_hook(lambda _module, _args: generator.manual_seed(0) and None)

    def drop(module, _args, output):
        if not module.config.attention_dropout:
            return output
        return output * torch.empty_like(output).bernoulli_(0.8, generator=generator)

    made.model.layers[0].mlp.register_forward_hook(drop)
    answer, skipped = ways(made, "gradient checkpointing")
    assert WITH_DROPOUT in answer, skipped
    assert answer[WITH_DROPOUT]["broken"]
    assert not answer["gradient checkpointing = without"]["broken"]


def test_dropout_that_no_seed_sets_is_not_accused():
    made = dropping()
    generator = torch.Generator()
    made.model.layers[0].mlp.register_forward_hook(
        lambda _module, _args, output: (
            output * torch.empty_like(output).bernoulli_(0.8, generator=generator)
            if made.config.attention_dropout
            else output
        )
    )
    answer, skipped = ways(made, WITH_DROPOUT)
    assert not answer
    assert "no seed sets" in skipped[0]["reason"]


def test_a_step_behind_one_with_dropout_is_the_same():
    made = dropping()
    learner = Learner(made, torch.float32)
    main = batches.batches(made, "causal-lm", {})[0]
    before = float(learner.forward(main.kwargs).loss.detach())
    with learner.with_chance():
        with_dropout = float(learner.forward(main.kwargs).loss.detach())
    assert float(learner.forward(main.kwargs).loss.detach()) == before != with_dropout


def bert(**changed):
    """Return a BERT with dropout, whose classifier is kept small."""
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=32, **changed,
    )  # fmt: skip
    torch.manual_seed(0)
    made = transformers.BertForMaskedLM(config)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def dropped(made):
    """Return what a step computes of the batch with dropout as a factor; None without one."""
    batch = step(made, head="masked-lm")["batches"].get(batches.DROPPED)
    return batch and (batch["loss"], batch["norm"])


def test_dropout_at_another_place_or_of_another_probability_is_seen():
    clean, moved, other = bert(), bert(), bert(hidden_dropout_prob=0.2)
    output = moved.bert.encoder.layer[1].output

    def behind_the_norm(hidden_states, input_tensor):
        return output.dropout(output.LayerNorm(output.dense(hidden_states) + input_tensor))

    output.forward = behind_the_norm
    loss, norm = dropped(clean)
    assert norm > 0
    assert dropped(bert()) == (loss, norm)
    assert step(clean, head="masked-lm")["batches"]["padded"]["loss"] != loss
    for made in (moved, other):
        assert abs(dropped(made)[0] - loss) > 1e-4
    assert all(m.p == 0 for m in clean.modules() if isinstance(m, torch.nn.Dropout))


def test_dropout_that_draws_otherwise_at_the_same_place_is_the_same():
    class Flat(torch.nn.Dropout):
        def forward(self, x):
            return super().forward(x.flatten(0, -2)).reshape(x.shape)

    clean, flat = dropped(bert()), bert()
    for layer in flat.bert.encoder.layer:
        layer.output.dropout = Flat(0.1)
    assert dropped(flat) == clean
    eager = bert(attn_implementation="eager")
    assert math.isclose(dropped(eager)[0], clean[0], rel_tol=1e-5)
    assert dropped(bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)) is None


def test_dropout_that_is_no_factor_is_left_out():
    class Own(torch.nn.Dropout):
        def forward(self, x):
            return torch.dropout(x, self.p, self.training)

    made = bert()
    made.bert.encoder.layer[0].output.dropout = Own(0.1)
    assert dropped(made) is None


def test_a_switch_for_the_routers_loss_that_the_config_does_not_set_is_broken():
    made = model("mixtral", num_local_experts=4)
    assert not ways(made, ROUTER)[0][ROUTER]["broken"]

    base = type(made)

    def forward(self, input_ids=None, labels=None, output_router_logits=None, **kwargs):
        wanted = bool(output_router_logits)
        kwargs |= {"input_ids": input_ids, "labels": labels}
        return base.forward(self, output_router_logits=wanted, **kwargs)

    made.__class__ = type(base.__name__, (base,), {"forward": forward})
    assert ways(made, ROUTER)[0][ROUTER]["broken"]


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


PROJECTIONS = ("only projections learn", "gradient checkpointing, only projections learn")


def test_projections_on_a_frozen_base_learn_what_they_learn_in_a_whole_step():
    made = model()
    answer, skipped = ways(made, (*PROJECTIONS, "gradient checkpointing = without"))
    assert not any(r["broken"] for r in answer.values()), (answer, skipped)
    assert {answer[name]["n"] for name in answer.keys() - {"gradient checkpointing = without"}} == {
        3
    }
    assert not made.get_input_embeddings()._forward_hooks


def test_a_frozen_weight_that_passes_no_gradient_is_broken():
    made = model()
    made.model.layers[1].self_attn.o_proj.register_forward_hook(
        lambda module, _args, output: output if module.weight.requires_grad else output.detach()
    )
    answer, _ = ways(made, ("frozen layers", *PROJECTIONS))
    name = "only projections learn = all learn"
    assert {n: r["broken"] for n, r in answer.items()} == {
        name: True,
        "frozen layers leave other gradients": False,
        "gradient checkpointing, only projections learn = without": False,
    }
    assert answer[name]["missing"] == ["model.layers.1.self_attn.q_proj.weight"]


def test_a_frozen_layer_that_computes_otherwise_where_its_input_asks_for_a_gradient_is_broken():
    made = model()
    made.model.layers[0].input_layernorm.register_forward_hook(
        lambda module, args, output: (
            output * 2 if args[0].requires_grad and not module.weight.requires_grad else output
        )
    )
    answer, _ = ways(made, (*PROJECTIONS, "gradient checkpointing"))
    assert {n for n, r in answer.items() if r["broken"]} == {
        "gradient checkpointing, only projections learn = without"
    }


def test_a_gradient_of_zeros_is_as_none():
    """An expert that only padding reaches has one: LongCat-Flash 4.57, with other ids in the padding."""
    zeros, ones = torch.zeros(2), torch.ones(2)
    assert relations._missing({"a": ones, "b": zeros}, {"a": ones}) == []
    assert relations._missing({"a": ones}, {"a": ones, "b": ones}) == ["b"]


def test_a_model_without_labels_has_no_loss():
    made = transformers.AutoModel.from_config(model().config)
    reason = raised(batches.NoLoss, batches.batches, made, "base", {})
    assert "takes no labels" in str(reason)


def test_a_planted_layer_that_is_no_linear_one_is_seen():
    """As a router that is a class of its own: its weight is the same parameter."""
    made = model()
    where = origin.places(made, None)
    tensors = origin.linear(made, where)
    layers = {name for name, m in made.named_modules() if isinstance(m, torch.nn.Linear)}
    assert tensors == {f"{name}.weight" for name in layers}

    class Router(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

    name = next(iter(sorted(layers)))
    made.set_submodule(name, Router(made.get_parameter(f"{name}.weight")))
    assert tensors - origin.linear(made, where) == {f"{name}.weight"}
