"""Tables whose steps are large for what functions read: they are told, others are not."""

import numpy as np
import pytest

from concord.compiler.ir.table_segments import divided, sample
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.ir import Node
from concord.networks.calibrated import calibration_of, emulate
from concord.networks.coarse_tables import COARSE, coarse_tables
from concord.networks.expected_error import with_expected_error
from concord.spec.presets import ECP5_85F, TINY
from support.expressions import graph_of


def function(*names, width=4):
    functions = tuple((name, {}) for name in names)
    return graph_of([Node("Function", "f", ("x",), ("y",), {"functions": functions})], x=(1, width))


def compiled_for(graph, x, config=TINY):
    return calibration_of(graph, {"x": x}).measure("with samples", config, Formats()).compiled


def found_on(graph, x, config=TINY, on=None):
    on = x if on is None else on
    return list(coarse_tables(compiled_for(graph, x, config), execute.run(graph, {"x": on}, keep="all")))


def quiet_and_loud(quiet, count=16, width=4):
    """Samples of numbers about 1, of which the first few are about 1/1000."""
    x = np.random.default_rng(2).uniform(0.5, 1.0, (count, width))
    x[:quiet] /= 1000
    return x


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "reciprocal"])
def test_a_few_samples_in_the_first_cells(name):
    """Of 16 samples 3, whose part of the error of all is small."""
    graph, x = function(name), quiet_and_loud(3)
    (found,) = found_on(graph, x)
    assert (found.layer, found.functions, found.count, found.samples) == ("f", name, 3, 16)
    assert 0.0005 < found.size < 0.001 and found.step == 2.0**-7
    assert found.text.startswith(f"f: the table of {name} is coarse near zero: numbers such as ")


def test_it_is_what_the_table_does():
    """Samples that are told, and no others, err by more than a twentieth on the emulator."""
    x = np.random.default_rng(3).uniform(0.5, 1.0, (64, 1)) * np.exp2(-np.arange(64) / 6)[:, None]
    graph = function("sqrt", width=1)
    compiled = compiled_for(graph, x)
    error = np.abs(emulate(compiled, {"x": x})["y"] / np.sqrt(x) - 1).ravel()
    (found,) = found_on(graph, x)
    assert found.count == (error > COARSE).sum() and 8 < found.count < 64


@pytest.mark.parametrize("quiet", [0, 1])
def test_one_sample_of_sixteen_is_not_told(quiet):
    assert found_on(function("sqrt"), quiet_and_loud(quiet)) == []


def test_small_numbers_among_large_ones_of_a_sample_are_not_told():
    """Beside the others, their error is nothing."""
    x = np.random.default_rng(2).uniform(0.5, 1.0, (16, 8))
    x[:, 0] /= 1000
    assert found_on(function("sqrt", width=8), x) == []


@pytest.mark.parametrize("name", ["sigmoid", "exp", "tanh"])
def test_other_functions_are_not_looked_at(name):
    assert found_on(function(name), quiet_and_loud(8)) == []


def test_several_tables_are_looked_at_together():
    """They have a step for small numbers, and one for large ones."""
    graph, x = function("sqrt"), quiet_and_loud(3)
    segments = divided((("sqrt", ()),), sample(x), 2, 1024)
    formats = Formats(table_segments={"f": segments})
    compiled = calibration_of(graph, {"x": x}).measure("two tables", ECP5_85F, formats).compiled
    assert list(coarse_tables(compiled, execute.run(compiled.graph, {"x": x}, keep="all"))) == []
    values = execute.run(compiled.graph, {"x": x / 200}, keep="all")
    (found,) = coarse_tables(compiled, values)
    assert found.functions == "sqrt" and found.step == segments[0].step


def test_a_logarithm_about_zero_is_small_beside_others():
    """The logarithm of 1.001 is, and an error of that matters as much as one of any other."""
    x = np.random.default_rng(4).uniform(1, 2, (16, 4))
    x[:4] = 1.001
    assert found_on(function("log"), x) == []


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_line_is_among_the_warnings(calibrated):
    graph, x = function("sqrt", "sigmoid"), quiet_and_loud(3)
    if calibrated:
        graph = function("sqrt")
    compiled = compiled_for(graph, x) if calibrated else compile_graph(graph, TINY)
    package = with_expected_error(graph, compiled, {"x": x} if calibrated else None).package
    lines = [line for line in package.warnings if "coarse near zero" in line]
    assert len(lines) == calibrated and all("samples without the rare large numbers" in line for line in lines)
