"""Tests of what the base of all configs makes of the fields of its classes."""

import pytest

from bench.stated import written
from bench.stated.sources import of_file
from samebits.defaults.moved import is_always, moves
from samebits.defaults.table import Table

BASE = """\
class Mixin:
    default_theta = 10_000.0
    default_rope_type = "default"
"""
CONFIG = """\
_LEGACY_LAYER_TYPE_REMAP = {"old": "new"}
class PreTrainedConfig(Mixin):
    def __post_init__(self, **kwargs):
        pass
"""
RENAMES = f"{CONFIG}        remap_legacy_layer_types(config=self)\n"
PLAIN = """\
class OwnConfig(PreTrainedConfig):
    rope_parameters: dict = None
"""
OWN = """\
    def convert_rope_params_to_dict(self, **kwargs):
        self.rope_parameters = {"slow": {"rope_theta": 50.0}}
        self.standardize_rope_params()
"""
POST_INIT = "    def __post_init__(self, **kwargs):\n"
SET = "kwargs.setdefault('partial_rotary_factor', "
CHILD = "class Child(OwnConfig):\n    layers: int = 2\n"


def table(*texts, base=CONFIG):
    """Return a table with a release for each text."""
    made = Table([], {})
    for number, text in enumerate(texts):
        stated = of_file(BASE, "base") | of_file(f"{base}{text}", "config")
        written.add(made, f"5.{number}.0", stated)
    return made


def default(*texts, name="OwnConfig", field="rope_parameters", base=CONFIG):
    made = table(*texts, base=base).default(name, field, "5.0.0")
    return made.value if made is not None and made.is_stated else "not stated"


FULL = {"rope_theta": 10000.0, "rope_type": "default"}


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ("", FULL),
        ("    default_theta = 50.0\n", {**FULL, "rope_theta": 50.0}),
        ("    default_rope_type = 'axial'\n", {**FULL, "rope_type": "axial"}),
        ("    partial_rotary_factor: float = 0.5\n", {**FULL, "partial_rotary_factor": 0.5}),
        (
            f"{POST_INIT}        {SET}0.25)\n        {SET}0.5)\n",
            {**FULL, "partial_rotary_factor": 0.25},
        ),
        (OWN, {"slow": {"rope_theta": 50.0, "rope_type": "default"}}),
        ("    default_theta = helper()\n", "not stated"),
        ("    rope_theta: float = 20.0\n", "not stated"),
        ("    partial_rotary_factor: float = helper()\n", "not stated"),
        (f"{POST_INIT}        if helper():\n            {SET}0.25)\n", "not stated"),
    ],
)
def test_rope_parameters_have_what_the_base_adds(more, value):
    assert default(f"{PLAIN}{more}") == value


@pytest.mark.parametrize(
    ("value", "stated"),
    [
        ("{'rope_type': 'yarn', 'rope_theta': 5.0}", False),
        ("{'rope_type': 'yarn', 'rope_theta': 5.0, 'original_max_position_embeddings': 8}", True),
        ("{'slow': {'rope_theta': 5.0}}", False),
    ],
)
def test_what_is_made_of_other_fields_is_not_stated(value, stated):
    text = f"class OwnConfig(PreTrainedConfig):\n    rope_parameters: dict = {value}\n"
    assert (default(text) != "not stated") is stated


def test_a_class_that_inherits_how_they_are_completed_states_none_of_its_own():
    assert default(PLAIN + OWN + CHILD, name="Child") == default(PLAIN + OWN)
    own = f"{CHILD}    rope_parameters: dict = None\n"
    assert default(PLAIN + OWN + own, name="Child") == "not stated"
    assert default(f"{PLAIN}{OWN}{CHILD}    default_theta = 2.0\n", name="Child") == "not stated"


def test_a_field_that_a_base_makes_of_others_is_not_stated_by_a_class_that_has_it_again():
    base = "class OwnConfig(PreTrainedConfig):\n    head: int = None\n    size: int = 8\n"
    makes = "    def __post_init__(self):\n        self.head = self.head or self.size\n"
    again = "class Child(OwnConfig):\n    head: int = None\n"
    assert default(base + makes + again, name="Child", field="head") == "not stated"
    assert default(base + again, name="Child", field="head") is None


def test_old_names_of_layers_are_the_new_ones_where_the_base_renames_them():
    text = (
        "class OwnConfig(PreTrainedConfig):\n    attribute_map = {'layer_types': 'kinds'}\n"
        "    kinds: list = field(default=['old', 'x'])\n    others: list = field(default=['old'])\n"
    )
    assert default(text, field="kinds") == ["old", "x"]
    assert default(text, field="kinds", base=RENAMES) == ["new", "x"]
    assert default(text, field="others", base=RENAMES) == ["old"]


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({}, ["rope_parameters"]),
        ({"rope_theta": 7.0}, []),
        ({"partial_rotary_factor": 0.5}, []),
        ({"rope_scaling": None}, []),
    ],
)
def test_a_file_that_has_a_part_of_them_leaves_no_default(document, fields):
    made = table(PLAIN, f"{PLAIN}    default_theta = 50.0\n")
    found = moves(made, document, "5.0.0", "5.1.0", ("OwnConfig", "OwnConfig"))
    assert [move.field for move in found] == fields


def test_the_same_base_of_another_place_is_no_move():
    made = table(PLAIN, f"{PLAIN}    default_theta = 10000.0\n")
    assert moves(made, {}, "5.0.0", "5.1.0", ("OwnConfig", "OwnConfig")) == []


def test_a_release_with_another_name_for_it_does_not_have_the_value():
    plain = PLAIN.replace("rope_parameters", "model_type = 'own'\n    rope_parameters", 1)
    older = "class OwnConfig(PreTrainedConfig):\n    model_type = 'own'\n    {}: float = 10.0\n"
    assert is_always(table(older.format("other"), plain), "own", "rope_parameters", FULL)
    assert not is_always(table(older.format("rope_theta"), plain), "own", "rope_parameters", FULL)
