"""Repairs of a tiny config whose images or sounds do not run."""

from __future__ import annotations

import copy
from typing import Any

from samebits_probe.model import repairs

TEXT = {"vocab_size": 512, "hidden_size": 128}


def all_of(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    before = copy.deepcopy(config)
    made = dict(repairs.repaired(config))
    assert config == before
    return made


def test_a_config_that_fits_is_left_alone() -> None:
    fitting = {
        "text_config": TEXT,
        "image_token_id": 7,
        "vision_config": {"hidden_size": 32, "image_size": 32, "patch_size": 8},
        "projector_config": {"encoder_hidden_size": 32},
    }
    assert all_of(fitting) == {}


def test_open_placeholders_get_ids_that_nothing_else_has() -> None:
    config = {"audio_token_id": None, "image_token_id": 8, "video_token_id": None}
    made = all_of(config)["open placeholders"]
    assert made["image_token_id"] == 8
    assert len({*made.values()}) == 3
    assert None not in made.values()


def test_patches_that_do_not_merge_become_as_many_as_do() -> None:
    odd = {"vision_config": {"image_size": 224, "patch_size": 32}, "text_config": TEXT}
    assert all_of(odd)["even patches"]["vision_config"]["image_size"] == 256
    cut = {"vision_config": {"image_size": 384, "patch_size": 14}}
    assert all_of(cut)["even patches"]["vision_config"]["image_size"] == 112


def test_a_projector_takes_vectors_as_wide_as_the_tower_gives() -> None:
    config = {"encoder_config": {"hidden_dim": 32}, "projector_config": {"encoder_hidden_size": 44}}
    assert all_of(config)["meeting widths"]["projector_config"]["encoder_hidden_size"] == 32
    two = config | {"vision_config": {"hidden_size": 16}}
    assert all_of(two) == {}


def test_a_tower_projects_to_the_width_of_the_text() -> None:
    config = {"text_config": TEXT, "vision_config": {"projection_dim": 64}}
    made = all_of(config)["projected to the text"]
    assert made["vision_config"]["projection_dim"] == TEXT["hidden_size"]
    assert all_of({"vision_config": {"projection_dim": 64}}) == {}


def test_all_repairs_are_tried_together_first() -> None:
    config = {"audio_token_id": None, "vision_config": {"image_size": 28, "patch_size": 4}}
    names = [*all_of(config)]
    assert names == ["open placeholders, even patches", "open placeholders", "even patches"]


def test_a_head_is_as_wide_as_its_backbone() -> None:
    config = {"hidden_size": 48, "backbone_config": {"hidden_size": 96}}
    assert all_of(config)["as wide as its backbone"]["hidden_size"] == 96
    assert all_of({"hidden_size": 96, "backbone_config": {"hidden_size": 96}}) == {}
    assert all_of({"hidden_size": 48, "backbone_config": None}) == {}
