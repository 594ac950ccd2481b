"""Relu, functions by table and sums on the NPU."""

from __future__ import annotations

from concord.spec.isa import Mem, Op
from concord.spec.lookup import ENTRY_POINT, ENTRY_TOP
from concord.train.npu.batch import GRADIENT_BITS
from concord.train.npu.chains import TableSource
from concord.train.npu.operations import TrainedLookup, TrainedRelu, TrainedSum
from concord.train.npu.plan import GRADIENT_TOP
from concord.train.npu.steps import OperationSteps
from concord.train.npu.tables import TableMemory
from concord.train.npu.tensors import Gradient, Held


class ReluSteps(OperationSteps[TrainedRelu]):
    """Rounds what it reads to an activation; the gradient is masked where it is read."""

    def forward(self) -> None:
        batch, (name,) = self.batch, self.step.reads
        source = batch.as_made(name)
        self._result = result = batch.new(source.features, Mem.NARROW)
        result.exact = False
        batch.narrowed(self.step.makes, source, result, relu=True)
        batch.share(result)
        batch.made(self.step.makes, result)

    def backward(self, gradient: Gradient) -> None:
        whole: Held = self.batch.whole(gradient)
        self.batch.send(self.step.reads[0], Gradient(whole, GRADIENT_TOP, self._result))

    def forget(self) -> None:
        self.batch.release(self._result)


class LookupSteps(OperationSteps[TrainedLookup]):
    """Values of an activation, by table; on the way back its slopes, times the gradient rounded to its bits.

    The activation is what is kept: a vector of it is one narrow word, where its slopes are two wide ones.
    """

    def forward(self) -> None:
        batch, (asked,) = self.batch, self.step.back
        x = batch.activation(self.step.reads[0])
        result = batch.new(self.step.outputs, Mem.WIDE)
        self._look_up(x, self.memory.functions[self.step.function].values, result)
        self._x = batch.share(x) if asked else None
        batch.made(self.step.makes, result)

    def backward(self, gradient: Gradient) -> None:
        batch, writer, table = self.batch, self.writer, self.memory.functions[self.step.function].slopes
        assert self._x is not None and table is not None  # a gradient comes where it is asked for
        factors = self._rounded(gradient)
        result = batch.new(self.step.inputs, Mem.WIDE)
        loops = batch.loops(result)
        place = result.every(loops.rows)
        self._look_up(self._x, table, result)
        writer.step(Op.T_MUL, result.register, factors.register, y=result.register)
        writer.chain(
            loops, factors.every(loops.rows), operand=place, vectors=place, mul=1, peak=1, tensor=result.register
        )
        self._in_range(result.register)
        batch.release(factors)
        batch.release(self._x)
        batch.send(self.step.reads[0], Gradient(result, min(gradient.top, GRADIENT_TOP) * ENTRY_TOP))

    def forget(self) -> None:
        if self._x is not None:
            self.batch.release(self._x)

    def _look_up(self, x: Held, table: TableMemory, result: Held) -> None:
        """Entries of all elements, and zero where vectors have no element."""
        loops = self.batch.loops(x)
        source = TableSource(x.every(loops.rows).address, table.first, table.table.binades)
        self.writer.look_up(x.register)
        self.writer.step(Op.T_SET, result.register, exp=-ENTRY_POINT)
        self.writer.chain(
            loops, source, vectors=result.every(loops.rows), valid=x.features.channels % x.native, peak=1,
            tensor=result.register,
        )  # fmt: skip

    def _rounded(self, gradient: Gradient) -> Held:
        """The gradient with the bits that gradients have where they are read, in the place of it."""
        batch, whole = self.batch, self.batch.whole(gradient)
        if gradient.top <= GRADIENT_TOP:
            return whole
        result, loops = batch.new(whole.features, Mem.WIDE), batch.loops(whole)
        self.writer.step(Op.T_FIT, result.register, whole.register, bits=GRADIENT_BITS, place=1)
        self.writer.chain(loops, whole.every(loops.rows), vectors=result.every(loops.rows), round1=1)
        batch.release(whole)
        return result


class SumSteps(OperationSteps[TrainedSum]):
    """The sum of two tensors, and its gradient to both."""

    def forward(self) -> None:
        batch = self.batch
        first, second = (batch.share(batch.as_made(name)) for name in self.step.reads)
        batch.made(self.step.makes, batch.total(first, second))

    def backward(self, gradient: Gradient) -> None:
        for name, asked in zip(self.step.reads, self.step.back, strict=True):
            if asked:
                self.batch.send(name, self.batch.share_gradient(gradient))
        self.batch.release_gradient(gradient)
