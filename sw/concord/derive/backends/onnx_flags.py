"""The sticky flags of a derived model in ONNX: one more output, a flag word for every sample and layer."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper

from concord.derive import ir
from concord.derive.backends.onnx_writer import Writer
from concord.derive.flags import accumulator_limit
from concord.spec.formats import Flag

#: Key of the model's metadata that says, in JSON, which output has the flags, the layers and the bits.
METADATA = "flags"
#: What raises a flag: the place, and the flag.
Key = tuple[str, Flag]


class Hits:
    """Collects tensors ``[samples]``, INT32: 1 where a sample raises a flag.

    Members
    -------
    found : dict
        Names of such tensors by place and flag; those of the body of a loop while that is written.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.raised: dict[Key, list[str]] = {}

    def add(self, node: ir.ModelNode, flag: Flag, where: str) -> None:
        """A flag that a node raises where this tensor ``[samples, ...]`` is true."""
        self.raised.setdefault((node.where, flag), []).append(self.writer.call("AnyOfSample", [where]))

    def product(self, node: ir.Products, sums: list[str]) -> None:
        """``ACC_OVERFLOW`` of exact sums, one tensor or two."""
        if Flag.ACC_OVERFLOW in node.may:
            name = "Beyond" if len(sums) == 1 else "BeyondSum"
            self.add(node, Flag.ACC_OVERFLOW, self.writer.call(name, sums, limit=accumulator_limit(node)))

    def node(self, node: ir.ModelNode, inputs: list[str], output: str) -> None:
        """All other flags, from what a node has read and computed."""
        for flag in node.may:
            if flag is not Flag.ACC_OVERFLOW:
                self.add(node, flag, self._condition(node, flag, inputs, output))

    def _condition(self, node: ir.ModelNode, flag: Flag, inputs: list[str], output: str) -> str:
        w = self.writer
        match node, flag:
            case ir.Products(), Flag.HALF_OVERFLOW:
                return w.call("Infinite", [output])
            case ir.Elementwise(), Flag.HALF_OVERFLOW:
                return w.call("Overflowed", [output, *inputs])
            case ((ir.TableLookup() | ir.Quantise()), Flag.NONFINITE):
                return w.call("NotFinite", inputs)
            case ir.TableLookup(), Flag.TABLE_CLAMPED:
                low, high = (np.inf if end else 0.0 for end in node.constant_ends)
                factor = 2.0**node.scale
                return w.call("TableClamped", inputs, factor=factor, low=node.low - low, high=node.high + high)
            case ir.Quantise(), Flag.SATURATED:
                codes, unit = node.form.q_max + 1.0, 2.0**node.exp
                if node.noise is None:
                    return w.call("Saturated", inputs, unit=unit, codes=codes)
                noise = w.constant(node.noise, np.float64)
                return w.call("SaturatedStochastic", [*inputs, noise], unit=unit, codes=codes)
        raise TypeError(f"{type(node).__name__} must not raise {flag.name}")

    def together(self, keys: Iterable[Key]) -> dict[Key, str]:
        """One tensor for each."""
        w = self.writer
        every = {key: self.raised[key] for key in keys}
        return {key: names[0] if len(names) == 1 else w.node("Max", names) for key, names in every.items()}

    def iterations(self, key: Key, stacked: str) -> None:
        """What the iterations of a loop have raised, ``[samples, iterations]``."""
        w = self.writer
        self.raised.setdefault(key, []).append(w.node("ReduceMax", [stacked, w.ints([1])], keepdims=0))

    def words(self, flags: ir.Flags, runs: str) -> str:
        """Flag words, UINT8 ``[runs, layers]``; ``runs`` is their number."""
        w, hits = self.writer, self.together(list(self.raised))
        columns = []
        for place in flags.places:
            always = w.constant([flags.always.get(place, 0)], np.int32)
            column = w.node("Expand", [always, runs])
            for flag in Flag:
                if (place, flag) in hits and not flags.always.get(place, 0) >> flag & 1:
                    bit = w.node("Mul", [hits[place, flag], w.constant([1 << flag], np.int32)])
                    column = w.node("Add", [column, bit])
            columns.append(w.node("Unsqueeze", [column, w.ints([1])]))
        whole = columns[0] if len(columns) == 1 else w.node("Concat", columns, axis=1)
        return w.node("Cast", [whole], to=TensorProto.UINT8)


def describe(model: onnx.ModelProto, output: str, flags: ir.Flags) -> None:
    """Say in the metadata of a model what its output with flag words is."""
    bits = {flag.name: int(flag) for flag in Flag}
    facts = json.dumps({"output": output, "layers": flags.places, "bits": bits})
    helper.set_model_props(model, {METADATA: facts})
