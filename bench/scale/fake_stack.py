"""A stack's process that answers at once: it leaves a small capture, and inputs that any model takes.

Its only argument is a file with what the captures and inputs of all cells have in common.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from samebits_wire.seal import sealed

MACHINE = {
    "platform": "none",
    "cpu": "none",
    "cpu_capability": "",
    "cores": 1,
    "threads": 1,
    "flags": {},
}


def leave(path: Path, record: dict[str, Any]) -> None:
    """Write a record with its seal, as a probe does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sealed(json.dumps(record)), "utf-8")


def answer(job: dict[str, Any], common: dict[str, Any]) -> None:
    """Leave what a job is to leave; only those of a quick run are known."""
    if job["kind"] == "inputs":
        given = dict.fromkeys(job["model"]["prompts"], common["prompt"])
        named = {"model": job["name"], "stack": job["stack"], "prompts": given}
        leave(Path(job["result"]), common["inputs"] | named)
    elif job["kind"] == "cell":
        extent = "short" if job["short"] else "full"
        named = {
            "cell": job["cell"],
            "run": job["run"],
            "extent": extent,
            "threads": job["threads"],
        }
        leave(Path(job["capture"]), common["capture"] | named)


def main() -> None:
    """Answer jobs until the input ends."""
    common = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    print(json.dumps({"ready": MACHINE}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        answer(job, common)
        print(json.dumps({"id": job["id"], "exit": 0}), flush=True)


if __name__ == "__main__":
    main()
