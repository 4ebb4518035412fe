"""The proof that nothing changed reaches what a report can hold, and notices what changes."""

import itertools
import json
from pathlib import Path

import pytest

from bench import unchanged
from bench.unchanged import MODELS, RUNS
from bench.values import Comparison, Keys
from bench.wording import Pair, Wording, lines, pairs
from samebits.matrix.load import load
from tests.support.zoo import zoo_report

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
    report = zoo_report()
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


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.report)
def test_models_of_each_run_have_its_dtype(run):
    dtypes = {model.name: model.dtypes for model in load(ROOT / "zoo.yaml").models}
    for _, *words in run.commands:
        options = dict(itertools.pairwise(words))
        for name in options["--models"].split(","):
            assert options["--dtypes"] in dtypes[name]


def test_cached_run_has_the_options_of_the_first():
    runs = {run.report: run for run in RUNS}
    assert runs["cached"][1:] == runs["report"][1:]


def differences(before, after, reworded=(), keys=None):
    return list(unchanged.differences(before, after, Wording(reworded), keys or Keys()))


def changed_values(before, after, reworded=(), keys=None):
    return list(Comparison(Wording(reworded), keys or Keys()).differences(before, after))


@pytest.fixture
def folders(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "models").mkdir(parents=True)
        (tmp_path / name / "report.md").write_text("at 2026-11-22T02:51:11Z in 4 min 3 s\n")
        (tmp_path / name / "models" / "llama.md").write_text("the same bits\n")
    return tmp_path / "a", tmp_path / "b"


def test_times_are_no_difference(folders):
    (folders[1] / "report.md").write_text("at 2026-11-23T03:00:00Z in 51.2 s\n")
    assert differences(*folders) == []


@pytest.mark.parametrize("text", ["-- a rule\nthe same bits\n", "the same bits"])
def test_line_that_looks_like_a_header_and_a_lost_last_end_are_differences(folders, text):
    (folders[1] / "models" / "llama.md").write_text(text)
    assert differences(*folders)


def test_padding_of_a_table_is_no_difference(folders):
    for folder, word in zip(folders, ("says", "result"), strict=True):
        dashes, spaces = "-" * len(word), " " * (len(word) - 1)
        table = f"| {word} |   a |\n|:{dashes}-|----:|\n| x{spaces} |  12 |\n"
        (folder / "models" / "llama.md").write_text(table)
    assert differences(*folders, [Pair("| says |", "| result |")]) == []


def test_anchor_of_a_finding_follows_its_title_and_its_page_does_not(folders):
    for folder, title in zip(folders, ("old title", "new title"), strict=True):
        link = f"[SB101](../around.md#sb101-{title.replace(' ', '-')})\n"
        (folder / "models" / "llama.md").write_text(link)
    assert differences(*folders) == []
    (folders[1] / "models" / "llama.md").write_text("[SB101](../other.md#sb101-new-title)\n")
    assert differences(*folders)


def test_word_at_which_a_text_is_cut_is_no_difference_and_the_rest_is(folders):
    for folder, text in zip(
        folders, ("layers 0, laye…; 3 ULP", "layers 0, l…; 3 ULP"), strict=True
    ):
        (folder / "report.md").write_text(text)
    assert differences(*folders) == []
    (folders[1] / "report.md").write_text("layers 0, l…; 4 ULP")
    assert differences(*folders)


def test_changed_byte_is_named_with_its_file(folders):
    (folders[1] / "models" / "llama.md").write_text("the same bit\n")
    assert differences(*folders) == [
        "models/llama.md: -the same bits",
        "models/llama.md: +the same bit",
    ]


def test_file_of_one_side_is_a_difference(folders):
    (folders[0] / "models" / "llama.md").unlink()
    assert differences(*folders) == ["models/llama.md: only after"]


def test_reworded_phrase_is_no_difference_and_an_unused_one_is(folders):
    (folders[1] / "models" / "llama.md").write_text("identical bits\n")
    reworded = [Pair("the same bits", "identical bits")]
    assert differences(*folders, reworded) == []
    (line,) = differences(*folders, [*reworded, Pair("no such words", "other words")])
    assert "no such words" in line


def test_line_that_both_sides_have_is_not_reworded(folders):
    for folder, text in zip(
        folders, ("it differs\nbits differ\n", "it differs\nundecided\n"), strict=True
    ):
        (folder / "models" / "llama.md").write_text(text)
    assert differences(*folders, [Pair("bits differ", "undecided")]) == []
    assert differences(*folders, [Pair("bits differ", "undecided"), Pair("it differs", "no")])


def test_replacement_is_not_replaced_again():
    wording = Wording([Pair("here", "there"), Pair("there", "in the reference")])
    assert wording.reworded("here, not there") == "there, not in the reference"


def test_json_is_compared_by_value(folders):
    for folder, indent in zip(folders, (None, 1), strict=True):
        (folder / "report.json").write_text(json.dumps({"rows": [{"max_abs": 0.5}]}, indent=indent))
    assert differences(*folders) == []
    (folders[1] / "report.json").write_text('{"rows": [{"max_abs": 0.25}]}')
    assert differences(*folders) == ["report.json: rows[0].max_abs: 0.5 -> 0.25"]


