"""Loading of matrix.yaml: a Matrix, or all problems of the file with line and column.

samebits/matrix/problems.py checks the form. This module applies the defaults and checks the parts of
the file against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from samebits.base.errors import MatrixError, nearest, shown
from samebits.compare.registry import signal_names
from samebits.matrix import yamltext
from samebits.matrix.arguments import InputSet, InputSetEntry
from samebits.matrix.form import Form
from samebits.matrix.load_arguments import contradictions
from samebits.matrix.probefile import probe_file
from samebits.matrix.problems import Checked, check
from samebits.matrix.spec import (
    Expected,
    ExpectedEntry,
    Matrix,
    MatrixFile,
    ModelEntry,
    ModelSpec,
    Prompt,
    Rule,
    Settings,
    StackEntry,
    StackSpec,
)
from samebits.matrix.values import id_of_release, is_source
from samebits.matrix.yamltext import FILE, Keys, Place, Problem, Yaml

_WITHOUT_SIGNALS = frozenset({"failed", "not observed"})
"""Verdicts on a cell as a whole; an entry with one of them needs no signal that matches."""


def load(path: Path) -> Matrix:
    """Read a matrix file. Raises MatrixError, which holds every problem of the file."""
    return parse(yamltext.read(path), path)


def parse(yaml: Yaml, path: Path) -> Matrix:
    """Return the Matrix of a parsed YAML file. Raises MatrixError as :func:`load` does."""
    if yaml.data is None:
        raise MatrixError(lines(yaml.problems, path))
    if not isinstance(yaml.data, dict):
        text = "the file is not a mapping: start with models: and write the models under it"
        raise MatrixError(lines([*yaml.problems, Problem(yaml.place(()), text)], path))
    checked = check(yaml, yaml.data, path.parent)
    builder = _MatrixBuilder(yaml, checked, path.parent)
    problems = [*yaml.problems, *checked.problems, *builder.problems()]
    if problems:
        raise MatrixError(lines(problems, path))
    return builder.matrix(str(path))


def oldest_first(stacks: Iterable[StackSpec]) -> tuple[StackSpec, ...]:
    """Sort stacks by the release they request; a family comes after all of its releases, a source last."""
    return tuple(sorted(stacks, key=_age))


def _age(stack: StackSpec) -> tuple[tuple[float, ...], ...]:
    return tuple(map(age, (stack.transformers, stack.torch, stack.python)))


def age(version: str) -> tuple[float, ...]:
    """Return what sorts versions, the older first; a family comes after its releases, a source after all."""
    numbers = () if is_source(version) else version.split(".")
    parts = [float(part) if part.isdecimal() else math.inf for part in numbers]
    return (*parts, *[math.inf] * (3 - len(parts)))


def lines(problems: Iterable[Problem], path: Path) -> list[str]:
    """Return problems with their positions in the file, in its order."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.place)
    return [_line(problem, path) for problem in ordered]


def _line(problem: Problem, path: Path) -> str:
    name = str(path) if str(path).isprintable() else shown(str(path))
    position = "" if problem.place == FILE else f":{problem.place.line}:{problem.place.column}"
    return f"{name}{position}: {problem.text}"


