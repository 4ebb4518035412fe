"""Runs one part of a case in a release, ``python part.py SCRIPT make|observe FOLDER``, and prints what it returns as JSON.

A case is made with torch's seed 0. What several cases make is in the modules beside this one.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch


def main() -> None:
    """Import the script of a case, and call its ``make`` or its ``observe``."""
    script, part, folder = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    case = importlib.import_module(Path(script).stem)
    if part == "make":
        torch.manual_seed(0)
    print(json.dumps(getattr(case, part)(folder)))


if __name__ == "__main__":
    main()
