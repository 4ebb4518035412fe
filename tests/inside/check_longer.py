"""usage: tables that grow, series of one variable and codes of codecs: each planted defect is named, no clean twin is."""

import types
from unittest import mock

import torch
import transformers
from samebits_probe.questions.usage import codec, series, tables
from samebits_probe.questions.usage.methods import asked
from tiny import halves, made

torch.set_num_threads(1)
SOUND = torch.sin(torch.arange(640) / 7)[None, None]


def answer(calls):
    ((_, call),) = calls
    return asked(call)


def translator():
    fields = {"vocab_size": 40, "d_model": 16, "max_position_embeddings": 24, "pad_token_id": 1}
    return made(transformers.M2M100Model, **(fields | halves()))


def test_a_table_that_cannot_grow_or_grows_otherwise_is_seen():
    model = translator()
    rows = len(model.encoder.embed_positions.weights)
    clean = answer(tables.calls(model))
    assert clean == {"gave": "begins as that of fewer positions: True"}
    assert len(model.encoder.embed_positions.weights) == rows
    kind = type(model.encoder.embed_positions)
    kept = kind.make_weights

    def other(self, number, *rest):
        kept(self, number, *rest)
        self.weights = self.weights.flip(0)

    def raising(self, *_):
        return self.offsets  # as MusicGen's did up to 4.53

    with mock.patch.object(kind, "make_weights", other):
        assert answer(tables.calls(model))["gave"].endswith("False")
    with mock.patch.object(kind, "make_weights", raising):
        assert "offsets" in answer(tables.calls(model))["refused"]


def test_a_table_that_takes_more_than_ids_has_no_answer():
    class Table(torch.nn.Module):
        weights = torch.zeros(4, 2)
        make_weights = None

        def forward(self, ids, lengths):
            return ids + lengths

    assert "more than ids" in answer(tables.calls(torch.nn.Sequential(Table())))["left_out"]
    assert not [*tables.calls(torch.nn.Linear(2, 2))]


class Codec(torch.nn.Module):
    """Rounds a sound to codes."""

    def __init__(self, plant=""):
        super().__init__()
        self.plant = plant

    def encode(self, input_values):
        codes = (input_values * 8).round()
        return {"audio_codes": codes, "audio_scales": torch.tensor(8.0), "last": input_values}

    def decode(self, audio_codes, audio_scales, last=None):
        assert last is None
        if self.plant == "raises":
            raise TypeError(self.plant)
        cut = audio_codes[..., :-1] if self.plant == "short" else audio_codes
        return (cut / (4.0 if self.plant == "scale" else audio_scales),)

    def forward(self, input_values):
        return {"audio_values": (input_values * 8).round() / 8}


def test_codes_that_give_another_sound_than_forward_are_seen():
    def given(plant=""):
        return answer(codec.calls(Codec(plant), {"short": {"input_values": SOUND}}))

    assert given() == {"gave": "the sound of forward: True"}
    assert given("scale") == {"gave": "the sound of forward: False"}
    assert "raises" in given("raises")["refused"]
    assert given("short") == given()  # a forward may cut a sound that decode does not
    assert not [*codec.calls(Codec(), {"short": {"input_ids": SOUND}})]
    assert not [*codec.calls(torch.nn.Linear(2, 2), {"short": {"input_values": SOUND}})]


class Forecaster(torch.nn.Module):
    def __init__(self, plant, size=1):
        super().__init__()
        self.plant, self.config = plant, types.SimpleNamespace(input_size=size)

    def forward(self, past_values, past_time_features):
        if self.plant and past_values.ndim != 2:
            raise RuntimeError("Tensors must have same number of dimensions")
        return {"last_hidden_state": past_values * 2}


def test_series_of_one_variable_get_its_dimension():
    fed = {"past_values": torch.zeros(2, 8), "past_time_features": torch.zeros(2, 8, 1)}
    gave = answer(series.calls(Forecaster(plant=False), {"series": fed}))
    assert gave == {"gave": "last_hidden_state [2, 8, 1]"}
    assert "dimensions" in answer(series.calls(Forecaster(plant=True), {"series": fed}))["refused"]
    assert not [*series.calls(Forecaster(plant=False, size=2), {"series": fed})]
