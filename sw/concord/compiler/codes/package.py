"""Networks on codes that an NPU computes with factors of 16 bits, and the host to their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.nodes import definition_of, graph_of
from concord.compiler.codes.rewriting import NotOnNpu, Split, split
from concord.compiler.emission.package import Package
from concord.compiler.ir.layers import Layer
from concord.compiler.ir.quantized import held_weight
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import Compiled, compile_graph
from concord.graph.ir import Shape
from concord.integer.network import CodeArray, IntegerNetwork
from concord.integer.shapes import fixed_sizes, shapes_behind
from concord.integer.weighted_sums import WeightedSums
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.spec.operations import NEEDS, Op

#: Codes by which a result may be away before it is said.
_LARGE_ERROR = 0.5
#: Entries of a description in an image that are about numbers, of which inputs are codes less an origin.
_OF_NUMBERS = ("input", "offset", "not exact")
#: Advice where the memories are too small.
_WITH_ROOM = "block floating point has presets with more room: compile without --exact"


@dataclass(frozen=True, kw_only=True, eq=False)
class CodesPackage(Package):
    """Package of a network on codes: codes in, codes out. The host goes on from the NPU's codes to its end.

    Inputs of the arrangement are codes less their origins, and so are its outputs.

    Parameters
    ----------
    network : IntegerNetwork
        The network as it is.
    split : Split
        What the NPU computes, and what the host does after it.
    """

    network: IntegerNetwork
    split: Split

    @cached_property
    def arithmetic(self) -> IntegerNetwork:
        """The network with the factors of the NPU in the place of its scales, and what the host computes after it."""
        return IntegerNetwork.of(self.split.arithmetic)

    def expected(self, inputs: Mapping[str, ArrayLike]) -> dict[str, CodeArray]:
        """Codes of the outputs by the definition of the arithmetic: those that every device must give."""
        return {name: np.asarray(codes) for name, codes in self.arithmetic.run(inputs).items()}

    @property
    def doubts(self) -> list[str]:
        """Tensors whose accumulators the NPU may not hold, how many lack a code, and tensors whose codes may be further
        away than the next one because scales are rounded, a line each.
        """
        return [*self._wide_sums(), *self._limited(), *self._rounded_scales()]

    def _wide_sums(self) -> Iterator[str]:
        held = self.config.scaled_bits
        for part in self.arithmetic.with_wide_sums:
            yield (
                f"{part.output}: accumulators may reach {part.largest_sum}, and the NPU holds {held} bits: one beyond "
                "is limited there and raises ACC_OVERFLOW, and is an error or a flag of derived software; fewer inputs "
                "or smaller weights keep them within"
            )

    def _limited(self) -> Iterator[str]:
        stored = self.split.stored
        limited = [name for name in self.network.graph.schemes if name in stored and stored[name].limited]
        if limited:
            numbers = 2 * self.config.act.q_max + 1
            yield (
                f"{len(limited)} tensors, {limited[0]} among them, have {numbers + 1} codes, and mantissas {numbers} "
                "numbers: the code that is furthest from the zero point becomes its neighbour"
            )

    def _rounded_scales(self) -> Iterator[str]:
        for part in self.split.npu.operations:
            requantisation = getattr(part, "requantisation", None)
            if not isinstance(requantisation, FactorRequantisation):
                continue
            reach = part.largest_sums if isinstance(part, WeightedSums) else None
            if (error := requantisation.largest_error(reach)) > _LARGE_ERROR:
                factors = requantisation.factor[requantisation.factor > 0]
                ratio, bits = factors.max() / factors.min(), int(factors.min()).bit_length()
                yield (
                    f"{part.output}: scales of its channels differ by a factor of {ratio:.0f}, and 16 bits hold the "
                    f"least with {bits} bits: codes may be {error:.1f} away"
                )

    @property
    def host_operations(self) -> list[str]:
        """Names of the operations that the host computes."""
        return [part.name for part in self.split.host]

    @property
    def of_npu(self) -> Package:
        """Package of the numbers on the NPU."""
        return Package(self.image, self.arrangement, None, self.formats)

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Shape of a sample of every input of the network."""
        graph = self.network.graph
        return {name: fixed_sizes(graph, name) for name in graph.inputs}

    @property
    def output_shapes(self) -> dict[str, Shape]:
        """Shape of a sample of every output of the network."""
        return {name: self.split.shapes[tensor] for name, tensor in self.split.outputs.items()}

    def arranged_inputs(self, inputs: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Numbers of the inputs of the program, by their tensors, from codes or floats.

        Parameters and errors are those of :meth:`concord.integer.network.IntegerNetwork.run`.
        """
        tensors, numbers = self.network.graph.inputs, dict[str, ArrayLike]()
        for name, codes in self.network.codes(inputs).items():
            tensor = tensors[name]
            stored = self.split.stored[tensor]
            offset = int(self.arrangement.input_offsets.get(tensor, 0))
            numbers[tensor] = np.clip(codes, stored.low, stored.high) - stored.origin + offset
        return numbers

    def typed(self, outputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Codes, which have their types."""
        return dict(outputs)

    def _host_outputs(self, inputs: Mapping[str, ArrayLike], outputs: Mapping[str, ArrayLike]) -> dict[str, Any]:
        """Codes of the outputs, after the operations of the host."""
        stored = self.split.stored
        values = {name: np.rint(np.asarray(x)).astype(np.int64) + stored[name].origin for name, x in outputs.items()}
        for operation in self.split.host:
            values[operation.output] = operation.run(*(values[name] for name in operation.inputs))
        return {name: self.network.shown(name, values[tensor]) for name, tensor in self.split.outputs.items()}


def compile_codes(network: IntegerNetwork, config: NpuConfig) -> Compiled:
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
        if not isinstance(layer, Layer) or layer.weight is None:
            continue
        if not np.array_equal(held_weight(layer, config), layer.weight):
            reason = f"weights of {layer.tensor} add up beyond what mantissas hold, as it reads some codes twice"
            raise NotOnNpu(f"{reason}; {_WITH_ROOM}")
    if missing := sorted(offsets.keys() - compiled.package.arrangement.input_offsets.keys()):
        raise NotOnNpu(f"padding of {missing[0]} is not written by the host; {_WITH_ROOM}")
    made = compiled.package
    described = {key: value for key, value in made.image.metadata.items() if key not in _OF_NUMBERS}
    stored = {name: parts.stored[tensor] for name, tensor in network.graph.inputs.items()}
    described["codes"] = [f"{name}: {held.low} to {held.high}, less {held.origin}" for name, held in stored.items()]
    package = CodesPackage(
        image=replace(made.image, metadata=described),
        arrangement=made.arrangement,
        host_graph=None,
        formats=made.formats,
        network=network,
        split=parts,
    )
    definition = definition_of(parts, config, offsets)
    return replace(compiled, package=package, definition=definition, inexact=())  # origins hold what mantissas lack


def _twice(parts: Split, error: CapacityError) -> str:
    """Reason for which there are more weights than in the network; empty if that is not what lacks room."""
    count = sum(isinstance(part, WeightedSums) and part.output.endswith("/beyond") for part in parts.npu.operations)
    if not count or RegionId.MATRIX not in error.short:
        return ""
    return f"; weights of {count} layer{'s' * (count > 1)} are there twice, as products read the codes in two parts"


def split_of(network: IntegerNetwork, config: NpuConfig) -> Split:
    """Parts of a network on codes: that of an NPU, and that of the host after it; errors as above."""
    graph = network.graph
    sizes = {tensor: (1, *fixed_sizes(graph, name)) for name, tensor in graph.inputs.items()}
    return split(graph, {name: shape[1:] for name, shape in shapes_behind(graph, sizes).items()}, config)
