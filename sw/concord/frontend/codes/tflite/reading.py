"""State of the importer while it walks through operators of a TensorFlow Lite file, whose tensors have schemes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatTensor
from concord.frontend.tflite_operators import limits_of_activation
from concord.frontend.tflite_writer import CodeWriter
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerOperation
from concord.integer.moves import Move
from concord.integer.operations import CodeConstant, CodeTable
from concord.integer.requantise import limited_codes
from concord.integer.tables import FloatFunction, rounded_to_binary32
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.point_wise import CodeFunction, function_table, quantised_again
from concord.integer.tflite.requantise import FixedPointRequantisation
from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes

#: Types of codes: bits, and which of them are used.
_CODES = {"INT8": (8, CodeRange.SIGNED), "UINT8": (8, CodeRange.UNSIGNED), "INT16": (16, CodeRange.SIGNED)}
#: Advice where an operator reads floats.
_QUANTISE = "quantise the whole network to int8"
#: Scale of codes that are all 0 where the file has none.
_LEAST_SCALE = 2.0**-126


@dataclass(kw_only=True)
class KernelReading(Reading):
    """The integer graph under construction, of operators that read and make codes.

    Parameters
    ----------
    tensors : dict of str to FlatTensor
        Of the file, by their names.
    writer : CodeWriter
        Writes operators that move codes as nodes of ONNX.
    single : bool
        Whether products of codes of 8 bits with weights are rounded by a product of binary32, as XNNPACK rounds them.
    """

    tensors: dict[str, FlatTensor]
    writer: CodeWriter
    single: bool = False
    last: bool = True

    def read_inputs(self, names: Sequence[str]) -> list[str]:
        """Enter the inputs of the file; why some cannot be."""
        reasons = []
        for name in names:
            try:
                self.check_samples(name)
                if name not in self.floats:
                    self.graph.schemes[name] = self.scheme_of(name)
                    self.graph.inputs[name] = name
            except Refusal as refusal:
                reasons.append(f"input {name!r}: {refusal}")
            self.graph.shapes[name] = self.tensors[name].shape
        return reasons

    def scheme_of(self, codes: str) -> Codes:
        """Scheme of a tensor; ``Refusal`` if one of the file has none of at most 16 bits with one scale."""
        if codes not in self.tensors:
            return super().scheme_of(codes)
        tensor = self.tensors[codes]
        if tensor.kind not in _CODES or not tensor.scales.size:
            what = tensor.kind.lower() if tensor.kind in _CODES or tensor.kind.startswith("INT") else "floats"
            raise Refusal(f"{codes!r} must be codes of int8, uint8 or int16 with a scale, not {what}", _QUANTISE)
        scale = float(tensor.scales[0])
        if scale == 0 and tensor.data is not None and (tensor.data == tensor.zeros[0]).all():
            scale = _LEAST_SCALE  # of a constant that is 0, whose products with multipliers are 0
        if tensor.scales.size != 1 or not 0 < scale < np.inf:
            raise Refusal(f"{codes!r} must have one positive scale, not {tensor.scales.tolist()}", "correct the file")
        bits, used = _CODES[tensor.kind]
        try:
            return Codes(bits, scale, int(tensor.zeros[0]), used, Rounding.NEAREST_AWAY)
        except ValueError as error:
            raise Refusal(f"{codes!r}: {error}", "correct the file") from error

    def codes(self, name: str) -> str:
        """The codes of a tensor, or constant codes that each sample is combined with."""
        if name not in self.tensors or name in self.decoded or name in self.graph.schemes:
            return super().codes(name)
        scheme = self.scheme_of(self.graph.tensor(name))
        if name in self.constants:
            value = self.constants[name].astype(np.int64)
            self.emit(CodeConstant(name=name, inputs=(), output=name, value=value), scheme)
        return super().codes(name)

    def beside(self, name: str, rank: int) -> str:
        """The codes of a tensor that is combined with one of ``rank`` axes."""
        shape = self.tensors[name].shape
        if name not in self.constants and len(shape) != rank:
            raise Refusal(f"{name!r} must have {rank} axes, not {len(shape)}", "reshape it")
        if name in self.constants and (len(shape) > rank or (len(shape) == rank and shape[0] != 1)):
            raise Refusal(f"{name!r} must be one for all samples, not of shape {list(shape)}")
        return self.codes(name)

    def _computed_samples(self) -> dict[str, Integers]:
        for name in self.graph.schemes:
            if name in self.tensors:
                self._samples.setdefault(name, np.broadcast_to(np.int64(0), self.tensors[name].shape))
        return super()._computed_samples()

    def moved(self, node: OnnxNode, moves: Sequence[Move], output: str) -> None:
        super().moved(node, moves, output)
        if output in self.tensors and output in self.graph.schemes:  # codes stay, whatever they stand for
            self.graph.schemes[output] = self.scheme_of(output)

    def limits(self, node: OnnxNode) -> tuple[int, int]:
        """Least and greatest code of a result, with the activation of the operator."""
        return limited_codes(self.scheme_of(node.outputs[0]), [limits_of_activation(node.options)])

    def to_codes(
        self, node: OnnxNode, scale: FixedPointMultiplier | ArrayLike, wide: bool = False
    ) -> FixedPointRequantisation:
        """Requantisation of sums times a scale to the codes of a result, with the activation of the operator."""
        fixed = scale if isinstance(scale, FixedPointMultiplier) else multiplier_of(scale)
        return FixedPointRequantisation(fixed, self.scheme_of(node.outputs[0]).zero, *self.limits(node), wide=wide)

    def result(self, node: OnnxNode, kind: Callable[..., IntegerOperation], *inputs: str, **settings: Any) -> None:
        """Add what computes the result of an operator."""
        (output,) = node.outputs
        self.emit(kind(name=node.name, inputs=inputs, output=output, **settings), self.scheme_of(output))

    def between(
        self, stem: str, kind: Callable[..., IntegerOperation], scheme: Codes, *inputs: str, **settings: Any
    ) -> str:
        """Compute codes of a scheme in front of an operator; the name of the result."""
        output = self.unique(stem)
        self.emit(kind(name=output, inputs=inputs, output=output, **settings), scheme)
        return output

    def tabled(self, name: str, source: str, function: CodeFunction, target: Codes, output: str = "") -> str:
        """Look codes up; the name of the result, which is that of the table without ``output``."""
        output = output or self.unique(name)
        table = function_table(name, self.scheme_of(source), function, target)
        self.emit(CodeTable(name=output, inputs=(source,), output=output, table=table), target)
        return output

    def table(self, name: str, source: str, functions: tuple[Any, ...], scheme: Codes, output: str) -> CodeTable:
        """The codes that QUANTIZE makes of functions of numbers of codes."""
        steps = [partial(rounded_to_binary32, step) if isinstance(step, FloatFunction) else step for step in functions]
        of_codes = quantised_again(
            self.scheme_of(source), scheme, lambda numbers: reduce(lambda x, step: step(x), steps, numbers)
        )
        table = function_table("DEQUANTIZE, QUANTIZE", self.scheme_of(source), of_codes, scheme)
        return CodeTable(name=name, inputs=(source,), output=output, table=table)

    def number_table(self, name: str, source: str, functions: tuple[Any, ...], output: str) -> NoReturn:
        raise Refusal("numbers of a function must be read by QUANTIZE", _QUANTISE)

    def check_samples(self, name: str) -> None:
        """``Refusal`` unless the first axis of a tensor is that of the samples."""
        batch, shape = next(iter(self.graph.shapes.values()), self.tensors[name].shape)[:1], self.tensors[name].shape
        if shape[:1] != batch or not shape:
            reason = f"first axis of {name!r} must be that of the samples, {list(batch)}, not of {list(shape)}"
            raise Refusal(reason, "convert the network with an axis of samples that stays first")


def multiplier_of(numbers: ArrayLike) -> FixedPointMultiplier:
    """A real multiplier in fixed point; ``Refusal`` if it is too large."""
    try:
        return FixedPointMultiplier.of(numbers)
    except ValueError as error:
        raise Refusal(f"scales must fit each other: {error}", "quantise the network again") from error
