"""What releases write: compared, named where it is a defect, and listed once for all models."""

import pytest

from samebits.findings.case import Case
from samebits.questions.registry import findings
from samebits.questions.writes.compare import differences, of_captures
from samebits.questions.writes.records import TENSORS, WRITES
from samebits.questions.writes.section import of_model, of_run
from samebits.records.provenance import IntegritySignal
from samebits.records.written import Written
from tests.support.builders import Memory, sound, tokenizer
from tests.support.sample_report import same_everywhere, sample_report


def save(tensors=("a.weight", "b.weight"), lost=None, **files):
    """Return a save; ``files`` are keys of JSON files, each with its digest under ``digest``."""
    named = {
        f"{name}.json": {"digest": keys.pop("digest", str(keys)), "keys": keys}
        for name, keys in files.items()
    }
    shapes = None if tensors is None else dict.fromkeys(tensors, "float32 [2]")
    named = named or {"config.json": {"digest": "1"}}
    return Written.model_validate({"files": named, "tensors": shapes, "lost": lost or {}})


def run(stack="5.x", model=None, of_tokenizer=None):
    signals = {"integrity": IntegritySignal(poison="seen", written=model)}
    if of_tokenizer is not None:
        signals["tokenizer"] = tokenizer(written=of_tokenizer)
    return sound(Memory(), stack, **signals)


def codes_of(capture, reference=None):
    return [each.code for each in findings(Case(capture=capture, reference=reference))]


def found(before, after):
    return [
        (each.file, each.key, each.reference, each.candidate)
        for each in differences({"model": before}, {"model": after})
    ]


def test_saves_stand_in_the_order_of_the_reference():
    names = [f"save {number}" for number in (3, 1, 4, 5, 9, 2, 6, 8, 7)]
    sides = ({n: save(**{n: {"k": value}}) for n in names} for value in ("1", "2"))
    assert [each.file for each in differences(*sides)] == [f"{name}.json" for name in names]


def test_equal_saves_do_not_differ():
    assert found(save(config={"a": "1"}), save(config={"a": "1"})) == []


def test_keys_appear_disappear_and_change():
    before = save(config={"a": "1", "b.0.c": "1", "b.1.c": "1", "gone": "true"})
    after = save(config={"a": "2", "b.0.c": "2", "b.1.c": "2", "new": "true"})
    assert found(before, after) == [
        ("config.json", "a", "1", "2"),
        ("config.json", "b.*.c", "1", "2"),
        ("config.json", "gone", "true", "absent"),
        ("config.json", "new", "absent", "true"),
    ]


def test_files_and_bytes_differ():
    before = save(config={"a": "1", "digest": "x"}, map={"a": "1"})
    after = save(config={"a": "1", "digest": "y"}, other={"a": "1"})
    assert found(before, after) == [
        ("config.json", "", "x", "y"),
        ("map.json", "", "written", "absent"),
        ("other.json", "", "absent", "written"),
    ]


def test_names_of_tensors_differ():
    before, after = save(("layers.0.a", "layers.1.a", "b")), save(("layers.0.a", "layers.1.a", "c"))
    assert found(before, after) == [
        (TENSORS, "b", "float32 [2]", "absent"),
        (TENSORS, "c", "absent", "float32 [2]"),
    ]
    assert found(before, save(None)) == []


def test_what_only_one_side_saved_is_not_compared():
    both, model = run("4.48", save(), save(None, config={"a": "1"})), run("5.x", save())
    answer = of_captures({"4.48": both, "5.x": model}, "4.48")
    assert answer.stacks["5.x"].differences == ()
    assert of_captures({"4.48": run("4.48")}, "4.48") is None


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        (save(), save(), []),
        (save(), save(("a.weight", "model.b.weight")), ["SB311"]),
        (save(), save(("a.weight",)), ["SB311"]),
        (save(), save(None), []),
        (save(config={"a": "1"}), save(config={"b": "1"}), []),
        (save(), save(lost={"config.json": {"a": ("1", "absent")}}), ["SB208"]),
        (save(lost={"config.json": {"a": ("1", "absent")}}), save(), []),
    ],
)
def test_other_names_and_lost_keys_are_findings(before, after, codes):
    assert codes_of(run("5.x", after), reference=run("4.48", before)) == codes


