"""``nox -s guide``: ask every item of the migration guide and of the releases, and write docs/guide.md.

``--cases NAMES`` asks some items only (names or patterns, separated by commas) and writes nothing but
.samebits/guide/part.json; ``--at-once`` leaves out the items that run a model. Parts are kept as those of
``nox -s recall`` are; ``--fresh`` begins from nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.guide import at_once, page
from bench.guide.cases import TWIN, Item, read
from bench.machine import machine
from bench.place import WORK
from bench.recall.cases import groups
from bench.recall.parts import Progress
from bench.recall.run import run_group

FOLDER = WORK / "guide"
FORMAT_VERSION = 1


def main() -> None:
    """Ask, print, and write the page after a whole run."""
    parser = argparse.ArgumentParser(prog="nox -s guide --", description=__doc__)
    parser.add_argument("--cases", default="", help="names or patterns, separated by commas")
    parser.add_argument("--at-once", action="store_true", help="leave out what runs a model")
    parser.add_argument("--fresh", action="store_true", help="reuse nothing of earlier runs")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    items = read()
    patterns = options.cases.split(",") if options.cases else ["*"]
    asked = {
        name: item
        for name, item in items.every().items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
        and not (options.at_once and item.run)
    }
    cases = {
        name: case for name, case in items.cases().items() if name.removesuffix(TWIN) in asked
    }
    found = groups(cases, items.together)
    progress, shown = Progress(len(found)), {}
    for group in found:
        part = run_group(group, FOLDER, progress)
        shown |= {record["name"]: record for record in part.result}
        progress.end(part, "")
    records = [_record(name, item, shown) for name, item in asked.items()]
    results: dict[str, Any] = {
        "format": "samebits-guide",
        "format_version": FORMAT_VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": round(progress.seconds / 60),
        "fresh": progress.is_fresh,
        "machine": machine(),
        "guide": [record for record in records if record["name"] in items.guide],
        "releases": [record for record in records if record["name"] in items.releases],
    }
    whole = len(asked) == len(items.every())
    out = page.RESULTS if whole else FOLDER / "part.json"
    out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(page.page(results))
    if whole:
        page.main()


def _record(name: str, item: Item, shown: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what is known of one item."""
    record = {"name": name, "where": item.where, "text": item.text, "link": item.link}
    answer = {"found": False, "named": False, "alarm": "", "cause": "", "reason": ""}
    if item.run is not None:
        answer |= _of_run(shown[name], shown[name + TWIN])
    elif item.lint is not None:
        answer |= at_once.of_lint(item.lint, FOLDER / "scripts" / name)
    elif item.defaults is not None:
        answer |= at_once.of_defaults(item.defaults, FOLDER / "files" / name)
    else:
        answer["reason"] = item.unobservable or item.missed
    return {**record, **answer, "unobservable": bool(item.unobservable)}


def _of_run(planted: dict[str, Any], twin: dict[str, Any]) -> dict[str, Any]:
    released = planted["found"] and planted["released"]
    return {
        "found": released,
        "named": released and planted["named"],
        "alarm": "; ".join(f"{k}: {v}" for k, v in twin["shown"].items()) if twin["found"] else "",
        "cause": planted["cause"],
        "reason": planted["reason"] or ("" if twin["shown"] else f"twin: {twin['reason']}"),
        "shown": planted["shown"],
    }


if __name__ == "__main__":
    main()
