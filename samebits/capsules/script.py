"""Text of the script for one stack: short, because a maintainer reads it first.

``script.py.jinja`` is the script, which needs only torch, transformers and the standard library. Names,
messages and numbers of a run reach it as Python literals or as checked identifiers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from types import MappingProxyType
from typing import Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from packaging.version import Version

from samebits.capsules.files import STAND_IN
from samebits.records.capsule import Fed, Question, Seen, script_name
from samebits.records.ids import Variant
from samebits.stacks.build import release_pattern
from samebits.text.numbers import plural

ZerosIn = Literal["model.safetensors", "pytorch_model.bin"]

WIDTH = 88
FOLDER = "checkpoint"
"""Folder next to the scripts with the files of the model."""


class Subject(NamedTuple):
    """The common part of a capsule's scripts."""

    model: str
    variant: Variant
    question: Question
    model_class: str
    """Name of a class in transformers."""
    hub: str | None = None
    """Hub id; None: the checkpoint is in :data:`FOLDER`."""
    revision: str | None = None
    trust_remote_code: bool = False
    class_module: str = ""
    """Module of a class that a package brings; '' for a class of transformers."""
    modules: tuple[str, ...] = ()
    """Modules to import before the load."""
    options: tuple[tuple[str, object], ...] = ()
    """Further arguments of from_pretrained."""
    logits: str | None = None
    """Name of the output that plays the part of the logits; None: the usual one."""
    zeros: ZerosIn | None = None
    """The file of zeros that a script writes in place of the weights; None: it has weights."""
    files: Mapping[str, str] = MappingProxyType({})
    """The files of the checkpoint beside the scripts: path -> SHA-256."""


class Installed(NamedTuple):
    """The packages that one script installs."""

    stack: str
    python: str
    packages: dict[str, str]
    """Name -> version of all packages of the lock; a package from git has its address there."""
    wheels: Mapping[str, str] = MappingProxyType({})
    """Name -> name of a wheel beside the script."""

    @property
    def transformers(self) -> str:
        """The release of transformers."""
        return self.packages["transformers"]


class Expectation(NamedTuple):
    """The result that a script expects, and hints for a different one."""

    sees: Seen
    other: Seen
    other_stack: str
    cpu: str
    """CPU capability of the measurement."""
    first_index: tuple[int, ...] | None = None
    """Index of the first element that differs."""


def script(subject: Subject, installed: Installed, expectation: Expectation | None = None) -> str:
    """Return the text of a script. Without an expectation, for a trial, it only measures."""
    question, is_unstable = subject.question, _is_unstable(expectation)
    return _TEMPLATE.render(
        **_metadata(installed),
        subject=subject,
        question=question,
        release=installed.transformers,
        script=script_name(installed.stack),
        computed=_computed(question),
        imports=_imports(subject, expectation),
        own_imports=_own_imports(subject),
        checkpoint=_checkpoint(subject),
        constants=[
            *_constants(question),
            *_file_constants(subject, expectation),
            *_expected_constants(expectation),
        ],
        files=subject.files,
        mismatch="{first, other} != {EXPECTED}" if is_unstable else "digest != EXPECTED",
        stand_in=STAND_IN,
        has_data=_has_data(question),
        has_seed=_has_seed(question),
        result=_result_words(question),
        load=_load(subject, installed),
        forward=_forward(subject),
        arguments=_arguments(subject),
        expectation=expectation,
        sees=expectation and expectation.sees,
        is_unstable=is_unstable,
        first_index=_elements(expectation),
        other_script=expectation and script_name(expectation.other_stack),
    )


def _metadata(installed: Installed) -> dict[str, object]:
    """Return the inline metadata (PEP 723) with the whole lock, torch and transformers first.

    A local build such as ``+cpu`` is not on a public index, so its public version is pinned.
    """
    pins = {name: _pin(name, version) for name, version in installed.packages.items()}
    first = [pins.pop(name) for name in ("torch", "transformers")]
    rest = " ".join(pin for _, pin in sorted(pins.items()) if "://" not in pin)
    # a line must not end inside of an address
    addresses = [pin for _, pin in sorted(pins.items()) if "://" in pin]
    return {
        "python": release_pattern(installed.python),
        "first_pins": first,
        "pins": [*textwrap.wrap(rest, WIDTH - 6, break_on_hyphens=False), *addresses],
        "wheels": sorted(installed.wheels.items()),
    }


