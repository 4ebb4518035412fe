"""graft: what is put in lies where it should, and what does not fit is refused."""

import tempfile

import torch
from raising import raised
from samebits_probe.graft import graft, places, state
from samebits_probe.graft.bench import Bench, Output
from samebits_probe.graft.suspects import Suspects
from samebits_probe.model.tensor import Keeper

SDPA = torch.nn.functional.scaled_dot_product_attention


class Tiny(torch.nn.Module):
    """A model with everything that can be given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.proj = torch.nn.Linear(6, 6)
        self.register_buffer("table", torch.linspace(0, 1, 6), persistent=False)
        self.scale = 0.5
        self.plain = torch.ones(2)

    def forward(self, x):
        return self.proj(x * self.table) * self.scale


def kept(tensor):
    return {"sum": float(tensor.detach().double().sum())}


def test_a_survey_knows_tensors_attributes_and_places():
    class Config:
        _attn_implementation = "sdpa"

    model = Tiny()
    model.config = Config()
    found = state.survey(model, kept, ["proj.weight", "no.such"])
    assert set(found["weights"]) == {"proj.weight"}
    assert set(found["buffers"]) == {"table"}
    assert found["attributes"]["scale"] == {"plain": 0.5, "type": "float"}
    assert found["attributes"]["plain"] == {"tensor": {"sum": 2.0}}
    assert found["memory"]["proj.weight"][0] == model.proj.weight.data_ptr() % 64
    assert found["attention"] == "sdpa"
    assert found["experts"] is None


def test_numbers_are_written_where_the_old_ones_lie_and_other_shapes_replace_them():
    model = Tiny()
    place = model.proj.weight.data_ptr()
    with torch.no_grad():
        state.put_tensor(model, "proj.weight", torch.full((6, 6), 2.0))
        state.put_tensor(model, "table", torch.ones(3))
        state.put_tensor(model, "plain", torch.zeros(4))
    assert model.proj.weight.data_ptr() == place
    assert model.proj.weight[0, 0] == 2.0
    assert model.table.shape == (3,)
    assert "table" in dict(model.named_buffers())
    assert model.plain.shape == (4,)
    reason = raised(places.Unfit, state.put_tensor, model, "proj.nothing", torch.ones(1))
    assert "there is no proj.nothing" in str(reason)


def test_parameters_move_to_the_places_that_are_asked_for_and_keep_their_numbers():
    model = Tiny()
    before = model.proj.weight.clone()
    shape, strides = [6, 6], [6, 1]
    for behind in (4, 0, 60, 32):
        state.put_memory(model, {"proj.weight": [behind, shape, strides], "other": [4, [1], [1]]})
        assert model.proj.weight.data_ptr() % 64 == behind
        assert model.proj.weight.equal(before)
    state.put_memory(model, {"proj.weight": [4, [3, 3], [3, 1]]})
    assert model.proj.weight.data_ptr() % 64 == 32


def test_a_factor_goes_to_the_name_that_the_module_has():
    model = Tiny()
    model.attention_scaling, model.sliding_attention_scaling = 1.0, 1.0
    state.put_scaling(model, "inv_freq", 2.0)
    state.put_scaling(model, "sliding_inv_freq", 3.0)
    assert (model.attention_scaling, model.sliding_attention_scaling) == (2.0, 3.0)


def patient(donor, mine, names=("logits",)):
    """Return how far outputs are from the donor's, as a patient says it."""
    told = object.__new__(graft.Patient)
    outputs = [
        {"name": n, "rows": "there", "ref": {"stored": True, "shape": list(t.shape)}}
        for n, t in zip(names, donor)
    ]
    told.question = {"what": "forward", "compared": [[i, i] for i in range(len(names))]}
    told._donor, told._numbers = {"outputs": outputs}, dict(zip(names, donor))
    return told._standing([Output(n, "here", "here", t) for n, t in zip(names, mine)])


