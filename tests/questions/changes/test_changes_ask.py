"""Which steps a run looks at, and what is kept of them."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from samebits.diagnose.exit_code import UNASKED
from samebits.jobs.common import ReadyCell
from samebits.pipeline.reporting import strictly
from samebits.questions.changes import QUESTION, release
from samebits.questions.changes.ask import ask, of_cell
from samebits.questions.changes.records import CHANGES, ChangesOfRow, Step, Unrun
from samebits.questions.changes.section import TITLE, brief, limit, of_model, of_run, unasked
from samebits.records.capture import Failure, Frame
from samebits.records.ids import Verdict
from samebits.reports.formats import junit
from samebits.reports.head import head
from samebits.reports.model_pages import pages
from samebits.text.names import page_path
from samebits_wire import seal
from tests.support.asked_run import CELL, LATER, PLAN, REF
from tests.support.builders import cell_result, model_spec
from tests.support.sample_report import sample_report

SOURCE = "def f(x):\n    return x {} 1\n\ndef g(x):\n    return f(x) {} 1\n"
F = {"models/tiny/modeling_tiny.py": frozenset({1})}


def spec(name="llama"):
    return model_spec(name, questions={CHANGES.name: True})


class FakeRun:
    """A run of three stacks whose jobs entered the function f."""

    def __init__(self, root, entered=F, fresh=False):
        self.plan = PLAN
        self.root = root
        self.matrix = SimpleNamespace(model=spec)
        self.reads = 0
        self.results = {}
        self._entered = entered
        cache = SimpleNamespace(
            path=lambda folder, *names, facts: root / folder / f"{hash(repr(facts))}.json",
            dependencies=SimpleNamespace(file=lambda path: None),
            fresh=fresh,
        )
        self.lab = SimpleNamespace(cache=cache, entered={}, aside={})
        self.store = SimpleNamespace(write_json=self._write)

    def _write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(seal.sealed(text))

    def has_stack(self, cell):
        return True

    async def ready(self, cell):
        return ReadyCell(cell, spec(), None, SimpleNamespace(id=cell.stack), None)

    def capture_key(self, ready):
        return str(ready.cell)

    def entered(self, cells, *, aside=False):
        self.reads += 1
        return {} if aside else self._entered

    def capture(self, cell):
        return None


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Give each stack a release; the operator of f differs in the last one, that of g in each."""
    for stack, operators in {"4.48": "+-", "5.2": "+*", "5.x": "-/"}.items():
        path = tmp_path / stack / "models/tiny/modeling_tiny.py"
        path.parent.mkdir(parents=True)
        path.write_text(SOURCE.format(*operators))
    module = sys.modules[ask.__module__]
    monkeypatch.setattr(module, "transformers_folder", lambda stack: tmp_path / stack.id)
    monkeypatch.setattr(module, "own_folder", lambda stack: tmp_path / "environments" / stack.id)
    return tmp_path


def asked(run):
    (answer,) = asyncio.run(ask(run)).values()
    return answer


def test_each_step_from_a_stack_to_the_next_one_is_looked_at(sources):
    steps = asked(FakeRun(sources)).steps
    assert [(s.reference, s.candidate, s.ran) for s in steps] == [
        (REF.stack, CELL.stack, 0),
        (CELL.stack, LATER.stack, 1),
    ]


def test_a_second_run_reads_no_capture(sources):
    first = asked(FakeRun(sources))
    again = FakeRun(sources)
    assert asked(again) == first
    assert again.reads == 0


def test_a_fresh_run_looks_again(sources):
    asked(FakeRun(sources))
    fresh = FakeRun(sources, fresh=True)
    asked(fresh)
    assert fresh.reads


def test_what_a_release_defines_is_read_once_and_kept(sources, monkeypatch):
    first = asked(FakeRun(sources))
    for step in sources.glob("changes/*.json"):
        step.unlink()  # of this model; another one comes to the same releases
    for reader in (release.source, release.parts):
        monkeypatch.setattr(reader, "read", lambda *_: pytest.fail("a file was read again"))
    assert asked(FakeRun(sources)) == first


@pytest.mark.parametrize("why", ["another release", "a damaged file", "nowhere to keep it"])
def test_what_was_kept_is_not_taken_for_what_is_installed(sources, why):
    installed = sources / "transformers-5.dist-info/RECORD"
    installed.parent.mkdir()
    installed.write_text("first")
    if why == "nowhere to keep it":
        (sources / "environments").write_text("a file in the place of the folder")
    before = asked(FakeRun(sources))
    path = sources / "5.2/models/tiny/modeling_tiny.py"
    path.write_text(path.read_text().replace("x + 1", "x * 1"))
    if why == "another release":
        installed.write_text("second")
    for kept in sources.glob("environments/*/*/*") if why == "a damaged file" else ():
        kept.write_text(kept.read_text()[:-20])
    for step in sources.glob("changes/*.json"):
        step.unlink()
    assert asked(FakeRun(sources)) != before


