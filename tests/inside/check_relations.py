"""relations: a planted violation is caught under its name, and a clean model is not accused."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import tiny
import torch
import transformers
from samebits_probe.model import determinism, forks, precision
from samebits_probe.model.distance import broken, distance, same_bytes, used_bits
from samebits_probe.questions.relations import cases, experts
from samebits_probe.questions.relations.relations import Judge, observe
from samebits_probe.questions.relations.state import Snapshot
from samebits_probe.questions.relations.ways import Subject

with precision.Leaks():  # the first use imports torch's compiler, which each test would pay for
    torch.zeros(2) * 2

EXPERTS = "experts in another order"
BROKEN = 1e-6
"""Every planted violation is larger in float64, and rounding is far smaller."""


class Attention(torch.nn.Module):
    """Two heads over what the cache holds and the new tokens, as transformers writes it."""

    def __init__(self, defect):
        super().__init__()
        self.defect = defect
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x, mask, past):
        heads = [t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]
        query, key, value = heads
        if past is not None:
            if self.defect == "drops state" and x.shape[1] > 1:
                past = tuple(torch.zeros_like(t) for t in past)
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        scores = (query @ key.transpose(-1, -2)) / 8**0.5
        scores = scores.masked_fill(~mask, torch.finfo(torch.float32).min)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        held = (key, value)
        if self.defect == "forgets":
            held = tuple(torch.cat([t[:, :, :1] * 0, t[:, :, 1:]], 2) for t in held)
        return x + self.out((weights @ value).transpose(1, 2).flatten(2)), held


class Layer(torch.nn.Module):
    def __init__(self, defect):
        super().__init__()
        self.defect = defect
        self.attention = Attention(defect)
        self.norm = torch.nn.LayerNorm(16)
        self.seen_long = False

    def forward(self, x, mask, past):
        # norms and rotary tables of real models ask for float32 by name, too
        x, held = self.attention(self.norm(x.float()).to(x.dtype), mask, past)
        if self.defect == "mixes rows" and x.shape[0] > 1:
            x = x + 0.01 * x.mean(0, keepdim=True)
        if self.defect == "knows its row":
            x = x + 0.01 * torch.arange(len(x))[:, None, None]
        if self.defect == "draws":
            x = x * (1 + 0.01 * torch.rand(()))
        if self.defect == "is chaotic":
            state = torch.sigmoid(x)
            for _ in range(80):
                state = 3.99 * state * (1 - state)
            x = x + state
        if self.defect == "knows float32" and past is not None and x.dtype == torch.float32:
            x = x + 0.01 * x.flip(-1)
        if self.defect == "computes in bfloat16":
            x = x.bfloat16().to(x.dtype)
        if self.defect == "remembers" and self.seen_long:
            x = x + 1
        if self.defect == "leaks into a layer" and x.shape[0] > 1:
            x = x + 0.01
        self.seen_long = self.seen_long or x.shape[1] == 65
        return x, held


class Tiny(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self, defect=None):
        super().__init__()
        torch.manual_seed(7)
        self.defect = defect
        self.config = SimpleNamespace(
            vocab_size=50, is_encoder_decoder=False, max_position_embeddings=256, model_type="tiny"
        )
        self.embed = torch.nn.Embedding(50, 16)
        self.place = torch.nn.Embedding(256, 16)
        self.layers = torch.nn.ModuleList([Layer(defect) for _ in range(2)])
        self.head = torch.nn.Linear(16, 50)

    def get_input_embeddings(self):
        return self.embed

    def forward(
        self,
        input_ids,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        use_cache=False,
    ):
        past = past_key_values[0][0].shape[2] if past_key_values else 0
        n = input_ids.shape[1]
        places = self.positions(past, n, position_ids)
        x = self.embed(input_ids) + self.place(places)
        mask = self.mask(past, n, attention_mask)
        cache = []
        for index, layer in enumerate(self.layers):
            x, held = layer(x, mask, past_key_values[index] if past_key_values else None)
            cache.append(held)
        if self.defect == "leaks into a layer":
            x = self.embed(input_ids) + self.place(places)
        return SimpleNamespace(
            logits=self.head(x), past_key_values=tuple(cache) if use_cache else None
        )

    def positions(self, past, n, given):
        counted = torch.arange(past, past + n)[None]
        if self.defect == "ignores position ids":
            return counted
        if self.defect == "counts from the chunk":
            return counted - past
        if self.defect == "guesses from the chunk" and given is None:
            return counted - past
        return counted if given is None else given

    def mask(self, past, n, attention_mask):
        last = torch.arange(past, past + n)[:, None]
        mask = torch.arange(past + n)[None] <= last + (self.defect == "mask leaks")
        if attention_mask is None or (self.defect == "leaks at 33" and n % 32 == 1):
            return mask
        return mask & (attention_mask[:, None, None] == 1)


class Permuted(Tiny):
    """A model that takes the order of its tokens as an argument."""

    def forward(self, input_ids, perm_mask=None, **kwargs):
        return super().forward(input_ids, **kwargs)


class Stacked(torch.nn.Module):
    """Experts as slices of tensors, as 5.x keeps them."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 16, 16))
        self.bias = torch.nn.Parameter(torch.randn(4, 16))

    def __getitem__(self, number):
        return lambda x: x @ self.weight[number] + self.bias[number]


