"""Orders in which runtimes add up the numbers of a mean in binary32, where each step is rounded.

An order is a list of steps. A step makes a value of each group of those that are there, from left to right; the last
step makes one. Tests compare means of numbers that are in the middle between codes, where the order decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Step = tuple[tuple[int, ...], ...]
#: Numbers that NumPy adds up in one piece.
_PIECE = 128


def one_by_one(count: int) -> list[Step]:
    """From left to right: AveragePool of ONNX Runtime, and axes that are not the last ones."""
    return [(tuple(range(count)),)]


def four_lanes(count: int) -> list[Step]:
    """Four sums that take turns, then the rest: GlobalAveragePool of ONNX Runtime."""
    whole = count // 4 * 4
    if not whole:
        return one_by_one(count)
    lanes = tuple(tuple(range(k, whole, 4)) for k in range(4))
    return [(*lanes, *_alone(whole, count)), *_folded(count - whole)]


def two_packets(count: int) -> list[Step]:
    """Eight sums that take turns, four numbers more, then the rest: ReduceMean of ONNX Runtime over the last axes.

    Rows whose length is no multiple of four begin at another place in each sample there, which changes the order; here
    they do not.
    """
    whole = count // 8 * 8
    if not whole:
        return four_lanes(count)
    steps: list[Step] = [(*(tuple(range(k, whole, 8)) for k in range(8)), *_alone(whole, count))]
    rest = count - whole
    steps.append((*((k, k + 4) for k in range(4)), *_alone(8, 8 + rest)))
    if rest >= 4:
        steps.append((*((k, k + 4) for k in range(4)), *_alone(8, 4 + rest)))
        rest -= 4
    return [*steps, *_folded(rest)]


def numpy_pairs(count: int) -> list[Step]:
    """Eight sums that take turns, added in pairs, of pieces of 128 at most: NumPy, and so ``onnx.reference``."""
    if count <= _PIECE:
        return _pairs(count)
    half = count // 2 - count // 2 % 8
    return [*_beside(numpy_pairs(half), numpy_pairs(count - half), half, count - half), ((0, 1),)]


def _beside(first: Sequence[Step], second: Sequence[Step], left: int, right: int) -> list[Step]:
    """Steps of both parts of a row at once; the part with fewer steps waits with its sum."""
    steps: list[Step] = []
    for k in range(max(len(first), len(second))):
        own = first[k] if k < len(first) else _alone(0, left)
        other = second[k] if k < len(second) else _alone(0, right)
        steps.append((*own, *(tuple(left + at for at in group) for group in other)))
        left, right = len(own), len(other)
    return steps


def _pairs(count: int) -> list[Step]:
    whole = count // 8 * 8
    if not whole:
        return one_by_one(count)
    lanes = tuple(tuple(range(k, whole, 8)) for k in range(8))
    return [
        (*lanes, *_alone(whole, count)),
        *((*((2 * k, 2 * k + 1) for k in range(n)), *_alone(2 * n, 2 * n + count - whole)) for n in (4, 2)),
        *one_by_one(2 + count - whole),
    ]


def _folded(rest: int) -> list[Step]:
    """Four sums to one, the first and the third together, and a rest one by one."""
    return [((0, 2), (1, 3), *_alone(4, 4 + rest)), *one_by_one(2 + rest)]


def _alone(first: int, end: int) -> tuple[tuple[int, ...], ...]:
    return tuple((k,) for k in range(first, end))


#: By the name that an operation has for it.
SUM_ORDERS: dict[str, Callable[[int], Sequence[Step]]] = {
    "one by one": one_by_one,
    "four lanes": four_lanes,
    "two packets": two_packets,
    "pairs": numpy_pairs,
}
