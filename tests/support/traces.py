"""Traces made by hand, operation by operation."""

import base64
import zlib

import numpy as np

from samebits.records.ids import CellId, Variant
from samebits.records.trace import Function, Trace, Value, Visibility


class Builder:
    """Builds a trace operation by operation. Contents are words."""

    def __init__(self, stack="old"):
        self.stack = stack
        self.values, self.ops, self.sources = {}, [], {}
        self.names, self.arguments, self.modules = {}, {}, {}
        self.marks, self.attentions, self.facts = [], [], {}

    def value(self, word, **facts):
        if word not in self.values:
            self.values[word] = len(self.values)
            self.facts[word] = {"hash": word, "dtype": "float32", "shape": (2, 4), **facts}
        return self.values[word]

    def source(self, word, name, **facts):
        self.sources[self.value(word, **facts)] = name
        return self

    def op(self, name, inputs, outputs, arguments="%", module="", line=1, **facts):
        input_values = tuple(self.value(word) for word in inputs.split())
        output_values = tuple(self.value(word, **facts) for word in outputs.split())
        self.ops.append(
            (
                self._number(self.names, name),
                self._number(self.arguments, arguments),
                input_values,
                output_values,
                self._number(self.modules, module),
                0,
                line,
            )
        )
        return self

    def mark(self, name, word):
        self.marks.append((name, self.value(word)))
        return self

    def mask(self, allowed):
        bits = np.packbits(np.asarray(allowed, bool).reshape(-1)).tobytes()
        packed = base64.b64encode(zlib.compress(bits)).decode()
        shape = (1, 1, *np.shape(allowed))
        op = len(self.ops) - 1
        self.attentions.append(Visibility(op=op, shape=shape, allowed=packed))
        return self

    def trace(self, **more):
        cell = CellId(
            model="m", variant=Variant(dtype="float32", attention="default"), stack=self.stack
        )
        function = Function(module="transformers.x", name="X.forward", file="x.py", line=1)
        return Trace(
            cell=cell,
            **({"prompt": "short", "what": "forward"} | more),
            values=tuple(Value(**facts) for facts in self.facts.values()),
            sources=self.sources,
            ops=tuple(self.ops),
            names=tuple(self.names),
            arguments=tuple(self.arguments),
            modules=tuple(self.modules),
            chains=("0",),
            functions=(function,),
            marks=tuple(self.marks),
            attentions=tuple(self.attentions),
        )

    def _number(self, table, word):
        return table.setdefault(word, len(table))
