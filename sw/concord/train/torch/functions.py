"""Functions of PyTorch on blocks: each is a layer of integer training, or moves elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from concord.functions import trainable
from concord.graph.ir import Node
from concord.train.network import without_weights
from concord.train.torch.blocks import FUNCTIONS, BlockTensor, judged

#: Axes of matrices, one of each sample.
_MATRICES = 3


def layer(op: str, stem: str, blocks: Sequence[BlockTensor], **attrs: Any) -> BlockTensor:
    """A layer without weights on blocks of one pass."""
    if any(not isinstance(block, BlockTensor) for block in blocks) or len({id(block.tape) for block in blocks}) != 1:
        raise TypeError(f"operands of {stem} must be blocks of one pass through a converted module")
    tape = blocks[0].tape
    node = Node(op, stem, tuple(block.name for block in blocks), (stem,), attrs)
    operation = without_weights(node, [tape.shapes[block.name] for block in blocks])
    ((name, tensor),) = tape.run(op, stem, operation, [block.made for block in blocks], attrs)
    return BlockTensor(tape, name, tensor)


def expect(what: str, **options: tuple[Any, Any]) -> None:
    """Raise ``ValueError`` unless every option has the only value there is."""
    for name, (value, wanted) in options.items():
        if value != wanted:
            raise ValueError(f"{name} of {what} must be {wanted!r} in a converted module, not {value!r}")


def sizes(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number per axis."""
    return (value,) * rank if isinstance(value, int) else tuple(int(v) for v in value)


def window(kernel: Any, stride: Any, padding: Any, dilation: Any, rank: int) -> dict[str, Any]:
    """Attributes of a window."""
    pads = sizes(padding, rank)
    return {
        "kernel": sizes(kernel, rank), "strides": sizes(kernel if stride in (None, ()) else stride, rank),
        "pads": (*pads, *pads), "dilations": sizes(dilation, rank),
    }  # fmt: skip


def relu(x: BlockTensor, inplace: bool = False) -> BlockTensor:
    """Zero in the place of what is negative."""
    return layer("Relu", "relu", [x])


def looked_up(name: str) -> Callable[[BlockTensor], BlockTensor]:
    """A function by table."""
    return lambda x: layer("Function", name, [x], functions=((name, {}),))