def _pin(name: str, version: str) -> str:
    if "://" in version:
        return f'"{name} @ {version}",'
    return f'"{name}=={Version(version).public}",'


def _literal(text: str) -> str:
    """Return an ASCII Python literal, in double quotes if they need no escape."""
    literal = ascii(text)
    if literal[0] == '"' or '"' in literal:
        return literal
    body = literal[1:-1]
    return f'"{body}"'


def _computed(question: Question) -> str:
    return {
        "forward": "the logits of one forward",
        "generate": f"the logits of {plural(question.steps, 'greedy step')} with the KV cache",
        "parameter": "a parameter after loading",
        "buffer": "a buffer after loading",
    }[question.kind]


def _imports(subject: Subject, expectation: Expectation | None) -> list[str]:
    names: set[str] = set()
    if expectation is not None:
        names |= {"sys", "traceback"} if expectation.sees.error else {"hashlib", "sys"}
        names |= {"hashlib"} if subject.files else set()
    if _is_unstable(expectation):
        names |= {"os", "subprocess"}
    if _has_seed(subject.question):
        names |= {"hashlib", "math"}
    if _has_data(subject.question):
        names.add("base64")
    if subject.zeros is not None:
        names |= {"json", "os", "tempfile"}
    path = ["from pathlib import Path"] if subject.hub is None else []
    return [*(f"import {name}" for name in sorted(names)), *path]


def _own_imports(subject: Subject) -> list[str]:
    lines = [f"import {name}  # registers the model" for name in subject.modules]
    if subject.class_module:
        lines.append(f"from {subject.class_module} import {subject.model_class}")
    return lines


def _has_data(question: Question) -> bool:
    return any(fed.data for fed in question.feed.values())


def _has_seed(question: Question) -> bool:
    return any(fed.seed is not None for fed in question.feed.values())


def _checkpoint(subject: Subject) -> str:
    if subject.hub is None:
        return f'Path(__file__).parent / "{FOLDER}"'
    return _literal(subject.hub)


def _constants(question: Question) -> list[str]:
    lines = []
    for key, fed in question.feed.items():
        if fed.is_rows:
            lines.append(_assignment(_name(key), _rows(fed)))
        elif fed.data:
            lines.append(_text_assignment(_name(key), fed.data))
    if question.real is not None:
        lines.append(
            _assignment("REAL", list(question.real))
            + "  # range of positions of each row that are not padding"
        )
    if question.before:
        assert all(fed.is_rows for feed in question.before for fed in feed.values())
        earlier = [{key: _rows(fed) for key, fed in feed.items()} for feed in question.before]
        lines.append(_assignment("EARLIER", earlier))
    return lines


def _rows(fed: Fed) -> list[list[int]]:
    return [list(row) for row in fed.rows]


def _expected_constants(expectation: Expectation | None) -> list[str]:
    if expectation is None:
        return []
    if expectation.sees.error:
        message = (
            [f"MESSAGE = {_literal(expectation.sees.message)}"] if expectation.sees.message else []
        )
        return [f"EXPECTED = {_literal(expectation.sees.error)}", *message]
    if expectation.sees.unstable:
        return ['EXPECTED = "different bits for different content of uninitialised memory"']
    assert expectation.sees.sha256
    other_hash = "" if expectation.other.unstable else expectation.other.sha256
    lines = [f'EXPECTED = "{expectation.sees.sha256}"']
    name = script_name(expectation.other_stack)
    return [*lines, f'OTHER = "{other_hash}"  # the result of {name}'] if other_hash else lines


def _file_constants(subject: Subject, expectation: Expectation | None) -> list[str]:
    if expectation is None or not subject.files:
        return []
    return [_assignment("FILES", dict(subject.files)) + "  # SHA-256 of the checkpoint's files"]


