"""model.outputs: every tensor of what a forward returns, by a stable name, without caches."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from raising import raised
from samebits_probe.model import outputs
from samebits_probe.model.tensor import tensor_hash


def t(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


@dataclass
class Pooled:
    pooler_output: Any
    note: str = "no tensor"


Pair = namedtuple("Pair", "first second")


class ScoreCache:
    """A cache of a model's own."""

    def __init__(self):
        self.scores = t(2)


CASES = {
    "a bare tensor": (t(1), [""]),
    "a model output": (
        transformers.utils.ModelOutput(logits=t(1), pooler_output=t(2)),
        ["logits", "pooler_output"],
    ),
    "an output inside an output": (
        transformers.utils.ModelOutput(
            x=t(1), encoder=transformers.utils.ModelOutput(last_hidden_state=t(2))
        ),
        ["x", "encoder.last_hidden_state"],
    ),
    "a tuple in a tuple": ((t(1), None, [t(2), t(3)]), ["0", "2[0]", "2[1]"]),
    "a tuple in an output": ({"attentions": (t(1), t(2))}, ["attentions[0]", "attentions[1]"]),
    "a dict in a list": ([{"a": t(1), 5: {"b": t(2)}}], ["0.a", "0.5.b"]),
    "a dataclass": (Pooled(t(1)), ["pooler_output"]),
    "a named tuple": (Pair(t(1), {"deep": t(2)}), ["first", "second.deep"]),
    "an object": (SimpleNamespace(logits=t(1), _private=t(2)), ["logits"]),
    "a cache by its class": ({"logits": t(1), "memory": transformers.DynamicCache()}, ["logits"]),
    "a cache of a model's own": ({"logits": t(1), "memory": ScoreCache()}, ["logits"]),
    "a cache by its name": ({"logits": t(1), "past_key_values": [t(2)]}, ["logits"]),
    "a cache of tuples": ((t(1), ((t(1, 2, 3, 4), t(1, 2, 3, 4)),)), ["0"]),
    "states of layers": ({"logits": t(1), "state": [t(2)]}, ["logits"]),
    "a tensor called state": ({"logits": t(1), "state": t(2)}, ["logits", "state"]),
    "no tensor": ({"loss": None, "text": "words", "n": 1}, []),
}


def test_every_tensor_has_the_name_of_its_place():
    for case, (result, names) in CASES.items():
        assert list(outputs.tensors(result)) == names, case


class Moved(dict):
    """An output of 5.24: fields moved into another one, and properties have their former names."""

    @property
    def image_hidden_states(self):
        return self["image_outputs"]["pooler_output"]

    @property
    def audio_hidden_states(self):
        return self["audio_outputs"]["pooler_output"]

    @property
    def past_key_values(self):
        return self["cache"]


def test_an_output_that_moved_is_found_by_its_former_name_as_well():
    moved = Moved(logits=t(1), image_outputs={"pooler_output": t(2)}, cache=[t(3)])
    names = ["logits", "image_outputs.pooler_output", "image_hidden_states"]
    assert list(outputs.tensors(moved)) == names
    field = Moved(logits=t(1), image_hidden_states=t(2))
    assert list(outputs.tensors(field)) == ["logits", "image_hidden_states"]


def test_a_container_that_holds_itself_is_walked_once():
    result = {"logits": t(1)}
    result["itself"] = result
    assert list(outputs.tensors(result)) == ["logits"]


def test_the_logits_are_those_of_that_name_else_the_first_outer_tensor():
    cases = [
        (transformers.utils.ModelOutput(loss=t(1), logits=t(2)), "logits"),
        (({"a": t(1)}, t(2)), "1"),
        (({"a": t(1)},), "0.a"),
        (SimpleNamespace(logits=(t(1), t(2))), "logits[0]"),
        (t(3), ""),
    ]
    for result, name in cases:
        logits = outputs.logits_of(result)
        assert outputs.name_of(result, logits) == name
        assert name not in outputs.without_logits(result)
    assert outputs.logits_of({"loss": None}) is None


def test_logits_of_two_kinds_of_input_are_the_same_one_in_whatever_order_they_are_returned():
    images, texts, videos = t(1, 2), t(2, 1), t(1, 3)
    clip = {"loss": None, "logits_per_image": images, "logits_per_text": texts}
    assert outputs.logits_of(clip) is images
    for names in (("video", "text"), ("text", "video")):
        both = {"video": videos, "text": texts}
        result = {f"logits_per_{name}": both[name] for name in names}
        assert outputs.logits_of(result) is texts


def test_a_tensor_under_two_names_is_hashed_once():
    x, hashed, compute = t(2), [], outputs.hash_or_none
    outputs.hash_or_none = lambda tensor: hashed.append(tensor) or compute(tensor)
    assert outputs.hashes({"a": x, "b": x, "c": t(3)}) == {
        "a": tensor_hash(x),
        "b": tensor_hash(x),
        "c": tensor_hash(t(3)),
    }
    assert len(hashed) == 2
    assert outputs.hashes({"meta": torch.zeros(2, device="meta")}) == {"meta": ""}


def test_a_named_output_plays_the_part_of_the_logits():
    result = {"logits": t(1), "encoder": {"pooled": t(2)}}
    try:
        outputs.use_as_logits("encoder.pooled")
        assert outputs.logits_of(result) is result["encoder"]["pooled"]
        assert list(outputs.without_logits(result)) == ["logits"]
        error = raised(outputs.NoSuchOutput, outputs.logits_of, {"pooled": t(1)})
        assert "logits: encoder.pooled" in str(error)
        assert str(error).endswith("returns pooled")
    finally:
        outputs.use_as_logits(None)
    assert outputs.logits_of(result) is result["logits"]
