"""bench/guide: items that samebits can read, answers of lint and defaults, and the page."""

import pytest
import yaml
from pydantic import ValidationError

from bench.guide import at_once, page
from bench.guide.__main__ import _of_run, _with_earlier
from bench.guide.cases import TWIN, Defaults, Item, Lint, read
from bench.recall.cases import groups
from samebits.matrix import load

ITEMS = read()


def test_the_guide_and_the_releases_are_whole():
    assert (len(ITEMS.guide), len(ITEMS.releases)) == (60, 67)


@pytest.mark.parametrize("group", groups(ITEMS.cases(), ITEMS.together), ids=lambda g: g.name)
def test_the_models_make_matrices_in_which_equal_ones_run_once(group, tmp_path):
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.safe_dump(group.matrix(tmp_path), sort_keys=False), "utf-8")
    names = {model.name for model in load.load(path).models}
    assert names == {*group.rows().values()}
    is_one_item = len(group.cases) == 2  # with its twin
    assert is_one_item or len(names) < len(group.cases)


def test_an_item_is_asked_in_one_way():
    with pytest.raises(ValidationError, match="says how the item is asked"):
        Item(text="a", where="1", unobservable="b", missed="c")


def lint(**changes):
    fields = {
        "finding": "SB105",
        "script": "from transformers import AutoModel\nAutoModel.from_pretrained('m', use_auth_token=1)\n",
        "clean": "from transformers import AutoModel\nAutoModel.from_pretrained('m', token=1)\n",
    }
    return Lint(**fields | changes)


def test_a_script_is_found_and_its_twin_is_clean(tmp_path):
    shown = at_once.of_lint(lint(), tmp_path)
    assert (shown["found"], shown["named"], shown["alarm"], shown["reason"]) == (True, True, "", "")


def test_a_twin_with_the_finding_is_a_false_alarm(tmp_path):
    assert "use_auth_token" in at_once.of_lint(lint(clean=lint().script), tmp_path)["alarm"]


def test_a_script_that_is_wrong_in_the_good_release_shows_nothing(tmp_path):
    shown = at_once.of_lint(lint(good="5.2.0"), tmp_path)
    assert (shown["found"], shown["reason"]) == (False, "SB105 by lint: also in the good release")


def test_a_default_that_moved_is_found_unless_the_file_states_it(tmp_path):
    case = Defaults(
        content={"model_type": "gpt_oss"},
        clean={"router_aux_loss_coef": 0.9},
        field="router_aux_loss_coef",
        good="5.5.4",
    )
    shown = at_once.of_defaults(case, tmp_path)
    assert (shown["found"], shown["alarm"]) == (True, "")
    assert "0.9 → 0.001" in shown["cause"]


def run_of(**changes):
    fields = {"found": True, "named": True, "released": True, "shown": {"5": "x"}, "cause": "SB1"}
    return {**fields, "reason": "", **changes}


def test_a_run_counts_only_in_its_releases_and_a_twin_that_shows_it_is_an_alarm():
    clean = run_of(found=False, named=False)
    assert _of_run(run_of(), clean)["named"]
    assert not _of_run(run_of(released=False), clean)["found"]
    assert _of_run(run_of(), run_of())["alarm"] == "5: x"
    assert not _of_run(run_of(), clean)["alarm"]


def test_the_page_counts_what_is_named_noticed_and_missed():
    results = {
        "machine": {"cores": 2},
        "date": "2026-01-01",
        "guide": [],
        "releases": [],
        "fresh": True,
    }
    merged = _with_earlier(results, ITEMS)
    assert [len(merged[part]) for part in page.PARTS] == [60, 67]
    record = merged["guide"][0] | {"found": True, "named": False, "alarm": "twin", "cause": "SB1"}
    text = page.page(merged | {"guide": [record]})
    assert "| The migration guide | 1" in text
    assert "noticed" in text
    assert "**False alarm**: twin" in text
    assert TWIN not in text
