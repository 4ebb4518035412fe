"""Relations of embeddings: a planted difference from token ids is caught, and a clean twin is not accused."""

import functools
import sys
import types

import tiny
import torch
import transformers
from samebits_probe.model import precision
from samebits_probe.questions.relations import embedded
from samebits_probe.questions.relations.relations import observe

torch.set_num_threads(1)
IDS = torch.tensor([[5, 17, 44, 23, 9, 61, 33, 12, 7]])
PROMPT = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


class Planted(transformers.LlamaForCausalLM):
    plant = ""

    def forward(self, input_ids=None, inputs_embeds=None, **kwargs):
        if self.plant == "refused" and inputs_embeds is not None:
            raise ValueError("embeddings are not taken")
        if self.plant == "scaled" and input_ids is not None:
            inputs_embeds = self.get_input_embeddings()(input_ids) * 32**0.5
            input_ids = None
        if self.plant == "beside" and input_ids is not None:
            inputs_embeds = self.get_input_embeddings()(input_ids) + input_ids[..., None] / 9
            input_ids = None
        if self.plant == "turned" and inputs_embeds is not None:
            inputs_embeds = inputs_embeds.flip(1)
        return super().forward(input_ids=input_ids, inputs_embeds=inputs_embeds, **kwargs)


def found(plant="", prompts=(("short", PROMPT),)):
    made = tiny.model()
    if plant:
        made.__class__ = type("PlantedForCausalLM", (Planted,), {"plant": plant})
    answer = embedded.observe(made, prompts)
    assert not answer.no_float64, answer
    return {r["relation"]: r for r in answer.relations}, answer.inapplicable


def test_a_clean_model_holds_both_relations():
    answer, skips = found()
    assert set(answer) == set(embedded.NAMES)
    assert all(relation["holds"] for relation in answer.values())
    assert not skips


def test_embeddings_that_are_turned_break_both_relations_and_nothing_explains_it():
    answer, _ = found("turned")
    for relation in answer.values():
        assert not relation["holds"]
        assert relation["promoted"]["max_abs"] > 1e-3, relation
        assert relation["note"] == ""


def test_what_else_is_made_of_token_ids_is_said():
    notes = {plant: found(plant)[0][embedded.FORWARD]["note"] for plant in ("scaled", "beside")}
    assert "root of their width" in notes["scaled"], notes
    assert "beside" in notes["beside"], notes


def test_a_refusal_is_recorded_with_its_exception():
    answer, skips = found("refused")
    assert not answer
    assert [skip["raised"] for skip in skips] == [True, True]
    assert all("embeddings are not taken" in skip["reason"] for skip in skips)


def test_a_plain_forward_that_raises_and_ids_beyond_the_table_are_no_refusal():
    answer, skips = found(prompts=[("short", {"input_ids": IDS + 60})])
    assert not answer
    assert all("the plain forward raised" in skip["reason"] for skip in skips)
    made = tiny.model()
    made.get_input_embeddings = lambda: torch.nn.Embedding(8, 32)
    (forward, generate) = embedded.observe(made, [("short", PROMPT)]).inapplicable
    assert not forward.get("raised"), forward
    assert not generate.get("raised"), generate


@functools.cache
def bart():
    return tiny.bart(vocab_size=99, max_position_embeddings=1024, scale_embedding=True)


def test_an_encoder_decoder_is_asked_for_both_of_its_parts():
    prompt = PROMPT | {"decoder_input_ids": IDS[:, :4]}
    answer = embedded.observe(bart(), [("short", prompt)])
    (forward, generate) = answer.relations
    assert forward["holds"], answer
    assert generate["holds"], answer
    assert forward["tried"] == 2


def test_an_image_stays_beside_the_embeddings():
    class Seeing(torch.nn.Module):
        def __init__(self, plant):
            super().__init__()
            torch.manual_seed(0)
            self.plant, self.table = plant, torch.nn.Embedding(99, 8)
            self.see = torch.nn.Linear(12, 8)

        def get_input_embeddings(self):
            return self.table

        def forward(self, input_ids=None, pixel_values=None, inputs_embeds=None):
            seen = self.see(pixel_values.flatten(1))[:, None]
            if self.plant and inputs_embeds is not None:
                seen = seen * 0
            states = self.table(input_ids) if inputs_embeds is None else inputs_embeds
            return {"logits": (states + seen) @ self.table.weight.T}

    prompt = {"input_ids": IDS, "pixel_values": torch.linspace(0, 1, 12).reshape(1, 3, 2, 2)}
    for plant in (False, True):
        (relation,) = embedded.observe(Seeing(plant), [("image", prompt)]).relations
        assert relation["holds"] is not plant, relation


def test_a_model_without_embeddings_and_one_of_relations_say_so():
    class Bare(torch.nn.Module):
        def forward(self, input_ids):
            return input_ids

    answer = embedded.observe(Bare(), [("short", PROMPT)])
    assert {s["reason"] for s in answer.inapplicable} == {"forward takes no inputs_embeds"}
    made = tiny.model()
    signal = observe(made, "causal-lm", made.config, {"samples": 0}, [("short", PROMPT)])
    assert {r["relation"] for r in signal["relations"]} >= set(embedded.NAMES)


class Positions:
    """Has a table that is made once, as modeling code has."""

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def table(n):
        return torch.arange(n, dtype=torch.float32)


def test_a_cached_table_is_of_the_precision_that_asks_for_it():
    module = types.ModuleType("modeling_cached")
    module.Positions = Positions
    sys.modules["modeling_cached"] = module
    before = Positions.table(3)
    with precision.promotion(torch.float32), precision.real_dtypes():
        inside = Positions.table(3).dtype
    with precision.promotion(torch.float32):
        promoted = Positions.table(3)
    assert before.dtype == inside == Positions.table(3).dtype == torch.float32
    assert promoted.dtype == torch.float64
