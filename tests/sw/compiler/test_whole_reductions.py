"""Reductions and running sums of whole numbers, beside NumPy's whole numbers without an end."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import concord
from concord.derive.model import derive_package
from support.derived_backends import needs_torch, on_numpy, on_onnxruntime, on_torch
from support.derived_modules import same
from support.fuzz import whole
from support.onnx_models import info, ints, node, onnxruntime_results

SHAPE = (1, 3, 2, 7)
REDUCTIONS = ("ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceSum")


def network(nodes, kind, constants):
    """Nodes that read whole numbers ``z``, beside a product; every node has one output."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), np.eye(4).ravel())
    values = [helper.make_tensor(name, TensorProto.INT64, x.shape, x) for name, x in constants.items()]
    outputs = [info("m", (1, 4)), *(info(item.output[0], None, kind) for item in nodes)]
    inputs = [info("x", (1, 4)), info("z", SHAPE, kind)]
    product = node("MatMul", ["x", "w"], ["m"])
    graph = helper.make_graph([product, *nodes], "net", inputs, outputs, [weight, *values])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def drawn(rng):
    """Every operator with random axes and attributes; what it computes without an end, of ``z`` as Python's numbers."""
    nodes, constants, exact = [], {}, {}
    for op in (*REDUCTIONS, *REDUCTIONS, "CumSum", "CumSum", "CumSum"):
        y = f"y{len(nodes)}"
        if op == "CumSum":
            axis, exclusive, reverse = int(rng.integers(-3, 4)), int(rng.integers(2)), int(rng.integers(2))
            constants[f"a{y}"] = np.array(axis)
            nodes.append(node(op, ["z", f"a{y}"], [y], exclusive=exclusive, reverse=reverse))
            exact[y] = lambda z, axis=axis, ends=(exclusive, reverse): running_sum(z, axis, *ends)
            continue
        axes = tuple(sorted(rng.choice(3, rng.integers(1, 4), replace=False) + 1))
        constants[f"a{y}"], keep = ints(*axes), int(rng.integers(2))
        nodes.append(node(op, ["z", f"a{y}"], [y], keepdims=keep))
        exact[y] = lambda z, op=op, axes=axes, keep=bool(keep): reduced(op, z, axes, keep)
    return nodes, constants, exact


def reduced(op, z, axes, keep):
    """A reduction of Python's numbers."""
    terms = {"ReduceSumSquare": z * z, "ReduceL1": abs(z)}.get(op, z)
    if op == "ReduceProd":
        return np.multiply.reduce(terms, axes, keepdims=keep)
    total = np.add.reduce(terms, axes, keepdims=keep)
    if op != "ReduceMean":
        return total
    count = int(np.prod([z.shape[axis] for axis in axes]))
    return abs(total) // count * np.where(total < 0, -1, 1)


def running_sum(z, axis, exclusive, reverse):
    """A running sum of Python's numbers."""
    z = np.moveaxis(z, axis, 0)[:: -1 if reverse else 1]
    y = np.cumsum(z, 0)
    y = y - z if exclusive else y
    return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)


def wrapped(y, kind):
    """The numbers of a type that these are when they overflow."""
    low, count = int(np.iinfo(kind).min), 1 << 8 * np.dtype(kind).itemsize
    return ((np.asarray(y, object) - low) % count + low).astype(kind)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_they_wrap_around_at_the_ends_of_their_type(kind):
    rng = np.random.default_rng(sum(map(ord, kind)))
    nodes, constants, exact = drawn(rng)
    net = concord.compile(network(nodes, kind, constants).SerializeToString(), preset="ecp5-85f")
    z = whole.numbers(rng, kind, (8, *SHAPE[1:]))
    found = net.run({"x": np.ones((8, 4), np.float32), "z": z})
    for item in nodes:
        want = np.concatenate([wrapped(exact[item.output[0]](x[np.newaxis].astype(object)), kind) for x in z])
        assert found[item.output[0]].dtype == kind
        np.testing.assert_array_equal(found[item.output[0]].ravel(), want.ravel(), str(item))


def test_the_mean_of_numbers_at_the_end_is_that_of_onnxruntime():
    """Their sum leaves the type, their mean does not."""
    proto = network([node("ReduceMean", ["z", "a"], ["y"])], "int32", {"a": ints(1, 2, 3)})
    z = np.full((1, *SHAPE[1:]), -(1 << 31), np.int32)
    z[0, 0, 0, :3] = 1, 5, -3
    inputs = {"x": np.ones((1, 4), np.float32), "z": z}
    found = concord.compile(proto.SerializeToString(), preset="ecp5-85f").run(inputs)["y"]
    np.testing.assert_array_equal(found, onnxruntime_results(proto, inputs, None)[1])


def test_numbers_of_64_bits_are_those_of_onnxruntime_below_the_end():
    rng = np.random.default_rng(64)
    nodes, constants, exact = drawn(rng)
    proto = network(nodes, "int64", constants)
    net = concord.compile(proto.SerializeToString(), preset="ecp5-85f")
    inputs = {"x": np.ones((1, 4), np.float32), "z": rng.integers(-2, 3, SHAPE)}
    inputs["z"][0, 0, 0, 0] = (1 << 26) - 5
    found = net.run(inputs)
    for item, want in zip(nodes, onnxruntime_results(proto, inputs, None)[1:], strict=True):
        np.testing.assert_array_equal(found[item.output[0]].ravel(), want.ravel(), str(item))
        np.testing.assert_array_equal(want, exact[item.output[0]](inputs["z"].astype(object)))


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        ("ReduceProd", [1 << 27, 1 << 26]), ("ReduceProd", [1 << 40, 1 << 40]), ("ReduceSumSquare", [1 << 26, 1 << 26]),
        ("ReduceSumSquare", [-(1 << 27)]), ("ReduceL1", [1 << 52, -(1 << 52)]), ("ReduceMean", [1 << 52, 1 << 52]),
        ("CumSum", [1 << 52, 1 << 52]),
    ],
)  # fmt: skip
def test_numbers_of_64_bits_that_double_precision_does_not_hold_are_an_error(op, numbers):
    axes = np.array(3) if op == "CumSum" else ints(3)
    proto = network([node(op, ["z", "a"], ["y"])], "int64", {"a": axes})
    net = concord.compile(proto.SerializeToString(), preset="ecp5-85f")
    z = np.ones(SHAPE, np.int64)
    z[0, 0, 0, : len(numbers)] = numbers
    with pytest.raises(ValueError, match=r"whole numbers must stay below 2\^53 in magnitude"):
        net.run({"x": np.ones((1, 4), np.float32), "z": z})


@pytest.mark.slow
@pytest.mark.parametrize("backend", [on_numpy, on_onnxruntime, pytest.param(on_torch, marks=needs_torch)])
def test_derived_software_has_the_same_numbers(backend, tmp_path):
    rng = np.random.default_rng(5)
    for kind in ("int32", "int16", "int64"):
        nodes, constants, _ = drawn(rng)
        net = concord.compile(network(nodes, kind, constants).SerializeToString(), preset="ecp5-85f")
        z = whole.numbers(rng, kind, (3, *SHAPE[1:])) if kind != "int64" else rng.integers(-3, 4, (3, *SHAPE[1:]))
        inputs = {"x": np.ones((3, 4), np.float32), "z": z}
        found, _ = backend(derive_package(net.package), tmp_path, inputs)
        same(
            {name: found[name].astype(np.float64) for name in found},
            {name: values.astype(np.float64) for name, values in net.run(inputs).items()},
        )
