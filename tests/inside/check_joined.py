"""usage: what a classifier reads of a text that has the token of pads inside."""

from pathlib import Path
from unittest import mock

import tiny
import torch
import transformers
from samebits_probe.questions.usage import joined, methods
from samebits_probe.questions.usage.subject import Subject

from samebits_wire.arguments import CUT_TEXT, WHOLE_TEXT

torch.set_num_threads(1)
ENDS_AT_FIRST_PAD = transformers.__version__.startswith("4.48.")
"""The defect of nearly all decoders up to 4.48."""
PAD = 5


def asked(made):
    return {name: methods.asked(call) for name, call in joined.calls(Subject(made, "", Path()))}


def only(answers):
    (answer,) = answers.values()
    return answer


def classifier(kind=transformers.LlamaForSequenceClassification, **changed):
    sizes = tiny.SIZES if kind is transformers.LlamaForSequenceClassification else tiny.BERT
    return tiny.made(kind, std=0.25, **({**sizes, "pad_token_id": PAD} | changed))


def test_what_a_decoder_reads_is_seen_where_the_release_ends_at_the_first_pad():
    expected = CUT_TEXT if ENDS_AT_FIRST_PAD else WHOLE_TEXT
    assert only(asked(classifier())) == {"gave": expected}


def test_an_encoder_reads_all_in_every_release():
    made = classifier(transformers.BertForSequenceClassification)
    assert only(asked(made)) == {"gave": WHOLE_TEXT}


def test_a_decoder_that_takes_the_class_from_before_a_pad_is_seen():
    made = classifier()

    def cut(ids, **_named):
        end = int((ids[0] == PAD).nonzero()[0]) if bool((ids == PAD).any()) else ids.shape[1]
        return mock.Mock(logits=made.score(made.model(ids).last_hidden_state)[:, end - 1])

    with mock.patch.object(made, "forward", cut):
        assert only(asked(made)) == {"gave": CUT_TEXT}


def test_a_model_without_pads_or_with_other_scores_is_left_out():
    assert "no token of pads" in only(asked(classifier(pad_token_id=None)))["left_out"]
    assert not asked(tiny.model())
    made = classifier()
    with mock.patch.object(made, "forward", return_value=mock.Mock(logits=torch.zeros(1, 3))):
        assert "no scores that depend on the end" in only(asked(made))["left_out"]
    with mock.patch.object(made, "forward", side_effect=ValueError("no")):
        assert "the plain forward raised ValueError" in only(asked(made))["left_out"]
