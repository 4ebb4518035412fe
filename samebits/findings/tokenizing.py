"""SB81x: rules for what a tokenizer makes of many texts, of ids, and of conversations.

A rule looks only at results whose inputs are the same on both sides (samebits/compare/texts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.texts import (
    BARE,
    BATCHING,
    CLEANING,
    CONTINUED,
    DECODING,
    ENCODE,
    MARKING,
    OF_RENDERED,
    TEXT,
    differences,
    is_raised,
    place,
    position_in_words,
)
from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines, tokenizer_pair
from samebits.records.finding import RuleText
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samebits.findings.case import Case
    from samebits.records.outcomes import OperationComparison, Place
    from samebits.records.tokenizer import TokenizerSignal

    Check = Callable[[Case], Iterator[Sighting]]

_MAX_OPERATIONS = 4
"""Operations of one finding that the evidence shows."""


def _is_returned(comparison: OperationComparison) -> bool:
    """Return True if both sides returned something, and not the same."""
    return comparison.first is not None and bool(comparison.first.position)


def _differing(*operations: str) -> Check:
    """Return a check for operations whose results differ; what raises is another rule's."""

    def check(case: Case) -> Iterator[Sighting]:
        differing = [c for c in case.texts if c.operation in operations and _is_returned(c)]
        if differing:
            yield _sighting(case, differing)

    return check


def _sighting(case: Case, comparisons: list[OperationComparison]) -> Sighting:
    lines: list[str] = []
    for comparison in comparisons[:_MAX_OPERATIONS]:
        assert comparison.first is not None
        lines += [_summary(comparison), *_sides(case, comparison.first)]
    if len(comparisons) > _MAX_OPERATIONS:
        names = ", ".join(c.operation for c in comparisons[_MAX_OPERATIONS:])
        lines.append(f"differ as well: {names}")
    assert comparisons[0].first is not None
    return Sighting(f"{comparisons[0].operation}: {comparisons[0].first.case}", tuple(lines))


def _summary(comparison: OperationComparison) -> str:
    assert comparison.first is not None
    return (
        f"{comparison.operation}: differs in {comparison.n_differ} of "
        f"{plural(comparison.n_compared, 'case')}, first {position_in_words(comparison.first)}"
    )


def _sides(case: Case, first: Place) -> tuple[str, ...]:
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    names = (tokenizer.class_name for tokenizer in tokenizers)
    shown = (first.reference, first.candidate)
    lines = (f"{name}: {text}" for name, text in zip(names, shown, strict=True))
    return side_lines(case, *lines)


def _other_special_tokens(case: Case) -> Iterator[Sighting]:
    """Find special tokens that are added to a text and that the reference does not add.

    Fewer special tokens are SB801.
    """
    tokenizers = tokenizer_pair(case)
    if tokenizers is None or tokenizers[0].corpus is None or tokenizers[1].corpus is None:
        return
    corpora = tokenizers[0].corpus, tokenizers[1].corpus
    split = {difference.case for difference in differences(BARE, *corpora)}
    added = [d for d in differences(ENCODE, *corpora) if d.case not in split]
    first = next((d for d in added if d.reference.items and d.candidate.items), None)
    if first is None or first.candidate.size < first.reference.size:
        return
    position = place(ENCODE, first, *corpora)
    counted = f"{plural(len(added), 'text')} differ, first {position_in_words(position)}"
    yield Sighting(f"text {first.case}", (counted, *_sides(case, position)))


def _cleaned_otherwise(case: Case) -> Iterator[Sighting]:
    """Find a clean-up of spaces that differs, where decoding without it is the same."""
    everything = case.texts
    if any(_is_returned(c) for c in everything if c.operation in DECODING):
        return
    differing = [c for c in everything if c.operation in CLEANING and _is_returned(c)]
    if differing:
        yield _sighting(case, differing)


def _streamed_otherwise(case: Case) -> Iterator[Sighting]:
    """Find a streamed text that differs, where decoding the same ids at once does not."""
    everything = {c.operation: c for c in case.texts}
    whole, streamed = everything.get("decode without special tokens"), everything.get("stream")
    if streamed is None or whole is None or whole.n_differ:
        return
    if _is_returned(streamed):
        yield _sighting(case, [streamed])


def _other_vocabulary(case: Case) -> Iterator[Sighting]:
    """Find ids that stand for other tokens, and special tokens with other ids."""
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    lines = [*_special_changes(*tokenizers)]
    differing = [c for c in case.texts if c.operation == "tokens of ids" and _is_returned(c)]
    for comparison in differing:
        assert comparison.first is not None
        lines += [_summary(comparison), *_sides(case, comparison.first)]
    if lines:
        yield Sighting(tokenizers[1].class_name, tuple(lines))


