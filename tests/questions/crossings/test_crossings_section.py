import pytest
from markdown_it import MarkdownIt

from samebits.questions.crossings.records import Crossing, CrossingsOfRow
from samebits.questions.crossings.section import TITLE, crossings, crossings_of, has_losses
from samebits.records.capture import Failure
from samebits.reports import document
from tests.support.pages import beside_models
from tests.support.sample_report import sample_report

STACKS = ("4.48", "4.57", "5.0")
ROPE = {
    "outcome": "differs",
    "tensors": ("model.rotary_emb.inv_freq",),
    "config": ("rope_theta: 500000.0 → 10000.0",),
    "ignored": ("rope_parameters.rope_theta",),
    "logits": "differs",
    "logits_max_abs": 1.25,
}
SAME = {"outcome": "same bits", "logits": "same bits", "logits_max_abs": 0.0}


def model(name, changed=None, default=SAME):
    """Return a model, and every pair of three stacks, some of them changed."""
    pairs = [(saver, loader) for saver in STACKS for loader in STACKS]
    crossed = [
        Crossing.model_validate({"saver": s, "loader": ld} | (changed or {}).get((s, ld), default))
        for s, ld in pairs
    ]
    return name, CrossingsOfRow(crossings=tuple(crossed))


def lossy(name="llama", **changed):
    lost = ROPE | changed
    return model(name, {("5.0", "4.48"): lost, ("5.0", "4.57"): lost})


def rows_of(*models):
    """Return a row for each model."""
    row = sample_report().rows[0]
    return [
        row.model_copy(update={"model": name, "answers": {"crossings": answer}})
        for name, answer in models
    ]


def report(*models):
    """Return the sample report, some of whose models cross."""
    sample, answers = sample_report(), dict(models)
    rows = [
        row.model_copy(update={"answers": row.answers | {"crossings": answers.pop(row.model)}})
        if row.model in answers
        else row
        for row in sample.rows
    ]
    assert not answers
    return sample.model_copy(update={"rows": tuple(rows)})


