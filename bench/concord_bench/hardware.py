"""Figures that need the RTL: they come from its counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from concord.compiler.model import compile_graph
from concord.examples import EXAMPLES, Example, gru, lstm
from concord.host import Link, LinkedDevice
from concord.host.rtl import RtlTransport, find_library
from concord.image import Image
from concord.spec.config import NpuConfig
from concord_bench.programs import elementwise, products
from concord_bench.results import Results
from concord_bench.software import perceptron

#: Sizes of the matrix-vector products: outputs, inputs.
SIZES = ((64, 64), (128, 128), (128, 256), (256, 256), (256, 1024), (512, 512))
REPEATS = (1, 16)
#: Hidden sizes of the recurrent cells, and the two numbers of steps whose difference is measured.
HIDDEN = (64, 128)
STEPS = (4, 8)


class CountingTransport(RtlTransport):
    """The simulation, with the bytes that went each way."""

    sent = received = 0

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self.sent += len(data)
        super().write(data)

    def read(self, count: int, timeout: float) -> bytes:
        """Simulate until a reply is there."""
        data = super().read(count, timeout)
        self.received += len(data)
        return data


@dataclass
class Rtl:
    """A simulated device and its transport."""

    device: LinkedDevice
    transport: CountingTransport

    @classmethod
    def open(cls, config: NpuConfig) -> Self:
        """Start the simulation, building it if necessary."""
        transport = CountingTransport(find_library(config))
        return cls(LinkedDevice(Link(transport), config), transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.device.close()

    @property
    def config(self) -> NpuConfig:
        """Configuration of the device."""
        return self.device.config

    def run(self, image: Image) -> dict[str, int]:
        """Load an image, run it once on ones and return the counters."""
        self.device.load(image)
        self.device.run({port.name: np.ones((1, *port.shape)) for port in image.inputs})
        return {name: value or 0 for name, value in self.device.counters().items()}

    def cycles(self, image: Image) -> int:
        """Cycles of one run."""
        return self.run(image)["CYCLES"]


def matrix_vector_products(rtl: Rtl, results: Results) -> None:
    """Utilisation of the multipliers in products of one matrix with a vector, alone and repeated."""
    group = "Matrix-vector products: share of the multipliers in use"
    for outputs, inputs in SIZES:
        for repeats in REPEATS:
            name = f"{outputs} x {inputs}" + (f", {repeats} times" if repeats > 1 else "")
            with results.if_it_fits(f"Product {name}"):
                image = products(rtl.config, outputs, inputs, repeats)
                cycles = rtl.cycles(image)
                share = image.metadata["macs"] / (cycles * rtl.config.macs)
                results.add(group, name, 100 * share, f"% ({cycles} cycles)")


def chains(rtl: Rtl, results: Results) -> None:
    """Latency of a chain, gap between independent chains, rate of the multifunction units."""
    group = "Chains"
    config = rtl.config
    n = 4 * config.native
    once, twice = (rtl.run(products(config, n, n, repeats)) for repeats in (8, 16))
    spent = twice["CYCLES"] - once["CYCLES"]
    busy = twice["DENSE_STEPS"] - once["DENSE_STEPS"]
    single = rtl.run(products(config, n, n, 1))
    beside = single["CYCLES"] - single["DENSE_STEPS"]
    results.add(group, f"latency of one {n} x {n} product beside its steps", beside, "cycles")
    results.add(group, f"gap between independent {n} x {n} products", (spent - busy) / 8, "cycles")
    vectors = 16
    few, many = (rtl.cycles(elementwise(config, vectors, repeats)) for repeats in (4, 12))
    rate = 8 * vectors * config.native / (many - few)
    results.add(group, "elements through both multifunction units", rate, f"per cycle (lanes: {config.mfu_lanes})")


def example_programs(rtl: Rtl, results: Results) -> None:
    """Cycles of the example programs."""
    for name, make in EXAMPLES.items():
        with results.if_it_fits(f"Example {name}"):
            example = make(rtl.config)
            cycles = rtl.cycles(example.image())
            share = 100 * example.macs / (cycles * rtl.config.macs)
            note = f" ({share:.1f} % of the multipliers)" if share else ""
            results.add("Example programs", name, cycles, f"cycles{note}")


def recurrent_steps(rtl: Rtl, results: Results) -> None:
    """Cycles of one step of a recurrent cell, and how many of them are not tile steps."""
    for make in (lstm, gru):
        for hidden in HIDDEN:
            name = f"{make.__name__} {hidden}"
            with results.if_it_fits(f"Cell {name}"):
                few, many = (rtl.run(_cell(rtl.config, make, hidden, steps).image()) for steps in STEPS)
                step, busy = ((many[key] - few[key]) / (STEPS[1] - STEPS[0]) for key in ("CYCLES", "DENSE_STEPS"))
                group = "One step of a recurrent cell, batch 1"
                results.add(group, name, step, f"cycles ({100 * busy / step:.1f} % of the multipliers)")
                results.add(group, f"{name}, exposed latency", step - busy, "cycles")


def _cell(config: NpuConfig, make: Callable[..., Example], hidden: int, steps: int) -> Example:
    return make(config, hidden=hidden, inputs=hidden, steps=steps)


def simulation_speed(rtl: Rtl, results: Results) -> None:
    """Simulated cycles per second, while the multipliers are busy."""
    n = 4 * rtl.config.native
    image = products(rtl.config, n, n, 10_000)
    rtl.device.load(image)
    before, start = rtl.transport.cycles, time.process_time()
    rtl.device.run({port.name: np.ones((1, *port.shape)) for port in image.inputs})
    speed = (rtl.transport.cycles - before) / (time.process_time() - start)
    results.add("Simulation", "Verilator, one core", speed, "cycles/s")


def link_bytes(rtl: Rtl, results: Results) -> None:
    """Bytes on the link, framing included, for one inference of the perceptron."""
    group = "Host link, one inference of the perceptron"
    with results.if_it_fits(group):
        compiled = compile_graph(perceptron(), rtl.config)
        rtl.device.load(compiled.image)
        batch = np.random.default_rng(1).random((8, *compiled.graph.sample_shape("x")))
        sent, received = rtl.transport.sent, rtl.transport.received
        compiled.run(rtl.device, {"x": batch})
        results.add(group, "to the device", (rtl.transport.sent - sent) / 8, "bytes")
        results.add(group, "from the device", (rtl.transport.received - received) / 8, "bytes")
        ports = (*compiled.image.inputs, *compiled.image.outputs)
        words = sum(port.vectors(rtl.config) * rtl.device.regions[port.region].nbytes for port in ports)
        results.add(group, "words of inputs and outputs in it", words, "bytes")


RTL_MEASURES: tuple[Callable[[Rtl, Results], None], ...] = (
    matrix_vector_products,
    chains,
    example_programs,
    recurrent_steps,
    simulation_speed,
    link_bytes,
)