class Mixture(torch.nn.Module):
    """Four experts, of which a router with a correction chooses two for each token, and a shared one."""

    def __init__(self, layout, defect):
        super().__init__()
        self.defect = defect
        self.gate = torch.nn.Linear(16, 4, bias=False)
        self.register_buffer("correction", torch.tensor([[0.1, -0.2, 0.05, 0.3]]))
        self.shared_expert = torch.nn.Linear(16, 16, bias=False)
        made = [torch.nn.Linear(16, 16) for _ in range(4)]
        if layout == "list":
            self.experts = torch.nn.ModuleList(made)
        elif layout == "names":
            named = {f"expert_{number}": expert for number, expert in enumerate(made)}
            self.experts = torch.nn.ModuleDict({**named, "dropout": torch.nn.Dropout(0.1)})
        else:
            self.experts = Stacked()

    def expert(self, number):
        return self.experts[
            f"expert_{number}" if isinstance(self.experts, torch.nn.ModuleDict) else number
        ]

    def forward(self, x):
        scores = torch.softmax(self.gate(x), -1)
        chosen = (scores + self.correction).topk(2, -1).indices
        if self.defect == "takes the mask for numbers":
            chosen = torch.nn.functional.one_hot(chosen, 4).sum(-2)[..., :2]
        result = self.shared_expert(x)
        for number in range(4):
            weight = (scores * (chosen == number).any(-1, keepdim=True))[..., number, None]
            runs = (number + 1) % 4 if self.defect == "runs the next one" else number
            result = result + weight * self.expert(runs)(x)
        return result


class Mixed(Tiny):
    """A tiny model with a mixture behind its layers."""

    layout = "list"

    def __init__(self, defect=None):
        super().__init__(defect)
        self.head = torch.nn.Sequential(Mixture(self.layout, defect), self.head)


def found(defect=None, *, kind=Tiny, **options):
    model = kind(defect).eval()
    with torch.no_grad():
        facts = observe(model, "causal-lm", model.config, options)
    json.dumps(facts, allow_nan=False)
    return facts


def by_name(facts):
    return {r["relation"]: r for r in facts["relations"]}


def violated(facts):
    """Return the relations whose difference stays in float64."""
    small, large = set(), set()
    for r in facts["relations"]:
        promoted = r["promoted"]
        if promoted is None:
            assert r["distance"]["n_differ"] == 0, r
        else:
            is_left = r["relation"] == cases.UNPLACED  # one that a class may break by design
            group = large if promoted["max_abs"] > BROKEN and not is_left else small
            assert promoted["max_abs"] > BROKEN or promoted["max_abs"] < 1e-10, r
            group.add(r["relation"])
    return large


CACHED = {
    "full forward = prefill + decode",
    "prefill split anywhere",
}


def test_a_clean_model_is_not_accused():
    facts = found()
    assert violated(facts) == set()
    assert len(facts["relations"]) == 14
    assert [i["relation"] for i in facts["inapplicable"]] == ["greedy by hand = generate()"]
    assert facts["no_float64"] is None
    assert all(p["used_bits"] >= 22 for p in facts["precision"]), facts["precision"]


