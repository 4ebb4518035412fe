"""The jobs of a crossing: one stack saves a model, and another stack loads it.

Expects one of two jobs, each with a model (source, revision, trust_remote_code), a variant, and
the ids of the crossing (model, variant, and stack for the saver or loader):

``save`` with ``out`` and ``limit``: loads the checkpoint and leaves the folder ``out``, completely
or not at all, with the files of ``save_pretrained`` and ``saved.json`` (SavedModel in
samebits/records/crossing.py). If nothing was saved the folder holds only ``saved.json``, with the
reason. With ``makes`` the files are those of a small made model of the same kind, which the stacks
then save and load in place of one that is too large.

``load`` with ``savers`` (stack id -> folder) and ``result``: loads the original once, then each
folder, and compares inside this process: parameters and buffers by bytes, the config, and the
logits of one seeded prompt. Writes ``result`` (CrossingsFile) again after each folder, so that a
crash costs one folder.

This stack loads both sides, so a different layout or spelling in another release does not count as
a difference.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import alignment, heap, layers, small
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.feed import Feed
from samebits_probe.model.load import Source, load_model, plain_config
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import NotHashable, tensor_hash
from samebits_probe.process import files, progress, threads
from samebits_probe.process.failure import PhaseFailed, Unknown, phase, without_folders
from samebits_probe.process.hashing import ALGORITHM, file_hash
from samebits_wire import formats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samebits_probe.model.load import Loaded
    from samebits_wire.jobs import LoadJob, SaveJob


_MAX_VALUE_LENGTH = 160
"""Characters of a config value that a crossing shows."""
_RELEASE_FIELDS = {
    "transformers_version",
    "_name_or_path",
    "_attn_implementation_autoset",
    "auto_map",
}
"""Config fields that name the release, folder or code, at any depth."""
_WRITTEN_DOWN = {"architectures", "dtype"}
"""Config fields that save_pretrained fills in from the model that it saves."""
_ABSENT = object()


def run(job: SaveJob | LoadJob) -> None:
    """Do one job of either kind."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten("a", job["variant"]["device"])
    if job["kind"] == "save":
        save(job)
    else:
        load(job)


