"""What a tokenizer makes of many texts, and back: ids, pairs, batches, windows, offsets, decoding.

The texts are in data/texts.json; those around added tokens are made from the tokenizer. All calls
are made on an object of their own, as they change its settings. The clean-up of spaces, padding and
truncation are always named in the call, so that defaults of the release have no part in it, except
in the operations that are about the default.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers

from samebits_probe.cell.outcomes import Outcomes, plain
from samebits_probe.model import load
from samebits_probe.questions.texts.backend import as_declared, backend_of
from samebits_probe.questions.texts.chat import ids_of
from samebits_probe.questions.texts.collated import collated
from samebits_probe.questions.texts.padded import padded
from samebits_probe.questions.texts.placed import placed

SECONDS = 20.0
"""Limit for all calls; a tokenizer of the library needs less than one."""
_DATA = Path(__file__).parent / "data" / "texts.json"
_MAX_STREAMED = 20
"""Tokens of a text that are decoded one by one, as each call decodes all before it again."""
_LONG = 2000
"""Characters of a text that is only encoded and decoded, as all else takes milliseconds for it."""
_MAX_SPECIAL, _MAX_ADDED = 4, 3
"""Special and other added tokens that texts are made around."""
_N_DRAWN, _DRAWN_LENGTH = 8, 24
"""Lists of drawn ids, and ids in each."""
_OWN_SWITCHES = "decode with its own switches"
_USUAL_SWITCHES = ("skip_special_tokens", "clean_up_tokenization_spaces")
_STRIDE = 7919
"""A prime, so that the drawn ids are spread over a vocabulary of any size."""
_SHORT = 8
"""Tokens that a pair or a window is cut to."""
_WINDOW = {"max_length": _SHORT, "truncation": True, "return_overflowing_tokens": True}


@cache
def corpus() -> dict[str, Any]:
    """Return the content of the data file."""
    return dict(json.loads(_DATA.read_text("utf-8")))


def plain_texts() -> dict[str, str]:
    """Return name -> text of the data file."""
    return {t["name"]: t["text"] * t.get("repeat", 1) for t in corpus()["texts"]}


def facts(tokenizer: Any, source: load.Source | None) -> dict[str, Any]:
    """Return the outcomes of all operations; without a source, of those that a tokenizer's files decide."""
    outcomes = Outcomes(SECONDS)
    around = _texts_around_tokens(tokenizer)
    for name, text in around.items():
        outcomes.name_input(name, text)
    texts = plain_texts() | around
    ids = _encoded(outcomes, tokenizer, texts)
    if not _repeats(tokenizer, texts, ids):
        only = Outcomes(SECONDS)
        only.leave_out("encode", "two calls with the same text gave different ids")
        return only.record()
    short = {name: text for name, text in texts.items() if len(text) <= _LONG}
    _marks(outcomes, tokenizer, short)
    if source is not None:
        for name in short:
            outcomes.call("tensors", name, lambda text: _tensors(tokenizer, text), texts[name])
        _stages(outcomes, backend_of(tokenizer), short)
    _decoded(outcomes, tokenizer, {name: ids[name] for name in short if name in ids})
    if source is not None:
        _switched(outcomes, tokenizer, ids)
    for name in sorted(ids.keys() - short.keys()):
        outcomes.call("decode", name, _decode, tokenizer, ids[name][0])
    if source is not None:
        _streamed(outcomes, tokenizer, ids)
    _drawn(outcomes, tokenizer)
    _pairs(outcomes, tokenizer, texts)
    _batches(outcomes, tokenizer, texts)
    if source is not None:
        _windows(outcomes, tokenizer, texts)
        _places(outcomes, tokenizer, texts)
        names = corpus()["batch"]
        if ids.keys() >= {*names}:  # some classes take words with their places alone
            with _sides(tokenizer, "right", "right"):
                collated(outcomes, tokenizer, names, [texts[name] for name in names])
                padded(outcomes, tokenizer, names, [texts[name] for name in names])
        _split(outcomes, tokenizer)
        placed(outcomes, tokenizer, corpus()["split"][:2])
        _slow(outcomes, tokenizer, source, texts)
        _put_back(outcomes, backend_of(tokenizer), source, texts)
    return outcomes.record() | {"tokens": _tokens(tokenizer, ids)}


def _texts_around_tokens(tokenizer: Any) -> dict[str, str]:
    """Return texts with the tokenizer's own special and added tokens inside words, and twice."""
    added = sorted(getattr(tokenizer, "added_tokens_decoder", {}).items())
    special = [str(token) for _, token in added if token.special][:_MAX_SPECIAL]
    added_texts = [str(token) for _, token in added if not token.special][:_MAX_ADDED]
    named = {f"special token {i}": content for i, content in enumerate(special)}
    named |= {f"added token {i}": content for i, content in enumerate(added_texts)}
    return {
        f"{name} {form['name']}": form["text"].replace("{}", content)
        for name, content in named.items()
        for form in corpus()["around tokens"]
    }


