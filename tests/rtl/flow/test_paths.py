"""Slow paths: the latest way to every register, what of it is logic, and where it begins."""

import pytest

from concord_rtl.families import family_named
from concord_rtl.flow import paths
from concord_rtl.flow.paths import Delays, classes, not_counted, timing_facts, unit_of


def register(name, setup):
    return f"""
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE {name})
    (DELAY (ABSOLUTE
        (IOPATH CLK Q (430:477:500) (430:477:525))
    ))
    (TIMINGCHECK
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:{setup}) (267:285:303))
    )
  )"""


def gate(name):
    return f"""
  (CELL
    (CELLTYPE "TRELLIS_COMB")
    (INSTANCE {name})
    (DELAY (ABSOLUTE
        (IOPATH A F (141:188:200) (141:188:235))
        (IOPATH B F (141:188:240) (141:188:235))
    ))
  )"""


def wire(start, end, delay):
    return f"        (INTERCONNECT {start} {end} ({delay - 9}:{delay - 5}:{delay}) ({delay}:{delay}:{delay}))"


WIRES = [
    wire("core.a.x1_TRELLIS_FF_Q/Q", "core.b.g/A", 3000),
    wire("core.a.x2_TRELLIS_FF_Q/Q", "core.b.g/B", 2000),
    wire("core.b.g/F", "core.b.y_TRELLIS_FF_Q/DI", 1000),
    wire("core.b.y_TRELLIS_FF_Q/Q", "core.a.x2_TRELLIS_FF_Q/DI", 4150),
    wire("pin/O", "core.a.x1_TRELLIS_FF_Q/DI", 50),
]
CELLS = [register(f"core.{name}_TRELLIS_FF_Q", 300) for name in ("a.x1", "a.x2", "b.y")] + [gate("core.b.g")]
TEXT = "\n".join(["(DELAYFILE", *WIRES, *CELLS, ")"])


def test_the_latest_way_to_each_register():
    first, second = Delays.read(TEXT.splitlines()).paths()
    assert (first.start, first.end) == ("core.a.x1_TRELLIS_FF_Q", "core.b.y_TRELLIS_FF_Q/DI")
    assert first.ns == pytest.approx(0.5 + 3 + 0.2 + 1 + 0.3) and first.logic == pytest.approx(1.0)
    assert second.ns == pytest.approx(0.5 + 4.15 + 0.3) and second.wires == pytest.approx(4.15)


def test_classes_are_units_and_only_slow_paths_count(tmp_path, monkeypatch):
    (tmp_path / "delays.sdf").write_text(TEXT)
    one, other = timing_facts(tmp_path / "delays.sdf", family_named("ecp5"))["slow_paths"]
    assert (one["from"], one["to"], one["registers"], one["ns"]) == ("a.x", "b.y", 1, 5.0)
    assert other["to"] == "a.x"
    shown = paths.table([one])
    assert [list(column.cells) for column in shown.columns] == [["a.x"], ["b.y"], ["1"], ["5.00"], ["20 %"]]
    found = Delays.read(TEXT.splitlines()).paths()
    monkeypatch.setattr(paths, "SLOW", 0.995)
    assert len(classes(found)) == 1 and classes([]) == []


def cell(kind, name, *arcs):
    """A cell with arcs of its clock, as nextpnr writes one."""
    return f'(CELL\n (CELLTYPE "{kind}")\n (INSTANCE {name})\n' + "\n".join(arcs)


#: Registers among a pin, an output, a multiplier and a memory with registers, a cell without delays, and a constant.
X = "core.a.x1_TRELLIS_FF_Q/Q"
SURROUNDED = "\n".join([
    TEXT, *(cell("TRELLIS_IO", name) for name in ("pin", "led")), cell("TRELLIS_COMB", "one"), cell("ALU54B", "sum"),
    cell("MULT18X18D", "logic", "(IOPATH A0 P0 (2909:3418:3927) (2909:3418:3927))"),
    cell("MULT18X18D", "mult", "(IOPATH CLK0 P0 (578:656:735) (578:656:735))",
         *(f"(SETUPHOLD (posedge A{k}) (posedge CLK0) (53:68:84) (1:1:1))" for k in range(2))),
    cell("DP16KD", "ram", "(SETUPHOLD (posedge ADA0) (posedge CLKA) (53:68:84) (1:1:1))"),
    wire("core.b.g/F", "mult/A0", 1000), wire("one/F", "mult/A1", 10), wire("mult/P0", "sum/A0", 1000),
    wire("pin/O", "sum/A1", 10), wire(X, "led/I", 10), wire(X, "ram/CLKA", 10),
])  # fmt: skip


def test_cells_that_the_clock_does_not_count():
    delays = Delays.read(SURROUNDED.splitlines())
    assert delays.without_delays() == {"TRELLIS_IO": 2, "TRELLIS_COMB": 1, "ALU54B": 1}
    listed = not_counted(delays, family_named("ecp5"))
    numbers = {entry["cell"]: entry["number"] for entry in listed}
    assert numbers == {"ALU54B": 1, "TRELLIS_IO": 2, "MULT18X18D": 1, "DP16KD": 1}
    assert listed[0]["what"] == "delays of pins" and "input to output registers" in listed[2]["what"]
    shown = paths.not_counted_table(listed)
    assert [list(column.cells)[2] for column in shown.columns] == ["MULT18X18D", "1", listed[2]["what"]]


def test_a_design_whose_cells_all_have_delays_has_no_such_list():
    delays = Delays.read("\n".join(["(DELAYFILE", *WIRES[:-1], *CELLS]).splitlines())
    assert not_counted(delays, family_named("ecp5")) == [] and delays.paths()


@pytest.mark.parametrize(
    "cell, unit",
    [
        ("core.core.pipe.mvm.pair12.mul3.o_TRELLIS_FF_Q_7", "pipe.mvm.pair"),
        (r"core.messages.x\[3\]_LUT4_Z/D", "messages.x"),
        ("core.core.wide.bank0.column3", "wide.bank.column"),
    ],
)
def test_units(cell, unit):
    assert unit_of(cell) == unit
