"""Rules about texts and conversations: each finds its defect and nothing else."""

import pytest

from samebits.questions.registry import findings
from samebits.questions.texts.compare import comparisons
from samebits.questions.texts.records import Parts, TextsSignal
from samebits.records.tokenizer import Answer
from tests.support.builders import sound_case, tokenizer
from tests.support.outcomes import outcomes

PARTS = Parts(
    built={
        "normalizer": "null",
        "pre_tokenizer": '{"type": "ByteLevel"}',
        "model": '{"type": "BPE"}',
    },
    declared={"normalizer": "null", "pre_tokenizer": '{"type": "ByteLevel"}'},
)
CORPUS = {
    "encode": {"words": [1, 5, 6], "digits": [1, 7]},
    "encode without special tokens": {"words": [5, 6], "digits": [7]},
    "normalizer": {"words": "a b", "digits": "1"},
    "pre_tokenizer": {"words": ["a", " b"], "digits": ["1"]},
    "model": {"words": [5, 6], "digits": [7]},
    "tensors": {"words": ["input_ids int64 1x2"], "digits": ["input_ids int64 1x1"]},
    "offsets": {"words": [[0, 0], [0, 1], [1, 3]], "digits": [[0, 0], [0, 1]]},
    "decode": {"words": "<s>a b", "digits": "<s>1"},
    "decode without special tokens": {"words": "a b", "digits": "1"},
    "decode, clean_up_tokenization_spaces": {"words": "<s>a b", "digits": "<s>1"},
    "stream": {"words": "a b", "digits": "1"},
    "tokens of ids": {"drawn": ["a", "b"], "size": [9]},
    "batch": {"padded": [[1, 5, 6], [1, 7, 0]]},
    "words with places": {"boxes": [["bbox", "[0, 10, 15, 30]"], ["input_ids", "5"]]},
    "pad": {"dicts": [[1, 5, 6], [1, 7, 0]]},
}
CHATS = {
    "template": {"default": [9, "00"]},
    "rendered text": {"default, user": "<|user|>hi"},
    "continued text": {"default, continued": "<|assistant|>1, 2,"},
    "ids": {"default, user": [5, 6], "default, continued": [6, 7]},
    "type": {"default, return_dict=True": ["BatchEncoding with list of int"]},
}


def corpus_findings(corpus=None, chats=None, **changed):
    """Return the findings of a cell whose tokenizer makes something else of some texts."""

    def observed(corpus, chats, parts=PARTS, **changed):
        tokens = {5: "a", 6: "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}b", 7: "1"}
        texts = TextsSignal(
            corpus=outcomes(corpus, members={"padded": ("words", "digits")}, tokens=tokens),
            conversations=outcomes(chats),
            parts=parts,
        )
        return {"tokenizer": tokenizer(chat=Answer(type="list"), **changed), "texts": texts}

    reference = observed(CORPUS, CHATS)
    candidate = observed(_merged(CORPUS, corpus), _merged(CHATS, chats), **changed)
    return findings(sound_case(candidate, reference))


def _merged(results, changed):
    return {
        operation: results.get(operation, {}) | (changed or {}).get(operation, {})
        for operation in results | (changed or {})
    }


def corpus_codes(corpus=None, chats=None, **changed):
    return [finding.code for finding in corpus_findings(corpus, chats, **changed)]


def test_a_corpus_that_is_the_same_has_no_finding():
    assert corpus_codes() == []
    assert corpus_codes(parts=Parts(built=PARTS.built | {"normalizer": '{"type": "NFC"}'})) == []


ONE_TOKEN_LESS = {
    "encode": {"words": [1, 5]},
    "encode without special tokens": {"words": [5]},
    "pre_tokenizer": {"words": ["a b"]},
    "model": {"words": [5]},
    "offsets": {"words": [[0, 0], [0, 3]]},
    "decode": {"words": "<s>a"},
    "decode without special tokens": {"words": "a"},
    "stream": {"words": "a"},
    "batch": {"padded": [[1, 5], [1, 7]]},
}


def test_other_ids_of_a_text_name_text_token_and_part():
    pre = '{"type": "Metaspace"}'
    (found,) = corpus_findings(
        ONE_TOKEN_LESS,
        {"ids": {"default, user": [5]}},
        parts=Parts(built=PARTS.built | {"pre_tokenizer": pre}, declared=PARTS.declared),
    )
    assert (found.code, found.where) == ("SB806", "text words of the corpus")
    text = "\n".join(found.evidence)
    assert "1 of 2 texts differ" in text
    assert "5.x: LlamaTokenizerFast (backend tokenizers, BPE), from index 1 on ends after 1" in text
    assert "parts that changed, listed, not tried: pre_tokenizer" in text
    assert f"5.x: pre_tokenizer {pre}" in text
    assert 'tokenizer.json: pre_tokenizer {"type": "ByteLevel"}' in text
    assert "4.48 has the pre_tokenizer of tokenizer.json, and the other release does not" in text


def test_a_pre_tokenizer_that_is_the_same_on_both_sides_is_not_accused():
    changed = Parts(built=PARTS.built | {"normalizer": '{"type": "Precompiled"}'})
    (found,) = corpus_findings(
        ONE_TOKEN_LESS | {"normalizer": {"words": "x", "digits": "y"}},
        {"ids": {"default, user": [5]}},
        parts=changed,
    )
    text = "\n".join(found.evidence)
    assert "parts that changed, listed, not tried: normalizer" in text
    assert "pre_tokenizer" not in text


PUT_BACK = "put back: pre_tokenizer"


