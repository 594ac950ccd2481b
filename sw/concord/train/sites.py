"""The products of a network: each has an accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from concord.graph.ir import Graph
from concord.graph.ops import OperatorKind, operator_of
from concord.graph.signs import never_negative
from concord.overflow.kinds import kind_of
from concord.spec.training import TrainingFormats
from concord.train.layers.attention import Mask, MatMulLayer, SoftmaxLayer
from concord.train.layers.base import TrainableLayer
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense
from concord.train.layers.embedding import Embedding
from concord.train.layers.layer_norm import LayerNorm
from concord.train.layers.normalised import Normalised
from concord.train.layers.pointwise import ScaleLayer
from concord.train.layers.recurrent import RecurrentLayer
from concord.train.overflow_monitor import OverflowMonitor, ProductSite
from concord.train.overflow_settings import OverflowSettings

#: Spatial axes of images; a convolution over more is one of planes on the NPU, whose sums have other terms.
_PLANE = 2


def _source(graph: Graph, tensor: str) -> str | None:
    """The tensor whose numbers, or the greatest of some, a tensor has; ``None`` if they are computed or given."""
    node = graph.producer(tensor)
    passed = node is not None and operator_of(node).kind is OperatorKind.MOVING and len(node.inputs) == 1
    return node.inputs[0] if node is not None and passed else None


def root_of(graph: Graph, tensor: str) -> str:
    """Tensor in which numbers were made: at a node that does more than to pass numbers on, or the input."""
    while (source := _source(graph, tensor)) is not None:
        tensor = source
    return tensor


def passed_on(graph: Graph, exponents: dict[str, int]) -> dict[str, int]:
    """Exponents of tensors, and of those whose numbers they are."""
    reached = dict(exponents)
    for tensor, exp in exponents.items():
        while (source := _source(graph, tensor)) is not None:
            tensor = source
            reached.setdefault(tensor, exp)
    return reached


def sites_of(graph: Graph, layers: Sequence[TrainableLayer]) -> list[ProductSite]:
    """The products of some layers; those of a recurrent layer with its input, and with its state."""
    sites: list[ProductSite] = []
    for layer in layers:
        if isinstance(layer, Conv | Dense):
            (tensor,) = layer.inputs
            fixed = "weight" in layer.constants
            sites.append(ProductSite(layer.name, layer.weight, tensor, never_negative(graph, tensor), fixed))
        elif isinstance(layer, RecurrentLayer):
            tensor = layer.inputs[0]
            for d, cell in enumerate(layer.cells):
                sites.append(ProductSite(f"{layer.name}.W{d}", cell.weight, tensor, never_negative(graph, tensor)))
                sites.append(ProductSite(f"{layer.name}.R{d}", cell.recurrent, "", False))
    return sites


def monitor_of(
    settings: OverflowSettings, formats: TrainingFormats, graph: Graph, layers: Sequence[TrainableLayer]
) -> OverflowMonitor:
    """The accumulators of a network; products that read the same numbers share their exponent.

    Raises
    ------
    ValueError
        If a layer has no accumulator of few bits, or settings and formats do not go together.
    """
    if names := [layer.name for layer in layers if isinstance(layer, Normalised)]:
        raise ValueError(f'batchnorm must be "fold" with [overflow], not "train": {", ".join(names)}')
    refused = Embedding | LayerNorm | Mask | MatMulLayer | ScaleLayer | SoftmaxLayer
    if names := [layer.name for layer in layers if isinstance(layer, refused)]:
        raise ValueError(
            "layers must be none of tables, layer normalisations, products of two tensors, Mul, masks and Softmax "
            f"with [overflow]: {', '.join(names)}"
        )
    if names := [layer.name for layer in layers if isinstance(layer, Conv) and layer.geometry.rank > _PLANE]:
        raise ValueError(f"convolutions must be over one or two axes with [overflow]: {', '.join(names)}")
    sites = sites_of(graph, layers)
    groups: dict[str, list[ProductSite]] = {}
    for site in sites:
        key = "" if settings.grid == "network" else root_of(graph, site.tensor) if site.tensor else site.name
        groups.setdefault(key, []).append(site)
    return OverflowMonitor(settings, formats, list(groups.values()), kind_of(graph))
