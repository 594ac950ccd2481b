"""States that the NPU keeps: the results of a sequence are those of the network that carries them by hand."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import concord
from concord.compiler.emission.arranging import arranged
from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering import states as lowering
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.golden.codes import Codes
from concord.graph import execute
from concord.graph.equalised import ChannelScale
from concord.graph.ir import Node
from concord.graph.states import states_of, with_state_inputs, with_states
from concord.host import connect
from concord.image import Image, ImageError, Phase
from concord.networks.folder import IMAGE, load_package, recompile, save_package
from concord.program.allocator import CapacityError
from concord_bench.language_model.decoder import Sizes, random_weights, step_model
from support.expressions import ROOMY
from support.rtl_configs import WRITABLE
from support.stateful_nets import (
    EXACT,
    ROUNDED,
    before,
    cell_model,
    decoder,
    delays,
    integrator,
    line_model,
    moving_line_model,
    unequal,
    window,
)

ALL = EXACT | ROUNDED


def sequence(graph, count, seed=0, whole=True):
    """Numbers for the inputs that are no states."""
    rng = np.random.default_rng(seed)
    shapes = {name: (count, *graph.sample_shape(name)) for name in graph.inputs if name not in graph.states}
    return {
        name: rng.integers(-2, 3, shape).astype(float) if whole else rng.normal(size=shape)
        for name, shape in shapes.items()
    }


def in_double_precision(graph, inputs):
    """Outputs run by run, states carried."""
    inputs = with_state_inputs(graph, inputs)
    return execute.run(graph, inputs)


def by_hand(compiled, inputs, config=ROOMY):
    """Outputs of the NPU run by run, states carried by the host."""
    package, states = compiled.package.carried, compiled.package.arrangement.state_results
    state = {name: np.zeros((1, *package.input_shapes[name])) for name in states}
    outputs = []
    with connect("emulator", config) as device:
        device.load(package.image)
        for k in range(len(next(iter(inputs.values())))):
            results = package.run(device, {name: x[k : k + 1] for name, x in inputs.items()} | state)
            state = {name: results[result] for name, result in states.items()}
            outputs.append(results)
    return {name: np.concatenate([one[name] for one in outputs]) for name in compiled.package.output_shapes}


def on_device(compiled, inputs, config=ROOMY, device=None):
    if device is not None:
        return compiled.run(device, inputs)
    with connect("emulator", config) as opened:
        opened.load(compiled.image)
        return compiled.run(opened, inputs)


def same(found, want):
    assert set(found) == set(want)
    for name, values in found.items():
        np.testing.assert_array_equal(values, want[name], name)


@pytest.mark.parametrize("name", EXACT)
def test_sequences_are_exact(name):
    graph = EXACT[name]()
    inputs = sequence(graph, 9)
    want = in_double_precision(graph, inputs)
    got = on_device(compile_graph(graph, ROOMY), inputs)
    assert set(got) == set(graph.outputs) - set(graph.states.values())
    for output, values in got.items():
        np.testing.assert_array_equal(values.reshape(want[output].shape), want[output], output)


@pytest.mark.parametrize("name", ROUNDED)
def test_sequences_are_close(name):
    graph = ROUNDED[name]()
    inputs = sequence(graph, 12, whole=False)
    want = in_double_precision(graph, inputs)["y"]
    got = on_device(compile_graph(graph, ROOMY), inputs)["y"].reshape(want.shape)
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_the_host_that_carries_states_has_the_same_bits(name, static):
    """Exponents of its inputs are dynamic, those that the NPU writes may be static."""
    graph = ALL[name]()
    formats = Formats(exponents=dict.fromkeys((*graph.states, *graph.states.values()), -6)) if static else Formats()
    compiled, inputs = compile_graph(graph, ROOMY, formats), sequence(graph, 7, 1, whole=False)
    assert not compiled.image.carried.states and compiled.image.states
    same(on_device(compiled, inputs), by_hand(compiled, inputs))


@pytest.mark.parametrize("tokens", [6, 24])
def test_with_a_matrix_memory_that_programs_write(tokens):
    """With many tokens, keys are what the product with the query reads, where they are kept."""
    graph = decoder(tokens)
    compiled, inputs = compile_graph(graph, WRITABLE), sequence(graph, 7, 1, whole=False)
    same(on_device(compiled, inputs, WRITABLE), by_hand(compiled, inputs, WRITABLE))
    read = [layer.source.storage.root.name for layer in compiled.lowered.layers if layer.rows is not None]
    assert ("ks" in read) == (tokens > 6)
    want = in_double_precision(graph, inputs)["y"]
    got = on_device(compiled, inputs, WRITABLE)["y"].reshape(want.shape)
    assert np.abs(got - want).max() < 0.12 * np.abs(want).max()


def test_a_window_moves_in_its_place():
    """A chain moves all vectors but one, and another writes that; an order in which one would be lost takes a copy."""
    first, last = (compile_graph(window(oldest_first=oldest), ROOMY) for oldest in (True, False))
    kept = [layer for layer in first.lowered.layers if layer.target.root.name == "past"]
    assert [layer.out for layer in kept] == [(1, 4, 2), (1, 1, 2)]
    assert len(last.lowered.layers) == len(first.lowered.layers) + 1


@pytest.mark.parametrize("name", ["window of results", "window, newest first"])
def test_what_is_read_late_would_be_lost(name, monkeypatch):
    """Without the check, chains overwrite what is still to be read."""
    monkeypatch.setattr(lowering, "_in_place", list)
    graph = EXACT[name]()
    inputs = sequence(graph, 9)
    got, want = on_device(compile_graph(graph, ROOMY), inputs)["y"], in_double_precision(graph, inputs)["y"]
    assert not np.array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("name", ["exchange", "LSTM", "decoder"])
def test_the_order_of_states_does_not_matter(name):
    graph = ALL[name]()
    other = replace(graph, states=dict(reversed(graph.states.items())))
    first, second = (compile_graph(one, ROOMY).image for one in (graph, other))
    assert first.program == second.program and first.segments == second.segments


@pytest.mark.parametrize("name", ALL)
def test_lanes_without_elements_are_zero(name):
    graph = ALL[name]()
    compiled = compile_graph(graph, ROOMY)
    with connect("emulator", ROOMY) as device:
        device.load(compiled.image)
        compiled.run(device, sequence(graph, 6, whole=False))
        for state in compiled.image.states:
            port, (_, order) = state.port, compiled.package.arrangement.states[state.port.name]
            values = port.decode(device.read(port.region, port.address, port.vectors(ROOMY)), ROOMY)
            assert not values[order < 0].any() and values[order >= 0].any()


@pytest.mark.parametrize("name", ALL)
def test_a_state_keeps_its_room(name):
    """Nothing else lies there, from the first layer to the last."""
    compiled = compile_graph(ALL[name](), ROOMY)
    plan, last = compiled.plan, len(compiled.lowered.layers)
    for state in compiled.lowered.states:
        copies = plan.copies_of(compiled.lowered.inputs[state][0])
        assert copies and all((copy.first_use, copy.last_use) == (-1, last) for copy in copies)


@pytest.mark.slow
@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("name", ["scales", "offsets", "line", "moving line"])
def test_the_host_prepares_no_states(name, calibrated):
    """Scales of channels and offsets are for inputs that the host writes."""
    proto = {"scales": unequal, "offsets": lambda: unequal(40.0), "line": line_model, "moving line": moving_line_model}[
        name
    ]()
    graph = with_states(import_model(proto), {"past": "next"})
    x = {"x": np.random.default_rng(1).normal(30 if "line" in name else 0, 1, (24, *graph.sample_shape("x")))}
    network = concord.compile(proto, preset="ecp5-25f", states=graph.states, calibrate=x if calibrated else None)
    package = network.package
    prepared = {*package.arrangement.channel_scales, *package.arrangement.input_offsets}
    assert "past" not in prepared and package.arrangement.states
    with warnings.catch_warnings(action="ignore", category=concord.FlagWarning):
        same(network.run(x), by_hand(network, x, package.config))


def test_formats_that_would_prepare_a_state_are_refused():
    graph = with_states(import_model(unequal()), {"past": "next"})
    scale = ChannelScale((1, 1), (2,))
    with pytest.raises(ValueError, match="past"):
        compile_graph(graph, ROOMY, Formats(channel_scales={"past": scale}))


@pytest.mark.parametrize("what", ["grids", "input_offsets", "channel_scales"])
def test_no_arrangement_prepares_a_state(what):
    lowered = compile_graph(integrator(), ROOMY).lowered
    prepared = {"grids": InputGrid(-2, -8, 7), "input_offsets": 1.0, "channel_scales": ChannelScale((1, 1), (2,))}[what]
    arranged(lowered, {}, **{what: {"x": prepared}})
    with pytest.raises(
        ValueError, match="states must be as the NPU leaves them, and sum would be prepared by the host"
    ):
        arranged(lowered, {}, **{what: {"sum": prepared}})


def test_a_state_with_codes_of_a_quantised_model():
    """The host does not round it to them; what is not exact is told."""
    graph = before()
    codes = Codes(8, 0.25)
    graph.quantization["sum"] = codes
    compiled = compile_graph(graph, ROOMY)
    assert "sum" not in compiled.package.arrangement.grids
    inputs = sequence(graph, 7, whole=False)
    same(on_device(compiled, inputs), by_hand(compiled, inputs))


def test_states_are_floats():
    graph = integrator()
    for name in ("sum", "next"):
        with pytest.raises(ValueError, match=f"state sum must be of floats, not {name} of int64"):
            with_states(replace(graph, element_types={name: "int64"}), graph.states)


def test_states_that_change_lanes_are_told():
    """A product moves their elements, and rounds them as in front of any product."""
    graph = with_states(import_model(moving_line_model()), {"past": "next"})
    assert lowering.rounded_states(compile_graph(graph, ROOMY).lowered) == ["past"]
    assert not lowering.rounded_states(compile_graph(window(computed=True), ROOMY).lowered)


def test_calls_go_on_and_begin_anew():
    graph = integrator()
    compiled, inputs = compile_graph(graph, ROOMY), sequence(graph, 8)
    want = on_device(compiled, inputs)["y"]
    parts = [{name: x[cut] for name, x in inputs.items()} for cut in (slice(3), slice(3, 4), slice(4, 8))]
    with connect("emulator", ROOMY) as device:
        device.load(compiled.image)
        assert np.array_equal(np.concatenate([on_device(compiled, part, device=device)["y"] for part in parts]), want)
        device.reset_states()
        assert np.array_equal(on_device(compiled, inputs, device=device)["y"], want)
        device.load(compiled.image)
        assert np.array_equal(on_device(compiled, inputs, device=device)["y"], want)


@pytest.mark.slow
def test_folders(tmp_path):
    graph, folder = ROUNDED["GRU"](), tmp_path / "net"
    model = cell_model("GRU").SerializeToString()
    network = concord.compile(model, preset="tiny", states=graph.states)
    network.save(folder)
    x = sequence(graph, 6, whole=False)
    package = load_package(folder)
    assert package.arrangement.state_results == {"h": "h2"}
    same(on_device(package, x, package.config), on_device(network.package, x, package.config))
    same(concord.load(folder).run(x), network.run(x))
    assert recompile(folder).image.program == package.image.program
    image = Image.load(folder / IMAGE)
    assert image.states == package.image.states
    save_package(package, tmp_path / "again", model)


def test_records_of_states():
    """Files sort the names in a header; every state has its own order all the same."""
    orders = {"z": np.arange(4).reshape(1, 4), "a": np.array([[3, 2, 1, 0], [4, 5, -1, -1]])}
    shapes = {"z": (4,), "a": (6,), "z2": (4,), "a2": (6,)}
    arrangement = Arrangement({}, {}, shapes, states={name: (f"{name}2", order) for name, order in orders.items()})
    header, arrays = arrangement.to_record()
    made = Arrangement.of_record(json.loads(json.dumps(header, sort_keys=True)), arrays)
    assert made.state_results == {"z": "z2", "a": "a2"}
    for name, order in orders.items():
        np.testing.assert_array_equal(made.states[name][1], order)
    carried = made.carried
    np.testing.assert_array_equal(carried.outputs["a2"], [3, 2, 1, 0, 4, 5])
    assert [*carried.inputs] == ["z", "a"]


def test_samples_of_a_sequence():
    """States that are not among the samples are those of the network in double precision."""
    graph = integrator(4)
    x = sequence(graph, 5)["x"]
    found = with_state_inputs(graph, {"x": x})
    np.testing.assert_array_equal(found["sum"][1:], np.cumsum(x, axis=0)[:-1])
    assert not found["sum"][0].any()
    given = {"x": x, "sum": x}
    assert with_state_inputs(graph, given) == given
    two = delays()
    with pytest.raises(ValueError, match="inputs must have all states or none, not a alone"):
        with_state_inputs(two, {"x": x, "a": x})


@pytest.mark.parametrize("states, message", [
    ({"nothing": "y"}, "a state must be an input of the NPU, x, sum, not nothing"),
    ({"sum": "x"}, "state sum must become an output of the NPU, y, next, not x"),
    ({"sum": "y"}, r"state sum must become an output with its shape \(1, 6\), not y with \(1, 4\)"),
    ({"sum": "next", "x": "next"}, "states must become outputs of their own, not two of them next"),
])  # fmt: skip
def test_wrong_states(states, message):
    with pytest.raises(ValueError, match=message):
        with_states(integrator(), states)


def test_a_network_of_states_alone():
    graph = replace(integrator(), outputs=["next"], states={})
    with pytest.raises(ValueError, match="must have another output, not states alone"):
        with_states(graph, {"sum": "next"})


def test_texts():
    assert states_of(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    for texts in (["a"], ["=b"], ["a="], ["a=b", "a=c"]):
        with pytest.raises(ValueError, match="state must be INPUT=OUTPUT, each input once, not"):
            states_of(texts)


def test_what_has_no_states():
    with pytest.raises(ValueError, match="batch must be 1 for a network with states, not 2"):
        compile_graph(integrator(), ROOMY, batch=2)
    with pytest.raises(CapacityError, match="row tiling does not help, as states are needed as a whole"):
        compile_graph(window(100), ROOMY.replace(wide_depth=64, narrow_depth=64))
    graph = integrator()
    graph.nodes.append(
        Node("ArgMax", "best", ("next",), ("k",), {"axis": 1, "keepdims": False, "least": False, "last": False})
    )
    graph.shapes["k"] = (1,)
    graph.outputs.append("k")
    with pytest.raises(Unsupported, match="state next: the host computes from it"):
        compile_graph(graph, ROOMY)


@pytest.mark.slow
def test_a_refusal_says_what_does_not_fit():
    """Parts of the network are tried for a suggestion, and some of them leave states to the host."""
    small, sizes = ROOMY.replace(program_depth=64), Sizes(layers=2, width=8, heads=2, window=4, hidden=8)
    model = step_model(sizes, random_weights(sizes, 0))
    with pytest.raises(CapacityError, match="program memory has 64 words"):
        concord.compile(model, config=small, states=sizes.states)


def test_images_with_states_are_checked():
    image = compile_graph(integrator(), ROOMY).image
    (state,) = image.states
    with pytest.raises(ImageError, match="an image with states must not have phases"):
        replace(image, phases=(Phase(0, (), ()),)).check()
    with pytest.raises(ImageError, match="names of their own"):
        replace(image, states=(replace(state, result="y"),)).check()
    far = replace(state, port=replace(state.port, address=ROOMY.wide_depth))
    with pytest.raises(ImageError, match="sum must lie in"):
        replace(image, states=(far,)).check()
