"""``samebits check MODEL``: a run of one model from one release to another, without a file.

The models and releases are written as the text of a matrix.yaml and read by its loader, so a check
is a run of a matrix like any other.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import ValidationError

from samebits.base.digests import digest_of
from samebits.base.errors import MatrixError, SamebitsError
from samebits.base.options import Option, name_of
from samebits.check import hub
from samebits.check.model import not_run, read_model, tiny_model
from samebits.check.releases import NEWEST, span
from samebits.check.text import Entry, matrix_text
from samebits.lint.engine import UNREADABLE, lint, python_files
from samebits.lint.releases import scope
from samebits.matrix import load, yamltext
from samebits.matrix.checkpoint import CheckpointError, config_faults
from samebits.matrix.plan import command_line, shown_path, shown_release
from samebits.matrix.sources import ARRAYS
from samebits.matrix.spec import ModelEntry, Settings, StackEntry
from samebits.matrix.values import is_path_of_package, is_source
from samebits.records.record import Record
from samebits.reports.plain import Place
from samebits.text.lists import comma_list
from samebits.text.numbers import plural
from samebits_wire.atomic import read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samebits.check.model import NamedModel
    from samebits.check.releases import Span
    from samebits.lint.problem import Problem
    from samebits.matrix.spec import Matrix
    from samebits.matrix.yamltext import Yaml

REPORTS = Path("reports") / "check"
"""Folder of the reports of checks, one folder per model, in the current folder."""

LOCK_AGE = 7 * 86_400.0
"""Seconds after which a check asks again which releases are the newest."""

INPUTS = "inputs"
"""The key of the file of --inputs, as in an entry of matrix.yaml."""
ARRAY_SET = "given"
"""Name of the set that a file of arrays is."""
_MAX_PROBLEMS = 5


_VARIANTS = ("dtypes", "attention", "devices")


class OptionError(SamebitsError):
    """The value of an option does not exist."""


class CodeError(SamebitsError):
    """The model comes with code of its own, and nobody has said whether it may run."""


class Check(NamedTuple):
    """What is run, and what is said of it before the run."""

    name: str
    source: str
    """The folder as an absolute path, or the id on the hub: what tells two models of one name apart."""
    matrix: Matrix
    program: tuple[str, ...]
    """The command without options that say how much is asked, as a published report may have it."""
    typed: str
    """The model as it was typed, for the terminal."""
    typed_of: dict[str, str]
    """Path in a report -> what was typed, of the options with a path."""
    words: tuple[str, ...]
    """The options that name the releases and the variants."""
    intro: tuple[str, ...]
    places: dict[str, Place]
    """Code of a finding -> file, line and column of the model's code that shows it."""


class Options(Record):
    """The options that a run of a matrix does not have."""

    model: Annotated[str, Option("MODEL", "")]
    """A folder with config.json, or with a tokenizer or processors alone; a hub id, org/name@revision; or type:NAME, a
    tiny model of a model_type, and type:NAME#2, one with other values of its config's switches."""
    first: Annotated[str | None, Option("RELEASE", "--from")] = None
    """The reference, such as 4.57 or 4.57.1 (default: the release that saved the model)."""
    last: Annotated[str | None, Option("RELEASE", "--to")] = None
    """The release to judge (default: the newest)."""
    trust_remote_code: Annotated[bool | None, Option()] = None
    """Run the code that comes with the model, inside the environments; --no-trust-remote-code: run
    transformers' own class instead."""
    packages: Annotated[tuple[str, ...], Option("WHAT", "--package")] = ()
    """A package with the model's code, such as my-models==1.2 or ./my-models; may be repeated."""
    environment_packages: Annotated[tuple[str, ...], Option("WHAT", "--environment-package")] = ()
    """A requirement for every environment, such as 'numpy<2' or pillow; may be repeated."""
    imports: Annotated[tuple[str, ...], Option("MODULE", "--import")] = ()
    """A module that registers the model with the Auto classes; may be repeated."""
    model_class: Annotated[str | None, Option("MODULE:NAME", "--class")] = None
    """The model's class, where no Auto class has it."""
    inputs: Annotated[Path | None, Option("FILE", type=Path)] = None
    """What to give forward: a file with inputs: as matrix.yaml has it, or arrays, .npz or .safetensors."""
    dtypes: Annotated[str, Option("NAMES")] = ""
    """Default: float32, behind bfloat16 or float16 if config.json names it."""
    attention: Annotated[str, Option("NAMES")] = ""
    """Such as eager,sdpa (default: default)."""
    devices: Annotated[str, Option("NAMES")] = ""
    """Such as cpu,cuda (default: cpu)."""


