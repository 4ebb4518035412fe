"""A vocabulary of more tokens, or of fewer: ``resize_token_embeddings``, as after ``add_tokens`` of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model import forks
from samebits_probe.model.inputs import has_media
from samebits_probe.model.tensor import hash_or_none
from samebits_probe.questions.edits.subject import (
    EDIT,
    Done,
    Facts,
    LeftOut,
    Subject,
    parameters,
    save_and_load,
)

MORE = 8
"""Tokens that are added."""
_MULTIPLE, _SOME_MORE = 16, 3
USED = ("more tokens",)
"""The ways after which the model is used and saved as well."""
IDS = ("input_ids", "decoder_input_ids")
_OF_IDS = ("_id", "_ids", "_index", "_idx")
"""How fields of a config end that hold token ids."""


class Embeddings(NamedTuple):
    """The embeddings of a model as they are."""

    table: Any
    head: Any
    """None where the model has none, or one without a matrix."""

    @property
    def rows(self) -> int:
        """Tokens of the input embeddings."""
        return int(self.table.weight.shape[0])

    @property
    def lengths(self) -> set[int]:
        """Tokens of the input and of the output embeddings, of which the latter may have fewer."""
        return {len(tensor) for tensor in self.kept().values()}

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of the head."""
        bias = getattr(self.head, "bias", None)
        return bias if isinstance(bias, torch.Tensor) else None

    @property
    def is_tied(self) -> bool:
        """True if both are one tensor."""
        return self.head is not None and _place(self.table.weight) == _place(self.head.weight)

    def kept(self) -> dict[str, torch.Tensor]:
        """Return copies of the tensors by what they are."""
        tensors = {"input embeddings": self.table.weight}
        if self.head is not None:
            tensors["output embeddings"] = self.head.weight
        if self.bias is not None:
            tensors["bias of the head"] = self.bias
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def embeddings(model: Any) -> Embeddings:
    """Return the embeddings of a model.

    Raises:
        LeftOut: it has none of tokens.

    """
    try:
        table = model.get_input_embeddings()
    except Exception as error:  # another question asks the accessor
        raise LeftOut("get_input_embeddings() raises") from error
    if not isinstance(table, torch.nn.Embedding):
        raise LeftOut("it has no table of token embeddings")
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    is_matrix = isinstance(weight, torch.Tensor) and weight.ndim == 2
    return Embeddings(table, head if is_matrix else None)


def _place(tensor: torch.Tensor) -> int:
    return int(tensor.data_ptr())


def sizes(subject: Subject) -> Iterator[tuple[str, Facts]]:
    """Yield the calls and their arguments."""
    rows = embeddings(subject.model).rows
    yield "more tokens", {"new_num_tokens": rows + MORE}
    yield (
        "more tokens, mean_resizing=False",
        {"new_num_tokens": rows + MORE, "mean_resizing": False},
    )
    padded = {"new_num_tokens": rows + _SOME_MORE, "pad_to_multiple_of": _MULTIPLE}
    yield f"more tokens, pad_to_multiple_of={_MULTIPLE}", padded
    used = _used(subject)
    if used < rows:
        yield "fewer tokens", {"new_num_tokens": used}


def _used(subject: Subject) -> int:
    """Return how many tokens a model needs: for its prompt and for the ids that its config names."""
    tensors = [t for t in subject.kwargs.values() if torch.is_tensor(t) and t.numel()]
    ids = [int(t.max()) for t in tensors if not t.is_floating_point()]
    ids += _ids_of(subject.model.config.to_dict())
    padding = embeddings(subject.model).table.padding_idx
    return max([*ids, padding if padding is not None else 0, 0]) + 1


def _ids_of(fields: Facts) -> Iterator[int]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _ids_of(value)
        elif str(name).endswith(_OF_IDS):
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int):
                    yield number