def test_a_cache_that_is_dropped_for_chunks():
    facts = found("drops state")
    assert violated(facts) == {
        "prefill split anywhere",
        "multi-token verify = single-token decode",
        "cache contents",
    }
    verify = by_name(facts)["multi-token verify = single-token decode"]
    assert verify["distance"]["n_differ"] == 50
    assert verify["case"] == "25 tokens cached, 2 verified at once"


def test_a_cache_that_forgets_a_token():
    facts = found("forgets")
    assert violated(facts) >= CACHED
    assert not {"right padding", "batch size", "causality"} & violated(facts)
    shown = by_name(facts)["full forward = prefill + decode"]
    assert shown["case"] == "33 tokens, split at 32"
    layers = [layer["distance"]["max_abs"] for layer in shown["layers"]]
    assert len(layers) == 3
    assert layers[0] == 0
    assert min(layers[1:]) > BROKEN
    assert shown["top"][0]["position"] == 32
    assert max(shown["positions"]) == shown["distance"]["max_abs"]


def test_a_mask_that_shows_the_future():
    facts = found("mask leaks")
    assert "causality" in violated(facts)
    assert "left padding" not in violated(facts)
    assert not {"batch position", "batch size", "row order"} & violated(facts)


def test_a_prompt_that_sees_itself_is_meant_of_a_prefix_lm_alone():
    def notes(kind):
        model = Tiny("mask leaks").eval()
        model.config.model_type = kind
        with torch.no_grad():
            relations = by_name(observe(model, "causal-lm", model.config, {}))
        return {name: relations[name]["note"] for name in ("causality", *CACHED, "batch size")}

    meant = {name for name, note in notes("paligemma").items() if "by design" in note}
    assert meant == {"causality", *CACHED}
    assert not any(notes("tiny").values())


def test_a_model_whose_order_is_an_argument_promises_no_causality():
    """XLNet reads later tokens, unless a perm_mask forbids it."""

    facts = found("mask leaks", kind=Permuted)
    assert "causality" not in violated(facts)
    reasons = {i["relation"]: i["reason"] for i in facts["inapplicable"]}
    assert "perm_mask" in reasons["causality"]


def numbered_otherwise(layout, defect):
    """Return the facts of the one relation."""
    model = type("Mixed", (Mixed,), {"layout": layout})(defect).eval()
    judge = Judge(Subject(model, "causal-lm", model.config))
    (relation,) = (each for each in cases.RELATIONS if each.name == EXPERTS)
    with torch.no_grad():
        judge.relation(relation)
    return {"relations": judge.relations}


def test_experts_may_be_numbered_in_any_order():
    for layout in ("list", "names", "stacked"):
        sound = numbered_otherwise(layout, None)
        assert EXPERTS in by_name(sound)
        assert violated(sound) == set()
        for defect in ("takes the mask for numbers", "runs the next one"):
            assert violated(numbered_otherwise(layout, defect)) == {EXPERTS}


def test_experts_are_in_their_order_again():
    model = Mixed().eval()
    ids = torch.arange(9)[None]
    logits = model(ids).logits
    with experts.turned_round(model):
        turned = model(ids).logits
        assert not same_bytes(model.head[0].gate.weight, Mixed().head[0].gate.weight)
    assert float((logits - turned).detach().abs().max()) < 1e-4
    assert same_bytes(model(ids).logits, logits)


def test_experts_without_a_router_are_left_alone():
    model = Mixed()
    model.head[0].gate = torch.nn.Linear(16, 16)  # as many rows as columns: no row is an expert's
    assert experts.blocks(model) == []


def test_positions_that_are_ignored():
    facts = found("ignores position ids")
    assert violated(facts) == {"left padding"}


def test_positions_that_count_from_the_chunk():
    assert violated(found("counts from the chunk")) >= CACHED


def test_positions_that_must_be_given():
    facts = found("guesses from the chunk")
    assert violated(facts) >= {"position ids left out"}
    assert "full forward = prefill + decode" not in violated(facts)
    greedy = by_name(facts)["greedy without cache = with cache"]
    assert greedy["holds"] or greedy["case"].endswith("left out")