def section(*models):
    return str(crossings(sample_report().model_copy(update={"rows": tuple(rows_of(*models))})))


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def rows(text):
    """Return the cells of tables by their first one."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines(text, "|")]
    return {first: rest for first, *rest in cells}


def test_models_that_lose_nothing_are_one_sentence():
    text = section(model("gpt2"), model("bert"))
    assert "2 models, 18 pairs of saver and loader: 18 give the same bits back" in text
    assert "none differs" in text
    assert "2 models come back the same for every pair of environments: `gpt2`, `bert`." in text
    assert "|" not in text


def test_every_pair_is_only_said_of_pairs_that_were_compared():
    absent = {"outcome": "absent", "reason": "5.0 does not know it"}
    text = section(model("m", {("4.48", "5.0"): absent}))
    assert (
        "1 model comes back the same for every pair of environments that was compared: `m`." in text
    )


def test_tensors_without_bytes_are_not_called_the_same():
    text = section(model("m", {("4.48", "5.0"): SAME | {"bare": ("rows",)}}))
    assert "tensors not compared, because they do not have plain bytes (`m`)." in text


def test_a_loss_says_which_way_and_what():
    text = section(lossy(), model("gpt2"))
    assert "**2 do not**, in 1 model" in text
    (line,) = lines(text, "| 5.0 → 4.48, 4.57")
    assert "[llama](models/llama.md)" in line
    assert "**differs**" in line
    assert "`rope_theta: 500000.0 → 10000.0`" in line
    assert "`model.rotary_emb.inv_freq`" in line
    assert "max abs 1.2e+00" in line
    assert "1 model comes back the same for every pair of environments: `gpt2`." in text


def test_models_that_lose_the_same_way_share_a_line():
    other = lossy("qwen2", config=("rope_theta: 5.0 → 10000.0",), logits_max_abs=3.0)
    text = section(lossy(), other, lossy("yarn", config=("rope_scaling: 1 → not there",)))
    assert len(lines(text, "| 5.0 → 4.48, 4.57")) == 2
    (line,) = (line for line in lines(text, "| 5.0") if "qwen2" in line)
    assert "llama" in line
    assert "max abs 3.0e+00" in line  # the largest of both


def test_how_many_models_lose_by_saver_and_loader():
    absent = {"outcome": "absent", "reason": "no such model"}
    pairs = [(s, ld) for s in STACKS for ld in STACKS if "4.48" in (s, ld)]
    late = model("late", dict.fromkeys(pairs, absent))
    text = section(lossy(), model("gpt2"), late)
    assert rows(text)["5.0"] == ["**1 of 2**", "**1 of 3**", "0 of 3"]
    assert "5 include an environment that cannot load the original" in text


@pytest.mark.parametrize("outcome", ["save failed", "load failed", "forward failed"])
def test_an_exception_is_told_by_its_first_line(outcome):
    failure = Failure(
        phase="forward", type="x.TypeError", message="clamp()\nmore", traceback="File a\nclamp"
    )
    broken = {"outcome": outcome, "failure": failure.model_dump()}
    crossed = model("mamba2", {("5.0", "4.48"): broken})
    (line,) = lines(section(crossed), "| 5.0 → 4.48 ")
    assert f"**{outcome}**" in line
    assert "TypeError: clamp()" in line
    assert "more" not in line
    page = str(crossings_of(rows_of(crossed)))
    assert "File a\nclamp" in page


def test_absent_and_not_tried_are_no_losses():
    absent = model("late", default={"outcome": "absent", "reason": "no such model"})
    large = model("large", default={"outcome": "not tried", "reason": "it has 2.0 GiB"})
    text = section(absent, large)
    assert "none differs" in text
    assert "back the same for every pair" not in text
    assert "not tried: it has 2.0 GiB (`large`)." in text
    assert not has_losses(rows_of(absent))
    assert crossings_of(rows_of(absent)) == ""


def test_what_was_not_compared_is_said():
    reason = "the forward of the original raises RuntimeError here"
    blind = model(
        "zamba2", {("4.48", "5.0"): {"outcome": "same bits", "reason": reason, "unsteady": ("b",)}}
    )
    chance = model("junk", {("4.48", "5.0"): SAME | {"unsteady": ("a",)}})
    text = section(blind, chance)
    assert f"logits not compared: {reason} (`zamba2`)." in text
    assert "two loads of the original give different bytes (`zamba2`, `junk`)." in text


def test_the_page_of_a_model_has_all_of_it():
    restored = {"restored": ("modeling_x.py",), "unsteady": ("b.scale",)}
    names = tuple(f"model.layers.{i}.w" for i in range(20))
    keys = ("missing model.layers.0.w",)
    crossed = lossy(tensors=names, keys=keys, **restored)
    assert has_losses(rows_of(crossed))
    page = str(crossings_of(rows_of(crossed)))
    assert "### 5.0 → 4.48, 4.57: differs" in page
    assert "config `rope_theta: 500000.0 → 10000.0`" in page
    assert "20 tensors: `model.layers.0-19.w`" in page
    assert "`missing model.layers.0.w`" in page
    assert "does not have: `rope_parameters.rope_theta`" in page
    assert "max abs 1.250000e+00" in page
    assert "5.0 did not save `modeling_x.py` of the model's own code" in page
    assert "not compared on 4.48" in page
    assert rows(page)["5.0"] == ["**differs**", "**differs**", "same bits"]


def test_a_model_that_only_loses_on_the_way_has_a_page():
    sample = report()
    quiet = next(
        name
        for name in (row.model for row in sample.rows)
        if f"models/{name}.md" not in document.render(sample)
    )
    pages = document.render(report(lossy(quiet)))
    assert TITLE in pages[f"models/{quiet}.md"]
    assert TITLE in beside_models(pages)


def test_nothing_in_it_can_become_markup():
    evil = "<script>|`**x**`\u202e\nnext"
    failure = {"phase": evil, "type": evil, "message": evil, "traceback": evil}
    lost = {
        "outcome": "load failed",
        "failure": failure,
        "reason": evil,
        "config": (evil,),
        "tensors": (evil,),
        "keys": (evil,),
        "restored": (evil,),
    }
    crossed = model("llama", {("5.0", "4.48"): lost})
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for text in (section(crossed), str(crossings_of(rows_of(crossed)))):
        assert "\u202e" not in text
        html = parser.render(text)
        assert "<script" not in html
        assert "<strong>x</strong>" not in html
