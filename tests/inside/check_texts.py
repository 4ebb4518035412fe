"""questions.texts: what a release makes of texts and conversations."""

import functools
import logging
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
import transformers
from samebits_probe.model.load import Source, load_tokenizer
from samebits_probe.questions.texts import backend, chat, texts

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.chat_templates import PLAIN, TOOLS
from tests.support.tokenizer_kinds import KINDS, write

IS_OLD = transformers.__version__ < "5"
logging.disable(logging.WARNING)


def source_of(kind, *arguments, **options):
    folder = Path(tempfile.mkdtemp())
    write(folder, kind, *arguments, **options)
    return Source(str(folder), None, False, "float32", "default", "cpu")


def loaded(kind, *arguments, **options):
    source = source_of(kind, *arguments, **options)
    return load_tokenizer(source), source


def facts(kind, *arguments, **options):
    return texts.facts(*loaded(kind, *arguments, **options))


def value(record, operation, case):
    return record["values"][record["operations"][operation][case]]


def test_every_kind_is_asked_for_every_text_and_back():
    for kind in KINDS:
        record = facts(kind)
        cases = set(texts.plain_texts()) | set(record["inputs"])
        for operation in ("encode", "encode without special tokens"):
            assert set(record["operations"][operation]) == cases, (kind, operation)
        for operation in ("offsets", "word ids"):
            assert set(record["operations"][operation]) == cases - {"very long"}, (kind, operation)
        assert "very long" in record["operations"]["decode"]
        assert set(record["left_out"]) == {"slow class"}, (kind, record["left_out"])
        least = 8 if kind == "word-ends" else 16  # it has fewer added tokens to ask about
        assert len(record["inputs"]) >= least, (kind, len(record["inputs"]))
        assert {"padded left", "padded right"} <= set(record["operations"]["batch"])
        assert len(record["operations"]["windows"]) == 4
        for operation in ("batch", "windows", "decode", "stream", "words"):
            numbers = record["operations"][operation].values()
            assert not [record["values"][i] for i in numbers if "raised" in record["values"][i]]


def test_a_text_is_decoded_in_each_way():
    record = facts("metaspace")
    assert value(record, "decode", "one word")["text"].startswith("<s>")
    assert value(record, "decode, skip_special_tokens", "one word")["text"] == "Hello"
    assert value(record, "stream", "one word")["text"] == "Hello"
    assert value(record, "batch decode", "the batch")["size"] == 6


def test_a_lone_surrogate_is_a_fact_and_no_crash():
    kept = value(facts("byte-level"), "encode", "lone surrogate")
    assert kept.get("raised") or kept["items"]


