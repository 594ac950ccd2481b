"""What the host computes behind the NPU, as lines of NumPy: each sample by itself, in float64."""

from __future__ import annotations

from collections.abc import Callable

from concord.derive.names import Names
from concord.graph.ir import Graph, Node


def tail_lines(graph: Graph, names: Names) -> list[str]:
    """The function ``behind(values)``: outputs by name from values by name, arrays ``[1, ...]`` of one sample.

    Raises
    ------
    ValueError
        If there is an operator that is not written down here.
    """
    if unknown := sorted({node.op for node in graph.nodes} - set(_LINES)):
        raise ValueError(f"operators behind the NPU must be among {sorted(_LINES)}, not {unknown}")
    local: dict[str, str] = {}
    lines = ["def behind(values):", '    """What the host computes from the outputs of the NPU, in float64."""']
    for name in graph.inputs:
        local[name] = names.new("host", name)
        shape = tuple(graph.shapes[name])
        lines.append(f"    {local[name]} = values[{name!r}].reshape(1, *{shape})")
    for node in graph.nodes:
        (output,) = node.outputs
        local[output] = names.new("host", output)
        arguments = [local[name] for name in node.inputs]
        lines += [f"    {line}" for line in _LINES[node.op](node, local[output], arguments, graph)]
    found = ", ".join(
        f"{name!r}: {local[name]}.reshape(1, *{tuple(graph.sample_shape(name))})" for name in graph.outputs
    )
    return [*lines, f"    return {{{found}}}"]


def _softmax(node: Node, output: str, arguments: list[str], graph: Graph) -> list[str]:
    axis = node.attrs["axis"] + 1
    (x,) = arguments
    return [
        f"{output} = np.exp({x} - {x}.max(axis={axis}, keepdims=True))",
        f"{output} = {output} / {output}.sum(axis={axis}, keepdims=True)",
    ]


def _reshape(node: Node, output: str, arguments: list[str], graph: Graph) -> list[str]:
    return [f"{output} = {arguments[0]}.reshape(1, *{tuple(graph.shapes[node.outputs[0]])})"]


def _transpose(node: Node, output: str, arguments: list[str], graph: Graph) -> list[str]:
    perm = (0, *(axis + 1 for axis in node.attrs["perm"]))
    return [f"{output} = {arguments[0]}.transpose{perm}"]


_LINES: dict[str, Callable[[Node, str, list[str], Graph], list[str]]] = {
    "Softmax": _softmax,
    "Reshape": _reshape,
    "Transpose": _transpose,
}
