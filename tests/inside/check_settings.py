"""usage: a setting of the config that a model does not read is seen."""

from pathlib import Path
from unittest import mock

import tiny
import torch
from samebits_probe.questions.usage import settings
from samebits_probe.questions.usage.subject import Subject

torch.set_num_threads(1)
HIDDEN, TUPLE = "model.config.output_hidden_states = True", "model.config.return_dict = False"
SAME = {"gave": "what the argument does"}


def asked(made, prompts=None):
    return settings.settings(Subject(made, "causal-lm", Path(), prompts or {}))


def test_a_setting_that_is_read_and_one_that_is_not_are_told_apart():
    made = tiny.model()
    before = made.config.to_dict()
    facts = asked(made)
    assert facts[HIDDEN] == SAME
    assert made.config.to_dict() == before
    plain = made.forward

    def deaf(input_ids, output_hidden_states=False, return_dict=True):
        with mock.patch.multiple(made.config, output_hidden_states=False, return_dict=True):
            output = plain(input_ids, output_hidden_states=output_hidden_states)
        return output if return_dict else output.to_tuple()

    with mock.patch.object(made, "forward", deaf):
        facts = asked(made, {"short": {"input_ids": torch.arange(3, 9)[None]}})
    assert facts == {HIDDEN: {"gave": "no hidden_states"}, TUPLE: {"gave": "no tuple"}}


def test_a_setting_with_which_forward_raises_is_refused_and_an_argument_that_does_nothing_is_left_out():
    made = tiny.model()
    plain = made.forward

    def asks_a_tuple(input_ids, output_hidden_states=False, return_dict=True):
        if not made.config.return_dict:
            raise AttributeError(made.config.return_dict)
        output = plain(input_ids)
        return output if return_dict else output.to_tuple()

    with mock.patch.object(made, "forward", asks_a_tuple):
        facts = asked(made)
    assert facts[HIDDEN] == {"left_out": "the argument does not change what forward returns"}
    assert facts[TUPLE]["refused"].startswith("AttributeError: False")