def test_padding_that_leaks_one_past_a_block():
    facts = found("leaks at 33")
    assert violated(facts) == {"left padding"}
    assert by_name(facts)["left padding"]["case"] == "31 tokens padded to 33, 1 row"


def test_rows_that_mix():
    assert violated(found("mixes rows")) == {"batch size", "left padding"}


def test_rows_that_know_their_place():
    assert violated(found("knows its row")) >= {"batch position", "row order"}


def test_state_does_not_leak_from_one_relation_into_the_next():
    assert violated(found("remembers")) == set()


def test_nothing_is_said_of_a_model_that_draws():
    facts = found("draws")
    assert facts["relations"] == []
    assert {i["reason"] for i in facts["inapplicable"]} == {determinism.NOT_REPEATED}


def test_a_chaotic_model_is_not_accused():
    facts = found("is chaotic")
    assert facts["no_float64"] == determinism.CHAOTIC
    differ = [r for r in facts["relations"] if r["distance"]["n_differ"]]
    assert differ, "it is not chaotic enough for this test"
    assert {r["promoted"] for r in differ} == {None}


def test_what_a_model_does_in_float32_alone_is_done_in_float64_too():
    assert violated(found("knows float32")) >= CACHED


def test_float32_that_computed_in_bfloat16():
    facts = found("computes in bfloat16")
    used = {p["what"]: p["used_bits"] for p in facts["precision"]}
    assert used["parameters"] >= 22
    assert used["activations"] == 7


def test_a_difference_of_the_layers_alone_has_a_float64_run():
    facts = found("leaks into a layer")
    shown = by_name(facts)["batch size"]
    assert not shown["holds"]
    assert shown["distance"]["n_differ"] == 0
    sizes = [layer["promoted"]["max_abs"] for layer in shown["layers"]]
    assert sizes[0] == 0
    assert all(abs(size - 0.01) < 1e-3 or abs(size - 0.02) < 1e-3 for size in sizes[1:]), sizes
    assert by_name(found())["batch size"]["distance"]["max_abs"] < 1e-5


class State(list):
    """A recurrent state that a forward writes in place."""


class Shared(State):
    """The defect: a copy of it is the state itself."""

    def __deepcopy__(self, memo):
        return self


class Recurrent(Tiny):
    """One state that all tokens so far went into, as an SSM has it."""

    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=False):
        x = self.embed(input_ids)
        if attention_mask is not None:
            x = x * attention_mask[:, -x.shape[1] :, None]
        held = past_key_values or self.cache([torch.zeros(len(x), 16)])
        rows = []
        for token in x.unbind(1):
            held[0].mul_(0.8).add_(token)
            rows.append(held[0].clone())
        logits = self.head(torch.stack(rows, 1))
        return SimpleNamespace(logits=logits, past_key_values=held if use_cache else None)


def tried(model):
    with torch.no_grad():
        return observe(model.eval(), "causal-lm", model.config, {})


def test_a_copied_cache_that_is_the_same_cache():
    facts = tried(Recurrent(Shared))
    assert violated(facts) == {"prefix cache reused"}
    shown = by_name(facts)["prefix cache reused"]
    assert not shown["holds"]
    assert shown["case"].endswith("prompt 2 of 2")
    assert (shown["tried"], len(shown["split"]["one"])) == (2, 20)


def test_a_copied_cache_of_its_own():
    facts = tried(Recurrent(State))
    assert violated(facts) == set()
    shown = by_name(facts)["prefix cache reused"]
    assert shown["holds"]
    assert shown["split"]["step"] is None


QWEN_TEXT = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "image_token_id": 90,
    "video_token_id": 91,
    "vision_start_token_id": 92,
    "vision_end_token_id": 93,
    "bos_token_id": None,
    "eos_token_id": None,
}
QWEN_IMAGE = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 4}


def test_a_prefix_is_reused_as_users_do_who_leave_what_the_model_keeps_of_it():
    """Qwen2-VL keeps the positions of a prefix in a module, and 4.57 raises where they are gone."""
    torch.manual_seed(0)
    config = transformers.Qwen2VLConfig(vision_config=dict(QWEN_IMAGE), **QWEN_TEXT)
    facts = tried(transformers.Qwen2VLForConditionalGeneration(config))
    name = "prefix cache reused"
    assert [skip for skip in facts["inapplicable"] if skip["relation"] == name] == []
    assert by_name(facts)[name]["tried"] == 4


