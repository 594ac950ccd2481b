"""Arithmetic of the NPU in PyTorch, on CPUs ([concordance]): what derived modules hold beside what NumPy has, too.

The functions are primitives of :mod:`concord.derive.primitives`, and what these need. The text below the mark is copied
into every module, after what :mod:`.numpy_functions` has for both libraries.
"""

import torch
from torch import Tensor

from concord.operations.torch_text import half_max

LARGEST = 65504.0  #: as in :mod:`.numpy_functions`

# --- arithmetic ---


def round_sum_to_half(total: Tensor, rest: Tensor | float) -> Tensor:
    """Exact sums of two float64 numbers to halves: one rounding, nearest even; an exact zero gives +0.

    ``rest`` is at most half a unit in the last place of ``total``. A cast from float64 to float16 rounds twice, so the
    sum is first reduced to 24 bits that round to the same number: the nearest number of 23 bits, and where that is not
    the sum, the next one of 24 bits towards it.
    """
    scaled = total * (2.0**30 + 1.0)
    high = scaled + (total - scaled)
    side = torch.sign((total - high) + rest)
    odd = high + side * (torch.abs(high) * (1.5 * 2.0**-24))
    return odd.to(torch.float32).to(torch.float16).to(torch.float32)


def round_to_half(total: Tensor) -> Tensor:
    """float64 numbers to halves: one rounding, nearest even; an exact zero gives +0."""
    return round_sum_to_half(total, 0.0)


def real_to_half(x: Tensor) -> Tensor:
    """float64 to halves, rounded once; -0, infinities and NaN stay what they are, numbers beyond become infinities."""
    real = torch.clamp(torch.nan_to_num(x, nan=0.0), -(2.0**17), 2.0**17)
    scaled = real * (2.0**30 + 1.0)
    high = scaled - (scaled - real)
    odd = high - torch.sign(high - real) * (torch.abs(high) * (1.5 * 2.0**-24))
    return torch.where(torch.isnan(x), float("nan"), odd.to(torch.float32).to(torch.float16).to(torch.float32))


def half_to_real(x: Tensor) -> Tensor:
    """Halves to float64, every NaN with the pattern of the canonical one."""
    return torch.where(torch.isnan(x), torch.full((), float("nan"), dtype=x.dtype), x).to(torch.float64)


def finite(x: Tensor) -> Tensor:
    """Infinities as +-65504, NaNs as 0."""
    return torch.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def half_reduce_max(x: Tensor, axis: int) -> Tensor:
    """The greatest element along an axis, which goes away."""
    while (count := x.shape[axis]) > 1:
        size = count // 2
        first, second, rest = torch.split(x, [size, size, count - 2 * size], axis)
        x = torch.cat([half_max(first, second), rest], axis)
    return x.squeeze(axis)


def sum_of_two(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of two numbers as a rounded one and what that leaves, exact (Knuth's TwoSum)."""
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def sum_of_three(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Three float64 numbers as their rounded sum, and of what it leaves the sign and enough for round_sum_to_half."""
    first, rest_1 = sum_of_two(a, b)
    second, rest_2 = sum_of_two(first, c)
    rests, least = sum_of_two(rest_1, rest_2)
    total, more = sum_of_two(second, rests)
    return total, torch.where(more == 0.0, least, more)


def parts(x: Tensor, steps: tuple[float, ...]) -> list[Tensor]:
    """Numbers divided into multiples of the first step, then of the second and so on; the last part is what remains."""
    wholes, rest = [], x.to(torch.float64)
    for step in steps:
        wholes.append(torch.round(rest * (1.0 / step)) * step)
        rest = rest - wholes[-1]
    return [*wholes, rest]


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Sums of products in the type of the weights, those of every group (axis -2) with a matrix of its own, if any."""
    x = x.to(weight.dtype)
    if weight.ndim == 2:
        return x @ weight
    return (x.movedim(-2, 0).flatten(1, -2) @ weight).movedim(0, -2).unflatten(0, x.shape[:-2])


def product_of(x: Tensor, matrix: Tensor, groups: int) -> Tensor:
    """Sums ``[batch, *g, ..., m]`` of products of ``x[batch, *g, ..., k]`` and ``matrix[batch, *g, m, k]``."""
    rows = x.to(torch.float64).reshape(*x.shape[: 1 + groups], -1, x.shape[-1])
    sums = rows @ matrix.to(torch.float64).transpose(-1, -2)
    return sums.reshape(*x.shape[:-1], matrix.shape[-2])


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """Sums of products of ``x[..., taps, channels]`` and ``weight[taps, channels]``: every channel by itself."""
    return (x.to(weight.dtype) * weight).sum(-2)


def of_type(x: Tensor, kind: str) -> Tensor:
    """Numbers of float64 as elements of a type; a cast to float16 would round twice. Of whole numbers NaN becomes 0."""
    if kind == "float16":
        x = real_to_half(x)
    elif not kind.startswith("float"):
        x = torch.nan_to_num(x, nan=0.0)
    return x.to(getattr(torch, kind))


def windows(
    x: Tensor,
    shape: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    origin: tuple[int, int],
    dilation: tuple[int, int],
    fill: float = 0.0,
) -> Tensor:
    """Windows ``[batch, *shape, *kernel, ...]`` of a map ``[batch, height, width, ...]``, ``fill`` outside of it."""
    height, width, *rest = x.shape[1:]
    places = [
        (origin[k] + torch.arange(shape[k]) * stride[k])[:, None] + torch.arange(kernel[k]) * dilation[k]
        for k in range(2)
    ]
    last = [origin[k] + (shape[k] - 1) * stride[k] + (kernel[k] - 1) * dilation[k] for k in range(2)]
    top, left = (max(0, -start) for start in origin)
    bottom, right = max(0, last[0] + 1 - height), max(0, last[1] + 1 - width)
    if top or bottom or left or right:
        whole = x.new_full((x.shape[0], height + top + bottom, width + left + right, *rest), fill)
        whole[:, top : top + height, left : left + width] = x
        x = whole
    rows, columns = places[0] + top, places[1] + left
    return x[:, rows[:, None, :, None], columns[None, :, None, :]]
