"""Simulation of Verilog that counts: compiled, and run for a number of cycles."""

from __future__ import annotations

from ctypes import string_at

from support.compiled_unit import LEAST, WORD, library_of


def run_netlist(texts, counts, cycles):
    """Clock ``module bench(input clk, output ...)`` and return the values of its outputs ``counts``.

    Outputs have up to 32 bits. Values are two-valued: unknown bits are zeros.
    """
    size = max(LEAST, WORD * len(counts))
    pins = ", ".join(f".{name}(o[{n * WORD} +: {WORD}])" for n, name in enumerate(counts))
    ports = f"input clk, input [{LEAST - 1}:0] i, output [{size - 1}:0] o"
    top = f"module top({ports});\n  bench bench(.clk(clk), {pins});\nendmodule\n"
    library = library_of("\n".join([*texts, top]))
    handle = library.unit_create()
    try:
        library.unit_settle(handle)
        for _ in range(cycles):
            library.unit_edge(handle)
        outputs = library.unit_outputs(handle)
        return [int.from_bytes(string_at(outputs + n * WORD // 8, WORD // 8), "little") for n in range(len(counts))]
    finally:
        library.unit_destroy(handle)
