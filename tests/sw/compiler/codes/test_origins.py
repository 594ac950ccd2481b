"""Codes of a byte in mantissas of 8 bits: origins, padding that is not stored as 0, and codes in two parts."""

import dataclasses

import numpy as np
import pytest

from concord.compiler.codes.origins import Stored, stored_codes
from concord.compiler.codes.package import compile_codes
from concord.compiler.codes.rewriting import NotOnNpu
from concord.derive.c.program import compiler
from concord.frontend.codes import load
from concord.host import connect
from concord.integer.moves import PadMove
from concord.prove.exact import prove_exact
from support.code_networks import CodeNetwork, code_network
from support.exact_files import LIBRARIES, different
from support.onnx_models import model, node
from support.rtl_configs import FED_SCALING, ORIGINS

#: Mantissas of a byte, and room for random networks.
EIGHT = FED_SCALING.replace(
    name="eight", act_mant=8, wgt_mant=8, narrow_depth=8192, wide_depth=8192, matrix_depth=16384, program_depth=2048,
    table_slots=16, table_depth=2048,
)  # fmt: skip


def network(seed=0, shape=(3, 6, 6), group=False, count=2, size=4, relative=1.0):
    """Convolutions with padding, one after the other; uint8, with zero points of 0.

    With ``group`` those behind the first one have a kernel by channel; ``relative`` is how far results go beyond codes.
    """
    net = CodeNetwork(np.random.default_rng(seed), False)
    net.zero_point = lambda: 0
    last = net.input(shape)
    for k in range(count):
        weight, step = net.weight(size, 1 if group and k else net.shapes[last][0], *[3] * (len(shape) - 1))
        attrs = {"pads": [1] * 2 * (len(shape) - 1), "group": size if group and k else 1}
        if k:
            codes = net.constants[net.nodes[-1].input[0]]
            codes[:3] = np.abs(codes[:3])
        scale = net.scales[last] * step / (relative if k else 1)
        last = net.add("Conv", [last, weight], (size, *shape[1:]), scale, **attrs)
    return load(model(net.nodes, net.inputs, [last], constants=net.constants))


def samples(network, count=4, seed=1):
    graph, rng = network.graph, np.random.default_rng(seed)
    return {name: rng.integers(0, 256, (count, *graph.shapes[name][1:])) for name in graph.inputs}


def results(codes, inputs, config, device="emulator"):
    with connect(device, config) as opened:
        opened.load(codes.image)
        return codes.run(opened, inputs), opened.flags()


def apart(found, wanted):
    """Differences of codes of all outputs."""
    return np.concatenate([np.abs(found[name].astype(np.int64) - wanted[name]).ravel() for name in wanted])


# Origins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most, stored", [
    (255, Stored(0, 0, 255)),  # the zero point, where codes less it are held
    (128, Stored(127, 0, 255)),  # else the nearest code to it
    (127, Stored(127, 0, 254, limited=True)),
    (126, Stored(0, 0, 255, held=False)),
])  # fmt: skip
def test_the_origin_is_the_nearest_code_with_which_mantissas_hold_all(most, stored):
    loaded = network()
    (tensor,) = loaded.graph.inputs.values()
    assert stored_codes(loaded.graph, most)[tensor] == stored


@pytest.mark.parametrize("low, high, zero, stored", [
    (-128, 127, 0, Stored(0, -127, 127, limited=True)), (-128, 127, 127, Stored(0, -127, 127, limited=True)),
    (-128, 127, -128, Stored(-1, -128, 126, limited=True)), (-127, 127, 20, Stored(0, -127, 127)),
    (-128, 100, -30, Stored(-27, -128, 100)),
])  # fmt: skip
def test_the_code_furthest_from_the_zero_point_is_left_out(low, high, zero, stored):
    loaded = network()
    graph = loaded.graph
    (tensor,) = graph.inputs.values()
    scheme = graph.schemes[tensor]
    kind = type("Scheme", (), {"low": low, "high": high, "zero": zero})
    assert scheme.zero == 0
    assert stored_codes(dataclasses.replace(graph, schemes=graph.schemes | {tensor: kind}), 127)[tensor] == stored


def test_what_no_product_reads_has_all_of_its_codes():
    codes = compile_codes(network(), EIGHT)
    (output,) = codes.package.split.npu.outputs
    assert codes.package.split.stored[output] == Stored(0, 0, 255)
    assert (
        len(codes.warnings) == 1 and "have 256 codes, and mantissas 255 numbers: the code that is" in codes.warnings[0]
    )


# Codes of the definition -------------------------------------------------------------------------------------------


def check(seed, config=EIGHT, device="emulator"):
    """Codes of a random network; the network with its codes on the NPU, and how far they are from its own."""
    proto, inputs, _ = code_network(seed)
    loaded = load(proto, pairs=False)
    try:
        codes = compile_codes(loaded, config)
    except NotOnNpu as error:
        assert "scales of accumulators must be below 1" in str(error) or "a sum must be of two tensors" in str(error)
        return None, np.zeros(1, int)
    wanted = codes.package.expected(inputs)
    found, flags = results(codes, inputs, config, device)
    assert not flags and all(np.array_equal(found[name], wanted[name]) for name in wanted)
    return codes, apart(wanted, loaded.run(inputs))


