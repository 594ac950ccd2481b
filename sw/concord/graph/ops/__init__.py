"""The operators of a graph: a record of facts for each, such as its shapes and what it computes in double precision."""

from concord.graph.ops.base import Operation, Operator, OperatorKind, OperatorWeights, Recurrence
from concord.graph.ops.elementwise import ELEMENTWISE_OPS
from concord.graph.ops.host import HOST_OPS
from concord.graph.ops.linear import LINEAR_OPS
from concord.graph.ops.moving import MOVING_OPS
from concord.graph.ops.recurrent import RECURRENT_OPS, directions
from concord.graph.ops.windows import WINDOW_OPS, divisors, window_counts, windows

__all__ = [
    "OPS",
    "Operator",
    "OperatorKind",
    "OperatorWeights",
    "Recurrence",
    "directions",
    "divisors",
    "operator_of",
    "window_counts",
    "windows",
]

#: Every operator by its name.
OPS: dict[str, Operator] = LINEAR_OPS | RECURRENT_OPS | WINDOW_OPS | ELEMENTWISE_OPS | MOVING_OPS | HOST_OPS


def operator_of(node: Operation) -> Operator:
    """The record of a node's operator.

    Raises
    ------
    ValueError
        If there is none: both the operator and the node are named.
    """
    if node.op not in OPS:
        raise ValueError(f"operator of {node.name} must be one of {', '.join(sorted(OPS))}, not {node.op!r}")
    return OPS[node.op]
