"""Loading of matrix.yaml: a Matrix, or all problems of the file with line and column.

samebits/matrix/problems.py checks the form. This module checks the parts of the file against each
other and against the disk, and converts the file to a Matrix.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.base.errors import MatrixError, PatchError, nearest, shown
from samebits.base.patches import patched_files
from samebits.compare.registry import signal_names
from samebits.matrix import yamltext
from samebits.matrix.form import NAME_RULE, ExpectedEntry, PromptEntry, is_name
from samebits.matrix.problems import check
from samebits.matrix.spec import Expected, Matrix, ModelSpec, Prompt, Recipe, Rule, StackSpec
from samebits.matrix.yamltext import FILE, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.matrix.form import (
        BuildEntry,
        DefaultsEntry,
        InputEntry,
        MatrixFile,
        ModelEntry,
        RuleEntry,
        StackEntry,
    )
    from samebits.matrix.problems import Checked
    from samebits.matrix.yamltext import Keys, Yaml


_WITHOUT_SIGNALS = frozenset({"failed", "not observed"})
"""Verdicts on a cell as a whole; an entry with one of them needs no signal that matches."""


def load(path: Path) -> Matrix:
    """Read a matrix file. Raises MatrixError, which holds every problem of the file."""
    return parse(yamltext.read(path), path)


def parse(yaml: Yaml, path: Path) -> Matrix:
    """Return the Matrix of a parsed YAML file. Raises MatrixError as :func:`load` does."""
    if yaml.data is None:
        raise MatrixError(_lines(yaml.problems, path))
    if not isinstance(yaml.data, dict):
        text = "the file is not a mapping: begin with models: and what to compare"
        raise MatrixError(_lines([*yaml.problems, Problem(yaml.place(()), text)], path))
    checked = check(yaml, yaml.data)
    builder = _MatrixBuilder(yaml, checked, path.parent)
    problems = [*yaml.problems, *checked.problems, *builder.problems()]
    if problems:
        raise MatrixError(_lines(problems, path))
    return builder.matrix(str(path))


def oldest_first(stacks: Iterable[StackSpec]) -> tuple[StackSpec, ...]:
    """Sort stacks by the release they request; a family comes after all of its releases."""
    return tuple(sorted(stacks, key=_age))


def _age(stack: StackSpec) -> tuple[tuple[float, ...], ...]:
    return tuple(_numbers(text) for text in (stack.transformers, stack.torch, stack.python))


def _numbers(version: str) -> tuple[float, ...]:
    parts = [math.inf if part == "x" else float(part) for part in version.split(".")]
    return (*parts, *[math.inf] * (3 - len(parts)))


def _lines(problems: Iterable[Problem], path: Path) -> list[str]:
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
        self._folder = folder
        self._stacks = [_stack(entry, file) for entry in file.stacks]
        self._ids = [stack.id for stack in self._stacks]
        self._models = {
            name: _model(name, entry, file.defaults)
            for name, entry in file.models.items()
            if is_name(name)
        }
        self._names = [str(keys[1]) for keys in yaml.keys if len(keys) == 2 and keys[0] == "models"]

    def matrix(self, path: str) -> Matrix:
        """Return the Matrix with defaults applied; only valid if problems() is empty."""
        stacks = oldest_first(self._stacks)
        return Matrix(
            path=path,
            stacks=stacks,
            reference=self._file.reference or stacks[0].id,
            exclude_newer=self._file.exclude_newer,
            models=tuple(self._models.values()),
            include=tuple(_rule(entry) for entry in self._file.include),
            exclude=tuple(_rule(entry) for entry in self._file.exclude),
            expected=tuple(
                _expected(entry, self._yaml.place(("expected", number)).line)
                for number, entry in enumerate(self._file.expected)
            ),
        )

    def problems(self) -> Iterator[Problem]:
        """Yield contradictions between the parts of the file, and between the file and the disk."""
        yield from self._missing_models()
        yield from self._bad_names()
        yield from self._duplicates()
        yield from self._unknown_stacks()
        yield from self._duplicate_variants()
        for name, entry in self._file.models.items():
            yield from self._bad_source(name, entry)
        yield from self._unmatched_rules("include", self._file.include)
        yield from self._unmatched_rules("exclude", self._file.exclude)
        yield from self._unmatched_rules("expected", self._file.expected)

    def _missing_models(self) -> Iterator[Problem]:
        if ("models",) not in self._yaml.values and self._checked.is_whole():
            text = "models is missing: write models: and under it a name and its source"
            yield Problem(self._yaml.place(()), text)

    def _bad_names(self) -> Iterator[Problem]:
        for keys, place in self._yaml.keys.items():
            match keys:
                case ("models", str(name)):
                    kind = "model"
                case ("defaults", "prompts", str(name)) | ("models", _, "prompts", str(name)):
                    kind = "prompt"
                case _:
                    continue
            if not is_name(name):
                yield Problem(place, f"{shown(name)} is no name for a {kind}: {NAME_RULE}")

    def _duplicates(self) -> Iterator[Problem]:
        numbered = zip(self._checked.numbers["stacks"], self._ids, strict=False)
        stacks: list[tuple[Keys, str]] = [(("stacks", number), id) for number, id in numbered]
        models: list[tuple[Keys, str]] = [(("models", name), name) for name in self._names]
        remedy = "give one of them an id, as in {id: old, transformers: ...}"
        yield from self._same_folder(stacks, "stacks", remedy)
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
            fault = f"{shown(name)} is the name of two {kind}"
            if first != name:
                fault = f"{shown(first)} and {shown(name)} are one folder on some machines"
            yield Problem(self._yaml.place(keys), f"{fault}: {remedy}")

    def _unknown_stacks(self) -> Iterator[Problem]:
        if not self._checked.is_whole("stacks"):
            return
        named: list[tuple[Keys, str | None]] = [(("reference",), self._file.reference)]
        named += [
            (("models", name, "build", "stack"), entry.build.stack)
            for name, entry in self._file.models.items()
            if entry.build
        ]
        for keys, id in named:
            if id is not None and id not in self._ids:
                text = f"{keys[-1]}: {shown(id)} is no stack: {nearest(id, self._ids)}"
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

    def _bad_source(self, name: str, entry: ModelEntry) -> Iterator[Problem]:
        if entry.revision is not None and entry.hub is None:
            text = "revision: only a model with hub: has revisions: remove the key"
            yield Problem(self._yaml.place(("models", name, "revision")), text)
        fault = _bad_folder(self._folder, entry.path) if entry.path is not None else None
        if fault:
            yield Problem(self._yaml.place(("models", name, "path")), f"path: {fault}")
        elif entry.patch:
            yield from self._bad_patches(name, entry.path, entry.patch)

    def _bad_patches(self, name: str, path: str | None, patches: list[str]) -> Iterator[Problem]:
        """Yield a problem for the first patch that does not apply on top of those before it."""
        keys: Keys = ("models", name, "patch")
        if path is None:
            text = "patch: only a folder, path:, can be patched: remove the key"
            yield Problem(self._yaml.place(keys), text)
            return
        folder = self._folder / Path(path).expanduser()
        for number in range(len(patches)):
            fault = _bad_patch(self._folder, folder, patches[: number + 1])
            if fault:
                yield Problem(self._yaml.place((*keys, number)), f"patch: {fault}")
                return

    def _unmatched_rules(
        self, section: str, rules: Iterable[RuleEntry | ExpectedEntry]
    ) -> Iterator[Problem]:
        for number, rule in zip(self._checked.numbers[section], rules, strict=True):
            yield from self._unmatched_rule((section, number), rule)

    def _unmatched_rule(self, keys: Keys, rule: RuleEntry | ExpectedEntry) -> Iterator[Problem]:
        """Yield the patterns that match nothing: such a rule has a typo or is outdated."""
        yield from self._unmatched_patterns((*keys, "model"), rule.model, self._names)
        if self._checked.is_whole("stacks"):
            yield from self._unmatched_patterns((*keys, "stack"), rule.stack, self._ids)
        if self._checked.is_whole("models", "defaults"):
            variants = self._variants(rule.model)
            yield from self._unmatched_patterns((*keys, "variant"), rule.variant, variants)
        if isinstance(rule, ExpectedEntry) and rule.verdict not in _WITHOUT_SIGNALS:
            yield from self._unmatched_patterns((*keys, "signal"), rule.signal, signal_names())

    def _unmatched_patterns(
        self, keys: Keys, patterns: list[str], names: Iterable[str]
    ) -> Iterator[Problem]:
        names = list(names)
        for number, pattern in enumerate(patterns):
            if not any(fnmatchcase(name, pattern) for name in names) and pattern != "*":
                text = f"{shown(pattern)} matches no {keys[-1]}: {nearest(pattern, names)}"
                yield Problem(self._yaml.place((*keys, number)), text)

    def _variants(self, patterns: list[str]) -> list[str]:
        matching = [
            model
            for name, model in self._models.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        models = matching or self._models.values()
        return list(dict.fromkeys(str(variant) for model in models for variant in model.variants))


def _bad_folder(base: Path, path: str) -> str | None:
    """Return the fault of a model's folder in words, or None."""
    try:
        folder = base / Path(path).expanduser()
        if not folder.exists():
            return f"{shown(path)} does not exist{_hint(folder)}"
        if not folder.is_dir():
            return f"{shown(path)} is a file: name the folder that holds config.json"
        if not (folder / "config.json").is_file():
            return f"{shown(path)} holds no config.json: is it a checkpoint in HF form?"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def _bad_patch(base: Path, folder: Path, names: list[str]) -> str | None:
    """Return the fault of the last patch, applied after those before it; or None."""
    try:
        patches = [base / Path(patch).expanduser() for patch in names]
        if not patches[-1].exists():
            return f"{shown(names[-1])} does not exist{_hint(patches[-1])}"
        patched_files(folder, patches)
    except PatchError as error:
        return str(error)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{shown(names[-1])} cannot be read: {reason}"
    return None


