"""The section of the state that cells leave behind, its line in the terminal, and report.json."""

import json

from samebits.records.state import LeftBehind
from samebits.reports import json as report_json
from samebits.reports.document import render
from samebits.reports.sections.state import TITLE, left_line
from tests.support.builders import ROPE_TABLE, STATE_LEFT
from tests.support.pages import beside_models
from tests.support.sample_report import sample_report

NAMELESS = LeftBehind(name="model.rotary_emb.None_max_seq_len_cached", kind="attribute")
LEFT = STATE_LEFT.model_copy(update={"changes": (ROPE_TABLE, NAMELESS)})


def with_state(**state):
    whole = sample_report()
    first, *others = whole.rows
    return whole.model_copy(update={"rows": (first.model_copy(update={"state": state}), *others)})


def test_a_report_without_any_has_no_section():
    pages = render(sample_report())
    assert not any(TITLE in text for text in pages.values())
    assert left_line(sample_report()) == ""


def test_what_was_left_is_named_with_its_stacks_and_distance():
    left = with_state(**{"5.0": LEFT, "5.2": LEFT})
    model = left.rows[0].model
    pages = render(left)
    (line,) = [line for line in beside_models(pages).splitlines() if "the buffer" in line]
    for text in ("5.0, 5.2", "`short`", "the buffer model.rotary\\_emb.inv\\_freq", "`logits`"):
        assert text.replace("\\", "") in line.replace("\\", ""), line
    page = next(text for path, text in pages.items() if path.endswith(f"/{model}.md"))
    assert "None_max_seq_len_cached" in page
    assert (
        left_line(left)
        == f"A call leaves something behind that changes the next one: {model} in 5.0, 5.2"
    )


def test_what_could_not_be_found_is_said():
    unknown = LEFT.model_copy(update={"is_undone": False, "causes": (), "distance": None})
    text = beside_models(render(with_state(**{"5.0": unknown})))
    assert "something outside of the attributes and buffers of its modules" in text


def test_report_json_has_it():
    rows = json.loads(report_json.render(with_state(**{"5.0": LEFT})))["rows"]
    assert rows[0]["state"]["5.0"]["causes"] == [
        {"name": "model.rotary_emb.inv_freq", "kind": "buffer"}
    ]