class Keeping(Recurrent):
    """The defect: what a prefix leaves in the module goes into all later logits."""

    left = 0.0

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=False):
        begins = past_key_values is None
        result = super().forward(input_ids, attention_mask, past_key_values, use_cache)
        if begins:
            self.left = float(input_ids.shape[1])
        result.logits = result.logits + self.left
        return result


def test_what_a_prefix_left_in_the_module_is_seen_by_what_follows_it():
    assert "prefix cache reused" in violated(tried(Keeping(State)))


def test_logits_that_are_another_function_do_not_hold_because_the_tokens_agree():
    """What a cache forgets may be too little to change a token."""
    facts = found("forgets")
    for name in ("greedy without cache = with cache", "prefix cache reused"):
        shown = by_name(facts)[name]
        assert shown["holds"] == (name not in violated(facts))


def llama(**changed):
    fields = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    fields |= {"bos_token_id": None, "eos_token_id": None}
    return tiny.made(transformers.LlamaForCausalLM, seed=5, std=0.3, **fields, **changed)


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}


def test_a_rope_that_scales_is_named_beside_what_it_breaks():
    facts = tried(llama(max_position_embeddings=32, rope_scaling=DYNAMIC))
    broke = violated(facts)
    assert broke >= {"full forward = prefill + decode", "cache contents", "causality"}
    notes = {name: by_name(facts)[name]["note"] for name in broke}
    assert all("this dynamic rope" in note for note in notes.values()), notes
    assert not broke & {"right padding", "batch size", "row order", "batch position"}


def test_a_rope_that_has_room_excuses_nothing():
    facts = tried(llama(max_position_embeddings=128, rope_scaling=DYNAMIC))
    assert violated(facts) == set()
    assert {r["note"] for r in facts["relations"]} == {""}


def test_a_plain_rope_is_clean_and_generate_takes_its_cache():
    facts = tried(llama(max_position_embeddings=32))
    assert violated(facts) == set()
    assert {r["note"] for r in facts["relations"]} == {""}
    assert facts["inapplicable"] == []
    shown = by_name(facts)["prefix cache reused"]
    assert (shown["holds"], shown["tried"]) == (True, 4)


SWITCHING = "generate() past a switch of rope = without a cache"
LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0, 4.0, 8.0, 16.0]}


class Rotated(transformers.Phi3ForCausalLM):
    """Keeps the keys that the short factors rotated."""

    def prepare_inputs_for_generation(self, *args, **kwargs):
        return transformers.GenerationMixin.prepare_inputs_for_generation(self, *args, **kwargs)


def phi(kind=transformers.Phi3ForCausalLM, **changed):
    fields = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    fields |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    fields |= {"bos_token_id": None, "eos_token_id": None, "max_position_embeddings": 64}
    fields |= {"original_max_position_embeddings": 16, "rope_scaling": LONG}
    return tiny.made(kind, seed=5, std=0.3, **(fields | changed))


def test_a_rope_that_switches_makes_the_cache_anew():
    switching = by_name(tried(phi()))[SWITCHING]
    assert (switching["holds"], switching["note"]) == (True, "")
    assert switching["case"] == "11 tokens, 8 more"
    kept = by_name(tried(phi(Rotated)))[SWITCHING]
    assert not kept["holds"]
    assert kept["promoted"]["max_abs"] > BROKEN
    for other in (phi(rope_scaling=None), phi(original_max_position_embeddings=4)):
        facts = tried(other)
        assert SWITCHING not in by_name(facts)
        assert SWITCHING not in {i["relation"] for i in facts["inapplicable"]}


def test_a_defect_is_shown_before_what_is_meant():
    """The cache of a scaling rope drops its first token: only shapes within its range show it."""
    model = llama(max_position_embeddings=36, rope_scaling=DYNAMIC)
    forward = type(model).forward

    class Forgetting(type(model)):
        def forward(self, input_ids, past_key_values=None, **kwargs):
            for name, tensor in forks.cache_tensors(past_key_values):
                if name.endswith("values"):
                    tensor[:, :, 0] = 0
            return forward(self, input_ids=input_ids, past_key_values=past_key_values, **kwargs)

    model.__class__ = Forgetting
    shown = by_name(tried(model))["full forward = prefill + decode"]
    assert shown["case"] == "33 tokens, split at 32"
    assert shown["note"] == ""