def prepare(options: Options) -> Check:
    """Return the run that the options ask for.

    Raises:
        CheckpointError: there is no such model.
        ReleaseError: there is no such release.
        CodeError: the model has code of its own, and no option says whether it may run.
        OptionError: a dtype, an attention implementation or a device does not exist.
        MatrixError: the file of --inputs has a mistake.

    """
    model = tiny_model(options.model) or read_model(options.model)
    releases = span(model.saved_with, options.first, options.last)
    has_named_code = bool(options.imports or options.model_class)
    if model.loads_code and options.trust_remote_code is None and not has_named_code:
        raise CodeError(_untrusted(model))
    trusts_code = bool(options.trust_remote_code)
    listed = {name: option_values(name, getattr(options, name)) for name in _VARIANTS}
    if model.path is not None:
        model = model._replace(path=str(Path(model.path).absolute()))
    source = str(Path(model.path).resolve()) if model.path is not None else model.hub or model.typed
    code = _code_of(options)
    of_model = {name: value for name, value in code.items() if name in _CODE_KEYS}
    entry = Entry(model.name, model, trusts_code, **(of_model | listed))
    matrix = _matrix(entry, releases, code["environment_packages"], options.inputs)
    if model.hub:
        # a folder is looked at when the run begins, as are those of matrix.yaml
        faults = [*config_faults(f"{model.typed}: config.json", model.config, matrix.models[0])]
        if faults:
            raise CheckpointError("\n".join(faults))
    shown_model = model.typed if model.path is None else shown_path(Path(options.model))
    program: tuple[str, ...] = ("samebits", "check", shown_model, *_code_words(code))
    if options.trust_remote_code is not None:
        switch = "--trust-remote-code" if trusts_code else "--no-trust-remote-code"
        program = (*program, switch)
    inputs = None if options.inputs is None else shown_path(options.inputs)
    ends = [text if text is None else shown_release(text) for text in (options.first, options.last)]
    named = (("--from", ends[0]), ("--to", ends[1]), ("--inputs", inputs))
    shown = dict(zip((*ends, inputs), (options.first, options.last, options.inputs), strict=True))
    words = [word for option, value in named if value for word in (option, value)]
    words += [
        w for name, values in listed.items() if values for w in (f"--{name}", ",".join(values))
    ]
    problems = _code_problems(model, releases) if model.has_code and trusts_code else []
    intro = [
        *_intro(model, releases, has_dtypes=bool(listed["dtypes"])),
        *_in_words(problems, model),
    ]
    intro += [not_run(model.code)] if model.has_code and not trusts_code else []
    places = {problem.code: _place(problem) for problem in reversed(problems)}
    return Check(
        model.name,
        source,
        matrix,
        program,
        options.model,
        {path: str(text) for path, text in shown.items() if path},
        tuple(words),
        tuple(intro),
        places,
    )


_MARK = ".samebits-model"


@contextmanager
def claimed_folder(check: Check) -> Iterator[Path]:
    """Yield the folder of a check's report: of two models with one name, the second gets digits.

    The folder belongs to the model before it runs, so two checks at the same time have one each. If
    the run raises, the claim is given back.
    """
    first, digest = REPORTS / check.name, digest_of(check.source)
    mark = first / _MARK
    new_folders = [path for path in (first, *first.parents) if not path.exists()]
    first.mkdir(parents=True, exist_ok=True)
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(digest)
    except FileExistsError:
        yield first if _holds(mark, digest) else REPORTS / f"{check.name}-{digest[:6]}"
        return
    try:
        yield first
    except BaseException:
        with suppress(OSError):
            mark.unlink()
            for path in new_folders:
                path.rmdir()
        raise


def _holds(mark: Path, digest: str) -> bool:
    try:
        return read_whole(mark) == digest.encode()
    except OSError:
        return False


_CODE = ("packages", "environment_packages", "imports", "model_class")
_CODE_KEYS = {"packages": "packages", "imports": "import", "model_class": "class"}


