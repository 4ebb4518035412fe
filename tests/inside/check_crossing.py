"""questions.crossings: what counts as lost, and what chance in the loader keeps from being said."""

import json
import tempfile
from pathlib import Path

import cells
import torch
from samebits_probe.model import heap
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.load import Source, load_model
from samebits_probe.questions.crossings import config as compared_config
from samebits_probe.questions.crossings import load, save
from samebits_probe.questions.crossings.load import Observed, Original

SOURCE = Source("/original", None, False, "float32", "default", "cpu")


def observed(**changed):
    fields = {
        "hashes": {"a.weight": "1", "rope.inv_freq": "2"},
        "bare": set(),
        "config": {"rope_theta": 5e5, "window": 8},
        "nulls": set(),
        "keys": set(),
        "logits": torch.tensor([1.0, 2.0]),
        "no_logits": "",
        "failure": None,
    }
    return Observed(**(fields | changed))


def cross(saved, first=None, again=None):
    """Cross without any model: the original, another load of it, and what was saved."""
    original = object.__new__(Original)
    original.source, original.feed = SOURCE, None
    original.first = first or observed()
    original._reloaded = again or original.first
    load.observe = lambda source, feed, seed: saved
    return load.crossing(original, "/saved")


def test_what_comes_back_is_the_same():
    result = cross(observed())
    assert result["outcome"] == "same bits"
    assert result["logits"] == "same bits"
    assert result["logits_max_abs"] == 0.0


def test_a_tensor_with_other_bytes_or_gone_or_new_is_lost():
    result = cross(observed(hashes={"a.weight": "9", "new": "3"}))
    assert result["outcome"] == "differs"
    assert result["tensors"] == ["a.weight", "rope.inv_freq", "new"]


def test_a_tensor_that_the_loader_decides_by_chance_is_no_loss():
    again = observed(hashes={"a.weight": "1", "rope.inv_freq": "7"})
    result = cross(observed(hashes={"a.weight": "1", "rope.inv_freq": "5"}), again=again)
    assert result["outcome"] == "same bits"
    assert result["unsteady"] == ["rope.inv_freq"]
    assert result["tensors"] == []


def test_logits_that_chance_decides_are_not_compared():
    other = observed(logits=torch.tensor([1.0, 3.0]))
    assert cross(other)["logits"] == "differs"
    assert cross(other)["logits_max_abs"] == 1.0
    result = cross(other, again=observed(logits=torch.tensor([1.0, 4.0])))
    assert result["logits"] == "not compared"
    assert "two loads" in result["reason"]


def test_the_sign_of_a_zero_and_a_nan_are_other_bits():
    zero = observed(logits=torch.tensor([0.0, 1.0]))
    result = cross(observed(logits=torch.tensor([-0.0, 1.0])), first=zero)
    assert (result["outcome"], result["logits_max_abs"]) == ("differs", 0.0)
    result = cross(observed(logits=torch.tensor([float("nan"), 1.0])), first=zero)
    assert (result["outcome"], result["logits_max_abs"]) == ("differs", "Infinity")
    infinite = observed(logits=torch.tensor([float("inf"), float("nan")]))
    assert cross(infinite, first=infinite)["outcome"] == "same bits"


def test_a_forward_that_raises_on_the_saved_alone_is_its_own_outcome():
    failure = {"phase": "forward", "type": "TypeError", "message": "clamp()"}
    broken = observed(logits=None, failure=failure)
    assert cross(broken)["outcome"] == "forward failed"
    assert cross(broken)["failure"] == failure
    result = cross(broken, first=broken)
    assert result["outcome"] == "same bits"
    assert result["logits"] == "not compared"
    assert "of the original raises TypeError" in result["reason"]
    only_before = cross(observed(), first=broken)
    assert (only_before["outcome"], only_before["logits"]) == ("differs", "differs")
    assert only_before["reason"].endswith("raises TypeError here, and that of the copy answers")


def test_a_changed_config_field_is_told_with_both_values():
    result = cross(observed(config={"rope_theta": 1e4, "rope_parameters.rope_theta": 5e5}))
    assert result["outcome"] == "differs"
    assert result["config"] == ["rope_theta: 500000.0 → 10000.0", "window: 8 → not there"]
    assert result["ignored"] == ["rope_parameters.rope_theta"]


