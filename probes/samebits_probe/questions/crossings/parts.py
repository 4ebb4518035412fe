"""What is saved beside a model: its tokenizer, its processors, and its settings of generate().

Each part is loaded as users load it, and asked as the questions texts and processors ask it. What it gives
is in a few groups of outcomes, by operation and case, in the form of Outcomes in
samebits/questions/texts/records.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from transformers import GenerationConfig

from samebits_probe.cell.outcomes import Clock, Outcomes, short_hash
from samebits_probe.cell.written import file_of
from samebits_probe.model.load import Source, has_tokenizer, load_config, load_tokenizer
from samebits_probe.process import progress
from samebits_probe.process.failure import PhaseFailed, phase
from samebits_probe.process.hashing import file_hash
from samebits_probe.process.quiet import undisturbed
from samebits_probe.questions.processors import calls, processors
from samebits_probe.questions.texts import chat, texts

Facts = dict[str, Any]

TOKENIZER, PROCESSOR, GENERATION = "tokenizer", "processor", "generation config"
ALONE = "tokenizer without config.json"
"""The tokenizer of a copy in a folder of its own, as beside an adapter: its class is found by other files."""
_CONFIG_FILE, _GENERATION_FILE = "config.json", "generation_config.json"
SECONDS = 10.0
"""Time for the calls of one processor; later ones are left out."""
_OF_RELEASE = ("transformers_version",)
_OF_STATE = (_CONFIG_FILE, "tokenizer_config.json", "saved.json")
"""Files of which a loaded tokenizer itself shows what it has of them."""
_OF_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf")
_PLAIN = (str, int, float, type(None))


class Parts(NamedTuple):
    """The parts of a checkpoint, by what its files declare."""

    names: list[str]
    talks: bool
    """True if the checkpoint has a chat template for its processor."""

    def load(self, name: str, source: Source) -> Any:
        """Return a part of the checkpoint, or of a copy of it."""
        with phase(f"load the {name}"):
            if name == TOKENIZER:
                if (tokenizer := load_tokenizer(source)) is None:
                    raise FileNotFoundError("there is no file of a tokenizer")
                return tokenizer
            if name == GENERATION:
                return _generation_config(source)
            return processors.loader(name, source)()

    def facts(self, name: str, source: Source) -> Facts:
        """Return what a part gives; it is loaded for this, as calls change its settings."""
        return self.facts_of(name, self.load(name, source))

    def facts_of(self, name: str, loaded: Any) -> Facts:
        """Return what a part gives that is loaded and not used any more."""
        with phase(f"ask the {name}"):
            if name == TOKENIZER:
                groups = {"texts": texts.facts(loaded, None), "conversations": chat.facts(loaded)}
                return {name: group for name, group in groups.items() if group is not None}
            if name == GENERATION:
                return {"values": _values(loaded)}
            return {"calls": _calls(name, loaded, talks=self.talks)}


def of(source: Source) -> Parts:
    """Return the parts of a checkpoint."""
    kinds, talks = processors.declared_kinds(source)
    names = [TOKENIZER] if has_tokenizer(source) else []
    if file_of(source, _GENERATION_FILE):
        names.append(GENERATION)
    return Parts([*names, *kinds], talks)


def save(source: Source, folder: Path) -> dict[str, Facts]:
    """Save all parts in a folder, and return outcome and facts of each.

    A processor of several parts writes all of them, as users save it; if it cannot, each is saved by itself.
    """
    if not (Path(folder) / _CONFIG_FILE).exists():
        with suppress(PhaseFailed, Exception):  # without it classes are found by their own files
            load_config(source).save_pretrained(folder)
    parts = of(source)
    entries: dict[str, Facts] = {}
    with undisturbed():
        objects = dict(_loaded(parts, source, entries))
        written = _written(objects, folder)
        # a processor writes its own tokenizer, to which its class may have added tokens
        by_processor = PROCESSOR in objects and written[PROCESSOR] is None
        held = {TOKENIZER: getattr(objects[PROCESSOR], TOKENIZER, None)} if by_processor else {}
        for name, failure in written.items():
            entries[name] = (
                {"outcome": "failed", "failure": failure}
                if failure
                else _asked(parts, name, source, held.get(name))
            )
    return entries


def _loaded(parts: Parts, source: Source, entries: dict[str, Facts]) -> Iterator[tuple[str, Any]]:
    for name in parts.names:
        try:
            loaded = parts.load(name, source)
        except PhaseFailed as failed:
            entries[name] = {"outcome": "not loaded", "failure": failed.failure}
            continue
        if name == PROCESSOR and len(parts.names) > 1 and not hasattr(loaded, "tokenizer"):
            continue  # its only part is saved by itself
        yield name, loaded


def _written(objects: dict[str, Any], folder: Path) -> dict[str, Facts | None]:
    """Save objects, and return the failure of each; None for one that was saved."""
    written: dict[str, Facts | None] = {}
    if PROCESSOR in objects:
        written[PROCESSOR] = _failure_of_save(PROCESSOR, objects[PROCESSOR], folder)
    is_written = PROCESSOR in written and written[PROCESSOR] is None
    for name, loaded in objects.items():
        by_other = is_written if name != GENERATION else (folder / _GENERATION_FILE).exists()
        if name != PROCESSOR:
            written[name] = None if by_other else _failure_of_save(name, loaded, folder)
    return written


def _failure_of_save(name: str, loaded: Any, folder: Path) -> Facts | None:
    try:
        with phase(f"save the {name}"):
            loaded.save_pretrained(folder)
    except PhaseFailed as failed:
        return failed.failure
    return None


def _asked(parts: Parts, name: str, source: Source, held: Any) -> Facts:
    progress.tick(f"ask the {name}")
    try:
        facts = parts.facts(name, source) if held is None else parts.facts_of(name, held)
        return {"outcome": "saved", "facts": facts}
    except PhaseFailed as failed:
        return {"outcome": "not loaded", "failure": failed.failure}


def crossed(source: Source, copies: dict[str, str]) -> Iterator[Facts]:
    """Yield what each part of each copy gives here, if it is not what it gives in its saver.

    Then yield what those parts of the original give here, with no saver.
    """
    answers, asked = _Answers(of(source)), set[str]()
    with undisturbed():
        for saver, folder in copies.items():
            for name, saved in _parts_of_copy(folder).items():
                if saved["outcome"] != "saved":
                    continue
                progress.tick(f"the {name} that {saver} saved")
                answer = answers.of(name, source.at(folder))
                if answer.get("facts") == saved["facts"]:
                    answer = {"outcome": "same"}
                else:
                    asked.add(name)
                yield {"saver": saver, "part": name, **answer}
                if name == TOKENIZER and (
                    alone := _alone(answers, source.at(folder), saved, answer)
                ):
                    asked.add(name)
                    yield {"saver": saver, "part": ALONE, **alone}
        for name in sorted(asked):
            progress.tick(f"the {name} of the original")
            yield {"saver": "", "part": name, **answers.of(name, source)}


def _alone(answers: _Answers, copy: Source, saved: Facts, beside: Facts) -> Facts | None:
    """Return what the tokenizer of a copy gives without config.json; None if it gives what it gives beside it."""
    if not (Path(copy.where) / _CONFIG_FILE).exists():
        return None
    progress.tick(f"the {ALONE}")
    with tempfile.TemporaryDirectory() as folder:
        for path in Path(copy.where).iterdir():
            if path.name != _CONFIG_FILE:
                (Path(folder) / path.name).symlink_to(path.absolute())
        answer = answers.of(TOKENIZER, copy.at(folder))
    if answer["outcome"] == beside["outcome"] == "load failed":
        return None
    return None if answer.get("facts") == beside.get("facts", saved["facts"]) else answer


def _parts_of_copy(folder: str) -> dict[str, Facts]:
    return dict(json.loads((Path(folder) / "saved.json").read_text("utf-8")).get("parts", {}))


class _Answers:
    """What the parts of copies give; tokenizers that were loaded alike are asked once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._by_state: dict[str, Facts] = {}

    def of(self, name: str, source: Source) -> Facts:
        """Return what a part of a copy gives, or why it cannot be loaded."""
        try:
            loaded = self._parts.load(name, source)
            if name != TOKENIZER:
                return {"outcome": "other", "facts": self._facts(name, loaded)}
            with phase(f"ask the {name}"):
                state = _state(loaded, Path(source.where))
            if state not in self._by_state:
                self._by_state[state] = self._facts(name, loaded)
        except PhaseFailed as failed:
            return {"outcome": "load failed", "failure": failed.failure}
        return {"outcome": "other", "facts": self._by_state[state]}

    def _facts(self, name: str, loaded: Any) -> Facts:
        return dict(json.loads(json.dumps(self._parts.facts_of(name, loaded))))