def test_a_distance_that_is_no_number_is_not_taken_for_none():
    one = torch.tensor([1.0, 2.0])
    assert patient([one], [one + 0.5])["max_abs"] == 0.5
    for broken in (torch.tensor([float("nan"), 2.0]), torch.tensor([float("inf"), 2.0])):
        assert patient([one], [broken])["max_abs"] is None
    assert patient([torch.empty(0)], [torch.empty(0)])["max_abs"] == 0.0
    layers = patient([one], [one], names=("layers.0",))
    assert (layers["first"], layers["max_abs"]) == ("layers.0", None)


def test_what_cannot_be_compared_with_the_cells_own_run_is_not_tried():
    bench = object.__new__(Bench)
    output = Output("step 0", "whole", "rows", torch.ones(1))
    for expected, said in ((["whole"], ""), (["", "whole"], ""), (["", ""], "stored nothing")):
        bench.question = {"expected": expected}
        told = bench.mismatch([output] * len(expected))
        assert said in told
        assert bool(said) == bool(told)


def test_suspects_of_two_kinds_never_share_a_name():
    places_of = {"weights": {}, "memory": {}, "attention": None, "experts": None}
    held = {f"layers.{i}.x": {"plain": i, "type": "int"} for i in (2, 3)}
    other = {f"layers.{i}.x": {"plain": 9, "type": "int"} for i in (2, 3)}
    with tempfile.TemporaryDirectory() as root:
        keeper = Keeper(root, 1 << 20, [])
        theirs = {f"layers.{i}.x": keeper.ref(torch.tensor([float(i)])) for i in (0, 1)}
        mine = {f"layers.{i}.x": keeper.ref(torch.tensor([9.0])) for i in (0, 1)}
        donor = {"state": {**places_of, "buffers": theirs, "attributes": held}, "seen": {}}
        asked = {"untried": [], "weights": [], "buffers": [], "config": {}}
        state_here = {**places_of, "buffers": mine, "attributes": other}
        found = Suspects(donor, state_here, {}, asked, keeper.root).ordered
    assert [s.name for s in found] == ["buffer layers.*.x", "attribute layers.*.x"]


class Attending(torch.nn.Module):
    """Calls the kernel as one release does, on keys that two heads share."""

    def __init__(self, packed, mask=None):
        super().__init__()
        self.packed, self.mask = packed, mask
        torch.manual_seed(2)
        self.query, self.key = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 5, 8)

    def forward(self):
        query, key, mask = self.query, self.key, self.mask
        if self.packed:
            query = query.reshape(2, 2, 2, 8)
            mask = mask if mask is None or mask.shape[1] == 1 else mask.reshape(2, 2, 2, 5)
        else:
            key = key.repeat_interleave(2, dim=1)
        return SDPA(query, key, key, attn_mask=mask).reshape(2, 4, 1, 8)


def config(model):
    model.config = type("Config", (), {"model_type": "none"})()
    return model


def seen(model):
    with places.Places(config(model), lambda t: {"hash": t.numpy().tobytes().hex()}) as found:
        output = model()
    return found.seen, output


def test_a_call_is_laid_out_as_the_other_side_does_it_and_gives_its_bytes():
    for mask in (None, torch.randn(2, 1, 1, 5), torch.randn(2, 4, 1, 5)):
        for packed in (True, False):
            donor, wanted = seen(Attending(packed, mask))
            patient = config(Attending(not packed, mask))
            with places.Places(patient, None, {places.LAYOUT: donor["layout"]}) as used:
                output = patient()
            assert used.used[places.LAYOUT] == 1
            assert output.equal(wanted)


def test_keys_that_are_no_repetition_are_not_taken_for_one():
    for tensor, shape in (
        (torch.randn(1, 4, 3, 2), [1, 2, 3, 2]),
        (torch.randn(1, 2, 3, 2), [1, 2, 4, 2]),
    ):
        raised(places.Unfit, places._with_heads, "key", tensor, shape)
    # heads of several tokens do not lie one behind the other
    raised(places.Unfit, places._with_heads, "query", torch.randn(1, 4, 3, 2), [1, 2, 6, 2])


