"""Benches of units on the compiled Verilog of the unit: ``bench.simulate`` with ``compiled=True``.

The benches stay what they are, and only the design runs as machine code. That pays where it runs for many cycles: in
Amaranth's simulator a cycle of the core takes 5 to 8 ms, and one of a small unit 0.5 ms.
"""

from __future__ import annotations

import ctypes
import os
import types
from functools import cached_property
from pathlib import Path
from weakref import WeakKeyDictionary

from amaranth.back import verilog

from concord_rtl.flow.verilate import compile_verilog
from support.port_context import PortContext, inputs_of, ports_of

WRAPPER = Path(__file__).with_suffix(".cpp")
#: Every port begins at a word, and both vectors are so long that Verilator makes arrays of words of them.
WORD, LEAST = 32, 96
#: Compiling without optimization takes half as long, and the benches are what takes time.
LEVEL = "-O0"


def library_of(text):
    """C functions of ``compiled_unit.cpp`` for Verilog with ``module top``: a clock, and vectors ``i`` and ``o``."""
    library = ctypes.CDLL(str(compile_verilog(text, "top", wrapper=WRAPPER, level=LEVEL)))
    for name in ("unit_create", "unit_inputs", "unit_outputs"):
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("unit_destroy", "unit_inputs", "unit_outputs", "unit_settle", "unit_edge"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library


class CompiledUnit:
    """The library of a component, and where its ports are.

    Parameters
    ----------
    dut : wiring.Component
        The component. Its clock is the domain ``sync``, and nothing resets it.
    """

    def __init__(self, dut):
        os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
        self.ports = ports_of(dut)
        ports = {name: (signal, None) for name, signal in self.ports.items()}
        text = verilog.convert(dut, name="unit", ports=ports, emit_src=False)
        given = inputs_of(text, "unit")
        self.inputs = [name for name in given if name in self.ports]
        #: First word and number of words, by name of a port.
        self.places, ends = {}, {True: 0, False: 0}
        for name, signal in self.ports.items():
            words, side = -(-len(signal) // WORD), name in self.inputs
            self.places[name] = ends[side], words
            ends[side] += words
        self._sizes = {side: max(LEAST, end * WORD) for side, end in ends.items()}
        self._text = text + self._top([name for name in given if name not in self.ports])

    def _top(self, wires):
        """A module with two vectors, which has the unit inside."""
        pins = [f".{name}({name})" if name == "clk" else f".{name}(1'b0)" for name in wires]
        for name, (start, _) in self.places.items():
            pins.append(f".{name}({'io'[name not in self.inputs]}[{start * WORD} +: {len(self.ports[name])}])")
        vectors = f"input [{self._sizes[True] - 1}:0] i, output [{self._sizes[False] - 1}:0] o"
        return f"\nmodule top(input clk, {vectors});\n  unit unit({', '.join(pins)});\nendmodule\n"

    @cached_property
    def library(self):
        """C functions of ``compiled_unit.cpp``."""
        return library_of(self._text)


#: Units by component, so that one that is simulated again is not compiled again.
_UNITS: WeakKeyDictionary = WeakKeyDictionary()


class UnitContext(PortContext):
    """Ports of a compiled unit in its initial state."""

    def __init__(self, unit):
        self._library, self._places = unit.library, unit.places
        self._handle = self._library.unit_create()
        self._bytes = {}
        inputs, outputs = self._library.unit_inputs(self._handle), self._library.unit_outputs(self._handle)
        for name, (start, words) in unit.places.items():
            vector, byte = inputs if name in unit.inputs else outputs, WORD // 8
            view = (ctypes.c_uint8 * (words * byte)).from_address(vector + start * byte)
            self._bytes[name] = memoryview(view).cast("B")
        self._settled = False
        super().__init__(unit.ports, unit.inputs)

    def close(self):
        """End the simulation."""
        self._library.unit_destroy(self._handle)

    def drive(self, name, value):
        view = self._bytes[name]
        view[:] = value.to_bytes(len(view), "little")
        self._settled = False

    def read(self, name):
        self._settle()
        return int.from_bytes(self._bytes[name], "little")

    def _settle(self):
        if not self._settled:
            self._library.unit_settle(self._handle)
            self._settled = True

    def edge(self):
        """One edge of the clock."""
        self._settle()
        self._library.unit_edge(self._handle)

    @types.coroutine
    def cycle(self, values):
        return (yield values)


def simulate(dut, *benches, cycles):
    """Run ``benches`` on the compiled unit to completion, or fail after ``cycles``."""
    if dut not in _UNITS:
        _UNITS[dut] = CompiledUnit(dut)
    context = UnitContext(_UNITS[dut])
    try:
        _run(context, [bench(context) for bench in benches], cycles)
    finally:
        context.close()


def _run(context, coroutines, cycles):
    """Resume coroutines in their order after every edge, with the values that they have asked for."""
    waiting = [(coroutine, None) for coroutine in coroutines]
    for _ in range(cycles + 1):
        asked = []
        for coroutine, values in waiting:
            try:
                asked.append((coroutine, coroutine.send(values)))
            except StopIteration:
                pass
        if not asked:
            return
        waiting = [(coroutine, tuple(map(context.get, values))) for coroutine, values in asked]
        context.edge()
    for coroutine, _ in waiting:
        coroutine.close()
    raise AssertionError(f"still running after {cycles} cycles")
