"""What a model's processors make of seeded images, videos, sounds and outputs of models.

Each part is loaded by its Auto class. Each case runs as users run it, and once more in float64. An
image processor is asked once more with the backend that the release does not choose by itself.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import transformers

from samebits_probe.cell.outcomes import Clock, in_words, raised
from samebits_probe.cell.written import file_of
from samebits_probe.model.load import Source
from samebits_probe.process import progress
from samebits_probe.questions.processors import (
    arrays,
    calls,
    counts,
    options,
    postprocessing,
    steps,
    widened,
)
from samebits_probe.questions.processors.calls import Call

AFTER = ", after the model"
"""End of the name of a part that turns outputs of a model into boxes, masks and texts."""
COUNTS = ", counts"
"""End of the name of a part that tells numbers of tokens of a size alone."""
OPTIONS = ", with options"
"""End of the name of a part that is given options, in its calls and as it is loaded."""
BACKENDS = ("pil", "torchvision")
SECONDS = 40.0
"""Time for all cases of a model; later ones are left out, with the reason."""
OPTION_SECONDS = 10.0
"""The same for the calls with options, which come last."""
FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_TEMPLATES = ("chat_template.json", "chat_template.jinja")
"""Files of a processor's chat template; some releases read the first one only."""
_NOT_SETTINGS = frozenset(
    {
        "_processor_class",
        "auto_map",
        "feature_extractor_type",
        "image_processor_type",
        "processor_class",
        "transformers_version",
        "video_processor_type",
        "mel_filters",
        "window",
        "model_valid_processing_keys",
        "_valid_kwargs_names",
    }
)


class Kind(NamedTuple):
    """A part of a checkpoint that prepares inputs."""

    auto: str
    type_key: str
    """Key of a file that names its class."""
    nested: str
    """Its key in processor_config.json."""


KINDS = {
    "image processor": Kind("AutoImageProcessor", "image_processor_type", "image_processor"),
    "feature extractor": Kind(
        "AutoFeatureExtractor", "feature_extractor_type", "feature_extractor"
    ),
    "video processor": Kind("AutoVideoProcessor", "video_processor_type", "video_processor"),
    "processor": Kind("AutoProcessor", "processor_class", ""),
}


def facts(source: Source, seconds: float = SECONDS) -> dict[str, Any] | None:
    """Return the facts of all parts; None for a checkpoint that declares none."""
    declared = _declared(source)
    if not (kinds := _kinds(declared)):
        return None
    clock = Clock(seconds)
    parts: dict[str, Any] = {}
    for kind in kinds:
        parts |= _parts(kind, source, declared, clock)
    image = "image processor"
    if "cases" in parts.get(image, {}):  # behind all that releases choose by themselves
        on_demand = _other_backend(image, parts[image]["backend"], loader(image, source), clock)
        parts |= {name: part | {"role": "on demand"} for name, part in on_demand.items()}
    clock = Clock(min(seconds, OPTION_SECONDS))
    for kind in kinds:
        if parts[kind].get("cases"):
            parts |= _with_options(kind, loader(kind, source), clock)
    return {"parts": parts}


def declared_kinds(source: Source) -> tuple[list[str], bool]:
    """Return the kinds of parts that a checkpoint declares, and whether it has a chat template for its processor."""
    declared = _declared(source)
    return _kinds(declared), _talks(source, declared)


def _declared(source: Source) -> dict[str, dict[str, Any]]:
    contents = {}
    for name in FILES:
        path = file_of(source, name, subfolder="")
        try:
            content = json.loads(path.read_text("utf-8")) if path else None
        except ValueError:
            content = {}
        if isinstance(content, dict):
            contents[name] = content
    return contents


def _talks(source: Source, declared: dict[str, dict[str, Any]]) -> bool:
    """Return True if the files have a chat template for the processor, whether a release reads it or not."""
    whole = declared.get("processor_config.json", {})
    return "chat_template" in whole or any(
        file_of(source, name, subfolder="") for name in _TEMPLATES
    )


def _kinds(declared: dict[str, dict[str, Any]]) -> list[str]:
    return [kind for kind, entry in KINDS.items() if _declares(kind, entry, declared)]


def _declares(kind: str, entry: Kind, declared: dict[str, dict[str, Any]]) -> bool:
    whole = declared.get("processor_config.json", {})
    if kind == "processor":
        names = any(entry.type_key in content for content in declared.values())
        return names or bool(whole) or _maps(entry, declared)
    if kind == "video processor" and "video_preprocessor_config.json" in declared:
        return True
    names = any(entry.type_key in content for content in declared.values())
    return names or bool(whole.get(entry.nested)) or _maps(entry, declared)


