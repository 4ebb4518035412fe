"""questions.pipelines: tasks of a class, answers as fields, and outputs that no weight decides."""

import importlib
import json
import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
import transformers
from planting import plant
from samebits_probe.model import tokenizers
from samebits_probe.model.load import Source
from samebits_probe.questions.pipelines import films, given, pipelines, tasks, values
from samebits_probe.questions.processors import samples
from tiny import BERT

logging.disable(logging.WARNING)


def checkpoint(head="SequenceClassification", seed=0, **config):
    """Return the source of a small BERT with a tokenizer."""
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(seed)
    made = transformers.BertConfig(**(BERT | {"vocab_size": 144, "num_labels": 3} | config))
    getattr(transformers, f"BertFor{head}")(made).save_pretrained(folder)
    tokenizers.write(folder, "wordpiece", "BertTokenizerFast")
    return Source(str(folder), None, False, "float32", "default", "cpu")


def asked(source, *names):
    return pipelines.facts(source, list(names), 600.0)


def loaded(source, tokenizer="a tokenizer"):
    name = transformers.AutoConfig.from_pretrained(source.where).architectures[0]
    model = getattr(transformers, name).from_pretrained(source.where)
    return SimpleNamespace(model=model, tokenizer=tokenizer)


def writer():
    """Return a pipeline of a small GPT-2 that generates, with a tokenizer of its own."""
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=144, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.3
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizers.write(folder, "wordpiece", "BertTokenizerFast")
    return transformers.pipeline("text-generation", model=str(folder), device="cpu")


def batch_of(pipe, side):
    pipe.tokenizer.padding_side = side
    task = tasks.TASKS["text-generation"]
    return pipelines._case(pipe, task, task.calls["two prompts as a batch"])


def test_a_batch_that_is_padded_behind_its_prompts_shows_and_one_before_them_does_not():
    pipe = writer()
    clean, planted = batch_of(pipe, "left"), batch_of(pipe, "right")
    assert clean["one_by_one"]["own"] == planted["one_by_one"]["own"] == clean["own"]
    before, behind = (case["one_by_one"] for case in (clean, planted))
    assert (before["padding"], behind["padding"]) == ("left", "right")
    assert before["distance"] < 1e-4
    assert before.get("in_float64", 0.0) < 1e-10
    assert behind["distance"] > 0.1
    assert abs(behind["in_float64"] - behind["distance"]) < 1e-5
    assert {each.dtype for each in pipe.model.parameters()} == {torch.float32}


def test_a_batch_without_a_token_for_padding_raises_as_the_pipeline_says():
    pipe = writer()
    pipe.tokenizer.pad_token = None
    case = batch_of(pipe, "left")
    assert "pad_token" in case["own"]["raised"]
    assert case.keys() == {"own"}


def test_a_batch_that_is_compared_one_by_one_has_two_inputs_of_unequal_length():
    batches = {
        name: call
        for name, task in tasks.TASKS.items()
        for call in task.calls.values()
        if call.is_batch
    }
    assert batches.keys() == {"text-generation", "image-text-to-text"}
    assert all(call.arguments["batch_size"] == 2 for call in batches.values())
    with mock.patch.object(tasks, "_image", return_value="an image"):
        made = [call.made(None) for call in batches.values()]
    assert all(len(first) < len(second) for first, second in made)
    assert set(map(id, tasks.CHATS)) >= {id(batches["image-text-to-text"].made)}


def test_a_class_serves_the_tasks_of_its_auto_classes():
    source = checkpoint()
    both = ["text-classification", "zero-shot-classification"]
    assert tasks.served(loaded(source).model) == both
    assert tasks.served(loaded(checkpoint("MaskedLM")).model) == ["fill-mask"]
    assert tasks.missing("text-classification", loaded(source), source) == ""
    without = tasks.missing("text-classification", loaded(source, None), source)
    assert without == "the checkpoint has no tokenizer"
    without = tasks.missing("image-classification", loaded(source), source)
    assert without == "the checkpoint has no processor"


def test_a_task_of_images_is_asked_of_models_of_images_alone():
    text = transformers.BertModel(transformers.BertConfig(**BERT))
    seeing = transformers.ViTModel(
        transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    )
    assert tasks.served(text) == ["feature-extraction"]
    assert "image-feature-extraction" in tasks.served(seeing)


