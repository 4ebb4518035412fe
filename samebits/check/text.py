"""The text of a matrix.yaml for models that somebody has named, with comments for its reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from samebits.check.model import NamedModel
from samebits.matrix.values import is_source
from samebits.records.question import switches

SCHEMA = ".samebits/matrix.schema.json"
"""Path of the schema beside matrix.yaml: an installed package has no path to write into a file."""

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*", re.ASCII)
_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n"})


_LISTS = {
    "packages": "packages",
    "import": "imports",
    "dtypes": "dtypes",
    "attention": "attention",
    "devices": "devices",
}
"""Key of matrix.yaml -> field of :class:`Entry`, for those that are lists."""


class Entry(NamedTuple):
    """One model of the file."""

    name: str
    model: NamedModel
    trusts_code: bool = False
    dtypes: Sequence[str] = ()
    attention: Sequence[str] = ()
    devices: Sequence[str] = ()
    packages: Sequence[str] = ()
    imports: Sequence[str] = ()
    model_class: str | None = None


def matrix_text(
    entries: Iterable[Entry], stacks: Iterable[str], program: str, packages: Sequence[str] = ()
) -> str:
    """Return the text of matrix.yaml; ``program`` is the command that runs it.

    ``packages`` are requirements of every stack.
    """
    if packages:
        wanted = ", ".join(map(_quoted, packages))
        stacks = [f"{{transformers: {json.dumps(s)}, packages: [{wanted}]}}" for s in stacks]
    else:
        stacks = [json.dumps(s) if is_source(s) else s for s in stacks]
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        "#",
        f"# Which models run under which releases of transformers. {program} compares them and writes",
        f"# reports/latest/report.md. {program} --help lists the options, such as --quick and --releases.",
        "version: 1",
        "",
        "# 4.57 is the newest 4.57.*, 5.x the newest release, 4.57.1 exactly that one. The oldest is the",
        "# reference: the others are compared with it, byte for byte.",
        f"environments: [{', '.join(stacks)}]",
        "",
        "defaults:",
        "  dtypes: [float32]  # or several of float64, float32, float16, bfloat16",
        "  # What is tried beside weights, forward and decoding; false leaves it out.",
        *(f"  {word}: true  # {key.hint}" for word, key in switches().items()),
        "",
        "models:",
    ]
    for entry in entries:
        lines += [f"  {line}" for line in _entry(entry)]
    return "\n".join([*lines, *_EXPECTED]) + "\n"


_EXPECTED = (
    "",
    "# A difference that is known and right does not fail the run if it is listed:",
    "# expected:",
    "#   - {model: NAME, environment: 5.x, signal: [logits], reason: why it differs}",
)


def _entry(entry: Entry) -> Iterable[str]:
    model = entry.model
    saved = f", saved with transformers {model.saved_with}" if model.saved_with else ""
    yield _comment(f"{model.kind}{saved}")
    yield f"{entry.name}:"
    if model.tiny:
        number = f", config_variant: {model.config_variant}" if model.config_variant else ""
        yield f"  build: {{architecture: {_quoted(model.tiny)}, auto: true{number}}}"
    elif model.hub is None:
        path = str(model.path)
        # matrix.yaml reads a tilde at the beginning as the home folder
        yield f"  path: {_quoted(f'./{path}' if path.startswith('~') else path)}"
    else:
        yield f"  hub: {_quoted(model.hub)}"
        if model.revision:
            yield f"  revision: {_quoted(model.revision)}"
        else:
            yield "  # revision: a commit; without one, nothing is kept between runs"
    if model.has_code and not entry.trusts_code:
        yield "  # Its own code runs only with true, inside the environments: read it first."
    if model.has_code or entry.trusts_code:
        yield f"  trust_remote_code: {'true' if entry.trusts_code else 'false'}"
    for key, name in _LISTS.items():
        if values := getattr(entry, name) or (model.dtypes if name == "dtypes" else ()):
            yield f"  {key}: [{', '.join(map(_quoted, values))}]"
    if entry.model_class is not None:
        yield f"  class: {_quoted(entry.model_class)}"


def _comment(text: str) -> str:
    """Return a comment; what another file says must not end its line."""
    return f"# {''.join(c if c.isprintable() else ' ' for c in text)}"


def _quoted(text: str) -> str:
    """Return a text as YAML: as it is where that is safe, else with the quotes of JSON."""
    is_plain = _PLAIN.fullmatch(text) and text.casefold() not in _WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)
