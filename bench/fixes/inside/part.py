"""Runs one part of a case in a release, ``python part.py SCRIPT make|observe FOLDER``, and prints what it returns as JSON.

A case is made with torch's seed 0. What several cases make is in the modules beside this one. An exception of
``observe`` is what a user sees of a case that names a failure; of any other it is a mistake of the script.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import torch


def main() -> None:
    """Import the script of a case, and call its ``make`` or its ``observe``."""
    script, part, folder = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    case = importlib.import_module(Path(script).stem)
    if part == "make":
        torch.manual_seed(0)
        case.make(folder)
    else:
        print(json.dumps(_observed(case, folder)))


def _observed(case: ModuleType, folder: str) -> object:
    try:
        return case.observe(folder)
    except Exception as error:
        if "failure" not in case.CASE:
            raise
        return {"raised": f"{type(error).__name__}: {error}".replace(folder, "MODEL")}


if __name__ == "__main__":
    main()