def _code_of(options: Options) -> dict[str, Any]:
    """Return the options about code in packages. Raises OptionError for one with a mistake."""
    code = {field: getattr(options, field) for field in _CODE}
    for field, value in code.items():
        try:
            if value and field == "environment_packages":
                StackEntry.model_validate({"transformers": NEWEST, "packages": value})
            elif value:
                # any source does, as only this key is looked at
                entry = {"hub": "a/b", _CODE_KEYS[field]: value}
                ModelEntry.model_validate(entry, context={"folder": Path.cwd()})
        except ValidationError as error:
            msg = f"{name_of(Options, field)}: {error.errors()[0]['msg']}"
            raise OptionError(msg) from error
    return code


def _code_words(code: dict[str, Any]) -> Iterator[str]:
    for field in _CODE:
        option = name_of(Options, field)
        values = code[field] if isinstance(code[field], tuple) else [code[field]]
        for value in filter(None, values):
            is_path = field == "packages" and is_path_of_package(value)
            yield from (option, shown_path(Path(value)) if is_path else value)


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


def _intro(model: NamedModel, releases: Span, *, has_dtypes: bool) -> Iterator[str]:
    size = f", {_size(model.size)}" if model.size else ""
    commit = f" at {model.revision}" if model.hub and model.revision else ""
    yield f"{model.name}: {model.kind}{size}{commit}"
    stacks = releases.stacks
    compared = f"transformers {stacks[0]}" if len(stacks) == 1 else " → ".join(stacks)
    yield f"compared: {compared} ({releases.reason})"
    if model.dtypes and not has_dtypes:
        yield f"in {model.dtypes[0]}, which config.json names, and in {model.dtypes[1]}"


def _size(n_bytes: int) -> str:
    unit, name = next(
        (u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if n_bytes >= u or u == 1e3
    )
    return f"{n_bytes / unit:,.1f} {name}"


def _code_problems(model: NamedModel, releases: Span) -> list[Problem]:
    """Return what the model's code alone shows in these releases, before anything runs.

    What one of the two releases has comes before what only those between them have.
    """
    folder = Path(model.path) if model.path else hub.code_folder(str(model.hub), model.revision)
    if folder is None:
        return []
    first, last = (None if is_source(s) else s for s in (releases.stacks[0], releases.stacks[-1]))
    compared = scope(first, last)
    ends = [scope(end, end) for end in (first, last) if end is not None]
    problems = lint(python_files([folder])).problems
    met = [p for p in problems if p.code == UNREADABLE or p.releases.meet(compared)]
    return sorted(met, key=lambda p: bool(ends) and not any(map(p.releases.meet, ends)))


def _in_words(problems: list[Problem], model: NamedModel) -> Iterator[str]:
    if not problems:
        return
    yield f"seen by reading its code: {plural(len(problems), 'problem')}"
    for problem in problems[:_MAX_PROBLEMS]:
        yield f"  {_place(problem)}: {problem.code} {problem.message} ({problem.releases})"
    if len(problems) > _MAX_PROBLEMS:
        yield f"  … and {len(problems) - _MAX_PROBLEMS} more: samebits lint {model.typed}"


def _place(problem: Problem) -> Place:
    return Place(problem.path.name, problem.line, problem.column)


def _untrusted(model: NamedModel) -> str:
    read = f"read it (samebits lint {model.path} names what breaks), " if model.path else ""
    return (
        f"{model.typed}: the model comes with code of its own: {model.code.places}. "
        f"That code runs only if you say so: {read}then add --trust-remote-code. "
        "With --no-trust-remote-code the class of transformers is used, if it has one."
    )


def option_values(name: str, text: str) -> tuple[str, ...]:
    """Return the values of an option that is a list. Raises OptionError."""
    values = comma_list(text)
    try:
        Settings.model_validate({name: values} if values else {})
    except ValidationError as error:
        msg = f"--{name}: {error.errors()[0]['msg']}"
        raise OptionError(msg) from error
    return values


def shown_command(check: Check, words: list[str]) -> str:
    """Return the command for a run that shows the same; ``words`` say how much is asked."""
    return command_line(check.program, [*check.words, *words])


def typed_command(check: Check, words: list[str]) -> str:
    """Return that command for the user's own terminal, where no folder is a secret."""
    program = (*check.program[:2], check.typed, *check.program[3:])
    own = tuple(check.typed_of.get(word, word) for word in check.words)
    return shown_command(check._replace(program=program, words=own), words)
