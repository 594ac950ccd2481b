"""A network of TensorFlow Lite that rules rewrite: the operators that are read, and those of the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from concord.frontend.tflite_file import FlatModel, FlatOperator, FlatOptions, FlatTensor, Values
from concord.utils.grouping import by_key

#: Operators of which every element of the result is one of an element, or of those at its place and a constant.
POINT_WISE = frozenset(
    "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU PRELU ELU GELU HARD_SWISH LOGISTIC TANH EXP LOG SQRT RSQRT SQUARE "
    "ABS NEG SIN COS QUANTIZE DEQUANTIZE ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE".split()
)


def live_operators(model: FlatModel, ends: Iterable[int]) -> list[FlatOperator]:
    """The operators that some tensors need, in their order."""
    needed, live = set(ends), []
    for operator in reversed(model.operators):
        if needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            live.append(operator)
    return live[::-1]


class FlatRewriting:
    """A network that operators and tensors are added to.

    Parameters
    ----------
    model : FlatModel
        Whose operators are read; those of the result are in ``operators``.
    """

    def __init__(self, model: FlatModel) -> None:
        self.source = model
        self.tensors = list(model.tensors)
        self.operators: list[FlatOperator] = []
        self.readers = by_key(
            (index, operator) for operator in model.operators for index in dict.fromkeys(operator.inputs)
        )
        self.makers = {index: operator for operator in model.operators for index in operator.outputs}

    def like(self, index: int, shape: Sequence[int], what: str) -> int:
        """A new tensor with the codes of another one."""
        tensor = self.tensors[index]
        self.tensors.append(replace(tensor, shape=tuple(shape), name=f"{tensor.name}/{what}", data=None))
        return len(self.tensors) - 1

    def constant(self, values: Any, name: str) -> int:
        """A new constant of integers."""
        data = np.asarray(values, np.int32)
        nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self.tensors.append(FlatTensor(name, data.shape, "INT32", *nothing, 0, data))
        return len(self.tensors) - 1

    def add(self, name: str, inputs: Sequence[int], output: int, options: Any = None) -> int:
        """A new operator; its result."""
        self.operators.append(FlatOperator(name, tuple(inputs), (output,), options))
        return output

    def reshape(self, source: int, output: int) -> int:
        """The elements of a tensor in the shape of another one."""
        shape = self.constant(self.tensors[output].shape, f"{self.tensors[output].name}/shape")
        return self.add("RESHAPE", (source, shape), output)

    def take(self, source: int, ranges: Sequence[range], output: int) -> int:
        """Elements of a tensor along each axis; the shape of the result may lack axes of one element, or have more."""
        shape, sizes = self.tensors[source].shape, tuple(len(places) for places in ranges)
        target = self.tensors[output].shape
        if all(places == range(size) for places, size in zip(ranges, shape, strict=True)):
            return self.reshape(source, output)
        made = output if sizes == target else self.like(output, sizes, "part")
        bounds = (
            [places.start for places in ranges],
            [places.stop if places.stop >= 0 else -size - 1 for places, size in zip(ranges, shape, strict=True)],
            [places.step for places in ranges],
        )
        constants = [self.constant(values, f"{self.tensors[output].name}/bounds") for values in bounds]
        masks = dict.fromkeys(("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"), 0)
        self.add("STRIDED_SLICE", (source, *constants), made, FlatOptions(**masks))
        return made if made == output else self.reshape(made, output)

    def integers(self, index: int) -> Values | None:
        """The elements of a constant; ``None`` if it is none."""
        return self.tensors[index].data if index >= 0 else None

    def model(self) -> FlatModel:
        """The network as it is now, without operators that nothing reads any more."""
        unread = (
            index for operator in self.source.operators for index in operator.outputs if index not in self.readers
        )
        made = FlatModel(tuple(self.tensors), tuple(self.operators), self.source.inputs, self.source.outputs)
        return replace(made, operators=tuple(live_operators(made, [*self.source.outputs, *unread])))
