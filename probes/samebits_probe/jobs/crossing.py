"""What becomes of a model that one stack saves and another one loads.

Expects one of two jobs, each with a model (source, revision, trust_remote_code), a variant, and
the ids of the crossing (model, variant, and stack for the saver or loader):

``save`` with ``out`` and ``limit``: loads the checkpoint and leaves the folder ``out``, whole or
not at all, with what ``save_pretrained`` writes and ``saved.json`` (SavedModel in
samebits/records/crossing.py). Where nothing was saved the folder holds ``saved.json`` alone, and why.

``load`` with ``savers`` (stack id -> folder) and ``result``: loads the original once, then each
folder, and compares inside this process: parameters and buffers by bytes, the config, and the
logits of one seeded prompt. Writes ``result`` (CrossingsFile) anew after each folder, so that a
crash costs one.

What is compared is what this one stack makes of both, so another layout or another spelling in
another release is no difference.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import feed as model_feed
from samebits_probe.model import heap, layers, places
from samebits_probe.model import load as model_load
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import NotHashable, tensor_hash
from samebits_probe.process import files as process_files
from samebits_probe.process import progress
from samebits_probe.process.failure import PhaseFailed, Unknown, phase, without_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samebits_probe.model.feed import Feed
    from samebits_probe.model.load import Source

FORMAT_VERSION = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: tensors without plain bytes are named.

_WIDEST = 160
"""Characters of a config value that a crossing spells out."""
_RELEASE_FIELDS = {
    "transformers_version",
    "_name_or_path",
    "_attn_implementation_autoset",
    "auto_map",
}
"""Config fields that say which release, folder or code it was, at any depth."""
_WRITTEN_DOWN = {"architectures", "dtype"}
"""Config fields that save_pretrained fills in from the model that it saves."""
_NOT_THERE = object()


def run(job: dict[str, Any]) -> None:
    """Do one job of either kind."""
    torch.set_num_threads(int(job["threads"]))
    heap.fill_unwritten("a", job["variant"]["device"])
    if job["kind"] == "save":
        save(job)
    else:
        load(job)


def save(job: dict[str, Any]) -> None:
    """Save the model as this stack does, and say what came of it."""
    progress.begin("save")
    out = Path(job["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        said = _saved(job, folder)
        if said["outcome"] != "saved":
            _empty(folder)
        process_files.write_sealed(folder / "saved.json", _head("samebits-saved", job) | said)
        folder.chmod(0o755)  # mkdtemp's 0700 would hide it from the loaders of another user
        _move_into_place(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _saved(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Fill ``folder`` and return the outcome."""
    source = _source(job)
    if (size := progress.size_of_files(source.where)) > job["limit"]:
        return _too_large(size, job["limit"])
    try:
        loaded = model_load.load_model(source)
    except Unknown as reason:
        return {"outcome": "absent", "reason": str(reason)}
    except PhaseFailed as failed:
        return {"outcome": "not loaded", "failure": failed.failure}
    parameters = loaded.model.parameters()
    if (size := sum(p.numel() * p.element_size() for p in parameters)) > job["limit"]:
        return _too_large(size, job["limit"])
    progress.tick("save", allowance=progress.moving(size), moves=True)
    try:
        with phase("save"):
            loaded.model.save_pretrained(folder)
    except PhaseFailed as failed:
        return {"outcome": "failed", "failure": failed.failure}
    restored = _restore_code(source.where, folder) if source.trust_remote_code else []
    return {"outcome": "saved", "restored": restored, "files": _digests(folder)}


def _too_large(size: int, limit: int) -> dict[str, Any]:
    msg = f"the model has {size / 2**30:.1f} GiB, and up to {limit / 2**30:g} GiB are saved"
    return {"outcome": "skipped", "reason": msg}