def _special_changes(reference: TokenizerSignal, candidate: TokenizerSignal) -> Iterator[str]:
    for name in dict.fromkeys([*reference.special, *candidate.special]):
        before, after = reference.special.get(name), candidate.special.get(name)
        if before != after:
            ids = ("none" if i is None else str(i) for i in (before, after))
            yield f"{name} token: id {' → '.join(ids)}"


def _raises(case: Case) -> Iterator[Sighting]:
    """Find operations that raise here and return something in the reference.

    A continued message for which only one side raises is SB826.
    """
    differing = [c for c in case.texts if c.n_raised and c.operation != CONTINUED]
    if not differing:
        return
    lines: list[str] = []
    for comparison in differing[:_MAX_OPERATIONS]:
        first = _first_raised(case, comparison.operation)
        if first is None:
            continue
        count = f"{comparison.n_raised} of {plural(comparison.n_compared, 'case')} raise"
        lines.append(f"{comparison.operation}: {count}, first {first.case}")
        lines += _sides(case, first)
    if lines:
        yield Sighting(differing[0].operation, tuple(lines))


def _first_raised(case: Case, operation: str) -> Place | None:
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    pairs = (
        (tokenizers[0].corpus, tokenizers[1].corpus),
        (tokenizers[0].conversations, tokenizers[1].conversations),
    )
    for reference, candidate in pairs:
        if reference is None or candidate is None:
            continue
        for difference in differences(operation, reference, candidate):
            if difference.candidate.raised:
                return place(operation, difference, reference, candidate)
    return None


def _rendered_otherwise(case: Case) -> Iterator[Sighting]:
    """Find conversations that are rendered to another text, and a template that is not read."""
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    if tokenizers[0].chat is not None and tokenizers[1].chat is None:
        lines = ("has a chat template", "has no chat template")
        yield Sighting("chat template", side_lines(case, *lines))
        return
    if tokenizers[1].conversations is None:
        return  # the instrument failed
    names = [_template_names(tokenizer) for tokenizer in tokenizers]
    if set(names[0]) - set(names[1]):
        has = (f"has the templates {', '.join(name)}" for name in names)
        yield Sighting("named chat templates", side_lines(case, *has))
        return
    yield from _differing("template", TEXT)(case)


def _continued_otherwise(case: Case) -> Iterator[Sighting]:
    """Find continued messages that are cut otherwise, where the template renders all else alike.

    That only one side raises counts, in whichever direction.
    """
    everything = {c.operation: c for c in case.texts}
    if any(name in everything and everything[name].n_differ for name in ("template", TEXT)):
        return
    continued = everything.get(CONTINUED)
    if continued is None or not continued.n_differ:
        return
    sighting = _sighting(case, [continued])
    raised = _first_raised_by_one(case, CONTINUED) if _is_returned(continued) else None
    if raised is not None:
        lines = (f"{CONTINUED}: {raised.case}", *_sides(case, raised))
        sighting = sighting._replace(evidence=(*sighting.evidence, *lines))
    yield sighting


def _first_raised_by_one(case: Case, operation: str) -> Place | None:
    """Return the first conversation for which one side raises, and not the other."""
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    reference, candidate = (tokenizer.conversations for tokenizer in tokenizers)
    assert reference is not None
    assert candidate is not None
    first = next(filter(is_raised, differences(operation, reference, candidate)), None)
    return place(operation, first, reference, candidate) if first is not None else None


def _template_names(tokenizer: TokenizerSignal) -> tuple[str, ...]:
    conversations = tokenizer.conversations
    return tuple(conversations.operations.get("template", {})) if conversations else ()


_ISSUES = "https://github.com/huggingface/transformers/issues"


def _references(*numbers: int, files: Iterable[str] = ()) -> tuple[str, ...]:
    return (*(f"{_ISSUES}/{number}" for number in numbers), *files)


