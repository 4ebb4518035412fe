"""``samebits init``: a matrix.yaml for the models that are named, or that lie in the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from samebits.base.errors import SamebitsError
from samebits.base.options import Option
from samebits.base.workfolder import keep_from_git
from samebits.check.model import NamedModel, read_folder, read_model
from samebits.check.releases import NEWEST, USUAL, minor_of
from samebits.check.text import SCHEMA, Entry, matrix_text
from samebits.matrix.checkpoint import CheckpointError
from samebits.matrix.load import age
from samebits.records.record import Record
from samebits.text.numbers import plural
from samebits_wire.atomic import replace

MATRIX = Path("matrix.yaml")
NOXFILE = Path("noxfile.py")
MAX_DEPTH = 3
MAX_MODELS = 20
_SKIPPED = frozenset({"node_modules", "site-packages", "reports", "__pycache__", "venv"})

NOX_TEXT = '''\
"""``nox -s matrix`` compares the models of matrix.yaml under several releases of transformers."""

import nox


@nox.session
def matrix(session):
    session.install("samebits")
    session.run("samebits", "matrix", *session.posargs)
'''


class InitError(SamebitsError):
    """There is no model to write down, or a file of the user's would be replaced."""


class Options(Record):
    """The options of the command."""

    models: Annotated[tuple[str, ...], Option("MODEL", "")] = ()
    """Folders with config.json and hub ids, such as org/name@revision (default: every checkpoint in this
    folder)."""
    force: Annotated[bool, Option()] = False
    """Replace matrix.yaml if it exists."""
    trust_remote_code: Annotated[bool, Option()] = False
    """Let the code run that comes with these models, inside the environments."""


def write_files(options: Options) -> list[str]:
    """Write matrix.yaml, its schema and, if there is none, noxfile.py; return the lines to print.

    Raises:
        InitError: matrix.yaml exists, there is no checkpoint, or the folder cannot be written.
        CheckpointError: a model cannot be read.

    """
    if MATRIX.exists() and not options.force:
        raise InitError(
            f"{MATRIX} exists: --force replaces it. To add a model to it, write its folder or its "
            "id under models:, as in my-model: {path: ../checkpoint}"
        )
    models = [read_model(text, offline=True) for text in options.models] or list(_models_here())
    if not models:
        raise InitError(
            f"no checkpoint lies in {Path.cwd()}: a checkpoint is a folder with config.json. Name "
            "folders or ids of the hub: samebits init ../checkpoint org/name"
        )
    entries = list(_entries(models, trusts_code=options.trust_remote_code))
    has_nox = NOXFILE.exists()
    stacks = stacks_of(models)
    schema = files("samebits").joinpath("schemas/matrix.schema.json").read_text("utf-8")
    try:
        replace(MATRIX, matrix_text(entries, stacks, "samebits matrix"))
        replace(Path(SCHEMA), schema)
        keep_from_git(Path(SCHEMA).parent)
        if not has_nox:
            replace(NOXFILE, NOX_TEXT)
    except OSError as error:
        msg = f"{Path.cwd()} cannot be written: {error.strerror or error}: run samebits init in a folder of yours"
        raise InitError(msg) from error
    return list(_lines(entries, stacks, has_nox=has_nox))


def stacks_of(models: Iterable[NamedModel]) -> tuple[str, ...]:
    """Return the releases to compare: the usual ones from the oldest that saved a model on."""
    saved = [minor for model in models if (minor := minor_of(model.saved_with))]
    if not saved:
        return USUAL
    first = min(saved, key=age)
    later = [id_ for id_ in USUAL if age(id_) > age(first)]
    # a model that the newest release saved is compared with the release before
    return (first, *later) if later != [NEWEST] else (USUAL[-2], NEWEST)


def _models_here() -> Iterator[NamedModel]:
    """Yield the checkpoints in the current folder and the folders in it."""
    count = 0
    for root, folders, names in os.walk("."):
        path = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and len(path.parts) < MAX_DEPTH
        )
        if "config.json" not in names:
            continue
        try:
            model = read_folder(path)
        except CheckpointError:
            continue  # a config of something else
        if "model_type" in model.config or "architectures" in model.config:
            count += 1
            yield model
        if count == MAX_MODELS:
            return


def _entries(models: Iterable[NamedModel], *, trusts_code: bool) -> Iterator[Entry]:
    """Yield an entry per model, with names that differ even where case does not count."""
    taken: set[str] = set()
    for model in models:
        name, number = model.name, 1
        while name.casefold() in taken:
            number += 1
            name = f"{model.name[:70]}-{number}"
        taken.add(name.casefold())
        yield Entry(name, model, trusts_code and model.has_code)


def _lines(entries: list[Entry], stacks: Iterable[str], *, has_nox: bool) -> Iterator[str]:
    yield f"{MATRIX}: {plural(len(entries), 'model')} under {', '.join(stacks)}"
    for entry in entries:
        yield f"  {entry.name}: {entry.model.typed}, {entry.model.kind}"
        if entry.model.has_code and not entry.trusts_code:
            yield (
                "    it comes with code of its own: read it, then set trust_remote_code: true, or "
                "give --trust-remote-code to samebits init"
            )
    if not has_nox:
        yield f"{NOXFILE}: nox -s matrix"
    elif "samebits" not in NOXFILE.read_text("utf-8", "replace"):
        yield f"{NOXFILE} exists and was left as it is; a session for the matrix:"
        yield from (f"    {line}" for line in NOX_TEXT.splitlines()[5:])
    if len(entries) == MAX_MODELS:
        yield f"Only the first {MAX_MODELS} checkpoints are listed."
    yield "Next: samebits matrix (--help lists the options)"
