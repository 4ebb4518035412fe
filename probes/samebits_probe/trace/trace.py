"""Trace of a forward: the inputs and outputs of every operation, identified by content.

The trace sees what is dispatched: the parts of a composite operation, but not those of a fused
kernel. Each operation has its input and output values, its module, and the functions of
transformers or of the model's own code that called it, with the line of the innermost one.

Operations that return the same elements in the same order (view, contiguous, clone …) are left
out: their output has the value of their input.
"""

from __future__ import annotations

import base64
import inspect
import sys
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model import layers, source
from samebits_probe.model.attention import is_attention
from samebits_probe.model.executed import own_name
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process.own import REMOTE, is_own
from samebits_probe.process.paths import package_path
from samebits_probe.trace.values import Values

Fact = dict[str, Any]

_SAME_ORDER = frozenset(
    {
        "view",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "alias",
        "detach",
        "lift_fresh",
        "clone",
        "contiguous",
        "_reshape_alias",
        "lift_fresh_copy",
        "_to_copy",
    }
)
"""Operations that keep elements and order, if dtype and number of elements stay the same."""
_SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
_MASK_LIMITS = {torch.float16: -6e4}
_MASK_LIMIT = -1e9
"""Score at or below which eager attention has masked it; no release adds less than that."""
_MAX_MASK_BYTES = 1 << 16
"""Bytes of a packed mask above which the mask itself is not recorded."""


