"""Quantised networks on an NPU that makes codes of accumulators: codes beside those of the network, and cycles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.compiler.codes.package import CodesPackage, compile_codes
from concord.host import connect
from concord.host.device import Device
from concord.integer import IntegerNetwork
from concord.spec.presets import ECP5_85F
from concord_bench.exact_networks import NETWORKS, quantised
from concord_bench.results import Results
from concord_bench.tasks import folder

GROUP = "Quantised networks on the NPU"
#: Samples of which every layer is compared; results are compared for all that are recorded, up to so many, or for
#: fewer on the RTL.
_LAYERS, _MOST, _ON_RTL = 64, 400, 32
_NOTE = (
    "Networks quantised per channel by ONNX Runtime (uint8, int8 weights), compiled for `{preset}`; recorded inputs. "
    "Codes of a layer are compared for the inputs that it has in the network as it is; outputs are those of the whole "
    "network, and how many samples have the right class with the NPU's codes and with those of the network. The NPU's "
    "codes are those of its definition in every sample, and those of the RTL in as many as are named; cycles are "
    "counted there."
)


def measure_npu_codes(results: Results, say: Callable[[str], None]) -> None:
    """A row per network."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[GROUP] = _NOTE.format(preset=ECP5_85F.name)
    with connect("emulator", ECP5_85F) as emulator, connect("rtl", ECP5_85F) as rtl:
        for name, file in NETWORKS.items():
            say(f"{name} on codes on the NPU")
            with results.if_it_fits(f"codes of {name} on the NPU"):
                results.row(GROUP, name, codes_row(quantised(data, name, file), *recorded(data, file), emulator, rtl))


def recorded(data: Path, file: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Inputs and classes of the data folder."""
    with np.load(data / "data" / f"{file}.npz") as arrays:
        codes = arrays["x"][:_MOST].astype(np.float32)
        inputs = np.asarray((codes - arrays["zero_point"]) * arrays["scale"], dtype=np.float32)
        return inputs, arrays["y"][:_MOST].astype(np.int64)


def codes_row(
    network: IntegerNetwork, x: NDArray[np.float32], classes: NDArray[np.int64], emulator: Device, rtl: Device
) -> dict[str, str]:
    """Texts by column, of a network on two devices of one configuration."""
    made = compile_codes(network, emulator.config).package
    assert isinstance(made, CodesPackage)
    (port,), (name,) = network.graph.inputs, network.graph.outputs
    for device in (emulator, rtl):
        device.load(made.image)
    made_codes = _in_parts(lambda inputs: made.run(emulator, inputs)[name], port, x)
    want = _in_parts(lambda inputs: made.expected(inputs)[name], port, x)
    exact = _in_parts(lambda inputs: network.run(inputs)[name], port, x)
    few = x[:_ON_RTL]
    same = np.array_equal(made.run(rtl, {port: few})[name], want[: len(few)])
    made.run(rtl, {port: x[:1]})
    right = [int((codes.reshape(len(x), -1).argmax(axis=1) == classes).sum()) for codes in (made_codes, exact)]
    return {
        "codes of layers that differ": _differing_layers(made, x[:_LAYERS]),
        "outputs that differ": f"{int((made_codes != exact).sum()):,} of {exact.size:,}",
        "right": f"{right[0]} of {len(x)}",
        "right, network": f"{right[1]}",
        "cycles": f"{rtl.counters()['CYCLES']:,}",
        "emulator = definition": "yes" if np.array_equal(made_codes, want) else "NO",
        "RTL = definition": f"yes, {len(few)} samples" if same else "NO",
    }


def _in_parts(run: Callable[[dict[str, Any]], NDArray[Any]], port: str, x: NDArray[np.float32]) -> NDArray[Any]:
    return np.concatenate([run({port: x[k : k + _LAYERS]}) for k in range(0, len(x), _LAYERS)])


def _differing_layers(made: CodesPackage, x: NDArray[np.float32]) -> str:
    """Codes of layers for the inputs that they have in the network, and how many are others.

    Parts of a tensor that the network has not are made of those that it has.
    """
    network = made.network
    graph, values = network.graph, dict[str, Any]()
    (port,) = graph.inputs
    graph.compute({graph.inputs[port]: network.codes({port: x})[port]}, values.__setitem__)
    different = total = 0
    for part in made.split.npu.operations:
        codes = part.run(*(values[name] for name in part.inputs))
        if part.output in graph.schemes:
            different, total = different + int((codes != values[part.output]).sum()), total + codes.size
        else:
            values[part.output] = codes
    return f"{different:,} of {total:,}"
