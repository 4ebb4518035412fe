"""Relations of rows: a planted violation in any output is caught, and a clean twin is not accused."""

import torch
from samebits_probe.questions.relations import embedded, generated, pictured, rows
from samebits_probe.questions.relations.relations import observe

BROKEN = 1e-4
"""Every planted violation is larger in float64, and rounding is far smaller."""


class Encoder(torch.nn.Module):
    """Takes numbers and a mask, and returns states, their masked mean and a score per row."""

    main_input_name = "features"

    def __init__(self, defect=""):
        super().__init__()
        torch.manual_seed(0)
        self.defect = defect
        self.lift = torch.nn.Linear(5, 24)
        self.mix = torch.nn.MultiheadAttention(24, 4, batch_first=True)
        self.score = torch.nn.Linear(24, 3)
        self.n_calls = 0

    def forward(self, features, attention_mask=None, scale=1.0):
        self.n_calls += 1
        states = torch.tanh(self.lift(features) * scale)
        if attention_mask is None:
            attention_mask = torch.ones(states.shape[:2], dtype=torch.int64)
        real = attention_mask.bool()
        states = states + self.mix(states, states, states, key_padding_mask=~real)[0]
        weights = real if self.defect != "counts pads" else torch.ones_like(real)
        mean = (states * real[..., None]).sum(1) / weights.sum(1, keepdim=True)
        if self.defect == "mixes rows":
            mean = mean + 0.01 * mean.mean(0, keepdim=True)
        scores = self.score(mean)
        if self.defect == "knows its place":
            scores = scores + 0.01 * torch.arange(len(scores)).to(scores.dtype)[:, None]
        if self.defect == "draws":
            scores = scores + torch.rand_like(scores)
        if self.defect == "counts calls":
            scores = scores * self.n_calls
        if self.defect == "refuses pairs" and len(features) > 1:
            raise ValueError("one row at a time")
        if self.defect == "draws all":
            states, mean, scores = (t + torch.rand_like(t) for t in (states, mean, scores))
        table = scores @ scores.T  # all rows against all rows
        if self.defect == "has a loss":
            loss = scores.square().mean().repeat(len(scores))
            return {"mean": mean, "codebook_loss": loss}
        return {"states": states, "mean": mean, "scores": scores, "table": table}


def batch(rows=2, width=7):
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(rows, width, dtype=torch.int64)
    if rows > 1:
        mask[0, 4:] = 0
    features = torch.rand(rows, width, 5, generator=generator)
    return {"features": features, "attention_mask": mask, "scale": 1.5}


def relations(defect="", kwargs=None):
    model = Encoder(defect).eval()
    answer = rows.observe(model, [("p", batch() if kwargs is None else kwargs)])
    return {facts["relation"]: facts for facts in answer.relations}, answer


def distances(facts):
    """Return output -> distance in float64, or 0 where the bytes agree in float32."""
    layers = facts["layers"]
    return {
        layer["name"]: layer["promoted"]["max_abs"] if layer["promoted"] else 0.0
        for layer in layers
    }


def test_a_clean_model_breaks_nothing():
    for kwargs in (batch(), batch(rows=1), batch(rows=3)):
        found, answer = relations(kwargs=kwargs)
        assert set(found) == set(rows.NAMES), answer
        assert answer.no_float64 is None
        for facts in found.values():
            assert max(distances(facts).values()) < 1e-12, facts


def broken_outputs(defect, name):
    found, _ = relations(defect)
    return {output for output, size in distances(found[name]).items() if size > BROKEN}


def test_rows_that_are_mixed_are_seen_in_what_follows_and_nowhere_else():
    assert broken_outputs("mixes rows", rows.SIZE) == {"output mean", "output scores"}
    assert broken_outputs("mixes rows", rows.ORDER) == set()


def test_a_row_that_knows_its_place_is_seen():
    assert broken_outputs("knows its place", rows.ORDER) == {"output scores"}
    assert broken_outputs("knows its place", rows.SIZE) == {"output scores"}


