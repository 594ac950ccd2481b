# amaranth: UnusedElaboratable=no
"""Netlists of a small design against its model in integers; changes of a netlist are noticed, or refused."""

import copy
import random

import pytest
from rich.console import Console

from concord.host.rtl import RtlTransport
from concord.spec.links import uart
from concord_boards import board_named
from concord_rtl.families import ICE40
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.bram import BlockRams, Store
from concord_rtl.flow.clocking import tunable
from concord_rtl.flow.gates.simulate import NetlistStage, contents_text, fill, library_of, models_of, netlist_of, steps
from concord_rtl.netlists.circuit import Circuit, Clock
from concord_rtl.netlists.netlist import Netlist, NetlistError, text_of
from support.gate_design import WIDTH, Mixer, MixerModel, words

pytestmark = pytest.mark.slow

DEEP = pytest.mark.deep
#: Each netlist with a change has to be compiled: those after synthesis are left for later.
STAGES = [pytest.param(stage, marks=DEEP if stage is NetlistStage.SYNTHESIS else ()) for stage in NetlistStage]
BAUD = 1_000_000
#: Clocks from a PLL: of ECP5 it is measured by the design, of iCE40 it is known.
BOARDS = {"ulx3s-25f": 50e6, "icebreaker": 24e6}
DATA = random.Random(1).randbytes(400)
INIT = words("ram"), words("found")


@pytest.fixture(scope="module", params=list(BOARDS))
def flow(request, tmp_path_factory):
    """A flow that has placed and routed the design."""
    board, hz = board_named(request.param), BOARDS[request.param]
    made = Flow(board, tmp_path_factory.mktemp("gates"), Console(quiet=True))
    made.generate(lambda: BoardTop(Mixer(*INIT), board, clock_hz=hz, link=uart(BAUD)), "mixer")
    made.synthesize()
    assert not made.is_routed
    made.place([1], Goal(hz, hz))
    assert made.is_routed
    return made


def replies(netlist, flow, data=DATA):
    """What the netlist answers, byte by byte; shorter than ``data`` if it stops."""
    board = flow.board
    return replies_of(RtlTransport(library_of(netlist, board, BOARDS[board.name], BAUD, board.family == "ecp5")), data)


def replies_of(transport, data):
    """What comes back over the line, byte by byte; shorter than ``data`` if nothing comes."""
    answer = b""
    for byte in data:
        transport.write(bytes([byte]))
        reply = transport.read(1, 0.01)
        if not reply:
            break
        answer += reply
    transport.close()
    return answer


@pytest.mark.parametrize("stage", list(NetlistStage))
def test_a_netlist_does_what_the_model_does(flow, stage):
    assert replies(netlist_of(flow, stage), flow) == MixerModel(*INIT).replies(DATA)


@pytest.mark.parametrize(
    ("name", "hz", "baud"),
    [
        ("orangecrab-25f", 60e6, 1_000_000),
        pytest.param("icepi-zero", 60e6, 3_000_000, marks=DEEP),
        pytest.param("icepi-zero", 50e6, 3_000_000, marks=DEEP),
        pytest.param("colorlight-i9", 60e6, 115_200, marks=DEEP),
    ],
)
def test_the_serial_port_of_other_boards(tmp_path, name, hz, baud):
    """With other oscillators and bit rates; one of them runs at the clock of its oscillator."""
    board = board_named(name)
    made = Flow(board, tmp_path, Console(quiet=True))
    made.generate(lambda: BoardTop(Mixer(*INIT), board, clock_hz=hz, link=uart(baud)), "mixer")
    made.synthesize()
    library = library_of(netlist_of(made, NetlistStage.SYNTHESIS), board, hz, baud, tunable(board, hz))
    assert replies_of(RtlTransport(library), DATA[:100]) == MixerModel(*INIT).replies(DATA[:100])


@pytest.mark.parametrize("stage", STAGES)
def test_a_changed_bit_of_a_table_is_noticed(flow, stage):
    rng, good = random.Random(2), netlist_of(flow, stage)
    name = {"LUT4": "INIT", "TRELLIS_COMB": "INITVAL", "SB_LUT4": "LUT_INIT", "ICESTORM_LC": "LUT_INIT"}
    cells = [cell.name for cell in good.of_kind(*name) if cell.name.startswith("core.") and _is_full(cell)]
    assert _noticed(flow, good, 4, lambda bad: _flip(bad.cells[rng.choice(cells)], name, rng)) >= 2


def _is_full(cell):
    """Whether all four inputs of a table have nets, and it is no carry cell."""
    inputs = ["ABCD", ("I0", "I1", "I2", "I3")]["I0" in cell.pins]
    wired = all(isinstance(bit, int) for port in inputs for bit in cell.pins.get(port) or [""])
    return wired and cell.parameters.get("MODE", "LOGIC") == "LOGIC"


def _flip(cell, name, rng):
    digits = list(cell.parameters[name[cell.kind]])
    at = rng.randrange(len(digits))
    digits[at] = "1" if digits[at] == "0" else "0"
    cell.parameters[name[cell.kind]] = "".join(digits)


def _noticed(flow, good, count, change):
    want = MixerModel(*INIT).replies(DATA)
    noticed = 0
    for _ in range(count):
        bad = copy.deepcopy(good)
        change(bad)
        try:
            noticed += replies(bad, flow) != want
        except NetlistError:
            noticed += 1
    return noticed


