"""``nox -s guide``: ask every item of the migration guide and of the releases, and write docs/guide.md.

``--cases NAMES`` asks some items only (names or patterns, separated by commas) and writes nothing but
.samebits/guide/part.json; ``--at-once`` leaves out the items that run a model. With ``--keep``, the answers to such a
part take the place of earlier ones in results.json, and the page is written; ``--judge`` judges the reports of
earlier runs once more, as after a change of what an item expects. Parts are kept as those of
``nox -s recall`` are; ``--fresh`` begins from nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from bench.guide import at_once, page
from bench.guide.cases import TWIN, Item, Items, read
from bench.machine import machine
from bench.place import WORK
from bench.recall.cases import groups
from bench.recall.parts import Progress
from bench.recall.run import judged, run_group

FOLDER = WORK / "guide"
FORMAT_VERSION = 1


def main() -> None:
    """Ask, print, and write the page after a whole run."""
    parser = argparse.ArgumentParser(prog="nox -s guide --", description=__doc__)
    parser.add_argument("--cases", default="", help="names or patterns, separated by commas")
    parser.add_argument("--at-once", action="store_true", help="leave out what runs a model")
    parser.add_argument("--keep", action="store_true", help="put the part into results.json")
    parser.add_argument("--judge", action="store_true", help="judge earlier reports, run nothing")
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
    cases = {name: case for name, case in items.cases().items() if name.removesuffix(TWIN) in asked}
    of_cases = groups(cases, items.together)
    progress = Progress(len(of_cases))
    shown: dict[str, dict[str, Any]] = {}
    for group in of_cases:
        if options.judge:
            shown |= {record["name"]: record for record in judged(group, FOLDER)}
            continue
        part = run_group(group, FOLDER, progress)
        shown |= {record["name"]: record for record in part.result}
        progress.end(part, "")
    if options.judge:
        asked = {n: i for n, i in asked.items() if not i.run or {n, n + TWIN} <= shown.keys()}
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
    if options.keep and not whole:
        results = _with_earlier(results, items)
    out = page.RESULTS if whole or options.keep else FOLDER / "part.json"
    out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(page.page(results))
    if whole or options.keep:
        page.main()


def _with_earlier(results: dict[str, Any], items: Items) -> dict[str, Any]:
    """Return the results with those of earlier runs for what this one did not ask, in the order of the file."""
    earlier = json.loads(page.RESULTS.read_text("utf-8")) if page.RESULTS.is_file() else {}
    merged = {**results, "fresh": False, "in_parts": True}
    for part, order in (("guide", items.guide), ("releases", items.releases)):
        known = {record["name"]: record for record in (*earlier.get(part, ()), *results[part])}
        unasked = {"found": False, "named": False, "alarm": "", "cause": "", "unobservable": False}
        merged[part] = [
            known.get(name)
            or {"name": name, "where": item.where, "text": item.text, "link": item.link, **unasked}
            | {"reason": "not asked yet"}
            for name, item in order.items()
        ]
    return merged


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
