"""Lines of Python for what the host computes after the NPU, with NumPy or PyTorch, for all samples together."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive.backends.python_library import Library
from concord.derive.names import Names
from concord.golden import host_math
from concord.graph.host_operations import ARITHMETIC, Action, HostOperation
from concord.graph.host_rules import operations
from concord.graph.ir import Graph

#: Function to the text of a constant: numbers, their type, and a hint at what they are.
Constant = Callable[[npt.ArrayLike, Any, str], str]
#: Constants of :mod:`concord.golden.host_math` that its functions read, as text.
CONSTANTS = "\n".join(
    f"{name} = {getattr(host_math, name)!r}"
    for name in (
        "EXP_COEFFICIENTS",
        "LOG_COEFFICIENTS",
        "LOG2_E",
        "LN2_HIGH",
        "LN2_LOW",
        "EXP_RANGE",
        "ROOT_HALF",
    )
)


def partition_body(partition: Graph, library: Library, constant: Constant, taken: Collection[str]) -> list[str]:
    """Body of a function that computes the outputs of a host partition, by name, from ``values`` of its inputs.

    Parameters
    ----------
    constant : callable
        Gives the text of a constant of a type, and what it is.
    taken : collection of str
        Names that no variable has.
    """
    variables, names, lines = Names(taken), dict[str, str](), []
    for name in partition.inputs:
        names[name] = variables.new("host", name)
        lines.append(f"{names[name]} = {_reshaped(f'values[{name!r}]', tuple(partition.shapes[name]))}")
    for operation in operations(partition):
        operands = [
            names[operand] if isinstance(operand, str) else constant(operand, np.float64, "host")
            for operand in operation.operands
        ]
        text = _text(operation, operands, library, constant)
        names[operation.output] = variables.new("host", operation.output)
        lines.append(f"{names[operation.output]} = {text}")
    computed = {name for node in partition.nodes for name in node.outputs}
    for name in partition.outputs:
        text = _reshaped(names[name], tuple(partition.sample_shape(name)))
        names[name] = variables.new("host", name)
        lines.append(f"{names[name]} = {text}{' + 0.0' if name in computed else ''}")
    results = ", ".join(f"{name!r}: {names[name]}" for name in partition.outputs)
    return [*lines, f"return {{{results}}}"]


def _reshaped(x: str, shape: tuple[int, ...]) -> str:
    return f"{x}.reshape({', '.join([f'{x}.shape[0]', *map(str, shape)])})"


def _text(operation: HostOperation, x: list[str], library: Library, constant: Constant) -> str:
    match operation.action:
        case Action.RESHAPE:
            return _reshaped(x[0], operation.shape)
        case Action.TRANSPOSE:
            return f"{x[0]}.{library.permute}({', '.join(map(str, (0, *(axis + 1 for axis in operation.numbers))))})"
        case Action.CONCAT:
            return f"{library.join}([{', '.join(x)}], {operation.numbers[0] + 1})"
        case Action.SLICE:
            axis, *taken = operation.numbers
            index = constant(np.arange(*taken), np.int64, "host")
            return f"{x[0]}[{':, ' * (axis + 1)}{index}]"
        case Action.SOFTMAX:
            return f"host_softmax({x[0]}, {operation.numbers[0] + 1})"
        case Action.LOG_SOFTMAX:
            return f"host_log_softmax({x[0]}, {operation.numbers[0] + 1})"
        case Action.SUM:
            return f"host_sum({x[0]}, {operation.numbers[0] + 1})"
        case Action.EXP | Action.LOG:
            return f"host_{operation.action.value}({x[0]})"
        case Action.ROOT:
            return f"{library.root}({x[0]})"
        case Action.FLOOR:
            return f"{library.module}.floor({x[0]})"
        case Action.ROUND:
            return f"{library.module}.round({x[0]})"
        case Action.LESS | Action.EQUAL | Action.SELECT:
            return f"host_{operation.action.value}({', '.join(x)})"
        case Action.LOOK_UP:
            return f"host_look_up({x[0]}, {x[1]})"
        case Action.ALONG | Action.GREATEST | Action.ORDER:
            return f"host_{operation.action.value}({', '.join([*x, str(operation.numbers[0] + 1)])})"
        case Action.FILL:
            return f"{library.module}.broadcast_to({x[1]}, ({x[0]}.shape[0], {', '.join(map(str, operation.shape))}))"
    assert operation.action in ARITHMETIC
    sign = {Action.ADD: "+", Action.SUB: "-", Action.MUL: "*", Action.DIV: "/"}.get(operation.action)
    if sign is not None:
        return f"{x[0]} {sign} {x[1]}"
    return f"{library.module}.{'maximum' if operation.action is Action.MAX else 'minimum'}({x[0]}, {x[1]})"