def test_what_a_forward_left_is_put_back():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model.seen, model.held, model.step = None, [torch.zeros(2)], torch.zeros(2)
    table = model[1].running_mean
    before = Snapshot(model, parameters=True)
    model.seen, model.new = 3, "x"
    model.held.append(1)
    model.step += 1
    model[1].running_mean += 1
    model[1].register_buffer("running_var", torch.zeros(2))
    model[1].register_buffer("late", torch.zeros(2))
    before.restore()
    assert (model.seen, hasattr(model, "new"), len(model.held)) == (None, False, 1)
    assert model.step.tolist() == [0, 0]
    assert model[1].running_mean is table
    assert table.tolist() == [0, 0]
    assert model[1].running_var.tolist() == [1, 1]
    assert "late" not in dict(model.named_buffers())


class Dividing(torch.nn.Linear):
    """rwkv: the first forward divides the weights and notes that it has."""

    divided = False

    def forward(self, x):
        if not self.divided:
            self.weight.data.div_(2)
            self.weight.mul_(1)
            self.divided = True
        return super().forward(x)


def test_weights_that_a_forward_divides_are_put_back_with_its_note_or_neither():
    for kept in (True, False):
        model = Dividing(2, 2)
        model.divided = False
        weight, x = copy.deepcopy(model.weight), torch.ones(1, 2)
        before = Snapshot(model, parameters=kept)
        with torch.no_grad():
            first = model(x)
            before.restore()
            assert model.divided != kept
            assert (distance(weight, model.weight)["n_differ"] == 0) == kept
            assert distance(first, model(x))["n_differ"] == 0


def test_no_hook_is_left_on_the_model():
    model = llama()
    assert tried(model)["relations"]
    hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in model.modules()]
    assert not any(held for pair in hooks for held in pair)


def test_a_forward_that_refuses_does_not_end_the_probe():
    model = Tiny()
    model.forward = lambda **_: (_ for _ in ()).throw(ValueError("no"))
    facts = tried(model)
    assert facts["relations"] == []
    assert facts["no_precision"] == "ValueError: no"
    assert [p["what"] for p in facts["precision"]] == ["parameters"]
    assert found()["no_precision"] is None


def test_averages_over_prompts():
    facts = found(samples=3)["averages"]
    assert facts["samples"] == 3
    assert list(facts["layers"]) == ["embeddings", "layers.0", "layers.1", "logits"]
    assert 0 < facts["layers"]["logits"] < 1e-5


def test_a_model_that_takes_no_tokens_says_so():
    model = Tiny()
    model.main_input_name = "pixel_values"
    facts = observe(model, "image-classification", model.config, {})
    assert facts["relations"] == []
    assert len(facts["inapplicable"]) == 17
    assert facts["inapplicable"][0]["reason"] == "the model takes pixel_values, not tokens"


def test_an_encoder_has_only_the_relations_of_its_rows():
    model = Tiny().eval()
    with torch.no_grad():
        facts = observe(model, "masked-lm", model.config, {})
    names = {r["relation"] for r in facts["relations"]}
    assert names == {"right padding", "batch position", "batch size", "row order"}


def test_every_request_for_a_smaller_float_is_answered_with_float64():
    low = torch.zeros(2, dtype=torch.float64)
    with precision.promotion():
        asked = [
            low.float(),
            low.half(),
            low.to(torch.float32),
            low.to("cpu", torch.bfloat16),
            low.type(torch.float16),
            low.type("torch.FloatTensor"),
            torch.softmax(low, -1, dtype=torch.float32),
            torch.zeros(2, dtype=torch.float32),
            torch.full((2,), 1.0),
            torch.tensor([0.5]),
            torch.arange(2).float(),
            torch.empty_like(low, dtype=torch.float16),
        ]
    assert [t.dtype for t in asked] == [torch.float64] * len(asked)
    assert torch.get_default_dtype() == torch.float32


