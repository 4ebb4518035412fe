"""usage: what nn.DataParallel gathers of an output and its cache."""

import inspect
from pathlib import Path
from unittest import mock

import tiny
import torch
import transformers
from samebits_probe.questions.usage import gathered, methods
from samebits_probe.questions.usage.subject import Subject

torch.set_num_threads(1)
IDS = torch.arange(3, 12)[None]
WINDOWED = {"sliding_window": 4}
READS_ONE_NUMBER = "sliding_window_tensor.item()"
"""The defect of 5.16 to 5.24."""


def asked(made):
    ((_, call),) = gathered.calls(Subject(made, "causal-lm", Path(), {"short": {"input_ids": IDS}}))
    return methods.asked(call)


def test_all_rows_of_an_output_with_a_cache_are_gathered():
    assert asked(tiny.model()) == {"gave": "all rows"}


def test_a_window_that_is_read_as_one_number_is_seen_where_the_release_does_so():
    assert asked(tiny.model("mistral", sliding_window=None)) == {"gave": "all rows"}
    has_defect = READS_ONE_NUMBER in inspect.getsource(transformers.DynamicCache)
    answer = asked(tiny.model("mistral", **WINDOWED))
    assert ("cannot be converted to Scalar" in answer.get("refused", "")) is has_defect
    assert (answer == {"gave": "all rows"}) is not has_defect


def test_a_cache_that_is_made_of_nothing_and_a_field_that_is_lost_are_seen():
    class Held:
        def __iter__(self):
            return iter(((torch.zeros(1, 2),),))

    made = tiny.model()
    output = made(input_ids=IDS)
    output["past_key_values"] = Held()
    with mock.patch.object(made, "forward", return_value=output):
        assert "Held() takes no arguments" in asked(made)["refused"]

    class Losing(dict):
        def __init__(self, *pairs):
            super().__init__(pair for pair in dict(*pairs).items() if pair[0] != "more")

    whole = Losing({"logits": torch.zeros(1, 2)})
    whole["more"] = torch.zeros(1)
    with mock.patch.object(made, "forward", return_value=whole):
        assert asked(made) == {"gave": "all rows but those of more"}


def test_a_forward_that_raises_or_names_nothing_is_left_out():
    made = tiny.model()
    with mock.patch.object(made, "forward", return_value=(torch.zeros(1),)):
        assert "no named fields" in asked(made)["left_out"]
    with mock.patch.object(made, "forward", side_effect=ValueError("no")):
        assert "the plain forward raised ValueError" in asked(made)["left_out"]
