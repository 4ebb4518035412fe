"""The section of processors, and a model's page."""

import numpy as np
import pytest

from samebits.questions import registry
from samebits.questions.differing import NOT_OBSERVED
from samebits.questions.processors import QUESTION
from samebits.questions.processors.records import PROCESSORS, ProcessorCase
from samebits.questions.processors.section import (
    processors,
    processors_differ,
    processors_of,
)
from samebits.records.finding import StackFinding
from samebits.records.report import PackagesReport
from samebits.reports.document import render
from tests.support.builders import capture
from tests.support.processed import case, signal
from tests.support.sample_report import sample_report

EXACT = np.random.default_rng(1).uniform(-1, 1, (3, 8, 8))
NATIVE = EXACT.astype(np.float32)
OTHER = EXACT + 0.01 * np.random.default_rng(2).uniform(-1, 1, EXACT.shape)
PLAIN = signal({"RGB": case(NATIVE, EXACT)}, settings={"resample": "2"})
CHANGED = signal({"RGB": case(OTHER.astype(np.float32), OTHER)}, settings={"resample": "3"})


def report_with(**signals):
    report = sample_report()
    stacks = [stack.id for stack in report.stacks][: len(signals)]
    by_stack = dict(zip(stacks, signals.values(), strict=True))
    captures = {stack: capture(stack, processors=signal) for stack, signal in by_stack.items()}
    answers = {"processors": QUESTION.of_captures(captures, stacks[0])}
    row = report.rows[0].model_copy(update={"answers": answers})
    return report.model_copy(update={"rows": (row, *report.rows[1:])})


def test_equal_processors_are_one_sentence():
    report = report_with(a=PLAIN, b=PLAIN)
    assert "return the same bytes in all releases" in processors(report)
    assert not processors_differ(report.rows)


def test_calls_that_raise_in_all_releases_are_no_equal_bytes():
    raised = ProcessorCase(raised="ImportError", message="Pillow is missing")
    nothing = signal({"RGB": raised, "gray": raised})
    text = processors(report_with(a=nothing, b=nothing))
    assert "return the same bytes" not in text
    assert "Nothing was compared: every call raises in all releases" in text
    page = processors_of([report_with(a=nothing, b=nothing).rows[0]], sample_report())
    assert (
        f"image processor: not observed, as both releases raise | {NOT_OBSERVED} | `2 inputs` |"
        in _plain(page)
    )
    # a twin of which one case answers
    some = signal({"RGB": raised, "gray": case(NATIVE, EXACT)})
    report = report_with(a=some, b=some)
    assert "return the same bytes in all releases" in processors(report)
    page = processors_of([report.rows[0]], report)
    assert (
        f"image processor: not observed, as both releases raise | {NOT_OBSERVED} | `1 input` |"
        in _plain(page)
    )
    assert "image processor: outputs | `same as in 4.48` | `same as in 4.48` |" in _plain(page)


def _plain(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        ({"pillow": "13.0", "torchvision": "0.28"}, "Images: torchvision 0.28 is installed"),
        ({"pillow": "13.0"}, "Images: Pillow 13.0 alone. With torchvision, which most users"),
    ],
)
def test_what_computes_the_images_is_named(packages, words):
    report = report_with(a=PLAIN, b=PLAIN)
    stacks = tuple(s.model_copy(update={"packages": packages}) for s in report.stacks)
    report = report.model_copy(update={"stacks": stacks})
    assert words in processors(report)
    assert words in processors_of([report.rows[0]], report)
    of_model = PackagesReport(models=(report.rows[0].model,), stack=stacks[0].id, listed=())
    own = of_model.model_copy(update={"packages": {"pillow": "12.0"}})
    bare = tuple(s.model_copy(update={"packages": {}}) for s in stacks)
    report = report.model_copy(update={"stacks": bare, "packages": (own,)})
    assert "Images: Pillow 12.0 alone" in processors(report)


def test_another_function_is_counted_and_its_setting_shown():
    report = report_with(a=PLAIN, b=CHANGED)
    text = processors(report)
    assert "behaviour change: 1 of 1" in text
    assert "| image processor: resample | `2` | `3` |" in " ".join(text.split())
    assert processors_differ(report.rows)
    page = processors_of([report.rows[0]], report)
    assert "image processor: RGB" in page
    assert "RMS in float64" in page


def test_a_report_has_no_values_of_cases():
    row = report_with(a=PLAIN, b=CHANGED).rows[0]
    assert all(
        not p.cases
        for s in PROCESSORS.in_row(row.answers).stacks.values()
        for p in s.parts.values()
    )


def test_a_backend_that_a_stack_lacks_is_shown_with_the_reason():
    reason = "torchvision is not installed in this environment"
    missing = signal(
        part="image processor, torchvision on demand", class_name="", backend="", absent=reason
    )
    report = report_with(a=missing, b=missing)
    assert f"absent: {reason}" in processors_of([report.rows[0]], report)
    assert not processors_differ(report.rows)


def test_a_finding_of_the_release_counts_the_models_with_processors():
    report = report_with(a=PLAIN, b=PLAIN)
    model = report.rows[0].model
    finding = StackFinding(code="SB832", where="image processor", evidence=("x",), models=(model,))
    first, second, *others = report.stacks
    stacks = (first, second.model_copy(update={"findings": (finding,)}), *others)
    report = report.model_copy(update={"stacks": stacks, "rules": registry.texts(["SB832"])})
    assert any("| all 1 |" in line for line in _about("SB832", report))
    sound = report.rows[2].model_copy(update={"answers": report.rows[0].answers})
    with_another = report.model_copy(update={"rows": (report.rows[0], sound)})
    assert not any("all 1" in line for line in _about("SB832", with_another))


def _about(code, report):
    lines = (line for text in render(report).values() for line in text.splitlines())
    return [_plain(line) for line in lines if code in line]