def _state(tokenizer: Any, folder: Path) -> str:
    """Return a digest of what decides all that a tokenizer gives: its class, its fields, its rules, the other files."""
    if not folder.is_dir():  # of the hub, where nothing else is loaded from
        return str(folder)
    fields = {n: v for n, v in vars(tokenizer).items() if isinstance(v, (*_PLAIN, list, tuple))}
    rules = getattr(getattr(tokenizer, "_tokenizer", None), "to_str", None)
    state = (
        type(tokenizer),
        sorted(fields.items()),
        sorted((n, str(v)) for n, v in getattr(tokenizer, "init_kwargs", {}).items()),
        getattr(tokenizer, "added_tokens_decoder", None),
        rules() if rules is not None else None,
        [
            (path.name, file_hash(path))
            for path in sorted(folder.iterdir())
            if path.is_file() and path.name not in _OF_STATE and path.suffix not in _OF_WEIGHTS
        ],
    )
    return short_hash(repr(state).replace(str(folder), "").encode("utf-8", "surrogatepass"))


def _calls(kind: str, processor: Any, *, talks: bool) -> Facts:
    outcomes, clock = Outcomes(SECONDS), Clock(SECONDS)
    for case, call in calls.of(kind, processor, talks=talks).items():
        if clock.is_over:
            break
        outputs = outcomes.call("outputs", case, lambda call: _Named(call, processor), call)
        for output, value in outputs.arrays.items() if outputs is not None else ():
            outcomes.add(output, case, value)
    return outcomes.record()


