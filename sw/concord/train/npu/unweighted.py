"""Operations without weights on the NPU: Relu, sums, and poolings of windows that do not overlap."""

from __future__ import annotations

from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import OperationSteps
from concord.train.npu.chains import ProductSource
from concord.train.npu.plan import ACTIVATION_BITS, GRADIENT_TOP, WIDE_TOP, TrainingFactor
from concord.train.npu.tensors import Gradient, Held, Met


class ReluSteps(OperationSteps):
    """Rounds what it reads to an activation; the gradient is masked where it is read."""

    def forward(self) -> None:
        batch, (name,) = self.batch, self.step.reads
        source = batch.tensors[name]
        self._result = result = batch.new(source.features, Mem.NARROW)
        result.exact = False
        batch.narrowed(self.step.makes, source, result, relu=True)
        batch.made(self.step.makes, batch.share(result))

    def backward(self, gradient: Gradient) -> None:
        whole = self.batch.whole(gradient)
        self.batch.send(self.step.reads[0], Gradient(whole, GRADIENT_TOP, self._result))

    def forget(self) -> None:
        self.batch.release(self._result)


class SumSteps(OperationSteps):
    """The sum of two tensors, and its gradient to both."""

    def forward(self) -> None:
        batch = self.batch
        first, second = (batch.share(batch.tensors[name]) for name in self.step.reads)
        batch.made(self.step.makes, batch.total(first, second))

    def backward(self, gradient: Gradient) -> None:
        for name, asked in zip(self.step.reads, self.step.back, strict=True):
            if asked:
                self.batch.share(*gradient.parts)
                self.batch.send(name, gradient)
        self.batch.release(*gradient.parts)


class PoolingSteps(OperationSteps):
    """Base of both kinds of poolings, whose windows lie inside the image and have no element in common."""

    def _scattered(self) -> Held:
        """A place for the gradient of what windows read, zeros where no window is."""
        result, step = self.batch.new(self.step.inputs, Mem.WIDE), self.step
        if step.window.taps * step.outputs.positions < step.inputs.positions:
            self.batch.clear(result)
        return result


class AverageSteps(PoolingSteps):
    """Sums of windows are products with the identity."""

    def forward(self) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        x = batch.activation(step.reads[0])
        result = batch.new(step.outputs, Mem.WIDE)
        tile = self.memory["identity"] * self.config.steps
        writer.step(Op.T_MUL, result.register, x.register, self.memory.unscaled)
        if step.outputs.positions == 1:
            first, window = Address(x.first, 1, step.inputs.vectors), step.inputs.over(step.window, 1)
            source = ProductSource(first, Address(tile), window=window)
            writer.chain(result.loops(), source, vectors=result.every(), peak=1, tensor=result.register)
        else:
            for c in range(x.tiles):
                source, place = x.windows(step.window, step.outputs.size, c, tile), result.image(c)
                images = batch.image_loops(step.outputs)
                writer.chain(images, source, vectors=place, peak=1, tensor=result.register)
        factor = self._scale(result, result)
        batch.every(result, result, scale=1, factor=factor, round1=1)
        batch.made(step.makes, result)

    def backward(self, gradient: Gradient) -> None:
        batch, step = self.batch, self.step
        whole, result = batch.whole(gradient), self._scattered()
        factor = self._scale(result, whole)
        if step.outputs.positions == 1 and step.window.taps == step.inputs.positions:
            vectors, each = step.inputs.vectors, result.tiles
            self.writer.chain(
                ChainLoops(each, step.inputs.positions, batch.size),
                VectorPlace(Mem.WIDE, Address(whole.first, 2, 0, 2 * each)),
                vectors=VectorPlace(Mem.WIDE, Address(result.first, 2, 2 * each, 2 * vectors)),
                scale=1,
                factor=factor,
                round1=1,
            )
        else:
            for tap in range(step.window.taps):
                met = Met(result, step.window.tap(tap))
                batch.images(step.outputs, Met(whole), met, scale=1, factor=factor, round1=1)
        batch.release(whole)
        assert step.factor is not None
        batch.send(step.reads[0], Gradient(result, min(gradient.top * step.factor.mant, WIDE_TOP)))

    def _scale(self, result: Held, source: Held) -> int:
        """The factor register, with which a tensor becomes an intermediate."""
        assert self.step.factor is not None
        factor = self.memory.averages[self.step.factor]
        self.writer.step(Op.T_SCALE, result.register, source.register, factor=factor)
        self.writer.fit(result.register, result.register)
        return factor


class MaximumSteps(PoolingSteps):
    """Tap by tap the gradient that is left goes to elements that are the greatest of their windows."""

    def forward(self) -> None:
        batch, step = self.batch, self.step
        self._x = x = batch.share(batch.activation(step.reads[0]))
        self._y = y = batch.new(step.outputs, Mem.NARROW)
        y.exact = False
        self.writer.fit(y.register, x.register, ACTIVATION_BITS)
        window = step.inputs.over(step.window, 1)
        for c in range(x.tiles):
            source = x.image(c, step.window).address
            self.writer.maximum(batch.image_loops(step.outputs), source, y.image(c).address, window)
        batch.made(step.makes, batch.share(y))

    def backward(self, gradient: Gradient) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        left = batch.whole(gradient)
        result, below = self._scattered(), batch.new(step.outputs, Mem.NARROW)
        writer.fit(result.register, left.register, place=0)
        # Numbers are subtracted as they are, and limited to the bits of an activation.
        writer.step(Op.T_BIAS, below.register, self.memory.unscaled, self.memory.unscaled)
        writer.fit(below.register, self.memory.unscaled, ACTIVATION_BITS)
        for tap in range(step.window.taps - 1):
            left = self._give(Met(result, step.window.tap(tap)), left, below)
        batch.images(step.outputs, Met(left), Met(result, step.window.tap(step.window.taps - 1)))
        batch.release(left, below)
        self.forget()
        batch.send(step.reads[0], Gradient(result, gradient.top))

    def forget(self) -> None:
        self.batch.release(self._x, self._y)

    def _give(self, met: Met, left: Held, below: Held) -> Held:
        """Give the gradient to a tap where it is the greatest; what is left for the taps after it.

        ``below`` is how much the elements of the tap are below the greatest.
        """
        batch, outputs, minus = self.batch, self.step.outputs, {"scale": 1, "factor": TrainingFactor.NEGATION, "add": 1}
        batch.images(outputs, Met(self._x, met.window), Met(below), Met(self._y), **minus, round1=1)
        after = batch.new(outputs, Mem.WIDE)
        batch.every(left, after, below, mask=1)
        batch.images(outputs, Met(after), met, Met(left), **minus)
        batch.release(left)
        return after
