"""``nox -s variants``: compare variants of configs of many types; prints those that do more than round.

A variant has other values of the switches of its config (``config_variant`` in matrix.yaml). Nothing is written: the
report of the run is in the folder that is printed, and what was found belongs in docs/found.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from bench.place import WORK, Place
from bench.tiny import matrix
from samebits.records.compat import CompatFile
from samebits.text.blocks import table

TYPES = (
    "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text cohere olmo olmo2 phi phi3 gpt2 gpt_neo gpt_neox gptj bloom falcon opt "
    "mpt starcoder2 stablelm granite mixtral qwen2_moe bert roberta electra albert distilbert t5 mt5 bart whisper vit clip "
    "siglip qwen2_vl llava deberta-v2"
)
FOLDER = WORK / "variants"
_QUIET = frozenset({"", "rounding", "new", "open"})


def main() -> None:
    """Run the variants and print what differs."""
    parser = argparse.ArgumentParser(prog="nox -s variants --", description=__doc__)
    parser.add_argument("--releases", default="4.57.6,5.24.0", help="ids, oldest first")
    parser.add_argument("--types", default=TYPES.replace(" ", ","), help="model_types")
    parser.add_argument("--numbers", default="1,2", help="numbers of variants, from 1")
    options = parser.parse_args()
    numbers = [int(number) for number in options.numbers.split(",")]
    plan = variants(options.types.split(","), options.releases.split(","), numbers)
    reports = FOLDER / "reports"
    words = ("--quick", "--no-repro", "--format", "md", "--format", "compat")
    Place(FOLDER, plan).samebits(*words, "--reports", str(reports))
    file = CompatFile.model_validate_json((reports / "compat.json").read_bytes())
    steps = [step for model in file.models for step in [r.step for r in model.ranges] if step]
    print(f"{len(plan['models'])} variants; steps: {len(steps)}, {steps.count('rounding')} round")
    print(table(("variant", "release", "step", "what", "side", "findings"), rows(file)))
    print(f"\n{reports / 'report.md'}")


def variants(
    types: Iterable[str], releases: Iterable[str], numbers: Iterable[int]
) -> dict[str, Any]:
    """Return a matrix.yaml of variants of types."""
    plan = matrix(types, releases)
    plan["models"] = {
        f"{name}-{number}": {"build": entry["build"] | {"config_variant": number}}
        for name, entry in plan["models"].items()
        for number in numbers
    }
    return plan


def rows(file: CompatFile) -> Iterator[tuple[str, ...]]:
    """Yield a row for each step of a variant that is more than rounding."""
    for model in file.models:
        source = model.source.partition(", seed")[0]
        for each in model.ranges:
            if each.step not in _QUIET:
                yield (
                    source,
                    each.first,
                    each.step,
                    each.what,
                    each.side,
                    ", ".join(each.findings),
                )


if __name__ == "__main__":
    main()
