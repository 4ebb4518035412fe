"""The environment page: settings that changed, and what exists only on a GPU."""

from typing import get_args

from samebits.records.device import DeviceProbe, DeviceProbeName
from samebits.records.distance import Distance
from samebits.records.ids import Variant
from samebits.records.settings import SettingChange
from samebits.reports.sections.devices import (
    NOT_ASKED,
    NOT_REACHED,
    only_on_a_gpu,
    settings_changed,
)
from tests.support.sample_report import renamed, sample_report

NAMES = get_args(DeviceProbeName)


def with_rows(change):
    report = sample_report()
    first, *others = report.rows
    return report.model_copy(update={"rows": (change(first), *others)})


def on_gpu(row, **device):
    variant = Variant(dtype="bfloat16", attention="default", device="cuda")
    return renamed(row, variant=variant).model_copy(update={"device": device})


def lines(text):
    return {name: line for name in NAMES for line in text.splitlines() if f"| {name} " in line}


def test_without_a_cell_on_a_gpu_the_reason_is_given_once():
    text = str(only_on_a_gpu(sample_report()))
    assert text.count(NOT_ASKED) == 1
    assert all(name in text for name in NAMES)


def test_cells_on_a_missing_gpu_have_another_reason():
    assert NOT_REACHED in str(only_on_a_gpu(with_rows(on_gpu)))


def test_what_ran_is_counted_and_a_reason_is_listed_once():
    distance = Distance(n=4, n_differ=1, max_abs=0.5, mean_abs=0.1)
    ran = DeviceProbe(name="TF32 on", prompt="short", repeats=True, distance=distance)
    skipped = DeviceProbe(name="flash_attention_2", prompt="short", skipped="no package flash_attn")
    report = with_rows(lambda row: on_gpu(row, **{"4.48": (ran, skipped), "5.2": (ran, skipped)}))
    by_name = lines(str(only_on_a_gpu(report)))
    assert [cell.strip() for cell in by_name["TF32 on"].split("|")[2:4]] == ["2", "2"]
    assert by_name["flash_attention_2"].count("no package flash_attn") == 1


def test_settings_that_changed_name_what_set_them():
    change = SettingChange(name="torch.get_default_dtype()", before="a", after="b", by="load")
    report = with_rows(lambda row: row.model_copy(update={"settings": {"5.2": (change,)}}))
    text = str(settings_changed(report))
    assert "the load" in text
    assert report.rows[0].model in text
    assert str(settings_changed(sample_report())) == ""
