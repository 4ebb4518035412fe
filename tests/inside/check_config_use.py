"""What a release makes of config.json: values that are kept, replaced or gone, and the first line that reads each."""

import json
import tempfile
from pathlib import Path
from unittest import mock

import tiny
import transformers
from samebits_probe.cell import cell, config_use
from samebits_probe.cell.session import Session

HERE = Path(__file__).name


class InnerConfig(transformers.PretrainedConfig):
    model_type = "made_up_inner"

    def __init__(self, kind="plain", **kwargs):
        super().__init__(**kwargs)
        self.kind = kind


class OuterConfig(transformers.PretrainedConfig):
    model_type = "made_up_outer"
    attribute_map = dict.fromkeys(("other_name",), "size")
    sub_configs = dict.fromkeys(("inner",), InnerConfig)

    def __init__(self, size=3, flag=False, forced=False, inner=None, **kwargs):
        super().__init__(**kwargs)
        self.size, self.flag = size, flag
        self.forced = True
        self.inner = InnerConfig(**(inner or {}))


WRITTEN = {
    "model_type": "made_up_outer",
    "size": 3,
    "flag": True,
    "forced": False,
    "listed": [1],
    "absent": None,
    "inner": {"model_type": "made_up_inner", "kind": "relative"},
}


def observed(read=lambda config: None, written=WRITTEN):
    reads = config_use.Reads().start()
    try:
        config = OuterConfig.from_dict(dict(written))
        read(config)
    finally:
        reads.stop()
    return config_use.facts(config, written, reads.places)


def test_values_are_kept_replaced_or_of_a_part():
    facts = observed()
    assert facts.keys() == {"size", "flag", "forced", "inner.kind"}
    assert (facts["size"]["is_default"], facts["flag"]["is_default"]) == (True, False)
    assert (facts["forced"]["written"], facts["forced"]["loaded"]) == (False, True)
    assert facts["inner.kind"]["loaded"] == "relative"
    assert not facts["inner.kind"]["is_default"]


def test_the_first_line_that_reads_a_field_is_named_and_no_other_field():
    facts = observed(lambda config: (config.inner.kind, config.other_name))
    line = (
        test_the_first_line_that_reads_a_field_is_named_and_no_other_field.__code__.co_firstlineno
        + 1
    )
    for name in ("inner.kind", "size"):
        assert facts[name]["read"].endswith(f"{HERE}:{line}"), facts[name]
    assert facts["flag"]["read"] == ""


def test_a_field_with_a_default_of_getattr_is_read():
    facts = observed(lambda config: getattr(config, "flag", False))
    assert HERE in facts["flag"]["read"]


def test_a_field_of_a_part_is_read_whatever_config_json_calls_the_part():
    """4.57 writes the text of GLM-4.5V as Glm4vMoe_text, and the class of 5.24 is glm4v_moe_text."""
    renamed = WRITTEN | {"inner": {"model_type": "Made_up_inner", "kind": "relative"}}
    assert HERE in observed(lambda config: config.inner.kind, renamed)["inner.kind"]["read"]
    assert observed(written=renamed)["inner.kind"]["read"] == ""


def test_a_walk_through_all_fields_reads_none():
    facts = observed(lambda config: (config.to_dict(), config.to_diff_dict(), repr(config)))
    assert {fact["read"] for fact in facts.values()} == {""}


def test_nothing_is_watched_afterwards():
    own = transformers.PretrainedConfig.__getattribute__
    observed()
    assert transformers.PretrainedConfig.__getattribute__ is own
    config_use.Reads().stop()
    assert transformers.PretrainedConfig.__getattribute__ is own


def failing(folder):
    """Return what a run of a cell has of the config of a folder whose model does not load."""
    variant = {"dtype": "float32", "attention": "default", "device": "cpu"}
    job = {
        "cell": {"model": "m", "variant": variant, "stack": "s"},
        "run": "a",
        "model": {"source": folder, "trust_remote_code": False, "questions": {}, "prompts": {}},
        "store": {"root": folder, "limit": 0, "wanted": []},
        "capture": str(Path(folder, "a.json")),
    }
    outcome = cell.observe(Session(job))
    assert (outcome["status"], outcome["failure"]["phase"]) == ("failed", "load"), outcome
    return outcome["signals"].get("config_use")


def test_the_config_of_a_model_that_does_not_load_is_recorded_as_the_release_makes_it():
    with tempfile.TemporaryDirectory() as folder:
        tiny.llama().save_pretrained(folder)
        planted = mock.patch.object(
            transformers.LlamaConfig, "attribute_map", {"intermediate_size": "hidden_size"}
        )
        with planted:
            facts = failing(folder)["hidden_size"]
        assert (facts["written"], facts["loaded"]) == (16, 32)
        path = Path(folder, "config.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_size": 64}))
        facts = failing(folder)["hidden_size"]
        assert (facts["written"], facts["loaded"]) == (64, 64)
