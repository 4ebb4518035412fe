"""What a report says of a model's code that was not run."""

from pathlib import Path

from samebits.reports.document import render
from samebits.reports.sections.environment import code_line
from samebits.terminal.screen import screen
from samebits.terminal.summary import summary
from tests.support.sample_report import sample_report

GENERATE = "custom_generate/generate.py"
LINE = f"Not run without trust_remote_code: code of llama ({GENERATE})"


def with_code():
    whole = sample_report()
    first, *others = whole.checkpoints
    first = first.model_copy(update={"not_run": (GENERATE,)})
    return whole.model_copy(update={"checkpoints": (first, *others)})


def test_a_report_of_models_without_code_says_nothing():
    assert code_line(sample_report()) == ""
    assert not any("was not run" in text for text in render(sample_report()).values())


def test_code_that_was_not_run_is_named_on_the_terminal_and_in_the_report():
    report, paths = with_code(), [Path("report.md")]
    assert code_line(report) == LINE
    assert LINE in summary(report, paths)
    assert LINE in screen(report, paths, {})
    named = [path for path, text in render(report).items() if "generate.py" in text]
    assert any(path.endswith("llama.md") for path in named), named