class _Named(list):  # type: ignore[type-arg]
    """The names of the outputs of a call, and the facts of their arrays."""

    def __init__(self, call: calls.Call, processor: Any) -> None:
        outputs = processors.facts_of_outputs(dict(call.called(processor, call.made())))
        super().__init__(outputs)
        self.arrays = {
            name: [
                *(f"{facts['dtype']} {shape}" for shape in facts["shapes"]),
                *(f"{value:.6g}" for value in facts.get("sample", ())),
                *([facts["text"]] if "text" in facts else ()),
                facts["hash"],
            ]
            for name, facts in outputs.items()
        }


def _generation_config(source: Source) -> GenerationConfig:
    if file_of(source, _GENERATION_FILE):
        return GenerationConfig.from_pretrained(source.where, revision=source.revision)
    return GenerationConfig.from_model_config(load_config(source))


def _values(config: GenerationConfig) -> Facts:
    """Return all values, and which of them are not the class's own defaults in this release."""
    outcomes = Outcomes(SECONDS)
    for operation, values in (("value", config.to_dict()), ("stated", config.to_diff_dict())):
        for name, value in sorted(values.items()):
            if name not in _OF_RELEASE and not name.startswith("_") and value is not None:
                outcomes.add(operation, name, json.dumps(value, sort_keys=True, default=str))
    return outcomes.record()
