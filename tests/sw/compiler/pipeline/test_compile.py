"""The passes of the compiler: what the command shows of them, writes and checks."""

import re

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING, TABLES
from concord.frontend.importer import IMPORT
from concord.pipeline.instruments import Timings
from concord.pipeline.manager import instrumented
from concord.spec.presets import PRESETS, TINY
from support.compiled_nets import perceptron
from support.onnx_models import floats, model, node


def written(path, hidden):
    """A perceptron in a file."""
    constants = {"w": floats(8, hidden), "v": floats(hidden, 4)}
    nodes = [node("Gemm", ["x", "w"], ["h"], name="first"), node("Relu", ["h"], ["r"]),
             node("Gemm", ["r", "v"], ["y"], name="second")]  # fmt: skip
    path.write_bytes(model(nodes, {"x": (1, 8)}, ["y"], constants).SerializeToString())
    return path


@pytest.fixture
def net(tmp_path):
    return written(tmp_path / "net.onnx", 6)


def command(*arguments):
    result = CliRunner().invoke(main, ["compile", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def names(*pipelines):
    return [one.name for pipeline in pipelines for one in pipeline.passes]


def test_every_pass_is_observed_once():
    timings = Timings()
    with instrumented(timings):
        compile_graph(perceptron(8, 8, 4), TINY)
    assert [row.name for row in timings.rows] == names(PREPARE, TABLES, LOWER, ONE_PIECE)
    sizes = {row.name: (row.before, row.after) for row in timings.rows}
    assert sizes["lowering"] == ("3 nodes", "2 layers")
    assert sizes["emission"][0] == "0 instructions" and sizes["emission"][1] != sizes["emission"][0]


@pytest.mark.slow
def test_the_command_shows_passes_and_strategies(net, tmp_path):
    quiet, text = command(net, "-o", tmp_path / "a"), command(net, "-o", tmp_path / "b", "-v")
    assert "Passes" not in quiet and "Passes" in text and "Strategies" in text
    shown = re.findall(r"^ {3}(\S.*?) +\d+\.\d ", text, re.M)
    assert shown == names(IMPORT, PREPARE, TABLES, LOWER, ONE_PIECE)
    assert re.search(r"^ all +unfolded +[\d ]+ chosen", text, re.M)
    assert "not tried: an earlier one fits" in text


@pytest.mark.slow
def test_the_command_writes_what_passes_make(net, tmp_path):
    command(net, "-o", tmp_path / "net", "--dump", tmp_path / "dump")
    files = sorted(path.name for path in (tmp_path / "dump").glob("*-*.txt"))
    expected = [name.replace(" ", "-") for name in names(IMPORT, PREPARE, TABLES, LOWER, ONE_PIECE)]
    assert files == [f"{index:03}-{name}.txt" for index, name in enumerate(expected)]
    text = {name[4:-4]: (tmp_path / "dump" / name).read_text() for name in files}
    assert "= Dense(x)" in text["import"]
    assert re.search(r"layer 0 first: first, \S.*\n(  .*\n)*  v_relu\n", text["lowering"])
    assert "not placed" in text["memory-planning"] and "not placed" not in text["allocation"]
    assert "mv_mul" in text["emission"] and "matrix" in text["image"]
    assert "one piece, window unfolded: chosen (cycles " in (tmp_path / "dump" / "remarks.txt").read_text()


@pytest.mark.slow
def test_candidates_of_a_calibration_are_not_shown(net, tmp_path):
    np.savez(tmp_path / "x.npz", x=floats(4, 8))
    text = command(net, "-o", tmp_path / "net", "-v", "--calibrate", tmp_path / "x.npz")
    assert len(re.findall("^ {3}emission ", text, re.M)) == 1


def test_what_does_not_fit_shows_why_every_strategy_was_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", TINY.replace(matrix_depth=16))
    net = written(tmp_path / "net.onnx", 64)
    arguments = ["compile", str(net), "-v", "--dump", str(tmp_path / "dump"), "--preset", "tiny"]
    result = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "net")])
    assert result.exit_code == 1
    remarks = (tmp_path / "dump" / "remarks.txt").read_text().splitlines()
    assert len(remarks) == 6 and sum("refused, " in line for line in remarks) == 2
    assert re.search(r"^ all +unfolded +[\d ]+ refused: does not fit into tiny", result.output, re.M)
    (file,) = (tmp_path / "dump").glob("*-allocation.txt")
    assert "# refused: does not fit" in file.read_text()


def test_both_ways_to_the_image_make_the_same_values():
    def made(pipeline):
        return {name for one in pipeline.passes for name in one.values}

    assert made(ONE_PIECE) == made(ROW_TILING)