@pytest.mark.parametrize("stage", STAGES)
def test_a_changed_connection_is_noticed(flow, stage):
    rng, good = random.Random(3), netlist_of(flow, stage)
    data = {"DI", "D", "I0"}
    registers = [cell.name for cell in good.cells.values() if any(isinstance(b, int) for b in _at(cell, data))]

    def swap(bad):
        one, other = (bad.cells[name] for name in rng.sample(registers, 2))
        ports = [next(port for port in data if _at(cell, {port})) for cell in (one, other)]
        one.pins[ports[0]], other.pins[ports[1]] = other.pins[ports[1]], one.pins[ports[0]]

    assert _noticed(flow, good, 4, swap) >= 2


def _at(cell, ports):
    return [bit for port in ports for bit in cell.pins.get(port, [])]


@pytest.mark.parametrize("stage", STAGES)
def test_contents_are_replaced_and_one_wrong_bit_is_noticed(flow, stage):
    """As a bitstream is filled: found by what the design was synthesised with."""
    family = flow.family

    def filled(init):
        netlist = netlist_of(flow, stage)
        text = flow.placed.read_text() if stage is NetlistStage.ROUTED else contents_text(netlist, family)
        rams = BlockRams(family.geometry, text)
        layout = rams.locate([Store("ram", WIDTH, INIT[0])])
        # On iCE40 synthesis removes the bits of this memory that nobody reads; block RAM of ECP5 is instantiated.
        assert layout.places and (layout.missing == set() or family is ICE40)
        layout.write(rams, [Store("ram", WIDTH, init)])
        fill(netlist, family, rams)
        assert models_of(family).contents(netlist) == rams.by_name()
        return replies(netlist, flow)

    other = words("other")
    want = MixerModel(other, INIT[1]).replies(DATA)
    assert filled(other) == want
    fourth = sum(DATA[:4]) % len(other)
    assert filled([word ^ (at == fourth) << 5 for at, word in enumerate(other)]) != want


def test_block_rams_that_are_not_those_of_the_netlist_are_refused(flow):
    text = flow.placed.read_text()
    marker = {"ecp5": ".bram_init", "ice40": ".ram_data"}[flow.board.family]
    at = text.index("\n", text.index(marker)) + 1
    digit = "1" if text[at] == "0" else "0"
    flow.placed.write_text(text[:at] + digit + text[at + 1 :])
    with pytest.raises(NetlistError, match="build the bitstream again"):
        netlist_of(flow, NetlistStage.ROUTED)
    flow.placed.write_text(text)
    netlist_of(flow, NetlistStage.ROUTED)


def test_what_is_not_simulated_is_refused(flow):
    good = netlist_of(flow, NetlistStage.SYNTHESIS)
    ram = {"ecp5": "DP16KD", "ice40": "SB_RAM40_4K"}[flow.board.family]
    for change, message in [
        (lambda cell: cell.parameters.update(WHATEVER="1"), "parameter WHATEVER is not simulated"),
        (lambda cell: cell.pins.update(MORE=["1"]), "input MORE is not simulated"),
        (lambda cell: setattr(cell, "kind", "FANCY"), "cells of kind FANCY are not simulated"),
    ]:
        bad = copy.deepcopy(good)
        change(next(bad.of_kind(ram)))
        with pytest.raises(NetlistError, match=message):
            replies(bad, flow)
    bad = copy.deepcopy(good)
    name = next(cell.name for cell in good.cells.values() if "FF" in cell.kind)
    bad.cells[name].outputs.clear()
    bad.cells[name].pins = {k: v for k, v in bad.cells[name].pins.items() if k != "Q"}
    with pytest.raises(NetlistError, match="nothing drives"):
        replies(bad, flow)


def test_a_missing_netlist_is_told(tmp_path):
    empty = Flow(board_named("ulx3s-25f"), tmp_path, Console(quiet=True))
    with pytest.raises(NetlistError, match="build the bitstream first"):
        netlist_of(empty, NetlistStage.ROUTED)
    (tmp_path / "npu.json").write_text('{"modules": {"a": {}, "b": {}}}')
    with pytest.raises(NetlistError, match="must have a module npu, not only a, b"):
        Netlist.load(tmp_path / "npu.json", "npu")


def test_text_and_bit_vectors_of_parameters():
    assert [text_of(value) for value in ("0101", "1 ", "CLK0", "0b000", "", "01  ")] == [
        None, "1", "CLK0", "0b000", None, "01 "
    ]  # fmt: skip


def test_steps_give_the_bit_rate_that_the_design_measures():
    board = board_named("ulx3s-25f")
    assert steps(board, 50e6, 3_000_000, True) == (2, 4)
    assert steps(board, 50e6, 1_000_000, True) == (6, 4)
    assert steps(board, 12e6, 1_000_000, False) == (1, 12)
    with pytest.raises(NetlistError, match="no clock gives 7142857 baud clearly"):
        steps(board, 50e6, 7_142_857, True)


def test_circuits_refuse_what_cannot_be():
    circuit = Circuit()
    net = circuit.net()
    circuit.function(net, 1, [])
    with pytest.raises(ValueError, match="must have one driver"):
        circuit.register(Clock(), net, 0)
    with pytest.raises(ValueError, match="inputs must be at most 6"):
        circuit.function(circuit.net(), 1, [0] * 7)
