"""The sticky flags of derived models: which a node may raise, and how those of samples are kept.

A node that runs on samples raises a flag for a sample if any of its elements does, as the machine does for the chain.
:mod:`concord.derive.evaluate` defines the conditions. Whether a flag can be raised at all follows from limits of
values, so most nodes have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.spec.formats import BINARY16_MAX, ExponentMode, Flag

#: Greatest magnitude of a value, and the k for which all of its elements are multiples of 2**k.
Limit = tuple[float, int]
#: By place, the flag word of every sample, uint8 ``[samples]``.
Words = dict[str, npt.NDArray[np.uint8]]


def raisable(node: ir.ModelNode, inputs: Sequence[Limit], output: Limit) -> tuple[Flag, ...]:
    """Flags that a node may raise, from the limits of its inputs and of its output.

    A limit of infinity stands for infinities and NaNs, too.
    """
    flags: list[Flag] = []
    match node:
        case ir.ExactSums():
            flags += [Flag.ACC_OVERFLOW] if node.bound >= accumulator_limit(node) else []
            flags += [Flag.HALF_OVERFLOW] if np.isinf(output[0]) else []
        case ir.Elementwise() if node.operation.rounds:
            flags += [Flag.HALF_OVERFLOW] if np.isinf(output[0]) else []
        case ir.TableLookup():
            ((greatest, _),) = inputs
            flags += [Flag.NONFINITE] if np.isinf(greatest) else []
            code = np.rint(np.ldexp(greatest, node.scale))
            open_low, open_high = (not end for end in node.constant_ends)
            flags += [Flag.TABLE_CLAMPED] if (open_low and -code < node.low) or (open_high and code > node.high) else []
        case ir.Quantise():
            ((greatest, _),) = inputs
            flags += [Flag.NONFINITE] if np.isinf(greatest) else []
            static = node.mode is ExponentMode.STATIC
            most = node.form.q_max * 2.0**node.exp if static else float(np.nextafter(node.form.limit, 0.0))
            flags += [Flag.SATURATED] if min(greatest, BINARY16_MAX) > most else []
    return tuple(flags)


def accumulator_limit(node: ir.ExactSums) -> float:
    """The number from which on sums raise ``ACC_OVERFLOW``; negative ones do below its negative."""
    return float(2.0 ** (node.width - 1 - node.frac))


def with_flags(model: ir.Model, places: Iterable[str], always: dict[str, int]) -> ir.Model:
    """The model with flags: of these places, in their order, those that may raise any.

    ``always`` are flag words by place that are raised in every run.
    """
    may = {node.where for node in every(model.body) if node.may} | {place for place, word in always.items() if word}
    return replace(model, flags=ir.Flags(tuple(place for place in places if place in may), always))


def every(body: ir.Body) -> Iterable[ir.ModelNode]:
    """All nodes, those of loops too."""
    for node in body:
        yield node
        if isinstance(node, ir.Loop):
            yield from every(node.body)


def no_words(flags: ir.Flags, samples: int) -> Words:
    """Words in which nothing is raised but what always is."""
    return {place: np.full(samples, flags.always.get(place, 0), np.uint8) for place in flags.places}


def note(words: npt.NDArray[np.uint8], flag: Flag, where: npt.NDArray[np.bool_]) -> None:
    """Raise a flag in the words ``[samples]`` where anything of a sample is true in ``where[samples, ...]``."""
    words |= (where.reshape(len(where), -1).any(axis=1) << int(flag)).astype(np.uint8)


def by_layer(words: Words) -> dict[str, dict[str, list[int]]]:
    """Samples that raised a flag, by place and by name of the flag; places and flags without any are left out."""
    samples_of: dict[str, dict[str, list[int]]] = {}
    for place, word in words.items():
        for flag in Flag:
            if (samples := np.flatnonzero(word >> flag & 1)).size:
                samples_of.setdefault(place, {})[flag.name] = samples.tolist()
    return samples_of