def test_a_task_of_sounds_and_labels_is_asked_of_a_model_of_both_alone():
    parts = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sounds = {"patch_embeds_hidden_size": 16, "depths": [1], "num_attention_heads": [2]}
    config = transformers.ClapConfig(
        text_config=parts | {"vocab_size": 99}, audio_config=sounds | {"hidden_size": 16}
    )
    both = transformers.ClapModel(config)
    text = transformers.BertModel(transformers.BertConfig(**BERT))
    assert "zero-shot-audio-classification" in tasks.served(both)
    assert "zero-shot-audio-classification" not in tasks.served(text)


def test_a_task_of_this_release_is_called_or_said_not_to_be():
    names = set(transformers.pipelines.SUPPORTED_TASKS)
    assert names - tasks.TASKS.keys() <= {"decision"}
    model = loaded(checkpoint("MaskedLM")).model
    assert tasks.unasked(model) == {}
    entries = {"new": {"pt": (transformers.AutoModelForMaskedLM,)}}
    with mock.patch.object(transformers.pipelines, "SUPPORTED_TASKS", entries):
        assert tasks.unasked(model).keys() == {"new"}
        assert tasks.unasked(loaded(checkpoint()).model) == {}
    entries = {"of any model": {"pt": (transformers.AutoModel,)}}
    with mock.patch.object(transformers.pipelines, "SUPPORTED_TASKS", entries):
        assert tasks.unasked(transformers.BertModel(transformers.BertConfig(**BERT))) == {}


def test_a_made_video_is_read_by_the_pipeline_without_a_package_and_by_nothing_later():
    video = importlib.import_module("transformers.pipelines.video_classification")
    before = dict(vars(video))
    numbers = np.array([0, 2, 5])
    with films.read():
        frames = video.read_video_pyav(video.av.open(films.PATH), numbers)
        video.requires_backends(object(), "av")
    assert frames.shape == (3, 48, 64, 3)
    assert all(
        same_pixels(frames[i], samples.picture(48, 64, seed=n)) for i, n in enumerate((0, 2, 5))
    )
    assert not same_pixels(frames[0], frames[1])
    assert vars(video) == before


def same_pixels(first, second):
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


def test_a_model_with_a_number_of_frames_is_given_no_other():
    (call,) = tasks.TASKS["video-classification"].calls.values()
    with_frames, without = (
        SimpleNamespace(config=config)
        for config in (SimpleNamespace(num_frames=16), SimpleNamespace())
    )
    assert tasks.arguments_of(call, with_frames) == {}
    assert tasks.arguments_of(call, without) == {"num_frames": films.COUNT}


