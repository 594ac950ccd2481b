"""Figures that need no RTL: speed of emulator and derived software, and what records of bitstreams say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from concord.compiler.model import compile_graph
from concord.graph.ir import Graph, Node, Shape
from concord.spec.builds import BUILDS
from concord.spec.config import NpuConfig
from concord_bench.results import Results

#: Names of groups of figures.
EMULATOR, DERIVED, PLACED = "Emulator, one core", "Derived NumPy file, one core", "Place and route"
FAST = "Emulator with compiled kernels, one core"
#: Rounds by size of the batch: what else the machine does disturbs short ones more.
ROUNDS = {4096: 20, 1: 400}
#: Widths of the perceptron of the demonstration.
WIDTHS = (64, 64, 32, 10)
#: Names of the networks that the speed of software is measured with.
PERCEPTRON, CNN = f"perceptron {'-'.join(map(str, WIDTHS))}", "CNN 8-16-10 on 8 x 8 pixels"


def perceptron(widths: tuple[int, ...] = WIDTHS) -> Graph:
    """A perceptron with random weights and ReLU between its layers; its input is ``x``, its output ``y``."""
    rng = np.random.default_rng(1)
    nodes: list[Node] = []
    shapes: dict[str, Shape] = {"x": (1, widths[0])}
    value = "x"
    for k, (inputs, outputs) in enumerate(pairwise(widths), 1):
        last = k == len(widths) - 1
        weight, bias = rng.normal(0, np.sqrt(2 / inputs), (outputs, inputs)), rng.normal(0, 0.1, outputs)
        result = "y" if last else f"fc{k}.out"
        nodes.append(Node("Dense", f"fc{k}", (value,), (result,), {"weight": weight, "bias": bias}))
        shapes[result], value = (1, outputs), result
        if not last:
            nodes.append(Node("Relu", f"relu{k}", (value,), (f"relu{k}.out",)))
            shapes[f"relu{k}.out"], value = (1, outputs), f"relu{k}.out"
    return Graph("perceptron", nodes, ["x"], ["y"], shapes, {"x", "y"})


def convolutions() -> Graph:
    """Two 3 x 3 convolutions of 8 and 16 channels on 8 x 8 pixels, a maximum between them, and a dense layer."""
    rng = np.random.default_rng(1)

    def window(size: int, stride: int, pad: int) -> dict[str, Any]:
        return {"strides": (stride, stride), "pads": (pad,) * 4, "dilations": (1, 1)} | (
            {"kernel": (size, size)} if stride > 1 else {"group": 1}
        )

    def weights(*shape: int) -> dict[str, Any]:
        return {"weight": rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape), "bias": rng.normal(0, 0.1, shape[0])}

    nodes = [
        Node("Conv", "c1", ("x",), ("c1",), weights(8, 1, 3, 3) | window(3, 1, 1)),
        Node("Relu", "r1", ("c1",), ("r1",)),
        Node("MaxPool", "p", ("r1",), ("p",), window(2, 2, 0)),
        Node("Conv", "c2", ("p",), ("c2",), weights(16, 8, 3, 3) | window(3, 1, 1)),
        Node("Relu", "r2", ("c2",), ("r2",)),
        Node("Reshape", "f", ("r2",), ("f",), {"shape": (1, 256)}),
        Node("Dense", "y", ("f",), ("y",), weights(10, 256)),
    ]
    shapes: dict[str, Shape] = {"x": (1, 1, 8, 8), "p": (1, 8, 4, 4), "f": (1, 256), "y": (1, 10)}
    shapes |= {"c1": (1, 8, 8, 8), "r1": (1, 8, 8, 8), "c2": (1, 16, 4, 4), "r2": (1, 16, 4, 4)}
    return Graph("convolutions", nodes, ["x"], ["y"], shapes, {"x", "y"})


def emulator_speed(config: NpuConfig, results: Results, rounds: Mapping[int, int] = ROUNDS) -> None:
    """Inferences per second of one core, in batches: the best of ``rounds``, by size of the batch."""
    with results.if_it_fits(EMULATOR):
        for graph in (perceptron(), convolutions()):
            compile_graph(graph, config)
        for group, speeds in _inferences_per_second(config, rounds).items():
            for name, speed in speeds.items():
                results.add(group, name, speed, "inferences/s")


def _inferences_per_second(config: NpuConfig, rounds: Mapping[int, int]) -> dict[str, dict[str, float]]:
    """Speed of emulator and derived software by group and name, measured in a process of its own."""
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "concord_bench.worker", json.dumps(config.to_dict()), json.dumps(rounds)]
    done = subprocess.run(command, env=os.environ | one_core, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the emulator failed with code {done.returncode}; its messages are above")
    speeds: dict[str, dict[str, float]] = json.loads(done.stdout)
    return speeds


def synthesis(results: Results) -> None:
    """Clock and resources of the bitstreams that have a record."""
    for build in BUILDS:
        group = f"{PLACED}: {build.preset} on {build.board}"
        older = ", of an older netlist" if build.stale else ""
        results.add(group, "clock", build.mhz, f"MHz (paths allow {build.reached_mhz:.2f}){older}")
        for name, used in (
            ("logic cells", build.cells),
            ("block RAMs", build.rams),
            ("multipliers", build.multipliers),
        ):
            results.add(group, name, used, "")
        if build.ffs:
            results.add(group, "flip-flops", build.ffs, "")
