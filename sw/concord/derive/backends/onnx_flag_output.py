"""The sticky flags of a derived model in ONNX: one more output, a flag word for every sample and layer."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper

from concord.derive import ir
from concord.derive.backends.onnx_writer import Writer
from concord.spec.formats import Flag

#: Key of the model's metadata that says, in JSON, which output has the flags, the layers and the bits.
METADATA = "flags"
#: Key of a flag: the place that raises it, and the flag.
Key = tuple[str, Flag]


class Hits:
    """Collects tensors ``[samples]``, INT32: 1 where a sample raises a flag.

    Members
    -------
    raised : dict
        Names of such tensors by place and flag; those of the body of a loop while that is written.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.raised: dict[Key, list[str]] = {}

    def add(self, node: ir.ModelNode, flag: Flag, where: str) -> None:
        """A flag that a node raises where this tensor ``[samples, ...]`` is true."""
        self.raised.setdefault((node.where, flag), []).append(self.writer.call("AnyOfSample", [where]))

    def together(self, keys: Iterable[Key]) -> dict[Key, str]:
        """One tensor for each."""
        w = self.writer
        every = {key: self.raised[key] for key in keys}
        return {key: names[0] if len(names) == 1 else w.node("Max", names) for key, names in every.items()}

    def iterations(self, key: Key, stacked: str) -> None:
        """Notes flags that the iterations of a loop have raised, ``[samples, iterations]``."""
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
