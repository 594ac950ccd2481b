"""A compiled network: image, arrangement of inputs and outputs, and how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.compiler import pointwise as pointwise
from concord.compiler import products as products
from concord.compiler import recurrent as recurrent
from concord.compiler.emit import Emitter
from concord.compiler.inputs import Unfold
from concord.compiler.layout import PAD, Ids
from concord.compiler.lower import Lowered, Lowering
from concord.compiler.plan import make_plan
from concord.compiler.tail import split
from concord.graph import execute
from concord.graph.ir import Floats, Graph, Shape
from concord.host.device import Device
from concord.image import Image
from concord.sheet import CapacityError
from concord.spec.config import NpuConfig


@dataclass(frozen=True)
class Arrangement:
    """How tensors of samples become ports of the image, and back.

    Parameters
    ----------
    inputs : dict
        By input: for every element ``[vectors, native]`` of the port, the element of the sample, or ``PAD`` for zero.
    outputs : dict
        By output: for every element of the sample, the element of the port; and the shape of the sample.
    shapes : dict
        Shapes of the samples of inputs and outputs.
    """

    inputs: dict[str, Ids]
    outputs: dict[str, Ids]
    shapes: dict[str, Shape]

    def pack(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Ports of a batch; ``ValueError`` for names or shapes that are wrong."""
        if set(inputs) != set(self.inputs):
            raise ValueError(f"inputs must be {sorted(self.inputs)}, not {sorted(inputs)}")
        ports = {}
        for name, order in self.inputs.items():
            values = np.asarray(inputs[name], dtype=np.float64)
            if values.shape[1:] != self.shapes[name]:
                raise ValueError(
                    f"input {name!r} must have the shape (samples, {self.shapes[name]}), not {values.shape}"
                )
            flat = values.reshape(len(values), -1)
            ports[name] = np.where(order == PAD, 0.0, flat[:, order])
        return ports

    def unpack(self, ports: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Outputs of a batch from its ports."""
        found = {}
        for name, ids in self.outputs.items():
            values = np.asarray(ports[name], dtype=np.float64)
            found[name] = values.reshape(len(values), -1)[:, ids].reshape(len(values), *self.shapes[name])
        return found


@dataclass(frozen=True)
class Compiled:
    """A network compiled for a configuration.

    Parameters
    ----------
    graph : Graph
        The network.
    host : Graph or None
        What the host computes from the outputs of the NPU.
    config : NpuConfig
        What it was compiled for.
    lowered : Lowered
        Its layers.
    image : Image
        Program and constants.
    arrangement : Arrangement
        Of inputs and outputs.
    starts : tuple of int
        Address of the first instruction of every layer.
    strips : tuple of str
        Layers whose residual operand is kept narrow only, because it does not fit otherwise.
    """

    graph: Graph
    host: Graph | None
    config: NpuConfig
    lowered: Lowered
    image: Image
    arrangement: Arrangement
    starts: tuple[int, ...]
    strips: tuple[str, ...]

    def run(self, device: Device, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """Results of a batch on a device that has the image loaded."""
        found = self.arrangement.unpack(device.run(self.arrangement.pack(inputs)))
        if self.host is None:
            return found
        values = {
            **{name: np.asarray(inputs[name], dtype=np.float64) for name in self.host.inputs if name in inputs},
            **found,
        }
        return execute.run(self.host, {name: values[name] for name in self.host.inputs})


def compile_graph(graph: Graph, config: NpuConfig) -> Compiled:
    """Compile a network.

    Raises
    ------
    Unsupported
        With every node that cannot be lowered.
    CapacityError
        If it does not fit, with what would be needed.
    """
    failure: CapacityError | None = None
    for unfold in reversed(Unfold):
        try:
            return _compile(graph, config, unfold)
        except CapacityError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _compile(graph: Graph, config: NpuConfig, unfold: Unfold) -> Compiled:
    npu, host = split(graph)
    lowered = Lowering(npu, config, unfold).run()
    emitter = Emitter(make_plan(lowered), config)
    emitter.run()
    image = emitter.sheet.image(emitter.builder.words(), {"name": graph.name})
    strips = tuple(lowered.layers[index].name for index in emitter.plan.strips)
    return Compiled(graph, host, config, lowered, image, _arrangement(lowered), tuple(emitter.starts), strips)


def _arrangement(lowered: Lowered) -> Arrangement:
    graph = lowered.graph
    inputs, outputs = {}, {}
    for name, (storage, order) in lowered.inputs.items():
        full = np.full((storage.height, storage.width, storage.tiles * storage.native), PAD)
        full[..., : order.shape[2]] = order
        inputs[name] = full.reshape(-1, storage.native)
    for name in graph.outputs:
        (storage,) = lowered.storages.of(lowered.views[name])
        outputs[name] = (lowered.views[name] - storage.base).reshape(-1)
    shapes = {name: graph.sample_shape(name) for name in (*graph.inputs, *graph.outputs)}
    return Arrangement(inputs, outputs, shapes)