def _max_pool(rank: int) -> Any:
    def pool(
        x: BlockTensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> BlockTensor:  # fmt: skip
        expect("max_pool", ceil_mode=(ceil_mode, False), return_indices=(return_indices, False))
        return layer("MaxPool", "max_pool", [x], **window(kernel_size, stride, padding, dilation, rank))

    return pool


def _average_pool(rank: int) -> Any:
    def pool(
        x: BlockTensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> BlockTensor:  # fmt: skip
        expect("avg_pool", ceil_mode=(ceil_mode, False), divisor_override=(divisor_override, None))
        attrs = window(kernel_size, stride, padding, 1, rank)
        counted = attrs["pads"] if count_include_pad else (0,) * (2 * rank)
        return layer("AveragePool", "average_pool", [x], counted=counted, **attrs)

    return pool


def _adaptive_pool(rank: int) -> Any:
    def pool(x: BlockTensor, output_size: Any) -> BlockTensor:
        expect("adaptive_avg_pool", output_size=(sizes(output_size, rank), (1,) * rank))
        return mean(x, tuple(range(x.dim() - rank, x.dim())), keepdim=True)

    return pool


def mean(x: BlockTensor, dim: Any = None, keepdim: bool = False) -> BlockTensor:
    """Averages along axes after that of the samples."""
    if dim is None:
        raise ValueError("dim of mean must be axes behind that of the samples in a converted module, not None")
    axes = sorted(axis % x.dim() for axis in ((dim,) if isinstance(dim, int) else tuple(dim)))
    if 0 in axes:
        raise ValueError("mean must leave the axis of the samples in a converted module")
    return layer("ReduceMean", "mean", [x], axes=tuple(axes), keepdims=keepdim)


def reshape(x: BlockTensor, *shape: Any) -> BlockTensor:
    """Elements in another shape, which keeps the axis of the samples."""
    wanted = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    if -1 in wanted:
        wanted[wanted.index(-1)] = prod(x.shape) // max(-prod(wanted), 1)
    if not wanted or wanted[0] != x.samples or prod(wanted) != prod(x.shape):
        raise ValueError(f"shapes must keep the axis of {x.samples} samples and all elements, not {list(shape)}")
    return layer("Reshape", "reshape", [x], shape=(1, *wanted[1:]))


def flatten(x: BlockTensor, start_dim: int = 0, end_dim: int = -1) -> BlockTensor:
    """Tensor with one axis in the place of several."""
    first, last = start_dim % x.dim(), end_dim % x.dim()
    if first == 0 and last:
        raise ValueError("flatten must begin behind the axis of the samples in a converted module (start_dim=1)")
    return reshape(x, *x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


def permute(x: BlockTensor, *dims: Any) -> BlockTensor:
    """Axes in another order; that of the samples stays."""
    order = [axis % x.dim() for axis in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if sorted(order) != list(range(x.dim())) or order[0]:
        raise ValueError(f"permutations must leave the axis of the samples in front, not {order}")
    return layer("Transpose", "permute", [x], perm=tuple(order))


def transpose(x: BlockTensor, dim0: int, dim1: int) -> BlockTensor:
    """Two axes exchanged."""
    order = list(range(x.dim()))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(x, order)


def squeeze(x: BlockTensor, dim: int) -> BlockTensor:
    """Without an axis of length 1."""
    shape = list(x.shape)
    return reshape(x, *(n for axis, n in enumerate(shape) if axis != dim % len(shape) or n != 1 or not axis))


def unsqueeze(x: BlockTensor, dim: int) -> BlockTensor:
    """Tensor with another axis of length 1."""
    shape = list(x.shape)
    shape.insert(dim % (len(shape) + 1), 1)
    return reshape(x, *shape)


def add(x: Any, other: Any, *, alpha: Any = 1) -> BlockTensor:
    """The sum of two blocks of one shape."""
    expect("add", alpha=(alpha, 1))
    return layer("Add", "add", [x, other])


def matmul(x: BlockTensor, other: BlockTensor) -> BlockTensor:
    """Products of two blocks ``[samples, ..., I, K]`` and ``[samples, ..., K, J]``, each sample by itself."""
    if not isinstance(other, BlockTensor) or x.dim() != other.dim() or x.dim() < _MATRICES:
        shapes = [list(block.shape) if isinstance(block, BlockTensor) else block for block in (x, other)]
        raise ValueError(f"factors of matmul must be blocks with as many axes, three at least, not {shapes}")
    return layer("MatMul", "matmul", [x, other])


def mul(x: BlockTensor, other: Any) -> BlockTensor:
    """A block times a number, the nearest one of 16 bits."""
    if isinstance(other, bool) or not isinstance(other, int | float):
        raise ValueError(f"factors must be numbers in a converted module, not {type(other).__name__}")
    return layer("Mul", "mul", [x], constant=np.asarray(float(other)))


def div(x: BlockTensor, other: Any, *, rounding_mode: str | None = None) -> BlockTensor:
    """A block divided by a number: times the nearest number of 16 bits."""
    expect("div", rounding_mode=(rounding_mode, None))
    if not other:
        raise ValueError(f"divisors must not be {other!r}")
    return mul(x, 1 / other)


def softmax(x: BlockTensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> BlockTensor:
    """Probabilities along an axis of every sample."""
    expect("softmax", dtype=(dtype, None))
    if dim is None or not dim % x.dim():
        raise ValueError(f"dim of softmax must be an axis behind that of the samples, not {dim!r}")
    return layer("Softmax", "softmax", [x], axis=dim % x.dim())


def dropout(x: BlockTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> BlockTensor:
    """Nothing: dropout is for evaluation only, or has p = 0."""
    if training and p:
        raise ValueError(f"dropout must be in evaluation mode or have p = 0 in a converted module, not p = {p!r}")
    return x


def getitem(x: BlockTensor, index: Any) -> BlockTensor:
    """Part of every sample, by numbers and slices."""
    items = list(index) if isinstance(index, tuple) else [index]
    if ... in items:
        at = items.index(...)
        items[at : at + 1] = [slice(None)] * (x.dim() - len(items) + 1)
    if items[0] != slice(None) or any(not isinstance(item, int | slice) for item in items) or len(items) > x.dim():
        raise ValueError("an index must leave the axis of the samples, and be numbers and slices in a converted module")
    whole, kept, rows = list(x.shape), list(x.shape), []
    for axis, item in enumerate(items[1:], 1):
        if isinstance(item, int):
            item = slice(item % whole[axis], item % whole[axis] + 1)
            kept[axis] = 0
        start, stop, step = item.indices(whole[axis])
        if (start, stop, step) != (0, whole[axis], 1):
            rows.append((axis, start, stop, step))
    if rows:
        axes, starts, stops, steps = zip(*rows, strict=True)
        x = layer("Slice", "slice", [x], axes=axes, starts=starts, stops=stops, steps=steps)
    if 0 in kept[1:]:
        x = reshape(x, *(n for n, k in zip(x.shape, kept, strict=True) if k))
    return x


def cross_entropy(
    x: BlockTensor, target: torch.Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """The loss of classes, with its gradient in integers."""
    options = {"weight": (weight, None), "size_average": (size_average, None), "reduce": (reduce, None)}
    expect("cross_entropy", label_smoothing=(label_smoothing, 0.0), ignore_index=(ignore_index, -100), **options)
    return judged(x, target, "cross_entropy", reduction)


def mse_loss(
    x: BlockTensor, target: torch.Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    weight: Any = None,
) -> torch.Tensor:  # fmt: skip
    """The mean squared error, with its gradient in integers."""
    expect("mse_loss", weight=(weight, None), size_average=(size_average, None), reduce=(reduce, None))
    return judged(x, target, "mse", reduction)


FUNCTIONS.update(
    relu=relu, relu_=relu, mean=mean, reshape=reshape, view=reshape, flatten=flatten,
    permute=permute, transpose=transpose, squeeze=squeeze, unsqueeze=unsqueeze, add=add, add_=add, dropout=dropout,
    matmul=matmul, mul=mul, div=div, true_divide=div, softmax=softmax,
    getitem=getitem, cross_entropy=cross_entropy, mse_loss=mse_loss, max_pool1d=_max_pool(1), max_pool2d=_max_pool(2),
    max_pool3d=_max_pool(3), avg_pool1d=_average_pool(1), avg_pool2d=_average_pool(2), avg_pool3d=_average_pool(3),
    adaptive_avg_pool1d=_adaptive_pool(1), adaptive_avg_pool2d=_adaptive_pool(2), adaptive_avg_pool3d=_adaptive_pool(3),
    argmax=BlockTensor.argmax, detach=BlockTensor.detach,
    **{record.name: looked_up(record.name) for record in trainable()},
)  # fmt: skip