class _MatrixBuilder:
    """Checks a file that has the right form, and builds a Matrix from it."""

    def __init__(self, yaml: Yaml, checked: Checked, folder: Path) -> None:
        file = checked.file
        self._yaml = yaml
        self._checked = checked
        self._file = file
        self._stacks = [_stack(entry, file, folder) for entry in file.stacks]
        self._ids = [stack.id for stack in self._stacks]
        self._models = {
            name: _model(name, entry, file.defaults, folder, yaml.place(("models", name)).line)
            for name, entry in file.models.items()
        }
        models = yaml.data.get("models", {}) if isinstance(yaml.data, dict) else {}
        self._names = list(models) if isinstance(models, dict) else []

    def matrix(self, path: str) -> Matrix:
        """Return the Matrix with defaults applied; only valid if problems() is empty."""
        stacks = oldest_first(self._stacks)
        return Matrix(
            path=path,
            stacks=stacks,
            reference=self._file.reference or stacks[0].id,
            exclude_newer=self._file.exclude_newer,
            models=tuple(self._placed(model, Path(path)) for model in self._models.values()),
            include=self._file.include,
            exclude=self._file.exclude,
            expected=tuple(
                Expected(line=self._yaml.place(("expected", number)).line, **_given(entry))
                for number, entry in enumerate(self._file.expected)
            ),
        )

    def _placed(self, model: ModelSpec, path: Path) -> ModelSpec:
        """Return a model whose input sets know their positions in the file."""
        if not model.inputs:
            return model
        own = "inputs" in self._file.models[model.name].model_fields_set
        above: Keys = ("models", model.name) if own else ("defaults",)
        placed: dict[str, Prompt | InputSetEntry] = {}
        for name, prompt in model.prompts.items():
            placed[name] = prompt
            if isinstance(prompt, InputSet):
                keys = (*above, "inputs", name)
                places = {"": _position(path.name, self._yaml.place_of_key(keys))}
                for argument in prompt.arguments or ():
                    place = self._yaml.place_of_key((*keys, "arguments", argument))
                    places[argument] = _position(path.name, place)
                placed[name] = prompt.model_copy(
                    update={"places": places, "folder": str(path.parent)}
                )
        return model.model_copy(update={"prompts": placed})

    def problems(self) -> Iterator[Problem]:
        """Yield contradictions between the parts of the file."""
        yield from self._missing_models()
        yield from self._duplicates()
        yield from self._unknown_stacks()
        yield from self._duplicate_variants()
        yield from self._duplicate_inputs()
        yield from self._contradicting_arguments()
        yield from self._unmatched_rules("include", self._file.include)
        yield from self._unmatched_rules("exclude", self._file.exclude)
        yield from self._unmatched_rules("expected", self._file.expected)

    def _missing_models(self) -> Iterator[Problem]:
        if not self._names and self._checked.is_whole():
            text = "models is missing: write models: and under it a name and its source"
            yield Problem(self._yaml.place(()), text)

    def _duplicates(self) -> Iterator[Problem]:
        numbered = zip(self._checked.numbers("environments"), self._ids, strict=False)
        stacks: list[tuple[Keys, str]] = [(("environments", number), id) for number, id in numbered]
        models: list[tuple[Keys, str]] = [(("models", name), name) for name in self._names]
        remedy = "give one of them an id, as in {id: old, transformers: ...}"
        yield from self._same_folder(stacks, "environments", remedy)
        yield from self._same_folder(models, "models", "rename one of them")

    def _same_folder(
        self, named: list[tuple[Keys, str]], kind: str, remedy: str
    ) -> Iterator[Problem]:
        """Yield names that would share a folder on a case-insensitive file system."""
        by_folded: dict[str, str] = {}
        for keys, name in named:
            first = by_folded.setdefault(name.casefold(), name)
            if first is name:
                continue
            fault = f"two {kind} have the name {shown(name)}"
            if first != name:
                fault = f"{shown(first)} and {shown(name)} are the same folder on some machines"
            yield Problem(self._yaml.place(keys), f"{fault}: {remedy}")

    def _unknown_stacks(self) -> Iterator[Problem]:
        if not self._checked.is_whole("environments"):
            return
        named: list[tuple[Keys, str | None]] = [(("reference",), self._file.reference)]
        named += [
            (("models", name, "build", "environment"), entry.build.stack)
            for name, entry in self._file.models.items()
            if entry.build
        ]
        for keys, id in named:
            if id is not None and id not in self._ids:
                text = f"{keys[-1]}: {shown(id)} is not the id of an environment: {nearest(id, self._ids)}"
                yield Problem(self._yaml.place(keys), text)

    def _duplicate_variants(self) -> Iterator[Problem]:
        """Yield models with two variants of one name.

        An example is attention "eager-cuda" together with attention "eager" on device "cuda".
        """
        for name, model in self._models.items():
            names = [str(variant) for variant in model.variants]
            duplicate = next(
                (variant_name for variant_name in names if names.count(variant_name) > 1), None
            )
            if duplicate:
                text = f"{name}: two variants have the name {shown(duplicate)}: remove one of them"
                yield Problem(self._yaml.place(("models", name)), text)

    def _duplicate_inputs(self) -> Iterator[Problem]:
        """Yield sets of inputs with the name of a prompt: both are named in one report."""
        for name, entry in self._file.models.items():
            prompts, inputs = _fed(entry, self._file.defaults)
            for twice in prompts.keys() & inputs.keys():
                keys: Keys = ("models", name, "inputs", twice)
                text = f"{name}: a prompt has the name {shown(twice)}, too: rename one of the two"
                yield Problem(self._yaml.place_of_key(keys), text)

    def _contradicting_arguments(self) -> Iterator[Problem]:
        for name, model in self._models.items():
            for argument, fault in contradictions(model).items():
                is_own = "load" in self._file.models[name].model_fields_set
                keys: Keys = ("models", name) if is_own else ("defaults",)
                place = self._yaml.place((*keys, "load", argument))
                yield Problem(place, f"{argument}: {fault}")

    def _unmatched_rules(
        self, section: str, rules: Iterable[Rule | ExpectedEntry]
    ) -> Iterator[Problem]:
        for number, rule in zip(self._checked.numbers(section), rules, strict=False):
            yield from self._unmatched_rule((section, number), rule)

    def _unmatched_rule(self, keys: Keys, rule: Rule | ExpectedEntry) -> Iterator[Problem]:
        """Yield the patterns that match nothing: such a rule has a typo or is outdated."""
        yield from self._unmatched_patterns((*keys, "model"), rule.model, self._names)
        if self._checked.is_whole("environments"):
            yield from self._unmatched_patterns((*keys, "environment"), rule.stack, self._ids)
        if self._checked.is_whole("models", "defaults"):
            variants = self._variants(rule.model)
            yield from self._unmatched_patterns((*keys, "variant"), rule.variant, variants)
        if isinstance(rule, ExpectedEntry) and rule.verdict not in _WITHOUT_SIGNALS:
            yield from self._unmatched_signals((*keys, "signal"), rule)

    def _unmatched_signals(self, keys: Keys, rule: ExpectedEntry) -> Iterator[Problem]:
        """Yield patterns of signals that match nothing that counts in the models of an entry."""
        if self._names_of_probes_unknown():
            return
        files = [file for model in self._matching(rule.model) for file in model.probe_files]
        counting = {file.name for file in files if file.verdict}
        informing = {file.name for file in files} - counting
        names = [*signal_names(), *sorted(counting)]
        for number, pattern in enumerate(rule.signal):
            if pattern in informing:
                text = (
                    f"{shown(pattern)} is a probe that only informs, so nothing of it is expected: "
                    "remove it here, or write verdict: true in its entry under probes"
                )
                yield Problem(self._yaml.place((*keys, number)), text)
                names.append(pattern)
        yield from self._unmatched_patterns(keys, rule.signal, names)

    def _names_of_probes_unknown(self) -> bool:
        """Return True if an entry that is left out for a mistake may have probes."""
        data = self._yaml.data if isinstance(self._yaml.data, dict) else {}
        models = data.get("models")
        entries = [data.get("defaults"), *(models.values() if isinstance(models, dict) else ())]
        has_probes = any(isinstance(entry, dict) and "probes" in entry for entry in entries)
        return has_probes and not self._checked.is_whole("models", "defaults")

    def _unmatched_patterns(
        self, keys: Keys, patterns: tuple[str, ...], names: Iterable[str]
    ) -> Iterator[Problem]:
        names = list(names)
        for number, pattern in enumerate(patterns):
            if not any(fnmatchcase(name, pattern) for name in names) and pattern != "*":
                text = f"{shown(pattern)} matches no {keys[-1]}: {nearest(pattern, names)}"
                yield Problem(self._yaml.place((*keys, number)), text)

    def _matching(self, patterns: tuple[str, ...]) -> list[ModelSpec]:
        """Return the models that one of the patterns matches."""
        return [
            model
            for name, model in self._models.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]

    def _variants(self, patterns: tuple[str, ...]) -> list[str]:
        models = self._matching(patterns) or self._models.values()
        return list(dict.fromkeys(str(variant) for model in models for variant in model.variants))


