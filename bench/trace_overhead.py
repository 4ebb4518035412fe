"""Measures the cost of a traced forward, as a multiple of the same forward without a trace.

Run by a stack's interpreter: ``python bench/trace_overhead.py [--repeats N] [--json]``. Needs no
file: the models are made from a config and hold random numbers. Both forwards run in one process
with one thread, in turns, and are timed in CPU seconds, so other work on the machine moves both alike;
each figure is a median. What a trace does behind the forward (hashing parameters, making its record) stands
apart, as ``facts``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

import torch
import transformers
from samebits_probe.trace.trace import Trace

REPEATS = 5


class Size(NamedTuple):
    """A Llama and the length of its prompt."""

    hidden: int
    layers: int
    tokens: int


SIZES = (Size(48, 3, 10), Size(1024, 4, 64), Size(1024, 8, 64), Size(1024, 4, 256))


class Overhead(NamedTuple):
    """CPU seconds of one size, and the ratio of the traced forward to the plain one."""

    hidden: int
    layers: int
    tokens: int
    plain: float
    traced: float
    facts: float
    ops: int
    ratio: float


def measure(size: Size, repeats: int = REPEATS) -> Overhead:
    """Time a forward without and with a trace, in turns, and return the medians."""
    model, inputs = _model(size), {"input_ids": torch.arange(2, size.tokens + 2)[None]}
    plain: list[float] = []
    traced: list[float] = []
    facts: list[float] = []
    ops = 0
    with torch.no_grad():
        model(**inputs)  # what is imported and allocated at first use belongs to neither
        _traced(model, inputs)
        for _ in range(repeats):
            plain.append(_seconds(lambda: model(**inputs)))
            seconds, recording, ops = _traced(model, inputs)
            traced.append(seconds)
            facts.append(recording)
    bare, with_trace, recording = map(statistics.median, (plain, traced, facts))
    return Overhead(
        size.hidden, size.layers, size.tokens, bare, with_trace, recording, ops, with_trace / bare
    )


def measured(sizes: tuple[Size, ...] = SIZES, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Return what each size costs, as data."""
    torch.set_num_threads(1)
    return [measure(size, repeats)._asdict() for size in sizes]


def _model(size: Size) -> Any:
    heads = max(4, size.hidden // 64)
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=size.hidden,
        intermediate_size=size.hidden * 11 // 4 // 16 * 16,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _traced(model: Any, inputs: dict[str, Any]) -> tuple[float, float, int]:
    """Return the seconds of a traced forward and of making its record, and its operations."""
    trace = Trace(model, inputs)
    with trace:
        seconds = _seconds(lambda: model(**inputs))
    recording = _seconds(trace.facts)
    return seconds, recording, len(trace.ops)


def _seconds(run: Any) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    """Print a table, or JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    sizes = measured(repeats=given.repeats)
    if given.json:
        print(json.dumps({"transformers": transformers.__version__, "sizes": sizes}))
        return
    for row in sizes:
        print(
            f"hidden {row['hidden']:,} layers {row['layers']} tokens {row['tokens']}: "
            f"{row['plain']:.4f} s, traced {row['traced']:.4f} s ({row['ratio']:.1f} x), "
            f"recorded in {row['facts']:.4f} s, {row['ops']:,} operations"
        )


if __name__ == "__main__":
    main()
