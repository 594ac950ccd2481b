"""State of the importer of TensorFlow Lite files while it walks through one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from concord.frontend.context import unused_name
from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatModel, FlatOperator, FlatTensor, Values
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import Move
from concord.integer.operations import CodeConstant, CodeMovement, CodeTable
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.point_wise import CodeFunction, NumberFunction, function_table, nearest
from concord.integer.tflite.requantise import FixedPointRequantisation
from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes, TransferTable

#: Types of codes: bits, and which of them are used.
_CODES = {"INT8": (8, CodeRange.SIGNED), "UINT8": (8, CodeRange.UNSIGNED), "INT16": (16, CodeRange.SIGNED)}
#: Advice where an operator reads floats.
_QUANTISE = "quantise the whole network to int8"
#: Scale of codes that are all 0 where the file has none.
_LEAST_SCALE = 2.0**-126
#: Numbers that activations limit to, by their number in the schema.
_LIMITS: dict[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}


@dataclass
class FlatReading:
    """The integer graph under construction.

    Parameters
    ----------
    model : FlatModel
        The file.
    graph : IntegerGraph
        As far as it is.
    names : list of str
        Of the tensors of the file, each once.
    codes : dict of int to str
        Tensors of codes by the numbers of those of the file, also of those that DEQUANTIZE makes floats of.
    floats : dict of int to str
        Inputs that are floats.
    constants : dict of str to array
        Codes that are the same for all samples, by their names; the first axis has one element, if there is one.
    functions : dict of int to callable
        What has been computed, in binary32, of the numbers that DEQUANTIZE makes of codes.
    single : bool
        Whether products of codes of 8 bits with weights are rounded by a product of binary32, as XNNPACK rounds them.
    """

    model: FlatModel
    graph: IntegerGraph
    names: list[str]
    codes: dict[int, str] = field(default_factory=dict)
    floats: dict[int, str] = field(default_factory=dict)
    constants: dict[str, Integers] = field(default_factory=dict)
    functions: dict[int, NumberFunction] = field(default_factory=dict)
    single: bool = False

    def tensor(self, index: int) -> FlatTensor:
        """A tensor of the file."""
        return self.model.tensors[index]

    def unique(self, stem: str) -> str:
        """A name that is not in use; in use from now on."""
        self.names.append(fresh_name(stem, self.names))
        return self.names[-1]

    def scheme(self, index: int) -> Codes:
        """Scheme of the codes of a tensor; ``Refusal`` if it has none of at most 16 bits with one scale."""
        tensor, name = self.tensor(index), self.names[index]
        if tensor.kind not in _CODES or not tensor.scales.size:
            what = tensor.kind.lower() if tensor.kind in _CODES or tensor.kind.startswith("INT") else "floats"
            raise Refusal(f"{name!r} must be codes of int8, uint8 or int16 with a scale, not {what}", _QUANTISE)
        scale = float(tensor.scales[0])
        if scale == 0 and tensor.data is not None and (tensor.data == tensor.zeros[0]).all():
            scale = _LEAST_SCALE  # of a constant that is 0, whose products with multipliers are 0
        if tensor.scales.size != 1 or not 0 < scale < np.inf:
            raise Refusal(f"{name!r} must have one positive scale, not {tensor.scales.tolist()}", "correct the file")
        bits, codes = _CODES[tensor.kind]
        try:
            return Codes(bits, scale, int(tensor.zeros[0]), codes, Rounding.NEAREST_AWAY)
        except ValueError as error:
            raise Refusal(f"{name!r}: {error}", "correct the file") from error

    def constant(self, index: int, what: str) -> Values:
        """The elements of a constant; ``Refusal`` if it is none."""
        data = self.tensor(index).data
        if data is None:
            raise Refusal(f"{what} must be constant, not {self.names[index]!r}", "fold constants when you convert")
        return data

    def read(self, index: int) -> str:
        """The codes of a tensor."""
        if self.tensor(index).data is not None and self.tensor(index).kind in _CODES:
            return self.operand(index, len(self.tensor(index).shape))
        if index not in self.codes or self.tensor(index).kind not in _CODES:
            self.scheme(index)
            raise Refusal(f"must read codes that are computed, not {self.names[index]!r}", "fold constants")
        return self.codes[index]

    def operand(self, index: int, rank: int) -> str:
        """The codes of a tensor, or constant codes that each sample is combined with."""
        tensor = self.tensor(index)
        if tensor.data is None:
            if len(tensor.shape) != rank:
                raise Refusal(f"{self.names[index]!r} must have {rank} axes, not {len(tensor.shape)}", "reshape it")
            return self.read(index)
        if len(tensor.shape) > rank or (len(tensor.shape) == rank and tensor.shape[0] != 1):
            raise Refusal(f"{self.names[index]!r} must be one for all samples, not of shape {list(tensor.shape)}")
        if index not in self.codes:
            scheme, name = self.scheme(index), self.names[index]
            self.codes[index] = name
            value = tensor.data.astype(np.int64)
            self._add(CodeConstant(name=name, inputs=(), output=name, value=value), scheme)
        return self.codes[index]

    def limits(self, operator: FlatOperator) -> tuple[int, int]:
        """Least and greatest code of a result, with the activation of the operator."""
        scheme = self.scheme(operator.outputs[0])
        kind = getattr(operator.options, "FusedActivationFunction", int)()
        if kind not in _LIMITS:
            raise Refusal("its activation must be RELU, RELU_N1_TO_1 or RELU6", "make it an operator of its own")
        return limited(scheme, *_LIMITS[kind])

    def to_codes(
        self, operator: FlatOperator, scale: FixedPointMultiplier | ArrayLike, wide: bool = False
    ) -> FixedPointRequantisation:
        """Requantisation of sums times a scale to the codes of a result, with the activation of the operator."""
        fixed = scale if isinstance(scale, FixedPointMultiplier) else multiplier_of(scale)
        zero = self.scheme(operator.outputs[0]).zero
        return FixedPointRequantisation(fixed, zero, *self.limits(operator), wide=wide)

    def emit(
        self, operator: FlatOperator, kind: Callable[..., IntegerOperation], *inputs: str, **settings: Any
    ) -> None:
        """Add what computes the result of an operator."""
        (index,) = operator.outputs
        self.check_samples(index)
        name, scheme = self.names[index], self.scheme(index)
        self.codes[index] = name
        self._add(kind(name=name, inputs=inputs, output=name, **settings), scheme)

    def move(self, operator: FlatOperator, move: Move, *inputs: str) -> None:
        """Add an operator that moves codes and changes none."""
        scheme = self.scheme(operator.outputs[0])
        self.emit(operator, CodeMovement, *inputs, move=move, low=scheme.low, high=scheme.high)

    def moves(self, operator: FlatOperator, moves: Sequence[Move], source: str) -> None:
        """Add moves in a row, the last of which makes the result of an operator."""
        self.move(operator, moves[-1], self.moved_between(self.names[operator.outputs[0]], moves[:-1], source))

    def moved_between(self, stem: str, moves: Sequence[Move], source: str) -> str:
        """Moves in a row in front of an operator; the name of the result."""
        for k, move in enumerate(moves):
            source = self.move_between(f"{stem}/{k}", move, source)
        return source

    def move_between(self, stem: str, move: Move, source: str) -> str:
        """Move codes in front of an operator; the name of the result."""
        scheme = self.graph.scheme(source)
        return self.emit_between(stem, CodeMovement, scheme, source, move=move, low=scheme.low, high=scheme.high)

    def table_between(self, stem: str, table: TransferTable, source: str) -> str:
        """Look codes up in front of an operator; the name of the result."""
        assert isinstance(table.target, Codes)
        return self.emit_between(stem, CodeTable, table.target, source, table=table)

    def emit_between(
        self, stem: str, kind: Callable[..., IntegerOperation], scheme: Codes, *inputs: str, **settings: Any
    ) -> str:
        """Compute codes of a scheme in front of an operator; the name of the result."""
        output = self.unique(stem)
        self._add(kind(name=output, inputs=inputs, output=output, **settings), scheme)
        return output

    def emit_table(self, operator: FlatOperator, function: CodeFunction) -> None:
        """Add a function of one code, from the scheme of the operand to that of the result."""
        source, target = self.read(operator.inputs[0]), self.scheme(operator.outputs[0])
        table = function_table(operator.name, self.graph.scheme(source), function, target)
        self.emit(operator, CodeTable, source, table=table)

    def _add(self, operation: IntegerOperation, scheme: Codes) -> None:
        """Add an operation; one that reads constants alone is computed here."""
        if operation.inputs and all(name in self.constants for name in operation.inputs):
            value = operation.run(*(self.constants[name] for name in operation.inputs))
            operation = CodeConstant(name=operation.name, inputs=(), output=operation.output, value=value)
        if isinstance(operation, CodeConstant):
            self.constants[operation.output] = operation.value
        self.graph.operations.append(operation)
        self.graph.schemes[operation.output] = scheme

    def check_samples(self, index: int) -> None:
        """``Refusal`` unless the first axis of a tensor is that of the samples."""
        batch, shape = self.tensor(self.model.inputs[0]).shape[:1], self.tensor(index).shape
        if shape[:1] != batch or not shape:
            reason = (
                f"first axis of {self.names[index]!r} must be that of the samples, {list(batch)}, not of {list(shape)}"
            )
            raise Refusal(reason, "convert the network with an axis of samples that stays first")


def fresh_name(stem: str, taken: Sequence[str]) -> str:
    """A name that is not taken."""
    return unused_name(stem or "tensor", set(taken))


def limited(scheme: Codes, least: float | None, most: float | None) -> tuple[int, int]:
    """Least and greatest code of a scheme that is limited to numbers."""

    def end(number: float) -> int:
        step = np.asarray([np.float32(number) / np.float32(scheme.scale)], dtype=np.float32)
        return int(nearest(step)[0]) + scheme.zero

    low = scheme.low if least is None else max(scheme.low, end(least))
    high = scheme.high if most is None else min(scheme.high, end(most))
    return low, high


def multiplier_of(numbers: ArrayLike) -> FixedPointMultiplier:
    """A real multiplier in fixed point; ``Refusal`` if it is too large."""
    try:
        return FixedPointMultiplier.of(numbers)
    except ValueError as error:
        raise Refusal(f"scales must fit each other: {error}", "quantise the network again") from error


def offsets_of(data: Integers, zero: int) -> Integers:
    """Constant codes less their zero point."""
    return data.astype(np.int64) - zero
