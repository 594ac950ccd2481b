"""The description of a network in its image: layers with their formats, memory map, and instructions by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from concord.compiler.emission.emit import Emitter, all_tensors
from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.ir.layers import AnyLayer
from concord.compiler.ir.quantized import Inexact
from concord.compiler.memory.footprint import KIB, weight_bits
from concord.graph.ir import Graph
from concord.program.access import REGIONS

#: Key of the multiply-accumulates of a run: those of the network, and those with zeros that fill native vectors.
MACS = "multiply-accumulates, inputs padded to whole vectors"


def inventory(
    graph: Graph, emitter: Emitter, grids: Mapping[str, InputGrid], lost: Sequence[Inexact]
) -> dict[str, Any]:
    """Metadata of the image of a program that has been written, with the grids of its inputs and what is not exact.

    Returns
    -------
    dict
        ``name``; multiply-accumulates that the tile engines spend; ``row tiling``, ``input``, ``offset``,
        ``equalised`` and ``not exact``, texts, if there is anything to say; ``layers``, a dict of texts each;
        ``program``, pairs of address and layer; ``map``, allocations: constants as in
        :meth:`concord.program.allocator.Allocator.map`, and tensors with their live ranges.
    """
    lowered = emitter.plan.lowered
    entries: dict[str, Any] = {"name": graph.name, MACS: f"{sum(layer.macs for layer in lowered.layers):,}"}
    if emitter.row_tiling is not None:
        entries["row tiling"] = emitter.row_tiling.text
    if grids:
        entries["input"] = [f"{name} is rounded by the host to {grid.text}" for name, grid in grids.items()]
    if offsets := {name: c for name, c in emitter.formats.input_offsets.items() if name in lowered.offsettable}:
        entries["offset"] = [
            f"the host subtracts {c:g} from {name}, and a bias adds its part" for name, c in offsets.items()
        ]
    if scales := emitter.formats.channel_scales:
        prepared = {name: "by the host" if name in lowered.inputs else "by weights" for name in scales}
        entries["equalised"] = [f"{name}: {scale.text} {prepared[name]}" for name, scale in scales.items()]
    if lost:
        entries["not exact"] = [inexact.text for inexact in lost]
    entries["layers"] = [_layer(emitter, layer) for layer in lowered.layers]
    entries["program"] = [[pc, index] for pc, index in sorted(emitter.places.items())]
    together = {all_tensors(mem) for mem in REGIONS}
    constants = [allocation for allocation in emitter.allocator.map() if allocation["name"] not in together]
    entries["map"] = [*constants, *_tensors(emitter)]
    return entries


def _layer(emitter: Emitter, layer: AnyLayer) -> dict[str, str]:
    exponent = emitter.formats.exponents.get(layer.tensor)
    entry = {"name": layer.name, "nodes": " ".join(layer.nodes)}
    if layer.weights:
        mant = emitter.formats.mantissa(layer, emitter.config)
        bits = weight_bits(layer, emitter.allocator.allocations, emitter.config, mant)
        chosen = ", rounded for samples" if set(layer.nodes) & set(emitter.formats.weights) else ""
        blocks = sum(len(emitter.data_section.copied_blocks(name)) for name in layer.weights)
        copied = f", copied in {blocks} block{'s' if blocks > 1 else ''}" if blocks else ""
        entry["weights"] = f"{mant} bits ({bits / KIB:.1f} KiB){copied}{chosen}"
    return entry | {"output": "dynamic exponent" if exponent is None else f"static exponent {exponent}"}


def _tensors(emitter: Emitter) -> Iterator[dict[str, Any]]:
    """Tensors in vector memories; inputs live from layer -1 on, outputs as long as there are layers and one more."""
    for copy in sorted(emitter.plan.all(), key=lambda copy: (copy.mem, copy.first_use, copy.addr)):
        yield {
            "memory": REGIONS[copy.mem].name.lower(),
            "address": copy.addr,
            "words": copy.vectors,
            "name": copy.storage.name,
            "doc": "",
            "layers": [copy.first_use, copy.last_use],
        }
