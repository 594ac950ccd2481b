"""What the importer of integer graphs knows while it walks through a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.context import OnnxNode, unused_name
from concord.frontend.errors import Refusal
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import Move
from concord.integer.operations import CodeConstant, CodeMovement, CodeTable
from concord.integer.requantise import FloatRequantisation, codes_of_floats
from concord.integer.tables import code_table
from concord.transfer import CodeRange, UniformAffine
from concord.transfer.operators import OperatorLike

#: What helps where an operator reads floats that nothing has quantised.
PAIR = "put QuantizeLinear and DequantizeLinear in front of it"


@dataclass(frozen=True, eq=False)
class ConstantCodes:
    """Constant integers, and what they stand for.

    Parameters
    ----------
    offsets : array of int64
        Codes less their zero points.
    scale : array of float32
        One number, or one for each index of ``axis``.
    axis : int or None
        ``None`` for one scale.
    scheme : UniformAffine or None
        What the codes stand for, if there is one scale and they have at most 16 bits.
    """

    offsets: Integers
    scale: NDArray[np.float32]
    axis: int | None
    scheme: UniformAffine | None


@dataclass(frozen=True, eq=False)
class CodeTarget:
    """The codes that an operation has to make, in ``low..high`` of their scheme."""

    name: str
    scheme: UniformAffine
    low: int
    high: int

    @property
    def scale(self) -> np.float32:
        """The step, which is a float32 number."""
        return np.float32(self.scheme.scale)


#: Makes the operations whose last one has the codes of the target.
Maker = Callable[[CodeTarget], Sequence[IntegerOperation]]


@dataclass(frozen=True, eq=False)
class Unquantised:
    """A float tensor that is between an operator and the QuantizeLinear of its result.

    Parameters
    ----------
    make : callable
        Makes its codes.
    limits : tuple of pairs
        Numbers to which activations limit it.
    source : str or None
        The tensor of codes it is a point-wise function of, if that is what it is.
    functions : tuple
        That function.
    """

    make: Maker
    limits: tuple[tuple[float, float], ...] = ()
    source: str | None = None
    functions: tuple[OperatorLike, ...] = ()


@dataclass(frozen=True, eq=False)
class Accumulators:
    """Sums of products as a tensor of the model, in integers or as floats; these may have a factor and a term.

    Parameters
    ----------
    make : callable
        Makes the product, of the name of its codes and of what makes them of sums.
    channels : int
        Their number.
    rank : int
        Number of axes behind that of the channels.
    floats : bool
        Whether the sums are floats.
    factor, term : array of float32
        One number, or one for each channel. ``None`` as long as nothing has multiplied or added it.
    """

    make: Callable[[str, FloatRequantisation], IntegerOperation]
    channels: int
    rank: int
    floats: bool = False
    factor: NDArray[np.float32] | None = None
    term: NDArray[np.float32] | None = None

    def numbers(self, constant: NDArray[Any], what: str) -> NDArray[np.float32]:
        """A constant, by channel; ``Refusal`` if it is no float32 number, or not one or one for each channel."""
        single = (self.channels, *[1] * self.rank)
        if constant.dtype != np.float32:
            raise Refusal(f"{what} must be of float32, not {constant.dtype}", "cast it")
        if constant.size != 1 and (1,) * (constant.ndim - len(single)) + single != constant.shape:
            reason = f"{what} must be one number, or one for each of {self.channels} channels"
            raise Refusal(f"{reason}, not of shape {list(constant.shape)}", "make it so")
        if not np.isfinite(constant).all():
            raise Refusal(f"{what} must be of finite numbers")
        return constant.reshape(-1)

    def opened(self) -> Unquantised:
        """The sums as floats in front of QuantizeLinear."""
        unit, nothing = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)

        def make(target: CodeTarget) -> list[IntegerOperation]:
            factor = unit if self.factor is None else self.factor
            term = nothing if self.term is None else self.term
            ends = target.scheme.zero, target.low, target.high
            return [self.make(target.name, FloatRequantisation(factor, term, target.scale, *ends))]

        return Unquantised(make)


@dataclass(frozen=True, eq=False)
class MovedInput:
    """An input of the model that was moved before anything quantised it: its name, and the nodes that moved it."""

    name: str
    moves: tuple[tuple[str, Move], ...] = ()


@dataclass
class Reading:
    """The integer graph under construction.

    Parameters
    ----------
    graph : IntegerGraph
        As far as it is.
    opset : int
        Version of the standard operators.
    constants : dict of arrays
        Of the model, by name.
    floats : dict of str to MovedInput
        Inputs of the model that are floats, as they are or moved.
    types : dict of str to int
        Element types of ONNX of the other inputs of the model.
    taken : set of str
        Names that are in use in the model or in the graph.
    decoded : dict of str to str
        Float tensors that DequantizeLinear makes: the tensor of codes.
    weights : dict of str to ConstantCodes
        Constants that DequantizeLinear makes.
    open : dict of str to Unquantised
        Float tensors that no QuantizeLinear has read yet.
    sums : dict of str to Accumulators
        Tensors of sums of products, as integers or as floats.
    """

    graph: IntegerGraph
    opset: int
    constants: dict[str, NDArray[Any]]
    floats: dict[str, MovedInput]
    types: dict[str, int]
    taken: set[str]
    decoded: dict[str, str] = field(default_factory=dict)
    weights: dict[str, ConstantCodes] = field(default_factory=dict)
    open: dict[str, Unquantised] = field(default_factory=dict)
    sums: dict[str, Accumulators] = field(default_factory=dict)
    _samples: dict[str, Integers] = field(default_factory=dict)

    def unique(self, stem: str) -> str:
        """A name that is not in use; in use from now on."""
        name = unused_name(stem, self.taken)
        self.taken.add(name)
        return name

    def constant(self, name: str, what: str) -> NDArray[Any]:
        """A constant; ``Refusal`` if it is none."""
        if name not in self.constants:
            raise Refusal(f"{what} must be a constant, not {name!r}", "fold constants, as onnxsim does")
        return self.constants[name]

    def zero_point(self, node: OnnxNode, place: int, scale: NDArray[Any]) -> Integers:
        """The zero point at an operand of a node, or as many zeros as there are scales; ``Refusal`` if it varies."""
        name = node.input(place)
        numbers = self.constant(name, "zero point") if name else np.zeros(scale.shape)
        return numbers.astype(np.int64)

    def scheme(self, node: OnnxNode, place: int, dtype: str) -> UniformAffine:
        """The scheme of codes of a type, from the scale at an operand of a node and the zero point behind it."""
        match = re.fullmatch(r"(u?)int(\d+)", dtype)
        if match is None or int(match[2]) > 16:
            raise Refusal(f"codes must be integers of at most 16 bits, not {dtype}", "quantise to int8")
        scale = self.constant(node.input(place), "scale")
        zero = self.zero_point(node, place + 1, scale)
        if scale.size != 1:
            raise Refusal("activations must have one scale", "quantise weights alone per channel")
        if scale.dtype != np.float32 or not 0 < scale.item() < np.inf:
            raise Refusal(f"scale must be a positive float32 number, not {scale.item()!r} of {scale.dtype}")
        codes = CodeRange.UNSIGNED if match[1] else CodeRange.SIGNED
        return UniformAffine(int(match[2]), float(scale.item()), int(zero.item()), codes)

    def codes(self, name: str) -> str:
        """The tensor of codes that stands for a float tensor, or that a name is of."""
        if name in self.decoded:
            return self.decoded[name]
        if name in self.weights and (scheme := self.weights[name].scheme) is not None:
            output = self.unique(f"{name}/codes")
            value = self.weights[name].offsets + scheme.zero
            self.emit(CodeConstant(name=name, inputs=(), output=output, value=value), scheme)
            self.decoded[name] = output
            return output
        if self.graph.tensor(name) in self.graph.schemes:
            return self.graph.tensor(name)
        if name in self.types:
            raise Refusal(f"must read what DequantizeLinear makes of the input {name!r}", "move it behind that")
        raise Refusal(f"must read codes, not the floats {name!r}", PAIR)

    def weight(self, name: str, what: str) -> ConstantCodes:
        """Constant codes that an operator reads."""
        if name not in self.weights:
            raise Refusal(f"{what} must be constant integers, not {name!r}", "quantise it, and fold constants")
        return self.weights[name]

    def scheme_of(self, codes: str) -> UniformAffine:
        """The scheme of a tensor of codes."""
        return self.graph.schemes[codes]

    def sizes(self, codes: str) -> tuple[int, ...]:
        """The sizes of a tensor of codes, found by computing what was read so far for numbers of 0.

        The first one is the number of samples, 1 if it is open. ``Refusal`` if an input has open sizes behind that.
        """
        samples, graph = self._samples, self.graph
        for name, tensor in graph.inputs.items():
            shape = graph.shapes[name]
            if tensor not in samples and None not in shape[1:]:
                sizes = [size or 1 for size in shape]
                samples[tensor] = np.full(sizes, graph.schemes[tensor].zero, dtype=np.int64)
        for operation in graph.operations:
            if operation.output not in samples and all(name in samples for name in operation.inputs):
                samples[operation.output] = operation.run(*(samples[name] for name in operation.inputs))
        if codes not in samples:
            unknown = sorted(name for name, tensor in graph.inputs.items() if tensor not in samples)
            raise Refusal(f"must read codes of known sizes; those of {unknown} are open", "give them fixed sizes")
        return tuple(samples[codes].shape)

    def sizes_of(self, name: str) -> tuple[int, ...]:
        """The sizes of a tensor of the model that can be moved: a constant, an input, or what codes stand for."""
        if name in self.constants:
            return self.constants[name].shape
        if name not in self.floats:
            return self.sizes(self.codes(name))
        moved = self.floats[name]
        shape = self.graph.shapes[moved.name]
        if None in shape[1:]:
            raise Refusal(f"must read codes of known sizes; those of {moved.name!r} are open", "give them fixed sizes")
        sample = np.zeros([size or 1 for size in shape], dtype=np.int64)
        for _, move in moved.moves:
            sample = move.apply(sample)
        return tuple(sample.shape)

    def emit(self, operation: IntegerOperation, scheme: UniformAffine) -> None:
        """Add an operation to the graph."""
        self.graph.operations.append(operation)
        self.graph.schemes[operation.output] = scheme

    def move(self, name: str, source: str, move: Move, scheme: UniformAffine, output: str) -> None:
        """Move codes, whose scheme stays."""
        operation = CodeMovement(
            name=name, inputs=(source,), output=output, move=move, low=scheme.low, high=scheme.high
        )  # fmt: skip
        self.emit(operation, scheme)

    def moved(self, node: OnnxNode, moves: Sequence[Move], output: str) -> None:
        """What moves make of the first operand of a node: a constant, an input in front of its codes, or codes."""
        x = node.input(0)
        if x in self.floats:
            before = self.floats[x]
            steps = tuple((node.name, move) for move in moves)
            self.floats[output] = MovedInput(before.name, (*before.moves, *steps))
        elif x in self.constants:
            value = self.constants[x]
            for move in moves:
                value = move.apply(value)
            self.constants[output] = value
        else:
            codes = self.codes(x)
            scheme, last = self.scheme_of(codes), self.moved_name(x, output)
            for k, move in enumerate(moves, 1):
                result = last if k == len(moves) else self.unique(f"{output}/{k}")
                self.move(node.name, codes, move, scheme, result)
                codes = result

    def moved_name(self, x: str, output: str) -> str:
        """The name of the codes of a result with the scheme of what it is made of."""
        if x not in self.decoded:
            return output
        self.decoded[output] = self.unique(f"{output}/codes")
        return self.decoded[output]

    def quantised_input(self, name: str, scheme: UniformAffine, output: str) -> None:
        """Make the codes of an input, which are moved as its floats were: each number has its code by itself."""
        moved = self.floats[name]
        if moved.name not in self.graph.inputs:
            self.graph.inputs[moved.name] = self.unique(f"{moved.name}/codes") if moved.moves else output
        codes = self.graph.inputs[moved.name]
        if self.graph.schemes.setdefault(codes, scheme) != scheme:
            raise Refusal(f"input {moved.name!r} must be quantised in one way", "quantise it once")
        for k, (node, move) in enumerate(moved.moves, 1):
            result = output if k == len(moved.moves) else self.unique(f"{output}/{k}")
            self.move(node, codes, move, scheme, result)
            codes = result
        if codes != output:
            self.graph.aliases[output] = codes

    def quantised(self, name: str, scheme: UniformAffine, output: str) -> None:
        """Make the codes of an open tensor."""
        pending = self.open[name]
        low, high = scheme.low, scheme.high
        for least, most in pending.limits:  # rounding is monotone, so codes may be limited in the place of numbers
            low, high = (min(max(int(end), low), high) for end in codes_of_floats((least, most), scheme))
        for operation in pending.make(CodeTarget(output, scheme, low, high)):
            self.graph.operations.append(operation)
        self.graph.schemes[output] = scheme

    def convert(self, node: OnnxNode, source: str, scheme: UniformAffine, output: str) -> None:
        """Give codes another scheme; nothing to do if it is the same."""
        if self.scheme_of(source) == scheme:
            self.graph.aliases[output] = source
        else:
            self.emit(self.table(node.name, source, (), scheme, output), scheme)

    def table(
        self, name: str, source: str, functions: tuple[OperatorLike, ...], scheme: UniformAffine, output: str
    ) -> CodeTable:
        """A function of codes."""
        try:
            table = code_table(self.scheme_of(source), functions, scheme)
        except ValueError as error:
            raise Refusal(str(error), "give its input the least code as zero point") from error
        return CodeTable(name=name, inputs=(source,), output=output, table=table)
