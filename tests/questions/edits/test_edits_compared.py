"""Edits of a loaded model in two releases: what breaks, what is done otherwise, what is drawn alike."""

import pytest

from samebits.findings.case import Case
from samebits.questions.edits.compare import differences, results
from samebits.questions.edits.records import EditsSignal
from samebits.questions.edits.section import SECTION
from samebits.questions.registry import findings
from samebits.records.provenance import IntegritySignal, Provenance
from tests.support.asked import findings_of, report_of
from tests.support.builders import Memory, sound

MORE, MEAN_OFF = (
    f"resize_token_embeddings(), more tokens{way}" for way in ("", ", mean_resizing=False")
)
COPY, NEW = "copy.deepcopy(model)", "load_state_dict() of a new model"


def edit(**changed):
    facts = {"asked": ("", "107"), "config.vocab_size": ("99", "107")}
    new = {"input embeddings": {"old": "a1", "mean": 0.0, "spread": 3e-5}}
    return {"raised": {"": "", "forward": ""}, "facts": facts, "new": new} | changed


def facts(**changed):
    return edit(facts=edit()["facts"] | changed)


def drawn(old, mean, spread):
    return edit(new={"input embeddings": {"old": old, "mean": mean, "spread": spread}})


SOUND = edit()
STALE = facts(**{"config.vocab_size": ("99", "99")})
BROKEN = edit(broken={"tie": "apart → tied", "outputs": "logits by up to 15 of 9.1"})


def signal(done, name=MORE, **others):
    return EditsSignal.model_validate({"after": {name: done, **others}})


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (SOUND, SOUND, []),
        (SOUND, STALE, ["config.vocab_size"]),
        (STALE, SOUND, ["config.vocab_size"]),
        (SOUND, BROKEN, ["outputs", "tie"]),
        (BROKEN, BROKEN, []),
        # a release that has another config before the edit does not edit it otherwise
        (SOUND, facts(**{"config.vocab_size": ("100", "99")}), []),
        (SOUND, STALE | {"left_out": "it has no table of token embeddings"}, []),
        # another number of tokens
        (SOUND, facts(asked=("", "104"), **{"config.vocab_size": ("99", "104")}), []),
        # 4.48 takes the mean where later releases draw beside it
        (SOUND, drawn("a1", 0.0, 0.0), []),
        (SOUND, drawn("a1", 0.1, 0.09), ["new values of input embeddings"]),
        (SOUND, drawn("a1", 0.1, 0.0), ["new values of input embeddings"]),
        # the mean is that of other rows
        (SOUND, drawn("b2", 0.1, 0.0), []),
        # two draws of one distribution
        (drawn("a1", 0.004, 0.15), drawn("a1", 0.02, 0.16), []),
    ],
)
def test_what_differs(before, after, what):
    assert sorted(each.what for each in differences(signal(before), signal(after))) == what


def codes(before, after):
    return findings_of("edits", before, after)


def test_what_an_edit_breaks_is_named_without_another_release():
    (finding,) = codes(signal(BROKEN), signal(BROKEN)).values()
    assert finding.code == "SB952"
    assert finding.where == MORE
    assert finding.evidence[1].endswith("logits by up to 15 of 9.1")


@pytest.mark.parametrize(
    ("name", "broken", "codes"),
    [
        (NEW, {"outputs": "logits by up to 0.4 of 0.4"}, ["SB301"]),
        (NEW, {"outputs": "logits by up to 0.4 of 0.4", "tensors": "w"}, ["SB301", "SB952"]),
        (MORE, {"outputs": "logits by up to 0.4 of 0.4"}, ["SB301", "SB952"]),
    ],
)
@pytest.mark.parametrize("written", ["none", "all"])
def test_a_new_model_is_not_blamed_for_what_the_loaded_one_computes_with(
    name, broken, codes, written
):
    buffer = {"kind": "non-persistent buffer", "fresh": "differs", "written": written}
    buffer["source"] = "unwritten" if written == "none" else "derived"
    tensors = {"inv_freq": Provenance(**buffer)}
    signals = {"integrity": IntegritySignal(poison="NaN", tensors=tensors)}
    run = sound(Memory(), "5.x", edits=signal(edit(broken=broken), name), **signals)
    found = [finding.code for finding in findings(Case(capture=run))]
    assert found == (codes if written == "none" else ["SB952"])


def test_ways_of_one_edit_that_break_the_same_are_named_once():
    both = {MEAN_OFF: BROKEN, COPY: edit(broken={"tensors": "w"})}
    report = report_of("edits", signal(SOUND, **both), signal(BROKEN, **both))
    page = SECTION.of_run(report)
    assert MORE in page
    assert MEAN_OFF not in page
    (finding,) = codes(signal(SOUND), signal(BROKEN, **{MEAN_OFF: BROKEN})).values()
    assert finding.where == MORE


def test_what_one_release_does_otherwise_shows_both_sides():
    (finding,) = codes(signal(SOUND), signal(STALE)).values()
    assert finding.code == "SB953"
    assert finding.evidence == ("4.48: config.vocab_size: 107", "5.x: config.vocab_size: 99")


def test_what_breaks_is_not_named_twice():
    stale = BROKEN | {"facts": STALE["facts"]}
    assert {*codes(signal(SOUND), signal(stale))} == {"SB952"}


def test_an_edit_that_one_release_refuses_is_a_use_that_raises():
    refused = {"raised": {"": "TypeError: unexpected keyword argument 'mean_resizing'"}}
    (finding,) = codes(signal(SOUND, MEAN_OFF), signal(refused, MEAN_OFF)).values()
    assert finding.code == "SB931"
    assert MEAN_OFF in finding.where
    assert not codes(signal(refused), signal(refused))


def test_sound_edits_are_no_finding():
    assert not codes(signal(SOUND), signal(SOUND))
    assert not SECTION.of_run(report_of("edits", signal(SOUND), signal(SOUND)))


def test_what_a_model_on_disk_raises_is_no_fault_of_its_constructor():
    name, meta = (
        'from_pretrained(device_map={"": "disk"})',
        "Cannot copy out of meta tensor; no data!",
    )
    saves = signal({"raised": {"": "", "save_pretrained": ""}}, name)
    refuses = signal({"raised": {"": "", "save_pretrained": f"NotImplementedError: {meta}"}}, name)
    assert findings_of("edits", saves, refuses).keys() == {"SB931"}
    assert findings_of("edits", saves, saves) == findings_of("edits", refuses, refuses) == {}
    copied, refused = (
        signal({"raised": {"": text}}, COPY) for text in ("", f"NotImplementedError: {meta}")
    )
    assert "SB305" in findings_of("edits", copied, refused)


def test_new_rows_are_given_in_units_of_the_old_ones_and_other_values_as_they_are():
    rows, bias = drawn("a1", 1.8, 5.2), drawn("", 0.0, 1.0)
    as_words = [
        results(done.after[MORE])["new values of input embeddings"]
        for done in (signal(rows), signal(bias))
    ]
    assert as_words[0] == "mean off by 1.8, spread 5.2, in units of the old rows' spread"
    assert as_words[1] == "mean 0, spread 1"