def _assignment(name: str, value: object) -> str:
    text = pformat(value, width=WIDTH - 4, compact=True)
    if "\n" not in text and len(name) + 3 + len(text) <= WIDTH:
        return f"{name} = {text}"
    return f"{name} = {text[0]}\n    {text[1:-1].replace(chr(10), chr(10) + '   ')},\n{text[-1]}"


def _result_words(question: Question) -> str:
    if question.kind == "forward":
        return (
            "the logits"
            if question.real is None
            else "the logits of the positions that are not padding"
        )
    if question.kind == "generate":
        return "the logits of every step, [steps, vocabulary]"
    return f"the {question.kind}"


def _load(subject: Subject, installed: Installed) -> str:
    keyword = "dtype" if Version(installed.transformers) >= Version("4.57") else "torch_dtype"
    arguments = ["CHECKPOINT", f"{keyword}=torch.{subject.variant.dtype}"]
    if subject.revision is not None:
        arguments.insert(1, f"revision={_literal(subject.revision)}")
    if subject.variant.attention != "default":
        arguments.append(f"attn_implementation={_literal(subject.variant.attention)}")
    if subject.trust_remote_code:
        arguments.append("trust_remote_code=True")
    for name, value in subject.options:
        assert name.isidentifier()
        arguments.append(f"{name}={_literal(value) if isinstance(value, str) else ascii(value)}")
    assert subject.model_class.isidentifier()
    owner = "" if subject.class_module else "transformers."
    call = f"    model = {owner}{subject.model_class}.from_pretrained("
    tail = ").eval()"
    line = f"{call}{', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return line
    return f"{call}\n        {', '.join(arguments)}\n    {tail}"


def _output(subject: Subject) -> str:
    """Return the expression behind forward's call that takes the logits out of its result."""
    if subject.logits is None:
        has_head = "For" in subject.model_class or "Head" in subject.model_class
        return ".logits" if has_head else "[0]"
    first, *path = re.findall(r"\w+", subject.logits)
    return "".join(f"[{part}]" if part.isdigit() else f'["{part}"]' for part in (first, *path))


def _forward(subject: Subject) -> str:
    """Return the call of forward, indented for the script."""
    start = f"        {'logits =' if subject.question.real else 'return'} model("
    arguments, end = _arguments(subject), f"){_output(subject)}"
    line = f"{start}{', '.join(arguments)}{end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join(
        [start, *(f"            {argument}," for argument in arguments), f"        {end}"]
    )


def _arguments(subject: Subject) -> list[str]:
    return [f"{key}={_value(key, fed, subject)}" for key, fed in subject.question.feed.items()]


def _value(key: str, fed: Fed, subject: Subject) -> str:
    if fed.constant:
        return fed.constant
    if fed.data:
        return f"tensor({_name(key)}, torch.{fed.dtype}, {list(fed.shape)})"
    if fed.seed is None:
        return f"torch.tensor({_name(key)})"
    cast = "" if subject.variant.dtype == "float32" else f".to(torch.{subject.variant.dtype})"
    return f"seeded({_literal(fed.seed)}, {list(fed.shape)}){cast}"


def _name(key: str) -> str:
    """Return the constant of an argument, which is none of the script's own."""
    return f"{key.upper()}_" if key.upper() in _OWN_NAMES else key.upper()


def _text_assignment(name: str, text: str) -> str:
    width = WIDTH - 6
    chunks = [text[start : start + width] for start in range(0, len(text), width)]
    return "\n".join([f"{name} = (", *(f'    "{chunk}"' for chunk in chunks), ")"])


_OWN_NAMES = frozenset(
    {"CHECKPOINT", "EARLIER", "EXPECTED", "FILES", "FIRST", "MESSAGE", "OTHER", "REAL"}
)


def _is_unstable(expectation: Expectation | None) -> bool:
    return expectation is not None and (expectation.sees.unstable or expectation.other.unstable)


def _elements(expectation: Expectation | None) -> str:
    """Return the index of some elements, starting at the first that differs; '' if none does."""
    if expectation is None or expectation.first_index is None:
        return ""
    *outer, last = expectation.first_index
    return ", ".join([*map(str, outer), f"{last}:{last + 4}"])


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = _literal
    return environment.get_template("script.py.jinja")


_TEMPLATE = _template()
