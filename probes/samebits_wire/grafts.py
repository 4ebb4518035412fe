"""The kinds of parts of the reference that a graft puts into the candidate."""

from __future__ import annotations

from typing import Literal

SuspectKind = Literal[
    "config",
    "weight",
    "buffer",
    "attribute",
    "positions",
    "rope",
    "mask",
    "scale",
    "implementation",
    "call",
    "cache",
    "head",
    "memory",
]
"""The kind of part that is put in, in the order of data flow.

config: a field with which the model is loaded. weight, buffer: stored numbers. attribute: a plain
value stored in a module. positions, rope, mask, scale: the value at each use in the forward.
implementation: of attention or of experts, as chosen at the load. call: the same numbers, repeated,
packed and laid out for the attention kernel as in the reference. cache: the contents of the KV
cache before each step, or its class. head: the number of positions that the head computes. memory:
the distance of parameters from a 64-byte boundary.
"""
