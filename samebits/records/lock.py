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

SHORT = 16
"""Hex digits of a hash in the file: two tensors of one model meet by chance once in 10^14 files."""

ShortHash = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{SHORT}}}$")]
"""The first digits of a hash."""
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
"""The first digits of the digest of an environment or a machine."""


class Environment(Record):
    """The interpreter and the packages that a model's bits may depend on."""

    python: str
    """Its version, such as 3.11.7."""
    packages: dict[str, str]
    """Name -> version: transformers, torch, what they require, and what the model's code imports."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Name -> address, of packages that come from no index."""
    local: tuple[str, ...] = ()
    """Names of packages from a folder or file of the machine, which nobody else can install."""


class RecordedMachine(Record):
    """The machine that computed the bits."""

    fingerprint: ShortHash
    """Digest of system, C library, CPU and settings of kernels."""
    platform: str
    cpu: str
    cpu_capability: str
    """The instruction set that torch uses."""
    gpus: tuple[str, ...] = ()


class RecordedModel(Record):
    """The bits of one model in one variant."""

    path: str | None = None
    """Folder of the checkpoint, relative to the lock's."""
    hub: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    """Whether the code of the checkpoint runs."""
    variant: Variant
    environment: Key
    machine: Key
    probes: ShortHash
    """Digest of the code that observed the model."""
    files: dict[str, ShortHash] = Field(default_factory=dict)
    """File of the checkpoint -> hash; empty for a model on the hub, which has a revision."""
    raised: dict[str, str] = Field(default_factory=dict)
    """Phase -> type of the exception that it raised."""
    signals: dict[Signal, dict[str, ShortHash]]
    """Signal -> subject -> hash, in the order of the flow of data."""


class RecordedTensor(Record):
    """A tensor of a test."""

    hash: ShortHash
    dtype: str
    shape: tuple[int, ...]


class LockFile(Record):
    """The content of samebits.lock."""

    format: Literal["samebits-lock"] = "samebits-lock"
    format_version: Literal[1] = FORMAT_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    environments: dict[Key, Environment] = Field(default_factory=dict)
    machines: dict[Key, RecordedMachine] = Field(default_factory=dict)
    models: dict[str, RecordedModel] = Field(default_factory=dict)
    """Model and variant -> its bits, such as ``tiny/float32-default``."""
    tensors: dict[str, dict[str, dict[Key, RecordedTensor]]] = Field(default_factory=dict)
    """Test, such as ``tests/test_bits.py::test_scores`` -> name -> machine -> tensor."""
