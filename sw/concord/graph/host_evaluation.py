"""Evaluation of the host's part in NumPy: the bits that derived software has, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from concord.golden import host_math
from concord.graph import execute
from concord.graph.host_operations import ARITHMETIC, Action, HostOperation
from concord.graph.host_rules import has_operations, operations
from concord.graph.ir import Graph
from concord.utils.arrays import FloatArray

#: Numbers of one tensor that are computed at a time, of several samples or of one.
_AT_ONCE = 1 << 24


def run_on_host(graph: Graph, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
    """Results of a batch of what the host computes; a sample has the same bits in every batch.

    Nodes are computed as :func:`concord.graph.host_rules.operations` says. If there are none for one, each sample is
    computed by itself in double precision, from contiguous arrays: the order in which NumPy adds up depends on shapes
    and on where elements are in memory. A zero that the host computes is +0, for NumPy does not say which one a
    maximum is.

    Parameters
    ----------
    graph : Graph
        Nodes of the host.
    inputs : mapping of str to array
        ``[samples, *graph.sample_shape(name)]`` for every input.

    Raises
    ------
    ValueError
        If an index is beyond its table, with what it must be.
    """
    batch = {name: np.ascontiguousarray(inputs[name], dtype=np.float64) for name in graph.inputs}
    samples = max(len(values) for values in batch.values())
    computed = {name for node in graph.nodes for name in node.outputs}
    if all(map(has_operations, graph.nodes)):
        made = operations(graph)
        at_once = max(1, _AT_ONCE // max((prod(item.shape) for item in made), default=1))
        if {len(values) for values in batch.values()} != {samples}:
            at_once = samples
        starts = range(0, samples, at_once) or (0,)
        parts = [_operated(graph, made, {name: x[k : k + at_once] for name, x in batch.items()}) for k in starts]
        results = {name: np.concatenate([part[name] for part in parts]) for name in graph.outputs}
    else:
        single = [execute.run(graph, {name: x[k : k + 1] for name, x in batch.items()}) for k in range(samples) or (0,)]
        results = {name: np.concatenate([outputs[name] for outputs in single]) for name in single[0]}
    return {name: values + (0.0 if name in computed else -0.0) for name, values in results.items()}


def _operated(graph: Graph, made: list[HostOperation], batch: dict[str, FloatArray]) -> dict[str, FloatArray]:
    values = {name: x.reshape(len(x), *graph.shapes[name]) for name, x in batch.items()}
    last = {x: k for k, operation in enumerate(made) for x in operation.operands if isinstance(x, str)}
    with np.errstate(all="ignore"):  # infinities and NaN are told where results are shown
        for k, operation in enumerate(made):
            operands = [values[x] if isinstance(x, str) else x[np.newaxis] for x in operation.operands]
            values[operation.output] = _ACTIONS[operation.action](operation, *operands)
            for name in {x for x in operation.operands if isinstance(x, str)} - {*graph.outputs}:
                if last[name] == k:
                    del values[name]
    return {name: values[name].reshape(len(values[name]), *graph.sample_shape(name)) for name in graph.outputs}


def _sliced(operation: HostOperation, x: FloatArray) -> FloatArray:
    axis, *taken = operation.numbers
    return np.take(x, np.arange(*taken), axis=axis + 1)


_UFUNCS = dict(
    zip(
        ARITHMETIC,
        (
            np.add,
            np.subtract,
            np.multiply,
            np.divide,
            np.maximum,
            np.minimum,
            host_math.host_less,
            host_math.host_equal,
        ),
        strict=True,
    )
)
_ACTIONS: dict[Action, Callable[..., FloatArray]] = {
    Action.RESHAPE: lambda operation, x: x.reshape(len(x), *operation.shape),
    Action.TRANSPOSE: lambda operation, x: x.transpose(0, *(axis + 1 for axis in operation.numbers)),
    Action.CONCAT: lambda operation, *parts: np.concatenate(parts, axis=operation.numbers[0] + 1),
    Action.SLICE: _sliced,
    Action.SOFTMAX: lambda operation, x: host_math.host_softmax(x, operation.numbers[0] + 1),
    Action.LOG_SOFTMAX: lambda operation, x: host_math.host_log_softmax(x, operation.numbers[0] + 1),
    Action.SUM: lambda operation, x: host_math.host_sum(x, operation.numbers[0] + 1),
    Action.EXP: lambda operation, x: host_math.host_exp(x),
    Action.LOG: lambda operation, x: host_math.host_log(x),
    Action.ROOT: lambda operation, x: np.sqrt(x),
    Action.FLOOR: lambda operation, x: np.floor(x),
    Action.ROUND: lambda operation, x: np.rint(x),
    Action.FILL: lambda operation, like, x: np.broadcast_to(x, (len(like), *operation.shape)),
    **{action: lambda operation, a, b, ufunc=ufunc: ufunc(a, b) for action, ufunc in _UFUNCS.items()},
    Action.SELECT: lambda operation, condition, a, b: host_math.host_select(condition, a, b),
    Action.LOOK_UP: lambda operation, table, indices: host_math.host_look_up(table[0], indices),
    Action.ALONG: lambda operation, x, indices: host_math.host_along(x, indices, operation.numbers[0] + 1),
    Action.GREATEST: lambda operation, x: host_math.host_greatest(x, operation.numbers[0] + 1),
    Action.ORDER: lambda operation, x: host_math.host_order(x, operation.numbers[0] + 1),
}
