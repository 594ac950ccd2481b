"""The page of the boards: its generated tables, and the pins that users have to wire."""

import re
from pathlib import Path

import pytest

from concord.spec.boards import BOARD_SPECS
from concord_bench import boards
from concord_boards import board_named
from support.commands import run
from support.trained import DATA, needs_data

PAGE = Path(__file__).parents[2] / "docs" / "boards.md"


def test_the_list_is_fresh():
    text = PAGE.read_text()
    assert boards.filled(text, {"list": boards.board_table()}) == text, (
        "python -m concord_bench.boards --docs docs/boards.md"
    )
    for board, spec in BOARD_SPECS.items():
        (row,) = re.findall(rf"^\| `{board}` \| (?:LFE5U|iCE40).*", text[: text.index("## Pins")], re.MULTILINE)
        assert all(f"`{preset}`" in row for preset in spec.presets)
    assert "| `orangecrab-25f` | LFE5U-25F, CSFBGA285, grade 8 |  | 48 MHz | `ecp5-25f` | usb (" in text


def test_every_pin_of_the_page_is_that_of_the_board():
    text = PAGE.read_text()
    seen = set()
    for names, cells, clock in re.findall(
        r"^\| ((?:`[\w-]+`, )+)[\w ]+ \|((?: [^|]+\(\w+\) \|){4}) (\d+) MHz \|$", text, re.MULTILINE
    ):
        for name in re.findall(r"`([\w-]+)`", names):
            board = board_named(name)
            at = {place: pin for connector in board.platform.connectors for place, pin in connector}
            pins = {sub.name: sub.ios[0].map_names(at, sub)[0] for sub in board.spi.ios}
            assert re.findall(r"\((\w+)\)", cells) == [pins[signal] for signal in ("sck", "csn", "copi", "cipo")]
            assert int(clock) * 1_000_000 == BOARD_SPECS[name].link("spi").clock_hz
            seen.add(name)
    assert seen == set(BOARD_SPECS)


def test_tables_that_are_not_given_stay():
    text = "a\n<!-- boards: list -->\nold\n<!-- end -->\n<!-- boards: rates -->\nold\n<!-- end -->\n"
    new = boards.filled(text, {"list": "| x |\n"})
    assert new == text.replace("list -->\nold\n", "list -->\n\n| x |\n\n", 1)
    assert boards.filled(new, {"list": "| x |\n"}) == new


def test_without_networks_there_are_no_rates(monkeypatch, tmp_path):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    page = tmp_path / "boards.md"
    page.write_text(PAGE.read_text())
    code, output = run("--docs", page, command=boards.main)
    assert code == 0 and "no rates" in output and page.read_text() == PAGE.read_text()
    code, output = run("--docs", page, "--only", "digits_cnn", command=boards.main)
    assert code == 2 and "--docs must be given without --only" in output


@needs_data
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("icebreaker", "colorlight-i5", "icesugar-pro"), marks=pytest.mark.slow, id="small"),
        pytest.param(tuple(BOARD_SPECS), marks=pytest.mark.deep, id="all"),
    ],
)
def test_rates_of_every_board_that_holds_a_network(names, monkeypatch):
    monkeypatch.setattr(boards, "BOARD_SPECS", {name: BOARD_SPECS[name] for name in names})
    table = boards.rate_table(["digits_cnn"], DATA)
    assert {name for line in table.splitlines() for name in re.findall(r"`([\w-]+)`", line)} >= set(names)
    (row,) = [line for line in table.splitlines() if "`icebreaker`" in line]
    network, _, preset, uart, usb, spi, core = (cell.strip() for cell in row.strip("|").split("|"))
    assert (network, preset, usb) == ("digits_cnn", "`up5k`", "")
    assert 0 < float(uart) < float(spi) < float(core)


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_the_page_says_something_of_every_board(name):
    words = {"ulx3s": "ULX3S", "icebreaker": "iCEBreaker", "orangecrab": "OrangeCrab", "icepi": "Icepi Zero",
             "colorlight": "Colorlight i5", "icesugar": "iCESugar-Pro"}  # fmt: skip
    notes = PAGE.read_text().split("## Notes")[1]
    assert f"* **{words[name.split('-')[0]]}" in notes