def test_a_model_that_speaks_is_asked_for_the_sound_and_given_no_outputs():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 16}
    flows = {"flow_size": 16, "spectrogram_bins": 9, "upsample_initial_channel": 16}
    torch.manual_seed(0)
    config = transformers.VitsConfig(vocab_size=144, **sizes, **flows)
    folder = Path(tempfile.mkdtemp())
    transformers.VitsModel(config).save_pretrained(folder)
    tokenizers.write(folder, "wordpiece", "BertTokenizerFast")
    own = json.loads((folder / "tokenizer_config.json").read_text())
    own["model_input_names"] = ["input_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    source = Source(str(folder), None, False, "float32", "default", "cpu")
    model = transformers.VitsModel.from_pretrained(folder)
    assert "text-to-audio" in tasks.served(model)
    (call,) = tasks.TASKS["text-to-audio"].calls.values()
    assert tasks.arguments_of(call, model) == {}
    speaks = SimpleNamespace(
        config=SimpleNamespace(),
        can_generate=lambda: True,
        generate=lambda ids, output_audio=False: ids,
    )
    assert tasks.arguments_of(call, speaks)["generate_kwargs"]["output_audio"]
    case = asked(source, "text-to-audio")["text-to-audio"]["cases"]["a text"]
    assert case.keys() == {"own", "fed"}
    assert case["own"].get("fields", {}).keys() >= {"audio", "sampling_rate"}, case


def test_a_second_time_gives_the_same():
    source = checkpoint()
    first, second = (asked(source, "text-classification") for _ in range(2))
    assert first == second
    case = first["text-classification"]["cases"]["a text"]
    assert case["own"]["fields"]["[0].label"]["exact"].startswith('"LABEL_')
    assert case["fed"]["input_ids"]["dtype"] == "int64"
    assert "attention_mask" not in case["fed"]


def test_given_outputs_are_those_of_no_model():
    first, second = (
        asked(checkpoint(seed=seed), "text-classification")["text-classification"]["cases"]
        for seed in range(2)
    )
    for name, case in first.items():
        assert case["own"] != second[name]["own"]
        assert case["given"] == second[name]["given"]
        assert case["exact"] == second[name]["exact"]


def test_what_is_planted_behind_the_model_shows_with_given_outputs():
    source, kind = checkpoint(), transformers.TextClassificationPipeline
    clean = asked(source, "text-classification")["text-classification"]["cases"]["a text"]

    def halved(plain, *args, **kwargs):
        answer = plain(*args, **kwargs)
        return answer | {"score": answer["score"] / 2}

    with plant(kind, "postprocess", halved):
        case = asked(source, "text-classification")["text-classification"]["cases"]["a text"]
    assert case["fed"] == clean["fed"]
    for run in ("own", "given", "exact"):
        before, after = (side[run]["fields"]["[0].score"]["numbers"] for side in (clean, case))
        assert float.fromhex(after[0]) == float.fromhex(before[0]) / 2


def test_an_exception_has_its_line():
    source, kind = checkpoint(), transformers.TextClassificationPipeline

    def refused(_plain, self, inputs, **_):
        return self.tokenizer(inputs, no_such_thing=object(), text=1)

    with plant(kind, "preprocess", refused):
        own = asked(source, "text-classification")["text-classification"]["cases"]["a text"]["own"]
    assert own["raised"].startswith("TypeError")
    assert own["at"].startswith("transformers/")
    assert own["at"].rpartition(":")[2].isdigit()


def test_a_task_that_the_release_does_not_have_is_absent():
    known = "question-answering" in transformers.pipelines.get_supported_tasks()
    facts = asked(checkpoint("QuestionAnswering"), "question-answering")["question-answering"]
    assert ("cases" in facts) == known
    assert bool(facts.get("absent", "").startswith("KeyError")) != known


def test_no_time_and_no_template_are_said():
    facts = pipelines.facts(checkpoint(), ["text-classification"], -1.0)
    assert "budget" in facts["text-classification"]["left_out"]


def test_answers_become_fields():
    fields = values.fields([{"label": "a", "score": 0.5, "box": {"x": np.int64(3)}, "none": None}])
    assert fields["length"] == {"exact": "1"}
    assert fields["[0].label"] == {"exact": '"a"'}
    assert fields["[0].score"] == {"exact": "number", "numbers": [(0.5).hex()]}
    assert fields["[0].box.x"] == {"exact": "3"}
    assert fields["[0].none"] == {"exact": "null"}
    assert values.fields(float("nan")) == {"": {"exact": "nan"}}
    array = values.fields([[[0.5] * 40]])[""]
    assert array["exact"] == "float64 1 x 1 x 40"
    assert len(array["numbers"]) == 4
    assert values.fields(torch.zeros(2, dtype=torch.bool))[""]["exact"].startswith("bool 2, ")
    many = values.fields(["text"] * 400)
    assert len(many) < 200
    assert many["…"]["exact"] != values.fields(["text"] * 399 + ["other"])["…"]["exact"]


def test_logits_of_tokens_do_not_depend_on_how_many_positions_have_some():
    watch = given.Watch(torch.float32, of_tokens=True)
    module = SimpleNamespace(main_input_name="input_ids")
    rows = []
    for length in (5, 1):
        watch._n_calls = 0
        output = {"logits": torch.zeros(1, length, 7)}
        watch(module, (torch.ones(1, 5, dtype=torch.int64),), {}, output)
        rows.append(output["logits"][:, -1])
    assert torch.equal(*rows)
    assert rows[0].unique().numel() == 7


def test_two_masks_in_a_text_are_filled_apart_and_a_planted_answer_for_both_is_seen():
    def cases():
        return asked(checkpoint("MaskedLM"), "fill-mask")["fill-mask"]["cases"]

    clean, kind = cases(), transformers.pipelines.FillMaskPipeline
    plain = kind.postprocess

    def first_for_both(self, *arguments, **named):
        rows = plain(self, *arguments, **named)
        return [rows[0] for _ in rows] if isinstance(rows[0], list) else rows

    with mock.patch.object(kind, "postprocess", first_for_both):
        planted = cases()
    assert clean["two masks"]["given"]["fields"]
    assert {name for name, case in clean.items() if planted[name] != case} == {"two masks"}
