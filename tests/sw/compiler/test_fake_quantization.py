"""Rounding to codes on the NPU, by tables and by sums: what onnxruntime has, bit for bit where scales allow it."""

import warnings

import numpy as np
import pytest

import concord
from concord.compiler.lowering.fake_quantization import spread, table_of
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.golden.codes import CodeRange, Codes
from concord.graph.ir import Node
from concord.networks.calibrated import emulate
from concord.spec.isa import Op
from concord.spec.presets import ECP5_85F, TINY
from support.expressions import graph_of
from support.onnx_models import node, onnxruntime_results, ops
from support.quantised_nets import BRIDGES, CODES, QdqMaker, bridged

#: Room for what is measured: sums in binary16 that are next to the middle of two codes.
ROOM = 0.05


def distance(found, want):
    return float(np.linalg.norm(np.reshape(found, want.shape) - want) / np.linalg.norm(want))


def quantised(proto, samples, config=ECP5_85F):
    """Distance of the emulator's result from that of onnxruntime, and what was compiled."""
    graph = import_model(proto)
    compiled = compile_graph(graph, config)
    (want,) = onnxruntime_results(proto, {"x": samples})
    return distance(emulate(compiled, {"x": samples})[graph.outputs[0]], want), compiled


@pytest.mark.parametrize("kind", BRIDGES)
@pytest.mark.parametrize("schemes", [("INT8", "INT4"), ("INT4", "INT8"), ("UINT8", "UINT4")])
def test_both_of_two_schemes_are_computed(kind, schemes):
    """With scales that are powers of two. Deleting one of them costs 5 to 20 %."""
    proto, samples = bridged(kind, schemes, exact=True)
    found, _ = quantised(proto, samples)
    assert found < ROOM
    for left, leaves in enumerate(schemes):
        shorter, _ = bridged(kind, (schemes[1 - left],), exact=True)
        (want,), (other,) = (onnxruntime_results(one, {"x": samples}) for one in (proto, shorter))
        assert "INT4" not in leaves or distance(other, want) > ROOM


def limited(kind, scale, zero=0):
    """A model of one pair, and samples within and beyond its range; every other one is the middle of two codes."""
    maker, rng = QdqMaker((6,), np.random.default_rng(2)), np.random.default_rng(4)
    low, high = CODES[kind]
    x = rng.uniform(1.2 * (low - high) * scale, 1.2 * (high - low) * scale, (60, 6))
    x[::2] = (np.rint(x[::2] / scale) + 0.5) * scale
    return maker.model([maker.pair("x", kind, scale, zero)]), np.float16(x).astype(np.float64)


@pytest.mark.parametrize(
    ("kind", "scale", "zero"),
    [
        ("INT4", 0.5, 0), ("UINT4", 2.0**-9, 3), ("INT4", 2.0**7, -5), ("UINT8", 0.25, 7), ("INT8", 2.0**-12, -100),
        ("INT4", 2.0**-20, 0),
    ],
)  # fmt: skip
def test_a_power_of_two_is_exact(kind, scale, zero):
    codes = Codes(8 if "8" in kind else 4, scale, zero, CodeRange.of(kind[0] == "I"))
    graph = graph_of([node_of(codes)], x=(1, 6))
    proto, x = limited(kind, scale, zero)
    (want,) = onnxruntime_results(proto, {"x": x})
    compiled = compile_graph(graph, ECP5_85F)
    assert [op.op for layer in compiled.lowered.layers for op in layer.mfu_ops] == [Op.V_TBL]
    np.testing.assert_array_equal(emulate(compiled, {"x": x})["y"], want)


def node_of(codes, name="codes", x="x", y="y"):
    return Node("FakeQuantize", name, (x,), (y,), {"quantization": codes})


