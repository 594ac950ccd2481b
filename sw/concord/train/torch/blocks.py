"""Blocks: integers with exponents, which a converted module has in the place of tensors.

A :class:`BlockTensor` takes part in functions of PyTorch through ``__torch_function__``; those that are not layers of
integer training are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from concord.train.losses import LOSSES, Loss
from concord.train.tensor import Dyadic, Tensor, multiplied, quantised, saturations
from concord.train.torch.tape import Tape


@dataclass
class PendingProduct:
    """A convolution or product that waits for what comes after it: its module, and what that reads."""

    module: Any
    source: BlockTensor

    def __call__(self) -> tuple[str, Tensor]:
        """Compute it by itself."""
        module = self.module
        ((name, tensor),) = self.source.tape.run(module.op, module.name, module.layer, [self.source.made], module.attrs)
        return name, tensor


#: Functions by their names in PyTorch; :mod:`concord.train.torch.functions` fills it.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


class BlockTensor:
    """Integers with an exponent, and the pass they belong to.

    Parameters
    ----------
    tape : Tape
        Of the pass.
    name : str
        Of the tensor there.
    tensor : Tensor
        Its integers, ``[samples, 1, *shape]``.
    """

    def __init__(self, tape: Tape, name: str, tensor: Tensor):
        self.tape = tape
        self._made: tuple[str, Tensor] | None = (name, tensor)
        self._product: PendingProduct | None = None
        self._taken = False

    @classmethod
    def waiting(cls, product: PendingProduct) -> BlockTensor:
        """The result of a product, which is computed as soon as something other than a normalisation reads it."""
        block = cls.__new__(cls)
        block.tape, block._made, block._product, block._taken = product.source.tape, None, product, False
        return block

    def take(self) -> PendingProduct | None:
        """Let a normalisation have the product itself; ``None`` if this is none, or was read before."""
        if self._product is None or self._made is not None or self._taken:
            return None
        self._taken = True
        return self._product

    @property
    def made(self) -> tuple[str, Tensor]:
        """Name and integers."""
        if self._taken:
            raise ValueError("what a BatchNorm reads must be read by nothing else in a converted module")
        if self._made is None:
            assert self._product is not None
            self._made = self._product()
        return self._made

    @property
    def name(self) -> str:
        """Name of the tensor in its pass."""
        return self.made[0]

    @property
    def tensor(self) -> Tensor:
        """The integers."""
        return self.made[1]

    @property
    def shape(self) -> torch.Size:
        """``[samples, *shape]``."""
        return torch.Size([self.samples, *self.tape.shapes[self.name][1:]])

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.tensor.mant)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return function(getattr(func, "__name__", str(func)))(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = function(name)
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __add__(self, other: Any) -> BlockTensor:
        total: BlockTensor = function("add")(self, other)
        return total

    __radd__ = __add__

    def __mul__(self, other: Any) -> BlockTensor:
        product: BlockTensor = function("mul")(self, other)
        return product

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BlockTensor:
        quotient: BlockTensor = function("div")(self, other)
        return quotient

    def __matmul__(self, other: Any) -> BlockTensor:
        product: BlockTensor = function("matmul")(self, other)
        return product

    def __getitem__(self, index: Any) -> BlockTensor:
        part: BlockTensor = function("getitem")(self, index)
        return part

    def __len__(self) -> int:
        return self.samples

    def __repr__(self) -> str:
        return f"BlockTensor({list(self.shape)}, exponent {self.tensor.exp})"

    def size(self, axis: int | None = None) -> Any:
        """Shape, or the length of an axis."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def detach(self) -> torch.Tensor:
        """Values of the integers, exactly, in float64."""
        return torch.from_numpy(np.ascontiguousarray(self.tensor.values.reshape(self.shape)))

    def argmax(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Places of the greatest elements."""
        return self.detach().argmax(*args, **kwargs)

    def plain(self) -> torch.Tensor:
        """Values of the integers in float64, for a loss that the user computes.

        Its gradient is rounded to the 32 bits of an intermediate, with one exponent, and goes on in integers.
        """
        values: torch.Tensor = _Leave.apply(self.tape.anchor, self)
        return values


def function(name: str) -> Callable[..., Any]:
    """A function of PyTorch, on blocks.

    Raises
    ------
    TypeError
        If there is none, with those there are.
    """
    if name not in FUNCTIONS:
        raise TypeError(f"functions of a converted module must be among {', '.join(sorted(FUNCTIONS))}; not {name}")
    return FUNCTIONS[name]


class _Leave(torch.autograd.Function):
    """Conversion from integers to floats; and back, with the gradient."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, block: BlockTensor) -> torch.Tensor:
        ctx.block = block
        return block.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, None]:
        block: BlockTensor = ctx.block
        fmt = block.tape.context.formats.intermediate
        with saturations(block.tape.session.counts):
            gradient = quantised(grad.detach().numpy().astype(np.float64).reshape(-1), fmt)
        mant = gradient.mant.reshape(block.tensor.mant.shape).astype(np.float64)
        block.tape.backward(block.name, Tensor(mant, int(gradient.exp), fmt.q_max), 1)
        return None, None


class _Judge(torch.autograd.Function):
    """A loss of integers, whose gradient is integers."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, block: BlockTensor, loss: Loss, samples: int) -> torch.Tensor:
        ctx.block, ctx.loss, ctx.samples = block, loss, samples
        return torch.tensor(loss.value / samples, dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, None, None, None]:
        tape: Tape = ctx.block.tape
        scale, gradient = Fraction(float(grad)), ctx.loss.gradient
        if scale != 1:
            with saturations(tape.session.counts):
                gradient = multiplied(gradient, Dyadic.nearest(scale), tape.context.formats.intermediate)
        tape.backward(ctx.block.name, gradient, ctx.samples)
        return None, None, None, None


def judged(block: Any, target: torch.Tensor, loss: str, reduction: str) -> torch.Tensor:
    """A loss of a block: that of the samples' sum, divided by their number if the reduction is ``mean``.

    Raises
    ------
    ValueError
        If labels or options are not such as the loss has.
    """
    if not isinstance(block, BlockTensor):
        raise TypeError(f"a loss must read the output of a converted module first, not {type(block).__name__}")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', not {reduction!r}")
    labels = target.detach().numpy()
    if loss == "mse" and reduction == "sum":
        raise ValueError("reduction of mse_loss must be 'mean', not 'sum'")
    if loss == "cross_entropy":
        classes = block.shape[-1]
        if block.dim() != 2 or labels.shape != (block.samples,) or labels.dtype.kind not in "iu":
            raise ValueError(
                f"cross_entropy must have outputs [samples, classes] and a class for each sample, not "
                f"{list(block.shape)} and {target.dtype} {list(labels.shape)}"
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise ValueError(f"classes must be in 0..{classes - 1}, not {labels.min()}..{labels.max()}")
    elif tuple(labels.shape) != tuple(block.shape):
        raise ValueError(f"targets must have the shape {list(block.shape)}, not {list(labels.shape)}")
    with saturations(block.tape.session.counts):
        judgement = LOSSES[loss](block.tensor, labels, block.tape.context.formats)
    samples = block.samples if reduction == "mean" else 1
    result: torch.Tensor = _Judge.apply(block.tape.anchor, block, judgement, samples)
    return result
