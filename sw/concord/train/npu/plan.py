"""Memories of the NPU while it trains: parameters, what belongs to them, and constants.

N is the native dimension. A tile are N elements of a vector, or N x N of a matrix. Weights are
``[tap][input][tile of outputs]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.program.allocator import Allocator, MemorySpace
from concord.program.chains import Address, ChainLoops
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTORS, WIDE_BITS, WIDE_READS, digit_span, digits_of_bits, interval
from concord.spec.isa import DIGITS_MAX
from concord.spec.memmap import RegionId
from concord.spec.training import TrainingFormats
from concord.train.npu.features import Features
from concord.train.npu.operations import (
    TrainedAverage,
    TrainedDepthwise,
    TrainedMaximum,
    TrainedOperation,
    TrainedProduct,
    TrainingOperations,
)
from concord.train.npu.registers import ParameterRegisters, TrainingFactor
from concord.train.tensor import Dyadic

#: Greatest magnitudes of wide integers, of gradients as products read them, and of activations and weights.
_FORMATS = TrainingFormats()
WIDE_TOP = (1 << WIDE_BITS - 1) - 1
GRADIENT_TOP, MANTISSA_TOP = _FORMATS.gradient.q_max, _FORMATS.weight.q_max
#: Words of a gradient as products read it.
GRADIENT_DIGITS = digits_of_bits(_FORMATS.gradient.bits)
#: Memories whose words are taken and given back.
_REGIONS = RegionId.NARROW, RegionId.WIDE, RegionId.MATRIX, RegionId.TENSORS


def digits_of(top: int) -> int:
    """The least count of digits that hold every number up to a magnitude."""
    return next(count for count in range(1, DIGITS_MAX + 1) if min(map(abs, digit_span(count))) >= top)


@dataclass(frozen=True)
class ProductMemory:
    """The parameters of a product.

    Parameters
    ----------
    step : TrainedProduct
    native : int
    weight, bias : int
        Narrow words of the parameters, ``[tap][input][tile of outputs]`` and ``[tile of outputs]``.
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
    weight_registers, bias_registers : ParameterRegisters
    """

    step: TrainedProduct
    native: int
    weight: int
    bias: int
    tiles: int
    transposed_tiles: int | None
    selection: int | None
    weight_registers: ParameterRegisters
    bias_registers: ParameterRegisters

    @property
    def diagonal(self) -> bool:
        """True if tiles of the weights are diagonal."""
        return isinstance(self.step, TrainedDepthwise)

    @property
    def packed(self) -> bool:
        """True if a vector holds all elements of a window."""
        return is_packed(self.step, self.native)

    @property
    def windows(self) -> Features:
        """Shape of the elements that windows meet, where a vector holds one window."""
        outputs = self.step.outputs
        return Features(self.taps * self.channels, outputs.height, outputs.width)

    @property
    def taps(self) -> int:
        """Taps of the window."""
        return self.step.window.taps

    @property
    def channels(self) -> int:
        """Inputs of a tap that an output reads."""
        return 1 if self.diagonal else self.step.inputs.channels

    @property
    def lanes(self) -> int:
        """Lanes of a vector of inputs that are used."""
        return min(self.step.inputs.channels, self.native)

    @property
    def input_tiles(self) -> int:
        """Tiles of the inputs of a tap."""
        return self.step.inputs.tiles(self.native)

    @property
    def output_tiles(self) -> int:
        """Tiles of the outputs."""
        return self.step.outputs.tiles(self.native)

    @property
    def weight_words(self) -> int:
        """Words of the weights."""
        return self.taps * self.channels * self.output_tiles

    @property
    def loops(self) -> ChainLoops:
        """Turns over the words of the weights: tiles of outputs, inputs, taps."""
        return ChainLoops(self.output_tiles, self.channels, self.taps)

    def words(self, first: int, each: int) -> Address:
        """The vectors of the weights somewhere, so many words each."""
        outer = each * self.output_tiles * self.channels if self.taps > 1 else 0
        return Address(first, each, each * self.output_tiles, outer)

    @property
    def point_rows(self) -> int:
        """Vectors that are side by side in a window."""
        return 1 if self.packed else self.taps * self.input_tiles

    @property
    def tap_lanes(self) -> int:
        """Lanes from an input of a tap to that of the next tap."""
        return self.channels if self.packed else self.input_tiles * self.native

    @property
    def columns(self) -> Address | None:
        """Columns of tiles with outputs as rows, for those turns; ``None`` if tiles are diagonal."""
        if self.diagonal:
            return None
        tap = self.tap_lanes if self.taps > 1 else 0
        return Address(self.tiles * self.native, self.point_rows * self.native, 1, tap)

    @property
    def tile_rows(self) -> Address | None:
        """Rows of tiles with inputs as rows."""
        if self.transposed_tiles is None:
            return None
        first, tile = self.transposed_tiles * self.native, self.input_tiles * self.native
        if self.step.flat:
            return Address(first, self.taps * tile, 1, tile if self.taps > 1 else 0)
        tap = self.output_tiles * tile
        return Address(first + (self.taps - 1) * tap, tile, 1, -tap)


@dataclass(frozen=True)
class TrainingMemory:
    """The memories.

    Parameters
    ----------
    operations : TrainingOperations
    sizes : tuple of int
        Samples of the batches that there are, the greatest first.
    allocator : Allocator
        Of the memories.
    narrow, wide, tiles, registers : MemorySpace
        Its spaces: words of vector memories, tiles of the matrix memory, and tensor registers.
    products : dict
        By the name of the operation.
    unscaled : int
        Register with exponent 0 and no magnitude, once the entry for loaded weights has set it.
    state_words : int
        Narrow words of all parameters, from word 0 on.
    units : int
        Narrow words of the N unit vectors.
    ones : dict
        By how many there are, narrow words of a vector of ones: for the rows of gradients.
    zeros : int
        Narrow word of a vector of zeros.
    identity : int
        Number of a tile that is the identity; of the first tile, if none is needed.
    accumulators, velocities : int
        Wide words of what belongs to the parameters, in their order; two of each momentum.
    factors : dict
        Factor registers that do not change.
    averages : dict
        Factor registers of averages.
    """

    operations: TrainingOperations
    sizes: tuple[int, ...]
    allocator: Allocator
    narrow: MemorySpace
    wide: MemorySpace
    tiles: MemorySpace
    registers: MemorySpace
    products: dict[str, ProductMemory]
    unscaled: int
    state_words: int
    units: int
    ones: dict[int, int]
    zeros: int
    identity: int
    accumulators: int
    velocities: int
    factors: dict[int, Dyadic]
    averages: dict[Dyadic, int]

    @property
    def packed_samples(self) -> ProductMemory | None:
        """The product whose windows are what the host writes in the place of samples; ``None``: samples as they are."""
        step = _reader_of_windows(self.operations, self.allocator.config.native)
        return None if step is None else self.products[step.name]

    @property
    def source(self) -> Features:
        """Shape of what the host writes of a sample."""
        packed = self.packed_samples
        return self.operations.features[self.operations.source] if packed is None else packed.windows

    def velocity(self, parameter: int) -> int:
        """Wide word of the momentum of the parameter at a narrow word."""
        return self.velocities + 2 * parameter


def is_packed(step: TrainedProduct, native: int) -> bool:
    """True if all elements of a window fit a vector, and are worth to be put there."""
    return _has_windows(step) and 1 < step.window.taps <= native // step.inputs.channels


def _has_windows(step: TrainedOperation) -> bool:
    """True for a product of all inputs of windows."""
    return isinstance(step, TrainedProduct) and not (step.flat or isinstance(step, TrainedDepthwise))


def sample_tiles(size: int, native: int) -> int:
    """Tiles of lanes for the samples of a batch."""
    return -(-size // native)


def has_samples_as_lanes(step: TrainedProduct, size: int, config: NpuConfig) -> bool:
    """True if the gradient of the weights takes fewer cycles with samples as lanes than with points as lanes.

    Parameters
    ----------
    step : TrainedProduct
        A product of windows.
    size : int
        Samples of the batch.
    config : NpuConfig
        What executes it.
    """
    native, lanes = config.native, min(step.inputs.channels, config.native)
    if isinstance(step, TrainedDepthwise):
        return True
    if step.flat or is_packed(step, native):
        return False
    k, positions, met = step.inputs.tiles(native), step.outputs.positions, step.inputs.positions
    words, tiles = step.window.taps * step.inputs.channels * step.outputs.tiles(native), sample_tiles(size, native)
    points = -(-size * positions // native)
    most = tiles * positions * DIGITS_MAX
    if most > config.max_terms or most * config.steps > isa.FORMS[isa.Op.I_RUN].fields["interval"].high:
        return False

    def cycles(transpositions: int, read: int, columns: int, sums: int) -> int:
        """Cycles of vectors that are transposed, and of sums over so many tiles for the words of the weights."""
        each = interval(beats=config.beats, narrow_reads=sums * GRADIENT_DIGITS * config.steps)
        return transpositions * k * WIDE_READS * (read + lanes * columns) + words * each

    by_points = cycles(step.window.taps, size * positions, points, points)
    return cycles(1, size * met, met * tiles, positions * tiles) < by_points


def _reader_of_windows(operations: TrainingOperations, native: int) -> TrainedProduct | None:
    """The only reader of the samples, if it multiplies windows that a vector holds."""
    readers = operations.readers(operations.source)
    step = readers[0] if len(readers) == 1 else None
    return step if isinstance(step, TrainedProduct) and is_packed(step, native) else None


def with_identity(operations: TrainingOperations) -> bool:
    """True if products with the identity are needed: for windows with padding, and for sums over windows."""
    return any(isinstance(step, TrainedAverage) or _has_windows(step) for step in operations.steps)


def with_zeros(operations: TrainingOperations) -> bool:
    """True if words are set to zero: windows may leave out some."""
    return any(
        isinstance(step, TrainedAverage | TrainedMaximum) or (isinstance(step, TrainedProduct) and not step.flat)
        for step in operations.steps
    )


def _counts_of_ones(step: TrainedProduct, size: int, config: NpuConfig) -> tuple[int, ...]:
    """Lengths of vectors of ones that a product needs: points or samples, and channels of a tile."""
    if isinstance(step, TrainedDepthwise):
        return size, min(step.inputs.channels, config.native)
    return (size if has_samples_as_lanes(step, size, config) else size * step.outputs.positions,)


def planned(operations: TrainingOperations, sizes: Sequence[int], config: NpuConfig, momentum: bool) -> TrainingMemory:
    """Memories for a network and batches of some sizes.

    Raises
    ------
    ValueError
        If it has more averages than there are factor registers.
    """
    allocator, native = Allocator(config), config.native
    allocator.spaces[RegionId.MATRIX] = MemorySpace(config.steps)
    narrow, wide, tiles, registers = (allocator.spaces[region] for region in _REGIONS)
    unscaled = registers.take()

    def own() -> ParameterRegisters:
        value = registers.take()
        return ParameterRegisters(value, *((registers.take(), registers.take()) if momentum else (value, value)))

    products: dict[str, ProductMemory] = {}
    gathered = _reader_of_windows(operations, native)
    for step in operations.products:
        k, o = step.inputs.tiles(native), step.outputs.tiles(native)
        depthwise = isinstance(step, TrainedDepthwise)
        channels, count = (1, step.window.taps * o) if depthwise else (step.inputs.channels, step.window.taps * k * o)
        products[step.name] = ProductMemory(
            step,
            native,
            narrow.take(step.window.taps * channels * o),
            narrow.take(o),
            tiles.take(o if is_packed(step, native) else count),
            tiles.take(count) if step.back[0] and not depthwise else None,
            tiles.take(step.window.taps) if is_packed(step, native) and step is not gathered else None,
            own(),
            own(),
        )
    state_words = narrow.used
    counts = dict.fromkeys(
        count for step in operations.products for size in sizes for count in _counts_of_ones(step, size, config)
    )
    averages = _average_registers(operations)
    return TrainingMemory(
        operations=operations,
        sizes=tuple(sizes),
        allocator=allocator,
        narrow=narrow,
        wide=wide,
        tiles=tiles,
        registers=registers,
        products=products,
        unscaled=unscaled,
        state_words=state_words,
        units=narrow.take(native),
        ones={count: narrow.take(-(-count // native)) for count in counts},
        zeros=narrow.take() if with_zeros(operations) else 0,
        identity=tiles.take() if with_identity(operations) else 0,
        accumulators=wide.take(state_words),
        velocities=wide.take(2 * state_words) if momentum else 0,
        factors={TrainingFactor.NEGATION: Dyadic(-1, 0)} | {place: factor for factor, place in averages.items()},
        averages=averages,
    )


def _average_registers(operations: TrainingOperations) -> dict[Dyadic, int]:
    """Factor registers by their factors."""
    factors = dict.fromkeys(step.factor for step in operations.steps if isinstance(step, TrainedAverage))
    room = FACTORS - TrainingFactor.AVERAGE
    if len(factors) > room:
        raise ValueError(
            f"training on the NPU needs averages over at most {room} numbers of elements, not {len(factors)}"
        )
    return {factor: TrainingFactor.AVERAGE + k for k, factor in enumerate(factors)}
