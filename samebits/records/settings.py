"""Settings of torch that decide which kernels run, or in which precision, and what changed them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record

BATCH_INVARIANT = "batch-invariant mode"
"""Name of the setting that has the package of such a mode, or :data:`OFF`."""
OFF = "off"

By = Literal["import", "load", "prompts"]
"""What ran when a setting changed.

import: the import of transformers and what it imports. load: the load of the model. prompts: the prompts and
the decoding.
"""


class SettingChange(Record):
    """A setting that changed during a run."""

    name: str
    before: str
    after: str
    by: By


class SettingsSignal(Record):
    """The settings of a run."""

    values: dict[str, str] = Field(default_factory=dict)
    """Expression that reads a setting -> its value after the prompts. One that this torch lacks is left out. A
    ``fp32_precision`` that is not set is ``ieee``, as it computes."""
    changes: tuple[SettingChange, ...] = ()
    """In order. A setting may change more than once."""
