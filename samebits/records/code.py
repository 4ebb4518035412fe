"""What code a model is made of and ran: its own files, what they import, the functions executed."""

from __future__ import annotations

from pydantic import Field

from samebits.records.record import Record


class Symbol(Record):
    """A name that somebody asked for, and where this stack has it."""

    name: str
    """``LossKwargs``, ``key_cache`` …"""
    owner: str
    """Where it was looked for: ``transformers.utils``, ``DynamicCache`` …"""
    found: bool
    elsewhere: tuple[str, ...] = ()
    """Modules of the stack that define a name spelled the same."""
    similar: tuple[str, ...] = ()
    """Names of the owner that are spelled alike, best first."""


class ImportFact(Record):
    """One name that the model's own code imports from transformers."""

    symbol: Symbol
    file: str
    """The model's own file."""
    line: int
    guarded: bool = False
    """True if a load need not reach it or survives it: in a ``try`` that catches ImportError, or
    under an ``if``, such as TYPE_CHECKING or a test of the version."""
    defined_in: str | None = None
    """File inside the package, and line, of what the name resolves to."""
    digest: str | None = None
    """SHA-256 of its source as in :class:`FunctionFact`; None if it has none or is very long."""


class FunctionFact(Record):
    """One Python function that a forward executed."""

    file: str
    """Inside the package, or the model's own file."""
    line: int
    own: bool
    """True if it is the model's own remote code."""
    digest: str
    """SHA-256 of its syntax tree without docstrings, annotations and decorators that document."""
    calls: int = 1
    """How often it was entered; a generator is entered once more for every value."""


class ClassFact(Record):
    """A class of the model's own code."""

    name: str
    bases: tuple[str, ...]
    """Qualified names of its bases, as written."""
    file: str
    line: int
    attributes: dict[str, str] = Field(default_factory=dict)
    """Class attribute -> the kind of its value, such as ``_tied_weights_keys`` -> ``list``."""
    methods: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Method -> names of its parameters, ``*args`` and ``**kwargs`` with their stars."""
    calls: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Method -> dotted names that it calls, such as ``self.post_init``, ``module.weight.data.normal_``."""


class Idiom(Record):
    """A line of the model's own code that is known to mean something else in another release."""

    name: str
    """``truth of a cache``, ``past_key_value keyword`` …, as probes/samebits_probe/cell/idioms.py names them."""
    file: str
    line: int
    code: str


class CodeSignal(Record):
    """The code of one model on one stack."""

    files: dict[str, str] = Field(default_factory=dict)
    """The model's own files -> SHA-256; empty for a model of the library."""
    imports: tuple[ImportFact, ...] = ()
    classes: tuple[ClassFact, ...] = ()
    reads_version: bool = False
    """True if the model's own files ask for transformers' version, so that the same bytes may
    take another way in another release."""
    idioms: tuple[Idiom, ...] = ()
    """Suspicious lines; a rule speaks of one only beside a difference that it explains."""
    executed: dict[str, FunctionFact] = Field(default_factory=dict)
    """``module:qualified name`` -> function, of the forward of the first prompt, in order of the
    first call."""