def count(codes, text):
    return sum(text in part.output for part in codes.package.split.npu.operations)


@pytest.mark.slow
def test_random_networks():
    """Emulator and definition agree, and codes are as near to those of the network as with 9 bits, but for one code."""
    wide = EIGHT.replace(name="nine", act_mant=9)
    made = [check(seed) for seed in range(30)]
    all_apart, others = (np.concatenate([distance for _, distance in some])
                         for some in (made, [check(seed, wide) for seed in range(30)]))  # fmt: skip
    assert (others > 0).mean() < 0.01 and (all_apart > 0).mean() < 0.02 and (all_apart > 1).mean() < 0.001
    networks = [codes for codes, _ in made if codes is not None]
    assert len(networks) > 22
    assert sum(count(codes, "/padded") > 0 for codes in networks) > 10
    assert sum(count(codes, "/within") > 0 for codes in networks) > 1
    assert sum(layer.border is not None for codes in networks for layer in codes.lowered.layers) > 5
    assert sum(bool(codes.package.arrangement.input_offsets) for codes in networks) > 1


@pytest.mark.deep
def test_more_random_networks():
    for seed in range(30, 400):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("library", [*LIBRARIES[::2], "c"])
def test_random_networks_in_derived_software(library, tmp_path):
    for seed in range(4):
        proto, inputs, signed = code_network(seed)
        try:
            codes = compile_codes(load(proto, pairs=False), EIGHT)
        except NotOnNpu:
            continue
        kind = np.int8 if signed else np.uint8
        inputs = {name: array.astype(kind) for name, array in inputs.items()}
        if library != "c":
            assert different(codes.package.arithmetic, library, tmp_path, inputs) == 0
        elif compiler():
            assert prove_exact(codes.package.arithmetic, inputs).same


@pytest.mark.deep
@pytest.mark.parametrize("relative", [1, 25])
def test_on_the_rtl(relative):
    """Borders, what the host pads, and codes in two parts, with the codes of the definition."""
    loaded = network(1, (2, 4, 5), True, relative=relative)
    codes, inputs = compile_codes(loaded, ORIGINS), samples(loaded, 2)
    assert (count(codes, "/within") > 0) == (relative > 1)
    found, flags = results(codes, inputs, ORIGINS, "rtl")
    assert not flags and not apart(found, codes.package.expected(inputs)).any()


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("size", [4, 12])
def test_terms_that_are_too_large(size, group):
    """Channels whose terms are too large read their codes in two parts, others of a kernel by channel do not."""
    loaded = network(5, (2, 5, 4), group, size=size, relative=25)
    codes, inputs = compile_codes(loaded, EIGHT), samples(loaded)
    assert count(codes, "/within") and bool(count(codes, "/most")) == (group and size == 12)
    found, flags = results(codes, inputs, EIGHT)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()
    distances = apart(found, loaded.run(inputs))
    assert (distances > 1).mean() < 0.05 and len(np.unique(found[next(iter(found))])) > 2


@pytest.mark.slow
def test_padding_and_terms_that_are_wrong_are_noticed():
    loaded = network()
    codes, inputs = compile_codes(loaded, EIGHT), samples(loaded)
    found, _ = results(codes, inputs, EIGHT)
    operations = codes.package.split.npu.operations
    assert not apart(found, codes.package.expected(inputs)).any()
    for k, part in enumerate(operations):
        wrong = None
        if isinstance(getattr(part, "move", None), PadMove):
            move = dataclasses.replace(part.move, value=codes.package.split.stored[part.output].origin)
            wrong = dataclasses.replace(part, move=move)
        elif hasattr(part, "requantisation"):
            whole = part.requantisation.whole * 0
            wrong = dataclasses.replace(part, requantisation=dataclasses.replace(part.requantisation, whole=whole))
        if wrong is not None:
            package = codes.package
            changed = dataclasses.replace(package.split.npu, operations=[*operations[:k], wrong, *operations[k + 1 :]])
            package = dataclasses.replace(package, split=dataclasses.replace(package.split, npu=changed))
            assert apart(found, package.expected(inputs)).any(), type(wrong).__name__


@pytest.mark.parametrize("group", [False, True])
def test_terms_and_padding_make_up_for_the_origin(group):
    """Codes are those of the network, but for the few that a factor of 16 bits or the code that is left out changes."""
    loaded = network(3, group=group)
    codes, inputs = compile_codes(loaded, EIGHT), {"x0": np.minimum(samples(loaded)["x0"], 254)}
    found, flags = results(codes, inputs, EIGHT)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()
    distances = apart(found, loaded.run(inputs))
    assert (distances > 0).mean() < 0.15 and distances.max() <= 2