def test_a_smaller_float_that_nobody_asked_for_is_named():
    with precision.promotion(), precision.Leaks() as leaks:
        torch.from_numpy(np.ones(3, "float32")) * 2
    assert "aten.mul.Tensor" in leaks.leaks


class Decaying(torch.nn.Module):
    """minimax: a table that is computed once, in float32, and a formula for the same numbers."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("decay", torch.exp(-torch.arange(5, dtype=torch.float32) / 3))
        self.register_buffer("learned", torch.zeros(3))


def test_tables_of_the_code_are_computed_again_in_float64():
    model = Decaying(SimpleNamespace())
    model.learned += 0.1
    twin = precision.promoted_copy(model)
    exact = torch.exp(-torch.arange(5, dtype=torch.float64) / 3)
    assert distance(twin.decay, exact)["n_differ"] == 0
    assert distance(twin.learned, model.learned.double())["n_differ"] == 0


def test_grouped_matmul_has_a_float64():
    rows, weights = torch.randn(6, 4).double(), torch.randn(3, 4, 5).double()
    offs = torch.tensor([2, 2, 5], dtype=torch.int32)
    with precision.promotion():
        product = torch._grouped_mm(rows, weights, offs=offs)
    want = [rows[:2] @ weights[0], rows[2:5] @ weights[2], torch.zeros(1, 5).double()]
    assert distance(product, torch.cat(want))["n_differ"] == 0


def test_used_bits():
    exact = torch.randn(999)
    assert used_bits(exact) == 23
    assert used_bits(exact.bfloat16().float()) == 7
    assert used_bits(exact.half().float()) == 10
    assert used_bits(exact.bfloat16()) == 7
    assert used_bits(torch.tensor([1.0, 2.0, 0.0, -0.0])) == 0
    assert used_bits(torch.tensor([1.5, -1.0])) == 1
    assert used_bits(torch.zeros(3)) is None
    assert used_bits(torch.arange(3)) is None


def test_distance_is_by_bytes_first():
    one = torch.tensor([[0.0, float("inf"), 1.0]])
    other = torch.tensor([[-0.0, float("inf"), float("nan")]])
    apart = distance(one, other, logits=True)
    assert (apart["n"], apart["n_differ"]) == (3, 2)
    assert apart["max_abs"] > 1e300
    assert distance(one, one.double())["n_differ"] == 3


def test_rounding_shrinks_and_a_defect_does_not():
    own = {"max_abs": 7e-6}
    assert broken(own, {"max_abs": 7e-6}, torch.float32)
    assert not broken(own, {"max_abs": 7e-15}, torch.float32)
    assert not broken({"max_abs": 0.1}, {"max_abs": 1e-13}, torch.bfloat16)


def test_caches_of_all_releases_are_read():
    t = torch.ones(1, 2, 3, 4)
    names = lambda cache: [name for name, _ in forks.cache_tensors(cache)]
    assert names(None) == []
    assert names(((t, t), (t, t)))[-1] == "layer 1 values"
    assert names((t, t)) == ["state 0", "state 1"]
    lists = SimpleNamespace(key_cache=[t, torch.tensor([[]])], value_cache=[t], ssm_states={1: t})
    assert names(lists) == ["layer 0 keys", "layer 0 values", "layer 1 ssm_states"]
    stacked = SimpleNamespace(conv_states=torch.ones(2, 1, 3), recurrent_states=[None, t])
    assert names(stacked) == [
        "layer 0 conv_states",
        "layer 1 conv_states",
        "layer 1 recurrent_states",
    ]
    layer = SimpleNamespace(keys=t, values=t, conv_states={0: t, 1: None})
    assert names(SimpleNamespace(layers=[layer]))[-1] == "layer 0 conv_states 0"
    both = SimpleNamespace(self_attention_cache=((t, t),), cross_attention_cache=((t, t),))
    assert names(both)[-1] == "cross-attention layer 0 values"


def test_a_model_of_which_no_token_ids_can_be_made_says_so():
    model = Tiny()
    config = transformers.PretrainedConfig()
    facts = observe(model, "base", config, {})
    assert {skip["reason"] for skip in facts["inapplicable"]} == {
        "the config has no vocab_size to choose token ids from"
    }
