"""Which steps a run looks at, and what is kept of them."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from samebits.jobs.common import ReadyCell
from samebits.questions.changes.ask import ask
from samebits.questions.changes.records import CHANGES, ChangesOfRow, Step, Unrun
from samebits.questions.changes.section import brief, of_model, of_run
from samebits_wire import seal
from tests.support.asked_run import CELL, LATER, PLAN, REF
from tests.support.builders import model_spec
from tests.support.sample_report import sample_report

SOURCE = "def f(x):\n    return x {} 1\n\ndef g(x):\n    return f(x) {} 1\n"
F = {"models/tiny/modeling_tiny.py": frozenset({1})}


class FakeRun:
    """A run of three stacks whose jobs entered the function f."""

    def __init__(self, root, entered=F, fresh=False):
        self.plan = PLAN
        self.root = root
        self.matrix = SimpleNamespace(model=lambda name: model_spec(name, changes=True))
        self.reads = 0
        self._entered = entered
        cache = SimpleNamespace(
            path=lambda folder, *names, facts: root / folder / f"{hash(repr(facts))}.json",
            dependencies=SimpleNamespace(file=lambda path: None),
            fresh=fresh,
        )
        self.lab = SimpleNamespace(cache=cache, entered={})
        self.store = SimpleNamespace(write_json=self._write)

    def _write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(seal.sealed(text))

    def has_stack(self, cell):
        return True

    async def ready(self, cell):
        return ReadyCell(cell, model_spec(), None, SimpleNamespace(id=cell.stack), None)

    def capture_key(self, ready):
        return str(ready.cell)

    def entered(self, cells):
        self.reads += 1
        return self._entered


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Give each stack a release; the operator of f differs in the last one, that of g in each."""
    for stack, operators in {"4.48": "+-", "5.2": "+*", "5.x": "-/"}.items():
        path = tmp_path / stack / "models/tiny/modeling_tiny.py"
        path.parent.mkdir(parents=True)
        path.write_text(SOURCE.format(*operators))
    monkeypatch.setattr(
        sys.modules[ask.__module__], "transformers_folder", lambda stack: tmp_path / stack.id
    )
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


def test_stacks_whose_jobs_recorded_nothing_have_no_step(sources):
    assert asyncio.run(ask(FakeRun(sources, entered={}))) == {}


UNRUN = Unrun(
    file="models/llama/modeling_llama.py",
    name="LlamaModel.`pad`",
    reference_line=7,
    candidate_line=9,
    near="own",
    distance=1,
)


@pytest.fixture
def report():
    sample = sample_report()
    step = Step(
        reference="4.48", candidate="5.0", ran=4, unrun=12, first=(UNRUN,), unread=("x.py",)
    )
    first, *rest = sample.rows
    row = first.model_copy(
        update={"answers": {**first.answers, CHANGES.name: ChangesOfRow(steps=(step,))}}
    )
    return sample.model_copy(update={"rows": (row, *rest)})


def test_the_first_screen_counts_what_did_not_run(report):
    assert brief(report).startswith("12 of 16 changed definitions of transformers")
    assert brief(sample_report()) == ""


def test_the_page_of_a_model_lists_the_nearest(report):
    page = of_model(list(report.rows), report)
    assert "4.48 → 5.0: 12 of 16 changed definitions that the model can reach did not run" in page
    assert "modeling_llama.py:9" in page
    assert "11 more definitions did not run" in page
    assert "x.py" in page


def test_all_models_are_in_one_table(report):
    assert "did not run" in of_run(report)
    assert not of_run(sample_report())
