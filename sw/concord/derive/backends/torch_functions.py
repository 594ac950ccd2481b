"""The numbers of the NPU in PyTorch, on CPUs ([concordance]); this text is also the first part of a derived module.

A *wide* tensor is float32 and holds binary16 numbers; a *narrow* one is float32 and holds the values of blocks,
mantissa times power of two; an exact sum is float64. Any NaN stands for the canonical one. The text of
:mod:`concord.operations.torch_text` stands in the place of the line in the middle.
"""

import torch
from torch import Tensor

from concord.operations.torch_text import half_max

# --- arithmetic ---

HALF_MAX = 65504.0
NOISE_PARTS = 65536.0  # of a unit, in stochastic rounding
EXPONENT = 0x7F800000


def round_to_half(total: Tensor, rest: Tensor | None = None) -> Tensor:
    """Exact float64 sums, or those of two numbers, to wide: one rounding, nearest even; an exact zero gives +0.

    ``rest`` is at most half a unit in the last place of ``total``. A cast from float64 to float16 rounds twice, so the
    sum is first reduced to 24 bits that round to the same number: the nearest number of 23 bits, and where that is not
    the sum, the next one of 24 bits towards it.
    """
    scaled = total * (2.0**30 + 1.0)
    high = scaled + (total - scaled)
    low = total - high
    side = torch.sign(low if rest is None else low + rest)
    odd = high + side * (torch.abs(high) * (1.5 * 2.0**-24))
    return odd.to(torch.float32).to(torch.float16).to(torch.float32)


def real_to_half(x: Tensor) -> Tensor:
    """float64 to wide, rounded once; -0, infinities and NaN stay what they are, numbers beyond become infinities."""
    real = torch.clamp(torch.nan_to_num(x, nan=0.0), -(2.0**17), 2.0**17)
    scaled = real * (2.0**30 + 1.0)
    high = scaled - (scaled - real)
    odd = high - torch.sign(high - real) * (torch.abs(high) * (1.5 * 2.0**-24))
    return torch.where(torch.isnan(x), float("nan"), odd.to(torch.float32).to(torch.float16).to(torch.float32))


# --- operations ---


def finite(x: Tensor) -> Tensor:
    """Infinities as +-65504, NaNs as 0."""
    return torch.nan_to_num(x, nan=0.0, posinf=HALF_MAX, neginf=-HALF_MAX)


def half_table(x: Tensor, entries: Tensor, factor: float, low: float, high: float) -> Tensor:
    """``entries[clamp(rne(x * factor), low, high) - low]``."""
    code = torch.clamp(torch.round(finite(x) * factor), low, high)
    return entries[(code - low).to(torch.int64)]


def round_codes(x: Tensor, unit: Tensor, away: bool, noise: Tensor | None) -> Tensor:
    """Whole units, nearest even or away from zero, or with 16 bits of noise (float64); zeros are +0."""
    if noise is not None:
        fine = torch.floor(torch.abs(x).to(torch.float64) / unit * NOISE_PARTS)
        size = torch.floor((fine + noise) / NOISE_PARTS).to(torch.float32) * unit
    elif away:
        size = torch.floor(torch.abs(x) / unit + 0.5) * unit
    else:
        shift = unit * (1.5 * 2.0**23)
        return (x + shift) - shift
    return torch.where(x < 0.0, -size, size) + 0.0


def block_quantize(
    x: Tensor, least: Tensor, share: float, greatest_code: float, away: bool = False, noise: Tensor | None = None
) -> Tensor:
    """Wide blocks (last axis) to narrow ones with dynamic exponents; ``least`` are their least powers of two."""
    numbers = finite(x)
    peak = torch.amax(torch.abs(numbers), dim=-1, keepdim=True)
    power = (peak.view(torch.int32) & EXPONENT).view(torch.float32)
    unit = torch.maximum(power * share, least)
    limit = unit * greatest_code
    return torch.clamp(round_codes(numbers, unit, away, noise), -limit, limit)