ROW = {
    "model": "llama",
    "verdict": "differs",
    "numbers": [1, 2, 3],
    "broken": False,
    "digest": "ab",
}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"numbers": [1, 2, 4]}, "rows[0].numbers[2]: 3 -> 4"),
        ({"numbers": [1, 3, 2]}, "rows[0].numbers[1]: 2 -> 3"),
        ({"numbers": [1, 2]}, "rows[0].numbers: 3 items before, 2 after"),
        ({"numbers": None}, "rows[0].numbers: [1, 2, 3] -> null"),
        ({"numbers": [1, 2, 3.0]}, "rows[0].numbers[2]: 3 -> 3.0"),
        ({"broken": True}, "rows[0].broken: false -> true"),
        ({"broken": 0}, "rows[0].broken: false -> 0"),
        ({"digest": "ac"}, 'rows[0].digest: "ab" -> "ac"'),
        ({"verdict": "identical"}, 'rows[0].verdict: "differs" -> "identical"'),
        ({"ulp": 1}, "rows[0].ulp: only after"),
    ],
)
def test_changed_value_is_a_difference(change, place):
    assert place in changed_values({"rows": [ROW]}, {"rows": [ROW | change]})
    # no wording hides it
    wording = [Pair('"differs"', '"undecided"')]
    assert place in changed_values({"rows": [ROW]}, {"rows": [ROW | change]}, wording)


def test_lost_key_and_keys_in_another_order_are_differences():
    lost = {key: value for key, value in ROW.items() if key != "broken"}
    assert changed_values({"rows": [ROW]}, {"rows": [lost]}) == ["rows[0].broken: only before"]
    turned = dict(reversed(ROW.items()))
    assert changed_values({"rows": [ROW]}, {"rows": [turned]}) == ["rows[0]: keys in another order"]


def test_reworded_value_is_no_difference():
    wording = [Pair('"differs"', '"undecided"')]
    assert changed_values(ROW, ROW | {"verdict": "undecided"}, wording) == []
    # the quotes are part of the phrase
    assert changed_values({"why": "it differs"}, {"why": "it undecided"}, wording)


def test_key_may_be_added_or_renamed_if_a_list_names_it():
    before = {"rows": [{"relations": {"5.x": [1]}}]}
    after = {"rows": [{"invariants": {"5.x": [1]}, "why": "rope"}]}
    keys = Keys(["rows.why"], [Pair("rows.relations", "rows.invariants")])
    assert changed_values(before, after, keys=keys) == []
    assert keys.unused() == []
    assert len(changed_values(before, after)) == 3
    after["rows"][0]["invariants"]["5.x"] = [2]
    assert changed_values(before, after, keys=keys) == ["rows[0].invariants.5.x[0]: 1 -> 2"]


def test_added_key_is_allowed_only_at_its_path_and_not_on_the_old_side():
    keys = Keys(["rows.why"])
    assert changed_values({"why": 1, "rows": []}, {"why": 1, "rows": []}, keys=keys) == []
    assert changed_values({}, {"why": 1}, keys=keys) == ["why: only after"]
    assert changed_values({"rows": [{"why": 1}]}, {"rows": [{}]}, keys=keys)
    assert keys.unused() == ["rows.why"]


def test_number_of_the_schema_changes_only_with_its_keys():
    before, after = {"schema_version": 4}, {"schema_version": 5, "new": 1}
    assert changed_values(before, after, keys=Keys(["new"])) == []
    assert changed_values(before, {"schema_version": 5}) == ["schema_version: 4 -> 5"]


def test_costs_are_compared_by_kind_and_number_of_jobs():
    costs = [{"kind": "cell", "jobs": 4, "cpu": 9.5}, {"kind": "trace", "jobs": 2, "cpu": 1.5}]
    slower = [{"kind": "trace", "jobs": 2, "cpu": 9.75}, {"kind": "cell", "jobs": 4, "cpu": 9.5}]
    assert changed_values({"spent": costs}, {"spent": slower}) == []
    slower[1]["jobs"] = 5
    assert changed_values({"spent": costs}, {"spent": slower}) == ["spent[0].jobs: 4 -> 5"]


def test_durations_and_digests_of_pages_are_no_difference_and_a_lost_page_is():
    before = {"seconds": 1.5, "files": {"models/llama.md": "0" * 64}}
    after = {"seconds": 2.25, "files": {"models/llama.md": "1" * 64}}
    assert changed_values(before, after) == []
    assert changed_values(before, {"seconds": 2.25, "files": {}})
    assert changed_values(before, after | {"seconds": None})


def test_committed_lists_are_read(tmp_path):
    (tmp_path / "reworded.txt").write_text("# a comment\n\nbefore => after\n")
    assert pairs(tmp_path / "reworded.txt") == [Pair("before", "after")]
    reworded = pairs(unchanged.REWORDED)
    assert all(pair.before != pair.after for pair in [*reworded, *pairs(unchanged.RENAMED)])
    for phrases in ([pair.before for pair in reworded], lines(unchanged.ADDED)):
        assert len(phrases) == len(set(phrases))
