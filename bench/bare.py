"""The same forwards without samebits, run by a stack's interpreter: what a person would write.

``python bare.py jobs.json [--dump FOLDER]``. A job is one model in one dtype: where it lies, its
class, and what every prompt was fed (files of raw bytes). It is loaded, run over every prompt and
decoded; with ``--dump`` the logits and hidden states are saved, as by hand, for another process to
compare. One thread, as in the cells of samebits. The last line printed has the CPU seconds without
imports.
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
        found = outputs(job)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(found, folder / f"{job['name']}.pt")
    print(json.dumps({"cpu": time.process_time() - started}))


def outputs(job: dict[str, Any]) -> dict[str, Any]:
    """Return what one model computes over its prompts, and decodes."""
    kind = getattr(transformers, job["class"])
    model = kind.from_pretrained(job["folder"], torch_dtype=getattr(torch, job["dtype"])).eval()
    found: dict[str, Any] = {}
    with torch.no_grad():
        for prompt, inputs in job["prompts"].items():
            tensors = {name: _tensor(told) for name, told in inputs.items()}
            said = model(**tensors, output_hidden_states=True)
            found[prompt] = [said.get("logits"), said.get("hidden_states")]
            if prompt in job["decoded"]:
                ids = model.generate(**tensors, max_new_tokens=job["greedy"], do_sample=False)
                found[f"{prompt} decoded"] = ids
    return found


def _tensor(told: dict[str, Any]) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(Path(told["path"]).read_bytes()), dtype=torch.uint8)
    return raw.view(getattr(torch, told["dtype"])).reshape(told["shape"])


if __name__ == "__main__":
    main(sys.argv[1:])