def _encoded(
    outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]
) -> dict[str, list[list[int]]]:
    """Encode each text with and without special tokens; return both lists of ids by name."""
    ids = {}
    for name, text in texts.items():
        whole = outcomes.call("encode", name, lambda text: ids_of(tokenizer(text)), text)
        bare = outcomes.call(
            "encode without special tokens",
            name,
            lambda text: ids_of(tokenizer(text, add_special_tokens=False)),
            text,
        )
        if whole is not None and bare is not None:
            ids[name] = [whole, bare]
    return ids


def _tensors(tokenizer: Any, text: str) -> list[str]:
    """Return dtype and shape of the tensors that a model gets."""
    encoding = tokenizer(text, return_tensors="pt")
    tensors = (
        (name, encoding[name]) for name in ("input_ids", "attention_mask") if name in encoding
    )
    return [
        f"{name} {str(tensor.dtype).removeprefix('torch.')} {'x'.join(map(str, tensor.shape))}"
        for name, tensor in tensors
    ]


def _repeats(tokenizer: Any, texts: dict[str, str], ids: dict[str, list[list[int]]]) -> bool:
    """Return True if the same texts give the same ids again; dropout of merges gives others."""
    return all(ids_of(tokenizer(texts[name])) == whole for name, (whole, _) in ids.items())


def _marks(outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]) -> None:
    """Ask which characters and which word each token stands for, and which tokens are special."""
    for name, text in texts.items():
        outcomes.call(
            "special tokens mask",
            name,
            lambda text: tokenizer(text, return_special_tokens_mask=True)["special_tokens_mask"],
            text,
        )
        if not tokenizer.is_fast:
            continue
        outcomes.call(
            "offsets",
            name,
            lambda text: tokenizer(text, return_offsets_mapping=True)["offset_mapping"],
            text,
        )
        outcomes.call("word ids", name, lambda text: tokenizer(text).word_ids(), text)


def _stages(outcomes: Outcomes, backend: Any, texts: dict[str, str]) -> None:
    """Run normalizer, pre-tokenizer and model of the backend one after the other."""
    if backend is None:
        return
    for name, text in texts.items():
        normal = outcomes.call(
            "normalizer", name, lambda text: _normalized(backend.normalizer, text), text
        )
        if normal is None:
            continue
        pieces = outcomes.call(
            "pre_tokenizer", name, lambda text: _pieces(backend.pre_tokenizer, text), normal
        )
        if pieces is not None:
            outcomes.call(
                "model",
                name,
                lambda pieces: [t.id for p in pieces for t in backend.model.tokenize(p)],
                pieces,
            )


def _normalized(normalizer: Any, text: str) -> str:
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _pieces(pre_tokenizer: Any, text: str) -> list[str]:
    if pre_tokenizer is None:
        return [text]
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def _decoded(outcomes: Outcomes, tokenizer: Any, ids: dict[str, list[list[int]]]) -> None:
    """Turn the ids of each text into text again, in each way."""
    for name, (whole, bare) in ids.items():
        _decode_in_each_way(outcomes, tokenizer, name, whole)
        outcomes.call(
            "decode without special tokens", name, lambda bare: _decode(tokenizer, bare), bare
        )
    if ids:
        names = corpus()["batch"]
        rows = [ids[name][0] for name in names if name in ids]
        outcomes.name_members("the batch", names)
        outcomes.call(
            "batch decode",
            "the batch",
            lambda: tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False),
        )


def _decode_in_each_way(outcomes: Outcomes, tokenizer: Any, name: str, ids: list[int]) -> None:
    ways: dict[str, dict[str, Any]] = {
        "decode": {"clean_up_tokenization_spaces": False},
        "decode, skip_special_tokens": {
            "clean_up_tokenization_spaces": False,
            "skip_special_tokens": True,
        },
        "decode, clean_up_tokenization_spaces": {"clean_up_tokenization_spaces": True},
        "decode by default": {},
    }
    for operation, arguments in ways.items():
        outcomes.call(
            operation, name, lambda arguments: tokenizer.decode(ids, **arguments), arguments
        )