def test_a_dtype_that_save_pretrained_writes_down_is_no_loss():
    """4.48 keeps the dtype of config.json through a load in float32, and saves the dtype of the tensors."""
    before = observed(config={"dtype": "bfloat16", "text.dtype": "bfloat16"})
    copy = observed(config={"dtype": "float32", "text.dtype": "float32"})
    assert cross(copy, first=before)["outcome"] == "same bits"
    halved = observed(config={"dtype": "float16", "text.dtype": "float32"})
    assert cross(halved, first=before)["config"] == ['dtype: "bfloat16" → "float16"']


def test_of_a_list_the_items_that_changed_are_told():
    changes = compared_config.changed_fields(
        {"kinds": ["a", "b", [1]], "limit": [0.0, "inf"], "n": 1, "zero": 0.0},
        observed(config={"kinds": ["a", "c", [2]], "limit": [0.0], "n": True, "zero": -0.0}),
    )
    assert changes == [
        'kinds[1]: "b" → "c"',
        "kinds[2][0]: 1 → 2",
        'limit: [0.0, "inf"] → [0.0]',
        "n: 1 → true",
        "zero: 0.0 → -0.0",
    ]


def test_a_false_field_that_the_class_does_not_know_may_go():
    original = {"torchscript": False, "tie_word_embeddings": True, "dropout": 0.0}
    changes = compared_config.changed_fields(original, observed(config={}))
    assert changes == ["dropout: 0.0 → not there"]
    copy = observed(config={"torchscript": True, "dropout": 0.0}, nulls={"tie_word_embeddings"})
    changes = compared_config.changed_fields(original, copy)
    assert changes == ["torchscript: false → true", "tie_word_embeddings: true → null"]


def test_a_field_without_a_value_is_known_to_the_loader():
    first = observed(config={"n": 1}, nulls={"eos_token_id", "rope", "architectures"})
    saved = observed(config={"n": 1, "eos_token_id": 2, "rope.factor": 4.0, "architectures": ["A"]})
    result = cross(saved, first=first)
    assert result["outcome"] == "differs"
    assert result["config"] == ["eos_token_id: null → 2", "rope.factor: null → 4.0"]
    assert result["ignored"] == []
    emptied = observed(config={}, nulls={"n"})
    assert cross(emptied, first=first)["config"] == ["n: 1 → null"]
    spelled = observed(config={"n": 1}, nulls=set())
    assert cross(spelled, first=first)["outcome"] == "same bits"


def test_the_order_of_keys_inside_a_list_is_no_change():
    first = observed(config={"parts": [{"b": 1, "a": {"d": 2, "c": 3}}]})
    result = cross(observed(config={"parts": [{"a": {"c": 3, "d": 2}, "b": 1}]}), first=first)
    assert (result["outcome"], result["config"]) == ("same bits", [])
    result = cross(observed(config={"parts": [{"a": {"c": 3, "d": 4}, "b": 1}]}), first=first)
    assert result["outcome"] == "differs"


def test_what_is_saved_is_loaded_over_other_memory_and_under_another_seed():
    """A table that is drawn, or never written, is no sameness because two loads draw alike."""
    asked = []

    def observe(source, feed, seed=0):
        fresh = torch.empty(100)
        asked.append((source.where, seed, bool(heap.holds_pattern(fresh, "b"))))
        return observed(hashes={"a.weight": "1", "rope.inv_freq": str(seed)}, logits=None)

    heap.fill_unwritten("a", "cpu")
    load.observe = observe
    original = Original(SOURCE, None)
    result = load.crossing(original, "/saved")
    assert asked == [("/original", 0, False), ("/saved", 20, True), ("/original", 20, True)]
    assert result["unsteady"] == ["rope.inv_freq"]
    assert not heap.holds_pattern(torch.empty(100), "b")


def test_tensors_without_bytes_are_not_compared_and_named():
    result = cross(observed(bare={"sparse"}), first=observed(bare={"sparse"}))
    assert (result["outcome"], result["bare"]) == ("same bits", ["sparse"])
    packed = observed(bare={"a.weight"}, hashes={"rope.inv_freq": "2"})
    assert cross(packed)["tensors"] == ["a.weight"]