def test_masked_positions_that_count_are_seen():
    assert broken_outputs("counts pads", rows.PADDING) == {"output mean", "output scores"}
    assert broken_outputs("counts pads", rows.SIZE) == set()


def test_a_table_of_all_rows_is_no_row():
    found, _ = relations()
    names = {layer["name"] for layer in found[rows.SIZE]["layers"]}
    assert names == {"output states", "output mean", "output scores"}


def test_a_loss_that_each_row_has_is_no_row():
    found, _ = relations("has a loss")
    assert {*distances(found["batch size"])} == {"output mean"}


def test_a_model_that_does_not_repeat_is_not_accused():
    found, answer = relations("draws all")
    assert found == {}
    assert all("draws or counts" in skip["reason"] for skip in answer.inapplicable)


def test_an_output_that_is_drawn_is_not_compared_and_the_others_are():
    found, _ = relations("draws")
    for facts in found.values():
        assert "output scores" not in distances(facts)
        assert max(distances(facts).values()) < 1e-12


def test_calls_that_a_module_counts_are_undone():
    found, answer = relations("counts calls")
    assert set(found) == set(rows.NAMES), answer
    assert max(distances(found[rows.SIZE]).values()) < 1e-12


def test_a_model_that_takes_one_row_says_so():
    found, answer = relations("refuses pairs")
    assert found == {}
    assert all("one row at a time" in skip["reason"] for skip in answer.inapplicable)


def test_without_a_mask_there_is_no_padding():
    kwargs = batch()
    del kwargs["attention_mask"]
    found, answer = relations(kwargs=kwargs)
    assert set(found) == {rows.SIZE, rows.ORDER}
    assert [skip["relation"] for skip in answer.inapplicable] == [rows.PADDING]


def test_arguments_without_common_rows_are_left_alone():
    found, answer = relations(kwargs=batch() | {"table": torch.ones(5)})
    assert found == {}
    assert len(answer.inapplicable) == 3


def test_of_several_prompts_the_worst_is_returned():
    model = Encoder("counts pads").eval()
    kwargs = batch()
    answer = rows.observe(model, [("same", kwargs), ("larger", kwargs | {"scale": 3.0})])
    facts = next(f for f in answer.relations if f["relation"] == rows.PADDING)
    assert facts["tried"] == 2
    assert facts["case"].startswith("larger")


def test_they_stand_beside_the_relations_of_tokens_that_do_not_apply():
    model = Encoder("mixes rows").eval()
    facts = observe(model, "base", None, {}, [("p", batch())])
    assert {relation["relation"] for relation in facts["relations"]} == set(rows.NAMES)
    reasons = {skip["relation"]: skip["reason"] for skip in facts["inapplicable"]}
    assert len(reasons) == 14 + len(embedded.NAMES) + len(generated.NAMES) + len(pictured.NAMES)
    of_generation = {reasons.pop(name) for name in generated.NAMES}
    assert of_generation == {"Encoder does not generate"}
    of_embeddings = {reasons.pop(name) for name in embedded.NAMES}
    assert of_embeddings == {"no prompt of it has token ids"}
    (of_images,) = {reasons.pop(name) for name in pictured.NAMES}
    assert of_images.startswith("no prompt of it has several rows")
    assert set(reasons.values()) == {"the model takes features, not tokens"}


def test_a_case_that_is_apart_by_design_hides_no_other():
    def case(label, in_float64, note=""):
        apart = {"max_abs": 0.5, "n_differ": 1}
        promoted = {"max_abs": in_float64}
        named = {"relation": "padded", "case": label, "note": note}
        return rows.Answer([named | {"distance": apart, "promoted": promoted}], [], None)

    designed, broken = case("designed", 0.5, "by design"), case("broken", 0.4)
    rounded = case("rounded", 1e-9)
    for answers, worst in (
        ((designed, broken, rounded), "broken"),
        ((designed, rounded), "designed"),
        ((broken, rounded), "broken"),
    ):
        (relation,) = rows.worst_of(answers, ["padded"]).relations
        assert (relation["case"], relation["tried"]) == (worst, len(answers))
