"""What one shard of a run leaves beside its captures, so that a merge knows what is there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record


class ShardRecord(Record):
    """One shard that has ended."""

    format: Literal["samebits-shard"] = "samebits-shard"
    format_version: Literal[1] = 1
    run: str
    """Digest of the matrix, the options and the probes, which all shards of a run share."""
    number: int
    """Of this shard, from 1 on."""
    of: int
    samebits: str
    """Version of samebits."""
    machine: str
    """Fingerprint of the machine; captures of several are never compared."""
    cpu: str = ""
    """Name of the processor."""
    stacks: dict[str, str] = Field(default_factory=dict)
    """Stack -> digest of the lock that this shard ran."""
    cells: dict[str, str] = Field(default_factory=dict)
    """Cell -> how its first run ended."""
