"""Further evidence for a reader: cos and sin, inputs and outputs of attention, eager logits.

It is collected in a forward that is watched for other reasons, too. Tensors are hashed. Values are
stored only for the rotary tables and the first attention, where a reader needs positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from samebits_probe.model import load
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.layers import rotary_modules
from samebits_probe.model.tensor import Keeper, NotHashable
from samebits_probe.process import progress
from samebits_probe.process.failure import in_words, place

MAX_PROMPT_BYTES = 256 << 20
"""Bytes of one prompt's tensors above which the remaining ones are not hashed."""
MAX_RELOAD_BYTES = 1 << 30
"""Bytes of parameters above which no second model is loaded with eager attention."""


class Evidence:
    """Collects the signal ``evidence`` of one cell."""

    def __init__(self, model: torch.nn.Module, keeper: Keeper) -> None:
        self.signal: dict[str, Any] = {"prompts": {}, "skips": {}, "raised": {}}
        self._model = model
        self._keeper = keeper
        self._bytes = 0
        self._facts: dict[str, Any] = {}

    @contextmanager
    def recording(self, prompt: str) -> Iterator[None]:
        """Record the outputs of the rotary modules during one forward."""
        self._facts = {"rotary": [], "attention": [], "eager_logits": None}
        self._bytes = 0
        names = {id(module): name for name, module in self._model.named_modules()}
        with ExitStack() as hooks:
            for module in (rotary := list(rotary_modules(self._model))):
                hook = self._hook(names[id(module)])
                hooks.enter_context(module.register_forward_hook(hook, with_kwargs=True))
            if not rotary:
                self.skip("rotary", "no module of the model is a rotary embedding")
            yield
        self.signal["prompts"][prompt] = self._facts
        if not self._facts["attention"]:
            self.skip("attention", "no scaled_dot_product_attention and no softmax of one product")

    def keep(self, module: str, tensors: dict[str, Any]) -> None:
        """Record the inputs and outputs of one attention computation."""
        try:
            self._keep(module, tensors)
        except Exception as error:  # noqa: BLE001  the instrument failed, not the model
            self.skip("attention", f"{type(error).__name__}: {error}")

    def _keep(self, module: str, tensors: dict[str, Any]) -> None:
        is_first = not self._facts["attention"]
        refs = {
            part: self._ref(tensor, keep=is_first and part != "mask")
            for part, tensor in tensors.items()
            if isinstance(tensor, torch.Tensor)
        }
        stored_refs = {part: ref for part, ref in refs.items() if ref is not None}
        self._facts["attention"].append({"module": module, "tensors": stored_refs})

    def skip(self, what: str, reason: str) -> None:
        """Record why ``what`` is not observed."""
        self.signal["skips"].setdefault(what, reason)

    def eager(
        self, source: load.Source, prompts: dict[str, Inputs], limit: float = MAX_RELOAD_BYTES
    ) -> None:
        """Load the model once more with eager attention, and run the prompts on it.

        A model of more than ``limit`` bytes is not loaded.
        """
        model = self._model
        resolved = getattr(model.config, "_attn_implementation", None)
        size = load.n_bytes(model)
        if resolved == "eager":
            return self.skip("eager", "attention is eager already")
        if size > limit:
            return self.skip("eager", f"another {size / 2**30:.1f} GiB would have to be loaded")
        try:
            forced = source._replace(attention="eager")
            eager_model, _ = load.from_pretrained(type(model), forced, 0, "load with eager")
            for name, inputs in prompts.items():
                with progress.forward(inputs.kwargs, f"forward {name}", times=4):
                    logits = getattr(eager_model(**inputs.kwargs), "logits", None)
                if logits is not None and name in self.signal["prompts"]:
                    ref = self._keeper.ref(logits, keep=False)
                    self.signal["prompts"][name]["eager_logits"] = ref
        except Exception as error:  # noqa: BLE001  not every class has eager attention
            text = in_words(error)
            self.skip("eager", text)
            self.signal["raised"]["eager"] = f"{text}{place(error)}"
        else:
            self.signal["raised"]["eager"] = ""
        return None

    def _hook(self, name: str) -> Any:
        def hook(_module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
            try:
                self._rotary(name, tensors, output)
            except Exception as error:  # noqa: BLE001  the instrument failed, not the model
                self.skip("rotary", f"{type(error).__name__}: {error}")

        return hook

    def _rotary(self, name: str, inputs: list[torch.Tensor], output: Any) -> None:
        tables = list(output) if isinstance(output, (tuple, list)) else [output]
        if not all(isinstance(table, torch.Tensor) for table in tables):
            return
        for part, table in zip(_parts(tables, inputs), tables, strict=True):
            ref = self._ref(table, keep=True)
            known_parts = [(t["part"], t["ref"]["hash"]) for t in self._facts["rotary"]]
            if ref is not None and (part, ref["hash"]) not in known_parts and table.ndim >= 2:
                self._facts["rotary"].append({"module": name, "part": part, "ref": ref})

    def _ref(self, tensor: torch.Tensor, *, keep: bool) -> dict[str, Any] | None:
        self._bytes += tensor.numel() * tensor.element_size()
        if self._bytes > MAX_PROMPT_BYTES:
            self.skip(
                "attention", f"more than {MAX_PROMPT_BYTES >> 20} MiB: the rest is not hashed"
            )
            return None
        try:
            return self._keeper.ref(tensor, keep=keep)
        except NotHashable:
            return None


def _parts(tables: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[str]:
    """Return ``cos`` and ``sin`` for a pair, unless it is two rotated inputs; else numbers."""
    shapes = Counter(tuple(tensor.shape) for tensor in inputs)
    are_inputs = not Counter(tuple(table.shape) for table in tables) - shapes
    if len(tables) == 2 and not are_inputs:
        return ["cos", "sin"]
    return [str(index) for index in range(len(tables))]
