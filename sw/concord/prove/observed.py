"""Words that the emulator writes, and the values of derived software that they are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.derive.flow import Store
from concord.derive.model import MISSING, ObservedModel
from concord.emulator.lanes import Lanes
from concord.emulator.plan import ChainSlice
from concord.golden import binary16
from concord.spec.isa import Mem
from concord.utils.arrays import Array, Bools, Float32s, FloatArray, Ids


@dataclass(frozen=True)
class Written:
    """Words of a vector memory after a chain.

    Parameters
    ----------
    store : Store
        The chain that has written them.
    keep : Ids
        Which of its vectors are still there after the chain: of several for one address the last one.
    inside : Ids ``[values, 2]``
        Elements that are compared: which of these vectors, and lane.
    place : Ids ``[values]``
        Where derived software has them, as in :class:`concord.derive.model.ObservedModel`.
    """

    store: Store
    keep: Ids
    inside: Ids
    place: Ids


def written(observed: ObservedModel) -> list[list[Written]]:
    """Words that each chain leaves, in the order of dispatch, as far as derived software has them."""
    chains: dict[int, list[Written]] = {}
    last: dict[tuple[int, Mem, int], int] = {}
    for number, store in enumerate(observed.flow.stores):
        for address in store.address.tolist():
            last[store.chain, store.mem, address] = number
    for number, store in enumerate(observed.flow.stores):
        keep = _last(store.address)
        keep = keep[[last[store.chain, store.mem, int(a)] == number for a in store.address[keep]]]
        place = observed.place[store.vectors[keep]]
        inside = np.argwhere(place != MISSING)
        chains.setdefault(store.chain, []).append(Written(store, keep, inside, place[place != MISSING]))
    return [chains.get(chain, []) for chain in range(max(chains, default=-1) + 1)]


def _last(address: Ids) -> Ids:
    """Indices of the last entry of every address."""
    return np.sort(len(address) - 1 - np.unique(address[::-1], return_index=True)[1])


class Recorder:
    """Keeps what the emulator has written after every chain. The object is the ``after`` of an emulator.

    Parameters
    ----------
    chains : list
        Of :func:`written`.
    """

    def __init__(self, chains: list[list[Written]]):
        self._chains = chains
        self._next = 0
        self._values: list[Float32s] = []
        self._runs: list[Float32s] = []

    def __call__(self, part: ChainSlice, lanes: Lanes, count: int) -> None:
        """Note what the chain of a piece has written, if it is the last one."""
        if not part.last:
            return
        for entry in self._chains[self._next]:
            words = lanes.memory(entry.store.mem)[entry.store.address[entry.keep]][..., :count]
            self._values.append(words[entry.inside[:, 0], entry.inside[:, 1]])
        self._next += 1
        if self._next == len(self._chains):
            self._runs.append(np.concatenate(self._values))
            self._values, self._next = [], 0

    def values(self) -> Float32s:
        """Everything in order, ``[values, runs]``."""
        return np.concatenate(self._runs, axis=1) if self._runs else np.zeros((0, 1), np.float32)


def constants(place: Ids, runs: int) -> FloatArray:
    """Values ``[values, runs]`` of elements that are constants; others are zero."""
    bits = np.where(place < MISSING, MISSING - 1 - place, 0).astype(np.uint16)
    return np.repeat(binary16.decode(bits)[:, None], runs, axis=1)


def of_derived(outputs: Iterable[Any], place: Ids) -> FloatArray:
    """Elements of derived software, ``[values, runs]``, from its outputs ``[runs, ...]`` in order."""
    arrays = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in outputs]
    flat = np.concatenate(arrays, axis=1)
    there = place > MISSING
    values = constants(place, len(flat))
    values[there] = flat[:, place[there]].T
    return values


def different(first: Array, second: Array) -> Bools:
    """True where numbers are not the same: signs of zeros count, a NaN is a NaN."""
    same = (first == second) & (np.signbit(first) == np.signbit(second))
    return np.asarray(~(same | (np.isnan(first) & np.isnan(second))))
