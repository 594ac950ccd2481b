"""Poolings on the NPU: averages and maxima of windows that do not overlap."""

from __future__ import annotations

from functools import partial
from typing import Any

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.spec.integers import WIDE_BITS
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import ACTIVATION_BITS, OperationSteps, TrainingBatch
from concord.train.npu.chains import ProductSource
from concord.train.npu.features import Features, WindowShape
from concord.train.npu.operations import TrainedAverage, TrainedMaximum
from concord.train.npu.plan import WIDE_TOP
from concord.train.npu.registers import TrainingFactor
from concord.train.npu.tensors import Gradient, Held


def _scattered(batch: TrainingBatch, step: TrainedAverage | TrainedMaximum) -> Held:
    """A place for the gradient of what windows read, zeros where no window is."""
    result, window = batch.new(step.inputs, Mem.WIDE), step.window
    if not _covers(window, step.inputs, step.outputs):
        batch.clear(result)
    return result


def _covers(window: WindowShape, inputs: Features, outputs: Features) -> bool:
    """True if every element of the input is in a window."""
    sizes = (outputs.height, inputs.height), (outputs.width, inputs.width)
    return all(
        (kernel == step or windows == 1) and dilation == 1 and kernel + (windows - 1) * step == size
        for kernel, step, dilation, (windows, size) in zip(
            window.kernel, window.strides, window.dilations, sizes, strict=True
        )
    )


class AverageSteps(OperationSteps[TrainedAverage]):
    """Sums of windows are products with the identity."""

    def forward(self) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        x = batch.activation(step.reads[0])
        result = batch.new(step.outputs, Mem.WIDE)
        factor, loops = self.memory.averages[step.factor], batch.loops(result)
        tile, whole = self.memory.identity * self.config.steps, result.every(loops.rows)
        writer.step(Op.T_MUL, result.register, x.register, y=self.memory.unscaled)
        if step.outputs.positions == 1:
            window = step.window.chain_window(x.tiles, step.inputs.width)
            first = Address(x.first, 1, step.inputs.vectors(self.config.native))
            products = [(loops, ProductSource(first, Address(tile), window=window), whole)]
        else:
            images, windows = batch.image_loops(step.outputs), partial(x.windows, step.window, step.outputs)
            products = [(images, windows(c, tile), result.image(c)) for c in range(x.tiles)]
        for turns, source, place in products:
            writer.chain(turns, source, vectors=place, peak=1, tensor=result.register)
        writer.scaled(loops, whole, result.register, result.register, factor, whole)
        batch.made(step.makes, result)

    def backward(self, gradient: Gradient) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        whole, factor = batch.whole(gradient), self.memory.averages[step.factor]
        result = _scattered(batch, step)
        writer.step(Op.T_SCALE, result.register, whole.register, factor=factor)
        writer.step(Op.T_FIT, result.register, result.register, bits=WIDE_BITS, place=1)
        steps: dict[str, Any] = {"scale": 1, "factor": factor, "round1": 1}
        if step.outputs.positions == 1 and step.window.taps == step.inputs.positions:
            vectors, each = step.inputs.vectors(self.config.native), result.tiles
            writer.chain(
                ChainLoops(each, step.inputs.positions, batch.size),
                VectorPlace(Mem.WIDE, Address(whole.first, 2, 0, 2 * each)),
                vectors=VectorPlace(Mem.WIDE, Address(result.first, 2, 2 * each, 2 * vectors)),
                **steps,
            )
        else:
            for tap in range(step.window.taps):
                for c in range(result.tiles):
                    place = result.image(c, step.window.place(tap), step.window.strides)
                    writer.chain(batch.image_loops(step.outputs), whole.image(c), vectors=place, **steps)
        batch.release(whole)
        batch.send(step.reads[0], Gradient(result, min(gradient.top * step.factor.mant, WIDE_TOP)))


class MaximumSteps(OperationSteps[TrainedMaximum]):
    """Tap by tap the gradient that is left goes to elements that are the greatest of their windows."""

    def forward(self) -> None:
        batch, step = self.batch, self.step
        self._x = x = batch.share(batch.activation(step.reads[0]))
        self._y = y = batch.new(step.outputs, Mem.NARROW)
        y.exact = False
        self.writer.step(Op.T_FIT, y.register, x.register, bits=ACTIVATION_BITS, place=1)
        window = step.window.chain_window(x.tiles, step.inputs.width)
        for c in range(x.tiles):
            source = x.image(c, (0, 0), step.window.strides).address
            self.writer.maximum(batch.image_loops(step.outputs), source, y.image(c).address, window)
        batch.share(y)
        batch.made(step.makes, y)

    def backward(self, gradient: Gradient) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        left = batch.whole(gradient)
        result, below = _scattered(batch, step), batch.new(step.outputs, Mem.NARROW)
        writer.step(Op.T_FIT, result.register, left.register, bits=WIDE_BITS, place=0)
        self._keep_grids(below.register)
        for tap in range(step.window.taps - 1):
            left = self._give(tap, left, result, below)
        self._write(step.window.taps - 1, left, None, result)
        for held in (left, below):
            batch.release(held)
        self.forget()
        batch.send(step.reads[0], Gradient(result, gradient.top))

    def forget(self) -> None:
        self.batch.release(self._x)
        self.batch.release(self._y)

    def _keep_grids(self, register: int) -> None:
        """Numbers are subtracted as they are, and limited to the bits of an activation."""
        unscaled = self.memory.unscaled
        self.writer.step(Op.T_BIAS, register, unscaled, y=unscaled)
        self.writer.step(Op.T_FIT, register, unscaled, bits=ACTIVATION_BITS, place=1)

    def _give(self, tap: int, left: Held, result: Held, below: Held) -> Held:
        """Give the gradient to a tap where it is the greatest; what is left for the taps after it.

        ``below`` is how much the elements of the tap are below the greatest.
        """
        batch, step, writer = self.batch, self.step, self.writer
        for c in range(below.tiles):
            writer.chain(
                batch.image_loops(step.outputs),
                self._x.image(c, step.window.place(tap), step.window.strides),
                operand=self._y.image(c),
                vectors=below.image(c),
                scale=1,
                factor=TrainingFactor.NEGATION,
                add=1,
                round1=1,
            )
        after, loops = batch.new(step.outputs, Mem.WIDE), batch.loops(below)
        writer.chain(
            loops, left.every(loops.rows), operand=below.every(loops.rows), vectors=after.every(loops.rows), mask=1
        )  # fmt: skip
        self._write(tap, left, after, result)
        batch.release(left)
        return after

    def _write(self, tap: int, left: Held, after: Held | None, result: Held) -> None:
        """Write to a tap what is not left after it."""
        batch, step = self.batch, self.step
        for c in range(left.tiles):
            place = result.image(c, step.window.place(tap), step.window.strides)
            loops = batch.image_loops(step.outputs)
            if after is None:
                self.writer.chain(loops, left.image(c), vectors=place)
            else:
                self.writer.chain(
                    loops, after.image(c), operand=left.image(c), vectors=place, scale=1,
                    factor=TrainingFactor.NEGATION, add=1,
                )  # fmt: skip
