"""Relu and sums on the NPU."""

from __future__ import annotations

from concord.spec.isa import Mem
from concord.train.npu.batch import OperationSteps
from concord.train.npu.plan import GRADIENT_TOP
from concord.train.npu.tensors import Gradient


class ReluSteps(OperationSteps):
    """Rounds what it reads to an activation; the gradient is masked where it is read."""

    def forward(self) -> None:
        batch, (name,) = self.batch, self.step.reads
        source = batch.as_made(name)
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
        first, second = (batch.share(batch.as_made(name)) for name in self.step.reads)
        batch.made(self.step.makes, batch.total(first, second))

    def backward(self, gradient: Gradient) -> None:
        for name, asked in zip(self.step.reads, self.step.back, strict=True):
            if asked:
                self.batch.share(*gradient.parts)
                self.batch.send(name, gradient)
        self.batch.release(*gradient.parts)
