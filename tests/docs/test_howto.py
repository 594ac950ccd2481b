"""The how-to pages: their code works as it stands there, and they name the files that have to change."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.lowering import pointwise as lowerings
from concord.compiler.lowering import rules
from concord.compiler.model import compile_graph
from concord.derive.backends import registry
from concord.frontend import import_model, importer, pointwise
from concord.functions import Function, catalogue
from concord.graph.ops import OPS, Operator, elementwise
from concord.host import connect
from concord.spec import boards
from concord.spec.config import SPEC_VERSION
from concord.spec.presets import ECP5_85F, PRESETS
from concord_boards import Board
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.clocking import clock_of
from concord_rtl.flow.ports.uart import divisor_of
from support.derived_backends import needs_torch
from support.flow_design import Echo
from support.onnx_models import unary
from support.small_examples import SMALL

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
    exec(description, names)
    board = names["ICESUGAR"]
    assert isinstance(board, Board) and board.name == "icesugar" and board.preset in PRESETS
    platform = board.platform()
    assert platform.lookup(board.oscillator).clock.frequency == board.oscillator_hz
    hz, _ = clock_of(board, spec.clock_hz)
    assert divisor_of(hz, spec.link().baud) == round(hz / spec.link().baud)
    pins = board.platform().prepare(BoardTop(Echo([]), board, clock_hz=hz, link=spec.link()), "npu").files["npu.pcf"]
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
    assert text.startswith("digraph model {\n") and '[label="MatMul"];' in text and '[label="Elementwise"];' in text


@pytest.fixture(scope="module")
def with_instruction(tmp_path_factory):
    """A copy of the sources in which the page of instructions has been followed."""
    folder = tmp_path_factory.mktemp("followed")
    for part in ("sw", "hw"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for path, old, new in changes("instruction.md"):
        text = (folder / path).read_text()
        assert text.count(old) == 1, f"{path} must have these lines once:\n{old}"
        (folder / path).write_text(text.replace(old, new))
    config = folder / "sw" / "concord" / "spec" / "config.py"
    config.write_text(
        config.read_text().replace(f"SPEC_VERSION = {SPEC_VERSION}", f"SPEC_VERSION = {SPEC_VERSION + 1}")
    )
    return folder


def changes(page):
    """Path, old lines and new lines of every change of a page; three pluses and a path begin one."""
    blocks = re.findall(r"^```diff\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    for change in re.split(r"^\+\+\+ ", "".join(blocks), flags=re.MULTILINE)[1:]:
        path, *lines = change.splitlines()
        old, new = ("".join(line[1:] + "\n" for line in lines if line[:1] != sign) for sign in "+-")
        yield path, old, new


def test_the_files_of_the_instruction():
    """The page changes the files of its table, and no more than 12 of the product."""
    files = re.findall(r"^\| `([\w/]+\.py)` \|", (PAGES / "instruction.md").read_text(), re.MULTILINE)
    assert {path for path, _, _ in changes("instruction.md")} | {"sw/concord/spec/config.py"} == set(files)
    assert len(files) == len(set(files)) <= 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "emulator",
        "on_numpy",
        "on_onnxruntime",
        pytest.param("on_torch", marks=needs_torch),
        "rtl",
        pytest.param("rtl_serial", marks=pytest.mark.deep),
    ],
)
def test_the_instruction_of_the_page(with_instruction, part, tmp_path):
    """Everything that executes programs executes it."""
    path = [with_instruction / "sw", with_instruction / "hw", ROOT / "tests"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-m", "support.followed_instruction", part, str(tmp_path)]
    result = subprocess.run(command, env=environment, cwd=with_instruction, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def added(page, module, table, key, monkeypatch):
    """Run the block of a page that makes an entry of a table in a module, and return the entry; it goes away again."""
    (block,) = (block for block in code(page) if re.search(rf'^{table}\["{key}"\] = ', block, re.MULTILINE))
    names = {"np": np, **vars(module)}
    monkeypatch.setitem(names[table], key, None)
    exec(block, names)
    return names[table][key]


def ran(proto, x):
    """Results of a model with one input on the emulator."""
    compiled = compile_graph(import_model(proto), ECP5_85F)
    with connect("emulator", ECP5_85F) as device:
        device.load(compiled.image)
        return compiled.run(device, {"x": x})["y"]


def test_the_function_of_the_page():
    """The record is that of the catalogue, and the page names every field."""
    (block,) = code("function.md")
    assert textwrap.indent(block.rstrip(), "    ") + ",\n" in Path(catalogue.__file__).read_text()
    page = (PAGES / "function.md").read_text()
    assert [field.name for field in fields(Function) if f"`{field.name}`" not in page] == ["name"]
    x = np.linspace(-8, 8, 2 * 60).reshape(2, 60)
    want = x / (1 + np.abs(x))
    y = ran(unary("Softsign", shape=(1, 60)), x)
    assert np.sqrt(np.mean((y - want) ** 2) / np.mean(want**2)) < 0.01


def test_the_operator_of_the_page_that_is_made_of_others(monkeypatch):
    monkeypatch.setitem(importer.HANDLERS, "Shrink", added("operator.md", pointwise, "HANDLERS", "Shrink", monkeypatch))
    x = np.random.default_rng(1).normal(0, 1, (3, 4, 5)).astype(np.float16)
    proto = unary("Shrink", shape=(1, 4, 5), lambd=0.25, bias=0.25)
    assert ran(proto, x) == pytest.approx(np.sign(x) * np.maximum(np.abs(x) - 0.25, 0), abs=0.002)


def test_the_operator_of_the_page_in_the_graph(monkeypatch):
    record = added("operator.md", elementwise, "ELEMENTWISE_OPS", "Negate", monkeypatch)
    monkeypatch.setitem(OPS, "Negate", record)
    (block,) = (block for block in code("operator.md") if block.startswith("def negate("))
    exec(block, names := {"np": np, **vars(lowerings)})
    monkeypatch.setattr(lowerings, "negate", names["negate"], raising=False)
    added("operator.md", rules, "HANDLERS", "Negate", monkeypatch)
    monkeypatch.setitem(
        importer.HANDLERS, "Neg", lambda ctx, node: ctx.emit(node, "Negate", [ctx.tensor(node.input(0))])
    )
    x = np.random.default_rng(1).normal(0, 1, (3, 60)).astype(np.float16)
    assert np.array_equal(ran(unary("Neg", shape=(1, 60)), x), -x)


def test_the_page_of_operators_names_every_field_and_every_table():
    page = (PAGES / "operator.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    tables = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([\w/]+\.py)` \|", page, re.MULTILINE)
    assert len(tables) == 6
    entries = [(name, path) for names, path in tables for name in re.findall(r"\w+", names)]
    for name, path in entries:
        assert re.search(rf"^ *{name}\b.* = ", (ROOT / path).read_text(), re.MULTILINE), f"{name} in {path}"
    assert {field.name for field in fields(Operator)} == set(named) - {name for name, _ in entries}
