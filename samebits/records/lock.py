"""samebits.lock: the bits that a project wants to keep, as hashes, and what computed them.

People commit the file, so it is small and has a line per tensor. It holds no values.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.ids import Signal, Variant
from samebits.records.record import Record

FORMAT_VERSION: Literal[1] = 1

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_IN_PART = rf"[^/\\{_CONTROL}]"
_PART = rf"([^./\\{_CONTROL}]{_IN_PART}*|\.[^./\\{_CONTROL}]{_IN_PART}*|\.\.{_IN_PART}+)"
_HOST = r"[A-Za-z0-9.-]+(:[0-9]+)?"
SOURCE = rf"{_NAME} @ ((git\+)?https://|git\+ssh://git@){_HOST}/[!#%-\[\]-z|~]*"
"""Encrypted, and without a user or a password. No space, no backslash and no ``${{variable}}``, which uv
would expand."""
SHORT = 16
"""Hex digits of a hash in the file: two tensors of one model meet by chance once in 10^14 files."""

ShortHash = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{SHORT}}}$")]
"""The first digits of a hash."""
Name = Annotated[str, Field(pattern=rf"^{_NAME}$", max_length=200)]
"""The name of a package."""
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*$", max_length=200)]
Python = Annotated[str, Field(pattern=r"^3\.[0-9]+(\.[0-9]+)?((a|b|rc)[0-9]+)?\+?$", max_length=40)]
Source = Annotated[str, Field(pattern=rf"^{SOURCE}$", max_length=2000)]
"""A package and its public address, which uv gets as a line of its own."""
File = Annotated[str, Field(pattern=rf"^{_PART}(/{_PART})*$", max_length=1000)]
"""A relative path that leads nowhere else."""
Line = Annotated[str, Field(pattern=rf"^[^{_CONTROL}]*$", max_length=2000)]
"""One line of printable text."""
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
"""The first digits of the digest of an environment or a machine."""


class Environment(Record):
    """The interpreter and the packages that a model's bits may depend on."""

    python: Python
    """Its version, such as 3.11.7."""
    packages: dict[Name, Version]
    """Name -> version: transformers, torch, what they require, and what the model's code imports."""
    sources: dict[Name, Source] = Field(default_factory=dict)
    """Name -> address, of packages that come from no index."""
    local: tuple[Name, ...] = ()
    """Names of packages from a folder of the machine or from an address that is no ``Source``."""


class RecordedMachine(Record):
    """The machine that computed the bits."""

    fingerprint: ShortHash
    """Digest of system, C library, CPU and settings of kernels."""
    platform: Line
    cpu: Line
    cpu_capability: Line
    """The instruction set that torch uses."""
    gpus: tuple[Line, ...] = ()


class RecordedModel(Record):
    """The bits of one model in one variant."""

    path: Line | None = None
    """Folder of the checkpoint, relative to the lock's."""
    hub: Annotated[str, Field(pattern=rf"^{_NAME}(/{_NAME})?$")] | None = None
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] | None = None
    trust_remote_code: bool = False
    """Whether the code of the checkpoint runs."""
    variant: Variant
    environment: Key
    machine: Key
    probes: ShortHash
    """Digest of the code that observed the model."""
    files: dict[File, ShortHash] = Field(default_factory=dict)
    """File of the checkpoint -> hash; empty for a model on the hub, which has a revision."""
    raised: dict[Line, Line] = Field(default_factory=dict)
    """Phase -> type of the exception that it raised."""
    signals: dict[Signal, dict[str, ShortHash]]
    """Signal -> subject -> hash, in the order of the flow of data."""


class RecordedTensor(Record):
    """A tensor of a test."""

    hash: ShortHash
    dtype: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$")]
    shape: tuple[int, ...]


class LockFile(Record):
    """The content of samebits.lock."""

    format: Literal["samebits-lock"] = "samebits-lock"
    format_version: Literal[1] = FORMAT_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    environments: dict[Key, Environment] = Field(default_factory=dict)
    machines: dict[Key, RecordedMachine] = Field(default_factory=dict)
    models: dict[Line, RecordedModel] = Field(default_factory=dict)
    """Model and variant -> its bits, such as ``tiny/float32-default``."""
    tensors: dict[Line, dict[Line, dict[Key, RecordedTensor]]] = Field(default_factory=dict)
    """Test, such as ``tests/test_bits.py::test_scores`` -> name -> machine -> tensor."""