@pytest.mark.parametrize(
    ("ids", "named", "tried"),
    [
        ([5, 6], "what gives something else is the pre_tokenizer", "1 of 1 text"),
        ([8], "parts that changed, listed, not confirmed: pre_tokenizer", "0 of 1 text"),
    ],
)
def test_a_part_is_named_only_if_it_gives_the_ids_of_the_reference_when_put_back(ids, named, tried):
    changed = Parts(built=PARTS.built | {"pre_tokenizer": '{"type": "Metaspace"}'})
    found = corpus_findings(
        {
            "encode without special tokens": {"words": [5]},
            "pre_tokenizer": {"words": ["a b"]},
            PUT_BACK: {"words": ids, "digits": [7]},
        },
        parts=changed,
    )
    (split,) = (finding for finding in found if finding.code == "SB806")
    assert named in split.evidence
    line = f"tried: with the pre_tokenizer of tokenizer.json, 5.x gives 4.48's ids for {tried}"
    assert f"{line} that differ" in split.evidence


def test_what_a_put_back_part_gives_is_not_a_result_of_the_tokenizer():
    trial = {PUT_BACK: {"words": [5]}}
    sides = [
        TextsSignal(corpus=outcomes(CORPUS | more)) for more in (trial, {PUT_BACK: {"words": [6]}})
    ]
    assert PUT_BACK not in [comparison.operation for comparison in comparisons(*sides)]


@pytest.mark.parametrize(
    ("code", "corpus", "chats", "where"),
    [
        ("SB811", {"encode": {"words": [2, 5, 6, 2]}}, None, "text words"),
        ("SB812", {"decode": {"digits": "<s> 1"}}, None, "decode: digits"),
        (
            "SB813",
            {"decode, clean_up_tokenization_spaces": {"words": "<s>ab"}},
            None,
            "decode, clean_up_tokenization_spaces: words",
        ),
        ("SB814", {"stream": {"words": "ab"}}, None, "stream: words"),
        ("SB829", {"tensors": {"words": ["input_ids float32 1x0"]}}, None, "tensors: words"),
        ("SB815", {"offsets": {"words": [[0, 0], [0, 1], [2, 3]]}}, None, "offsets: words"),
        ("SB816", {"batch": {"padded": [[1, 5, 6], [0, 1, 7]]}}, None, "batch: padded"),
        (
            "SB816",
            {"words with places": {"boxes": [["bbox", "[0, 0, 0, 0]"], ["input_ids", "5"]]}},
            None,
            "words with places: boxes",
        ),
        ("SB818", {"words with places": {"boxes": ValueError()}}, None, "words with places"),
        ("SB817", {"tokens of ids": {"drawn": ["a", "c"]}}, None, "LlamaTokenizerFast"),
        ("SB818", {"batch": {"padded": ValueError("no pad token")}}, None, "batch"),
        ("SB887", {"pad": {"dicts": TypeError("iteration over one row")}}, None, "pad: dicts"),
        (
            "SB819",
            None,
            {"rendered text": {"default, user": "hi"}, "ids": {"default, user": [6]}},
            "rendered text: default, user",
        ),
        ("SB819", None, {"template": {"default": [3, "11"]}}, "template: default"),
        ("SB820", None, {"ids": {"default, user": [1, 5, 6]}}, "ids: default, user"),
        (
            "SB826",
            None,
            {
                "continued text": {"default, continued": "<|assistant|>1, 2,</s>"},
                "ids": {"default, continued": [6, 7, 2]},
            },
            "continued text: default, continued",
        ),
        (
            "SB826",
            None,
            {"continued text": {"default, continued": KeyError("text")}},
            "continued text: default, continued",
        ),
    ],
)
def test_each_rule_about_texts_sees_its_defect_alone(code, corpus, chats, where):
    (found,) = corpus_findings(corpus, chats)
    assert (found.code, found.where) == (code, where)


def test_what_follows_from_another_difference_is_not_counted_again():
    decoded = {"decode without special tokens": {"words": "ab"}, "stream": {"words": "ab"}}
    assert corpus_codes(decoded) == ["SB812"]
    cleaned = {"decode, clean_up_tokenization_spaces": {"words": "<s>ab"}}
    assert corpus_codes({"decode": {"words": "<s>ab"}, **cleaned}) == ["SB812"]
    assert corpus_codes({"tokens of ids": {"drawn": ["x", "y"], "size": [10]}}) == ["SB817"]


def test_a_continued_message_of_another_template_is_not_counted_again():
    continued = {"continued text": {"default, continued": "1, 2,"}}
    assert corpus_codes(chats={"rendered text": {"default, user": "hi"}, **continued}) == ["SB819"]
    assert corpus_codes(chats={"template": {"default": [3, "11"]}, **continued}) == ["SB819"]


def test_a_text_that_the_reference_alone_refuses_is_named_there():
    broken = _merged(CORPUS, {"encode": {"words": TypeError("no surrogate")}})
    reference = TextsSignal(corpus=outcomes(broken))
    candidate = TextsSignal(corpus=outcomes(CORPUS, members={"padded": ("words", "digits")}))
    sides = ({"tokenizer": tokenizer(), "texts": texts} for texts in (candidate, reference))
    (found,) = findings(sound_case(*sides))
    assert (found.code, found.where, found.of_reference) == ("SB818", "encode", True)
    assert found.evidence[0] == "encode: 1 of 2 cases raise, first words"
    both = ({"tokenizer": tokenizer(), "texts": reference} for _ in "ab")
    assert findings(sound_case(*both)) == ()


def test_special_tokens_with_other_ids_are_a_finding():
    (found,) = corpus_findings(special={"bos": 1, "pad": 9})
    assert (found.code, found.evidence) == ("SB817", ("pad token: id none → 9",))
