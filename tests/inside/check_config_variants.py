"""Variants of a tiny model's config: each runs, says what it changes, and leaves out what the class refuses."""

import itertools
from contextlib import suppress
from unittest import mock

import torch
import transformers
from samebits_probe.jobs import auto, config_variants
from samebits_probe.model import switches

torch.set_num_threads(1)


def test_variants_differ_in_what_they_say():
    made = auto.make("llama", 1)
    facts = []
    for number in (1, 2, 3):
        model, said = config_variants.variant(made, number, 1)
        config = model.config.to_dict()
        for name in said["values"]:
            field, _, value = name.partition("=")
            if value:
                assert repr(config[field]) == value, name
        facts.append(said["values"])
        assert all(facts)
        assert not said["refused"]
    assert len({*map(tuple, facts)}) == 3
    again = config_variants.variant(auto.make("llama", 1), 2, 1)[1]
    assert again["values"] == facts[1]


def test_a_part_has_switches_of_its_own():
    made = auto.make("llava", 1)
    config = made.model.config.to_dict()
    found = switches.switches(config, config_variants._source)
    assert {"vision_config", "text_config"} <= {switch.path[0] for switch in found if switch.path}


def test_there_are_no_more_variants_than_pairs():
    made = auto.make("vit", 1)
    numbers = range(1, 20)
    try:
        for number in numbers:
            config_variants.variant(made, number, 1)
    except auto.NoneMade as reason:
        assert f"has no variant {number}: the last one is {number - 1}, as every pair" in str(
            reason
        )
        assert number > 1
    else:
        raise AssertionError


class PickyConfig(transformers.PretrainedConfig):
    model_type = "made_up_picky"

    def __init__(self, one=False, two=False, three=False, four=False, five=False, **kwargs):
        super().__init__(**kwargs)
        self.one, self.two, self.three, self.four, self.five = one, two, three, four, five


class Picky(transformers.PreTrainedModel):
    config_class = PickyConfig

    def __init__(self, config):
        super().__init__(config)
        if config.one and config.two:
            raise ValueError("one refuses two")
        if config.three:
            raise ValueError("three is for nobody")
        self.line = torch.nn.Linear(2, 2, bias=config.one)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, x):
        return {"logits": self.line(x)}


def picky():
    return auto.Made(Picky(PickyConfig()), "", (), (("x", {"x": torch.ones(1, 2)}),))


def test_a_value_that_the_class_refuses_is_left_out_and_named():
    refused = set()
    code = "config.one config.two config.three"
    with mock.patch.object(config_variants, "_source", return_value=code):
        for number in range(1, 5):
            try:
                model, said = config_variants.variant(picky(), number, 1)
            except auto.NoneMade as reason:
                assert "three is for nobody" in str(reason) or "has no variant" in str(reason)
                continue
            assert not (model.config.one and model.config.two)
            assert not model.config.three
            for name, why in said["refused"].items():
                assert name not in said["values"]
                assert "ValueError" in why
                refused.add(name)
    assert "three=True" in refused


def test_a_refused_value_takes_no_other_pair_with_it():
    values = [f"{name}=True" for name in ("one", "two", "four", "five")]
    ran = []
    source = "config.one config.two config.four config.five"
    with mock.patch.object(config_variants, "_source", return_value=source):
        made = (config_variants.variant(picky(), n, 1) for n in itertools.count(1))
        with suppress(auto.NoneMade):  # behind the last one
            ran.extend(facts["values"] for _, facts in made)
    for a, b in itertools.permutations(values, 2):
        assert any(a in row and b not in row for row in ran), (a, b)
        assert any(a in row and b in row for row in ran) != ({a, b} == {*values[:2]}), (a, b)
