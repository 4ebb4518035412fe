"""Trace of a training step: a forward with labels and its backward, operation by operation.

An operation of the backward belongs to the forward operation that made its autograd node. torch
counts nodes as it makes them, and a node is made right before its forward operation runs, so the
counter is the same in both: ``torch.autograd._get_sequence_nr`` there, ``Node._sequence_nr`` here.
The operation gets the module, the functions and the line of that forward operation. Code of an
``autograd.Function`` is named by its own line, before those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from samebits_probe.trace.trace import Trace

_ACCUMULATES = "AccumulateGrad"
_ALLOCATING = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operations whose output is memory that was not written yet."""


class Place(NamedTuple):
    """Where an operation of the forward ran."""

    module: int
    functions: tuple[int, ...]
    line: int
    op: str


class StepTrace(Trace):
    """Records a forward and its backward; :meth:`belongs` then says which is of which."""

    def __init__(self, model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(model, *args, marks_layers=False, **kwargs)
        self._forward: dict[int, Place] = {}
        self._backward: dict[int, tuple[str, str]] = {}
        self._owners = {id(p): name for name, p in model.named_parameters()}
        # a backward gets what was saved of a parameter as a tensor of its own
        self.values.defers = False
        # a loss that is divided by twice as many labels is another loss
        self.values.scaled = True

    def belongs(self) -> dict[str, tuple[str, str]]:
        """Return operation of the backward -> its autograd node and the forward operation of that.

        The latter is '' where a parameter's gradient is added up.
        """
        return {str(index): facts for index, facts in self._backward.items()}

    def _operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func._schema.name.rpartition("::")[2] in _ALLOCATING:
            return self._unwritten(func(*args, **kwargs))
        if (node := torch._C._current_autograd_node()) is None:
            self._note_forward(func)
            return super()._operation(func, args, kwargs)
        first = len(self.ops)
        result = super()._operation(func, args, kwargs)
        made_by = self._forward.get(node._sequence_nr())
        facts = node.name().rpartition("::")[2], "" if made_by is None else made_by.op
        self._backward |= dict.fromkeys(range(first, len(self.ops)), facts)
        return result

    def _unwritten(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give new memory a value that is the same everywhere: its bytes are chance."""
        nothing = self.values.of(torch.empty(0), structural=True)
        self._source_names.setdefault(nothing, "constant")
        self.values.mark(tensor, nothing)
        return tensor

    def _note_forward(self, func: Any) -> None:
        number = torch.autograd._get_sequence_nr() - 1
        if number not in self._forward:
            module, functions, line = self._where()
            self._forward[number] = Place(module, functions, line, str(func).removeprefix("aten."))

    def _where(self) -> tuple[int, tuple[int, ...], int]:
        module, chain, line = super().place()
        return module, tuple(map(int, self._table.columns["chains"][chain].split())), line

    def place(self) -> tuple[int, int, int]:
        """Return module, functions and line; in the backward those of the forward operation."""
        if (node := torch._C._current_autograd_node()) is None:
            return super().place()
        _, running, line = self._where()
        if (made_by := self._forward.get(node._sequence_nr())) is None:
            return self._table.number("modules", self._owner(node)), *self._chain(running), line
        return made_by.module, *self._chain((*running, *made_by.functions)), line or made_by.line

    def _owner(self, node: Any) -> str:
        """Return the module whose parameter a node adds a gradient to; '' for any other node."""
        if _ACCUMULATES not in node.name():
            return ""
        name: str = self._owners.get(id(node.variable), "")
        return name.rpartition(".")[0]

    def _chain(self, functions: tuple[int, ...]) -> tuple[int]:
        return (self._table.number("chains", " ".join(map(str, functions))),)
