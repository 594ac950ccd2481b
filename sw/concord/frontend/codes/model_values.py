"""Tensors of a model while it is read, besides codes: constants, floats that something may quantise, sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.frontend.errors import Refusal
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerOperation
from concord.integer.moves import Move
from concord.integer.requantise import FloatRequantisation, Requantisation, Requantiser
from concord.integer.tables import FunctionStep
from concord.integer.wide import Dequantisation
from concord.transfer import Codes


@dataclass(frozen=True, eq=False)
class ConstantCodes:
    """Constant integers, and what they stand for.

    Parameters
    ----------
    offsets : array of int64
        Codes less their zero points.
    scale : array of float32
        One number, or one for each index of ``axis``.
    axis : int or None
        ``None`` for one scale.
    scheme : Codes or None
        What the codes stand for, if there is one scale and they have at most 16 bits.
    """

    offsets: Integers
    scale: NDArray[np.float32]
    axis: int | None
    scheme: Codes | None

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Numbers for which the codes stand, as DequantizeLinear makes them."""
        shape = [1] * self.offsets.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        return self.offsets.astype(np.float32) * self.scale.reshape(shape if self.offsets.ndim else ())


@dataclass(frozen=True, eq=False)
class CodeTarget:
    """The codes that an operation has to make, in ``low..high`` of their scheme."""

    name: str
    scheme: Codes
    low: int
    high: int

    @property
    def scale(self) -> np.float32:
        """The step, which is a float32 number."""
        return np.float32(self.scheme.scale)


#: Makes the operations whose last one has the codes of the target.
Maker = Callable[[CodeTarget], Sequence[IntegerOperation]]
#: Makes the operations whose last one makes the wide tensor of a name.
Widener = Callable[[str], Sequence[IntegerOperation]]


@dataclass(frozen=True, eq=False)
class Unquantised:
    """A float tensor that is between an operator and the QuantizeLinear of its result.

    Parameters
    ----------
    make : callable
        Makes its codes.
    limits : tuple of pairs
        Numbers to which activations limit it.
    source : str or None
        The tensor of codes it is a point-wise function of, if that is what it is.
    functions : tuple
        That function.
    widen : callable or None
        Makes its numbers as a wide tensor of a name; ``None`` if only codes can be made.
    """

    make: Maker
    limits: tuple[tuple[float, float], ...] = ()
    source: str | None = None
    functions: tuple[FunctionStep, ...] = ()
    widen: Widener | None = None


@dataclass(frozen=True, eq=False)
class ProductBias:
    """Addends of the sums of a product.

    Parameters
    ----------
    offsets : array of int64
        In the scale of the sums, one for each channel.
    term : array of float32
        Numbers that are added to those of the sums in binary32, one or one for each channel.
    wide_term : array of float32
        The same where the result is wide, and ``offsets`` do not count.
    """

    offsets: Integers
    term: NDArray[np.float32]
    wide_term: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class OpenProduct:
    """A product with a constant weight that has no bias yet.

    Parameters
    ----------
    kind : type
        Of the operation.
    name, source : str
        Of the node, and of the tensor of codes that it reads.
    scale : array of float32
        Of the sums, one or one for each channel.
    channels : int
    settings : mapping
        Further fields of the operation.
    """

    kind: Any
    name: str
    source: str
    scale: NDArray[np.float32]
    channels: int
    settings: Mapping[str, Any]

    def made(self, output: str, offsets: Integers | None, how: Requantiser) -> list[IntegerOperation]:
        """The product with a requantisation; ``offsets`` are its bias, of 0 if there is none."""
        bias = np.zeros(self.channels, dtype=np.int64) if offsets is None else offsets
        fields = {**self.settings, "bias": bias, "requantisation": how}
        return [self.kind(name=self.name, inputs=(self.source,), output=output, **fields)]

    def opened(self, bias: ProductBias) -> Unquantised:
        """The result with a bias, in front of QuantizeLinear."""

        def make(target: CodeTarget) -> list[IntegerOperation]:
            ends = target.scheme.zero, target.low, target.high
            if bias.term.any():
                how = FloatRequantisation(self.scale, bias.term, target.scale, *ends)
                return self.made(target.name, bias.offsets, how)
            return self.made(target.name, bias.offsets, Requantisation(self.scale / target.scale, *ends))

        def widen(name: str) -> list[IntegerOperation]:
            if bias.wide_term is None:
                return self.made(name, bias.offsets, Dequantisation(self.scale, bias.term))
            return self.made(name, None, Dequantisation(self.scale, bias.wide_term))

        return Unquantised(make, widen=widen)


@dataclass(frozen=True, eq=False)
class Accumulators:
    """Sums of products as a tensor of the model, in integers or as floats; these may have a factor and a term.

    Parameters
    ----------
    product : OpenProduct
        What makes the sums; its scale does not count.
    rank : int
        Number of axes after that of the channels.
    floats : bool
        Whether the sums are floats.
    factor, term : array of float32
        One number, or one for each channel. ``None`` as long as nothing has multiplied or added it.
    """

    product: OpenProduct
    rank: int
    floats: bool = False
    factor: NDArray[np.float32] | None = None
    term: NDArray[np.float32] | None = None

    def numbers(self, constant: NDArray[Any], what: str) -> NDArray[np.float32]:
        """A constant, by channel; ``Refusal`` if it is no float32 number, or not one or one for each channel."""
        single = (self.product.channels, *[1] * self.rank)
        if constant.dtype != np.float32:
            raise Refusal(f"{what} must be of float32, not {constant.dtype}", "cast it")
        if constant.size != 1 and (1,) * (constant.ndim - len(single)) + single != constant.shape:
            reason = f"{what} must be one number, or one for each of {self.product.channels} channels"
            raise Refusal(f"{reason}, not of shape {list(constant.shape)}", "make it so")
        if not np.isfinite(constant).all():
            raise Refusal(f"{what} must be of finite numbers")
        return constant.reshape(-1)

    def opened(self) -> Unquantised:
        """The sums as floats in front of QuantizeLinear."""
        factor = self.product.scale if self.factor is None else self.factor
        term = np.zeros(1, dtype=np.float32) if self.term is None else self.term

        def make(target: CodeTarget) -> list[IntegerOperation]:
            ends = target.scheme.zero, target.low, target.high
            return self.product.made(target.name, None, FloatRequantisation(factor, term, target.scale, *ends))

        return Unquantised(make, widen=lambda name: self.product.made(name, None, Dequantisation(factor, term)))


@dataclass(frozen=True, eq=False)
class MovedInput:
    """An input of the model that was moved before anything quantised it: its name, and the nodes that moved it."""

    name: str
    moves: tuple[tuple[str, Move], ...] = ()
