"""Memories of the NPU while it trains: parameters, what belongs to them, and constants.

N is the native dimension. A tile are N elements of a vector, or N x N of a matrix. Weights are
``[tap][input][tile of outputs]``. What stays has a name in the allocator, what passes is in one of its spaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.image.packing import to_vectors
from concord.program.access import REGIONS
from concord.program.allocator import Allocator, MemorySpace
from concord.program.chains import Address
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTORS, WIDE_BITS, WIDE_READS, digits_of, interval
from concord.spec.isa import DIGITS_MAX, Mem
from concord.spec.memmap import RegionId
from concord.spec.training import TrainingFormats
from concord.train.npu.operations import TrainedOperation, TrainingOperations
from concord.train.npu.tensors import Features, Held
from concord.train.parameters import Parameter
from concord.train.tensor import Dyadic
from concord.utils.arrays import Ints


class TrainingFactor(IntEnum):
    """Factor registers; those from ``AVERAGE`` on are for the averages of the network."""

    CHANGE = 0  #: from the gradient, or from the momentum, to the update
    MEAN = 1  #: from the sum over the samples to their mean, with momentum
    MOMENTUM = 2
    DECAY = 3  #: from the weights to their part of the update
    NEGATION = 4  #: -1
    AVERAGE = 5


#: Bits of activations and of gradients as products read them, and greatest magnitudes of wide integers, of these
#: gradients, and of activations and weights.
_FORMATS = TrainingFormats()
ACTIVATION_BITS, GRADIENT_BITS = _FORMATS.activation.bits, _FORMATS.gradient.bits
WIDE_TOP = (1 << WIDE_BITS - 1) - 1
GRADIENT_TOP, MANTISSA_TOP = _FORMATS.gradient.q_max, _FORMATS.weight.q_max
#: Words of a gradient as products read it.
GRADIENT_DIGITS = digits_of(GRADIENT_TOP)


@dataclass(frozen=True)
class ParameterMemory:
    """A parameter.

    Parameters
    ----------
    parameter : Parameter
        On the host.
    value, accumulators : Held
        Its numbers, and their accumulators, at the same distance for all parameters.
    velocity : Held or None
        Its momentum, if there is some.
    mean : int
        With momentum the tensor register of the mean gradient.
    """

    parameter: Parameter
    value: Held
    accumulators: Held
    velocity: Held | None
    mean: int

    def images(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Numbers ``[O, inputs, taps]`` or ``[O]`` of the parameter as images of its layout."""
        layout = self.value.features
        return values.reshape(layout.channels, layout.width, layout.height).swapaxes(1, 2)

    def numbers(self, images: Ints) -> Ints:
        """Inverse of :meth:`images`."""
        layout = self.value.features
        values = images.reshape(layout.channels, layout.height, layout.width)
        return values.swapaxes(1, 2).reshape(self.parameter.blocks.shape)


@dataclass(frozen=True)
class ProductMemory:
    """The parameters of a product.

    Parameters
    ----------
    step : TrainedOperation
        The product.
    weight, bias : ParameterMemory
        Its parameters.
    tiles : int
        Number of the first tile of the weights in the matrix memory, with outputs as rows: ``[tile of outputs][tap]
        [tile of inputs]``, or ``[tile of outputs]`` where a vector holds a window. Those of a depthwise convolution are
        diagonal, one for each word of the weights: ``[tap][tile of channels]``.
    transposed_tiles : int or None
        That of those with inputs as rows, if the gradient of the input is asked for: of flat products in the same
        order, of others ``[tap, the last one first][tile of outputs][tile of inputs]``. Diagonal tiles need none.
    selection : int or None
        Number of the first of tiles, one a tap, that put all elements of a window side by side, if a vector holds them
        and the samples do not come so.
    """

    step: TrainedOperation
    weight: ParameterMemory
    bias: ParameterMemory
    tiles: int
    transposed_tiles: int | None
    selection: int | None

    @property
    def point_rows(self) -> int:
        """Vectors that are side by side in a window."""
        return 1 if self.step.packed else self.step.window.taps * self.step.inputs.tiles

    @property
    def tap_lanes(self) -> int:
        """Lanes from an input of a tap to that of the next tap."""
        inputs = self.step.inputs
        return inputs.channels if self.step.packed else inputs.tiles * inputs.native

    @property
    def columns(self) -> Address | None:
        """Columns of tiles with outputs as rows, for loops over the weights; ``None`` if tiles are diagonal."""
        if self.step.depthwise:
            return None
        tap, native = self.tap_lanes if self.step.window.taps > 1 else 0, self.step.inputs.native
        return Address(self.tiles * native, self.point_rows * native, 1, tap)

    @property
    def tile_rows(self) -> Address | None:
        """Rows of tiles with inputs as rows."""
        if self.transposed_tiles is None:
            return None
        inputs = self.step.inputs
        first, tile = self.transposed_tiles * inputs.native, inputs.tiles * inputs.native
        if self.step.flat:
            return Address(first, self.step.window.taps * tile, 1, tile if self.step.window.taps > 1 else 0)
        tap = self.step.outputs.tiles * tile
        return Address(first + (self.step.window.taps - 1) * tap, tile, 1, -tap)


