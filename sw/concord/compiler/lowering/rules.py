"""Rules by which every operator is lowered."""

from __future__ import annotations

from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering import (
    contractions,
    fake_quantization,
    group_means,
    pointwise,
    products,
    reductions,
    steps,
)
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.large_windows import pool
from concord.compiler.lowering.layout_copies import copy, output_copy, with_copies
from concord.compiler.lowering.lower import Expansion, Handler, Lowering, LoweringRules
from concord.compiler.lowering.lowered import Lowered, VarianceRange
from concord.compiler.lowering.normalisations import normalise
from concord.compiler.lowering.padding import pad, pad_copy
from concord.compiler.lowering.position_products import product_along_positions
from concord.compiler.lowering.recurrent import recurrent
from concord.compiler.lowering.states import StateKeeper
from concord.compiler.lowering.tensor_products import tensor_product
from concord.graph.ir import Graph
from concord.spec.config import NpuConfig

#: The nodes that compute together what a node does, by its operator.
EXPANSIONS: dict[str, Expansion] = {
    "AveragePool": pool,
    "Compare": steps.compare,
    "Dense": product_along_positions,
    "Function": pointwise.in_segments,
    "LogSoftmax": contractions.softmax,
    "MatMul": contractions.matmul,
    "MaxPool": pool,
    "Normalise": normalise,
    "Pad": pad,
    "ReduceMax": reductions.maximum,
    "ReduceMean": reductions.staged,
    "ReduceSum": reductions.staged,
    "Round": steps.unlimited_rounding,
    "Sign": steps.sign,
    "Softmax": contractions.softmax,
    **dict.fromkeys(pointwise.BINARY, pointwise.same_axes),
}
#: Functions that lower a node, by its operator.
HANDLERS: dict[str, Handler] = {
    "AlignGroups": reductions.align_groups,
    "AveragePool": products.average_pool,
    "Clip": pointwise.clip,
    "Conv": products.conv,
    "Copy": copy,
    "Dense": products.dense,
    "Expand": contractions.expand,
    "FakeQuantize": fake_quantization.fake_quantize,
    "Function": pointwise.function,
    "GRU": recurrent,
    "GroupMean": group_means.group_mean,
    "LSTM": recurrent,
    "MatMul": tensor_product,
    "MaxPool": products.max_pool,
    "PadCopy": pad_copy,
    "RNN": recurrent,
    "ReduceMax": reductions.reduce,
    "ReduceMean": reductions.reduce,
    "ReduceSum": reductions.reduce,
    "Round": steps.rounding,
    "ScaleAccumulators": pointwise.scale_accumulators,
    "WeightedSum": products.weighted_sum,
    **dict.fromkeys(pointwise.UNARY, pointwise.unary),
    **dict.fromkeys(pointwise.BINARY, pointwise.binary),
}
RULES = LoweringRules(EXPANSIONS, HANDLERS, with_copies, output_copy, StateKeeper)


def lowered(
    graph: Graph,
    config: NpuConfig,
    unfold: Unfold = Unfold.BOTH,
    formats: Formats = DEFAULT,
    variance_range: VarianceRange = VarianceRange.ANY,
) -> Lowered:
    """The layers of a graph, as for :class:`concord.compiler.lowering.lower.Lowering`.

    Raises
    ------
    Unsupported
        With every node that cannot be lowered.
    """
    return Lowering(graph, config, RULES, unfold, formats, variance_range).run()
