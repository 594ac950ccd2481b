"""State of the importer of integer graphs while it walks through a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from concord.frontend.codes.fusion import Fusion
from concord.frontend.codes.model_values import (
    Accumulators,
    CodeTarget,
    ConstantCodes,
    MovedInput,
    OpenProduct,
    Unquantised,
    Widener,
)
from concord.frontend.codes.uses import Uses
from concord.frontend.context import NodeReader, OnnxNode
from concord.frontend.errors import Refusal
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import Move, NoMove
from concord.integer.operations import CodeConstant, CodeMovement, CodeTable
from concord.integer.requantise import limited_codes
from concord.integer.tables import FunctionStep, code_table, number_table
from concord.integer.wide import WIDE, CodesOfNumbers, NumbersOfCodes, TabledNumbers, integers_of, limit_of
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import CodeRange, Codes

#: Maker of operations from the first tensor to the last one, both of the scheme.
Appended = Callable[[str, str, Codes | WideNumbers], list[IntegerOperation]]
#: Advice where an operator reads floats that nothing has quantised.
PAIR = "put QuantizeLinear and DequantizeLinear in front of it"


@dataclass
class Reading(NodeReader):
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
    uses : Uses
        What reads the tensors of the model.
    fusion : Fusion
        Integer kernels in the place of its operators.
    decoded : dict of str to str
        Float tensors that DequantizeLinear makes: the tensor of codes.
    weights : dict of str to ConstantCodes
        Constants that DequantizeLinear makes.
    open : dict of str to Unquantised
        Float tensors that no QuantizeLinear has read yet.
    sums : dict of str to Accumulators
        Tensors of sums of products, as integers or as floats.
    wide : dict of str to str
        Float tensors that are computed as they are: the wide tensor.
    products : dict of str to OpenProduct
        Results of MatMul, to which an Add may add a bias.
    last : bool
        Whether channels are the last axis of images.
    """

    graph: IntegerGraph
    opset: int
    constants: dict[str, NDArray[Any]]
    floats: dict[str, MovedInput]
    types: dict[str, int]
    taken: set[str]
    uses: Uses
    fusion: Fusion
    decoded: dict[str, str] = field(default_factory=dict)
    weights: dict[str, ConstantCodes] = field(default_factory=dict)
    open: dict[str, Unquantised] = field(default_factory=dict)
    sums: dict[str, Accumulators] = field(default_factory=dict)
    wide: dict[str, str] = field(default_factory=dict)
    products: dict[str, OpenProduct] = field(default_factory=dict)
    last: bool = False
    _samples: dict[str, Integers] = field(default_factory=dict)

    def spatial_axes(self, rank: int) -> range:
        """Axes of an image of so many dimensions that are not of the samples or the channels."""
        return range(2 - self.last, 2 - self.last + rank)

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

    def scheme(self, node: OnnxNode, place: int, dtype: str) -> Codes:
        """The scheme of codes of a type, from the scale at an operand of a node and the zero point after it."""
        match = re.fullmatch(r"(u?)int(\d+)", dtype)
        if match is None or int(match[2]) > 16:
            raise Refusal(f"codes must be integers of at most 16 bits, not {dtype}", "quantise to int8")
        scale, zero = self.step(node, place)
        return Codes(int(match[2]), scale, zero, CodeRange.of(not match[1]))

    def step(self, node: OnnxNode, place: int) -> tuple[float, int]:
        """The scale at an operand of a node, and the zero point after it."""
        scale = self.constant(node.input(place), "scale")
        zero = self.zero_point(node, place + 1, scale)
        if scale.size != 1:
            raise Refusal("activations must have one scale", "quantise weights alone per channel")
        if scale.dtype != np.float32 or not 0 < scale.item() < np.inf:
            raise Refusal(f"scale must be a positive float32 number, not {scale.item()!r} of {scale.dtype}")
        return float(scale.item()), int(zero.item())

    def codes(self, name: str) -> str:
        """The tensor of codes that stands for a float tensor, or that a name is of."""
        if name in self.decoded:
            return self.decoded[name]
        if name in self.weights and (scheme := self.weights[name].scheme) is not None:
            output = self.unique(f"{name}/codes")
            value = np.asarray(self.weights[name].offsets + scheme.zero)
            self.emit(CodeConstant(name=name, inputs=(), output=output, value=value), scheme)
            self.decoded[name] = output
            return output
        tensor = self.graph.tensor(name)
        if tensor in self.graph.schemes and not self.graph.is_wide(tensor):
            return tensor
        if name in self.types:
            raise Refusal(f"must read what DequantizeLinear makes of the input {name!r}", "move it behind that")
        raise Refusal(f"must read codes, not the floats {name!r}", PAIR)

    def is_integer(self, name: str) -> bool:
        """True if a tensor of the model is of codes themselves, and not of floats that they stand for."""
        tensor = self.graph.tensor(name)
        return name not in self.decoded and tensor in self.graph.schemes and not self.graph.is_wide(tensor)

    def are_codes(self, name: str) -> bool:
        """True if :meth:`codes` has codes for a tensor."""
        tensor, constant = self.graph.tensor(name), self.weights.get(name)
        known = tensor in self.graph.schemes and not self.graph.is_wide(tensor)
        return known or name in self.decoded or (constant is not None and constant.scheme is not None)

    def are_numbers(self, name: str) -> bool:
        """True if a tensor is computed in binary32, be it only later."""
        return name in self.wide or (name in self.open and self.open[name].widen is not None)

    def passes(self, name: str) -> bool:
        """True if moves of a tensor are put after the operations that are computed in binary32."""
        return (self._later(name) or self.are_numbers(name)) and not self.are_codes(name)

    def _later(self, name: str) -> bool:
        """True if moves of a tensor are put after the operations that make its codes; means have nothing but codes."""
        if name not in self.open or name in self.wide:
            return False
        return self.open[name].widen is None or self.uses.end_in_codes(name)

    def numbers(self, name: str) -> str:
        """The wide tensor of the numbers of a float tensor; it is made with the first call."""
        if name not in self.wide:
            self.wide[name] = self._widened(name)
        return self.wide[name]

    def _widened(self, name: str) -> str:
        if name in self.floats:
            return self._wide_input(name)
        if name in self.open:
            return self._opened(name)
        if name in self.weights or (name in self.constants and self.constants[name].dtype == np.float32):
            output = self.unique(f"{name}/numbers")
            value = self.weights[name].numbers if name in self.weights else self.constants[name]
            if not np.isfinite(value).all():
                raise Refusal(f"constant {name!r} must be of finite numbers")
            self.emit(CodeConstant(name=name, inputs=(), output=output, value=integers_of(value)), WIDE)
            return output
        codes = self.codes(name)
        scheme, output = self.scheme_of(codes), name if name in self.decoded else self.unique(f"{name}/numbers")
        operation = NumbersOfCodes(
            name=name, inputs=(codes,), output=output, scale=np.float32(scheme.scale), zero_point=scheme.zero
        )
        self.emit(operation, WIDE)
        return output

    def _opened(self, name: str) -> str:
        """The numbers of what no QuantizeLinear has read yet, within the limits of activations after it."""
        pending = self.open[name]
        if pending.widen is None:
            raise Refusal(f"must read codes, not the floats {name!r}", PAIR)
        low, high = WIDE.low, WIDE.high
        for least, most in pending.limits:
            low, high = (min(max(limit_of(end), low), high) for end in (least, most))
        limited = (low, high) != (WIDE.low, WIDE.high)
        output = self.unique(f"{name}/unlimited") if limited else name
        self.add_all(pending.widen(output), WIDE)
        if limited:
            self.emit(CodeMovement(name=name, inputs=(output,), output=name, move=NoMove(), low=low, high=high), WIDE)
        return name

    def _wide_input(self, name: str) -> str:
        """The numbers of an input of the model; its codes are made of them if there are some already."""
        moved = self.floats[name]
        if not moved.moves:
            known = self.graph.inputs.get(name)
            self.graph.inputs[name], self.graph.schemes[name] = name, WIDE
            if known is not None:
                self.graph.operations.insert(0, self._quantiser(name, name, self.scheme_of(known), known))
            return name
        source = self.numbers(moved.name)
        self.graph.operations.extend(self.row_of_moves(moved.moves, source, name, WIDE))
        return name

    def _quantiser(self, name: str, source: str, scheme: Codes, output: str) -> CodesOfNumbers:
        return CodesOfNumbers(
            name=name, inputs=(source,), output=output, step=np.float32(scheme.scale), zero_point=scheme.zero,
            low=scheme.low, high=scheme.high,
        )  # fmt: skip

    def operand(self, name: str) -> tuple[str, tuple[FunctionStep, ...]]:
        """The tensor of codes of a float tensor, or the one that it is a function of, and the steps of that."""
        pending = self.open.get(name)
        if pending is None or pending.source is None or name in self.wide:
            return self.codes(name), ()
        return pending.source, pending.functions

    def weight(self, name: str, what: str) -> ConstantCodes:
        """Constant codes that an operator reads."""
        if name not in self.weights:
            raise Refusal(f"{what} must be constant integers, not {name!r}", "quantise it, and fold constants")
        return self.weights[name]

    def scheme_of(self, codes: str) -> Codes:
        """The scheme of a tensor of codes."""
        return self.graph.scheme(codes)

    def sizes(self, codes: str) -> tuple[int, ...]:
        """The sizes of a tensor of codes, found by computing what was read so far for numbers of 0.

        The first one is the number of samples, 1 if it is open. ``Refusal`` if an input has open sizes after that.
        """
        samples = self._computed_samples()
        if codes not in samples:
            self._refuse_open_sizes()
        return tuple(samples[codes].shape)

    def _computed_samples(self) -> dict[str, Integers]:
        """All tensors of the graph whose sizes are known, for numbers of 0."""
        samples, graph = self._samples, self.graph
        for name, tensor in graph.inputs.items():
            shape = graph.shapes[name]
            if tensor not in samples and None not in shape[1:]:
                sizes = [size or 1 for size in shape]
                samples[tensor] = np.full(sizes, graph.schemes[tensor].zero, dtype=np.int64)
        _compute(graph.operations, samples)
        return samples

    def _refuse_open_sizes(self) -> NoReturn:
        unknown = sorted(name for name, tensor in self.graph.inputs.items() if tensor not in self._samples)
        raise Refusal(f"must read codes of known sizes; those of {unknown} are open", "give them fixed sizes")

    def _sizes_of_open(self, name: str) -> tuple[int, ...]:
        """The sizes of what is made only later."""
        widen = self.open[name].widen
        assert widen is not None
        operations = widen(self.unique(f"{name}/sizes"))
        samples = dict(self._computed_samples())
        _compute(operations, samples)
        if operations[-1].output not in samples:
            self._refuse_open_sizes()
        return tuple(samples[operations[-1].output].shape)

    def sizes_of(self, name: str) -> tuple[int, ...]:
        """The sizes of a tensor of the model that can be moved: a constant, an input, or what codes stand for."""
        if name in self.constants:
            return self.constants[name].shape
        if name not in self.floats:
            if self.are_numbers(name) and not self.are_codes(name):
                return self.sizes(self.wide[name]) if name in self.wide else self._sizes_of_open(name)
            return self.sizes(self.codes(name))
        moved = self.floats[name]
        shape = self.graph.shapes[moved.name]
        if None in shape[1:]:
            raise Refusal(f"must read codes of known sizes; those of {moved.name!r} are open", "give them fixed sizes")
        sample = np.zeros([size or 1 for size in shape], dtype=np.int64)
        for _, move in moved.moves:
            sample = move.apply(sample)
        return tuple(sample.shape)

    def add_all(self, operations: Sequence[IntegerOperation], scheme: Codes | WideNumbers) -> None:
        """Add operations, whose last one makes the tensor of the scheme."""
        self.graph.operations.extend(operations)
        self.graph.schemes[operations[-1].output] = scheme

    def add_wide(self, output: str, widen: Widener) -> None:
        """Add the operations that make a tensor of the model as it is, of wide numbers."""
        self.add_all(widen(output), WIDE)
        self.wide[output] = output

    def reads_codes(self, name: str) -> bool:
        """True if a tensor is codes, or a function of one code that nothing has quantised yet."""
        return self.are_codes(name) or (name in self.open and self.open[name].source is not None)

    def emit(self, operation: IntegerOperation, scheme: Codes | WideNumbers) -> None:
        """Add an operation to the graph."""
        self.graph.operations.append(operation)
        self.graph.schemes[operation.output] = scheme

    def moved_codes(self, name: str, moves: Sequence[Move], source: str, last: str) -> str:
        """Move codes, whose scheme stays, in a row of operations of one name; the tensor of the result.

        That is ``last``, or the source if there are no moves.
        """
        steps = [(name, move) for move in moves]
        self.graph.operations.extend(self.row_of_moves(steps, source, last, self.graph.scheme(source)))
        return last if moves else source

    def row_of_moves(
        self, steps: Sequence[tuple[str, Move]], source: str, last: str, scheme: Codes | WideNumbers
    ) -> list[IntegerOperation]:
        """Moves with the names of their nodes, from the tensor ``source`` to the tensor ``last``."""
        made: list[IntegerOperation] = []
        for k, (name, move) in enumerate(steps, 1):
            result = last if k == len(steps) else self.unique(f"{last}/{k}")
            self.graph.schemes[result] = scheme
            made.append(CodeMovement.of(name, (source,), result, move, scheme))
            source = result
        return made

    def moved(self, node: OnnxNode, moves: Sequence[Move], output: str) -> None:
        """Apply moves to the first operand of a node: a constant, an input in front of its codes, or codes."""
        x, steps = node.input(0), [(node.name, move) for move in moves]
        if x in self.floats:
            before = self.floats[x]
            self.floats[output] = MovedInput(before.name, (*before.moves, *steps))
        elif x in self.constants:
            value = self.constants[x]
            for move in moves:
                value = move.apply(value)
            self.constants[output] = value
        elif x in self.open and self.open[x].source is not None and x not in self.wide:
            self._moved_function(node, steps, output)
        elif self.passes(x):
            self.pass_numbers(x, output, partial(self.row_of_moves, steps))
        else:
            codes = self.codes(x)
            last, scheme = self.moved_name(x, output), self.scheme_of(codes)
            self.graph.operations.extend(self.row_of_moves(steps, codes, last, scheme))

    def _moved_function(self, node: OnnxNode, steps: list[tuple[str, Move]], output: str) -> None:
        """Move the codes that a tensor is a function of: each element has its function by itself."""
        pending = self.open[node.input(0)]
        source, functions = pending.source, pending.functions
        assert source is not None
        codes = self.unique(f"{output}/source")
        self.graph.operations.extend(self.row_of_moves(steps, source, codes, self.scheme_of(source)))

        def make(target: CodeTarget) -> list[IntegerOperation]:
            return [self.table(node.name, codes, functions, target.scheme, target.name)]

        widen = self._widened_with(pending, partial(self.row_of_moves, steps))
        self.open[output] = replace(pending, make=make, source=codes, widen=widen)

    def _widened_with(self, pending: Unquantised, appended: Appended) -> Widener | None:
        """Maker of the numbers of a tensor, and of what is appended to them; ``None`` if it has only codes."""
        before = pending.widen
        if before is None:
            return None

        def widen(name: str) -> list[IntegerOperation]:
            first = self.unique(f"{name}/first")
            self.graph.schemes[first] = WIDE
            return [*before(first), *appended(first, name, WIDE)]

        return widen

    def pass_numbers(self, x: str, output: str, appended: Appended) -> None:
        """Put operations that codes pass as numbers do after what is computed in binary32.

        Its codes pass them if nothing but one QuantizeLinear has to read the result.

        Parameters
        ----------
        x, output : str
            Float tensors of the model.
        appended : callable
            ``appended(first, last, scheme)`` makes the tensor ``last`` of the tensor ``first``, and leaves its scheme.
        """
        if not self._later(x):
            self.add_all(appended(self.numbers(x), output, WIDE), WIDE)
            self.wide[output] = output
            return
        pending = self.open[x]

        def make(target: CodeTarget) -> list[IntegerOperation]:
            first = self.unique(f"{target.name}/first")
            self.graph.schemes[first] = target.scheme
            return [*pending.make(replace(target, name=first)), *appended(first, target.name, target.scheme)]

        widen = self._widened_with(pending, appended)
        self.open[output] = replace(pending, make=make, source=None, functions=(), widen=widen)

    def moved_name(self, x: str, output: str) -> str:
        """The name of the codes of a result with the scheme of what it is made of."""
        if x not in self.decoded:
            return output
        self.decoded[output] = self.unique(f"{output}/codes")
        return self.decoded[output]

    def quantised_input(self, name: str, scheme: Codes, output: str) -> None:
        """Make the codes of an input, which are moved as its floats were: each number has its code by itself."""
        moved = self.floats[name]
        known = self.graph.inputs.get(moved.name)
        if moved.name in self.wide or (known is not None and self.scheme_of(known) != scheme):
            self.quantised_numbers(name, scheme, output)
            return
        if moved.name not in self.graph.inputs:
            self.graph.inputs[moved.name] = self.unique(f"{moved.name}/codes") if moved.moves else output
        codes = self.graph.inputs[moved.name]
        self.graph.schemes[codes] = scheme
        self.graph.operations.extend(self.row_of_moves(moved.moves, codes, output, scheme))
        if not moved.moves and codes != output:
            self.graph.aliases[output] = codes

    def quantised(self, name: str, scheme: Codes, output: str) -> None:
        """Make the codes of an open tensor."""
        pending = self.open[name]
        if pending.widen is not None and pending.source is None and not self.uses.end_in_codes(name):
            self.quantised_numbers(name, scheme, output)
            return
        self.add_all(pending.make(CodeTarget(output, scheme, *limited_codes(scheme, pending.limits))), scheme)

    def quantised_numbers(self, name: str, scheme: Codes, output: str) -> None:
        """Make the codes of a wide tensor."""
        self.emit(self._quantiser(output, self.numbers(name), scheme, output), scheme)

    def convert(self, node: OnnxNode, source: str, scheme: Codes, output: str) -> None:
        """Give codes another scheme; nothing to do if it is the same."""
        if self.scheme_of(source) == scheme:
            self.graph.aliases[output] = source
        else:
            self.emit(self.table(node.name, source, (), scheme, output), scheme)

    def table(
        self, name: str, source: str, functions: tuple[FunctionStep, ...], scheme: Codes, output: str
    ) -> CodeTable:
        """A function of codes."""
        try:
            table = code_table(self.scheme_of(source), functions, scheme)
        except ValueError as error:
            raise _refused_table(error) from error
        return CodeTable(name=name, inputs=(source,), output=output, table=table)

    def in_scheme(
        self, name: str, operands: Sequence[tuple[str, tuple[FunctionStep, ...]]], target: CodeTarget
    ) -> tuple[list[IntegerOperation], list[str]]:
        """Tables that give functions of codes the scheme of a target, and the tensors that have it then."""
        steps: list[IntegerOperation] = []
        parts = []
        for k, (part, functions) in enumerate(operands):
            if functions or self.scheme_of(part) != target.scheme:
                made = self.unique(f"{target.name}/{k}")
                steps.append(self.table(f"{name}/{k}", part, functions, target.scheme, made))
                self.graph.schemes[made] = target.scheme
                part = made
            parts.append(part)
        return steps, parts

    def number_table(self, name: str, source: str, functions: tuple[FunctionStep, ...], output: str) -> TabledNumbers:
        """A function of codes whose result is wide."""
        scheme = self.scheme_of(source)
        try:
            numbers = number_table(scheme, functions)
        except ValueError as error:
            raise _refused_table(error) from error
        if not np.isfinite(numbers).all():
            raise Refusal("must be finite for all codes, or be read by QuantizeLinear alone", PAIR)
        return TabledNumbers(name=name, inputs=(source,), output=output, numbers=numbers, least=scheme.low)


def _refused_table(error: ValueError) -> Refusal:
    return Refusal(str(error), "give its input a zero point below which there are no codes")


def _compute(operations: Sequence[IntegerOperation], tensors: dict[str, Integers]) -> None:
    """Compute what can be computed of tensors, and is not there yet."""
    for operation in operations:
        if operation.output not in tensors and all(name in tensors for name in operation.inputs):
            tensors[operation.output] = operation.run(*(tensors[name] for name in operation.inputs))