@dataclass(kw_only=True)
class TrainingMemory(Allocator):
    """The allocator of a training.

    Its names are those of constants and of what belongs to parameters: narrow words of the N unit vectors (``units``),
    of so many ones (``ones.`` and the number) and of a vector of zeros (``zeros``); a tile that is the identity
    (``identity``); wide words in the order of the parameters (``accumulators``, and two for each with momentum,
    ``velocities``).

    Parameters
    ----------
    operations : TrainingOperations
        The network.
    sizes : tuple of int
        Samples of the batches that there are, the greatest first.
    averages : dict
        Factor registers of averages.
    products : dict
        By the name of the operation.
    unscaled : int
        Register with exponent 0 and no magnitude, once the entry for loaded weights has set it.
    """

    operations: TrainingOperations
    sizes: tuple[int, ...]
    averages: dict[Dyadic, int]
    products: dict[str, ProductMemory] = field(default_factory=dict)
    unscaled: int = 0

    def space(self, mem: Mem) -> MemorySpace:
        """Words of a vector memory."""
        return self.spaces[REGIONS[mem]]

    @property
    def tile_space(self) -> MemorySpace:
        """Tiles of the matrix memory."""
        return self.spaces[RegionId.MATRIX]

    @property
    def registers(self) -> MemorySpace:
        """Tensor registers."""
        return self.spaces[RegionId.TENSORS]

    @property
    def parameters(self) -> list[ParameterMemory]:
        """All parameters in the order of their words, from word 0 on."""
        return [parameter for own in self.products.values() for parameter in (own.weight, own.bias)]

    @property
    def source(self) -> Features:
        """Layout of what the host writes of a sample."""
        packed = self.operations.packed_samples
        return self.operations.features[self.operations.source] if packed is None else packed.windows


