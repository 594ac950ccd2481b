"""A compiled network on codes: codes in, codes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.compiler.emission.package import PackageDevice
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.layers import Layer, Reduction
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import Compiled, compile_graph
from concord.image import Image
from concord.image.packing import rounded_depthwise, rounded_matrix
from concord.integer.float32 import Integers
from concord.integer.network import CodeArray, IntegerNetwork
from concord.integer.npu.factors import FactorRequantisation
from concord.integer.npu.layers import graph_of
from concord.integer.npu.rewriting import NotOnNpu, Split, split
from concord.integer.shapes import fixed_sizes, shapes_behind
from concord.integer.weighted_sums import WeightedSums
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.spec.operations import NEEDS, Op
from concord.utils.arrays import FloatArray

#: Codes by which a result may be away before it is said.
_LARGE_ERROR = 0.5
#: Advice where the memories are too small.
_WITH_ROOM = "block floating point has presets with more room: compile without --exact"


@dataclass(frozen=True, eq=False)
class CodesOnNpu:
    """A network on codes that an NPU computes with factors of 16 bits, and the host to its end.

    Parameters
    ----------
    network : IntegerNetwork
        The network as it is.
    split : Split
        What the NPU computes, and what the host does after it.
    image : Image
        Program and constants for the NPU, whose inputs and outputs are codes less their origins.
    arrangement : Arrangement
        Of these.
    compiled : Compiled or None
        How it was compiled, if it was not read from a folder.
    """

    network: IntegerNetwork
    split: Split
    image: Image
    arrangement: Arrangement
    compiled: Compiled | None = None

    @property
    def warnings(self) -> list[str]:
        """Tensors whose accumulators the NPU may not hold, how many lack a code, and tensors whose codes may be further
        away than the next one because scales are rounded, a line each.
        """
        held = self.image.config.scaled_bits
        lines = [
            f"{part.output}: accumulators may reach {part.largest_sum}, and the NPU holds {held} bits: one beyond is "
            "limited there and raises ACC_OVERFLOW, and is an error or a flag of derived software; fewer inputs or "
            "smaller weights keep them within"
            for part in self.arithmetic.with_wide_sums
        ]
        stored = self.split.stored
        limited = [name for name in self.network.graph.schemes if name in stored and stored[name].limited]
        if limited:
            numbers = 2 * self.image.config.act.q_max + 1
            lines.append(
                f"{len(limited)} tensors, {limited[0]} among them, have {numbers + 1} codes, and mantissas {numbers} "
                "numbers: the code that is furthest from the zero point becomes its neighbour"
            )
        for part in self.split.npu.operations:
            requantisation = getattr(part, "requantisation", None)
            if not isinstance(requantisation, FactorRequantisation):
                continue
            reach = part.largest_sums if isinstance(part, WeightedSums) else None
            if (error := requantisation.largest_error(reach)) > _LARGE_ERROR:
                factors = requantisation.factor[requantisation.factor > 0]
                ratio, bits = factors.max() / factors.min(), int(factors.min()).bit_length()
                lines.append(
                    f"{part.output}: scales of its channels differ by a factor of {ratio:.0f}, and 16 bits hold the "
                    f"least with {bits} bits: codes may be {error:.1f} away"
                )
        return lines

    def run(self, device: PackageDevice, inputs: Mapping[str, ArrayLike]) -> dict[str, CodeArray]:
        """Codes of the outputs of a batch on a device that has the image loaded.

        Parameters, results and errors are those of :meth:`concord.integer.network.IntegerNetwork.run`.
        """
        device.clear_flags()
        return self.finish(inputs, device.run(self.pack(inputs)))

    def pack(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Ports of a batch."""
        return self.arrangement.pack(self.npu_inputs(inputs), rounded=True)

    def finish(self, inputs: Mapping[str, ArrayLike], ports: Mapping[str, ArrayLike]) -> dict[str, CodeArray]:
        """Codes of the outputs of a batch from the ports of the NPU."""
        return self._finished(self.arrangement.unpack(ports, len(np.asarray(next(iter(inputs.values()))))))

    def expected(self, inputs: Mapping[str, ArrayLike]) -> dict[str, CodeArray]:
        """Codes of the outputs by the definition of the arithmetic: those that every device must give."""
        return {name: np.asarray(codes) for name, codes in self.arithmetic.run(inputs).items()}

    @cached_property
    def arithmetic(self) -> IntegerNetwork:
        """The network with the factors of the NPU in the place of its scales, and what the host computes after it."""
        return IntegerNetwork.of(self.split.arithmetic)

    def npu_inputs(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Integers]:
        """Numbers of the inputs of the program, by their names; the host subtracts offsets of them."""
        graph, numbers = self.network.graph, dict[str, Integers]()
        for name, codes in self.network.codes(inputs).items():
            tensor = graph.inputs[name]
            stored = self.split.stored[tensor]
            offset = int(self.arrangement.input_offsets.get(tensor, 0))
            numbers[tensor] = np.clip(codes, stored.low, stored.high) - stored.origin + offset
        return numbers

    def _finished(self, outputs: Mapping[str, ArrayLike]) -> dict[str, CodeArray]:
        stored = self.split.stored
        return self._host(
            {name: np.rint(np.asarray(x)).astype(np.int64) + stored[name].origin for name, x in outputs.items()}
        )

    def _host(self, values: dict[str, Integers]) -> dict[str, CodeArray]:
        """Codes of the outputs, after the operations of the host."""
        for operation in self.split.host:
            values[operation.output] = operation.run(*(values[name] for name in operation.inputs))
        outputs = self.split.outputs
        return {name: np.asarray(self.network.shown(name, values[tensor])) for name, tensor in outputs.items()}