def static_quantize(
    x: Tensor, unit: float, greatest_code: float, away: bool = False, noise: Tensor | None = None
) -> Tensor:
    """Wide to narrow with a static exponent."""
    limit = unit * greatest_code
    return round_codes(torch.clamp(finite(x), -limit, limit), torch.tensor(unit), away, noise)


def canonical_nan(x: Tensor) -> Tensor:
    """Wide with the pattern of the canonical NaN for every NaN."""
    return torch.where(torch.isnan(x), torch.full((), float("nan"), dtype=x.dtype), x)


def half_maximum(x: Tensor, dim: int) -> Tensor:
    """The greatest element along an axis, which goes away."""
    while (count := x.shape[dim]) > 1:
        half = count // 2
        first, second, rest = torch.split(x, [half, half, count - 2 * half], dim)
        x = torch.cat([half_max(first, second), rest], dim)
    return x.squeeze(dim)


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of two numbers as a rounded one and what that leaves, exact (Knuth's TwoSum)."""
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def sum_of_two(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two float64 numbers as their rounded sum, and what it leaves."""
    return two_sum(a, b)


def sum_of_three(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Three float64 numbers as their rounded sum, and of what it leaves the sign and enough for round_to_half."""
    first, rest_1 = two_sum(a, b)
    second, rest_2 = two_sum(first, c)
    rests, least = two_sum(rest_1, rest_2)
    total, more = two_sum(second, rests)
    return total, torch.where(more == 0.0, least, more)


def parts(x: Tensor, steps: tuple[float, ...]) -> list[Tensor]:
    """Numbers divided into multiples of the first step, then of the second and so on; the last part is what remains."""
    found = []
    for step in steps:
        found.append(torch.round(x * (1.0 / step)) * step)
        x = x - found[-1]
    return [*found, x]


def product(x: Tensor, weight: Tensor, groups: bool) -> Tensor:
    """Sums of products of float64 numbers, those of every group (axis -2) with a matrix of its own."""
    if not groups:
        return x @ weight
    return (x.movedim(-2, 0).flatten(1, -2) @ weight).movedim(0, -2).unflatten(0, x.shape[:-2])


def ended(total: Tensor, x: Tensor, weight: Tensor, end: float, norm: float, starts: list[int]) -> Tensor:
    """Sums of products, infinite where they reach ``end`` as they are added up: at once what begins at ``starts``."""
    channels = x.dim() > total.dim()  # every channel has weights of its own
    peak = x.abs().flatten(-2).amax(-1) if channels else x.abs().amax(-1)
    rows = peak * norm >= end
    if not bool(rows.any()):
        return total
    some, found = x[rows], torch.zeros_like(total[rows])
    for first, last in zip(starts, [*starts[1:], len(weight)], strict=True):
        part = some[:, first:last]
        term = (part * weight[first:last]).sum(1) if channels else part @ weight[first:last]
        after = found + term
        fits = (term >= -end) & (term < end) & (after >= -end) & (after < end)
        after = torch.where(fits, after, torch.copysign(torch.full_like(term, torch.inf), term))
        found = torch.where(found.isinf(), found, after)
    total = total.clone()
    total[rows] = found
    return total


def grouped(x: Tensor, group: int) -> Tensor:
    """``[samples, ...]`` as ``[runs, group, ...]``, filled up with the last sample."""
    missing = -x.shape[0] % group
    return torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]).unflatten(0, (-1, group))


def windows(x: Tensor, index: Tensor, pad: tuple[int, ...], fill: float) -> Tensor:
    """Positions of maps ``[samples, height, width, ...]``, which are padded before."""
    height, width, *rest = x.shape[1:]
    top, bottom, left, right = pad
    if any(pad):
        whole = x.new_full((x.shape[0], height + top + bottom, width + left + right, *rest), fill)
        whole[:, top : top + height, left : left + width] = x
        x = whole
    return x.flatten(1, 2)[:, index]