def _hint(folder: Path) -> str:
    names = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    suggestion = nearest(folder.name, names)
    return (
        f": {suggestion}" if suggestion.startswith("did") else ": it is relative to the matrix file"
    )


def _stack(entry: StackEntry, file: MatrixFile) -> StackSpec:
    return StackSpec(
        id=entry.id or entry.transformers,
        transformers=entry.transformers,
        torch=entry.torch or file.torch,
        python=entry.python or file.python,
        packages=tuple(entry.packages),
    )


def _model(name: str, entry: ModelEntry, defaults: DefaultsEntry) -> ModelSpec:
    prompts = entry.prompts or defaults.prompts
    path = entry.path
    return ModelSpec(
        name=name,
        hub=entry.hub,
        revision=entry.revision,
        path=_expand_home(path) if path else None,
        patch=tuple(_expand_home(patch) for patch in entry.patch or ()),
        build=_recipe(entry.build) if entry.build else None,
        trust_remote_code=entry.trust_remote_code,
        group=entry.group,
        dtypes=tuple(entry.dtypes or defaults.dtypes),
        attention=tuple(entry.attention or defaults.attention),
        devices=tuple(entry.devices or defaults.devices),
        prompts={name: _prompt(prompt) for name, prompt in prompts.items()},
        greedy=defaults.greedy if entry.greedy is None else entry.greedy,
        invariants=defaults.invariants if entry.invariants is None else entry.invariants,
        insists=bool(entry.invariants or entry.samples),
        crossings=defaults.crossings if entry.crossings is None else entry.crossings,
        usage=defaults.usage if entry.usage is None else entry.usage,
        samples=defaults.samples if entry.samples is None else entry.samples,
        timeout=entry.timeout or defaults.timeout,
        budget=entry.budget or defaults.budget,
    )


def _expand_home(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _recipe(entry: BuildEntry) -> Recipe:
    return Recipe(
        architecture=entry.architecture,
        config=entry.config,
        head=entry.head,
        seed=entry.seed,
        stack=entry.stack,
        gain=entry.gain,
    )


def _prompt(entry: InputEntry) -> Prompt:
    batch = entry.batch if isinstance(entry, PromptEntry) else None
    return Prompt(
        text=entry.text,
        ids=None if entry.ids is None else tuple(entry.ids),
        length=entry.length,
        batch=None if batch is None else tuple(_prompt(item) for item in batch),
    )


def _rule(entry: RuleEntry) -> Rule:
    return Rule(
        model=tuple(entry.model),
        variant=tuple(entry.variant),
        stack=tuple(entry.stack),
        reason=entry.reason or "",
    )


def _expected(entry: ExpectedEntry, line: int) -> Expected:
    return Expected(
        model=tuple(entry.model),
        variant=tuple(entry.variant),
        stack=tuple(entry.stack),
        signal=tuple(entry.signal),
        verdict=entry.verdict,
        reason=entry.reason,
        reference=entry.reference or "",
        title=entry.title or "",
        explanation=entry.explanation or "",
        line=line,
    )