@pytest.mark.parametrize(
    ("config", "key", "lost", "codes"),
    [
        ({"model_type": "vitpose"}, "use_timm_backbone", ("false", "absent"), []),
        ({"model_type": "vitpose"}, "use_timm_backbone", ("true", "absent"), ["SB208"]),
        ({"model_type": "vitpose"}, "use_timm_backbone", ("false", "true"), ["SB208"]),
        ({"model_type": "vitpose"}, "scale_by", ("4", "absent"), ["SB208"]),
        ({"model_type": "vitpose"}, "backbone_config.x", ("4", "absent"), ["SB208"]),
        (
            {"model_type": "x", "p": {"model_type": "vitpose"}},
            "p.scale_factor",
            ("4", "absent"),
            [],
        ),
        (
            {"model_type": "vitpose", "auto_map": {}},
            "use_timm_backbone",
            ("false", "absent"),
            ["SB208"],
        ),
        ({"model_type": "qwen2"}, "quantization_config.fmt", ("e4m3", "absent"), []),
        (
            {"model_type": "qwen2", "quantization_config": {}},
            "quantization_config.fmt",
            ("e4m3", "absent"),
            ["SB208"],
        ),
        ({"model_type": "qwen2"}, "quantization_config.fmt", ("e4m3", "x"), ["SB208"]),
    ],
)
def test_a_key_that_a_right_copy_may_leave_out_is_no_loss(config, key, lost, codes):
    capture = run(model=save(lost={"config.json": {key: lost}}))
    signals = capture.signals.model_copy(update={"config": config})
    assert codes_of(capture.model_copy(update={"signals": signals})) == codes


def test_a_key_that_the_tokenizer_loses_is_a_finding():
    losing = save(None, lost={"tokenizer_config.json": {"a": ("1", "2")}})
    assert codes_of(run(of_tokenizer=losing)) == ["SB208"]
    assert codes_of(run(of_tokenizer=save(None))) == []


def row(model, after):
    answer = of_captures({"4.48": run("4.48", save()), "5.0": run("5.0", after)}, "4.48")
    return same_everywhere(model, "float32").model_copy(update={"answers": {WRITES.name: answer}})


def test_what_all_models_share_is_one_line():
    new = {"config.json": {"digest": "2"}}
    common = Written.model_validate({"files": new, "tensors": {"a.weight": "float32 [2]"}})
    rows = (row("m", common), row("n", common.model_copy(update={"tensors": None})))
    report = sample_report().model_copy(update={"rows": rows})
    text = of_run(report)
    assert text.count("`config.json`") == 1
    assert "all 2" in text
    assert "disappears" in text
    assert text.count("`m`") == 1
    assert "`b.weight`" in of_model([rows[0]], report)


def test_what_all_models_with_a_tokenizer_share_is_one_line():
    new = save(tokenizer_config={"a": "1"})
    spoken = {"tokenizers": {"5.0": tokenizer()}}
    rows = [row(name, new).model_copy(update=spoken) for name in ("m", "n")]
    text = of_run(sample_report().model_copy(update={"rows": (*rows, row("o", save()))}))
    assert "all 2 with a tokenizer" in text
    assert "`m`" not in text


def test_equal_saves_are_said_to_be_equal():
    report = sample_report().model_copy(update={"rows": (row("m", save()),)})
    assert "All releases write the same." in of_run(report)
    assert not of_model(list(report.rows), report)
    assert not of_run(report.model_copy(update={"rows": ()}))