def test_a_mask_and_a_scale_are_put_in_and_everything_is_as_before_afterwards():
    mask = torch.randn(2, 1, 1, 5)
    donor, wanted = seen(Attending(False, mask))
    patient = config(Attending(False))
    plain = patient()
    given = {places.MASK: [{"mask": mask, "is_causal": False}], places.SCALE: donor["scale"]}
    with places.Places(patient, None, given):
        assert patient().equal(wanted)
    assert patient().equal(plain)
    with places.Places(patient, None, {places.SCALE: [{"scale": 3.0}]}):
        assert not patient().equal(plain)


def test_what_passes_more_often_than_it_was_given_is_refused():
    patient = config(Attending(False))
    given = {places.SCALE: [{"scale": 1.0}, {"scale": 1.0}]}
    with places.Places(patient, None, given):
        patient()
        patient()
        reason = raised(places.Unfit, patient)
        assert "more than 2 times" in str(reason)


class Heading(torch.nn.Module):
    """Computes as many positions at its end as it is told."""

    def forward(self, x, logits_to_keep=0):
        return x[:, -logits_to_keep:]


def test_the_head_computes_as_many_positions_as_the_other_sides():
    model, x = config(Heading()), torch.randn(1, 5, 2)
    with places.Places(model, None, {places.HEAD: [{"positions": 0}]}):
        assert model(x, logits_to_keep=1).shape[1] == 5
    with places.Places(model, lambda t: {}) as found:
        model(x, logits_to_keep=1)
        model(x)
    assert found.seen[places.HEAD] == [{"positions": 1}, {"positions": 0}]


def test_a_cache_is_known_by_its_layers_and_a_plain_one_by_one_name():
    import transformers
    from samebits_probe.model import forks

    plain = transformers.DynamicCache()
    assert forks.cache_kinds(plain) == ["DynamicLayer"]
    plain.update(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1), 0)
    assert forks.cache_kinds(plain) == ["DynamicLayer"]
    assert forks.cache_kinds(None) == ["NoneType"]


def apply_rotary_rows(q, cos, sin, position_ids=None):
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    return q * cos + q * sin


class Turning(torch.nn.Module):
    """Applies rows of a table, or a table of all positions and the places in it."""

    def __init__(self, whole, shift=0.0):
        super().__init__()
        self.whole = whole
        self.table = torch.arange(12.0).reshape(6, 2) + shift

    def forward(self, q):
        if self.whole:
            ids = torch.tensor([[2, 3, 4]])
            return apply_rotary_rows(q, self.table, self.table, position_ids=ids)
        return apply_rotary_rows(q, self.table[None, 2:5], self.table[None, 2:5])


def test_rows_of_cos_and_sin_are_put_in_whether_they_are_cut_before_or_inside():
    q = torch.randn(1, 3, 2)
    tables = {}
    for whole in (True, False):
        with places.Places(config(Turning(whole)), lambda t: {"tensor": t}) as found:
            wanted = Turning(whole)(q)
        (tables[whole],) = found.seen[places.ROPE]
    assert tables[True]["cos"]["tensor"].equal(tables[False]["cos"]["tensor"])
    given = {part: fact["tensor"] for part, fact in tables[True].items()}
    for whole in (True, False):
        patient = config(Turning(whole, shift=0.5))
        with places.Places(patient, None, {places.ROPE: [given]}):
            assert patient(q).equal(wanted)
        assert not patient(q).equal(wanted)


def test_a_length_is_no_position():
    assert not places._are_integers(torch.tensor(7))
    assert places._are_integers(torch.tensor([7]))
    assert not places._are_integers(torch.tensor([7.0]))
