"""The how-to pages: their code works as it stands there, and they name the files that have to change."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from concord.cli import main
from concord.derive.backends import registry
from concord.spec import boards
from concord.spec.presets import PRESETS
from concord_boards import Board
from concord_rtl.flow.board_top import BoardTop, divisor_of
from concord_rtl.flow.clocking import clock_of
from flow_design import Echo
from small_examples import SMALL

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "howto"


def code(page):
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def names(monkeypatch):
    """Names that blocks are run with; entries they make go away again."""
    monkeypatch.setattr(boards, "BOARD_SPECS", dict(boards.BOARD_SPECS))
    monkeypatch.setattr(registry, "BACKENDS", registry.BACKENDS.copy())
    return {**vars(boards), **vars(registry)}


def test_the_board_of_the_page(names, monkeypatch):
    entry, description = code("board.md")
    exec(entry, names)
    spec = names["BOARD_SPECS"]["icesugar"]
    monkeypatch.setitem(boards.BOARD_PRESETS, "icesugar", spec.preset)
    exec(description, names)
    board = names["ICESUGAR"]
    assert isinstance(board, Board) and board.name == "icesugar" and board.preset in PRESETS
    platform = board.platform()
    assert platform.lookup(board.oscillator).clock.frequency == board.oscillator_hz
    hz, _ = clock_of(board, spec.clock_hz)
    assert divisor_of(hz, spec.baud) == round(hz / spec.baud)
    pins = board.platform().prepare(BoardTop(Echo([]), board, clock_hz=hz, baud=spec.baud), "npu").files["npu.pcf"]
    for resource, number in [*board.leds, ("uart", 0)]:
        assert f"set_io {resource}_{number}__" in pins


def test_the_back_end_of_the_page(names, tmp_path, monkeypatch):
    writer, entry = code("backend.md")
    exec(writer, names)
    exec(entry, names)
    image = tmp_path / "x.image"
    SMALL["conv1x1"]().image().save(image)
    result = CliRunner().invoke(main, ["derive", str(image), "-o", str(tmp_path / "x.dot")])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "x.dot").read_text()
    assert text.startswith("digraph model {\n") and '[label="MatMul"];' in text and '[label="Relu"];' in text


def test_the_files_of_the_instruction_that_is_copied():
    """Every file in which ReLU is computed is one that the page sends people to."""
    relu = re.compile(r"\b(V_RELU|(Act|Take)\.RELU|(half|kernels)\.relu|ir\.Relu|HalfRelu|half_relu)\b")
    sources = [path for folder in ("sw", "hw") for path in (ROOT / folder).rglob("*.py")]
    places = [str(path.relative_to(ROOT)) for path in sources if relu.search(path.read_text())]
    page = (PAGES / "instruction.md").read_text()
    assert [place for place in places if f"`{place}`" not in page] == []
    assert len(places) > 10
