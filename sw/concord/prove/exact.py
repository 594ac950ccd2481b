"""Comparing C of a quantised network with the network on codes: every tensor, and accumulators that do not fit."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from concord.derive.c.program import compiler
from concord.derive.c_exact.program import ExactProgram
from concord.integer import IntegerNetwork
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph
from concord.transfer import Codes
from concord.utils.arrays import Float32s, Ints

#: Share of random codes that are an end or the zero point.
_CORNERS = 0.25


@dataclass(frozen=True)
class ExactProof:
    """Result of a comparison on codes.

    Parameters
    ----------
    name : str
    samples, overflows : int
        Samples, and those of them in which an accumulator has too many bits: they have nothing but flags.
    compared, different : dict of str to int
        Codes by tensor.
    flags : int
        Samples whose flags differ.
    """

    name: str
    samples: int
    overflows: int
    compared: dict[str, int]
    different: dict[str, int]
    flags: int

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not any(self.different.values()) and not self.flags


def random_codes(scheme: Codes, shape: tuple[int, ...], rng: np.random.Generator) -> Ints:
    """Codes, some of which are an end or the zero point."""
    corners = rng.choice([scheme.low, scheme.high, scheme.zero], shape)
    return np.where(rng.random(shape) < _CORNERS, corners, rng.integers(scheme.low, scheme.high + 1, shape))


def _random_numbers(shape: tuple[int, ...], rng: np.random.Generator) -> Float32s:
    """Numbers up to about 2**8 in magnitude, some of which are 0."""
    numbers = rng.normal(0, 1, shape) * np.exp2(rng.integers(0, 8, shape))
    return np.where(rng.random(shape) < _CORNERS, 0, numbers).astype(np.float32)


def prove_exact(
    network: IntegerNetwork, inputs: Mapping[str, ArrayLike] | None = None, *, samples: int = 32, seed: int = 0
) -> ExactProof:
    """Compare C, compiled on this machine, with the network.

    Parameters
    ----------
    network : IntegerNetwork
    inputs : mapping of str to array, optional
        As of :meth:`IntegerNetwork.run`; random codes if left out.
    samples, seed : int
        Of random codes.

    Raises
    ------
    ValueError
        If there is no compiler, the network has no form in C, or inputs do not fit.
    """
    command = compiler()
    if command is None:
        raise ValueError("c cannot be run: there is no C compiler")
    graph = network.graph
    every = replace(graph, outputs={name: name for name in graph.schemes})
    with tempfile.TemporaryDirectory(prefix="concord-prove-") as folder:
        programs = []
        for name, part in (("every", every), ("plain", graph)):
            (place := Path(folder) / name).mkdir()
            programs.append(ExactProgram(part, place, [command]))
        shapes = programs[0].shapes
        codes = network.codes(_random(network, shapes, samples, seed) if inputs is None else inputs)
        made = [program.run(codes) for program in programs]
    count = len(made[0][1])
    parts = [{name: np.split(x, count)[k] for name, x in codes.items()} for k in range(count)]
    wanted = [_every_tensor(every, part) for part in parts]
    overflows = np.array([tensors is None for tensors in wanted])
    compared, different = {}, {}
    for label, results, names in (("", made[0][0], every.outputs), (" as output", made[1][0], graph.outputs)):
        for name, tensor in names.items():
            runs = np.split(results[name], count)
            pairs = [(runs[k], want[tensor]) for k, want in enumerate(wanted) if want is not None]
            compared[name + label] = sum(b.size for _, b in pairs)
            different[name + label] = sum(int((a != b).sum()) for a, b in pairs)
    raised = np.stack([flags.any(axis=1) for _, flags in made])
    wrong = int((raised != overflows).any(axis=0).sum())
    return ExactProof(graph.name, count, int(overflows.sum()), compared, different, wrong)


def _random(
    network: IntegerNetwork, shapes: Mapping[str, tuple[int, ...]], samples: int, seed: int
) -> dict[str, Ints | Float32s]:
    """Random codes, or numbers, of all inputs, for as many runs."""
    rng, graph = np.random.default_rng(seed), network.graph

    def drawn(name: str, tensor: str) -> Ints | Float32s:
        shape = (samples * shapes[name][0], *shapes[name][1:])
        return _random_numbers(shape, rng) if graph.is_wide(tensor) else random_codes(graph.scheme(tensor), shape, rng)

    return {name: drawn(name, tensor) for name, tensor in graph.inputs.items()}


def _every_tensor(graph: IntegerGraph, codes: Mapping[str, Integers]) -> dict[str, Integers] | None:
    """Codes of all tensors of a run; ``None`` if an accumulator does not fit."""
    try:
        return graph.compute({graph.inputs[name]: x for name, x in codes.items()})
    except OverflowError:
        return None