def test_padding_beyond_the_codes_of_a_table():
    net = CodeNetwork(np.random.default_rng(0), False)
    net.zero_point = lambda: 0
    table = net.add("Sigmoid", [net.add("Relu", [net.input((2, 4, 4))], (2, 4, 4), 0.02)], (2, 4, 4), 1 / 255)
    weight, step = net.weight(3, 2, 3, 3)
    last = net.add("Conv", [table, weight], (3, 4, 4), step / 255, pads=[1] * 4)
    loaded = load(model(net.nodes, net.inputs, [last], constants=net.constants))
    codes, inputs = compile_codes(loaded, EIGHT), samples(loaded)
    found, flags = results(codes, inputs, EIGHT)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()
    assert apart(found, loaded.run(inputs)).max() <= 2


def test_the_ends_of_the_range_are_right():
    """Codes that are left out become their neighbours, at the input, too."""
    loaded = network()
    codes = compile_codes(loaded, EIGHT)
    x = np.random.default_rng(0).choice([0, 1, 254, 255], (6, *loaded.graph.shapes["x0"][1:]))
    found, flags = results(codes, {"x0": x}, EIGHT)
    assert not flags and not apart(found, codes.package.expected({"x0": x})).any()
    assert not apart(found, codes.package.expected({"x0": np.minimum(x, 254)})).any()


# Where codes lie ---------------------------------------------------------------------------------------------------


def layers(codes):
    return codes.lowered.layers


def test_the_host_pads_an_input_and_a_layer_what_it_computes():
    codes = compile_codes(network(), EIGHT)
    assert [layer.border is not None for layer in layers(codes)] == [True, False]
    assert codes.package.arrangement.input_offsets == {"x0_q": 127}


@pytest.mark.parametrize("unfold", [1, 2])
def test_inputs_are_padded_however_much_of_a_window_is_unfolded(unfold, monkeypatch):
    from concord.compiler.lowering import unfolding

    kept = unfolding.unfolded

    def limited(lowering, node, weight):
        lowering.unfold = unfolding.Unfold(2 - unfold)
        return kept(lowering, node, weight)

    monkeypatch.setattr("concord.compiler.lowering.products.unfolded", limited)
    loaded = network(shape=(1, 6, 6))
    codes, inputs = compile_codes(loaded, EIGHT), samples(loaded)
    assert codes.lowered.feeds["x0_q"].kernel == ((1, 3) if unfold == 1 else (1, 1))
    found, flags = results(codes, inputs, EIGHT)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()


def test_a_padded_tensor_in_row_tiles():
    """Borders are written around the rows of every tile."""
    loaded = network(4, (3, 12, 12), count=4)
    small = EIGHT.replace(narrow_depth=330)
    codes, inputs = compile_codes(loaded, small), samples(loaded)
    assert codes.row_tiling is not None and any(layer.border is not None for layer in layers(codes))
    found, flags = results(codes, inputs, small)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()


def test_windows_that_slide():
    sliding = EIGHT.replace(native=16, lanes=16, mfu_lanes=4, window_taps=9)
    loaded = network(2, (3, 6, 6), True)
    codes, inputs = compile_codes(loaded, sliding), samples(loaded)
    found, flags = results(codes, inputs, sliding)
    assert not flags and not apart(found, codes.package.expected(inputs)).any()


def test_a_tensor_beside_itself_is_refused():
    """The weights of its two places add up, beyond mantissas."""
    net = CodeNetwork(np.random.default_rng(0), False)
    net.zero_point = lambda: 0
    x = net.add("Relu", [net.input((4, 4, 4))], (4, 4, 4), 0.05)
    x = net.conv(x, pads=[0] * 4, group=4)
    twice = net.add("Concat", [x, x], (8, *net.shapes[x][1:]), net.scales[x], axis=1)
    weight, step = net.weight(3, 8, 1, 1)
    last = net.add("Conv", [twice, weight], (3, *net.shapes[x][1:]), net.scales[x] * step)
    loaded = load(model(net.nodes, net.inputs, [last], constants=net.constants))
    with pytest.raises(
        NotOnNpu, match=r"weights of .* add up beyond what mantissas hold, as it reads some codes twice"
    ):
        compile_codes(loaded, EIGHT)


def test_numbers_that_the_host_makes_at_the_end():
    proto, inputs, _ = code_network(1)
    loaded = load(proto, pairs=False)
    name = next(iter(loaded.graph.outputs))
    numbers = model([*proto.graph.node, node("Mul", [name, name], ["numbers"])], {}, ["numbers"])
    del numbers.graph.input[:]
    numbers.graph.input.extend(proto.graph.input)
    numbers.graph.initializer.extend(proto.graph.initializer)
    codes = compile_codes(load(numbers, pairs=False), EIGHT)
    inputs = {name: inputs[name] for name in codes.package.network.graph.inputs}
    found, _ = results(codes, inputs, EIGHT)
    wanted = codes.package.expected(inputs)["numbers"]
    assert wanted.dtype == np.float32 and np.array_equal(found["numbers"], wanted) and np.abs(wanted).max() < 1000
