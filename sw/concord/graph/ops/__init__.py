"""The operators of a graph: kind [dtype-pass], attributes, shapes and what they compute in double precision."""

from concord.graph.ops.base import Kind, Operator
from concord.graph.ops.elementwise import ELEMENTWISE_OPS
from concord.graph.ops.linear import LINEAR_OPS
from concord.graph.ops.moving import MOVING_OPS
from concord.graph.ops.recurrent import ACTIVATION_NAMES, RECURRENT_OPS, directions
from concord.graph.ops.windows import WINDOW_OPS, divisors, window_counts, windows

__all__ = ["ACTIVATION_NAMES", "OPS", "Kind", "Operator", "directions", "divisors", "window_counts", "windows"]

#: Every operator by its name.
OPS: dict[str, Operator] = LINEAR_OPS | RECURRENT_OPS | WINDOW_OPS | ELEMENTWISE_OPS | MOVING_OPS
