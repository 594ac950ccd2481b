"""A batch on its way through a network: where its tensors lie while chains are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.spec.isa import Mem, Op
from concord.train.npu.chains import ChainWriter, ProductSource
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.plan import ACTIVATION_BITS, GRADIENT_BITS, WIDE_TOP, TrainingMemory
from concord.train.npu.tensors import Features, Gradient, Held, Met
from concord.train.npu.update import UpdateSteps


@dataclass
class Transposition:
    """Tiles ``[vector of a point][tile of points]`` whose columns become vectors ``[vector of a point][lane][tile of
    points]``.

    Parameters
    ----------
    points : int
        Number of the points.
    lanes : int
        Columns of a tile that are used.
    tiles : int
        Number of the first tile.
    rows : int
        Vectors of a point.
    vectors : int
        First narrow word of the result, once it has a place.
    """

    points: int
    lanes: int
    tiles: int
    rows: int
    vectors: int = 0


@dataclass
class TrainingBatch:
    """State that the operations of a network share while the passes of a batch are written.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory : TrainingMemory
        Of the network.
    updates : UpdateSteps
        Of parameters.
    size : int
        Samples of the batch.
    waiting : list of Transposition
        Inputs of products that are to be transposed at the end of the forward pass.
    tensors : dict
        Those of the network, as they were made.
    """

    writer: ChainWriter
    memory: TrainingMemory
    updates: UpdateSteps
    size: int
    waiting: list[Transposition] = field(default_factory=list)
    tensors: dict[str, Held] = field(default_factory=dict)
    _arriving: dict[str, list[Gradient]] = field(default_factory=dict)

    # Places -------------------------------------------------------------------------------------------

    def new(self, features: Features, mem: Mem, word: int = 0, samples: int = 0) -> Held:
        """A place for a tensor, of so many words a vector; 0: those of narrow or wide integers, all samples."""
        each, count = word or (1 if mem is Mem.NARROW else 2), samples or self.size
        first = self.memory.space(mem).take(each * count * features.vectors)
        return Held(features, mem, each, first, self.memory.registers.take(), count)

    def share(self, *held: Held) -> Held:
        """Count one user more of tensors; the first of them."""
        for each in held:
            each.users += 1
        return held[0]

    def release(self, *held: Held) -> None:
        """Count one user less of tensors, which are given back without any."""
        for each in held:
            each.users -= 1
            if not each.users:
                self.memory.space(each.mem).give_back(each.first)
                self.memory.registers.give_back(each.register)
                if each.activation is not None:
                    self.release(each.activation)

    def detach(self, held: Held) -> int:
        """Release a tensor but not its register, which is to be given back."""
        register = self.memory.registers.share(held.register)
        self.release(held)
        return register

    # Chains -------------------------------------------------------------------------------------------

    def image_loops(self, features: Features) -> ChainLoops:
        """Turns over samples, columns and rows of images."""
        return ChainLoops(self.size, features.width, features.height)

    def every(
        self, source: Held, vectors: Held | None = None, operand: Held | None = None, rows: int = 0, **chain: Any
    ) -> None:
        """A chain over all vectors of a tensor, and over those of others in the same order."""
        written, added = (None if held is None else held.every(rows) for held in (vectors, operand))
        self.writer.chain(source.loops(rows), source.every(rows), vectors=written, operand=added, **chain)

    def images(self, features: Features, source: Met, vectors: Met, operand: Met | None = None, **steps: Any) -> None:
        """Chains over images, one for each tile of channels, of what a tap of windows meets in tensors."""
        for c in range(source.held.tiles):
            added = None if operand is None else operand.image(c)
            loops = self.image_loops(features)
            self.writer.chain(loops, source.image(c), vectors=vectors.image(c), operand=added, **steps)

    # Forward ------------------------------------------------------------------------------------------

    def made(self, name: str, held: Held) -> None:
        """A tensor has been made; all operations that read it use it."""
        self.tensors[name] = held
        held.users += max(len(self.memory.operations.readers(name)) - 1, 0)

    def activation(self, name: str) -> Held:
        """A tensor as products and poolings read it."""
        made = self.tensors[name]
        if made.mem is Mem.NARROW:
            return made
        if made.activation is None:
            made.activation = self.new(made.features, Mem.NARROW)
            self.narrowed(name, made, made.activation, relu=False)
        return made.activation

    def narrowed(self, name: str, source: Held, result: Held, relu: bool) -> None:
        """Round a tensor to an activation, and write it as rows of tiles if a product reads all of it ``name``."""
        self.writer.fit(result.register, source.register, ACTIVATION_BITS)
        rows, tile_rows = 0, None
        product = next((step for step in self.memory.operations.readers(name) if step.flat), None)
        if product is not None:
            rows, points = self.memory.products[product.name].point_rows, self.size * product.outputs.positions
            result.rows = self.memory.tile_space.take(rows * self.memory.tiles(points)), rows
            tile_rows = self.point_numbers(points, result.rows[0])
        self.every(source, result, rows=rows, tile_rows=tile_rows, round1=1, relu=int(relu))

    def point_numbers(self, points: int, tiles: int) -> Address:
        """Rows of tiles ``[vector of a point][tile of points]``, for loops over vectors of a point and points."""
        native = self.memory.config.native
        return Address(tiles * native, self.memory.tiles(points) * native, 1)

    def transpose_waiting(self) -> None:
        """Transpose inputs of products, those side by side in one chain, and give their tiles back."""
        memory, chains = self.memory, list[Transposition]()
        following: tuple[int, ...] = ()
        for part in self.waiting:
            tiles = part.rows * memory.tiles(part.points)
            words = part.lanes * tiles
            part.vectors = memory.space(Mem.NARROW).take(words)
            if following == (part.points, part.lanes, part.tiles, part.vectors):
                chains[-1].rows += part.rows
            else:
                chains.append(replace(part))
            following = part.points, part.lanes, part.tiles + tiles, part.vectors + words
        for chain in chains:
            self.transpose(chain)
        for part in self.waiting:
            memory.tile_space.give_back(part.tiles)

    def transpose(self, part: Transposition) -> None:
        """Unit vectors pick the columns of tiles of points; what is after the last point becomes zero."""
        steps, count = self.memory.config.steps, self.memory.tiles(part.points)
        words = Address(part.tiles * steps, steps, 0, count * steps)
        place = VectorPlace(Mem.NARROW, Address(part.vectors, 1, count, part.lanes * count))
        self.pick(ChainLoops(count, part.lanes, part.rows), words, place, part.points)

    def pick(self, loops: ChainLoops, tiles: Address, vectors: VectorPlace, count: int) -> None:
        """Write columns of tiles as vectors, with loops over tiles, columns and more; so many lanes are used in all."""
        units = Address(self.memory["units"], 0, 1)
        self.writer.chain(loops, ProductSource(units, tiles), vectors=vectors, valid=count % self.memory.config.native)

    # Backward -----------------------------------------------------------------------------------------

    def send(self, name: str, gradient: Gradient) -> None:
        """A gradient has reached a tensor."""
        self._arriving.setdefault(name, []).append(gradient)

    def arrived(self, name: str) -> Gradient | None:
        """The gradient of a tensor, the sum of all that have reached it; ``None`` if nobody asks for it."""
        gradients = self._arriving.pop(name, [])
        if len(gradients) < 2:
            return gradients[0] if gradients else None
        first, second = (self.whole(gradient) for gradient in gradients)
        return Gradient(self.total(first, second), WIDE_TOP)

    def whole(self, gradient: Gradient) -> Held:
        """A gradient as wide integers with an exact greatest magnitude, in the place of it."""
        if gradient.mask is None:
            return gradient.whole
        result = self.new(gradient.whole.features, Mem.WIDE)
        self.writer.fit(result.register, gradient.whole.register, GRADIENT_BITS)
        self.every(gradient.whole, result, gradient.mask, round1=1, mask=1)
        self._peak(result, result.register)
        self.release(*gradient.parts)
        return result

    def total(self, first: Held, second: Held) -> Held:
        """The sum of two tensors, which are released: once for the greatest magnitude, and once more to be rounded."""
        registers = [self._exact(held) for held in (first, second)]
        result, operand = self.new(first.features, Mem.WIDE), second.every()
        self.writer.step(Op.T_ADD, result.register, *registers)
        self.writer.rounded(first.loops(), first.every(), result.register, result.every(), operand=operand, add=1)
        for held, register in zip((first, second), registers, strict=True):
            if register != held.register:
                self.memory.registers.give_back(register)
            self.release(held)
        return result

    def _exact(self, held: Held) -> int:
        """A register with the greatest magnitude of a tensor, not only a bound."""
        if held.exact:
            return held.register
        register = self.memory.registers.take()
        self._peak(held, register)
        return register

    def _peak(self, held: Held, register: int) -> None:
        """Leave the exponent of a tensor and its greatest magnitude in a register."""
        self.writer.step(Op.T_MUL, register, held.register, self.memory.unscaled)
        self.every(held, peak=1, tensor=register)

    def clear(self, held: Held) -> None:
        """Make all words of a tensor zero."""
        each, step = (held.word, 1) if held.mem is Mem.NARROW else (1, held.word)
        self.writer.chain(
            ChainLoops(rows=each, inner=held.samples * held.features.vectors),
            VectorPlace(Mem.NARROW, Address(self.memory["zeros"])),
            vectors=VectorPlace(held.mem, Address(held.first, step, step * each)),
        )


class OperationSteps:
    """Chains of an operation; keeps from the forward to the backward pass where tensors lie.

    Parameters
    ----------
    batch : TrainingBatch
        On its way.
    step : TrainedOperation
        What is computed.
    """

    def __init__(self, batch: TrainingBatch, step: TrainedOperation):
        self.batch, self.step = batch, step
        self.writer, self.config, self.memory = batch.writer, batch.memory.config, batch.memory

    def forward(self) -> None:
        """Write the forward pass, which makes the result."""
        raise NotImplementedError

    def backward(self, gradient: Gradient) -> None:
        """Write the backward pass: the gradient of the result is released, those of inputs and parameters are made."""
        raise NotImplementedError

    def forget(self) -> None:
        """Release what was kept, where nobody asks for the gradient."""
