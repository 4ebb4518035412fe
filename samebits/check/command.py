"""``samebits check MODEL``: a run of one model from one release to another, without a file.

The models and releases are written as the text of a matrix.yaml and read by its loader, so a check
is a run of a matrix like any other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from samebits.base.errors import MatrixError, SamebitsError
from samebits.base.homes import expanded
from samebits.check import adapter
from samebits.check.intro import code_problems, in_words, intro, of_last, places
from samebits.check.model import NamedModel, fitting_name, not_run, read_model, tiny_model
from samebits.check.options import CODE_KEYS, Options, code_of, variants_of
from samebits.check.releases import Span, span
from samebits.check.shown import Command, command_of
from samebits.check.text import Entry, matrix_text
from samebits.matrix import load, yamltext
from samebits.matrix.checkpoint import CheckpointError, config_faults
from samebits.matrix.sources import ARRAYS
from samebits.matrix.spec import Matrix
from samebits.matrix.values import is_path_of_package, is_source
from samebits.matrix.yamltext import Yaml
from samebits.reports.plain import Place

INPUTS = "inputs"
"""The key of the file of --inputs, as in an entry of matrix.yaml."""
ARRAY_SET = "given"
"""Name of the set that a file of arrays is."""


class CodeError(SamebitsError):
    """The model comes with code of its own, and nobody has said whether it may run."""


class Check(NamedTuple):
    """What is run, and what is said of it before the run."""

    name: str
    source: str
    """The folder as an absolute path, or the id on the hub: what tells two models of one name apart."""
    matrix: Matrix
    command: Command
    intro: tuple[str, ...]
    places: dict[str, Place]
    """Code of a finding -> file, line and column of the model's code that shows it."""
    last: frozenset[str]
    """The codes of these that the last release has."""


def prepare(options: Options, scan: str | None = None) -> Check:
    """Return the run that the options ask for; ``scan`` is the package whose releases vary in the last one.

    Raises:
        CheckpointError: there is no such model.
        ReleaseError: there is no such release.
        CodeError: the model has code of its own, and no option says whether it may run.
        OptionError: a dtype, an attention implementation or a device does not exist.
        MatrixError: the file of --inputs has a mistake.

    """
    model = _named(options.model)
    releases = span(model.saved_with, options.first, options.last)
    if scan is not None:
        reason = f"with the releases of {scan} that fit"
        releases = releases._replace(stacks=releases.stacks[-1:], reason=reason)
    has_named_code = bool(options.imports or options.model_class)
    if model.loads_code and options.trust_remote_code is None and not has_named_code:
        raise CodeError(_untrusted(model))
    variants, code = variants_of(options), code_of(options)
    if model.path is not None:
        model = model._replace(path=str(Path(model.path).absolute()))
    of_model = {name: value for name, value in code.items() if name in CODE_KEYS}
    entry = Entry(model.name, model, bool(options.trust_remote_code), **(of_model | variants))
    matrix = _matrix(entry, releases, code["environment_packages"], options.inputs)
    if model.hub:
        # a folder is looked at when the run begins, as are those of matrix.yaml
        _check_config(model, matrix)
    problems = code_problems(model, releases) if model.has_code and entry.trusts_code else []
    lines = [
        *intro(model, releases, has_dtypes=bool(variants["dtypes"])),
        *in_words(problems, model),
        *([not_run(model.code)] if model.has_code and not entry.trusts_code else []),
    ]
    return Check(
        model.name,
        str(Path(model.path).resolve()) if model.path is not None else model.hub or model.typed,
        matrix,
        command_of(options, model, code, variants),
        tuple(lines),
        places(problems),
        frozenset(of_last(problems, releases)),
    )


def _named(text: str) -> NamedModel:
    """Return the model of a word; that of an adapter by itself is its base with the adapter."""
    folder = expanded(text)
    if not adapter.is_alone(folder):
        return tiny_model(text) or read_model(text)
    name = fitting_name(folder.absolute().name)
    return read_model(str(adapter.joined(folder, os.environ)))._replace(name=name)


def _check_config(model: NamedModel, matrix: Matrix) -> None:
    faults = [*config_faults(f"{model.typed}: config.json", model.config, matrix.models[0])]
    if faults:
        raise CheckpointError("\n".join(faults))


def _matrix(
    entry: Entry, releases: Span, environment_packages: Sequence[str], inputs: Path | None
) -> Matrix:
    """Return the matrix of one model, whose relative paths are those of the file of its inputs."""
    if inputs is not None:
        packages = [str(Path(p).absolute()) if is_path_of_package(p) else p for p in entry.packages]
        entry = entry._replace(packages=packages)
    stacks = [str(Path(s).absolute()) if is_source(s) else s for s in releases.stacks]
    text = matrix_text([entry], stacks, "samebits check", environment_packages)
    yaml = yamltext.parse(text.encode())
    if inputs is None:
        return load.parse(yaml, Path.cwd() / "check")
    return load.parse(yaml.with_part(("models", entry.name), _inputs(inputs), INPUTS), inputs)


def _inputs(path: Path) -> Yaml:
    """Return the file of a model's inputs; a file of arrays is short for one that names it."""
    if path.suffix in ARRAYS:
        name = json.dumps(path.name)
        return yamltext.parse(f"{INPUTS}: {{{ARRAY_SET}: {{file: {name}}}}}".encode())
    yaml = yamltext.read(path)
    if not yaml.problems and not (isinstance(yaml.data, dict) and set(yaml.data) == {INPUTS}):
        text = f"the file has one key, {INPUTS}, and below it a name and what forward is given"
        yaml = replace(yaml, problems=(yamltext.Problem(yamltext.FILE, text),))
    if yaml.problems:
        raise MatrixError(load.lines(yaml.problems, path))
    return yaml


def _untrusted(model: NamedModel) -> str:
    read = f"read it (samebits lint {model.path} names what breaks), " if model.path else ""
    return (
        f"{model.typed}: the model comes with code of its own: {model.code.places}. "
        f"That code runs only if you say so: {read}then add --trust-remote-code. "
        "With --no-trust-remote-code the class of transformers is used, if it has one."
    )
