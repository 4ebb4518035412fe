"""The report's part on probes of the user's: what each file gives on each stack."""

from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Verdict
from samebits.records.report import Row
from samebits.records.subject import Reason, Subject
from samebits.reports.sections.probes import probes, probes_of
from tests.support.builders import bare_report, cell_id, cell_result, ladder_step

STACKS = ("4.48", "5.x")


def signal(outcome, *items, name="mine", n_differ=0):
    return SignalComparison(signal=name, outcome=outcome, n_items=3, n_differ=n_differ, items=items)


def item(outcome="differs", path="pooling", **more):
    return ItemComparison(subject=Subject(tensor=path), outcome=outcome, **more)


def step(kind, path="pooling"):
    return ladder_step(1e-6, 0.0, kind, signal="mine", subject=Subject(tensor=path))


def row(**fields):
    verdicts = (Verdict.REFERENCE, Verdict.IDENTICAL)
    cells = [cell_result(cell_id(s), v) for s, v in zip(STACKS, verdicts, strict=True)]
    cells[1] = cells[1].model_copy(update=fields)
    return Row(model="llama", variant="float32-sdpa", reference="4.48", cells=tuple(cells))


def line(**fields):
    """Return the cells of the only line of the table."""
    text = probes(bare_report(STACKS, row(**fields)))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [part.strip() for part in lines[-1].strip("|").split("|")][1:] if lines else text


def test_a_run_without_probes_has_no_section():
    assert line() == ""
    assert probes_of([row()]) == ""
    assert line(signals=(signal("identical", name="logits"),)) == ""


def test_one_that_counts_is_among_the_signals():
    answers = line(signals=(signal("identical"),))
    assert answers == ["`mine`", "counts", "reference", "identical"]
    assert probes_of([row(signals=(signal("differs", item()),))]) == ""


def test_one_that_informs_has_its_own_part_and_the_ladders_word():
    differs = signal("differs", item(), n_differ=1)
    fields = {"informing": (differs,), "informing_steps": (step("rounding"),)}
    assert line(**fields)[1:] == ["informs", "reference", "**differs** 1 of 3 (rounding)"]
    page = probes_of([row(**fields)])
    assert "mine: what differs" in page
    assert "Float64 check" in page


def test_the_worst_kind_counts_and_a_part_outside_of_the_ladder_has_none():
    two = signal("differs", item(), item(path="n"), n_differ=2)
    both = {"informing": (two,), "informing_steps": (step("rounding"), step("undecided", "n"))}
    assert line(**both)[-1] == "**differs** 2 of 3 (undecided)"
    assert line(informing=(two,), informing_steps=(step("rounding"),))[-1] == "**differs** 2 of 3"


def test_why_one_was_not_compared():
    restless = item("not compared", reason=Reason.NOT_REPEATABLE, note="not repeatable: …")
    raised = item("not compared", reason=Reason.RAISED, note="raised here: …")
    assert line(informing=(signal("not compared", restless),))[-1] == "not repeatable"
    mixed = signal("identical", restless, raised)
    assert line(informing=(mixed,))[-1] == "identical; not repeatable; raises"
