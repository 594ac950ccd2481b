"""Functions and arithmetic of elements, against onnxruntime."""

import warnings

import numpy as np
import pytest

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.functions import by_onnx_name
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, ops, unary

RNG = np.random.default_rng(7)
X = given(1, 3, 5)


FUNCTIONS = [
    *((op, {}) for op in by_onnx_name()), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 0.7}),
    ("HardSigmoid", {"alpha": 0.3}), ("Selu", {}), ("Selu", {"alpha": 1.2, "gamma": 0.7}), ("Celu", {"alpha": 2.0}),
    ("Neg", {}), ("Abs", {}), ("Relu", {}), ("Mish", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), FUNCTIONS)
def test_function(name, attrs):
    record = by_onnx_name().get(name)
    proto = unary(name, opset=18, **attrs)
    positive = record is not None and record.constant_below_zero
    agrees(proto, {"x": np.random.default_rng(1).uniform(0.1, 9, (3, 3, 5))} if positive else None)


@pytest.mark.parametrize("attrs", [{}, {"approximate": "tanh"}])
def test_gelu(attrs):
    assert ops(agrees(unary("Gelu", opset=20, **attrs))) == ["Function"]


def written_out(order="x, then half", factor=0.5, root=2**0.5, read=False):
    """A Gelu as exporters write it: ``a`` is 1 + erf(x / sqrt(2)), which others may read."""
    a = op.Add(op.Erf(op.Div(X, root)), 1.0)
    y = {
        "x, then half": lambda: op.Mul(op.Mul(X, a), factor),
        "half, then x": lambda: op.Mul(op.Mul(a, factor), X),
        "half of x first": lambda: op.Mul(a, op.Mul(X, factor)),
        "x twice": lambda: op.Mul(op.Mul(X, a), X),
        "half twice": lambda: op.Mul(op.Mul(a, factor), op.Mul(X, factor)),
    }[order]()
    return model_of(y=y, **({"z": op.Neg(a)} if read else {}))


@pytest.mark.parametrize("order", ["x, then half", "half, then x", "half of x first"])
def test_a_gelu_that_is_written_out(order):
    graph = agrees(written_out(order))
    assert ops(graph) == ["Function"] and graph.nodes[0].attrs["functions"] == (("gelu", {}),)


@pytest.mark.parametrize(
    "other", [{"order": "x twice"}, {"order": "half twice"}, {"factor": 0.4}, {"root": 1.5}, {"read": True}], ids=str
)
def test_what_is_no_gelu(other):
    graph = agrees(written_out(**other))
    assert not any(("gelu", {}) in item.attrs.get("functions", ()) for item in graph.nodes)


@pytest.mark.parametrize("name", ["Sqrt", "Log", "Reciprocal"])
def test_function_of_positive_numbers(name):
    x = {"x": np.abs(RNG.standard_normal((4, 3, 5))) + 0.1}
    assert ops(agrees(unary(name), x)) == ["Function"]


@pytest.mark.parametrize("slope", [(), (1,), (3, 1)])
def test_prelu(slope):
    agrees(unary("PRelu", constants={"slope": np.abs(floats(*slope))}))


@pytest.mark.parametrize(
    ("bounds", "kind"), [((0, 6), "Clip"), ((-0.5, None), "Clip"), ((None, 0.5), "Clip"), ((0, None), "Relu")]
)
@pytest.mark.parametrize("opset", [8, 13])
def test_clip(bounds, kind, opset):
    if opset == 8:
        proto = unary(
            "Clip", 8, **{name: float(x) for name, x in zip(("min", "max"), bounds, strict=True) if x is not None}
        )
    else:
        proto = model_of(op.Clip(X, *(None if x is None else float(x) for x in bounds)), opset=13)
    assert ops(agrees(proto)) == [kind]


def test_infinite_limits_are_none():
    constants = {"min": np.float32(-np.inf), "max": np.float32(np.finfo(np.float32).max)}
    assert ops(agrees(unary("Clip", constants=constants))) == ["Reshape"]


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (1, 3, 5), (2, 1, 3, 5)])
@pytest.mark.parametrize("first", [True, False])
def test_arithmetic_with_a_constant(name, shape, first):
    constant = floats(*shape)
    y = getattr(op, name)(*((constant, X) if first else (X, constant)))
    assert ops(agrees(y)) == {"Div": ["Function", "Mul"] if first else ["Mul"]}.get(name, [name])


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shape", [(5,), (3, 1), (2, 1, 1, 5)])
def test_arithmetic_of_two_tensors(name, shape):
    x = {"x": RNG.standard_normal((4, 3, 5)), "z": 1 + RNG.random((4, *shape[shape[0] == 1 :]))}
    agrees(getattr(op, name)(X, given(*shape, name="z")), x)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
def test_several_operands(name):
    x = given(1, 3)
    agrees(getattr(op, name)(x, floats(3), given(2, 3, name="z")))
    agrees(getattr(op, name)(x))


@pytest.mark.parametrize(
    ("exponent", "kinds"),
    [
        (1, ["Reshape"]), (2, ["Mul"]), (3, ["Mul", "Mul"]), (0.5, ["Function"]), (-1, ["Function"]),
        ([[0.5], [0.5], [0.5]], ["Function"]),
        ([2, 0, 1, 3, 1], ["Mul", "Add"] + ["Mul", "Add", "Mul"] * 2),
        ([[1], [2], [2]], ["Mul", "Add", "Mul"]),
    ],
)  # fmt: skip
def test_power(exponent, kinds):
    x = {"x": np.abs(RNG.standard_normal((4, 3, 5))) + 0.1}
    assert ops(agrees(unary("Pow", constants={"e": np.float32(exponent)}), x)) == kinds


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_dropout_that_drops_nothing(ratio):
    proto = unary("Dropout", constants={"ratio": np.float32(ratio), "training_mode": np.array(True)})
    if ratio:
        with pytest.raises(UnsupportedModel, match="must be in inference mode"):
            import_model(proto)
    else:
        assert ops(agrees(proto)) == ["Reshape"]


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 1, 2, -1])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_softmax(name, opset, axis):
    agrees(unary(name, opset, shape=(1, 3, 4), **({} if axis is None else {"axis": axis})))