def _switched(outcomes: Outcomes, tokenizer: Any, ids: dict[str, list[list[int]]]) -> None:
    """Decode each text and all of them at once with each switch of the class's own, such as one that adds offsets."""
    names = [
        name
        for name, parameter in inspect.signature(tokenizer.decode).parameters.items()
        if parameter.default is False and name not in _USUAL_SWITCHES
    ]
    cases = [case for case in corpus()["batch"] if case in ids]
    for name, case in product(names, cases):
        outcomes.name_members(f"{case}, {name}", [case])
        outcomes.call(
            _OWN_SWITCHES,
            f"{case}, {name}",
            lambda switch, case: _leaves(tokenizer.decode(ids[case][0], **{switch: True})),
            name,
            case,
        )
    rows = [ids[case][0] for case in cases]
    for name in names if rows else ():
        outcomes.name_members(f"the batch, {name}", cases)
        outcomes.call(
            _OWN_SWITCHES,
            f"the batch, {name}",
            lambda switch: _leaves(tokenizer.batch_decode(rows, **{switch: True})),
            name,
        )


def _leaves(value: Any) -> list[Any]:
    """Return the texts and numbers in a result, one after the other."""
    if hasattr(value, "items"):
        return [leaf for name, item in value.items() for leaf in (str(name), *_leaves(item))]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [str(value)]


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


