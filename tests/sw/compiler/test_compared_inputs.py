"""Comparisons of inputs have the truth values of the inputs as they are, not of what binary16 makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import concord
from concord.compiler.lowering.host_partition import without_front
from concord.derive.model import derive_package
from concord.frontend import import_model
from concord.networks.folder import recompile
from support.derived_backends import needs_torch, on_numpy, on_onnxruntime, on_torch
from support.derived_modules import same
from support.fuzz import whole
from support.host_stage_nets import floats
from support.onnx_expressions import BOOL, FLOAT, INT64, UINT8, given, model_of, op
from support.onnx_models import onnxruntime_results

PRESET = "ecp5-85f"
#: Numbers that binary16 rounds to others, or does not have at all.
NUMBERS = np.float32([0, 1e-9, -1e-9, 6e-8, 0.1, 0.100001, -0.1, 2049, 2050, 65519, -65519, 1e6])
COMPARISONS = {
    "Greater": np.greater, "Less": np.less, "Equal": np.equal, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}  # fmt: skip
X, F = given("n", 4), given("n", 12, name="f")
PRODUCT = op.MatMul(X, np.eye(4))


def beside_a_product(opset=18, **outputs):
    """Outputs beside a product ``m`` of ``x``."""
    return model_of(m=PRODUCT, opset=opset, **outputs)


def compiled(proto, **options):
    return concord.compile(proto.SerializeToString(), preset=PRESET, **options)


def inputs_of(f=NUMBERS):
    return {"x": np.ones((1, 4), np.float32), "f": f[np.newaxis]}


def ops(graph):
    return [] if graph is None else [item.op for item in graph.nodes]


@pytest.mark.parametrize("limit", [0.0, 1e-9, 0.1, 2049.0, 65520.0, 1e6])
def test_comparisons_with_a_constant(limit):
    """The network itself compares with both signs, and the constant is on either side."""
    outputs, want, limit = {}, {}, np.float32(limit)
    for name, function in COMPARISONS.items():
        for sign, value in (("c", limit), ("d", -limit)):
            outputs[f"{name}{sign}0"], want[f"{name}{sign}0"] = getattr(op, name)(F, value), function(NUMBERS, value)
            outputs[f"{name}{sign}1"], want[f"{name}{sign}1"] = getattr(op, name)(value, F), function(value, NUMBERS)
    net = compiled(beside_a_product(**outputs))
    found = net.run(inputs_of())
    for name, truth in want.items():
        np.testing.assert_array_equal(found[name][0], truth, name)
    assert "f" not in net.package.arrangement.inputs


def test_signs_and_casts():
    truth = op.Cast(F, to=BOOL)
    chosen = op.Where(truth, op.Concat(PRODUCT, PRODUCT, PRODUCT, axis=1), 0.0)
    outputs = {"truth": truth, "no": op.Not(truth), "sign": op.Sign(F), "number": op.Cast(F, to=INT64)}
    found = compiled(beside_a_product(**outputs, chosen=chosen)).run(inputs_of())
    np.testing.assert_array_equal(found["truth"][0], NUMBERS != 0)
    np.testing.assert_array_equal(found["no"][0], NUMBERS == 0)
    np.testing.assert_array_equal(found["sign"][0], np.sign(NUMBERS))
    np.testing.assert_array_equal(found["number"][0], NUMBERS.astype(np.int64))
    np.testing.assert_array_equal(found["chosen"][0], np.where(NUMBERS != 0, 1, 0))


def test_two_inputs_that_are_moved():
    """A product reads the moved elements, too: the NPU gets them as they were."""
    r = op.Reshape(F, [0, 3, 4])
    t = op.Transpose(given("n", 4, 3, name="g"), perm=[0, 2, 1])
    proto = beside_a_product(y=op.Greater(r, t), p=op.MatMul(r, np.eye(4)))
    rng = np.random.default_rng(3)
    f = rng.normal(size=12).astype(np.float32)
    g = np.nextafter(f, rng.choice([-9, 9], 12).astype(np.float32)).reshape(1, 3, 4).transpose(0, 2, 1)
    net = compiled(proto)
    found = net.run({**inputs_of(f), "g": g})
    np.testing.assert_array_equal(found["y"][0], f.reshape(3, 4) > g[0].T)
    np.testing.assert_allclose(found["p"][0], f.reshape(3, 4), atol=0.03)
    assert sorted(ops(net.package.front)) == ["Compare", "Reshape", "Transpose"]


def test_a_product_reads_the_mask():
    """ArgMax stands in front of the comparison in the file, and behind the NPU."""
    place = op.ArgMax(PRODUCT, axis=1, keepdims=0)
    mask = op.Cast(op.Greater(F, 1e-9), to=FLOAT)
    net = compiled(beside_a_product(place=place, y=op.MatMul(mask, np.eye(12))))
    assert (ops(net.package.front), ops(net.package.host_graph)) == (["Compare"], ["ArgMax"])
    np.testing.assert_array_equal(net.run(inputs_of())["y"][0], NUMBERS > np.float32(1e-9))
    assert not [line for line in net.warnings if "compares" in line]


def test_inputs_do_not_pass_the_npu_to_the_host():
    """A table of limits, by the place of the greatest result, beside an input and one that is moved."""
    limits = np.float32([1e-9, 2049, 0.1, 65519])
    limit = op.Gather(limits, op.ArgMax(PRODUCT, axis=1, keepdims=1))
    net = compiled(beside_a_product(a=op.Less(limit, F), b=op.Less(limit, op.Reshape(F, [0, 1, 12]))))
    for place, number in enumerate(limits):
        found = net.run({"x": np.eye(4, dtype=np.float32)[[place]], "f": NUMBERS[np.newaxis]})
        np.testing.assert_array_equal(found["a"][0], number < NUMBERS)
        np.testing.assert_array_equal(found["b"][0, 0], number < NUMBERS)


def test_a_mask_of_floats_in_front_of_a_softmax():
    """The compiler draws signs that are as seldom 0 as those of floats, so it expects the same error."""
    added = op.Mul(op.Cast(op.Equal(F, 0.0), to=FLOAT), -1e9)
    a = op.Softmax(op.Add(op.MatMul(PRODUCT, floats(4, 12)), added), axis=1)
    proto = beside_a_product(y=op.MatMul(a, floats(12, 3)))
    nets = [compiled(proto, partition=partition) for partition in ("ends", "none")]
    expected = [net.package.expected_error.result for net in nets]
    assert expected[0] == pytest.approx(expected[1], rel=0.5)
    f = np.where(np.arange(12) % 3, 1e-9, 0).astype(np.float32)
    inputs = {"x": np.float32([[0.5, -1, 2, 0.25]]), "f": f[np.newaxis]}
    (_, want) = onnxruntime_results(proto, inputs, None)
    np.testing.assert_allclose(nets[0].run(inputs)["y"], want, atol=0.05 * np.abs(want).max())


def test_an_embedding_is_compared_as_its_table_has_it():
    e = op.Gather(NUMBERS.reshape(6, 2), given("n", 6, name="i", kind=INT64))
    found = compiled(beside_a_product(y=op.Greater(e, 0.0))).run({"x": np.ones((1, 4)), "i": np.arange(6)[np.newaxis]})
    np.testing.assert_array_equal(found["y"][0], NUMBERS.reshape(6, 2) > 0)


def test_the_npu_compares_if_the_host_may_not():
    """It takes 1e-9 for 0, and says so."""
    proto = beside_a_product(y=op.Cast(F, to=BOOL), z=op.Greater(F, 0.1, name="limit"))
    net = compiled(proto, partition="none", input_range={"f": (-65504, 65504)})
    lines = [line for line in net.warnings if "rounds to binary16" in line]
    assert len(lines) == 2 and all("--partition ends" in line for line in lines) and lines[1].startswith("limit:")
    f = np.clip(NUMBERS, -65504, 65504)
    found = net.run(inputs_of(f))
    np.testing.assert_array_equal(found["y"][0], f.astype(np.float16) != 0)
    np.testing.assert_array_equal(found["z"][0], f.astype(np.float16) > np.float16(0.1))
    assert (found["y"][0] != (f != 0)).any() and (found["z"][0] != (f > np.float32(0.1))).any()


def test_the_npu_compares_if_nothing_else_is_left():
    net = compiled(model_of(op.Less(X, given("n", 4, name="z"))))
    (line,) = (line for line in net.warnings if "rounds to binary16" in line)
    assert "--partition" not in line and net.package.front is None


def test_bytes_stay_on_the_npu():
    """Binary16 has all of them, and the constant."""
    e = op.Cast(given("n", 6, name="i", kind=UINT8), to=FLOAT)
    for limit, front in ((17.5, []), (254.99999, ["Compare"])):
        net = compiled(beside_a_product(y=op.Cast(op.Greater(e, limit), to=FLOAT)))
        i = np.array([[0, 17, 18, 254, 255, 3]], np.uint8)
        np.testing.assert_array_equal(net.run({"x": np.ones((1, 4)), "i": i})["y"], i > np.float32(limit))
        assert ops(net.package.front) == front


def test_a_state_is_compared_on_the_npu(tmp_path):
    """It is a number of binary16 already."""
    past = given("n", 12, name="past")
    proto = beside_a_product(next=op.Add(F, past), y=op.Cast(op.Greater(past, 0.5), to=FLOAT))
    net = compiled(proto, states={"past": "next"})
    assert net.package.front is None and not [line for line in net.warnings if "compares" in line]
    net.save(tmp_path / "net")
    for each in (net, concord.load(tmp_path / "net")):
        x = {"x": np.ones((3, 4), np.float32), "f": np.full((3, 12), 0.5, np.float32)}
        np.testing.assert_array_equal(each.run(x)["y"], np.array([0, 0, 1])[:, np.newaxis] * np.ones(12))


@pytest.mark.slow
def test_a_network_that_is_compiled_in_part(tmp_path):
    """Products that do not fit together, and truth values of the input in front and behind."""
    x = given("n", 12)
    mask = op.Cast(op.Greater(x, 0.1), to=FLOAT)
    b = op.Relu(op.Gemm(op.Mul(x, mask), floats(12, 400)))
    net = concord.compile(
        model_of(y=op.Gemm(b, floats(400, 160) / 20), mask=mask, opset=18), preset="ecp5-25f", partition="any"
    )
    x = np.nextafter(np.float32(0.1), np.random.default_rng(2).choice([-1, 1], (4, 12)).astype(np.float32))
    net.save(tmp_path / "net")
    for each in (net, concord.load(tmp_path / "net")):
        np.testing.assert_array_equal(each.run({"x": x})["mask"], x > np.float32(0.1))


@pytest.mark.slow
def test_derived_software_and_folders_have_them(tmp_path):
    t = op.Greater(F, 0.1)
    y = op.MatMul(op.Cast(t, to=FLOAT), floats(12, 4))
    net = compiled(beside_a_product(y=y, t=t, s=op.Sign(F)))
    f = np.stack([NUMBERS, np.nextafter(NUMBERS, np.float32(1)), np.nextafter(NUMBERS, np.float32(-1))])
    inputs = {"x": np.ones((3, 4), np.float32), "f": f}
    want = {name: values.astype(np.float64) for name, values in net.run(inputs).items()}
    np.testing.assert_array_equal(want["t"], f > np.float32(0.1))
    for backend in (on_numpy, on_onnxruntime):
        found, _ = backend(derive_package(net.package), tmp_path, inputs)
        same({name: found[name].astype(np.float64) for name in want}, want)
    net.save(tmp_path / "net")
    again = concord.load(tmp_path / "net").run(inputs)
    same({name: values.astype(np.float64) for name, values in again.items()}, want)
    assert recompile(tmp_path / "net").image.program == net.package.image.program


@needs_torch
@pytest.mark.slow
def test_pytorch_has_them(tmp_path):
    net = compiled(beside_a_product(s=op.Sign(F)))
    found, _ = on_torch(derive_package(net.package), tmp_path, inputs_of())
    np.testing.assert_array_equal(found["s"][0], np.sign(NUMBERS))


def test_an_input_that_nothing_reads_is_left_out():
    proto = beside_a_product()
    proto.graph.input.append(helper.make_tensor_value_info("f", FLOAT, ["n", 12]))
    net = compiled(proto)
    assert net.inputs == {"x": (4,)} and net.run({"x": np.ones((1, 4))})["m"].shape == (1, 4)


def test_the_parts_of_a_graph_are_consistent():
    for seed in range(60):
        proto, _ = whole.network(np.random.default_rng(seed), floats=True)
        graph = import_model(proto.SerializeToString())
        for partition in ("ends", "any"):
            parts = without_front(replace(graph, partition=partition))
            for part in filter(None, (parts.front, parts.rest)):
                part.check()
            assert not parts.rounded_comparisons