def test_a_long_text_is_kept_as_a_beginning_and_hashes():
    long = value(facts("byte-level"), "encode", "very long")
    assert len(long["items"]) == 64
    assert len(long["blocks"]) == -(-(long["size"] - 64) // 64)


def test_ids_that_differ_from_call_to_call_are_not_observed():
    tokenizer, source = loaded("byte-level")
    plain = type(tokenizer).__call__
    calls = [0]

    class Random(type(tokenizer)):
        def __call__(self, *arguments, **options):
            encoding = plain(self, *arguments, **options)
            calls[0] += 1
            encoding["input_ids"] = [*encoding["input_ids"], calls[0]]
            return encoding

    tokenizer.__class__ = Random
    record = texts.facts(tokenizer, source)
    assert record["operations"] == {}
    assert "encode" in record["left_out"]


def test_a_sentence_of_special_tokens_is_made_from_the_tokenizer():
    record = facts("byte-level")
    assert record["inputs"]["special token 1 inside a word"] == "foo<s>bar"
    ids = value(record, "encode without special tokens", "special token 1 inside a word")["items"]
    assert 1 in ids


def test_the_class_in_python_is_asked_where_there_is_one():
    record = facts("byte-level", "GPT2Tokenizer", model_type="gpt2", slow_files=True)
    if IS_OLD:
        assert len(record["operations"]["slow class"]) > 60
        assert value(record, "slow class", "digits") == value(record, "encode", "digits")
    else:
        assert "slow class" in record["left_out"]


def test_settings_of_the_tokenizer_are_as_before():
    tokenizer, source = loaded("byte-level", padding_side="left", truncation_side="left")
    texts.facts(tokenizer, source)
    assert (tokenizer.padding_side, tokenizer.truncation_side) == ("left", "left")
    assert len(tokenizer("a " * 200)["input_ids"]) > 100


def test_parts_are_those_of_the_backend_and_of_the_file():
    digits = {"type": "Digits", "individual_digits": True}
    tokenizer, source = loaded("byte-level", parts={"pre_tokenizer": digits})
    parts = backend.facts(tokenizer, source)
    assert '"Digits"' in parts["built"]["pre_tokenizer"]
    assert parts["declared"]["pre_tokenizer"] == parts["built"]["pre_tokenizer"]
    assert parts["declared"]["normalizer"] == "null"
    assert parts["declared"]["model"] == parts["built"]["model"]
    assert len(parts["built"]["model"]) < 400


def test_a_large_table_in_a_part_is_a_hash():
    replaced = {"type": "Replace", "pattern": {"String": "x" * 500}, "content": ""}
    tokenizer, source = loaded("byte-level", parts={"normalizer": replaced})
    assert '"characters": 500' in backend.facts(tokenizer, source)["built"]["normalizer"]


def test_conversations_are_rendered_and_encoded():
    record = chat.facts(loaded("byte-level", chat_template=TOOLS)[0])
    text = value(record, "rendered text", "no name, tools")["text"]
    assert text.startswith('<s><|tools|> 26 Jul 2024\n{"type": "function"')
    assert value(record, "rendered text", "no name, image as a part")["text"].count("<image>") == 1
    marks = value(record, "assistant mask", "no name, turns")["items"]
    assert set(marks) == {0, 1}
    assert value(record, "type", "no name, return_dict=False")["text"].startswith("list of int")


def test_two_conversations_are_encoded_side_by_side_and_a_planted_row_is_seen():
    tokenizer, _ = loaded("byte-level", chat_template=TOOLS, pad_token="<s>")
    case = "no name, two conversations, padded"
    record = chat.facts(tokenizer)
    rows = value(record, "ids", case)["items"]
    single = [value(record, "ids", f"no name, {one}")["items"] for one in chat._BATCH]
    assert [row[-len(one) :] for row, one in zip(rows, single)] == single
    assert len({len(row) for row in rows}) == 1
    marks = value(record, "assistant mask", case)["items"]
    assert [set(row) for row in marks] == [{0}, {0, 1}]
    assert record["members"][case] == ["no name, user", "no name, ends with the assistant"]
    own = type(tokenizer).apply_chat_template

    def planted(self, conversation, **arguments):
        both = isinstance(conversation[0], list)
        return own(self, conversation[::-1] if both else conversation, **arguments)

    with mock.patch.object(type(tokenizer), "apply_chat_template", planted):
        assert value(chat.facts(tokenizer), "ids", case)["items"] == rows[::-1]


def test_an_exception_of_a_template_is_a_fact():
    record = chat.facts(loaded("byte-level", chat_template="{{ raise_exception('no') }}")[0])
    kept = value(record, "rendered text", "no name, user")
    assert (kept["raised"], kept["message"]) == ("TemplateError", "no")


def test_templates_are_chosen_by_name_and_by_the_release():
    named = [
        {"name": "default", "template": PLAIN},
        {"name": "tool_use", "template": TOOLS},
    ]
    record = chat.facts(loaded("byte-level", chat_template=named)[0])
    rendered = record["operations"]["rendered text"]
    assert rendered["no name, tools"] == rendered["tool_use, tools"]
    assert rendered["no name, user"] == rendered["default, user"]
    assert set(record["operations"]["template"]) == {"default", "tool_use"}


def test_the_clock_of_templates_goes_on_afterwards():
    before = transformers.utils.chat_template_utils.datetime
    chat.facts(loaded("byte-level", chat_template=TOOLS)[0])
    assert transformers.utils.chat_template_utils.datetime is before


def test_without_a_template_there_are_no_conversations():
    assert chat.facts(loaded("byte-level")[0]) is None


def planted(owner, name, change, *kind):
    """Return the operations with another result where a method of transformers is changed, and what they were."""
    kind = kind or ("wordpiece",)
    clean, plain = facts(*kind), getattr(owner, name)

    @functools.wraps(plain)
    def instead(self, *arguments, **named):
        return change(plain(self, *arguments, **named))

    with mock.patch.object(owner, name, instead):
        changed = facts(*kind)
    assert facts(*kind) == clean
    return {
        operation
        for operation, cases in clean["operations"].items()
        if any(value(clean, operation, c) != value(changed, operation, c) for c in cases)
    }, clean


ENDS = ("", ", without labels")


def test_a_collator_that_labels_otherwise_is_seen():
    collator = transformers.DataCollatorWithFlattening

    def without_separator(batch):
        batch["labels"][batch["labels"] == -100] = 0
        return batch

    differing, clean = planted(collator, "__call__", without_separator)
    assert differing == {"collators"}
    rows = [value(clean, "collators", f"DataCollatorWithFlattening(){end}") for end in ENDS]
    assert rows[0] == rows[1], "the tokens are the labels"
    cases = clean["operations"]["collators"]
    assert {f"DataCollator{name}" for name in ("WithPadding()", "ForSeq2Seq()")} <= cases.keys()
    assert "DataCollatorForLanguageModeling()" not in cases, "it draws"


def test_a_collator_that_draws_is_left_out_and_one_without_its_tokens_too():
    def drawn(batch):
        batch["input_ids"] = torch.randint(9, batch["input_ids"].shape)
        return batch

    collator = transformers.DataCollatorWithFlattening
    plain = collator.__call__
    with mock.patch.object(collator, "__call__", lambda self, *a, **k: drawn(plain(self, *a, **k))):
        assert "DataCollatorWithFlattening()" not in facts("wordpiece")["operations"]["collators"]
    assert not [c for c in facts("byte-level")["operations"]["collators"] if "mlm_prob" in c]


def test_rows_of_each_form_are_padded_alike_and_a_form_that_is_refused_is_seen():
    base = transformers.PreTrainedTokenizerBase
    clean, plain = facts("wordpiece"), base.pad
    by_form = {form: value(clean, "pad", form) for form in clean["operations"]["pad"]}
    rows = by_form["dicts"]
    assert len(by_form) == 6
    assert all(each == rows for each in by_form.values())
    assert len({len(row) for row in rows["items"]}) == 1

    def refused(self, rows, *arguments, **named):
        if isinstance(rows, list) and torch.is_tensor(rows[0]["input_ids"]):
            raise TypeError
        return plain(self, rows, *arguments, **named)

    with mock.patch.object(base, "pad", refused):
        planted = facts("wordpiece")
    assert "raised" in value(planted, "pad", "dicts of tensors")
    assert value(planted, "pad", "dicts") == rows


class Placing:
    """Calls a tokenizer with words and the places that LayoutLM's takes, or LUKE's."""

    shift = 0

    def __init__(self, made):
        self._made = made

    def __getattr__(self, name):
        return getattr(self._made, name)

    def __len__(self):
        return len(self._made)


class Boxed(Placing):
    def __call__(self, text, text_pair=None, boxes=None, **named):
        if isinstance(text, str) and text_pair is None:
            raise ValueError
        words = text_pair or text
        return self._made(words, is_split_into_words=True, **named) | {"bbox": boxes[self.shift :]}


class Spanned(Placing):
    def __call__(self, *texts, entity_spans=(), **named):
        if len(entity_spans) > 1:
            raise ValueError
        encoding = self._made(*texts, **named)
        if not entity_spans:
            return encoding
        return {**encoding, "entities": [[start + self.shift, end] for start, end in entity_spans]}


def placing(kind, shift=0):
    made = kind(loaded("wordpiece")[0])
    made.shift = shift
    outcomes = texts.Outcomes(20.0)
    texts.placed(outcomes, made, [["a", "bc"], ["d", "e", "f"]])
    record = outcomes.record()
    return {
        case: value(record, "words with places", case)
        for case in record["operations"]["words with places"]
    }


def test_words_are_given_with_the_places_that_a_class_takes():
    assert "words with places" not in facts("wordpiece")["operations"]
    boxed, spanned = placing(Boxed), placing(Spanned)
    assert {*boxed} == {"boxes", "boxes, a pair", "boxes, a batch"}
    assert {*spanned} == {"entity_spans, 1", "entity_spans, 2"}
    raised = [case for case, given in (boxed | spanned).items() if "raised" in given]
    assert raised == ["entity_spans, 2"]
    for kind, clean in ((Boxed, boxed), (Spanned, spanned)):
        assert placing(kind) == clean
        planted = placing(kind, 1)
        assert all(given != clean[case] or case in raised for case, given in planted.items())


def test_a_class_that_refuses_plain_texts_is_asked_for_words_with_places():
    made, source = loaded("wordpiece")
    record = texts.facts(Boxed(made), source)
    assert "collators" not in record["operations"]
    assert {*record["operations"]["words with places"]} == {*placing(Boxed)}


def test_maps_of_windows_and_characters_are_asked():
    encoding = transformers.BatchEncoding
    differing, clean = planted(encoding, "char_to_token", lambda token: token and token + 1)
    assert differing == {"places"}
    rows = value(clean, "places", "the batch, in windows")["items"][0]
    assert rows[:2] == ["rows", 0]
    assert len({*rows}) < len(rows), "a text has several windows"


def test_decode_is_asked_with_the_switches_of_its_class():
    def shifted(result):
        if hasattr(result, "char_offsets"):
            result.char_offsets = [each | {"start_offset": 0} for each in result.char_offsets]
        return result

    kind = transformers.Wav2Vec2CTCTokenizer
    differing, _ = planted(kind, "decode", shifted, "characters", kind.__name__)
    assert differing == {"decode with its own switches"}
    assert "decode with its own switches" not in facts("wordpiece")["operations"]


def test_a_batch_is_decoded_with_the_switches_of_its_class():
    """PR 47997: from 5.0 to 5.15 Whisper's tokenizer raises for timestamps of a batch."""
    kind = transformers.Wav2Vec2CTCTokenizer
    differing, clean = planted(kind, "batch_decode", list, "characters", kind.__name__)
    assert differing == {"decode with its own switches"}
    switched = clean["operations"]["decode with its own switches"]
    assert {"the batch, output_char_offsets", "one word, output_char_offsets"} <= switched.keys()


def test_texts_of_code_show_a_tokenizer_that_takes_shifts_for_the_code_of_a_language():
    """PR 39013: up to 4.52 Marian's tokenizer drops all between >> and the last << of a text."""
    kind = type(loaded("wordpiece")[0])
    plain = kind.__call__

    def drops(self, text=None, *arguments, **named):
        kept = re.sub(">>.+<<", "", text) if isinstance(text, str) else text
        return plain(self, kept, *arguments, **named)

    clean = facts("wordpiece")
    with mock.patch.object(kind, "__call__", drops):
        changed = facts("wordpiece")
    assert {
        case
        for case in clean["operations"]["encode"]
        if value(clean, "encode", case) != value(changed, "encode", case)
    } == {"C++", "code of a language"}