def _maps(entry: Kind, declared: dict[str, dict[str, Any]]) -> bool:
    return any(entry.auto in (content.get("auto_map") or {}) for content in declared.values())


def _parts(
    kind: str, source: Source, declared: dict[str, dict[str, Any]], clock: Clock
) -> dict[str, dict[str, Any]]:
    """Return class, backend, settings and cases of one part, of what it does after the model, and of what it counts."""
    if getattr(transformers, KINDS[kind].auto, None) is None:
        return {kind: {"absent": f"this release has no {KINDS[kind].auto}"}}
    load = loader(kind, source)
    processor, failed = _loaded(load)
    if failed:
        return {kind: failed}
    described = _described(kind, processor)
    if not hasattr(processor, "tokenizer") and kind == "processor" and len(_kinds(declared)) > 1:
        return {kind: described}  # its only part is observed by itself
    made = calls.of(kind, processor, talks=_talks(source, declared))
    counted = _cases(processor, load, counts.calls(processor, kind), clock)
    parts = {kind: described | {"cases": _cases(processor, load, made, clock)}}
    if later := _after(processor, load, clock):
        parts[kind + AFTER] = {**described, "role": "after", "settings": {}, "cases": later}
    if counted:
        parts[kind + COUNTS] = {**described, "role": "counts", "settings": {}, "cases": counted}
    return parts


def loader(kind: str, source: Source) -> Callable[..., Any]:
    """Return the load of a kind by its Auto class."""
    auto = getattr(transformers, KINDS[kind].auto)
    return lambda **given: auto.from_pretrained(source.where, **source.arguments(), **given)


def _with_options(kind: str, load: Callable[..., Any], clock: Clock) -> dict[str, dict[str, Any]]:
    """Return the cases of a part that has cases without options already."""
    processor, failed = _loaded(load)
    if failed:
        return {}
    cases = _cases(processor, load, options.of(kind, processor), clock)
    described = {**_described(kind, processor), "role": "options", "settings": {}}
    return {kind + OPTIONS: described | {"cases": cases}} if cases else {}


def _loaded(load: Callable[..., Any], **given: Any) -> tuple[Any, dict[str, Any]]:
    """Return what a load gives, or the facts of its failure."""
    try:
        return load(**given), {}
    except ImportError as error:
        return None, {"absent": in_words(error)}
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return None, raised(error)


def _after(processor: Any, load: Callable[[], Any], clock: Clock) -> dict[str, Any]:
    made = {
        name: Call(lambda: None, _without_input(call))
        for name, call in postprocessing.calls(processor).items()
    }
    return _cases(processor, load, made, clock)


def _without_input(call: Callable[[Any], dict[str, Any]]) -> Callable[[Any, Any], Any]:
    def called(processor: Any, _none: Any) -> Any:
        return call(processor)

    return called


def _other_backend(
    kind: str, backend: str, load: Callable[..., Any], clock: Clock
) -> dict[str, dict[str, Any]]:
    """Return the image processor with the backend that the release does not choose by itself."""
    if backend not in BACKENDS:
        return {}
    (second,) = (name for name in BACKENDS if name != backend)
    name = f"{kind}, {second} on demand"
    if second == "torchvision" and importlib.util.find_spec("torchvision") is None:
        return {name: {"absent": "torchvision is not installed in this environment"}}
    demand = _demand(getattr(transformers, KINDS[kind].auto), second)
    processor, failed = _loaded(load, **demand)
    if failed:
        return {name: failed}
    described = _described(kind, processor)
    if described["backend"] != second:
        return {name: {"absent": f"this release gives {described['class_name']} in its place"}}
    cases = _cases(processor, lambda: load(**demand), calls.of(kind, processor), clock)
    return {name: described | {"cases": cases}}


def _demand(auto: Any, backend: str) -> dict[str, Any]:
    """Return the argument that asks for a backend; releases before the name take use_fast."""
    try:
        has_name = '"backend"' in inspect.getsource(auto.from_pretrained)
    except (OSError, TypeError):
        has_name = False
    return {"backend": backend} if has_name else {"use_fast": backend == "torchvision"}


def _described(kind: str, processor: Any) -> dict[str, Any]:
    return {
        "class_name": type(processor).__name__,
        "backend": calls.backend_of(processor),
        "settings": _kind_of_tokenizer(processor) if kind == "processor" else _settings(processor),
    }


