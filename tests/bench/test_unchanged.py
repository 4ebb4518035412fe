"""The proof that nothing changed reaches what a report can hold, and notices what changes."""

from pathlib import Path

import pytest

from bench import unchanged
from bench.unchanged import MODELS, Pair, differences, pairs
from samebits.reports import json as report_json

ROOT = Path(__file__).parents[2]


def features(cell):
    """Yield what one cell has of everything that a report can show."""
    yield "verdict", cell.verdict
    yield "judged", cell.judged
    yield "rest", cell.rest
    yield from (("signal", signal.signal, signal.outcome) for signal in cell.signals)
    yield from (("family of findings", finding.code[:3]) for finding in cell.findings)
    if cell.ladder:
        yield "rule of the ladder", cell.ladder.kind, cell.ladder.rule
    if cell.cause:
        yield "cause", cell.cause.kind
    if cell.graft:
        yield "proof of a swap", cell.graft.proof
    if cell.failure:
        yield "phase of a failure", cell.failure.phase.split()[0]


def test_models_have_every_feature_of_the_zoo():
    report = report_json.read((ROOT / "reports" / "zoo" / "report.json").read_bytes())
    rows = [row for row in report.rows if str(row.variant).startswith("float32")]
    of_all = {feature for row in rows for cell in row.cells for feature in features(cell)}
    of_models = {
        feature
        for row in rows
        if row.model in MODELS
        for cell in row.cells
        for feature in features(cell)
    }
    assert of_models == of_all


@pytest.fixture
def folders(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "models").mkdir(parents=True)
        (tmp_path / name / "report.md").write_text("at 2026-11-22T02:51:11Z in 4 min 3 s\n")
        (tmp_path / name / "models" / "llama.md").write_text("the same bits\n")
    return tmp_path / "a", tmp_path / "b"


def test_times_are_no_difference(folders):
    (folders[1] / "report.md").write_text("at 2026-11-23T03:00:00Z in 51.2 s\n")
    assert list(differences(*folders)) == []


def test_order_of_costs_and_digests_of_pages_are_no_difference(folders):
    for folder, kinds, digest in zip(folders, ("ab", "ba"), ("0" * 64, "1" * 64), strict=True):
        spent = ",\n  ".join(f'{{"kind": "{kind}"}}' for kind in kinds)
        text = f'{{\n "spent": [\n  {spent}\n ],\n "files": {{\n  "models/llama.md": "{digest}"\n }}\n}}\n'
        (folder / "report.json").write_text(text)
    assert list(differences(*folders)) == []
    (folders[1] / "report.json").write_text('{\n "spent": [\n  {"kind": "a"}\n ]\n}\n')
    assert any("['a', 'b']" in line for line in differences(*folders))


@pytest.mark.parametrize("text", ["-- a rule\nthe same bits\n", "the same bits"])
def test_line_that_looks_like_a_header_and_a_lost_last_end_are_differences(folders, text):
    (folders[1] / "models" / "llama.md").write_text(text)
    assert list(differences(*folders))


def test_padding_of_a_table_is_no_difference(folders):
    for folder, word in zip(folders, ("says", "result"), strict=True):
        dashes, spaces = "-" * len(word), " " * (len(word) - 1)
        table = f"| {word} |   a |\n|:{dashes}-|----:|\n| x{spaces} |  12 |\n"
        (folder / "models" / "llama.md").write_text(table)
    assert list(differences(*folders, [Pair("| says |", "| result |")])) == []


def test_changed_byte_is_named_with_its_file(folders):
    (folders[1] / "models" / "llama.md").write_text("the same bit\n")
    lines = list(differences(*folders))
    assert lines == ["models/llama.md: -the same bits", "models/llama.md: +the same bit"]


def test_file_of_one_side_is_a_difference(folders):
    (folders[0] / "models" / "llama.md").unlink()
    assert list(differences(*folders)) == ["models/llama.md: only after"]


def test_reworded_phrase_is_no_difference_and_an_unused_one_is(folders):
    (folders[1] / "models" / "llama.md").write_text("identical bits\n")
    reworded = [Pair("the same bits", "identical bits")]
    assert list(differences(*folders, reworded)) == []
    (line,) = differences(*folders, [*reworded, Pair("no such words", "other words")])
    assert "no such words" in line


def test_committed_phrases_are_read(tmp_path):
    (tmp_path / "reworded.txt").write_text("# a comment\n\nbefore => after\n")
    assert pairs(tmp_path / "reworded.txt") == [Pair("before", "after")]
    assert all(pair.before != pair.after for pair in pairs(unchanged.REWORDED))