class Trace(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Records every operation while it is active; :meth:`facts` then returns them.

    ``look`` is called before an operation runs with its index, function and arguments, and after
    it with the result.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        pads: torch.Tensor | None = None,
        look: Callable[[int, Any, Any, Any], Any] | None = None,
        *,
        coarse: bool = False,
        marks_layers: bool = True,
    ) -> None:
        super().__init__()
        self.values = Values(pads, coarse=coarse)
        self.ops: list[list[Any]] = []
        self.attentions: list[Fact] = []
        self.marks: list[list[Any]] = []
        self._look = look
        self._model = model if marks_layers else torch.nn.Module()
        self._prefix = ""
        self._names = {id(module): name for name, module in model.named_modules()}
        named_tensors = list(_named_tensors(model))
        self._sources = {id(tensor): name for tensor, name in named_tensors}
        self._inputs = {id(tensor): name for name, tensor in inputs.items()}
        # an id identifies a tensor only while the tensor exists
        self._keepalive = [*inputs.values(), *(tensor for tensor, _ in named_tensors)]
        self._source_names: dict[int, str] = {}
        self._computed: set[int] = set()
        self._written: dict[int, list[int]] = {}
        self._table = _Table()
        self._frames = _Frames(self._table)
        self._operations: dict[Any, _Operation] = {}
        self._stack: list[torch.nn.Module] = []
        self._paused = False

    # --- watching ------------------------------------------------------------------------------

    def __enter__(self) -> Trace:  # noqa: PYI034  no subclass; 3.10 has no Self
        register = torch.nn.modules.module
        self._hooks = [
            register.register_module_forward_pre_hook(self._enter_module),
            register.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._recorder = layers.Recorder(self._model)
        self._recorder.begin(self.mark)
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for hook in (*self._hooks, self._recorder):
            hook.remove()

    def step(self, name: str) -> None:
        """Name the following forwards, to distinguish the layers of several forwards."""
        self._prefix = f"{name} " if name else ""
        self._recorder.begin(self.mark)

    def mark(self, name: str, tensor: torch.Tensor | None) -> None:
        """Record the value at a place of the model that both sides have."""
        if tensor is not None and not self._paused:
            self._paused = True
            try:
                self.marks.append([f"{self._prefix}{name}", self._value(tensor)])
            finally:
                self._paused = False

    def _enter_module(self, module: torch.nn.Module, _args: Any) -> None:
        self._stack.append(module)
        self._frames.enter(sys._getframe(1))

    def _leave_module(self, module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if self._stack and self._stack[-1] is module:
            self._stack.pop()
            self._frames.leave()

    # --- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and record it."""
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        self._paused = True
        try:
            return self._operation(func, args, kwargs)
        finally:
            self._paused = False

    def _operation(self, func: Any, args: Any, kwargs: Fact) -> Any:
        if (operation := self._operations.get(func)) is None:
            operation = self._operations[func] = _Operation(func, self._table)
        inputs = list(tensors_in((args, kwargs)))
        input_values = [self._value(tensor) for tensor in inputs]
        index = len(self.ops)
        if self._look is not None:
            self._look(index, func, args, kwargs)
        result = func(*args, **kwargs)
        outputs = list(tensors_in(result))
        structural = all(map(self._is_structural, input_values))
        written = self._written_values(func, args, kwargs, structural) if operation.mutable else {}
        # torch marks a tensor as a view only when the operation returns, which is later
        base = inputs[0] if operation.views and len(inputs) == 1 else None
        if operation.same_order and self._same_order(base, inputs, outputs, input_values):
            return result
        output_values = [
            self._output_value(t, input_values[:1], base, structural)
            for t in outputs
            if id(t) not in written
        ]
        output_values = [*written.values(), *output_values]
        self._computed.update(output_values)
        self.ops.append(
            [
                operation.number,
                self._table.number("arguments", _template(args, kwargs)),
                input_values,
                output_values,
                *self.place(),
            ]
        )
        if self._look is not None:
            self._look(index, None, result, output_values)
        if operation.attends:
            self._attention(operation.name, args, kwargs, index)
        return result

    def _output_value(
        self,
        tensor: torch.Tensor,
        input_values: list[int],
        base: torch.Tensor | None,
        structural: bool,
    ) -> int:
        if base is not None:
            return self.values.of_view(tensor, input_values[0], base, structural=structural)
        return self.values.of(tensor, structural=structural)

    def _same_order(
        self,
        base: torch.Tensor | None,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        input_values: list[int],
    ) -> bool:
        """Return True if an operation kept its content, and give the output the input's value."""
        if len(inputs) != 1 or len(outputs) != 1:
            return False
        source, result = inputs[0], outputs[0]
        if source.dtype != result.dtype or source.numel() != result.numel():
            return False
        # a cast to the same dtype returns the tensor itself
        self.values.mark(result, input_values[0], None if result is source else base)
        return True

    def _written_values(
        self, func: Any, args: Any, kwargs: Fact, structural: bool
    ) -> dict[int, int]:
        """Return the values of the tensors that were written into, by id.

        Other tensors may share the memory, so the written values are recorded by storage.
        """
        arguments = func._schema.arguments
        arguments_given = [*args, *(kwargs.get(a.name) for a in arguments[len(args) :])]
        values = {}
        for argument, tensor in zip(arguments, arguments_given, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for written in tensors_in(tensor):
                    value = self.values.of_written(written, structural=structural)
                    self._written.setdefault(_storage_id(written), []).append(value)
                    values[id(written)] = value
        return values

    def _is_structural(self, value: int) -> bool:
        return bool(self.values.facts[value].get("structural"))

    def _value(self, tensor: torch.Tensor) -> int:
        """Return the value of a tensor before an operation; record the origin of a new value."""
        if (value := self.values.carried(tensor)) is not None:
            return value
        name = self._inputs.get(id(tensor)) or self._sources.get(id(tensor))
        if name is not None:
            floating = tensor.is_floating_point()
            value = (
                self.values.of_source(tensor)
                if floating
                else self.values.of(tensor, structural=True)
            )
            self._source_names.setdefault(value, name)
            return value
        stale = self.values.stale(tensor)
        written = self._written.pop(_storage_id(tensor), [])
        earlier = [v for v in (stale, *written) if v is not None]
        # a single number without an operation is a constant of the code
        is_constant = not tensor.is_floating_point() or tensor.numel() == 1
        structural = all(map(self._is_structural, earlier)) if earlier else is_constant
        value = self.values.of(tensor, structural=structural)
        if value in self._computed or value in self._source_names:
            return value
        if earlier:
            self._computed.add(value)
            self.ops.append(
                [
                    self._table.number("names", "write"),
                    self._table.number("arguments", ""),
                    earlier,
                    [value],
                    *self.place(),
                ]
            )
        else:
            self._source_names[value] = "constant"
        return value

    def place(self) -> tuple[int, int, int]:
        """Return the numbers of the running module and of the functions, and the innermost line."""
        return self._table.number("modules", self._module()), *self._frames.callers()

    def _module(self) -> str:
        names = (self._names.get(id(module)) for module in reversed(self._stack))
        return next(filter(None, names), "")

    # --- masks ---------------------------------------------------------------------------------

    def _attention(self, name: str, args: Any, kwargs: Fact, index: int) -> None:
        """Record which keys each query may see, from the arguments of the attention kernel."""
        if "scaled_dot_product" in name:
            allowed = _sdpa_mask(args, kwargs)
        elif any(map(is_attention, self._stack[-3:])):
            allowed = _softmax_mask(args[0])
        else:
            return
        if allowed is not None:
            self.attentions.append({"op": index, **_pack(allowed)})

    def chain(self) -> list[int]:
        """Return the numbers of the running functions of interest, innermost first."""
        chain, _ = self._frames.callers()
        return [int(number) for number in self._table.columns["chains"][chain].split()]

    def constructors(self) -> list[int]:
        """Return the numbers of the constructors of the running modules of interest, innermost first.

        What they set, such as a scale, is an argument of operations in functions that did not change.
        """
        numbers = (self._frames.constructor(type(module)) for module in reversed(self._stack))
        return [number for number in dict.fromkeys(numbers) if number is not None]

    def texts(self, numbers: set[int]) -> dict[int, str]:
        """Return the source of functions by their numbers."""
        return self._frames.sources(numbers)

    # --- telling -------------------------------------------------------------------------------

    def facts(self) -> Fact:
        """Return the trace as data; parameters are hashed now."""
        self.values.close()
        return {
            "values": self.values.facts,
            "sources": {str(value): name for value, name in self._source_names.items()},
            "ops": self.ops,
            **self._table.columns,
            "functions": self._frames.functions,
            "marks": self.marks,
            "attentions": self.attentions,
        }


class _Operation:
    """Properties of an operation that are the same in every call, read at the first."""

    def __init__(self, func: Any, table: _Table) -> None:
        schema = func._schema
        self.name = schema.name.removeprefix("aten::")
        self.number = table.number("names", str(func).removeprefix("aten."))
        self.mutable = schema.is_mutable
        returns = schema.returns
        self.views = not self.mutable and bool(returns) and returns[0].alias_info is not None
        self.same_order = self.name in _SAME_ORDER
        self.attends = "scaled_dot_product" in self.name or self.name in _SOFTMAX


class _Table:
    """Numbers for words that occur often."""

    def __init__(self) -> None:
        self.columns: dict[str, list[str]] = {"names": [], "arguments": [], "modules": []}
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, column: str, word: str) -> int:
        key = (column, word)
        if key not in self._numbers:
            self._numbers[key] = len(self.columns[column])
            self.columns[column].append(word)
        return self._numbers[key]


class _Frames:
    """The running functions of transformers or of the model's own code.

    The callers of a module do not change until it returns, so their frames are walked once.
    """

    def __init__(self, table: _Table) -> None:
        self.functions: list[Fact] = []
        self._numbers: dict[int, int | None] = {}
        self._code_objects: list[CodeType] = []
        self._table = table
        self._entered: list[tuple[FrameType, tuple[int, ...], int]] = []
        table.columns["chains"] = []

    def callers(self) -> tuple[int, int]:
        """Return the number of the chain of running functions, and the line of the innermost."""
        numbers, line = self._walk(sys._getframe(2))
        return self._table.number("chains", " ".join(map(str, numbers))), line

    def enter(self, frame: FrameType) -> None:
        """Remember the callers of ``frame``, which calls a module."""
        self._entered.append((frame, *self._walk(frame)))

    def leave(self) -> None:
        """Forget the innermost frame that was entered."""
        self._entered.pop()

    def _walk(self, frame: FrameType | None) -> tuple[tuple[int, ...], int]:
        entered, outer_numbers, outer_line = self._entered[-1] if self._entered else (None, (), 0)
        numbers: list[int] = []
        line = 0
        while frame is not None and frame is not entered:
            if (number := self._number(frame)) is not None:
                line = line or frame.f_lineno
                numbers.append(number)
            frame = frame.f_back
        if frame is None:
            return tuple(numbers), line
        return (*numbers, *outer_numbers), line or outer_line

    def constructor(self, kind: type[torch.nn.Module]) -> int | None:
        """Return the number of a class's own ``__init__``; None if it is of no interest."""
        init = vars(kind).get("__init__")
        init = inspect.unwrap(init) if callable(init) else None
        code = getattr(init, "__code__", None)
        return None if code is None else self._number_of(code, kind.__module__)

    def _number(self, frame: FrameType) -> int | None:
        return self._number_of(frame.f_code, frame.f_globals.get("__name__") or "")

    def _number_of(self, code: CodeType, module: str) -> int | None:
        key = id(code)
        if key not in self._numbers:
            self._code_objects.append(code)  # an id is unique only while the code exists
            self._numbers[key] = self._add_function(code, module)
        return self._numbers[key]

    def _add_function(self, code: CodeType, module: str) -> int | None:
        package = module.partition(".")[0]
        if not (package == "transformers" or is_own(package)) or code.co_name.startswith("<"):
            return None
        file = package_path(code.co_filename.replace("\\", "/"))
        self.functions.append(
            {
                "module": own_name(module),
                "name": str(getattr(code, "co_qualname", code.co_name)),
                "file": file.rpartition("/")[2] if package == REMOTE else file,
                "line": code.co_firstlineno,
                "own": is_own(package),
                "digest": source.of_code(code),
            }
        )
        return len(self.functions) - 1

    def sources(self, numbers: set[int]) -> dict[int, str]:
        """Return the source of some of the functions, by their numbers."""
        texts = {}
        for code in self._code_objects:
            number = self._numbers[id(code)]
            if number in numbers and number is not None:
                texts[number] = _source_text(code)
        return texts


def _source_text(code: CodeType) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    """Yield every parameter, buffer and other tensor of a model with its name."""
    for prefix, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                yield value, f"{prefix}.{name}".lstrip(".")
    for name, tensor in (
        *model.named_buffers(remove_duplicate=False),
        *model.named_parameters(remove_duplicate=False),
    ):
        yield tensor, name


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of arguments or results of an operation."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def _storage_id(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _template(args: Any, kwargs: Fact) -> str:
    """Return an operation's arguments as text, with % for each tensor."""
    named = [f"{name}={_written(value)}" for name, value in kwargs.items()]
    return ", ".join([*map(_written, args), *named])


def _written(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "%"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    return dtype_name(value) if isinstance(value, torch.dtype) else repr(value)


def _sdpa_mask(args: Any, kwargs: Fact) -> torch.Tensor | None:
    """Return the mask of an sdpa call, [batch, heads, queries, keys]; True where a key is seen."""
    query, key = args[0], args[1]
    shape = (*query.shape[:-1], key.shape[-2])
    mask = kwargs.get("attn_mask")
    tensor_arguments = [a for a in args[3:] if isinstance(a, torch.Tensor)]
    mask = tensor_arguments[0] if mask is None and tensor_arguments else mask
    causal = kwargs.get("is_causal") or any(a is True for a in args[3:])
    allowed = torch.ones(shape, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else ~_is_masked(mask))
    return allowed


def _softmax_mask(scores: torch.Tensor) -> torch.Tensor | None:
    return ~_is_masked(scores) if scores.ndim in {3, 4} else None


def _is_masked(scores: torch.Tensor) -> torch.Tensor:
    return scores <= _MASK_LIMITS.get(scores.dtype, _MASK_LIMIT)


def _pack(allowed: torch.Tensor) -> Fact:
    """Return a mask as data; heads that agree are stored once."""
    if allowed.ndim == 4 and bool((allowed == allowed[:, :1]).all()):
        allowed = allowed[:, :1]
    flat = allowed.detach().cpu().contiguous().reshape(-1)
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).reshape(-1, 8).to(torch.uint8)
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8)
    raw = bytes((flat * weights).sum(1).to(torch.uint8).tolist())
    packed = base64.b64encode(zlib.compress(raw, 9)).decode() if len(raw) <= _MAX_MASK_BYTES else ""
    return {"shape": list(allowed.shape), "allowed": packed}
