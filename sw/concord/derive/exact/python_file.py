"""Files of Python, for NumPy or PyTorch, that execute a quantised network on its codes.

A file has one function for every layer, with its name; constants are in a file .npz beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.derive.backends.constants_file import ConstantArrays, archive, write_both
from concord.derive.backends.function_texts import defined, library_text
from concord.derive.backends.python_library import Library, function_text, python_text
from concord.derive.exact.arrays import Array, WindowPlaces
from concord.derive.exact.library import LibraryWriter
from concord.derive.exact.lowering import ArrayLowering, shapes_of
from concord.derive.names import Names, in_docstring
from concord.integer.float32 import Integers
from concord.integer.network import IntegerNetwork
from concord.integer.requantise import ACCUMULATOR_BITS
from concord.spec.formats import Rounding
from concord.sums.exact import exact_type
from concord.sums.reach import sum_bound

_DOCSTRING = '''"""{name}, a quantised network, executed on its codes: sums of 32 bits, and tables.

Derived by Concord; needs {library}, and the file {constants} beside it. All codes are those of `concord run --exact`.
"""
'''
_RUN = '''
def run(inputs):
    """Codes of the outputs by name, from floats, or from codes, if they are integers, [samples, ...] by input."""
    if set(inputs) != set(INPUTS):
        raise ValueError(f"inputs must be {{sorted(INPUTS)}}, not {{sorted(inputs)}}")
    start = []
    for name, (shape, *scheme) in INPUTS.items():
        x = quantised(inputs[name], *scheme) if scheme else wide(inputs[name])
        if tuple(x.shape[1:]) != shape:
            wanted = ", ".join(["samples", *map(str, shape)])
            raise ValueError(f"{{name}} must have shape [{{wanted}}], not {{list(x.shape)}}")
        start.append(x)
    return dict(zip(OUTPUTS, [{result} for x, kind in zip(network(*start), OUTPUTS.values())]))
'''
_PORTS = """
#: Shape of a sample, scale, zero point, least and greatest code of every input, and whether floats in the
#: middle between two codes are rounded away from zero, else to the even one. A shape alone: floats stay.
INPUTS = {{
{inputs}
}}
#: Types of the codes or numbers of every output.
OUTPUTS = {{
{outputs}
}}
"""
_RESULT = {"numpy": "x.astype(kind)", "torch": "x.to(getattr(torch, kind))"}


class PythonWriter(LibraryWriter):
    """Lines of Python that call the functions of a library; arrays that they read are ``constants``."""

    def __init__(self) -> None:
        self.constants = ConstantArrays()
        self.lines: list[str] = []
        self.layer = ""
        self._count = 0

    def begin(self, layer: str) -> None:
        """Begins the body of a function."""
        self.layer, self.lines, self._count = layer, [], 0

    def _line(self, text: str, real: bool = False) -> Array:
        self._count += 1
        name = f"v{self._count}"
        self.lines.append(f"{name} = {text}")
        return Array(name, real)

    def _constant(self, values: NDArray[Any], hint: str) -> str:
        return f'W["{self.constants.name_of(values, f"{self.layer}_{hint}")}"]'

    def integers(self, values: Any, hint: str) -> Array:
        array = np.asarray(values, dtype=np.int64)
        return Array(str(int(array)) if array.ndim == 0 else self._constant(array, hint))

    def numbers(self, values: Any, hint: str) -> Array:
        array = np.asarray(values, dtype=np.float32)
        return Array(f"numbers({array!s})" if array.ndim == 0 else self._constant(array, hint), real=True)

    def add(self, a: Array, b: Array) -> Array:
        return self._line(f"{a.text} - {b.text[1:]}" if b.text.startswith("-") else f"{a.text} + {b.text}", a.real)

    def subtract(self, a: Array, b: Array) -> Array:
        return self._line(f"{a.text} + {b.text[1:]}" if b.text.startswith("-") else f"{a.text} - {b.text}", a.real)

    def multiply(self, a: Array, b: Array) -> Array:
        return self._line(f"{a.text} * {b.text}", a.real)

    def divide(self, a: Array, b: Array) -> Array:
        return self._line(f"{a.text} / {b.text}", real=True)

    def to_numbers(self, a: Array) -> Array:
        return self._line(f"to_numbers({a.text})", real=True)

    def to_integers(self, a: Array) -> Array:
        return self._line(f"to_integers({a.text})")

    def to_codes(self, a: Array, zero_point: int, low: int, high: int) -> Array:
        return self._line(f"to_codes({a.text}, {zero_point}, {low}, {high})")

    def to_codes_by_binary64(self, a: Array, scale: NDArray[np.float64], zero_point: int, low: int, high: int) -> Array:
        return self._line(
            f"to_codes_by_binary64({a.text}, {self._constant(scale, 'scale')}, {zero_point}, {low}, {high})"
        )

    def shifted_right(self, a: Array, bits: int | Integers) -> Array:
        return self._line(f"{a.text} >> {self.integers(bits, 'shift').text}")

    def quotient(self, a: Array, b: Array) -> Array:
        return self._line(f"{a.text} // {b.text}")

    def limited(self, a: Array, low: int, high: int) -> Array:
        return self._line(f"limited({a.text}, {low}, {high})")

    def limited_numbers(self, a: Array, low: float, high: float) -> Array:
        ends = (self.numbers(end, "end").text for end in (low, high))
        return self._line(f"limited({a.text}, {', '.join(ends)})", real=True)

    def finite(self, a: Array) -> Array:
        return self._line(f"finite({a.text})", real=True)

    def in_bits(self, a: Array, bits: int = ACCUMULATOR_BITS) -> Array:
        return self._line(f"in_bits({a.text}, {bits})")

    def matrix_product(self, a: Array, weight: Integers, reach: int) -> Array:
        weights = self._constant(weight.astype(exact_type(sum_bound(weight, 0, reach))), "weight")
        return self._line(f"matrix_product({a.text}, {weights})")

    def product_of_two(self, a: Array, b: Array, bound: int) -> Array:
        right = f"to_numbers({b.text})" if exact_type(bound) is np.float32 else b.text
        return self._line(f"matrix_product({a.text}, {right})")

    def convolution(self, a: Array, weight: Integers, window: WindowPlaces, groups: int, reach: int) -> Array:
        bound = sum_bound(weight, tuple(range(1, weight.ndim)), reach)
        weights = self._constant(weight.astype(exact_type(bound)), "weight")
        steps = f"{window.strides}, {window.dilations}, {window.pads}"
        return self._line(f"convolution({a.text}, {weights}, {steps}, {groups})")

    def window_maxima(self, a: Array, window: WindowPlaces) -> Array:
        return self._line(f"window_maxima({a.text}, {_arguments(window)})", a.real)

    def windows(self, a: Array, window: WindowPlaces, sizes: Sequence[int]) -> Array:
        return self._line(f"elements_of_windows({a.text}, {_arguments(window)})")

    def total(self, a: Array, axes: Sequence[int]) -> Array:
        return self._line(f"total({a.text}, {tuple(axes)})")

    def added_up(self, a: Array) -> Array:
        return self._line(f"added_up({a.text})", real=True)

    def greatest(self, a: Array) -> Array:
        return self._line(f"greatest({a.text})")

    def look_up(self, table: NDArray[Any], index: Array, low: int, hint: str) -> Array:
        real = table.dtype == np.float32
        entries = self._constant(table if real else table.astype(np.int64), hint)
        place = f"{index.text} - {low}" if low > 0 else f"{index.text} + {-low}" if low else index.text
        return self._line(f"look_up({entries}, {place})", real)

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        return self._line(f"reshape({', '.join([a.text, *map(str, shape)])})", a.real)

    def regroup(self, a: Array, shape: Sequence[int]) -> Array:
        return self._line(f"regroup({', '.join([a.text, *map(str, shape)])})", a.real)

    def transpose(self, a: Array, axes: Sequence[int]) -> Array:
        return self._line(f"transpose({', '.join([a.text, *map(str, axes)])})", a.real)

    def concatenate(self, parts: Sequence[Array], axis: int) -> Array:
        return self._line(f"concatenate([{', '.join(part.text for part in parts)}], {axis})", parts[0].real)

    def take(self, a: Array, index: Integers, hint: str) -> Array:
        return self._line(f"take({a.text}, {self._constant(index, hint)})", a.real)

    def for_one_sample(self, single: Array, several: Array) -> Array:
        return self._line(f"{single.text} if len({single.text}) == 1 else {several.text}")


def _arguments(window: WindowPlaces) -> str:
    return f"{window.kernel}, {window.strides}, {window.dilations}, {window.pads}"


def to_python(network: IntegerNetwork, library: Library, constants: str) -> tuple[str, bytes]:
    """The text of a file for a library, and the contents of the file of ``constants`` that it reads.

    Parameters
    ----------
    network : IntegerNetwork
    library : Library
    constants : str
        The name of the npz file.

    Raises
    ------
    ValueError
        If a size of an input is open, or an operation mixes samples.
    """
    graph, shapes = network.graph, shapes_of(network.graph)
    functions = library_text(library.name, f"{__package__}.numpy_functions", f"{__package__}.torch_functions")
    own = "W run network INPUTS OUTPUTS Path np torch hashlib io constants_of kind start"
    names = Names([*defined(functions), *own.split()])
    writer = PythonWriter()
    lowering = ArrayLowering(writer, graph, shapes)
    layers, calls = [], []
    variables = {tensor: names.new("codes", tensor) for tensor in graph.inputs.values()}
    for operation in graph.operations:
        writer.begin(names.new(operation.name or operation.output))
        operands = list(dict.fromkeys(operation.inputs))
        local = dict(zip(operands, _operand_names(len(operands)), strict=True))
        result = lowering.write(operation, [Array(local[name], graph.is_wide(name)) for name in operation.inputs])
        layers.append(function_text(f"def {writer.layer}({', '.join(local.values())}):", _body(writer.lines, result)))
        arguments = ", ".join(variables[name] for name in operands)
        variables[operation.output] = names.new("codes", operation.output)
        calls.append(f"{variables[operation.output]} = {writer.layer}({arguments})")
    data = archive(writer.constants.arrays)
    own_texts = [
        _tables(network, shapes),
        *layers,
        _network(network, variables, calls),
        _RUN.format(result=_RESULT[library.name]).strip(),
    ]
    about = _DOCSTRING.format(name=in_docstring(graph.name), library=library.needs, constants=constants)
    return python_text(library, about, [functions], (constants, data), *own_texts), data


def _operand_names(count: int) -> list[str]:
    return ["x"] if count == 1 else ["a", "b"] if count == 2 else [f"x{k}" for k in range(count)]


def _body(lines: list[str], result: Array) -> list[str]:
    """The body of a function, with the last expression after ``return``."""
    last = lines[-1] if lines else ""
    if last.startswith(f"{result.text} = "):
        return [*lines[:-1], f"return {last.split(' = ', 1)[1]}"]
    return [*lines, f"return {result.text}"]


def _tables(network: IntegerNetwork, shapes: dict[str, tuple[int, ...]]) -> str:
    """Text of the tables of inputs and outputs."""
    graph, inputs, outputs = network.graph, [], []
    for name, tensor in graph.inputs.items():
        facts: tuple[Any, ...] = (shapes[tensor][1:],)
        if not graph.is_wide(tensor):
            scheme = graph.scheme(tensor)
            away = scheme.rounding is Rounding.NEAREST_AWAY
            facts += (float(scheme.scale), scheme.zero, scheme.low, scheme.high, away)
        inputs.append(f"    {name!r}: {facts},")
    for name, tensor in graph.outputs.items():
        outputs.append(f"    {name!r}: {np.dtype(graph.schemes[tensor].dtype).name!r},")
        if not graph.is_wide(tensor):
            scheme = graph.scheme(tensor)
            outputs[-1] += f"  # (code - {scheme.zero}) * {float(scheme.scale)!r}"
    return _PORTS.format(inputs="\n".join(inputs), outputs="\n".join(outputs)).strip()


def _network(network: IntegerNetwork, variables: dict[str, str], calls: list[str]) -> str:
    graph = network.graph
    head = f"def network({', '.join(variables[tensor] for tensor in graph.inputs.values())}):"
    results = ", ".join(variables[tensor] for tensor in graph.outputs.values())
    return function_text(head, ['"""Codes of the outputs from codes of the inputs."""', *calls, f"return [{results}]"])


def write_python(library: Library, network: IntegerNetwork, path: Path) -> None:
    """Write the file, and the constants beside it; errors as of :func:`to_python`."""
    write_both(path, *to_python(network, library, path.with_suffix(".npz").name))
