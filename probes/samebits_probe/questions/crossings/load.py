"""The other job of a crossing: a stack loads what every stack saved.

It loads the original once, then the copy of each stack, and compares inside this process: parameters
and buffers by bytes, the config, and the logits of one seeded prompt. It writes ``result``
(CrossingsFile in samebits/questions/crossings/records.py) again after each copy, so that a crash costs
one copy. What was saved beside the models comes last.

This stack loads both sides, so a different layout or spelling in another release does not count as
a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import alignment, heap, outputs
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.feed import Feed
from samebits_probe.model.load import Source, load_model, plain_config
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import hash_or_none, tensor_hash
from samebits_probe.process import files, progress
from samebits_probe.process.failure import PhaseFailed, Unknown, phase
from samebits_probe.questions.crossings import parts
from samebits_probe.questions.crossings.common import begin, head
from samebits_probe.questions.crossings.config import (
    added_fields,
    changed_fields,
    config_fields,
    ignored_fields,
    null_fields,
    written_down,
)
from samebits_wire.crossings import LoadJob


class Observed(NamedTuple):
    """One stack's results for one checkpoint."""

    hashes: dict[str, str]
    bare: set[str]
    """Tensors without plain bytes."""
    config: dict[str, Any]
    nulls: set[str]
    """Fields of the config that exist without a value."""
    keys: set[str]
    """Keys that loading reports: ``missing x``, ``unexpected x`` …"""
    logits: torch.Tensor | None
    no_logits: str
    """The reason if there are none."""
    failure: dict[str, Any] | None
    """The exception of the forward."""


def run(job: LoadJob) -> None:
    """Compare each saved model with the original, and each saved part with what it gives in its saver."""
    source = begin(job)
    result = Path(job["result"])
    result.parent.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {"crossings": []}
    if job["models"]:
        progress.begin("load the original")
        for crossings in _crossings(job, source):
            written["crossings"] = crossings
            _write_result(result, job, written)
    progress.begin("load what was saved beside the model")
    written["parts"] = list(parts.crossed(source, job["copies"]))
    _write_result(result, job, written)


def _crossings(job: LoadJob, source: Source) -> Iterator[list[dict[str, Any]]]:
    """Yield what is known so far: after the original, and after each saved model."""
    loader = job["cell"]["stack"]
    crossings: list[dict[str, Any]] = []
    try:
        original = Original(source, Feed(job["model"], getattr(torch, source.dtype), source.device))
    except (Unknown, PhaseFailed) as error:
        reason = f"this release cannot load the original either: {_first_line(error)}"
        failed: dict[str, Any] = {"loader": loader, "outcome": "absent", "reason": reason}
        if isinstance(error, PhaseFailed):
            failed["failure"] = error.failure  # the machine may be the cause, not the stack
        yield [{"saver": saver} | failed for saver in job["models"]]
        return
    yield crossings
    for saver in job["models"]:
        progress.begin(f"load what {saver} saved")
        facts = crossing(original, job["copies"][saver])
        crossings.append({"saver": saver, "loader": loader, **facts})
        yield crossings


def _write_result(path: Path, job: LoadJob, written: dict[str, Any]) -> None:
    files.write_sealed(path, head("crossings", job) | written)


class Original:
    """The original checkpoint in this environment; loaded a second time only if something differs."""

    def __init__(self, source: Source, feed: Feed) -> None:
        self.source = source
        self.feed = feed
        self.first = observe(source, feed)
        self._reloaded: Observed | None = None

    @property
    def reloaded(self) -> Observed:
        """The original with another seed and other unwritten memory: differences are random."""
        if self._reloaded is None:
            self._reloaded = observe_reseeded(self.source, self.feed)
        return self._reloaded


def observe_reseeded(source: Source, feed: Feed) -> Observed:
    """Load with another seed and other unwritten memory, so that random values differ."""
    heap.fill_unwritten("b", source.device)
    try:
        return observe(source, feed, seed=20)
    finally:
        heap.fill_unwritten("a", source.device)


def observe(source: Source, feed: Feed, seed: int = 0) -> Observed:
    """Load a checkpoint and run the prompt.

    Raises:
        Unknown: the release has no such architecture.
        PhaseFailed: config or load raised.

    """
    loaded = load_model(source, seed)
    facts = loaded.facts
    keys = {
        f"{kind.removesuffix('_keys')} {key}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in facts[kind]
    }
    hashes, bare = _hashes(loaded.model)
    values = plain_config(loaded.model.config)
    config, nulls = config_fields(values), set(null_fields(values))
    # save_pretrained writes the class of the model, whatever config.json names beside an auto_map
    config["architectures"] = [type(loaded.model).__name__]
    logits, no_logits, failure = None, "", None
    alignment.align(loaded.model)  # places in a file depend on the length of its header
    try:
        with phase("forward"), torch.no_grad():
            logits, no_logits = _logits(loaded.model, feed)
    except PhaseFailed as failed:
        failure = failed.failure
    return Observed(hashes, bare, config, nulls, keys, logits, no_logits, failure)