def _kind_of_tokenizer(processor: Any) -> dict[str, str]:
    """Return whether the tokenizer of a processor is a fast one; its class has another name in other releases."""
    is_fast = getattr(getattr(processor, "tokenizer", None), "is_fast", None)
    return {} if is_fast is None else {"tokenizer.is_fast": json.dumps(bool(is_fast))}


def _settings(processor: Any) -> dict[str, str]:
    """Return what the object was set to by the checkpoint and by its class's defaults."""
    values = {
        name: steps.setting(value)
        for name, value in vars(processor).items()
        if not name.startswith("_") and name not in _NOT_SETTINGS
    }
    for name in ("resample", "size", "crop_size", "image_mean", "image_std", "do_convert_rgb"):
        if name not in values:
            values[name] = steps.setting(getattr(processor, name, None))
    return {
        name: json.dumps(value, sort_keys=True)
        for name, value in sorted(values.items())
        if value is not None
    }


def _cases(
    processor: Any, load: Callable[..., Any], made: dict[str, Call], clock: Clock
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, call in made.items():
        if clock.is_over:
            results[name] = {"left_out": "the cases before it took the time for all of them"}
            continue
        progress.beat()
        results[name] = _of_option(call) | _case(processor, call, load)
    returned = {
        name: made[name]
        for name, result in results.items()
        if "outputs" in result and made[name].given is None and not made[name].counted
    }
    for name, promoted in _in_float64(load, returned, clock).items():
        results[name] |= promoted
    return results


def _of_option(call: Call) -> dict[str, Any]:
    if call.counted:
        return {"counted": call.counted}
    if not call.without:
        return {}
    return {"without": call.without, "like": call.like, "is_loaded": call.given is not None}


def _case(processor: Any, call: Call, load: Callable[..., Any]) -> dict[str, Any]:
    try:
        made = call.made()
    except ImportError as error:
        return {"left_out": in_words(error)}
    try:
        processor = processor if call.given is None else load(**_copied(call.given))
        with steps.recorded(processor) as taken:
            outputs = dict(call.called(processor, made))
    except calls.NotAsked as reason:
        return {"left_out": str(reason)}
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return raised(error)
    return {"outputs": facts_of_outputs(outputs), "steps": taken}


def _copied(given: dict[str, Any]) -> dict[str, Any]:
    """Return options for one load: 4.57 takes its options out of dicts, and a part is to be the caller's own."""
    return {
        name: copy.deepcopy(value) if isinstance(value, (dict, list)) else value
        for name, value in given.items()
    }


def _in_float64(
    load: Callable[[], Any], made: dict[str, Call], clock: Clock
) -> dict[str, dict[str, Any]]:
    """Return outputs and steps of a processor that is made, and called, in float64."""
    if not made:
        return {}
    with widened.in_float64() as notes:
        try:
            processor = load()
        except Exception as error:  # noqa: BLE001  code that does not take float64
            return {name: {"not_promoted": in_words(error)} for name in made}
        return {name: _promoted(processor, call, notes, clock) for name, call in made.items()}


def _promoted(processor: Any, call: Call, notes: widened.Notes, clock: Clock) -> dict[str, Any]:
    if clock.is_over:
        return {"not_promoted": "the cases before it took the time for all of them"}
    notes.reasons.clear()
    progress.beat()
    try:
        with steps.recorded(processor) as taken:
            outputs = dict(call.called(processor, widened.widened(call.made())))
    except Exception as error:  # noqa: BLE001  code that does not take float64
        return {"not_promoted": in_words(error)}
    observed = {"promoted": facts_of_outputs(outputs), "promoted_steps": taken}
    reason = next(iter(notes.reasons), "")
    return observed | ({"not_promoted": reason} if reason else {})


def facts_of_outputs(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of each output that is an array or a text."""
    return {
        str(name): arrays.facts_of_text(value) if _is_text(value) else arrays.facts(value)
        for name, value in _flat(outputs)
        if value is not None and (_is_text(value) or _is_array(value))
    }


def _flat(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each output; of dicts in a list, or in lists of it, all values of each of their keys."""
    for name, value in outputs.items():
        rows = value if isinstance(value, (list, tuple)) else [value]
        parts = [p for row in rows for p in (row if isinstance(row, (list, tuple)) else [row])]
        if not parts or not all(isinstance(part, Mapping) for part in parts):
            yield name, value
            continue
        for key in sorted({str(key) for part in parts for key in part}):
            yield f"{name} {key}", [part[key] for part in parts if part.get(key) is not None]


def _is_text(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def _is_array(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and len(value):
        value = value[0]
    return hasattr(value, "shape") or isinstance(value, (bool, int, float))