@pytest.mark.parametrize(
    ("name", "nodes"), [("Sub", ["Mul"]), ("Max", ["Reshape"]), ("Min", ["Reshape"]), ("Add", ["Add"])]
)
def test_a_tensor_and_itself(name, nodes):
    assert ops(agrees(getattr(op, name)(X, X))) in (nodes, [])


MASK = np.arange(12).reshape(1, 3, 4) % 5 < 2


@pytest.mark.parametrize("names", ["xc", "cx", "xz"])
def test_a_constant_mask_chooses(names):
    x, z = (given(1, 3, 4, name=name) for name in "xz")
    operands = {"x": x, "z": z, "c": floats(1, 3, 4)}
    agrees(op.Where(MASK, *(operands[name] for name in names)))


@pytest.mark.parametrize("constant", [np.zeros((4, 3)), np.ones((4, 3)), np.zeros((2, 1, 3)), np.zeros(3)])
@pytest.mark.parametrize("first", [True, False])
def test_what_a_mask_chooses_from_is_broadcast(first, constant):
    x, mask = given(1, 3), np.array([[True, False, True]])
    agrees(op.Where(mask, constant, x) if first else op.Where(mask, x, constant))


@pytest.mark.parametrize("shape", [(4, 3), (2, 1, 3), (3,)])
@pytest.mark.parametrize("exponent", [0.5, -1, 1, 2, 3])
def test_exponents_broadcast_what_they_are_of(exponent, shape):
    x = {"x": np.abs(RNG.standard_normal((4, 3))) + 0.1}
    agrees(unary("Pow", shape=(1, 3), constants={"e": np.full(shape, exponent, np.float32)}), x)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 0, 2])
def test_triangles(upper, k):
    constants = {} if k is None else {"k": np.int64(k)}
    agrees(unary("Trilu", shape=(1, 2, 4, 3), constants=constants, upper=upper))


@pytest.mark.parametrize("exponent", [0.25, 0.5, 0.75, 1.5, 2.25, -0.25, -0.5, -1.0, -1.5, -2.0, -2.75])
def test_powers_of_fractions(exponent):
    x = np.random.default_rng(1).uniform(0.5, 4, (3, 3, 5))
    agrees(unary("Pow", constants={"e": np.float32(exponent)}), {"x": x})


@pytest.mark.parametrize("exponent", [0.3, 2.3, -1.7, -16.0, 17.0, [0.3, -0.3, 16.0, 2.0, 0.0]])
def test_other_powers(exponent):
    """By a logarithm; zero to a positive power is zero."""
    x = np.random.default_rng(1).uniform(0.5, 1.5, (3, 3, 5))
    if np.min(exponent) > 0:
        x[:, 1] = 0.0
    agrees(unary("Pow", constants={"e": np.asarray(exponent, np.float32)}), {"x": x})


def test_computed_powers():
    rng = np.random.default_rng(1)
    x = {"x": rng.uniform(0.1, 4, (4, 3, 5)), "e": rng.uniform(-2, 2, (4, 5))}
    power = op.Pow(X, given(1, 5, name="e"))
    agrees(power, x)
    x = {"x": np.zeros((1, 3, 5)), "e": rng.uniform(0.5, 2, (1, 5))}
    agrees(power, x)


@pytest.mark.parametrize(("base", "exponent"), [(-0.5, 2.0), (-(2.0**-24), 0.5), (0.0, 0.0), (0.0, -0.5)])
def test_powers_that_are_none_raise_a_flag(base, exponent):
    """Negative numbers, also the least, and zero to what is not positive; other results stay as they are."""
    rng = np.random.default_rng(2)
    many = {"x": rng.uniform(0.25, 4, (40, 8)), "e": rng.uniform(-1, 2, (40, 8))}
    proto = model_of(op.Pow(given(1, 8), given(1, 8, name="e")))
    net = concord.compile(proto, preset="ecp5-85f", calibrate=many, quick=True)
    x = {name: values[:1].copy() for name, values in many.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", concord.FlagWarning)
        good = net.run(x)["y"]
    assert np.abs(good - x["x"] ** x["e"]).max() < 0.02 * good.max()
    x["x"][0, 3], x["e"][0, 3] = base, exponent
    with pytest.warns(concord.FlagWarning, match="HALF_OVERFLOW|became an infinity"):
        result = net.run(x)["y"][0]
    assert not np.isfinite(result[3]) and np.array_equal(np.delete(result, 3), np.delete(good[0], 3))


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 1, 2, -1])
def test_hardmax(opset, axis):
    """The first of equal elements."""
    rng = np.random.default_rng(1)
    x = {"x": rng.integers(-2, 3, (6, 3, 4)).astype(float)}
    agrees(unary("Hardmax", opset, shape=(1, 3, 4), **({} if axis is None else {"axis": axis})), x, tolerance=1e-9)


def test_powers_of_a_constant():
    agrees(op.Pow(2.0, X))
    with pytest.raises(UnsupportedModel, match="base must be positive, not -2"):
        import_model(model_of(op.Pow(-2.0, X)))
