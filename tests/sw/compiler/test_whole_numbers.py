"""Whole numbers and truth values are those of onnxruntime, to the last one, or a message says that they are not."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import concord
from concord import onnx_backend
from concord.derive.model import derive_package
from support.derived_backends import on_numpy, on_onnxruntime
from support.derived_modules import same
from support.fuzz import whole
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results

PRESET = "ecp5-85f"


def ended(seed, floats=False, **options):
    """A random network and a sample; outputs beside those of onnxruntime, ``None`` where it is refused."""
    proto, inputs = whole.network(np.random.default_rng(seed), floats)
    try:
        net = concord.compile(proto.SerializeToString(), preset=PRESET, **options)
        found = net.run(inputs)
    except ValueError:
        return None, inputs, {}
    wanted = zip([output.name for output in proto.graph.output], onnxruntime_results(proto, inputs, None), strict=True)
    return net, inputs, {name: (found[name], want) for name, want in wanted if name != "m"}


def wrong(results):
    """Names of outputs with other numbers, or of another type."""
    return [
        name
        for name, (found, want) in results.items()
        if not np.array_equal(found.ravel(), want.ravel()) or found.dtype != want.dtype
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "floats"), [*((k, False) for k in range(0, 120, 20)), (0, True), (20, True)])
def test_random_networks(first, floats, tmp_path):
    """On the emulator, and as derived software."""
    right = 0
    for seed in range(first, first + 20):
        net, inputs, results = ended(seed, floats)
        assert wrong(results) == [], seed
        if net is not None and seed % 4 == 0:
            emulated = {name: found for name, (found, _) in results.items()}
            for backend in (on_numpy, on_onnxruntime):
                derived, _ = backend(derive_package(net.package), tmp_path, inputs)
                same({name: derived[name] for name in emulated}, emulated)
                assert all(derived[name].dtype == found.dtype for name, found in emulated.items())
        right += net is not None
    assert right >= 14


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1586, 2815])
def test_padded_bytes_are_moved_whole(seed):
    """A padding of lanes by a product rounds 255 to 254."""
    *_, results = ended(seed, partition=["ends", "any"][seed % 2])
    assert results and wrong(results) == []


@pytest.mark.deep
@pytest.mark.parametrize(("first", "floats"), [(first, first >= 2000) for first in range(1000, 3000, 100)])
def test_more_random_networks(first, floats):
    for seed in range(first, first + 100):
        *_, results = ended(seed, floats, partition=["ends", "any"][seed % 2])
        assert wrong(results) == [], seed


def network(name, kind, *constants):
    """An operator on whole numbers ``z``, beside a product."""
    z, kind = given(1, 3, name="z", kind=kind), helper.tensor_dtype_to_np_dtype(kind)
    y = getattr(op, name)(z, *(np.asarray(value, kind) for value in constants))
    return model_of(m=op.MatMul(given(1, 4), np.eye(4)), y=y, opset=18)


@pytest.mark.parametrize(
    ("name", "constant", "numbers"),
    [
        ("Add", 1, [(1 << 53) - 2, 2049, -(1 << 53)]), ("Mul", 3, [1 << 51, 0, -(1 << 51)]),
        ("Sub", -(1 << 52), [(1 << 52) - 1, 5, 1 << 31]),
    ],
)  # fmt: skip
def test_what_double_precision_does_not_hold_is_an_error(name, constant, numbers):
    """All numbers but the last one have exact results."""
    net = concord.compile(network(name, TensorProto.INT64, constant).SerializeToString(), preset=PRESET)
    x, numbers = np.ones((1, 4), np.float32), np.array([numbers])
    exact = np.where(np.arange(3) < 2, numbers, 0) if name != "Mul" else numbers // 4
    want = {"Add": exact + constant, "Mul": exact * constant, "Sub": exact - constant}[name]
    np.testing.assert_array_equal(net.run({"x": x, "z": exact})["y"], want)
    last = {"Add": [0, 0, (1 << 53) - 1], "Mul": [0, 1 << 52, 0], "Sub": [0, 0, 1 << 52]}[name]
    with pytest.raises(ValueError, match=r"whole numbers must stay below 2\^53 in magnitude"):
        net.run({"x": x, "z": np.array([last])})


@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_products_of_32_bits_wrap_around(kind):
    factor = np.iinfo(kind).max - 12345
    proto = network("Mul", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), factor)
    z = np.array([[np.iinfo(kind).max, 65537, np.iinfo(kind).min + 77]], kind)
    inputs = {"x": np.ones((1, 4), np.float32), "z": z}
    *_, y = onnx_backend.prepare(proto).run(inputs)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y.reshape(z.shape), z * kind(factor))
    assert y.dtype == kind
