"""report.json: the whole report for programs, the same bytes for the same report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.document import Report

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def render(report: Report) -> str:
    """Return report.json; NaN and infinities are strings, because JSON has no numbers for them.

    A file name that is no UTF-8 brings lone surrogates, which JSON readers refuse; they are
    written as the text of their escape.
    """
    text = json.dumps(
        report.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False
    )
    return _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text) + "\n"