def _restore_code(where: str, folder: Path) -> list[str]:
    """Bring along what ``save_pretrained`` left out of the model's own code; name it.

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
        return restored  # the loaders say what becomes of that
    config = json.loads(path.read_text("utf-8"))
    auto_map = json.loads((original / "config.json").read_text("utf-8")).get("auto_map")
    if auto_map and config.get("auto_map") != auto_map:
        process_files.write_json(path, config | {"auto_map": auto_map})
        restored.append("auto_map")
    return restored


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def _digest(path: Path) -> str:
    progress.tick(path.name, allowance=progress.moving(path.stat().st_size), moves=True)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


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
    """What a stack makes of one checkpoint."""

    hashes: dict[str, str]
    bare: set[str]
    """Tensors without plain bytes."""
    config: dict[str, Any]
    nulls: set[str]
    """Fields of the config that are there and have no value."""
    keys: set[str]
    """What loading said of keys: ``missing x``, ``unexpected x`` …"""
    logits: torch.Tensor | None
    no_logits: str
    """Why there are none."""
    failure: dict[str, Any] | None
    """What the forward raised."""


def load(job: dict[str, Any]) -> None:
    """Compare what each saver left with the original."""
    result = Path(job["result"])
    result.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    progress.begin("load the original")
    try:
        source = _source(job)
        feed = model_feed.Feed(job["model"], getattr(torch, source.dtype), source.device)
        original = Original(source, feed)
    except (Unknown, PhaseFailed) as error:
        reason = f"this stack cannot load the original either: {_first_line(error)}"
        absent = {"loader": job["stack"], "outcome": "absent", "reason": reason}
        if isinstance(error, PhaseFailed):
            absent["failure"] = error.failure  # may be the machine's, and then is none of the stack
        found = [{"saver": saver} | absent for saver in job["savers"]]
        _write_result(result, job, found)
        return
    _write_result(result, job, found)
    for saver, folder in job["savers"].items():
        progress.begin(f"load what {saver} saved")
        said = crossing(original, folder)
        found.append({"saver": saver, "loader": job["stack"], **said})
        _write_result(result, job, found)


def _write_result(path: Path, job: dict[str, Any], found: list[dict[str, Any]]) -> None:
    process_files.write_sealed(path, _head("samebits-crossings", job) | {"crossings": found})


class Original:
    """The original checkpoint in this stack, loaded a second time only if something differs."""

    def __init__(self, source: Source, feed: Feed) -> None:
        self.source = source
        self.feed = feed
        self.first = observe(source, feed)
        self._again: Observed | None = None

    @property
    def again(self) -> Observed:
        """The same under another seed and over other memory: what differs here is chance."""
        if self._again is None:
            self._again = otherwise(self.source, self.feed)
        return self._again


def otherwise(source: Source, feed: Feed) -> Observed:
    """Load under another seed and over other memory: chance that two loads share is no sameness.

    Raises:
        Unknown, PhaseFailed: as :func:`observe`.

    """
    heap.fill_unwritten("b", source.device)
    try:
        return observe(source, feed, seed=20)
    finally:
        heap.fill_unwritten("a", source.device)


def observe(source: Source, feed: Feed, seed: int = 0) -> Observed:
    """Load a checkpoint and run the one prompt.

    Raises:
        Unknown: the release has no such architecture.
        PhaseFailed: config or load raised.

    """
    loaded = model_load.load_model(source, seed)
    facts = loaded.facts
    keys = {
        f"{kind.removesuffix('_keys')} {key}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in facts[kind]
    }
    hashes, bare = _hashes(loaded.model)
    plain = model_load.plain_config(loaded.model.config)
    config, nulls = _fields(plain), set(_nulls(plain))
    logits, why, failure = None, "", None
    places.align(loaded.model)  # a file places its tensors as its header is long
    try:
        with phase("forward"), torch.no_grad():
            logits, why = _logits(loaded.model, feed)
    except PhaseFailed as failed:
        failure = failed.failure
    return Observed(hashes, bare, config, nulls, keys, logits, why, failure)


def _hashes(model: torch.nn.Module) -> tuple[dict[str, str], set[str]]:
    """Return the hash of every parameter and buffer, and the names of those without bytes."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    told = {}
    for i, (name, tensor) in enumerate(tensors, 1):
        size = tensor.numel() * tensor.element_size()
        progress.tick(name, i, len(tensors), allowance=progress.moving(size))
        told[name] = _hash(tensor)
    hashes = {name: digest for name, digest in told.items() if digest is not None}
    return hashes, told.keys() - hashes.keys()


def _hash(tensor: torch.Tensor) -> str | None:
    try:
        return tensor_hash(tensor)
    except NotHashable:
        return None


def _logits(model: Any, feed: Feed) -> tuple[torch.Tensor | None, str]:
    """Return the logits of the one prompt, or why there are none."""
    try:
        inputs = feed.crossing()
        with (
            refusals(model.forward, inputs.kwargs),
            progress.forward(inputs.kwargs, "forward", plain=True),
        ):
            result = model(**inputs.kwargs)
    except DoesNotApply as reason:
        return None, str(reason)
    found = layers.logits_of(result)
    if found is None:
        return None, "the model returns no tensor"
    return found.detach().to("cpu").clone(), ""


def crossing(original: Original, folder: str) -> dict[str, Any]:
    """Return what becomes of the model that lies in ``folder``, as a Crossing spells it."""
    try:
        saved = otherwise(original.source._replace(where=folder, revision=None), original.feed)
    except Unknown as reason:
        return {"outcome": "load failed", "reason": str(reason)}
    except PhaseFailed as failed:
        return {"outcome": "load failed", "failure": failed.failure}
    first = original.first
    said: dict[str, Any] = {
        **_tensors(original, saved),
        "bare": sorted(first.bare & saved.bare),
        "config": [*_changes(first.config, saved), *_given(first, saved.config)],
        "ignored": sorted(_unknown(saved.config, first)),
        "keys": sorted(saved.keys - first.keys),
        **_logits_said(original, saved),
    }
    if saved.failure is not None and first.failure is None:
        return said | {"outcome": "forward failed", "failure": saved.failure}
    differs = said["tensors"] or said["config"] or said["logits"] == "differs"
    return said | {"outcome": "differs" if differs else "same bits"}