def _given(form: Form) -> dict[str, Any]:
    """Return the fields that the file sets."""
    return {name: getattr(form, name) for name in form.model_fields_set}


def _stack(entry: StackEntry, file: MatrixFile, folder: Path) -> StackSpec:
    fields = {"torch": file.torch, "python": file.python} | _given(entry)
    if is_source(entry.transformers):
        fields["transformers"] = str(folder.absolute() / entry.transformers)
    fields.setdefault("id", id_of_release(fields["transformers"]))
    return StackSpec(**fields)


def _model(name: str, entry: ModelEntry, defaults: Settings, folder: Path, line: int) -> ModelSpec:
    own = _given(entry)
    switches = {name for name, value in (own | entry.questions).items() if value is True}
    switches |= {"samples"} if entry.samples else set()
    prompts, inputs = _fed(entry, defaults)
    sets = {key: InputSet(**_given(inputs[key])) for key in inputs}
    fields = _given(defaults) | own | {"prompts": prompts | sets}
    fields["questions"] = defaults.questions | entry.questions
    probe_files = tuple(
        probe_file(folder / probe.path, verdict=probe.verdict) for probe in fields.get("probes", ())
    )
    return ModelSpec(
        name=name, line=line, own=tuple(sorted(switches)), probe_files=probe_files, **fields
    )


def _fed(
    entry: ModelEntry, defaults: Settings
) -> tuple[dict[str, Prompt], dict[str, InputSetEntry]]:
    """Return a model's prompts and input sets.

    Beside inputs: only prompts that are written there or in the model's own entry are run, as the
    default ones have no meaning for most such models.
    """
    source = next((s for s in (entry, defaults) if "inputs" in s.model_fields_set), None)
    asks = next((s for s in (entry, defaults) if "prompts" in s.model_fields_set), None)
    prompts = (asks or defaults).prompts
    if source is None:
        return prompts, {}
    if asks is None or (source is entry and asks is defaults):
        prompts = {}
    return prompts, source.inputs


def _position(file: str, place: Place) -> str:
    return f"{file}:{place.line}:{place.column}"
