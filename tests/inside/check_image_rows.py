"""Relations of rows with images: planted mixtures of rows are caught, a clean twin is not accused."""

import torch
from samebits_probe.questions.relations import pictured
from transformers import PretrainedConfig

torch.set_num_threads(1)
IMAGE, WIDTH = 9, 8


class Config(PretrainedConfig):
    model_type = "planted_images"

    def __init__(self, kind="", **kwargs):
        self.kind, self.vocab_size, self.image_token_id, self.pad_token_id = kind, 20, IMAGE, 0
        super().__init__(**kwargs)


class Looking(torch.nn.Module):
    """Puts each image at its placeholder, and sums what a row has seen so far; ``kind`` is what it does wrong."""

    def __init__(self, config):
        super().__init__()
        torch.manual_seed(0)
        self.config, self.kept = config, None
        self.table = torch.nn.Embedding(20, WIDTH)
        self.tower, self.head = torch.nn.Linear(4, WIDTH), torch.nn.Linear(WIDTH, 20)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        pixel_values=None,
        pixel_values_videos=None,
        input_features=None,
    ):
        for other in (pixel_values_videos, input_features):
            pixel_values = other if pixel_values is None else pixel_values
        kind, x = self.config.kind, self.table(input_ids)
        x = x * attention_mask[..., None]
        if pixel_values is not None:
            seen = self.tower(pixel_values.flatten(1))
            if kind == "first image":
                seen = seen[:1].expand_as(seen)
            places = input_ids == IMAGE
            if kind == "needs one in each row" and len(pixel_values) < len(input_ids):
                raise ValueError("images")
            if kind == "by row":
                places[:, 1] = torch.arange(len(places)) < len(pixel_values)
                places[:, 2:] = False
            x = torch.index_put(x, (places,), seen)
        if kind.startswith("leaves"):
            if pixel_values is None and self.kept is not None:
                x = x + (self.kept.mean() if kind == "leaves a mean" else self.kept)
            self.kept = None if pixel_values is None else x.detach().sum((1, 2)).reshape(-1, 1, 1)
        return {"logits": self.head(x.cumsum(1).tanh())}


def prompt():
    torch.manual_seed(1)
    ids = torch.tensor([[5, IMAGE, 3, 4, 11, 12], [0, IMAGE, 7, 13, 14, 15]])
    mask = torch.ones_like(ids)
    mask[1, 0] = 0
    return {"input_ids": ids, "attention_mask": mask, "pixel_values": torch.rand(2, 1, 2, 2)}


def found(kind="", kwargs=None, name="image-padded"):
    made = Looking(Config(kind)).eval()
    prompts = [
        ("short", {"input_ids": torch.tensor([[5, 6]])}),
        (name, kwargs or prompt()),
    ]
    answer = pictured.observe(made, prompts)
    assert not answer.no_float64, answer
    return {r["relation"]: r for r in answer.relations}, answer.inapplicable


def is_broken(relation):
    return bool(relation["promoted"]) and relation["promoted"]["max_abs"] > 1e-3


def test_rows_of_a_clean_model_do_not_see_each_other():
    relations, skips = found()
    assert {*relations} == {*pictured.NAMES}
    assert not any(map(is_broken, relations.values())), relations
    assert relations[pictured.APART]["tried"] == 3
    assert skips == []


def test_an_image_that_all_rows_get_is_seen_where_each_row_has_one():
    relations, _ = found("first image")
    assert is_broken(relations[pictured.APART])
    assert relations[pictured.APART]["case"] == "image-padded: 2 rows"
    assert not is_broken(relations[pictured.AFTER])


def test_rows_with_a_video_or_a_sound_are_held_apart_as_those_with_an_image():
    for argument, name in (
        ("pixel_values_videos", "video-padded"),
        ("input_features", "audio-padded"),
    ):
        kwargs = prompt()
        kwargs[argument] = kwargs.pop("pixel_values")
        clean, _ = found(kwargs=kwargs, name=name)
        assert not any(map(is_broken, clean.values())), (name, clean)
        mixed, _ = found("first image", kwargs, name)
        assert is_broken(mixed[pictured.APART]), name
        assert mixed[pictured.APART]["case"] == f"{name}: 2 rows"


def test_an_image_that_goes_to_another_row_is_seen_where_one_row_has_none():
    relations, _ = found("by row")
    assert is_broken(relations[pictured.APART])
    assert relations[pictured.APART]["case"] == "image-padded: row 1 of 2 has an image"


def test_what_images_leave_is_seen_by_rows_of_text_after_them():
    relations, _ = found("leaves a mean")
    assert is_broken(relations[pictured.AFTER])
    assert not is_broken(relations[pictured.APART])
    relations, (skip,) = found("leaves it for two rows")
    assert {*relations} == {pictured.APART}
    assert skip["relation"] == pictured.AFTER
    assert skip["raised"]
    assert "size of tensor" in skip["reason"]


def test_a_model_that_wants_an_image_in_each_row_refuses_and_is_not_accused():
    relations, skips = found("needs one in each row")
    assert not any(map(is_broken, relations.values()))
    assert [skip["relation"] for skip in skips] == [pictured.APART] * 2
    assert all(skip["raised"] for skip in skips)


def test_rows_of_which_the_share_of_images_is_not_known_are_left_alone():
    odd = prompt() | {"pixel_values": torch.rand(3, 1, 2, 2)}
    right = prompt() | {"attention_mask": prompt()["attention_mask"].flip(1)}
    other = prompt() | {"image_grid_thw": torch.tensor([[1, 2, 2], [1, 4, 4]])}
    for kwargs in (odd, right, other):
        relations, skips = found(kwargs=kwargs)
        assert relations == {}
        assert len(skips) == 2
        assert not any("raised" in skip for skip in skips)
