"""The code of a model: its remote-code files, their imports, and the functions executed."""

from __future__ import annotations

from pydantic import Field

from samebits.records.record import Record


class Symbol(Record):
    """A name that code refers to, and the result of its lookup in this stack."""

    name: str
    """``LossKwargs``, ``key_cache`` …"""
    owner: str
    """Module or class in which it was looked up: ``transformers.utils``, ``DynamicCache`` …"""
    found: bool
    elsewhere: tuple[str, ...] = ()
    """Other modules of the stack that define the same name."""
    similar: tuple[str, ...] = ()
    """Names of the owner with a similar spelling, best match first."""


class ImportFact(Record):
    """One name that the model's remote code imports from transformers."""

    symbol: Symbol
    file: str
    """File of the remote code."""
    line: int
    guarded: bool = False
    """True if a load may skip the import or survive its failure: it is in a ``try`` that catches
    ImportError, or under an ``if``, such as TYPE_CHECKING or a test of the version."""
    defined_in: str | None = None
    """File inside the package, and line, of the definition that the name resolves to."""
    digest: str | None = None
    """SHA-256 of its source as in :class:`FunctionFact`; None if it has no source or a very long
    one."""


class FunctionFact(Record):
    """One Python function that a forward executed."""

    file: str
    """File inside the package, or file of the remote code."""
    line: int
    own: bool
    """True if it is the model's remote code."""
    digest: str
    """SHA-256 of its syntax tree without docstrings, annotations and documentation decorators."""
    calls: int = 1
    """How often it was entered; a generator is entered again for every value."""


class ClassFact(Record):
    """A class of the model's remote code."""

    name: str
    bases: tuple[str, ...]
    """Qualified names of its bases, as written."""
    file: str
    line: int
    attributes: dict[str, str] = Field(default_factory=dict)
    """Class attribute -> type of its value, such as ``_tied_weights_keys`` -> ``list``."""
    methods: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Method -> names of its parameters, ``*args`` and ``**kwargs`` with their stars."""
    calls: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Method -> dotted names that it calls, such as ``self.post_init`` or
    ``module.weight.data.normal_``."""


class Idiom(Record):
    """A line of the model's remote code that is known to behave differently in other releases."""

    name: str
    """``truth of a cache``, ``old name of the cache`` …; see
    probes/samebits_probe/cell/idioms.py."""
    file: str
    line: int
    code: str


class CodeSignal(Record):
    """The code of one model on one stack."""

    files: dict[str, str] = Field(default_factory=dict)
    """File of the remote code -> SHA-256; empty for a model of the library."""
    imports: tuple[ImportFact, ...] = ()
    classes: tuple[ClassFact, ...] = ()
    reads_version: bool = False
    """True if the remote code reads the version of transformers, so that the same source may take
    another branch in another release."""
    idioms: tuple[Idiom, ...] = ()
    """Suspicious lines; a rule reports one only together with a difference that it explains."""
    executed: dict[str, FunctionFact] = Field(default_factory=dict)
    """``module:qualified name`` -> function executed by the forward of the first prompt, in order
    of the first call."""
