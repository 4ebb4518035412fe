"""jobs.ladder: copies in higher precision, what is forced, watched and reordered."""

from contextlib import nullcontext, suppress
from types import SimpleNamespace
from unittest import mock

import torch
from samebits_probe.jobs import ladder
from samebits_probe.model import decode, determinism, precision


class Tiny(torch.nn.Module):
    """A layer that asks for smaller floats by name, as transformers' norms and softmax do."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(3)
        self.proj = torch.nn.Linear(24, 24, dtype=dtype)
        self.tied = self.proj.weight
        self.register_buffer("table", torch.linspace(0, 1, 24).to(dtype))
        self.scale = torch.tensor(0.3, dtype=dtype)

    def forward(self, x):
        wide = torch.softmax(self.proj(x), -1, dtype=torch.float32)
        half = (wide + self.table).to(torch.bfloat16).float()
        return half * self.scale


def test_a_copy_holds_the_same_numbers_in_the_rungs_dtype_and_leaves_the_model():
    model = Tiny(torch.bfloat16)
    for dtype in (torch.float32, torch.float64):
        twin = precision.copy_in(dtype, model, {})
        assert {t.dtype for t in (*twin.parameters(), *twin.buffers(), twin.scale)} == {dtype}
        assert torch.equal(twin.proj.weight, model.proj.weight.to(dtype))
        assert twin.tied is twin.proj.weight
    assert model.proj.weight.dtype == torch.bfloat16


def test_a_copy_shares_no_values_with_its_model_in_any_dtype():
    for dtype in (torch.float32, torch.float64):
        for model in (Tiny(dtype), Tiny(torch.bfloat16)):
            twin = precision.copy_in(dtype, model, {"proj.weight": "bfloat16"})
            before = model.proj.weight.clone()
            with torch.no_grad():
                for tensor in (*twin.parameters(), *twin.buffers()):
                    tensor.zero_()
            assert torch.equal(model.proj.weight, before)
            assert model.proj.bias.any()
            assert model.table.any()


def test_the_finer_side_is_rounded_to_the_coarser_ones_dtype():
    model = Tiny()
    twin = precision.copy_in(torch.float64, model, {"proj.weight": "bfloat16"})
    assert torch.equal(twin.proj.weight, model.proj.weight.bfloat16().double())
    assert torch.equal(twin.proj.bias, model.proj.bias.double())


def test_no_smaller_float_is_left_on_a_rung():
    for dtype in (torch.float32, torch.float64):
        twin = precision.copy_in(dtype, Tiny(torch.bfloat16), {})
        x = torch.ones(2, 24, dtype=dtype)
        watch = ladder.Watch(dtype)
        with torch.no_grad(), precision.arithmetic_in(dtype, torch.bfloat16), watch:
            out = twin(x)
        assert out.dtype == dtype
        assert not watch.leaks
        with torch.no_grad(), ladder.Watch(dtype) as watch:
            twin(x)
        assert watch.leaks, "the check sees nothing"


def test_another_order_of_summation_gives_other_bits_of_the_same_numbers():
    torch.manual_seed(1)
    x, w = torch.randn(7, 96), torch.randn(33, 96)
    plain = torch.nn.functional.linear(x, w)
    with torch.no_grad(), precision.Reordered():
        other = torch.nn.functional.linear(x, w)
    assert not torch.equal(plain, other)
    exact = x.double() @ w.double().T
    assert (other - exact).abs().max() < 1e-4
    with torch.no_grad(), precision.Reordered():
        batch = torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5))
    assert torch.equal(batch, torch.full((2, 3, 5), 5.0))


def test_choices_are_seen_with_their_margins():
    scores = torch.tensor([[1.0, 3.0, 2.5, 0.0], [0.0, 0.0, 5.0, 4.0]])
    with ladder.Watch(None) as watch:
        watch.choices = []
        torch.topk(scores, 2, dim=-1)
        torch.argmax(scores, dim=-1)
        choices, watch.choices = watch.choices, None
        torch.topk(scores, 2, dim=-1)
    assert [op for op, *_ in choices] == ["topk", "argmax"]
    (_, had, chosen, margin), (_, _, best, apart) = choices
    assert torch.equal(had, scores)
    assert chosen.tolist() == [[1, 2], [2, 3]]
    assert margin.tolist() == [1.5, 4.0]
    assert best.tolist() == [[1], [2]]
    assert apart.tolist() == [0.5, 1.0]


def test_all_that_there_is_has_an_infinite_margin():
    assert ladder.margin(torch.ones(3, 2), 2, -1, largest=True).tolist() == [torch.inf] * 3


def test_tokens_are_forced_row_by_row_and_step_by_step():
    (forced,) = decode.forcing([[3, 1], [2]])
    scores = torch.randn(2, 5)
    assert forced(None, scores).argmax(-1).tolist() == [3, 2]
    assert forced(None, scores).argmax(-1).tolist() == [1, 2]


def test_a_refusal_is_a_fact_and_ends_nothing():
    refused = {}
    with ladder._refusal_noted(refused, "forward short"):
        raise NotImplementedError("no float64\nhere")
    assert refused == {"forward short": "NotImplementedError: no float64 here"}


def test_tables_and_plain_attributes_are_computed_again():
    assert computed_again(precision._LARGE, needs_values=False) == [True, True]


def test_a_large_model_is_made_again_without_values_unless_its_class_reads_them():
    assert computed_again(0, needs_values=False) == [True, False]
    assert computed_again(0, needs_values=True) == [True, False, True]


def computed_again(limit, *, needs_values):
    """Return of each model that was made whether its parameters had values."""
    made = []

    class Config:
        pass

    class Model(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.weight = torch.nn.Parameter(torch.ones(2))
            made.append(not self.weight.is_meta)
            self.first = self.weight[0].item() if needs_values else 1.0
            self.scale = torch.sqrt(torch.tensor(12.0, dtype=torch.float32))
            self.register_buffer("table", torch.arange(1, 9, dtype=torch.float32) ** -0.5)

    model = Model(Config())
    twin = precision.copy_in(torch.float64, model, {})
    assert twin.scale.item() != 12.0**0.5
    with mock.patch.object(precision, "_LARGE", limit):
        precision.compute_again(twin)
    assert twin.scale.item() == 12.0**0.5
    assert torch.equal(twin.table, torch.arange(1, 9, dtype=torch.float64) ** -0.5)
    return made


def test_code_that_asks_for_the_dtype_takes_the_branch_of_its_own():
    def branching(x):
        scaled = x * 1.001 if x.dtype == torch.float32 else x
        return torch.nn.functional.softmax(scaled, -1, dtype=x.dtype)

    x = torch.randn(3, 8, dtype=torch.float64)
    want = torch.softmax(x * 1.001, -1)
    with precision.arithmetic_in(torch.float64, torch.float32), ladder.Watch(None):
        told, ids = x.dtype, torch.zeros(2, dtype=torch.int64).dtype
        given = branching(x)
        with precision.real_dtypes():
            real = given.dtype
    assert (told, ids, real) == (torch.float32, torch.int64, torch.float64)
    assert torch.equal(given, want)
    with precision.arithmetic_in(torch.float64, torch.bfloat16):
        assert x.dtype == torch.float64
        assert torch.equal(branching(x), torch.softmax(x, -1))


def test_a_claimed_dtype_is_no_leak():
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    watch = ladder.Watch(torch.float64)
    with precision.arithmetic_in(torch.float64, torch.float32), watch:
        scripted(torch.randn(3, dtype=torch.float64))
    assert not watch.leaks


def leaking(steps, watch):
    """Decode so many steps; each leaks by an operation of its own, and says so only if watched."""
    ops = (torch.sin, torch.cos, torch.tan, torch.exp, torch.sinh, torch.cosh, torch.tanh)
    x = torch.ones(2, dtype=torch.float32)
    with ladder._at_steps(watch, steps) as begin:
        for step, op in enumerate(ops[:steps], start=1):
            op(x)
            begin(step)


def test_a_decode_is_watched_at_its_first_steps_and_its_last():
    for steps, seen in ((7, "sin cos tan tanh"), (4, "sin cos tan exp"), (1, "sin")):
        watch = ladder.Watch(torch.float64)
        leaking(steps, watch)
        assert watch.leaks == {f"aten.{op}.default" for op in seen.split()}, steps
        assert not torch._C._len_torch_dispatch_stack()
    leaking(7, None)


def test_what_fails_in_a_decode_leaves_nothing_watched():
    watch = ladder.Watch(torch.float64)
    with suppress(ValueError), ladder._at_steps(watch, 3):
        raise ValueError
    assert not torch._C._len_torch_dispatch_stack()


def test_noise_is_measured_where_float64_is_refused_and_not_where_it_is_chaotic():
    class Cell(ladder.Ladder):
        def __init__(self, reason):
            self.reason = reason
            self.source = SimpleNamespace(dtype="float32")
            self.loaded = SimpleNamespace(model=None)

        def _promoted(self, _dtype):
            return ladder._empty_rung(self.reason)

        def _noise(self):
            return ladder._empty_rung()

        def _rung(self, *_):
            return ladder._empty_rung()

    assert list(Cell("not computed in float64").climb()) == ["float64", "noise", "own"]
    assert list(Cell(determinism.CHAOTIC).climb()) == ["float64", "own"]


def test_float32_of_a_large_model_is_left_out_until_it_is_asked_for():
    class Cell(ladder.Ladder):
        def __init__(self, copy_bytes, refused="", *, dtype="bfloat16", **asked):
            self._copy_bytes, self.refused = copy_bytes, refused
            self.job = {"task": {"float32": False, "probe_files": []} | asked}
            self.source = SimpleNamespace(dtype=dtype)
            self.loaded = SimpleNamespace(model=None)

        def _promoted(self, dtype):
            return ladder._empty_rung(self.refused if dtype == torch.float64 else "")

        def _noise(self):
            return ladder._empty_rung()

        def _rung(self, *_):
            return ladder._empty_rung()

    large = 1 << 30
    assert list(Cell(large).climb()) == ["float64", "own"]
    assert list(Cell(large, dtype="float32").climb()) == ["float64", "own"]
    every = ["float64", "float32", "own"]
    assert list(Cell(1 << 20).climb()) == every
    assert list(Cell(large, float32=True).climb()) == every
    assert list(Cell(large, probe_files=["mine.py"]).climb()) == every
    assert list(Cell(large, "an operation").climb()) == ["float64", "float32", "noise", "own"]


class Chaotic(torch.nn.Module):
    """An embedding and as many turns of the logistic map as told."""

    def __init__(self, turns):
        super().__init__()
        torch.manual_seed(2)
        self.turns, self.embed = turns, torch.nn.Embedding(9, 4, dtype=torch.float64)

    def get_input_embeddings(self):
        return self.embed

    def forward(self):
        state = torch.sigmoid(self.embed(torch.arange(9)))
        for _ in range(self.turns):
            state = 3.99 * state * (1 - state)
        return state


def test_chaos_is_told_from_a_model_that_is_only_deep():
    for turns, chaotic in ((0, False), (10, False), (80, True)):
        model = Chaotic(turns)
        with torch.no_grad():
            assert determinism.chaotic(model, model.forward) == chaotic, turns
    assert determinism.chaotic(torch.nn.Linear(2, 2), lambda: torch.ones(2)) is False


class Placed(torch.nn.Module):
    """A layer whose kernel would round by where its weight begins; a state moves every call."""

    def __init__(self, behind, *, keeps_state=False):
        super().__init__()
        room = torch.ones(64)
        skip = (behind - room.data_ptr() % 64) % 64 // 4
        self.weight = torch.nn.Parameter(room[skip : skip + 16])
        self.calls, self.keeps_state = 0, keeps_state

    def forward(self, x):
        self.calls += 1
        moved = self.weight.data_ptr() % 64 + (self.calls if self.keeps_state else 0)
        return SimpleNamespace(logits=(x * self.weight + moved)[None])


def again(model, what="forward short"):
    """Return what a cell leaves of aligned tensors, and of its own rung."""

    class Cell(ladder.Ladder):
        def __init__(self):
            asked = {"again": [what] if what else [], "forced": {}, "observed": {}}
            self.job = {"task": asked | {"decodes": None, "own_decodes": None}}
            self.loaded = SimpleNamespace(model=model)
            self.keeper = SimpleNamespace(ref=lambda tensor: tensor.tolist())

        def _prompts(self, _dtype):
            yield "short", SimpleNamespace(kwargs={"x": torch.arange(16.0)})

    with torch.no_grad():
        own = {"short": {"logits": model(torch.arange(16.0)).logits.tolist()}}
    (found,) = Cell().aligned({"forward": own, "decode": {}}) or [None]
    return found, own["short"]["logits"]


def test_what_aligned_tensors_give():
    moved, own = again(Placed(4))
    kept, aligned = again(Placed(0))
    assert own != aligned
    assert moved["refs"] == kept["refs"] == {"short": aligned}
    assert (moved["off"], moved["repeats"], moved["refused"]) == (1, True, "")
    assert (kept["off"], kept["repeats"]) == (0, True)
    assert again(Placed(4), what="")[0] is None


def test_a_state_is_told_from_a_place_in_memory():
    assert again(Placed(4, keeps_state=True))[0]["repeats"] is False


def test_what_refuses_to_run_again_says_so():
    class Once(Placed):
        def forward(self, x):
            if self.calls:
                raise MemoryError("no room")
            return super().forward(x)

    found, _ = again(Once(4))
    assert (found["repeats"], found["refs"]) == (None, {})
    assert found["refused"] == "MemoryError: no room"


class Decoder(ladder.Ladder):
    """A cell that notes what it decodes, and of which one prompt leaves a state."""

    def __init__(self, off=0, **asked):
        told = {"again": [], "observed": {}, "decodes": None, "own_decodes": None}
        self.job = {"task": told | asked}
        self.loaded = SimpleNamespace(model=Placed(off))
        self.decoded = []

    def _prompts(self, _dtype):
        for name in ("short", "long", "padded"):
            yield name, SimpleNamespace(kwargs={"x": torch.arange(16.0)})

    def _forward(self, *_args, **_options):
        return {"logits": None}

    def _decode(self, _model, name, *_args, **_options):
        self.decoded.append(name)
        return {name: {"hash": name}}


def decoded(dtype, **asked):
    """Return what one rung decodes, and what the cell says that it did not decode."""
    cell = Decoder(**asked)
    cell._rung(None, nullcontext(), dtype)
    return cell.decoded, cell.not_decoded()


def test_only_what_is_asked_is_decoded():
    every = ["short", "long", "padded"]
    assert decoded(None) == (every, [])
    assert decoded(torch.float64) == (every, [])
    asked = {"decodes": ["long", "padded"], "own_decodes": ["padded"]}
    assert decoded(torch.float64, **asked) == (["long", "padded"], ["short", "long"])
    assert decoded(None, **asked) == (["padded"], ["short", "long"])


def test_a_decode_to_align_is_decoded_in_the_own_dtype_only_if_a_tensor_must_move():
    asked = {"own_decodes": [], "again": ["decode long"]}
    assert decoded(None, off=4, **asked) == (["long"], ["short", "padded"])
    assert decoded(None, off=0, **asked) == ([], ["short", "long", "padded"])


def test_a_decode_that_is_not_made_is_that_of_the_cells_run():
    own = {"short": {"hash": "of the run"}}
    cell = Decoder(own_decodes=[], again=["decode short"], observed={"decode short": own})
    (found,) = cell.aligned({"forward": {}, "decode": {}})
    assert (found["off"], found["repeats"], found["refs"]) == (0, True, own)


def test_bits_of_the_cells_run_need_no_second_forward():
    for run, decodes in (("short", 1), ("other", 2)):
        observed = {"decode short": {"short": {"hash": run}}}
        cell = Decoder(off=4, again=["decode short"], observed=observed)
        (found,) = cell.aligned({"forward": {}, "decode": {"short": {"hash": "short"}}})
        assert cell.decoded == ["short"] * decodes, run
        assert found["repeats"] is True
