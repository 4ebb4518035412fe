"""What lies beside a model: as in its saver, as the loader gives for the original, or as in none of both."""

import pytest

from samebits.findings.case import Case
from samebits.questions.crossings.parts import ALONE, part_crossings
from samebits.questions.crossings.records import (
    Crossing,
    CrossingsOfRow,
    LoadedPart,
    PartCrossing,
    SavedModel,
    SavedPart,
)
from samebits.questions.crossings.section import crossings, crossings_of, has_losses
from samebits.questions.registry import findings
from samebits.questions.texts.records import Outcomes, Value
from samebits.records.capture import Failure
from samebits.records.ids import CellId, Variant
from tests.support.builders import Memory, sound
from tests.support.sample_report import sample_report

BROKEN = Failure(
    phase="load the tokenizer", type="ValueError", message="no such class", traceback=""
)
IDS = {"encode": {"words": [1, 2]}, "decode": {"words": "a b"}}
SAID = {"rendered text": {"no name, one": "user: hi"}, "type": {"default": "str"}}


def outcomes(operations):
    """Return the record of operation -> case -> value."""
    values, numbers = [], {}
    for operation, cases in operations.items():
        for case, value in cases.items():
            text = {"text": value} if isinstance(value, str) else {"items": tuple(value)}
            numbers.setdefault(operation, {})[case] = len(values)
            values.append(Value(**text, size=len(value)))
    return Outcomes(operations=numbers, values=tuple(values))


def facts(**groups):
    return {name: outcomes(group) for name, group in groups.items()}


CELL = CellId(
    model="m", variant=Variant(dtype="float32", attention="sdpa", device="cpu"), stack="5.x"
)


def crossed(saver, copy, original=None, part="tokenizer"):
    """Return the crossing of a part, by what it gives in its saver, as a copy, and as the original."""
    record = SavedModel(cell=CELL, outcome="absent", parts={part: saver})
    loaded = [LoadedPart(saver="5.x", part=part, **copy)] if copy else []
    loaded += [LoadedPart(saver="", part=part, **original)] if original else []
    (crossing,) = part_crossings({"5.x": record}, "4.57", tuple(loaded))["5.x"]
    return crossing


def saved(**groups):
    return SavedPart(outcome="saved", facts=facts(**groups))


def given(**groups):
    return {"outcome": "other", "facts": facts(**groups)}


def changed(**ids):
    return {**IDS, "encode": {"words": [1, 9]}} | ids


def found(crossing):
    """Return the codes of the findings of its loader."""
    answers = {"crossings": CrossingsOfRow(crossings=(), parts=(crossing,))}
    capture = sound(Memory(), crossing.loader)
    return [finding.code for finding in findings(Case(capture=capture, answers=answers))]


def test_what_gives_the_same_as_in_its_saver_is_right_whatever_the_loader_gives_for_the_original():
    assert crossed(saved(texts=IDS), {"outcome": "same"}).outcome == "same"
    crossing = crossed(saved(texts=IDS), given(texts=IDS), given(texts=changed()))
    assert (crossing.outcome, found(crossing)) == ("same", [])


def test_other_ids_that_the_loader_gives_for_the_original_too():
    crossing = crossed(saved(texts=IDS), given(texts=changed()), given(texts=changed()))
    assert (crossing.outcome, found(crossing)) == ("other", ["SB875"])
    (difference,) = crossing.differences
    assert (difference.operation, difference.first.case) == ("encode", "words"), (
        "decode follows ids"
    )


def test_ids_that_neither_release_gives():
    other = changed(encode={"words": [1, 7]})
    crossing = crossed(saved(texts=IDS), given(texts=changed()), given(texts=other))
    assert (crossing.outcome, found(crossing)) == ("neither", ["SB876"])
    crossing = crossed(saved(texts=IDS), given(texts=changed()), given(texts=IDS))
    assert (crossing.outcome, found(crossing)) == ("neither", ["SB876"])


def test_a_tokenizer_that_is_another_one_without_config_json():
    record = SavedModel(cell=CELL, outcome="absent", parts={"tokenizer": saved(texts=IDS)})
    beside = LoadedPart(saver="5.x", part="tokenizer", outcome="same")
    alone = LoadedPart(saver="5.x", part=ALONE, **given(texts=changed()))
    original = LoadedPart(saver="", part="tokenizer", **given(texts=IDS))
    first, second = part_crossings({"5.x": record}, "4.57", (beside, alone, original))["5.x"]
    assert (first.outcome, found(first)) == ("same", [])
    assert (second.part, second.outcome, found(second)) == (ALONE, "neither", ["SB876"])
    # no entry: it gives there what it gives beside config.json
    (only,) = part_crossings({"5.x": record}, "4.57", (beside,))["5.x"]
    assert only.part == "tokenizer"