def save(job: SaveJob) -> None:
    """Save the model as this stack does, and write the outcome."""
    progress.begin("save")
    out = Path(job["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        outcome = _save_into(job, folder)
        if outcome["outcome"] != "saved":
            _empty(folder)
        files.write_sealed(folder / "saved.json", _head("samebits-saved", job) | outcome)
        folder.chmod(0o755)  # mkdtemp's 0700 would hide it from the loaders of another user
        _move_into_place(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _save_into(job: SaveJob, folder: Path) -> dict[str, Any]:
    """Fill ``folder`` with the model, or with a made one, and return the outcome."""
    source, limit = _source(job), job["limit"]
    if not job["makes"] and (size := progress.size_of_files(source.where)) > limit:
        return _skipped_as_too_large(size, limit)
    try:
        loaded = load_model(source)
    except Unknown as reason:
        return {"outcome": "absent", "reason": str(reason)}
    except PhaseFailed as failed:
        return {"outcome": "not loaded", "failure": failed.failure}
    if job["makes"]:
        outcome = _fill_with_made(loaded, source, folder)
    else:
        outcome = _fill_with_saved(loaded, limit, folder)
    if outcome["outcome"] != "saved":
        return outcome
    restored = _restore_code(source.where, folder) if source.trust_remote_code else []
    return outcome | {"restored": restored, "files": _file_hashes(folder)}


def _fill_with_saved(loaded: Loaded, limit: int, folder: Path) -> dict[str, Any]:
    parameters = loaded.model.parameters()
    if (size := sum(p.numel() * p.element_size() for p in parameters)) > limit:
        return _skipped_as_too_large(size, limit)
    progress.tick("save", allowance=progress.moving(size), moves=True)
    try:
        with phase("save"):
            loaded.model.save_pretrained(folder)
    except PhaseFailed as failed:
        return {"outcome": "failed", "failure": failed.failure}
    return {"outcome": "saved"}


def _fill_with_made(loaded: Loaded, source: Source, folder: Path) -> dict[str, Any]:
    try:
        with small.made(loaded, source) as made:
            shutil.copytree(made.folder, folder, dirs_exist_ok=True)
            return {"outcome": "saved", "made": made.facts}
    except small.NoneMade as reason:
        return {"outcome": "skipped", "reason": str(reason)}


def _skipped_as_too_large(size: int, limit: int) -> dict[str, Any]:
    msg = f"the model has {size / 2**30:.1f} GiB, and up to {limit / 2**30:g} GiB are saved"
    return {"outcome": "skipped", "reason": msg}


def _restore_code(where: str, folder: Path) -> list[str]:
    """Copy the model's own code that ``save_pretrained`` left out; return the names.

    Whether it copies code depends on how the class was registered (custom_object_save in
    dynamic_module_utils.py); the crossing is about weights and config.
    """
    original = Path(where)
    if not original.is_dir():
        return []  # the saved auto_map names the hub's repository
    restored = []
    for file in sorted(original.rglob("*.py")):
        name = file.relative_to(original)
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
            restored.append(name.as_posix())
    path = folder / "config.json"
    if not path.is_file():
        return restored  # the loaders report a missing config
    config = json.loads(path.read_text("utf-8"))
    auto_map = json.loads((original / "config.json").read_text("utf-8")).get("auto_map")
    if auto_map and config.get("auto_map") != auto_map:
        files.write_json(path, config | {"auto_map": auto_map})
        restored.append("auto_map")
    return restored


def _file_hashes(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in paths}


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _move_into_place(folder: Path, out: Path) -> None:
    try:
        folder.rename(out)
    except OSError:
        # another run was faster; it saved the same
        if not (out / "saved.json").exists():
            raise


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


def load(job: LoadJob) -> None:
    """Compare each saved model with the original."""
    result = Path(job["result"])
    result.parent.mkdir(parents=True, exist_ok=True)
    crossings: list[dict[str, Any]] = []
    progress.begin("load the original")
    try:
        source = _source(job)
        feed = Feed(job["model"], getattr(torch, source.dtype), source.device)
        original = Original(source, feed)
    except (Unknown, PhaseFailed) as error:
        reason = f"this stack cannot load the original either: {_first_line(error)}"
        failed: dict[str, Any] = {"loader": job["stack"], "outcome": "absent", "reason": reason}
        if isinstance(error, PhaseFailed):
            failed["failure"] = error.failure  # the machine may be the cause, not the stack
        crossings = [{"saver": saver} | failed for saver in job["savers"]]
        _write_result(result, job, crossings)
        return
    _write_result(result, job, crossings)
    for saver, folder in job["savers"].items():
        progress.begin(f"load what {saver} saved")
        facts = crossing(original, folder)
        crossings.append({"saver": saver, "loader": job["stack"], **facts})
        _write_result(result, job, crossings)


def _write_result(path: Path, job: LoadJob, crossings: list[dict[str, Any]]) -> None:
    files.write_sealed(path, _head("samebits-crossings", job) | {"crossings": crossings})


class Original:
    """The original checkpoint in this stack; loaded a second time only if something differs."""

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
    """Load with another seed and other unwritten memory, so that random values differ.

    Raises:
        Unknown, PhaseFailed: as :func:`observe`.

    """
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
    config_values = plain_config(loaded.model.config)
    config, nulls = _config_fields(config_values), set(_null_fields(config_values))
    logits, no_logits, failure = None, "", None
    alignment.align(loaded.model)  # places in a file depend on the length of its header
    try:
        with phase("forward"), torch.no_grad():
            logits, no_logits = _logits(loaded.model, feed)
    except PhaseFailed as failed:
        failure = failed.failure
    return Observed(hashes, bare, config, nulls, keys, logits, no_logits, failure)


def _hashes(model: torch.nn.Module) -> tuple[dict[str, str], set[str]]:
    """Return the hash of every parameter and buffer, and the names of those without bytes."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    digests = {}
    for i, (name, tensor) in enumerate(tensors, 1):
        size = tensor.numel() * tensor.element_size()
        progress.tick(name, i, len(tensors), allowance=progress.moving(size))
        digests[name] = _tensor_hash_or_none(tensor)
    hashes = {name: digest for name, digest in digests.items() if digest is not None}
    return hashes, digests.keys() - hashes.keys()


def _tensor_hash_or_none(tensor: torch.Tensor) -> str | None:
    try:
        return tensor_hash(tensor)
    except NotHashable:
        return None


def _logits(model: Any, feed: Feed) -> tuple[torch.Tensor | None, str]:
    """Return the logits of the prompt, or the reason why there are none."""
    try:
        inputs = feed.crossing(model)
        with (
            refusals(model.forward, inputs.kwargs),
            progress.forward(inputs.kwargs, "forward", plain=True),
        ):
            result = model(**inputs.kwargs)
    except DoesNotApply as reason:
        return None, str(reason)
    logits = layers.logits_of(result)
    if logits is None:
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
    facts: dict[str, Any] = {
        **_compared_tensors(original, saved),
        "bare": sorted(reference.bare & saved.bare),
        "config": [
            *_changed_fields(reference.config, saved),
            *_added_fields(reference, saved.config),
        ],
        "ignored": sorted(_ignored_fields(saved.config, reference)),
        "keys": sorted(saved.keys - reference.keys),
        **_compared_logits(original, saved),
    }
    if saved.failure is not None and reference.failure is None:
        return facts | {"outcome": "forward failed", "failure": saved.failure}
    differs = facts["tensors"] or facts["config"] or facts["logits"] == "differs"
    return facts | {"outcome": "differs" if differs else "same bits"}


def _compared_tensors(original: Original, saved: Observed) -> dict[str, Any]:
    """Return the names of tensors that changed; those with random values separately."""
    differing = _differing(original.first.hashes, saved.hashes)
    if not differing:
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
        reason = "two loads of the original by this stack give different logits"
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


def _config_fields(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a config's values by dotted names, without those that name the release.

    A field that is None counts as missing; 4.x calls the dtype torch_dtype.
    """
    fields: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if key in _RELEASE_FIELDS or value is None:
            continue
        if isinstance(value, dict):
            fields.update(_config_fields(value, f"{name}."))
        else:
            fields[name] = value
    return fields


def _null_fields(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of fields without a value."""
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if value is None or value == {}:
            yield name
        elif isinstance(value, dict):
            yield from _null_fields(value, f"{name}.")


def _changed_fields(original: Mapping[str, Any], saved: Observed) -> list[str]:
    """Return ``field: value from the original \u2192 value from the saved``."""
    return [
        change
        for name, value in original.items()
        for change in _field_changes(
            name, value, saved.config.get(name, None if name in saved.nulls else _ABSENT)
        )
    ]


def _added_fields(original: Observed, saved: Mapping[str, Any]) -> list[str]:
    """Return the changes of fields that have a value only in the saved config."""
    ignored = _ignored_fields(saved, original)
    added = (name for name in saved if name not in original.config and name not in ignored)
    return [
        f"{name}: null \u2192 {_value_text(saved[name])}"
        for name in added
        if name.rpartition(".")[2] not in _WRITTEN_DOWN
    ]


def _ignored_fields(saved: Mapping[str, Any], original: Observed) -> set[str]:
    """Return the fields that only the saved config has, and that this release does not read.

    The config's class does not know them: a field that it knows is also in the original's config,
    at least without a value.
    """
    return {
        name
        for name in saved.keys() - original.config.keys()
        if not any(name == null or name.startswith(f"{null}.") for null in original.nulls)
    }


def _field_changes(name: str, original: Any, saved: Any) -> list[str]:
    """Return the change of one field, if any; of a list of the same length, of each item."""
    if saved is _ABSENT:
        return [f"{name}: {_value_text(original)} \u2192 not there"]
    if isinstance(original, list) and isinstance(saved, list) and len(original) == len(saved):
        pairs = enumerate(zip(original, saved, strict=True))
        return [c for i, (old, new) in pairs for c in _field_changes(f"{name}[{i}]", old, new)]
    # save_pretrained sorts by key, at any depth
    if json.dumps(original, sort_keys=True) == json.dumps(saved, sort_keys=True):
        return []
    return [f"{name}: {_value_text(original)} \u2192 {_value_text(saved)}"]


def _value_text(value: Any) -> str:
    text = without_folders(json.dumps(value, sort_keys=True))
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 1]}\u2026"


def _source(job: SaveJob | LoadJob) -> Source:
    return Source.of(job["model"], job["variant"])


def _first_line(error: Exception) -> str:
    if isinstance(error, PhaseFailed):
        kind, message = error.failure["type"], error.failure["message"]
        return f"{kind}: {message.partition(chr(10))[0]}"
    return str(error)


def _head(form: str, job: SaveJob | LoadJob) -> dict[str, Any]:
    return {
        "format": form,
        "format_version": formats.CROSSING,
        "hash_algorithm": ALGORITHM,
        "model": job["name"],
        "variant": job["variant_name"],
        "stack": job["stack"],
    }