def _hashes(model: torch.nn.Module) -> tuple[dict[str, str], set[str]]:
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    digests = {}
    for i, (name, tensor) in enumerate(tensors, 1):
        size = tensor.numel() * tensor.element_size()
        progress.tick(name, i, len(tensors), allowance=progress.moving(size))
        digests[name] = hash_or_none(tensor)
    hashes = {name: digest for name, digest in digests.items() if digest is not None}
    return hashes, digests.keys() - hashes.keys()


def _logits(model: Any, feed: Feed) -> tuple[torch.Tensor | None, str]:
    try:
        inputs = feed.single(model)
        with (
            refusals(model.forward, inputs.kwargs),
            progress.forward(inputs.kwargs, "forward", plain=True),
        ):
            result = model(**inputs.kwargs)
    except DoesNotApply as reason:
        return None, str(reason)
    if (logits := outputs.logits_of(result)) is None:
        return None, "the model returns no tensor"
    return logits.detach().to("cpu").clone(), ""


def crossing(original: Original, folder: str) -> dict[str, Any]:
    """Return the fields of a Crossing for the model saved in ``folder``."""
    try:
        saved = observe_reseeded(original.source.at(folder), original.feed)
    except Unknown as reason:
        return {"outcome": "load failed", "reason": str(reason)}
    except PhaseFailed as failed:
        return {"outcome": "load failed", "failure": failed.failure}
    reference = original.first
    before = written_down(reference.config, saved.config, original.source.dtype)
    facts: dict[str, Any] = {
        **_compared_tensors(original, saved),
        "bare": sorted(reference.bare & saved.bare),
        "config": [
            *changed_fields(before, saved),
            *added_fields(reference, saved.config),
        ],
        "ignored": sorted(ignored_fields(saved.config, reference)),
        "keys": sorted(saved.keys - reference.keys),
        **_compared_logits(original, saved),
    }
    if saved.failure is not None and reference.failure is None:
        return facts | {"outcome": "forward failed", "failure": saved.failure}
    differs = facts["tensors"] or facts["config"] or facts["logits"] == "differs"
    return facts | {"outcome": "differs" if differs else "same bits"}


def _compared_tensors(original: Original, saved: Observed) -> dict[str, Any]:
    """Return the names of tensors that changed; those with random values separately."""
    if not (differing := _differing(original.first.hashes, saved.hashes)):
        return {"tensors": []}
    by_chance = set(_differing(original.first.hashes, original.reloaded.hashes))
    return {
        "tensors": [name for name in differing if name not in by_chance],
        "unsteady": [name for name in differing if name in by_chance],
    }


def _differing(reference: Mapping[str, str], candidate: Mapping[str, str]) -> list[str]:
    return [
        name for name in {**reference, **candidate} if reference.get(name) != candidate.get(name)
    ]


def _compared_logits(original: Original, saved: Observed) -> dict[str, Any]:
    reference = original.first
    if reference.failure is not None:
        reason = f"the forward of the original raises {reference.failure['type']} here"
        if saved.logits is not None:
            return {"logits": "differs", "reason": f"{reason}, and that of the copy answers"}
        return {"logits": "not compared", "reason": reason}
    if reference.logits is None:
        return {"logits": "not compared", "reason": reference.no_logits}
    if saved.logits is None:
        return {"logits": "differs", "reason": f"the original has logits: {saved.no_logits}"}
    if _same_bits(reference.logits, saved.logits):
        return {"logits": "same bits", "logits_max_abs": 0.0}
    reloaded = original.reloaded.logits
    if reloaded is not None and not _same_bits(reference.logits, reloaded):
        reason = "two loads of the original by this release give different logits"
        return {"logits": "not compared", "reason": reason}
    if reference.logits.shape != saved.logits.shape:
        shapes = [list(logits.shape) for logits in (reference.logits, saved.logits)]
        return {"logits": "differs", "reason": f"logits of shape {shapes[0]} became {shapes[1]}"}
    return {"logits": "differs", "logits_max_abs": _max_abs(reference.logits, saved.logits)}


def _same_bits(reference: torch.Tensor, candidate: torch.Tensor) -> bool:
    return tensor_hash(reference) == tensor_hash(candidate)


def _max_abs(reference: torch.Tensor, candidate: torch.Tensor) -> float | str:
    """Return the largest absolute difference as a JSON value; NaN against a number is inf."""
    differences = (reference.double() - candidate.double()).abs()
    both_nan = reference.isnan() & candidate.isnan()
    differences = differences.masked_fill(both_nan | (reference == candidate), 0.0).nan_to_num(
        float("inf"), float("inf")
    )
    largest = float(differences.max()) if differences.numel() else 0.0
    return "Infinity" if largest == float("inf") else largest


def _first_line(error: Exception) -> str:
    if isinstance(error, PhaseFailed):
        kind, message = error.failure["type"], error.failure["message"]
        return f"{kind}: {message.partition(chr(10))[0]}"
    return str(error)