def _tensors(original: Original, saved: Observed) -> dict[str, Any]:
    """Return the names of tensors that came back otherwise, those apart that chance decides."""
    names = _other(original.first.hashes, saved.hashes)
    if not names:
        return {"tensors": []}
    chance = set(_other(original.first.hashes, original.again.hashes))
    return {
        "tensors": [name for name in names if name not in chance],
        "unsteady": [name for name in names if name in chance],
    }


def _other(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    return [name for name in {**left, **right} if left.get(name) != right.get(name)]


def _logits_said(original: Original, saved: Observed) -> dict[str, Any]:
    first = original.first
    if first.failure is not None:
        reason = f"the forward of the original raises {first.failure['type']} here"
        return {"logits": "not compared", "reason": reason}
    if first.logits is None:
        return {"logits": "not compared", "reason": first.no_logits}
    if saved.logits is None:
        return {"logits": "differs", "reason": f"the original has logits: {saved.no_logits}"}
    if _same_bits(first.logits, saved.logits):
        return {"logits": "same bits", "logits_max_abs": 0.0}
    again = original.again.logits
    if again is not None and not _same_bits(first.logits, again):
        reason = "two loads of the original by this stack give other logits"
        return {"logits": "not compared", "reason": reason}
    if first.logits.shape != saved.logits.shape:
        shapes = [list(logits.shape) for logits in (first.logits, saved.logits)]
        return {"logits": "differs", "reason": f"logits of shape {shapes[0]} became {shapes[1]}"}
    return {"logits": "differs", "logits_max_abs": _max_abs(first.logits, saved.logits)}


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return tensor_hash(left) == tensor_hash(right)


def _max_abs(left: torch.Tensor, right: torch.Tensor) -> float | str:
    """Return the largest absolute difference, as JSON can spell it; NaN against a number is inf."""
    apart = (left.double() - right.double()).abs()
    both = left.isnan() & right.isnan()
    apart = apart.masked_fill(both | (left == right), 0.0).nan_to_num(float("inf"), float("inf"))
    largest = float(apart.max()) if apart.numel() else 0.0
    return "Infinity" if largest == float("inf") else largest


def _fields(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a config's values by dotted names, without those that say which release it was.

    A field that is None is as good as one that is not there; 4.x calls the dtype torch_dtype.
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if key in _RELEASE_FIELDS or value is None:
            continue
        if isinstance(value, dict):
            found.update(_fields(value, f"{name}."))
        else:
            found[name] = value
    return found


def _nulls(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of fields without a value."""
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if value is None or value == {}:
            yield name
        elif isinstance(value, dict):
            yield from _nulls(value, f"{name}.")


def _changes(original: Mapping[str, Any], saved: Observed) -> list[str]:
    """Return ``field: value from the original \u2192 value from the saved``."""
    return [
        change
        for name, value in original.items()
        for change in _change(
            name, value, saved.config.get(name, None if name in saved.nulls else _NOT_THERE)
        )
    ]


def _given(original: Observed, saved: Mapping[str, Any]) -> list[str]:
    """Return the changes of fields that have no value in the original and one in the saved."""
    unknown = _unknown(saved, original)
    given = (name for name in saved if name not in original.config and name not in unknown)
    return [
        f"{name}: null \u2192 {_shown(saved[name])}"
        for name in given
        if name.rpartition(".")[2] not in _WRITTEN_DOWN
    ]


def _unknown(saved: Mapping[str, Any], original: Observed) -> set[str]:
    """Return the fields that this release's config has for the saved alone.

    None that its class knows, so nothing reads them: what it knows it has for the original, too,
    if only without a value.
    """
    return {
        name
        for name in saved.keys() - original.config.keys()
        if not any(name == null or name.startswith(f"{null}.") for null in original.nulls)
    }


def _change(name: str, original: Any, saved: Any) -> list[str]:
    """Return how one field changed, if it did; of a list that is as long as it was, the items."""
    if saved is _NOT_THERE:
        return [f"{name}: {_shown(original)} \u2192 not there"]
    if isinstance(original, list) and isinstance(saved, list) and len(original) == len(saved):
        pairs = enumerate(zip(original, saved, strict=True))
        return [c for i, (one, other) in pairs for c in _change(f"{name}[{i}]", one, other)]
    # save_pretrained sorts by key, at any depth
    if json.dumps(original, sort_keys=True) == json.dumps(saved, sort_keys=True):
        return []
    return [f"{name}: {_shown(original)} \u2192 {_shown(saved)}"]


def _shown(value: Any) -> str:
    text = without_folders(json.dumps(value, sort_keys=True))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}\u2026"


def _source(job: Mapping[str, Any]) -> Source:
    return model_load.Source.of(job["model"], job["variant"])


def _first_line(error: Exception) -> str:
    if isinstance(error, PhaseFailed):
        kind, message = error.failure["type"], error.failure["message"]
        return f"{kind}: {message.partition(chr(10))[0]}"
    return str(error)


def _head(form: str, job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": form,
        "format_version": FORMAT_VERSION,
        "model": job["name"],
        "variant": job["variant_name"],
        "stack": job["stack"],
    }