RULES = (
    Rule(
        RuleText(
            code="SB811",
            name="the tokenizer adds other special tokens",
            kind="silent",
            looks_for="a text that gives the same ids without special tokens and other ids with "
            "them, of which there are not fewer than in the reference (fewer are SB801)",
            cause="Where a release builds the post-processor itself, from the class or from "
            "add_bos_token and add_eos_token, the one in tokenizer.json is not used. The model "
            "then gets a token that it did not get before, such as a second BOS. Affected: "
            "checkpoints whose tokenizer.json has another post-processor than the class builds.",
            remedy="Name a class in tokenizer_config.json that uses tokenizer.json as it is, and "
            "let its post-processor add the tokens that the model was trained with.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="Depends on the class and the file. Measured: XLMRobertaTokenizer adds BOS "
            "and EOS from 5.2 on, also where tokenizer.json adds only EOS.",
            references=("transformers/tokenization_utils_tokenizers.py",),
        ),
        _other_special_tokens,
    ),
    Rule(
        RuleText(
            code="SB812",
            name="the same ids are decoded to another text",
            kind="silent",
            looks_for="a text whose ids are the same, or ids drawn from the whole vocabulary that "
            "stand for the same tokens, and whose decoded text differs; also with "
            "skip_special_tokens and in a batch",
            cause="For some classes 5.x builds the decoder itself and does not use the one in "
            "tokenizer.json. A decoder for ▁ leaves the letters of byte-level BPE as they are, or "
            "drops every space. The model computes the same, but what users read is wrong. "
            "Affected: checkpoints whose tokenizer_config.json names such a class.",
            remedy="Name a class in tokenizer_config.json that uses tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="Byte-level BPE with LlamaTokenizerFast: wrong in 5.3.0, and up to 5.10 for "
            "model_type llama. RobertaTokenizer over WordPiece: wrong from 5.2 on.",
            references=_references(44779, 45488),
        ),
        _differing(*DECODING),
    ),
    Rule(
        RuleText(
            code="SB813",
            name="`clean_up_tokenization_spaces` has another effect",
            kind="silent",
            scope="release",
            looks_for="ids that are decoded to the same text without the clean-up and to another "
            "text with clean_up_tokenization_spaces=True, or without the argument",
            cause="The clean-up removes spaces before punctuation and in English contractions. By "
            "5.10 decode ignores clean_up_tokenization_spaces=True for BPE tokenizers, as it "
            "damages code. Affected: users who set it in the call or in tokenizer_config.json, "
            "and compare decoded text.",
            remedy="Leave the clean-up to your own code, or set "
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output.",
            releases="Applied up to 5.3.0. Ignored for BPE in 5.10 and later.",
            references=("transformers/tokenization_utils_tokenizers.py, _decode",),
        ),
        _cleaned_otherwise,
    ),
    Rule(
        RuleText(
            code="SB814",
            name="a streamer gives another text",
            kind="silent",
            looks_for="ids that are decoded at once to the same text, and token by token, through "
            "TextStreamer, to another one",
            cause="A streamer decodes all tokens that it holds and prints what is new. Its rules "
            "for spaces, line ends, Chinese characters and incomplete bytes are the release's. "
            "Affected: users who show the text while it is generated.",
            remedy="Decode the ids of the whole answer once more at the end, and show that text.",
            releases="depends on the tokenizer",
            references=("transformers/generation/streamers.py",),
        ),
        _streamed_otherwise,
    ),
    Rule(
        RuleText(
            code="SB815",
            name="offsets, word ids or masks of the tokens differ",
            kind="silent",
            looks_for="a text or a pair with the same ids, and with other character offsets, word "
            "ids, special token masks or token type ids",
            cause="Word ids and offsets come from the normalizer, the pre-tokenizer and the "
            "post-processor, token types from the post-processor. Where a release builds these "
            "parts itself, they can differ although the ids are the same. Affected: token "
            "classification, question answering, and everything that maps tokens to characters.",
            remedy="Name a class in tokenizer_config.json that uses tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="Depends on the class and the file. Measured: word ids of Qwen2Tokenizer over "
            "a plain byte-level pre-tokenizer, from 5.2 on.",
            references=("transformers/models/qwen2/tokenization_qwen2.py",),
        ),
        _differing(*MARKING),
    ),
    Rule(
        RuleText(
            code="SB816",
            name="pairs, batches or windows of the same texts differ",
            kind="silent",
            looks_for="texts that have the same ids one by one, and other ids or attention masks "
            "as a pair, in a padded or truncated batch, in overlapping windows, or as a list of "
            "words; padding and truncation are named in the call",
            cause="How two texts are joined, and how many special tokens are counted when a text "
            "is cut, is decided by the post-processor; padding by the pad token. Where a release "
            "builds them itself, a batch can differ although each text alone is the same. "
            "Affected: training and evaluation in batches, question answering, rerankers.",
            remedy="Set pad_token, padding_side and truncation_side in tokenizer_config.json, and "
            "name a class there that uses tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>",\n'
            ' "padding_side": "right", "truncation_side": "right"}  # tokenizer_config.json',
            releases="depends on the class and the file",
            references=("transformers/tokenization_utils_tokenizers.py",),
        ),
        _differing(*BATCHING),
    ),
    Rule(
        RuleText(
            code="SB817",
            name="the same id is another token",
            kind="silent",
            looks_for="ids drawn from the whole vocabulary that stand for other tokens, a "
            "vocabulary of another size, or a bos, eos, pad, unk, sep, cls or mask token with "
            "another id",
            cause="A class that builds its tokenizer itself adds the special tokens that it "
            "expects, at the ids that it expects. What the checkpoint does not have gets a new "
            "id behind the vocabulary, for which the embedding has no row, or an existing token "
            "takes its part. Affected: checkpoints whose special tokens are not those of the "
            "class that tokenizer_config.json names.",
            remedy="Name every special token in tokenizer_config.json, and a class that uses "
            "tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>",\n'
            ' "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}',
            releases="Depends on the class and the file. Measured: GemmaTokenizer over a "
            "vocabulary without <mask>, from 5.3 on.",
            references=("transformers/tokenization_utils_tokenizers.py",),
        ),
        _other_vocabulary,
    ),
    Rule(
        RuleText(
            code="SB818",
            name="a call of the tokenizer raises an exception",
            kind="crash",
            looks_for="a text, ids or a conversation for which the reference returns something "
            "and this release raises; calls that one of them does not have are left out",
            cause="The usual causes: no pad token is set in this release, so that a batch cannot "
            "be padded; a part of the tokenizer refuses a text that it took before, such as a "
            "lone surrogate; a chat template uses what this release's Jinja environment does not "
            "have. Affected: code that makes this call.",
            remedy="Set what the exception names: pad_token in tokenizer_config.json, text without "
            "lone surrogates, a template without that function.",
            releases="depends on the tokenizer",
            references=(),
        ),
        _raises,
    ),
    Rule(
        RuleText(
            code="SB819",
            name="the chat template renders another text",
            kind="silent",
            looks_for="a conversation that apply_chat_template(tokenize=False) renders to another "
            "text, a template that is another one, or a template that this release does not read",
            cause="Templates are in tokenizer_config.json, in chat_template.jinja or in a folder "
            "of named templates, and releases read different ones of them, in a different order. "
            "The environment (trimmed blocks, tojson, line ends, the choice of a template when "
            "tools are passed) is the release's as well. The model then gets another prompt. "
            "Affected: everyone who calls apply_chat_template or a server that does.",
            remedy="Keep one template, in one place that all releases read: the key chat_template "
            "of tokenizer_config.json. Name the template in the call if there are several.",
            example='{"chat_template": "{% for message in messages %}…"}  # tokenizer_config.json',
            releases="The folder additional_chat_templates is not read by 4.48, and read by 4.57 and "
            "later",
            references=("transformers/utils/chat_template_utils.py",),
        ),
        _rendered_otherwise,
    ),
    Rule(
        RuleText(
            code="SB820",
            name="ids or masks of a rendered chat differ",
            kind="silent",
            looks_for="a conversation that is rendered to the same text, and whose ids, assistant "
            "mask or type of result (with return_dict in the call) differ; only if the texts of "
            "the corpus have the same ids",
            cause="apply_chat_template tokenizes the rendered text without special tokens, and "
            "finds the parts of the assistant by character offsets. Where offsets or added tokens "
            "differ, so do ids and masks, and training on answers masks other tokens. Affected: "
            "fine-tuning with assistant_only_loss, and servers that pass ids.",
            remedy="Render with tokenize=False, tokenize the text with add_special_tokens=False, "
            "and compare with what the model was trained on.",
            releases="depends on the tokenizer",
            references=("https://github.com/huggingface/trl/issues/6105",),
        ),
        _differing(*OF_RENDERED),
    ),
)

OF_CONTINUED = (
    Rule(
        RuleText(
            code="SB826",
            name="`continue_final_message` cuts the text at another place",
            kind="silent",
            scope="release",
            looks_for="a conversation that is rendered with continue_final_message=True to another "
            "text, or for which only one side raises, where the same template renders all other "
            "conversations alike",
            cause="4.48 looks for the text of the last message in the rendered chat and cuts behind "
            "it. A message without text is found at the very end, so that nothing is cut and the "
            "model continues behind the end of a turn; a message whose last part is an image raises "
            "KeyError. Later releases put a mark behind the text of the message and cut there. "
            "Affected: code that prefills an answer with nothing, or with text and an image behind it.",
            remedy="Continue only messages with text, and put the text behind the images. For an "
            "empty answer render with add_generation_prompt=True.",
            example="tokenizer.apply_chat_template(messages, add_generation_prompt=True)",
            releases="Cut behind the text that is found: 4.48. Cut at a mark: 4.57 and later.",
            references=(
                "https://github.com/huggingface/transformers/pull/40732",
                "transformers/utils/chat_template_utils.py, render_jinja_template",
            ),
        ),
        _continued_otherwise,
    ),
)
