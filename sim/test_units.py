"""Every unit as generated Verilog, in a compiled simulator, against the golden model."""

import json
import os
from pathlib import Path

import pytest
from amaranth.back import verilog

from cases import CASES, LANDING
from replay import Captured, capture
from simulators import TOP, Simulation, environment, simulators
from support import bench
from support.port_context import inputs_of, ports_of

DEEP = pytest.mark.deep


def design(case):
    """Verilog of the design that a case is about."""
    bench.simulate, simulate = capture, bench.simulate
    try:
        case.call()
    except Captured as found:
        ports = {name: (signal, None) for name, signal in ports_of(found.dut).items()}
        return verilog.convert(found.dut, name=TOP, ports=ports, emit_src=False)
    finally:
        bench.simulate = simulate
    raise AssertionError("a case must simulate something")


def run(name, text, simulator):
    """Compile a design and replay the benches of a case on it."""
    waves = os.getenv("WAVES", "0") not in ("", "0")
    with environment():
        simulation = Simulation(text, simulator, waves)
        simulation.compile()
        inputs = simulation.folder / "inputs.json"
        inputs.write_text(json.dumps(inputs_of(text, TOP)))
        folder = simulation.run(name, "replay_tb", {"CONCORD_CASE": name, "CONCORD_INPUTS": str(inputs)})
    if waves:
        print(*folder.glob("*.vcd"), *folder.glob("*.fst"))


@pytest.mark.parametrize("simulator", simulators())
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in LANDING else DEEP) for name in CASES])
def test_unit(name, simulator):
    run(name, design(CASES[name]), simulator)


def test_a_wrong_circuit_is_noticed():
    text = design(CASES["multiplier"])
    wrong = text.replace(" * ", " + ")
    assert wrong != text
    with pytest.raises(AssertionError, match=r"multiplier fails, see .*run.log"):
        run("multiplier", wrong, "verilator")


@DEEP
def test_waveform_on_request(monkeypatch, capsys):
    monkeypatch.setenv("WAVES", "1")
    run("multiplier", design(CASES["multiplier"]), "verilator")
    (path,) = map(Path, capsys.readouterr().out.split())
    assert "$enddefinitions" in path.read_text()


@DEEP
def test_an_interrupted_compilation_is_done_again():
    text = design(CASES["multiplier"]) + "// interrupted\n"
    with environment():
        simulation = Simulation(text, "verilator", waves=False)
        simulation.compile()
        for path in simulation.folder.rglob("*"):
            if path.is_file():
                path.write_bytes(b"")
    run("multiplier", text, "verilator")