@pytest.mark.parametrize("scale", [0.3, 0.0123, 7e-6, 1900.0])
@pytest.mark.parametrize(("kind", "bits", "signed"), [("INT4", 4, True), ("UINT4", 4, False)])
def test_other_scales_are_codes_but_for_neighbours(kind, bits, signed, scale):
    """A value that binary16 moves across the middle between two codes gets the other one, and no other."""
    codes = Codes(bits, np.float32(scale), -2 if signed else 5, CodeRange.of(signed))
    x = np.random.default_rng(5).uniform(-12, 12, (200, 6)) * scale
    want = codes.rounded(np.float16(x).astype(float))
    found = emulate(compile_graph(graph_of([node_of(codes)], x=(1, 6)), ECP5_85F), {"x": x})["y"]
    steps = np.rint((found - want) / codes.steps)
    assert np.abs(found - want - steps * codes.steps).max() <= 2.0**-11 * np.abs(want).max() + 2.0**-24
    assert np.abs(steps).max() <= 1 and np.mean(steps != 0) < 0.01
    # The values in question are those beside a middle.
    places = np.abs(np.mod(np.float16(x) / codes.steps, 1) - 0.5)
    assert (places[steps != 0] < 0.02).all()


@pytest.mark.parametrize(
    "codes",
    [
        Codes(4, np.array([0.5, 0.25, 2.0, 1.0, 0.125, 4.0]), np.array([0, 3, -4, 0, 7, -8]), axis=1),
        Codes(
            8,
            np.array([2.0**-17, 2.0**-3, 2.0**-5, 2.0**-5, 2.0, 2.0**3]),
            np.zeros(6, int),
            CodeRange.UNSIGNED,
            axis=1,
        ),
    ],
)
def test_scales_per_channel_are_sums(codes):
    x = np.random.default_rng(6).normal(0, 20, (200, 6)) * codes.steps
    x[::2] = np.rint(x[::2] / codes.steps) * codes.steps + codes.steps / 2
    x = np.float16(x).astype(float)
    compiled = compile_graph(graph_of([node_of(codes)], x=(1, 6)), ECP5_85F)
    assert Op.V_TBL not in {op.op for layer in compiled.lowered.layers for op in layer.mfu_ops}
    np.testing.assert_array_equal(emulate(compiled, {"x": x})["y"], codes.rounded(x[:, None])[:, 0])


def test_more_schemes_than_tables():
    """Those that are read most have tables; all have the codes that they should."""
    schemes = [Codes(4, 2.0**-k, k % 5 - 2) for k in range(TINY.table_slots + 3)]
    nodes = [node_of(codes, f"codes{k}", "x", f"t{k}") for k, codes in enumerate([*schemes, schemes[-1]])]
    graph = graph_of(nodes, x=(1, 4))
    graph.outputs = [one.outputs[0] for one in nodes]
    left = [one for one in spread(graph, TINY).nodes if one.op == "FakeQuantize"]
    assert len({table_of(one.attrs["quantization"], TINY) for one in left}) == TINY.table_slots and nodes[-1] in left
    x = np.float16(np.random.default_rng(7).normal(0, 3, (30, 4))).astype(float)
    found = emulate(compile_graph(graph, TINY.replace(program_depth=1024, wide_depth=256)), {"x": x})
    for one in nodes:
        want = one.attrs["quantization"].rounded(x)
        np.testing.assert_array_equal(found[one.outputs[0]].reshape(want.shape), want)


def test_codes_of_16_bits_are_limited():
    """They are finer than binary16, which is all that is rounded to."""
    codes = Codes(16, 2.0**-14)
    x = np.float16(np.random.default_rng(8).normal(0, 3, (30, 4))).astype(float)
    found = emulate(compile_graph(graph_of([node_of(codes)], x=(1, 4)), ECP5_85F), {"x": x})["y"]
    assert np.abs(found - codes.rounded(x)).max() <= 2.0**-11 and np.abs(found).max() <= 2.0