def resized(subject: Subject, done: Done, arguments: Facts, *, is_used: bool) -> None:
    """Resize the vocabulary, and note what is new and what should not be; use and save the model then."""
    model = subject.model
    plain = subject.forward()  # first, as that of RWKV changes weights
    before = embeddings(model)
    rows, kept, tied = before.rows, before.kept(), before.is_tied
    lengths = before.lengths
    facts, others = _facts(model), _others(model, before)
    torch.default_generator.manual_seed(0)
    returned = done.step(EDIT, lambda: model.resize_token_embeddings(**arguments) or True)
    if returned is None:
        return
    after = embeddings(model)
    wanted = _wanted(**arguments)
    now = _facts(model)
    done.facts = {name: (facts[name], now[name]) for name in facts if name in now}
    done.facts["asked"] = ("", str(wanted))
    done.facts["returned"] = (
        "",
        "the input embeddings" if returned is after.table else "another module",
    )
    _note_rows(done, kept, after.kept())
    _note_sizes(done, rows, wanted, kept, after)
    if tied != after.is_tied and after.head is not None:
        done.broken["tie"] = " → ".join(
            "tied" if is_one else "apart" for is_one in (tied, after.is_tied)
        )
    done.keeps("other parameters", others, parameters(model))
    answer = done.step("forward", subject.forward)
    if answer is not None:
        # a number for a whole row may be a sum over all tokens
        each = {name: tensor for name, tensor in plain.items() if tensor.ndim > 1}
        done.computes("outputs", each, answer, lengths)
    if is_used:
        _use(subject, done, after.rows)
        save_and_load(subject, model, done, "resized")


def _wanted(new_num_tokens: int, pad_to_multiple_of: int = 1, **_others: Any) -> int:
    return -(-new_num_tokens // pad_to_multiple_of) * pad_to_multiple_of


def _others(model: Any, own: Embeddings) -> dict[str, torch.Tensor]:
    """Return the parameters that no vocabulary is an axis of."""
    return {n: t for n, t in parameters(model).items() if own.lengths.isdisjoint(t.shape)}


def _facts(model: Any) -> dict[str, str]:
    """Return what of a model depends on its vocabulary, in words."""
    tables = embeddings(model)
    shapes = {
        name: f"{' x '.join(map(str, tensor.shape))} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in tables.kept().items()
    }
    config = model.config
    return {
        **shapes,
        "padding_idx": str(tables.table.padding_idx),
        "num_embeddings": str(tables.table.num_embeddings),
        "config.vocab_size": str(getattr(config, "vocab_size", None)),
        "get_text_config().vocab_size": _of_text(config),
    }


def _of_text(config: Any) -> str:
    try:
        return str(getattr(config.get_text_config(), "vocab_size", None))
    except Exception:  # noqa: BLE001  a config of several texts
        return "None"


def _note_rows(done: Done, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    """Note old rows with other bytes, and what the new ones hold."""
    for name, old in before.items():
        if name not in after or after[name].shape[1:] != old.shape[1:]:
            continue
        n = min(len(old), len(after[name]))
        done.keeps(f"old rows of {name}", {name: old[:n]}, {name: after[name][:n]})
        new = after[name][len(old) :]
        if not bool(new.isfinite().all()):
            done.broken["finite"] = name
        elif len(new):
            done.new[name] = _distribution(old, new)


def _distribution(old: torch.Tensor, new: torch.Tensor) -> Facts:
    """Return how far the mean of new rows is from that of the old ones, and their spread, in units of the old spread."""
    first, second = old.double(), new.double()
    unit = float((first - first.mean(0)).square().mean().sqrt()) or 1.0
    offset = float((second.mean(0) - first.mean(0)).square().mean().sqrt())
    spread = float((second - second.mean(0)).square().mean().sqrt())
    return {"old": hash_or_none(old) or "", "mean": offset / unit, "spread": spread / unit}


def _note_sizes(
    done: Done, rows: int, wanted: int, before: dict[str, torch.Tensor], after: Embeddings
) -> None:
    """Note tensors that had one entry for each token and have not so now."""
    sizes_now = {name: len(tensor) for name, tensor in after.kept().items()}
    wrong = {
        name: f"{name} of {n} for {wanted} tokens"
        for name, n in sizes_now.items()
        if n != wanted and name in before and len(before[name]) == rows
    }
    if wrong:
        done.broken["sizes"] = ", ".join(wrong.values())
    config = done.facts["get_text_config().vocab_size"]
    if config[0] == str(rows) and config[1] != str(wanted):
        done.broken["config"] = f"vocab_size {config[1]} for {wanted} tokens"


def _use(subject: Subject, done: Done, rows: int) -> None:
    """Feed the last token, and ask for a loss."""
    if has_media(subject.kwargs):
        return
    ids = {name: subject.kwargs[name].clone() for name in IDS if name in subject.kwargs}
    for tensor in ids.values():
        tensor[..., -1] = rows - 1
    if ids:
        done.step("forward with the last token", lambda: subject.forward(**ids))
    if (labels := with_labels(subject, ids)) is not None:
        done.step("forward with labels", lambda: subject.forward(**labels))


def with_labels(subject: Subject, ids: Facts) -> Facts | None:
    """Return ids with labels of the same tokens; None if forward takes none for each token."""
    if not ids or not forks.accepts(subject.model, "labels"):
        return None
    return {**ids, "labels": list(ids.values())[-1]}
