"""Questions that ask a model's first variant on the CPU, as the others would answer the same."""

import pytest

from samebits.pipeline.answers import options_of
from tests.support.builders import cell_id, model_spec

NAMES = ("arguments", "classes", "edits", "pipelines", "processors", "usage")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("attention", "changed", "asked"),
    [
        ("sdpa", {}, True),
        ("eager", {}, False),
        ("sdpa", {"devices": ("cuda", "cpu")}, True),
        ("sdpa", {"devices": ("cuda",)}, False),
    ],
)
def test_the_first_variant_on_the_cpu_is_asked(name, attention, changed, asked):
    model = model_spec(**({"attention": ("sdpa", "eager")} | changed))
    assert (name in options_of(cell_id(attention=attention), model)) == asked


@pytest.mark.parametrize("name", NAMES)
def test_a_large_model_itself_is_asked_in_a_deep_run(name):
    asked = [options_of(cell_id(), model_spec(large=large))[name] for large in (False, True)]
    assert [each.large for each in asked] == [False, True]


@pytest.mark.parametrize("name", ["processors", "usage"])
def test_it_can_be_switched_off(name):
    model = model_spec(questions={name: False})
    assert name not in options_of(cell_id(), model)