def compile_codes(network: IntegerNetwork, config: NpuConfig) -> CodesOnNpu:
    """Compile a network on codes for an NPU with ``vv_scale``.

    Accumulators are exact; the scale of each channel is rounded to a factor of 16 bits, and a sum of two tensors has
    weights of few bits, so that some codes differ by one from those of the network. A network of few bits must be
    loaded with ``pairs=False``.

    Raises
    ------
    NotOnNpu
        If it needs what the NPU does not compute on codes: every tensor with the reason.
    ValueError
        If the configuration has no ``vv_scale``, or an input has open sizes.
    Unsupported, CapacityError
        As of :func:`concord.compiler.model.compile_graph`.
    """
    if not config.has(Op.VV_SCALE):
        raise ValueError(f"configuration must have {NEEDS[Op.VV_SCALE]} to compute on codes, unlike {config.name!r}")
    parts = split_of(network, config)
    graph, offsets = graph_of(parts, config)
    formats = Formats(exponents=dict.fromkeys(parts.shapes, 0), input_offsets=offsets)
    try:
        compiled = compile_graph(graph, config, formats)
    except CapacityError as error:
        raise CapacityError(f"{error}{_twice(parts, error)}; {_WITH_ROOM}", error.short) from error
    for layer in compiled.lowered.layers:
        if isinstance(layer, Layer) and layer.weight is not None and not _exact(layer, layer.weight, config):
            reason = f"weights of {layer.tensor} add up beyond what mantissas hold, as it reads some codes twice"
            raise NotOnNpu(f"{reason}; {_WITH_ROOM}")
    if missing := sorted(offsets.keys() - compiled.package.arrangement.input_offsets.keys()):
        raise NotOnNpu(f"padding of {missing[0]} is not written by the host; {_WITH_ROOM}")
    return CodesOnNpu(network, parts, compiled.image, compiled.package.arrangement, compiled)


def _twice(parts: Split, error: CapacityError) -> str:
    """Reason for which there are more weights than in the network; empty if that is not what lacks room."""
    count = sum(isinstance(part, WeightedSums) and part.output.endswith("/beyond") for part in parts.npu.operations)
    if not count or RegionId.MATRIX not in error.short:
        return ""
    return f"; weights of {count} layer{'s' * (count > 1)} are there twice, as products read the codes in two parts"


def _exact(layer: Layer, weight: FloatArray, config: NpuConfig) -> bool:
    """True if the tile engines have weights as they are."""
    rounded = rounded_depthwise if layer.reduction is Reduction.DEPTHWISE else rounded_matrix
    return np.array_equal(rounded(weight, config), weight)


def split_of(network: IntegerNetwork, config: NpuConfig) -> Split:
    """Parts of a network on codes: that of an NPU, and that of the host after it; errors as above."""
    graph = network.graph
    sizes = {tensor: (1, *fixed_sizes(graph, name)) for name, tensor in graph.inputs.items()}
    return split(graph, {name: shape[1:] for name, shape in shapes_behind(graph, sizes).items()}, config)