@pytest.mark.parametrize(("scale", "zero"), [(0.5, 3), (1.75, 0), (2.0, -1)])
def test_codes_that_are_read_in_another_way(scale, zero):
    """DequantizeLinear may have another scale and zero point than QuantizeLinear."""
    maker, x = QdqMaker((6,), np.random.default_rng(3)), np.random.default_rng(9).normal(0, 4, (40, 6))
    codes = maker.add("QuantizeLinear", "x", maker.constant(np.float32(1.0)), maker.zero("INT4", 0))
    values = maker.add("DequantizeLinear", codes, maker.constant(np.float32(scale)), maker.zero("INT4", zero))
    proto = maker.model([maker.add("Relu", values)])
    found, compiled = quantised(proto, x)
    assert found == 0 and "FakeQuantize" in ops(compiled.graph)


def test_what_is_refused_says_so():
    """Codes that an operator reads which computes; what the message says helps."""
    maker, x = QdqMaker((6,), np.random.default_rng(3)), np.random.default_rng(9).normal(0, 4, (40, 6))
    scale, zero = maker.constant(np.float32(0.125)), maker.zero("INT8", 0)
    codes = maker.add("QuantizeLinear", maker.product("x", 6, 6), scale, zero)
    values = maker.add("DequantizeLinear", codes, scale, zero)
    assert quantised(maker.model([values]), x)[0] < ROOM
    turned = maker.add("Relu", codes)
    with pytest.raises(ValueError, match=r"reads the integers of QuantizeLinear; .* in front of the next"):
        import_model(maker.model([maker.add("DequantizeLinear", turned, scale, zero)]))
    maker.nodes[-2:] = [node("Reshape", [values, maker.constant(np.array([0, 6]))], ["turned"])]
    assert quantised(maker.model([maker.pair("turned", "INT8", 0.125)]), x)[0] < ROOM


def test_scales_that_hardly_differ_share_a_table():
    schemes = [Codes(4, scale) for scale in (0.3, 0.3 * (1 + 2.0**-30))]
    nodes = [node_of(codes, f"codes{k}", "x", f"t{k}") for k, codes in enumerate(schemes)]
    graph = graph_of(nodes, x=(1, 4))
    graph.outputs = ["t0", "t1"]
    compiled = compile_graph(graph, TINY)
    assert sum(name.startswith("table.") for name in compiled.allocations) == 1
    found = emulate(compiled, {"x": np.random.default_rng(7).normal(0, 1, (9, 4))})
    np.testing.assert_array_equal(found["t0"].reshape(9, 4), found["t1"].reshape(9, 4))


def functions_beside_codes(seed):
    """A model of roots and the like of numbers of different sizes, between pairs of different schemes."""
    rng = np.random.default_rng(seed)
    maker, outputs = QdqMaker((6,), rng), []
    for _ in range(int(rng.integers(1, 5))):
        size = maker.add("Mul", "x", "x")
        size = maker.add("Add", size, maker.constant(np.float32(rng.choice([1e-3, 0.1, 1.0]))))
        size = maker.add("Mul", size, maker.constant(np.float32(rng.uniform(0.1, 2.0))))
        op = str(rng.choice(["Sqrt", "root below one", "Reciprocal", "Log", "Tanh"]))
        y = maker.add("Reciprocal", maker.add("Sqrt", size)) if op == "root below one" else maker.add(op, size)
        kind = str(rng.choice(["INT8", "UINT8", "INT4"]))
        outputs.append(maker.pair(y, kind, rng.uniform(0.02, 0.2), int(rng.integers(0, 7))))
    if rng.random() < 0.3:
        outputs.append(maker.add("Relu", maker.add("Softmax", maker.pair("x", "INT8", 0.05))))
    return maker.model(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 24, 8))
def test_tables_of_functions_leave_room_for_those_of_codes(first):
    """Without samples; a function has no more tables than there is room for, and says so where these are too few."""
    for seed in range(first, first + 8):
        proto = functions_beside_codes(seed)
        network = concord.compile(proto, preset="ecp5-85f")
        x = np.random.default_rng(seed).normal(0, 1, (20, 6)).astype(np.float32)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            found = network.run(x)
        for output, want in zip(proto.graph.output, onnxruntime_results(proto, {"x": x}), strict=True):
            assert distance(found[output.name], want) < 0.1 or raised, seed
