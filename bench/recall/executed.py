"""Which functions of transformers models execute, run by a stack's interpreter.

``python executed.py jobs.json``, with jobs as bench/bare.py takes them. Prints one JSON line: the
folder of transformers, and for each job the functions of its construction, forwards and decoding, as
file and qualified name, or the exception that stopped it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import transformers

ROOT = str(Path(transformers.__file__).parent)
PARTS = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Ends of names of code that is part of the source of the function around it."""


def main(path: str) -> None:
    """Run every job and print what it executed."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    jobs = json.loads(Path(path).read_text("utf-8"))
    print(json.dumps({"root": ROOT, "executed": {job["name"]: _outcome(job) for job in jobs}}))


def _outcome(job: dict[str, Any]) -> dict[str, Any]:
    functions: dict[str, set[tuple[str, str]]] = {"load": set(), "run": set()}
    stage = "load"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            functions[stage].add((code.co_filename[len(ROOT) + 1 :], code.co_qualname))

    sys.setprofile(note)
    try:
        kind = getattr(transformers, job["class"])
        model = kind.from_pretrained(job["folder"], torch_dtype=torch.float32).eval()
        stage = "run"
        with torch.no_grad():
            for prompt, inputs in job["prompts"].items():
                tensors = {name: _tensor(stored) for name, stored in inputs.items()}
                model(**tensors, output_hidden_states=True)
                if prompt in job["decoded"]:
                    model.generate(**tensors, max_new_tokens=job["greedy"], do_sample=False)
    except Exception as error:  # noqa: BLE001  any exception only leaves this model out
        sys.setprofile(None)
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        sys.setprofile(None)
    return {
        name: sorted(e for e in got if not e[1].endswith(PARTS)) for name, got in functions.items()
    }


def _tensor(stored: dict[str, Any]) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(Path(stored["path"]).read_bytes()), dtype=torch.uint8)
    return raw.view(getattr(torch, stored["dtype"])).reshape(stored["shape"])


if __name__ == "__main__":
    main(sys.argv[1])