def test_logits_that_are_gone_are_not_the_same():
    result = cross(observed(logits=None, no_logits="the model returns no tensor"))
    assert (result["outcome"], result["logits"]) == ("differs", "differs")
    assert "returns no tensor" in result["reason"]


def test_an_original_that_memory_was_short_for_is_not_an_answer_for_ever():
    failure = {"phase": "load", "type": "MemoryError", "message": "no memory", "traceback": ""}

    def observe(source, feed, seed=0):
        raise load.PhaseFailed(failure)

    load.observe = observe
    job = {"cell": cells.CELL, "threads": 1}
    inputs = {"record": "", "root": "", "reason": ""}
    job |= {"model": {"source": "/m", "trust_remote_code": False, "inputs": inputs}}
    job |= {"copies": {}, "models": ["4.48"]}
    with tempfile.TemporaryDirectory() as folder:
        job["result"] = f"{folder}/result.json"
        load.run(job)
        (result,) = json.loads(Path(job["result"]).read_text())["crossings"]
    assert (result["outcome"], result["failure"]) == ("absent", failure)


def test_fields_that_only_spell_the_release_are_left_out():
    config = {
        "transformers_version": "4.48",
        "torch_dtype": "float32",
        "eos_token_id": None,
        "text_config": {"_name_or_path": "/x", "dtype": "float16", "rope": {"theta": 1}},
    }
    assert compared_config.config_fields(config) == {
        "dtype": "float32",
        "text_config.dtype": "float16",
        "text_config.rope.theta": 1,
    }


def test_code_that_was_not_saved_is_put_back():
    with tempfile.TemporaryDirectory() as folder:
        original, saved = Path(folder) / "original", Path(folder) / "saved"
        (original / "part").mkdir(parents=True)
        saved.mkdir()
        (original / "config.json").write_text('{"auto_map": {"AutoModel": "m.M"}}')
        (original / "m.py").write_text("original")
        (original / "part" / "n.py").write_text("part")
        (saved / "config.json").write_text('{"x": 1}')
        (saved / "m.py").write_text("saved")
        restored = save._restore_code(str(original), saved)
        assert restored == ["part/n.py", "auto_map"]
        assert (saved / "m.py").read_text() == "saved"
        assert json.loads((saved / "config.json").read_text()) == {
            "x": 1,
            "auto_map": {"AutoModel": "m.M"},
        }
        assert save._restore_code(str(original), saved) == []
        (saved / "config.json").unlink()
        assert save._restore_code(str(original), saved) == []


class Fed:
    """What every stack feeds a saved model, as the job that chooses inputs leaves it."""

    def single(self, _model):
        return Inputs({"input_ids": torch.tensor([[1, 2, 3, 4, 5] * 8])}, None, None)


def test_a_crossing_compares_the_class_that_loads_and_not_the_one_that_config_names():
    from check_integrity import checkpoint

    read = []
    for names in (["LeakyModel"], None, ["LeakyForCausalLM"]):
        folder = str(checkpoint("none", architectures=names))
        source = SOURCE._replace(where=folder, trust_remote_code=True)
        read.append(load.observe(source, Fed()).config["architectures"])
    assert read == [["LeakyForCausalLM"]] * 3
    saved = observed(config={"architectures": ["LeakyModel"]})
    result = cross(saved, first=observed(config={"architectures": read[0]}))
    assert result["config"] == ['architectures[0]: "LeakyForCausalLM" \u2192 "LeakyModel"']


def test_where_a_file_places_its_tensors_changes_no_crossing():
    from check_integrity import checkpoint

    observations = []
    for behind in (4, 24):
        folder = str(checkpoint("rounds by place", behind=behind))
        source = SOURCE._replace(where=folder, trust_remote_code=True)
        observations.append(load.observe(source, Fed()))
        model = load_model(source).model
        assert model.proj.weight.data_ptr() % 32 == behind % 32
    assert torch.equal(observations[0].logits, observations[1].logits)
    assert observations[0].hashes == observations[1].hashes
