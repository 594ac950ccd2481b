"""Windows of a tensor along its axes, and the coordinates of their elements in C."""

from __future__ import annotations

from dataclasses import dataclass

from concord.derive.c_exact.places import minus, sum_text
from concord.derive.c_exact.tensors import CodeTensor
from concord.integer.npu.operations import WindowSums
from concord.integer.operations import CodeAverage, CodeWindows
from concord.integer.weighted_sums import IntegerConvolution


@dataclass(frozen=True)
class WindowAxis:
    """One axis along which windows are taken.

    Parameters
    ----------
    count, size : int
        Number of windows, and of elements of the source.
    kernel, stride, dilation, pad : int
        Sizes of the windows in elements; the padding in front.
    source_step, result_step : int
        Elements of memory between neighbours.
    """

    count: int
    size: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    source_step: int
    result_step: int

    @property
    def inside(self) -> bool:
        """True if no window has padding."""
        return self.pad == 0 and (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation < self.size

    @property
    def plain(self) -> bool:
        """True if windows are the elements."""
        return self.kernel == 1 and self.stride == 1 and self.inside

    def at(self, window: str, tap: str = "0") -> str:
        """The coordinate of an element of a window."""
        terms = [] if self.count == 1 else [window if self.stride == 1 else f"{window} * {self.stride}"]
        if self.kernel > 1 and tap != "0":
            terms.append(tap if self.dilation == 1 else f"{tap} * {self.dilation}")
        return minus(sum_text(terms), self.pad)


def window_axes(
    source: CodeTensor,
    result: CodeTensor,
    operation: IntegerConvolution | CodeWindows | CodeAverage | WindowSums,
) -> list[WindowAxis]:
    """The axes of the windows of an operation, which come after samples and channels."""
    return [
        WindowAxis(result.shape[k], source.shape[k], size, stride, dilation, pad, source.strides[k], result.strides[k])
        for k, (size, stride, dilation, pad) in enumerate(
            zip(
                operation.kernel,
                operation.strides,
                operation.dilations,
                operation.pads[: len(operation.kernel)],
                strict=True,
            ),
            2,
        )
    ]
