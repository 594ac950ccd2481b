"""Functions of one element, alone, at every scale: relative error of the root mean square, and no flags."""

import numpy as np
import pytest

from concord.compiler.ir.table_specs import InputSpan
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.decomposition import RULES, covers_all, one_table_suffices
from concord.compiler.model import compile_graph, in_one_piece
from concord.frontend import import_model
from concord.functions import FUNCTIONS as CATALOGUE
from concord.graph.execute import run
from concord.graph.passes import functions as joining
from concord.host import connect
from concord.networks.calibrated import choose_formats, emulate
from concord.spec.presets import ECP5_85F, TINY
from concord_bench.functions import SIGMAS, inputs
from support.expressions import network, tensor
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, unary

WIDTH = 64


def functions():
    """Models of one function by name."""
    plain = [
        "LeakyRelu", "HardSigmoid", "HardSwish", "Abs", "Sigmoid", "Tanh", "Erf", "Elu", "Selu", "Softplus", "Softsign",
        "Mish", "Exp", "Sqrt", "Log", "Reciprocal",
    ]  # fmt: skip
    found = {name: unary(name, opset=18, shape=(1, WIDTH)) for name in plain}
    found["Celu"] = unary("Celu", opset=18, shape=(1, WIDTH), alpha=2.0)
    found["Gelu"] = unary("Gelu", opset=20, shape=(1, WIDTH))
    found["Gelu of tanh"] = unary("Gelu", opset=20, shape=(1, WIDTH), approximate="tanh")
    x = given(1, WIDTH)
    found["Swish"] = model_of(op.Mul(x, op.Sigmoid(x)))
    slope = np.linspace(-0.5, 0.9, WIDTH).astype(np.float32)
    found["PRelu"] = unary("PRelu", shape=(1, WIDTH), constants={"slope": slope})
    limits = {"low": np.float32(0), "high": np.float32(6)}
    found["Clip"] = unary("Clip", shape=(1, WIDTH), constants=limits)
    return found


FUNCTIONS = functions()