def has_samples_as_lanes(step: TrainedOperation, size: int, config: NpuConfig) -> bool:
    """True if the gradient of the weights takes fewer cycles with samples as lanes than with points as lanes.

    Parameters
    ----------
    step : TrainedOperation
        A product of windows.
    size : int
        Samples of the batch.
    config : NpuConfig
        What executes it.
    """
    if step.depthwise or step.flat or step.packed:
        return step.depthwise
    native, k, positions, met = config.native, step.inputs.tiles, step.outputs.positions, step.inputs.positions
    words = step.window.taps * step.inputs.channels * step.outputs.tiles
    tiles, points = -(-size // native), -(-size * positions // native)
    most = tiles * positions * DIGITS_MAX
    if most > config.max_terms or most * config.steps > isa.FORMS[isa.Op.I_RUN].fields["interval"].high:
        return False

    def cycles(transpositions: int, read: int, columns: int, sums: int) -> int:
        """Cycles of vectors that are transposed, and of sums over so many tiles for the words of the weights."""
        each = interval(beats=config.beats, narrow_reads=sums * GRADIENT_DIGITS * config.steps)
        return transpositions * k * WIDE_READS * (read + step.inputs.lanes * columns) + words * each

    by_points = cycles(step.window.taps, size * positions, points, points)
    return cycles(1, size * met, met * tiles, positions * tiles) < by_points


def _counts_of_ones(step: TrainedOperation, size: int, config: NpuConfig) -> Iterator[int]:
    """Lengths of vectors of ones that a product needs: points or samples, and channels of a tile."""
    yield size if has_samples_as_lanes(step, size, config) else size * step.outputs.positions
    if step.depthwise:
        yield step.inputs.lanes


def planned(operations: TrainingOperations, sizes: Sequence[int], config: NpuConfig, momentum: bool) -> TrainingMemory:
    """Memories for a network and batches of some sizes.

    Raises
    ------
    ValueError
        If it has more averages than there are factor registers.
    """
    averages = _average_registers(operations)
    memory = TrainingMemory(config=config, operations=operations, sizes=tuple(sizes), averages=averages)
    memory.spaces[RegionId.MATRIX] = MemorySpace(config.steps)
    memory.unscaled = memory.registers.take()
    words = sum(layout.vectors for step in operations.products for layout in step.layouts.values())
    memory.wide("accumulators", words)
    if momentum:
        memory.wide("velocities", 2 * words)
    for step in operations.products:
        memory.products[step.name] = _product_memory(step, memory)
    memory.narrow_constant("units", np.eye(config.native, dtype=np.int64))
    pairs = [(step, size) for step in operations.products for size in sizes]
    for count in dict.fromkeys(count for step, size in pairs for count in _counts_of_ones(step, size, config)):
        memory.narrow_constant(f"ones.{count}", to_vectors(np.ones(count, np.int64), config))
    if any(step.pooling or (step.product and not step.flat) for step in operations.steps):  # windows may leave out some
        memory.narrow_constant("zeros", np.zeros((1, config.native), np.int64))
    if averages or any(step.windowed for step in operations.steps):  # sums of windows, and padding of what is copied
        memory.allocate("identity", RegionId.MATRIX, 1)
    return memory


def _product_memory(step: TrainedOperation, memory: TrainingMemory) -> ProductMemory:
    """Places of a product."""
    taps, k, o = step.window.taps, step.inputs.tiles, step.outputs.tiles

    def tiles(role: str, count: int) -> int:
        return memory.allocate(f"{step.name}.{role}", RegionId.MATRIX, count)

    count = taps * o * (1 if step.depthwise else k)
    return ProductMemory(
        step,
        _parameter_memory(step, "weight", memory),
        _parameter_memory(step, "bias", memory),
        tiles("tiles", o if step.packed else count),
        tiles("transposed", count) if step.back[0] and not step.depthwise else None,
        tiles("selection", taps) if step.packed and step is not memory.operations.packed_samples else None,
    )


def _parameter_memory(step: TrainedOperation, role: str, memory: TrainingMemory) -> ParameterMemory:
    """Places of a parameter; those of its accumulators and momentum are in the order of the parameters."""
    layout, register = step.layouts[role], memory.registers.take
    first = memory.narrow(f"{step.name}.{role}", layout.vectors)
    value, velocity, mean = Held(layout, Mem.NARROW, 1, first, register()), None, 0
    if "velocities" in memory.allocations:
        velocity = Held(layout, Mem.WIDE, 2, memory["velocities"] + 2 * first, register())
        mean = register()
    accumulators = replace(value, mem=Mem.WIDE, first=memory["accumulators"] + first)
    return ParameterMemory(step.layer.parameters[role], value, accumulators, velocity, mean)


def _average_registers(operations: TrainingOperations) -> dict[Dyadic, int]:
    """Factor registers by their factors."""
    factors = dict.fromkeys(step.factor for step in operations.steps if step.factor is not None)
    room = FACTORS - TrainingFactor.AVERAGE
    if len(factors) > room:
        raise ValueError(
            f"training on the NPU needs averages over at most {room} numbers of elements, not {len(factors)}"
        )
    return {factor: TrainingFactor.AVERAGE + k for k, factor in enumerate(factors)}
