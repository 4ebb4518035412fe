import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from samebits.base.finding_pages import finding_page
from samebits.findings.release import of_stacks, of_the_model
from samebits.questions.arguments.records import ArgumentsSignal
from samebits.questions.processors.records import ProcessorsSignal
from samebits.questions.registry import rules, texts
from samebits.questions.trainer.records import TrainerReport
from samebits.questions.training.records import TrainingReport
from samebits.questions.usage.records import UsageOfRow, UsageSignal
from samebits.questions.usage.section import PAGE, usage_of
from samebits.records.finding import Finding
from samebits.records.tokenizer import TokenizerSignal
from samebits.reports import document as reports_document
from samebits.reports import json
from samebits.reports.write import write
from tests.support.pages import anchors_of, beside_models, pages_of
from tests.support.sample_report import same_everywhere, sample_report

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def signal(**parts):
    return UsageSignal.model_validate(parts)


FED = signal(
    position_ids={"prompt": 5, "fed": [4, 4], "same_logits": False}, saved={"files": ["x.bin"]}
)


def reentrant(value):
    return signal(checkpointing={"use_reentrant": value})


def row(model="m", **found):
    """Return a row that is the same everywhere; ``x4_48`` is what the stack 4.48 answered."""
    plain = same_everywhere(model, "float32")
    cells = tuple(cell.model_copy(update={"changes": {}}) for cell in plain.cells)
    named = {stack[1:].replace("_", "."): found[stack] for stack in found}
    answers = {"usage": UsageOfRow(stacks=named)} if named else {}
    return plain.model_copy(update={"cells": cells, "attention": {}, "answers": answers})


def report(*rows, findings=(), stack="5.9"):
    made = sample_report()
    stacks = tuple(
        one.model_copy(update={"findings": findings if one.id == stack else ()})
        for one in made.stacks
    )
    named = texts(finding.code for finding in findings)
    return made.model_copy(update={"rows": rows, "stacks": stacks, "rules": named})