def test_a_copy_that_does_not_load_is_named_if_the_original_loads():
    copy = {"outcome": "load failed", "failure": BROKEN}
    crossing = crossed(saved(texts=IDS), copy, given(texts=IDS))
    assert (crossing.outcome, found(crossing)) == ("load failed", ["SB877"])
    crossing = crossed(saved(texts=IDS), copy, copy)
    assert (crossing.outcome, found(crossing)) == ("absent", [])


def test_what_the_saver_does_not_load_or_the_job_did_not_reach_is_no_loss():
    absent = crossed(SavedPart(outcome="not loaded", failure=BROKEN), None)
    assert (absent.outcome, found(absent)) == ("absent", [])
    unreached = crossed(saved(texts=IDS), None)
    assert (unreached.outcome, found(unreached)) == ("not tried", [])


def test_what_follows_from_the_release_alone_is_not_asked_of_the_files():
    typed = SAID | {"type": {"default": "list"}}
    crossing = crossed(
        saved(texts=IDS, conversations=SAID),
        given(texts=IDS, conversations=typed),
        given(texts=IDS, conversations=typed),
    )
    assert (crossing.outcome, found(crossing)) == ("same", [])


@pytest.mark.parametrize("copy", [{"rendered text": {"no name, one": "hi"}}, None])
def test_a_template_that_renders_other_text_or_is_gone(copy):
    groups = {} if copy is None else {"conversations": copy}
    original = given(texts=IDS, conversations=SAID)
    crossing = crossed(saved(texts=IDS, conversations=SAID), given(texts=IDS, **groups), original)
    assert (crossing.outcome, found(crossing)) == ("neither", ["SB881"])


def test_a_processor_is_accused_only_of_what_neither_release_gives():
    pixels, other = {"pixel_values": {"gray": ["a"]}}, {"pixel_values": {"gray": ["b"]}}
    third = {"pixel_values": {"gray": ["c"]}}
    part = "image processor"
    crossing = crossed(saved(calls=pixels), given(calls=other), given(calls=other), part)
    assert (crossing.outcome, found(crossing)) == ("other", []), "the question processors names it"
    crossing = crossed(saved(calls=pixels), given(calls=other), given(calls=third), part)
    assert (crossing.outcome, found(crossing)) == ("neither", ["SB878"])
    copy = {"outcome": "load failed", "failure": BROKEN}
    assert found(crossed(saved(calls=pixels), copy, given(calls=pixels), part)) == ["SB879"]


def settings(value, stated):
    return {"value": value, "stated": {field: value[field] for field in stated}}


def test_settings_that_a_file_states_keep_their_values():
    saver = settings({"temperature": "0.6", "top_k": "50"}, ["temperature"])
    kept = settings({"temperature": "0.6"}, ["temperature"])
    crossing = crossed(
        saved(values=saver), given(values=kept), given(values=kept), "generation config"
    )
    assert (crossing.outcome, found(crossing)) == ("same", []), "top_k is the saver's default"
    lost = settings({"temperature": "1.0"}, [])
    crossing = crossed(
        saved(values=saver), given(values=lost), given(values=kept), "generation config"
    )
    assert (crossing.outcome, found(crossing)) == ("neither", ["SB880"])


def test_a_round_trip_in_one_release_has_a_finding_of_its_own():
    fields = crossed(saved(texts=IDS), given(texts=changed()), given(texts=IDS)).model_dump()
    assert found(PartCrossing.model_validate(fields | {"loader": "5.x"})) == ["SB882"]
    failed = crossed(SavedPart(outcome="failed", failure=BROKEN), None)
    assert (failed.outcome, found(failed)) == ("save failed", [])
    assert found(failed.model_copy(update={"loader": "5.x"})) == ["SB882"]
    died = failed.model_copy(
        update={"loader": "5.x", "failure": BROKEN.model_copy(update={"type": "MemoryError"})}
    )
    assert found(died) == []


def rows(*parts):
    same = Crossing(saver="5.x", loader="4.57", outcome="same bits", logits="same bits")
    row = sample_report().rows[0]
    answer = CrossingsOfRow(crossings=(same,), parts=parts)
    return (row.model_copy(update={"model": "m", "answers": {"crossings": answer}}),)


def test_a_report_says_what_a_copy_gives_and_what_its_saver_gave():
    crossing = crossed(saved(texts=IDS), given(texts=changed()), given(texts=IDS))
    report = sample_report().model_copy(update={"rows": rows(crossing)})
    text = str(crossings(report))
    assert "1 what neither release gives for the original" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| 5.x → 4.57"))
    assert "encode (1 of 1), words, index 1: `2` → `9`" in line
    assert has_losses(rows(crossing))
    assert "`2` → `9`" in str(crossings_of(rows(crossing)))


def test_a_report_says_that_all_is_as_in_the_saver():
    crossing = crossed(saved(texts=IDS), {"outcome": "same"})
    report = sample_report().model_copy(update={"rows": rows(crossing)})
    assert "1 pair of saver and loader: 1 the same as in its saver" in str(crossings(report))
    assert not has_losses(rows(crossing))
    assert str(crossings_of(rows(crossing))) == ""
