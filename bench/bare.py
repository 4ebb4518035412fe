"""The same forwards without samebits, run by a stack's interpreter: what a person would write.

``python bare.py jobs.json [--dump FOLDER]``. A job is one model in one dtype: its folder, its
class, and the inputs of every prompt (files of raw bytes). It is loaded, run over every prompt and
decoded; with ``--dump`` the logits and hidden states are saved, and another process compares them
(by_hand.py). One thread, as in the cells of samebits. The last line printed has the CPU seconds,
imports left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers


def main(arguments: list[str]) -> None:
    """Run every job in this process."""
    torch.set_num_threads(1)
    started = time.process_time()
    jobs = json.loads(Path(arguments[0]).read_text("utf-8"))
    folder = Path(arguments[2]) if len(arguments) > 2 else None
    for job in jobs:
        results = outputs(job)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(results, folder / f"{job['name']}.pt")
    print(json.dumps({"cpu": time.process_time() - started}))


def outputs(job: dict[str, Any]) -> dict[str, Any]:
    """Return what one model computes over its prompts, and decodes."""
    kind = getattr(transformers, job["class"])
    model = kind.from_pretrained(job["folder"], torch_dtype=getattr(torch, job["dtype"])).eval()
    results: dict[str, Any] = {}
    with torch.no_grad():
        for prompt, inputs in job["prompts"].items():
            tensors = {name: _tensor(stored) for name, stored in inputs.items()}
            output = model(**tensors, output_hidden_states=True)
            results[prompt] = [output.get("logits"), output.get("hidden_states")]
            if prompt in job["decoded"]:
                ids = model.generate(**tensors, max_new_tokens=job["greedy"], do_sample=False)
                results[f"{prompt} decoded"] = ids
    return results


def _tensor(stored: dict[str, Any]) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(Path(stored["path"]).read_bytes()), dtype=torch.uint8)
    return raw.view(getattr(torch, stored["dtype"])).reshape(stored["shape"])


if __name__ == "__main__":
    main(sys.argv[1:])