def section(text):
    found = re.search(r"^## API checks\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return squeezed(found[0]) if found else ""


def squeezed(text):
    return re.sub(r" +", " ", re.sub(r"-{3,}", "--", text))


def lines(text):
    return [line for line in squeezed(text).splitlines() if line.startswith("| ")]


def seen(*codes):
    return tuple(Finding(code=code, where="generate()", evidence=("it did",)) for code in codes)


def met(rows, *codes, stack="5.9"):
    """Return the findings of a stack as a run makes them of its cells."""
    cells = [
        cell.model_copy(update={"findings": seen(*codes) if cell.cell.stack == stack else ()})
        for row in rows
        for cell in row.cells
    ]
    return of_stacks(cells).get(stack, ())


def test_stacks_that_agree_have_no_line():
    text = section(
        beside_models(
            reports_document.render(report(row(x5_0=reentrant(False), x5_9=reentrant(False))))
        )
    )
    assert "each of 1 model in every environment" in text
    assert lines(text) == []


def test_a_made_model_is_named_where_it_answered():
    made = {"n_layers": 2, "hidden_size": 64, "n_parameters": 262_976}
    old, new = ({"checkpointing": {"use_reentrant": value}} for value in (True, False))
    big = row("big", x4_48=signal(**old, asked_of=made), x5_0=signal(**new, asked_of=made))
    itself = row("little", x4_48=signal(**old), x5_0=signal(**new))
    asked = "`big` in 4.48, 5.0: checked with a tiny model of 2 layers, hidden size 64"
    documents = reports_document.render(report(big, itself))
    assert asked in section(beside_models(documents))
    assert asked in documents[PAGE]
    assert asked in usage_of([big])
    assert "tiny model" not in usage_of([itself])
    assert "tiny model" not in "".join(reports_document.render(report(itself)).values())


def test_models_that_answer_alike_share_a_line():
    old, new = reentrant(True), reentrant(False)
    rows = [
        *(row(name, x4_48=old, x5_0=new) for name in ("a", "b", "c")),
        row("late", x5_0=new),
        row("other", x4_48=new, x5_0=old),
    ]
    text = section(beside_models(reports_document.render(report(*rows))))
    assert lines(text) == [
        "| what a user does | models | 4.48 | 5.0 |",
        "| default use_reentrant | a, b and 2 more | True | False |",
        "| default use_reentrant | other | False | True |",
    ]


def test_more_groups_than_fit_stand_on_the_page():
    values = ["1GB", "2GB", "3GB", "4GB"]
    rows = [
        row(
            f"m{size}",
            x4_48=signal(saved={"max_shard_size": size}),
            x5_0=signal(saved={"max_shard_size": "9GB"}),
        )
        for size in values
    ]
    documents = reports_document.render(report(*rows))
    assert [size for size in values if f"m{size}" in section(beside_models(documents))] == values[
        :2
    ]
    assert all(f"m{size}" in documents[PAGE] for size in values)


def test_findings_of_a_release_stand_once_per_stack_and_on_no_models_page():
    rows = [row(name, x5_0=FED, x5_9=FED) for name in ("a", "b")]
    documents = reports_document.render(report(*rows, findings=met(rows, "SB906", "SB909")))
    assert pages_of(documents) == [PAGE]
    text = section(beside_models(documents))
    (first, second) = [line for line in lines(text) if "SB9" in line]
    assert first.endswith("does not advance `position_ids` | silent | all 2 |")
    assert second == "| SB909 `safe_serialization=False` is ignored | api | all 2 |"
    assert (
        "**Remedy.**" not in beside_models(documents).partition("## Around")[2].partition("## ")[0]
    )
    assert documents[PAGE].count("**Remedy.**") == 2
    assert "- in 5.9: all models, 2" in documents[PAGE]


@pytest.mark.parametrize(("n", "said"), [(1, "`a`"), (2, "all but `c`")])
def test_a_finding_of_some_models_names_them_or_the_others(n, said):
    rows = [row(name, x5_9=FED) for name in "abc"] + [row("not asked", x5_9=reentrant(True))]
    documents = reports_document.render(report(*rows, findings=met(rows[:n], "SB906")))
    (line,) = [line for line in lines(section(beside_models(documents))) if "SB9" in line]
    assert line.endswith(f"| silent | {n} |")
    assert re.search(rf"- in 5\.9: {n} of 3 \(.*\) models, {said}$", documents[PAGE], re.MULTILINE)


def test_a_model_that_raises_in_another_question_is_one_of_those_that_were_asked():
    """SB932 may be of an edit, where usage was not observed: the page said that 3 of 1 models raise."""
    rows = [row("a", x5_9=FED), row("b"), row("c")]
    documents = reports_document.render(report(*rows, findings=met(rows, "SB932")))
    assert "- in 5.9: all models, 3" in documents[PAGE]
    documents = reports_document.render(report(*rows, findings=met(rows[1:], "SB932")))
    assert re.search(r"- in 5\.9: 2 of 3 \(.*\) models, all but `a`", documents[PAGE])


def test_every_rule_of_a_release_is_seen_in_a_part_of_the_signal():
    signals = {"usage": UsageSignal, "tokenizers": TokenizerSignal, "processors": ProcessorsSignal}
    signals |= {"training": TrainingReport, "trainer": TrainerReport, "arguments": ArgumentsSignal}
    fields = {name: {"", *signal.model_fields} for name, signal in signals.items()}
    fields["settings"] = {""}
    for rule in rules():
        if rule.text.scope == "release":
            signal, _, field = finding_page(rule.code).seen_in.partition(".")
            assert field in fields[signal], rule.code


def tokenizer(**changed):
    told = {"class_name": "T", "padding_side": "left", "batch": {"type": "str"}}
    told |= {"saved_class": "T", "knows_backend": True, "methods": {"encode_plus": False}}
    return TokenizerSignal.model_validate(told | changed)


def with_tokenizers(name, **found):
    named = {stack[1:].replace("_", "."): found[stack] for stack in found}
    return row(name).model_copy(update={"tokenizers": named})


def test_what_a_release_does_to_every_tokenizer_is_said_once_per_stack():
    """Without usage, too; and not at the cells, where a finding of the model alone is."""
    rows = [with_tokenizers(name, x5_9=tokenizer()) for name in "ab"]
    rows.append(with_tokenizers("c", x5_9=tokenizer(chat={"type": "list"})))
    found = met(rows, "SB802", "SB808", "SB809")
    documents = reports_document.render(report(*rows, findings=found))
    assert pages_of(documents) == [PAGE]
    text = beside_models(documents)
    said = [line for line in lines(section(text)) if "SB80" in line]
    assert [line.rpartition("api |")[2].strip() for line in said] == 3 * ["all 3 |"]
    assert text.count("SB809") == 1
    assert "**Remedy.**" in documents[PAGE]
    assert "What users do around a model" not in text
    assert "All groups of models" not in documents[PAGE]


def test_a_crash_by_an_unknown_tokenizer_class_belongs_to_its_cell():
    cell = row().cells[0].model_copy(update={"findings": seen("SB802", "SB810")})
    assert [finding.code for finding in of_the_model(cell).findings] == ["SB810"]


def test_a_model_that_was_not_asked_is_in_no_group():
    old, new = reentrant(True), reentrant(False)
    silent = signal(skips={"checkpointing": "no time was left"})
    rows = [row("a", x4_48=old, x5_0=new), row("b", x4_48=silent, x5_0=new), row("c", x5_0=silent)]
    text = reports_document.render(report(*rows))[PAGE]
    assert lines(text)[1] == "| default use_reentrant | a | True | False |"


def test_a_cell_keeps_the_findings_about_its_model_alone():
    cell = row().cells[0].model_copy(update={"findings": seen("SB301", "SB906")})
    assert [finding.code for finding in of_the_model(cell).findings] == ["SB301"]


def test_a_finding_of_two_variants_names_the_model_once():
    cells = [*row("a").cells, *row("a").cells, *row("b").cells]
    found = of_stacks(
        cell.model_copy(update={"findings": seen("SB906", "SB301")}) for cell in cells
    )
    assert {stack: [f.models for f in findings] for stack, findings in found.items()} == {
        cell.cell.stack: [("a", "b")] for cell in cells
    }


def test_what_was_not_tried_is_told_with_its_reason():
    rows = [
        row(name, x5_9=signal(skips={"packed": "forward takes no position_ids"})) for name in "ab"
    ]
    text = reports_document.render(report(*rows))[PAGE]
    assert "| packed | 2 | forward takes no position_ids |" in squeezed(text)


ANSWERS = [
    ({"attentions": {"implementation": "sdpa", "given": "None"}}, "None"),
    (
        {"attentions": {"implementation": "sdpa", "given": "tensors", "logits_changed": True}},
        "tensors, different logits",
    ),
    ({"attentions": {"implementation": "sdpa", "given": "a.b.OwnError: no"}}, "OwnError"),
    (
        {
            "cache": {
                "fed": 40,
                "kind": "C",
                "seq_length": 40,
                "layers": [{"kind": "L", "keys": 7, "n": 2}],
            }
        },
        "fewer than fed",
    ),
    ({"cache_position": {"named": False, "wrong": "the same logits"}}, "ignored"),
    ({"cache_position": {"named": True, "wrong": "the same logits"}}, "no effect"),
    ({"cache_position": {"named": True, "wrong": "IndexError: no"}}, "IndexError"),
    ({"position_ids": {"prompt": 5, "fed": [4, 4], "same_logits": False}}, "frozen"),
    ({"position_ids": {"prompt": 5, "fed": [4, 4], "same_logits": True}}, "frozen, no effect"),
    ({"position_ids": {"prompt": 5, "fed": [4, 5], "same_logits": True}}, "advance"),
    ({"position_ids": {"refused": "ValueError: no"}}, "ValueError"),
    ({"assisted": {"min_new_tokens": "ValueError: x", "plain": "ValueError: y"}}, "no assistant"),
    ({"assisted": {"min_new_tokens": "ValueError: x"}}, "ValueError"),
    ({"strategies": {"penalty_alpha": "ValueError: `trust_remote_code=True`"}}, "needs hub code"),
    ({"saved": {"files": ["config.json", "model.safetensors"]}}, "safetensors"),
    ({"saved": {"dtype_keys": ["dtype", "torch_dtype"]}}, "dtype, torch_dtype"),
]


def ways(*found):
    names = ("no mask, no cache", "mask", "cache")
    return {
        "packed": {
            "ordinary": 1.0,
            "ways": [{"way": n, "by_the_first": f} for n, f in zip(names, found, strict=True)],
        }
    }


PACKED = [
    (ways(0, 0, 0), "two sequences"),
    (ways(1, 1, 1), "one sequence"),
    (ways(0, 1, 1), "two sequences; one with mask or cache"),
    (ways(0, 1, 0), "two sequences; one with mask"),
]


@pytest.mark.parametrize(("parts", "words"), ANSWERS + PACKED)
def test_an_answer_in_words(parts, words):
    other = signal(saved={"max_shard_size": "1GB"})
    text = reports_document.render(report(row(x5_0=signal(**parts), x5_9=other)))[PAGE]
    assert "1GB" not in text  # one stack alone answered each
    unlike = {
        name: signal(**parts) if stack else other_answer(parts)
        for stack, name in enumerate(("x5_0", "x5_9"))
    }
    (line,) = [
        line
        for line in lines(reports_document.render(report(row(**unlike)))[PAGE])
        if "| m |" in line
    ]
    assert line.endswith(f"| {words} |")


def other_answer(parts):
    """Return a signal that answers the same question in a way that no case above does."""
    (name,) = parts
    return signal(
        **{
            "attentions": {"attentions": {"implementation": "sdpa", "given": "tensors and None"}},
            "cache": {
                "cache": {
                    "fed": 9,
                    "kind": "C",
                    "seq_length": 9,
                    "layers": [{"kind": "L", "keys": 9, "n": 1}],
                }
            },
            "cache_position": {"cache_position": {"named": True, "wrong": "other logits"}},
            "position_ids": {
                "position_ids": {"prompt": 5, "fed": [None, None, 3], "same_logits": False}
            },
            "assisted": {"assisted": {"min_new_tokens": ""}},
            "strategies": {"strategies": {"penalty_alpha": ""}},
            "saved": {
                "saved": {
                    "files": ["pytorch_model.bin"] if "files" in parts[name] else [],
                    "dtype_keys": ["dtype"] if "dtype_keys" in parts[name] else [],
                }
            },
            "packed": ways(1, 0, 0),
        }[name]
    )


def test_a_models_page_has_its_own_lines_where_it_has_a_page():
    cells = row("m").cells
    found = [cells[0], cells[1].model_copy(update={"findings": seen("SB301")}), *cells[2:]]
    shown = row("m", x4_48=reentrant(True), x5_0=reentrant(False)).model_copy(
        update={"cells": tuple(found)}
    )
    made = report(shown).model_copy(update={"rules": texts(["SB301"])})
    text = section(reports_document.render(made)["models/m.md"])
    assert lines(text) == ["| what | 4.48 | 5.0 |", "| default use_reentrant | True | False |"]


def test_a_page_of_an_earlier_run_goes(tmp_path):
    used = report(row(x5_9=reentrant(False)))
    assert {PAGE} <= {path.name for path in write(used, tmp_path, {}).json.parent.iterdir()}
    write(report(row()), tmp_path, {})
    assert not (tmp_path / PAGE).exists()


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=40))
def test_foreign_text_cannot_leave_its_place(text):
    old = signal(attentions={"implementation": "sdpa", "given": f"x{text}"}, skips={"packed": text})
    rows = [
        row(f"m{text}", x4_48=old, x5_9=signal(attentions={"implementation": "", "given": "None"}))
    ]
    for document in reports_document.render(report(*rows)).values():
        tokens = GFM.parse(document)
        tables = [t for t in tokens if t.type in {"tr_open", "td_open", "th_open"}]
        assert not any(t.type == "html_block" and "script" in t.content for t in tokens)
        assert tables


def test_the_json_reads_back():
    rows = [row("a", x5_9=signal(saved={"files": ["a"]}, seconds=1.5))]
    made = report(*rows, findings=met(rows, "SB909"))
    assert json.read(json.render(made)) == made


def test_the_page_begins_with_links_to_what_was_found():
    codes = [rule.code for rule in rules() if rule.text.scope == "release"]
    named = texts(codes)
    shown = report(row(x4_48=reentrant(True), x5_9=reentrant(False))).model_copy(
        update={"rules": named}
    )
    page = reports_document.render(shown)[PAGE]
    anchors = re.findall(r"^- \[(SB\d+) .*\]\(#(\S+)\)$", page, re.MULTILINE)
    assert [code for code, _ in anchors] == codes
    assert {anchor for _, anchor in anchors} <= anchors_of(page)
    assert page.index("## SB901") < page.index("## All groups of models")