def error(graph, compiled, x):
    """Relative error on the emulator, which raises no flag."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        got = compiled.run(device, {"x": x})["y"]
        assert device.flags() == {}
    want = run(graph, {"x": x})["y"]
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_samples(name):
    graph = import_model(FUNCTIONS[name])
    compiled = compile_graph(graph, ECP5_85F)
    assert compiled.assumptions == ()
    limit = 0.01 if name in ("Sqrt", "Log", "Reciprocal") else 0.003
    for sigma in SIGMAS:
        assert error(graph, compiled, inputs(name.lower(), sigma)) <= limit, sigma


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.1, 1.0, 1000.0])
@pytest.mark.parametrize("name", ["Tanh", "Gelu", "Elu", "Exp", "Sigmoid", "Sqrt", "Log", "Reciprocal"])
def test_with_samples(name, sigma):
    graph, x = import_model(FUNCTIONS[name]), inputs(name.lower(), sigma)
    assert error(graph, choose_formats(graph, ECP5_85F, {"x": x[:16]}).chosen.compiled, x[:16]) <= 0.005


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"Sqrt", "Log", "Reciprocal"}))
def test_small_tables(name):
    """A quarter of the entries is enough, but for powers."""
    graph = import_model(FUNCTIONS[name])
    compiled = compile_graph(graph, TINY)
    assert max(error(graph, compiled, inputs(name.lower(), sigma)) for sigma in (0.1, 10.0)) <= 0.01


@pytest.mark.parametrize(("name", "attrs"), [("Elu", {"alpha": 2.5}), ("Celu", {"alpha": 0.3}), ("Selu", {})])
def test_the_largest_numbers_and_slopes(name, attrs):
    """Nothing overflows on the way, and constant ends are exact."""
    proto = unary(name, opset=18, shape=(1, WIDTH), **attrs)
    graph, x = agrees(proto), np.resize([-65504.0, -9000, -100, -20, 100, 9000, 60000], (2, WIDTH))
    assert error(graph, compile_graph(graph, ECP5_85F), x) <= 2.0**-10
    small = np.resize(np.linspace(-0.02, 0.02, 20), (2, WIDTH))
    assert error(graph, compile_graph(graph, ECP5_85F), small) <= 0.01


def test_far_away_a_gate_is_zero_or_one():
    x = np.resize([-60000.0, -500, -9, 9, 500, 60000], (1, WIDTH))
    for name in ("Gelu", "Gelu of tanh", "Mish"):
        compiled = compile_graph(import_model(FUNCTIONS[name]), ECP5_85F)
        np.testing.assert_array_equal(emulate(compiled, {"x": x})["y"], np.maximum(x, 0))


def test_what_becomes_of_a_function_is_the_same_function():
    """The nodes in its place, in double precision."""
    x = np.random.default_rng(3).normal(0, 3, (16, WIDTH))
    for name in ("Tanh", "Erf", "Elu", "Celu", "Selu", "Softplus", "Softsign", "Mish", "Gelu", "Gelu of tanh"):
        graph = import_model(FUNCTIONS[name])
        made = compile_graph(graph, ECP5_85F).graph
        assert len(made.nodes) > 1
        wanted, got = (run(one, {"x": x})["y"] for one in (graph, made))
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, atol=4e-4 * np.abs(wanted).max())


def test_those_that_cover_all_inputs_stay_alone():
    single = {name for names in RULES if len(names) == 1 for name in names}
    assert single == {name for name, record in CATALOGUE.items() if record.decomposed} and joining.GATE in RULES


def test_a_table_that_is_good_enough_for_the_samples_saves_a_chain():
    graph = import_model(FUNCTIONS["Tanh"])
    values = {scale: {graph.inputs[0]: inputs("tanh", scale)} for scale in (0.1, 2.0)}
    assert one_table_suffices(graph, values[0.1], ECP5_85F) == ()
    (name,) = one_table_suffices(graph, values[2.0], ECP5_85F)
    formats = Formats(plain=(name,))
    assert not covers_all(graph.nodes[0], formats) and covers_all(graph.nodes[0], Formats())
    assert Formats.from_dict(formats.to_dict()) == formats
    chosen = choose_formats(graph, ECP5_85F, values[2.0]).chosen.compiled
    assert chosen.package.formats.plain == (name,) and len(chosen.lowered.layers) == 1
    assert len(compile_graph(graph, ECP5_85F).lowered.layers) == 2


def test_a_network_without_room_for_it_has_one_table():
    """The program has a chain less, and what the table covers is said."""
    graph = import_model(FUNCTIONS["Sqrt"])
    most = len(compile_graph(graph, ECP5_85F).image.program)
    compiled = compile_graph(graph, ECP5_85F.replace(program_depth=most - 1))
    assert compiled.package.formats.plain == (graph.nodes[0].name,) and len(compiled.lowered.layers) == 1
    assert [one.reason for one in compiled.assumptions] == [
        "default for floats, as there are no samples",
        "from the inputs",
    ]


def test_tables_of_one_function_are_one_table():
    gelus = op.Gelu(op.Mul(op.Gelu(given(1, WIDTH)), 3.0))
    compiled = compile_graph(import_model(model_of(gelus, opset=20)), ECP5_85F)
    specs = {spec for layer in compiled.lowered.layers for spec in layer.table_specs}
    assert [type(domain) for _, domain in specs] == [InputSpan]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "tanh"])
def test_in_row_tiles_they_have_the_same_bits(name):
    rng = np.random.default_rng(1)
    bent = tensor(1, 2, 12, 8).conv(rng.normal(0, 0.3, (4, 2, 3, 3)), pads=1).function(name)
    graph = network(bent.conv(rng.normal(0, 0.2, (4, 4, 3, 3)), pads=1).reduce("Mean", 2, 3, keep=False))
    x = {"x": rng.normal(0, 1, (2, 2, 12, 8))}
    small = TINY.replace(narrow_depth=128, wide_depth=128, matrix_depth=512, program_depth=512)
    tiled = compile_graph(graph, small)
    whole = in_one_piece(tiled)
    assert tiled.row_tiling and not whole.row_tiling and not tiled.package.formats.plain
    np.testing.assert_array_equal(emulate(tiled, x)["y"], emulate(whole, x)["y"])


@pytest.mark.parametrize("which", [0, 1, None])
def test_functions_with_inputs_of_their_own_are_not_joined(which):
    graph = network(tensor(1, 4).function("relu").function("relu"))
    if which is not None:
        graph.nodes[which] = graph.nodes[which].with_attrs(domain=InputSpan(-4, 4, scale=0))
    joining.run(graph)
    assert len(graph.nodes) == (1 if which is None else 2)