def test_a_stack_that_is_on_another_machine_has_no_step(sources, monkeypatch):
    monkeypatch.setattr(
        sys.modules[ask.__module__], "transformers_folder", lambda _: next(sources.glob("none"))
    )
    assert asyncio.run(ask(FakeRun(sources))) == {}


def test_stacks_whose_jobs_recorded_nothing_have_no_step(sources):
    assert asyncio.run(ask(FakeRun(sources, entered={}))) == {}


def raised(*lines):
    """Return the result of the last stack, which raises in these lines."""
    frames = [Frame(file=f"transformers/{file}", line=n, function="f") for file in F for n in lines]
    failure = Failure(phase="load", type="E", message="", traceback="", frames=frames)
    return cell_result(LATER, Verdict.FAILED, reference=CELL, failure=failure)


def test_an_exception_says_which_of_its_frames_changed_though_nothing_else_ran(sources):
    run = FakeRun(sources, entered={})
    run.results = {LATER: raised(2)}
    answer = asked(run)
    assert not answer.steps
    found = of_cell(raised(2), {CHANGES.name: answer})
    assert [frame.changed for frame in found.failure.frames] == [True]
    # f is the same in the two stacks before
    run.results = {CELL: raised(2).model_copy(update={"cell": CELL, "reference": REF})}
    assert asyncio.run(ask(run)) == {}


UNRUN = Unrun(
    file="models/llama/modeling_llama.py",
    name="LlamaModel.`pad`",
    area="model",
    reference_line=7,
    candidate_line=9,
    near="own",
    distance=1,
)


def with_step(report, step, off=()):
    """Return a report whose first row has a step."""
    first, *rest = report.rows
    answer = ChangesOfRow(steps=(step,), off=off)
    row = first.model_copy(update={"answers": {**first.answers, CHANGES.name: answer}})
    return report.model_copy(update={"rows": (row, *rest)})


@pytest.fixture
def report():
    step = Step(
        reference="4.48",
        candidate="5.0",
        ran=4,
        unrun=12,
        unreached={"config": 3},
        first=(UNRUN,),
        unread=("x.py",),
    )
    return with_step(sample_report(), step)


def test_the_first_screen_counts_what_did_not_run(report):
    assert (
        limit(report)
        == "12 of 16 changed functions and classes of transformers that a model can reach did not run"
    )
    assert "LlamaModel.`pad` (give inputs or a config that need it), …" in brief(report)
    assert brief(sample_report()) == limit(sample_report()) == ""


def test_a_function_of_several_files_is_named_once_on_the_first_screen():
    other = UNRUN.model_copy(update={"file": "models/clip/modeling_clip.py"})
    last = UNRUN.model_copy(update={"name": "LlamaModel.mask"})
    step = Step(reference="4.48", candidate="5.0", unrun=3, first=(UNRUN, other, last))
    words = brief(with_step(sample_report(), step))
    assert words.count("LlamaModel.`pad`") == 1
    assert "LlamaModel.mask" in words
    assert words.endswith(", …")


def _of_forward(name, **changed):
    """Return a report of which one forward did not run."""
    entry = UNRUN.model_copy(update={"name": name, **changed})
    step = Step(reference="4.48", candidate="5.0", unrun=1, first=(entry,))
    return with_step(sample_report(), step)


def test_a_forward_of_another_class_says_which_class_to_load():
    report = _of_forward("T5EncoderModel.forward")
    assert "(--class transformers:T5EncoderModel)" in brief(report)
    assert "`--class transformers:T5EncoderModel`" in of_model(list(report.rows), report)


@pytest.mark.parametrize(
    ("name", "ran_elsewhere"),
    [("T5EncoderModel.forward", True), ("T5Attention.forward", False), ("T5Model.encode", False)],
)
def test_a_forward_that_ran_in_part_or_of_a_module_needs_inputs(name, ran_elsewhere):
    assert "(give inputs or a config that need it)" in brief(
        _of_forward(name, ran_elsewhere=ran_elsewhere)
    )


