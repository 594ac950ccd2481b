"""Quantised networks on an NPU that makes codes of accumulators: codes beside those of the network, and cycles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.host import connect
from concord.host.rates import rates_by_link
from concord.integer import IntegerNetwork
from concord.integer.npu import compile_codes
from concord.spec.config import NpuConfig
from concord.spec.presets import ECP5_85F_INT8
from concord_bench.exact_networks import NETWORKS, quantised
from concord_bench.results import Results
from concord_bench.tasks import folder

GROUP = "Quantised networks on the NPU"
_SAMPLES = 64
_NOTE = (
    "Networks quantised per channel by ONNX Runtime (uint8, int8 weights), compiled for `{preset}`; recorded inputs. "
    "Codes of a layer are compared for the inputs that it has in the network as it is; outputs are those of the whole "
    "network. The NPU's codes are those of its definition in every sample."
)


def measure_npu_codes(results: Results, say: Callable[[str], None]) -> None:
    """A row per network."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[GROUP] = _NOTE.format(preset=ECP5_85F_INT8.name)
    for name, file in NETWORKS.items():
        say(f"{name} on codes on the NPU")
        results.row(GROUP, name, codes_row(quantised(data, name, file), recorded(data, file), ECP5_85F_INT8))


def recorded(data: Path, file: str) -> NDArray[np.float32]:
    """Inputs of the data folder."""
    with np.load(data / "data" / f"{file}.npz") as arrays:
        codes = arrays["x"][:_SAMPLES].astype(np.float32)
        return np.asarray((codes - arrays["zero_point"]) * arrays["scale"], dtype=np.float32)


def codes_row(network: IntegerNetwork, x: NDArray[np.float32], config: NpuConfig) -> dict[str, str]:
    """Texts by column."""
    made, graph = compile_codes(network, config), network.graph
    (port,) = graph.inputs
    values: dict[str, Any] = {}
    graph.compute({graph.inputs[port]: network.codes({port: x})[port]}, values.__setitem__)
    different = total = 0
    for part in made.split.npu.operations:
        codes = part.run(*(values[name] for name in part.inputs))
        different, total = different + int((codes != values[part.output]).sum()), total + codes.size
    with connect("emulator", config) as device:
        device.load(made.image)
        results = made.run(device, {port: x})
    want, exact = made.expected({port: x}), network.run({port: x})
    same = all(np.array_equal(results[name], want[name]) for name in want)
    (name,) = want
    apart, rows = (
        int((want[name] != exact[name]).sum()),
        [codes.reshape(len(x), -1) for codes in (want[name], exact[name])],
    )
    classes = int((rows[0].argmax(axis=1) == rows[1].argmax(axis=1)).sum())
    return {
        "codes of layers that differ": f"{different:,} of {total:,}",
        "outputs that differ": f"{apart} of {want[name].size}",
        "same class": f"{classes} of {len(x)}",
        "cycles": f"{rates_by_link(made.image, 1, None, None)[0].cycles:,}",
        "NPU = definition": "yes" if same else "NO",
    }
