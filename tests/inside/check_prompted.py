"""Prompts of what to find in an image: made for the names that forward takes, and for no other class."""

import sys
import types
from unittest import mock

import torch
from samebits_probe.model import choice, prompted

SPECIAL_TOKENS = [11, 12, 13, 14]
TEXT = types.SimpleNamespace(vocab_size=60, eos_token_id=2)
VISION = types.SimpleNamespace(image_size=[32, 48])
CONFIG = types.SimpleNamespace(
    text_config=TEXT,
    vision_config=VISION,
    task_seq_len=7,
    prompt_encoder_config=types.SimpleNamespace(image_size=[32, 48], patch_size=8),
)


def prompts(names, kind=None):
    parameters = tuple(choice.Parameter(name) for name in names.split())
    kind = kind or type("Plain", (), {"__module__": "builtins"})
    return dict(prompted.prompts(kind, CONFIG, choice.Signature(parameters)))


def shapes(prompt):
    return {name: tuple(tensor.shape) for name, tensor in prompt.tensors.items()}


def test_points_boxes_and_masks_lie_in_the_image():
    names = "pixel_values input_points input_labels input_boxes input_masks multimask_output hq_token_only"
    made = prompts(names)
    told = "points boxes points-and-boxes mask points-batch one-mask fine-mask"
    assert list(made) == told.split()
    assert shapes(made["points-and-boxes"]) == {
        "pixel_values": (1, 3, 32, 48),
        "input_points": (1, 2, 2, 2),
        "input_labels": (1, 2, 2),
        "input_boxes": (1, 2, 4),
    }
    points = made["points"].tensors["input_points"]
    assert (points < torch.tensor([48.0, 32.0])).all()
    assert points[..., 0].max() > 32, "x comes first"
    assert shapes(made["mask"])["input_masks"] == (1, 1, 16, 24)
    assert made["one-mask"].constants == {"multimask_output": False}
    labels = made["points-batch"].tensors["input_labels"]
    assert labels.tolist() == [[[1, 0], [1, 0]], [[1, -10], [1, -10]]]
    assert "fine-mask" not in prompts(names.replace("hq_token_only", ""))


def test_texts_come_in_the_form_of_their_model():
    made = prompts("pixel_values input_ids attention_mask input_boxes input_boxes_labels")
    assert list(made) == ["concept", "boxes"]
    made = prompts("pixel_values classes_input_ids classes_structure tasks_input_ids")
    assert made["classes-batch"].tensors["classes_structure"].tolist() == [2, 3]
    assert shapes(made["classes-batch"])["classes_attention_mask"] == (5, 4)
    assert shapes(prompts("pixel_values task_inputs")["task"])["task_inputs"] == (1, 7)
    assert list(prompts("pixel_values conditional_pixel_values input_ids")) == ["example"]
    guided = type("Guided", (), {"image_guided_detection": None, "__module__": "builtins"})
    (queries,) = prompts("pixel_values input_ids", guided).values()
    assert queries.tensors["attention_mask"].sum(-1).tolist() == [8, 8, 2]


def test_phrases_end_as_the_code_of_the_class_says():
    kind = type("Grounded", (), {"__module__": __name__})
    ids = prompts("pixel_values input_ids", kind)[prompted.PHRASES].tensors["input_ids"][0].tolist()
    assert [i for i in ids if i in SPECIAL_TOKENS] == [11, 13, 13, 13, 12]


def test_a_small_vocabulary_ends_its_phrases_with_the_end_of_the_text():
    kind = type("Grounded", (), {"__module__": __name__})
    with mock.patch.object(sys.modules[__name__], "SPECIAL_TOKENS", [11, 12, 1012, 1029]):
        made = prompts("pixel_values input_ids", kind)
    ids = made[prompted.PHRASES].tensors["input_ids"][0].tolist()
    assert [i for i in ids if i in {11, 12}] == [11, 12, 12, 12, 12]
    with mock.patch.object(sys.modules[__name__], "SPECIAL_TOKENS", [11, 1012]):
        assert not prompts("pixel_values input_ids", kind)


def test_a_class_that_is_told_nothing_gets_nothing():
    assert prompts("pixel_values pixel_mask") == prompts("input_ids attention_mask") == {}