def test_the_first_screen_names_what_inputs_reach_before_what_only_a_probe_calls():
    entries = tuple(
        UNRUN.model_copy(update={"name": name, "area": area})
        for name, area in (("PreTrainedModel.to", "other"), ("LlamaModel.mask", "model"))
    )
    step = Step(reference="4.48", candidate="5.0", unrun=2, first=entries)
    words = brief(with_step(sample_report(), step))
    assert words.index("LlamaModel.mask") < words.index("PreTrainedModel.to")


def test_a_step_of_which_all_ran_says_so(report):
    step = Step(reference="4.48", candidate="5.0", ran=4)
    clean = with_step(sample_report(), step)
    assert (
        limit(clean)
        == "all of 4 changed functions and classes of transformers that a model can reach ran, though perhaps not every branch"
    )
    assert brief(clean) == ""
    assert "did not run" not in unasked(clean)


def test_a_few_that_ran_are_named_as_one_of_them_is_what_moved_the_bits():
    step = Step(reference="4.48", candidate="5.0", ran=1, few=("BertModel._adjust_bias",))
    clean = with_step(sample_report(), step)
    assert "can reach ran (BertModel._adjust_bias), though" in limit(clean)
    assert "these ran: `BertModel._adjust_bias`" in of_model(list(clean.rows), clean)


@pytest.mark.parametrize(
    ("level", "words"),
    [("default", "`usage: true`"), ("quick", "run without `--quick` (usage)")],
)
def test_what_a_level_or_the_matrix_leaves_out_says_how_to_switch_it_on(report, level, words):
    entry = UNRUN.model_copy(update={"area": "generation", "off": ("usage",)})
    step = Step(reference="4.48", candidate="5.0", unrun=1, first=(entry,))
    left_out = with_step(sample_report(), step, off=("usage",)).model_copy(update={"level": level})
    page = of_model(list(left_out.rows), left_out)
    assert words in page
    assert "leaves out these questions: `usage`" in page
    assert words.replace("`", "") in brief(left_out)


def test_a_run_that_passes_says_how_far_it_holds(report):
    passes = report.model_copy(update={"exit_code": 0})
    assert "12 of 16 changed functions" in head(passes)[0]
    assert "12 of 16 changed functions" not in head(report.model_copy(update={"exit_code": 1}))[0]


def test_a_strict_run_ends_with_a_code_of_its_own(report):
    passes = report.model_copy(update={"exit_code": 0, "reasons": ()})
    strict = strictly(passes, changes=True, findings=False)
    assert strict.exit_code == UNASKED
    assert "12 of 16" in strict.reasons[0]
    assert "; exit code 4, as asked; 12 of 16 changed" in head(strict)[0]
    assert strict.cells == passes.cells
    nothing_fails = {"rows": (), "stacks": (), "expected": ()}
    for each, failures in ((strict, 1), (passes, 0)):
        text = junit.render(each.model_copy(update=nothing_fails))["junit.xml"]
        assert f'failures="{failures}"' in text
    assert (
        strictly(report.model_copy(update={"exit_code": 1}), changes=True, findings=False).exit_code
        == 1
    )


def test_a_strict_run_passes_if_all_ran(report):
    step = Step(reference="4.48", candidate="5.0", ran=4)
    rows = [
        row.model_copy(
            update={"answers": {**row.answers, CHANGES.name: ChangesOfRow(steps=(step,))}}
        )
        for row in report.rows
    ]
    clean = report.model_copy(update={"exit_code": 0, "rows": tuple(rows)})
    assert strictly(clean, changes=True, findings=False).exit_code == 0


def test_a_strict_run_does_not_pass_if_nobody_looked():
    passes = sample_report().model_copy(update={"exit_code": 0})
    assert (
        "no changed code was looked for in"
        in strictly(passes, changes=True, findings=False).reasons[0]
    )


def test_the_page_of_a_model_lists_the_nearest(report):
    page = of_model(list(report.rows), report)
    assert "4.48 → 5.0: 12 of 16 changed definitions that the model can reach did not run" in page
    assert "modeling_llama.py:9" in page
    assert "11 more definitions did not run" in page
    assert "give inputs that need it" in page
    assert "3: only values that its config does not have lead to them" in page
    assert "x.py" in page


def test_a_model_that_is_identical_has_a_page_if_changed_code_did_not_run(report):
    row = report.rows[0]
    identical = row.model_copy(update={"cells": row.cells[:1]})
    alone = report.model_copy(update={"rows": (identical,)})
    assert TITLE in pages(alone)[page_path(row.model)]
    step = Step(reference="4.48", candidate="5.0", ran=4)
    clean = with_step(alone, step)
    assert not QUESTION.has_details(list(clean.rows), clean)


def test_all_models_are_in_one_table(report):
    assert "did not run" in of_run(report)
    assert not of_run(sample_report())
