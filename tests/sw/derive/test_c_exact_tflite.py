"""TensorFlow Lite files in C on codes: every tensor has the codes of the integer network."""

from dataclasses import replace

import numpy as np
import pytest

from concord.frontend.codes import load
from concord.prove.exact import random_codes
from support.c_compilers import every_level
from support.commands import run
from support.derived_backends import needs_c
from support.frameworks import missing, needs
from support.trained import needs_data
from sw.derive.test_c_exact import compare

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from concord.frontend.codes.tflite.importer import OPERATORS
from concord.frontend.tflite_rewrites import read_network
from support.tflite_draws import Draw, every_operation, lowered_operators, tables_and_moves
from sw.frontend.codes.test_tflite_networks import NETWORKS, contents, samples

pytestmark = [needs("tflite"), needs_c]

NETS = [every_operation, tables_and_moves]
DTYPES = [np.int8, np.uint8, np.int16]


def with_every_tensor(network):
    """The graph with every tensor that is not constant as an output."""
    constant = {operation.output for operation in network.graph.operations if not operation.inputs}
    return replace(network.graph, outputs={name: name for name in network.graph.schemes if name not in constant})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("make", NETS)
def test_every_operation(seed, dtype, make, tmp_path):
    data, codes = make(seed, dtype)
    network = load(data, compose=False)
    ((port, tensor),) = network.graph.inputs.items()
    rng = np.random.default_rng(seed)
    x = np.concatenate([codes, random_codes(network.graph.scheme(tensor), (15, *codes.shape[1:]), rng)])
    assert compare(with_every_tensor(network), {port: x}, tmp_path) > 1000


@pytest.mark.parametrize(
    "seed, dtype", [(0, np.int8), *(pytest.param(1, dtype, marks=pytest.mark.slow) for dtype in DTYPES)]
)
def test_operators_that_become_several(seed, dtype, tmp_path):
    test_every_operation(seed, dtype, lowered_operators, tmp_path)


def test_no_operator_is_left_out():
    """The networks here have every operator that there is, but for ELU, a table, of which there is no reference."""
    operators = {
        operator.name for make in (*NETS, lowered_operators) for operator in read_network(make(0, np.int8)[0]).operators
    }
    assert {*OPERATORS} - operators == {"ELU"}


@needs_data
@every_level
@pytest.mark.parametrize("name", NETWORKS)
def test_official_files(name, command, options, tmp_path):
    x, _ = samples(name, 3)
    network = load(contents(name))
    ((port, tensor),) = network.graph.inputs.items()
    x = np.concatenate([x, random_codes(network.graph.scheme(tensor), x.shape, np.random.default_rng(0))])
    count = compare(with_every_tensor(network), {port: x}, tmp_path, command, options)
    print(f"{name}: {count} codes compared, 0 different")
    assert count > 10000


def test_the_commands(tmp_path):
    """They take the file, and its folder; another network is refused with the operator that is in the way."""
    (tmp_path / "net.tflite").write_bytes(every_operation(0, np.int8)[0])
    assert run("compile", tmp_path / "net.tflite", "--exact", "-o", tmp_path / "folder")[0] == 0
    for net in ("net.tflite", "folder"):
        code, output = run("derive", tmp_path / net, "--to", "c", "--exact", "-o", tmp_path / "net.c")
        assert code == 0 and "bytes of RAM" in output and "fixed_point_product" in (tmp_path / "net.c").read_text()
        code, output = run("prove", tmp_path / net, "--with", "c", "--exact", "--samples", 3)
        assert code == 0 and "3 samples, 0 of them" in output and " codes compared, 0 different" in output
    draw = Draw(0, np.int8)
    x = draw.tensor(1, 4)
    (tmp_path / "sine.tflite").write_bytes(draw.net.bytes([x], [draw.net.op("SIN", [x], draw.tensor(1, 4))]))
    code, output = run("derive", tmp_path / "sine.tflite", "--to", "c", "--exact", "-o", tmp_path / "sine.c")
    assert code == 1 and "SIN 'tensor1': is not an operator on codes" in output