class _Collected(transformers.TextStreamer):  # type: ignore[misc]
    """A streamer of the release that keeps its text."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, clean_up_tokenization_spaces=False)
        self.texts: list[str] = []

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:  # noqa: ARG002
        """Keep a text that the base class would print."""
        self.texts.append(text)


def _streamed(outcomes: Outcomes, tokenizer: Any, ids: dict[str, list[list[int]]]) -> None:
    """Decode token by token, as a streamer of ``generate()`` does."""
    for name, (_, bare) in ids.items():
        outcomes.call("stream", name, lambda bare: _stream(tokenizer, bare[:_MAX_STREAMED]), bare)


def _stream(tokenizer: Any, ids: list[int]) -> str:
    streamer = _Collected(tokenizer)
    for token in ids:
        streamer.put(torch.tensor([token]))
    streamer.end()
    return "".join(streamer.texts)


def _drawn(outcomes: Outcomes, tokenizer: Any) -> None:
    """Decode ids from all over the vocabulary, which no text has to give."""
    size = len(tokenizer)
    for number in range(_N_DRAWN):
        first = number * _DRAWN_LENGTH
        ids = [(first + i) * _STRIDE % size for i in range(_DRAWN_LENGTH)] if size else []
        case = f"drawn ids {number} of {size}"
        outcomes.call("tokens of ids", case, tokenizer.convert_ids_to_tokens, ids)
        _decode_in_each_way(outcomes, tokenizer, case, ids)
    outcomes.call("tokens of ids", "size", lambda: [size])


def _pairs(outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]) -> None:
    for first, second in corpus()["pairs"]:
        case = f"{first} + {second}"
        outcomes.name_members(case, [first, second])
        pair = texts[first], texts[second]
        whole = outcomes.call("pair", case, lambda pair: ids_of(tokenizer(*pair)), pair)
        if whole is None:
            continue
        outcomes.call(
            "token types of a pair",
            case,
            lambda pair: tokenizer(*pair, return_token_type_ids=True)["token_type_ids"],
            pair,
        )
        for strategy in ("longest_first", "only_first", "only_second"):
            limit = _SHORT if strategy == "longest_first" else len(whole) - 2
            outcomes.call(
                f"pair, truncation {strategy}",
                case,
                lambda pair, strategy, limit: ids_of(
                    tokenizer(*pair, truncation=strategy, max_length=limit)
                ),
                pair,
                strategy,
                limit,
            )


def _batches(outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]) -> None:
    """Encode a batch: padded on each side and to a length, truncated on each side."""
    names = corpus()["batch"]
    batch = [texts[name] for name in names]
    ways: dict[str, tuple[str, str, dict[str, Any]]] = {
        "padded right": ("right", "right", {"padding": True}),
        "padded left": ("left", "right", {"padding": True}),
        "padded to 40": ("right", "right", {"padding": "max_length", "max_length": 40}),
        "padded to multiples of 8": ("right", "right", {"padding": True, "pad_to_multiple_of": 8}),
        "truncated to 4": ("right", "right", {"truncation": True, "max_length": 4}),
        "truncated on the left to 4": ("right", "left", {"truncation": True, "max_length": 4}),
        "padded and truncated": (
            "left",
            "right",
            {"padding": "max_length", "truncation": True, "max_length": 6},
        ),
    }
    for case, (padding, truncation, arguments) in ways.items():
        outcomes.name_members(case, names)
        with _sides(tokenizer, padding, truncation):
            encoding = outcomes.call(
                "batch", case, lambda arguments: _Rows(tokenizer(batch, **arguments)), arguments
            )
        if encoding is not None and encoding.masks is not None:
            outcomes.add("attention mask of a batch", case, encoding.masks)


class _Rows(list):  # type: ignore[type-arg]
    """The ids of a batch, and its masks beside them."""

    def __init__(self, encoding: Any) -> None:
        super().__init__(encoding["input_ids"])
        self.masks = encoding.get("attention_mask")


@contextmanager
def _sides(tokenizer: Any, padding: str, truncation: str) -> Iterator[None]:
    before = tokenizer.padding_side, tokenizer.truncation_side
    tokenizer.padding_side, tokenizer.truncation_side = padding, truncation
    try:
        yield
    finally:
        tokenizer.padding_side, tokenizer.truncation_side = before


def _windows(outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]) -> None:
    """Cut texts into windows that overlap, as question answering does."""
    if not tokenizer.is_fast:
        return
    for name in ("words", "Chinese"):
        for stride in (0, 2):
            case = f"{name}, stride {stride}"
            outcomes.name_members(case, [name])
            outcomes.call(
                "windows",
                case,
                lambda name, stride: tokenizer(texts[name], stride=stride, **_WINDOW)["input_ids"],
                name,
                stride,
            )


def _places(outcomes: Outcomes, tokenizer: Any, texts: dict[str, str]) -> None:
    """Ask in a batch, cut into windows, of which text each row is, and where tokens, words and characters stand."""
    if not tokenizer.is_fast:
        return
    names = corpus()["batch"]
    batch = [texts[name] for name in names]
    for case, window in (("the batch", {}), ("the batch, in windows", {"stride": 2, **_WINDOW})):
        outcomes.name_members(case, names)
        outcomes.call("places", case, lambda window: [*_placed(tokenizer(batch, **window))], window)


def _placed(encoding: Any) -> Iterator[list[Any]]:
    """Yield the text of each row, then what each method gives for tokens, words and characters."""
    yield ["rows", *encoding.get("overflow_to_sample_mapping", [])]
    for row, ids in enumerate(encoding["input_ids"]):
        words = {encoding.token_to_word(row, token): token for token in range(len(ids))}
        yield [*words.values()]
        yield from ([*(encoding.token_to_chars(row, token) or ())] for token in range(len(ids)))
        for word in sorted(word for word in words if word is not None):
            spans = (encoding.word_to_tokens, encoding.word_to_chars)
            yield [n for span in spans for n in span(row, word) or ()]
        methods = (encoding.char_to_token, encoding.char_to_word)
        yield [method(row, i) for method in methods for i in range(_SHORT)]


def _split(outcomes: Outcomes, tokenizer: Any) -> None:
    for number, words in enumerate(corpus()["split"]):
        case = f"list of words {number}"
        outcomes.call(
            "words", case, lambda words: ids_of(tokenizer(words, is_split_into_words=True)), words
        )
        if tokenizer.is_fast:
            outcomes.call(
                "word ids of words",
                case,
                lambda words: tokenizer(words, is_split_into_words=True).word_ids(),
                words,
            )


def _slow(outcomes: Outcomes, tokenizer: Any, source: load.Source, texts: dict[str, str]) -> None:
    """Encode with the class in Python, where the release has one beside the fast class."""
    if not tokenizer.is_fast or getattr(tokenizer, "slow_tokenizer_class", None) is None:
        outcomes.leave_out("slow class", "the release has no class in Python beside this one")
        return
    try:
        slow = load.load_tokenizer(source, use_fast=False)
    except Exception as error:  # noqa: BLE001  its files or its packages may be missing
        outcomes.leave_out("slow class", f"{type(error).__name__}: it does not load")
        return
    if slow is None or slow.is_fast:
        outcomes.leave_out("slow class", "the release gives the fast class in its place")
        return
    for name, text in texts.items():
        outcomes.call("slow class", name, lambda text: ids_of(slow(text)), text)


def _put_back(outcomes: Outcomes, backend: Any, source: load.Source, texts: dict[str, str]) -> None:
    """Encode with parts of the backend as tokenizer.json has them, which tries a cause."""
    if backend is None:
        return
    try:
        for names, changed in as_declared(backend, source):
            for name, text in texts.items():
                outcomes.call(f"put back: {names}", name, _bare, changed, text)
    except Exception as error:  # noqa: BLE001  a part in Python has no JSON, or does not fit
        outcomes.leave_out("put back", f"{type(error).__name__}: the parts do not fit")


def _bare(backend: Any, text: str) -> list[int]:
    return list(backend.encode(text, add_special_tokens=False).ids)


def _tokens(tokenizer: Any, ids: dict[str, list[list[int]]]) -> dict[str, str]:
    """Return id -> token for the ids of all texts, so that a report can name them."""
    distinct = sorted({number for whole, _ in ids.values() for number in whole})
    tokens = tokenizer.convert_ids_to_tokens(distinct)
    return {str(i): plain(str(token)) for i, token in zip(distinct, tokens, strict=True)}
