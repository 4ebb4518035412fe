"""Which functions of transformers a forward and a decode execute, run by a stack's interpreter.

``python executed.py``. Prints one JSON line: the release, the folder of transformers, and for each
architecture the functions of its forward and of its decode, as file and qualified name.
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT = Path(transformers.__file__).parent
PARTS = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Ends of names of code that is part of the source of the function around it."""
LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": LLAMA,
    "mistral": LLAMA,
    "phi3": LLAMA,
    "mixtral": LLAMA | {"num_local_experts": 4},
    "gemma2": LLAMA | {"head_dim": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64},
    "opt": LLAMA | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 8},
}

IDS = torch.arange(3, 12)[None]
DECODE = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}


def main() -> None:
    """Run a forward and a decode of each architecture and print what they executed."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    executed = {}
    for name, values in CONFIGS.items():
        config = transformers.AutoConfig.for_model(name, **values)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        executed[name] = {
            "forward": functions_of(partial(model, IDS)),
            "decode": functions_of(partial(model.generate, IDS, **DECODE)),
        }
    record = {"release": transformers.__version__, "root": str(ROOT), "executed": executed}
    print(json.dumps(record))


def functions_of(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Return file and qualified name of every function of transformers that ``call`` executes."""
    functions: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            path = Path(code.co_filename).relative_to(ROOT)
            functions.add((str(path), code.co_qualname))

    with torch.no_grad():
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    return sorted(entry for entry in functions if not entry[1].endswith(PARTS))


if __name__ == "__main__":
    main()
