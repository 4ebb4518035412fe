"""usage: a model that speaks is asked for a sound; a planted defect of its voice is named, a clean twin is not."""

import types

import torch
from samebits_probe.questions.usage import voice
from samebits_probe.questions.usage.methods import asked

torch.set_num_threads(1)


class Voice(torch.nn.Module):
    dtype = torch.float32

    def __init__(self, plant):
        super().__init__()
        self.plant = plant

    def forward(self, code, conditioning, reference_mel, num_steps=10, guidance_scale=0.5):
        assert conditioning.shape[0] == reference_mel.shape[0] == 1
        rows = 2 if guidance_scale or self.plant == "unguided" else 1
        states = torch.randn(rows, code.shape[1])
        return torch.cat([states, torch.zeros(2 if guidance_scale else 1, 1)], 1)[0]


class Speaking(torch.nn.Module):
    def __init__(self, plant="", **fields):
        super().__init__()
        self.plant, self.config = plant, types.SimpleNamespace(**fields)
        self.talker = self.token2wav = Voice(plant)
        self.speaker_map = {"one": {"cond": torch.zeros(1, 2), "ref_mel": torch.zeros(1, 3, 2)}}

    def generate(self, input_ids=None, speaker="one", return_audio=None, **options):
        if self.plant == "twice":
            raise TypeError("multiple values for an argument")
        assert options["talker_do_sample"] is False
        self.ids = input_ids.tolist()
        return input_ids, torch.zeros(1, 1, options["talker_max_new_tokens"] * 10)


def answers(model):
    return {name: asked(call) for name, call in voice.calls(model)}


def test_a_voice_that_needs_guidance_and_a_text_that_is_not_spoken_are_seen():
    assert answers(Speaking()) == {
        "generate(speaker=…)": {"gave": "a sound of 30 samples"},
        "token2wav(…, guidance_scale=0.5)": {"gave": "a sound of 13 samples"},
        "token2wav(…, guidance_scale=0.0)": {"gave": "a sound of 13 samples"},
    }
    planted = answers(Speaking("unguided"))
    assert "RuntimeError" in planted.pop("token2wav(…, guidance_scale=0.0)")["refused"]
    assert all("gave" in answer for answer in planted.values())
    assert "multiple values" in answers(Speaking("twice"))["generate(speaker=…)"]["refused"]


def test_a_question_is_a_turn_where_the_config_has_tokens_for_it():
    model = Speaking()
    answers(model)
    assert model.ids == [[5, 6, 7, 8, 9]]
    turns = dict(zip(voice._TURNS, (1, 2, 3, 4), strict=True))
    model = Speaking(**turns)
    answers(model)
    assert model.ids == [[1, 2, 5, 6, 7, 8, 9, 3, 1, 4]]


def test_a_model_without_a_speaker_is_not_asked():
    model = Speaking()
    model.speaker_map = {}
    assert not answers(model)
    assert not answers(torch.nn.Linear(2, 2))


def test_speakers_may_stand_in_the_config():
    model = Speaking(talker_config=types.SimpleNamespace(speaker_id={"two": 5}))
    model.speaker_map = None
    del model.token2wav
    assert list(answers(model)) == ["generate(speaker=…)"]
