"""The products of a network, where its accumulators are."""

from __future__ import annotations

from collections.abc import Sequence

from concord.graph.ir import Graph
from concord.overflow.kinds import kind_of
from concord.spec.training import TrainingFormats
from concord.train.layers.base import Layer
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense
from concord.train.layers.normalised import Normalised
from concord.train.layers.recurrent import Recurrent
from concord.train.overflow_settings import OverflowSettings
from concord.train.watch import Site, Watch

#: Operators that give numbers of their input, or the greatest of some.
PASSING = ("MaxPool", "Relu", "Reshape", "Slice", "Transpose")
#: Operators whose results are not negative if no input is.
_KEEPING = (*PASSING, "Add", "AveragePool", "ReduceMean")


def root_of(graph: Graph, tensor: str) -> str:
    """Where the numbers of a tensor were made: at a node that does more than to pass numbers on, or the input."""
    while True:
        made = [node for node in graph.nodes if tensor in node.outputs]
        if not made or made[0].op not in PASSING:
            return tensor
        tensor = made[0].inputs[0]


def passed_on(graph: Graph, exponents: dict[str, int]) -> dict[str, int]:
    """Exponents of tensors, and of those whose numbers they are."""
    found = dict(exponents)
    for tensor, exp in exponents.items():
        while True:
            made = [node for node in graph.nodes if tensor in node.outputs]
            if not made or made[0].op not in PASSING:
                break
            tensor = made[0].inputs[0]
            found.setdefault(tensor, exp)
    return found


def never_negative(graph: Graph, tensor: str) -> bool:
    """Whether a tensor has no negative elements, whatever the input is."""
    made = [node for node in graph.nodes if tensor in node.outputs]
    if not made:
        return False
    (node,) = made
    if node.op == "Relu" or (node.op == "Function" and [name for name, _ in node.attrs["functions"]] == ["sigmoid"]):
        return True
    if node.op == "Dense" and node.attrs.get("fixed"):
        kept = node.attrs["weight"].min(initial=0) >= 0 and not node.attrs["bias"].any()
        return kept and never_negative(graph, node.inputs[0])
    return node.op in _KEEPING and all(never_negative(graph, name) for name in node.inputs if name)


def sites_of(graph: Graph, layers: Sequence[Layer]) -> list[Site]:
    """The products of some layers; those of a recurrent layer with its input, and with its state."""
    found: list[Site] = []
    for layer in layers:
        if isinstance(layer, Conv | Dense):
            (tensor,) = layer.inputs
            fixed = "weight" in layer.constants
            found.append(Site(layer.name, layer.weight, tensor, never_negative(graph, tensor), fixed))
        elif isinstance(layer, Recurrent):
            tensor = layer.inputs[0]
            for d, cell in enumerate(layer.cells):
                found.append(Site(f"{layer.name}.W{d}", cell.weight, tensor, never_negative(graph, tensor)))
                found.append(Site(f"{layer.name}.R{d}", cell.recurrent, "", False))
    return found


def watch_of(settings: OverflowSettings, formats: TrainingFormats, graph: Graph, layers: Sequence[Layer]) -> Watch:
    """The accumulators of a network; products that read the same numbers share their exponent.

    Raises
    ------
    ValueError
        If a normalisation is trained, or settings and formats do not go together.
    """
    if names := [layer.name for layer in layers if isinstance(layer, Normalised)]:
        raise ValueError(f'batchnorm must be "fold" with [overflow], not "train": {", ".join(names)}')
    sites = sites_of(graph, layers)
    groups: dict[str, list[Site]] = {}
    for site in sites:
        key = "" if settings.grid == "network" else root_of(graph, site.tensor) if site.tensor else site.name
        groups.setdefault(key, []).append(site)
    return Watch(settings, formats, list(groups.values()), kind_of(graph))
