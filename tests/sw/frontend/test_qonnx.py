"""Operators of QONNX: codes are those of the operators themselves, which are written out here."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from concord.frontend import UnsupportedModel, import_model
from concord.frontend.codes import UnquantisedModel, load
from concord.frontend.load import load as load_proto
from concord.graph.execute import run

DOMAIN = "qonnx.custom_op.general"
SAMPLES = np.random.default_rng(1).normal(0, 3, (64, 8)).astype(np.float32)


class Quant(OpRun):
    """The operator as its specification has it."""

    op_domain = DOMAIN

    def _run(self, x, scale, zero, bits, narrow=None, rounding_mode=None, signed=None):
        bits = int(np.asarray(bits).item())
        signed, narrow = 1 if signed is None else signed, narrow or 0
        if bits == 1 and signed:
            return (np.where(x >= 0, scale, -scale).astype(np.float32),)
        low = -(2 ** (bits - 1)) + narrow if signed else 0
        high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
        y = (x / scale + zero).astype(np.float32).clip(low, high)
        size, sign = np.abs(y), np.sign(y)
        rounded = {
            "ROUND": np.rint(y), "CEIL": np.ceil(y), "FLOOR": np.floor(y), "UP": sign * np.ceil(size),
            "DOWN": sign * np.floor(size), "HALF_UP": sign * np.floor(size + 0.5),
            "HALF_DOWN": sign * np.ceil(size - 0.5), "HALF_EVEN": np.rint(y),
        }[rounding_mode or "ROUND"]  # fmt: skip
        return (((rounded - zero) * scale).astype(np.float32),)


class BipolarQuant(OpRun):
    """The operator as its specification has it."""

    op_domain = DOMAIN

    def _run(self, x, scale):
        return (np.where(x >= 0, scale, -scale).astype(np.float32),)


def reference(proto, x):
    """What the operators themselves make."""
    return ReferenceEvaluator(proto, new_ops=[Quant, BipolarQuant]).run(None, {"x": x})


class Maker:
    """A model of QONNX, operator by operator."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], {}

    def constant(self, value, dtype=np.float32):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weights(self, *shape):
        return self.constant(self.rng.normal(0, 1, shape))

    def add(self, op, *inputs, domain="", **attrs):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], f"{op} {name}", domain=domain, **attrs))
        return name

    def quant(self, x, scale, bits, zero=0, op="Quant", domain=DOMAIN, **attrs):
        operands = (self.constant(value) for value in (scale, zero, bits))
        return self.add(op, x, *operands, domain=domain, **attrs)

    def model(self, *outputs, shape=("N", 8), known=True):
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info(name, 1, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )  # fmt: skip
        imports = [helper.make_opsetid("", 13), *([helper.make_opsetid(DOMAIN, 1)] if known else [])]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def numbers(network, x):
    """What the codes of the outputs stand for."""
    made = network.run({"x": x})
    return [
        (made[name].astype(int) - network.scheme(name).zero).astype(np.float32) * np.float32(network.scheme(name).scale)
        for name in network.graph.outputs
    ]


@pytest.mark.parametrize("attrs", [{}, {"narrow": 1}, {"signed": 0}, {"signed": 0, "narrow": 1}], ids=str)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 7, 8, 12, 16])
def test_codes_of_an_input(bits, attrs):
    """All codes, and both sides of each of their ends."""
    maker = Maker()
    proto = maker.model(maker.quant("x", 0.25, bits, **attrs))
    ends = np.float32([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2**bits - 1])
    x = np.concatenate([np.linspace(-20, 20, 997, dtype=np.float32), *(ends * 0.25 + d for d in (-0.3, -0.1, 0, 0.3))])
    x = x[: len(x) // 8 * 8].reshape(-1, 8)
    network = load(proto)
    assert np.array_equal(*numbers(network, x), *reference(proto, x))
    assert next(iter(network.graph.schemes.values())).bits == bits or attrs == {"signed": 0, "narrow": 1}


def layers(seed, bits):
    """Dense layers of few bits, weights by channel, with an activation of codes without sign, and a sum."""
    maker = Maker(seed)
    a = maker.quant("x", 0.25, 8)
    scales = 2.0 ** -maker.rng.integers(2, 4, (6, 1))
    w = maker.quant(maker.weights(6, 8), scales, bits, narrow=1)
    b = maker.quant(maker.weights(6), scales.ravel() / 4, 16)
    c = maker.add("Relu", maker.add("Gemm", a, w, b, transB=1))
    d = maker.quant(c, 0.5, bits, signed=0)
    v = maker.quant(maker.weights(6, 6), 0.125, bits)
    e = maker.quant(maker.add("MatMul", d, v), 0.5, bits)
    f = maker.quant(d, 0.5, bits)
    return maker.model(maker.quant(maker.add("Add", e, f), 1.0, bits))


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(4))
def test_networks(seed, bits):
    proto = layers(seed, bits)
    (made,), (want,) = numbers(load(proto), SAMPLES), reference(proto, SAMPLES)
    assert np.array_equal(made, want) and len(np.unique(want)) >= min(bits, 4)


@pytest.mark.parametrize("mode", ["ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN", "half_even"])
def test_constants_are_rounded_in_every_way(mode):
    maker = Maker()
    values = np.arange(-40, 40).reshape(8, 10) / 8
    maker.constants["w"] = values.astype(np.float32)
    w = maker.quant("w", 0.25, 4, rounding_mode=mode)
    proto = maker.model(maker.add("MatMul", "x", w))
    (want,) = reference(maker.model(w), SAMPLES) if mode != "half_even" else [np.rint(values * 4).clip(-8, 7) / 4]
    assert np.array_equal(import_model(proto).nodes[0].attrs["weight"], want.T)
    assert import_model(proto).weight_quantization


@pytest.mark.parametrize("op, bits", [("BipolarQuant", 1), ("Quant", 1), ("IntQuant", 3)])
def test_weights_of_signs(op, bits):
    maker = Maker()
    w = maker.weights(8, 4)
    if op == "BipolarQuant":
        w = maker.add(op, w, maker.constant(0.5), domain=DOMAIN)
    else:
        w = maker.quant(w, 0.5, bits, op=op)
    proto = maker.model(maker.quant(maker.add("MatMul", maker.quant("x", 0.25, 6), w), 0.25, 8))
    if op == "IntQuant":
        for node in proto.graph.node:
            node.op_type = node.op_type.replace("IntQuant", "Quant")
    assert np.array_equal(*numbers(load(proto), SAMPLES), *reference(proto, SAMPLES))


def test_values_in_block_floating_point():
    """Few bits are computed: the graph has the values of the operators."""
    maker = Maker()
    proto = maker.model(maker.quant("x", 0.5, 4, zero=2))
    assert np.array_equal(run(import_model(proto), {"x": SAMPLES})["t0"], *reference(proto, SAMPLES))


@pytest.mark.parametrize("domain", ["onnx.brevitas", "finn.custom_op.general", DOMAIN])
def test_domains_that_a_file_does_not_name(domain):
    maker = Maker()
    proto = maker.model(maker.quant("x", 0.5, 4, domain=domain), known=False)
    assert [node.op_type for node in load_proto(proto).graph.node] == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    onnx.checker.check_model(load_proto(proto))


def changed(**more):
    """A Quant of an input with other operands or attributes."""

    def make(maker):
        settings = {"scale": 0.5, "bits": 4} | more
        return maker.quant("x", settings.pop("scale"), settings.pop("bits"), **settings)

    return make


@pytest.mark.parametrize(
    "make, reason",
    [
        (changed(rounding_mode="FLOOR"), "rounding_mode must be ROUND, not FLOOR, of what is computed"),
        (changed(rounding_mode="NONE"), "rounding_mode must be one of ROUND, HALF_EVEN, .*, not NONE"),
        (changed(zero=1), "zero point must be even, not 1: halves are rounded"),
        (changed(zero=9), "zero point must be one of the codes -8 to 7, not 9"),
        (changed(zero=0.5), r"zero point must be one whole number, not \[0.5\]"),
        (changed(bits=17), "bitwidth must be in 1..16, not 17"),
        (changed(bits=[3, 4]), r"bitwidth must be one whole number, not \[3.0, 4.0\]"),
        (changed(bits=1), "codes -1 and 1 must be of constants, as no code stands for 0"),
        (lambda maker: maker.quant(maker.weights(8, 4), np.ones(3), 4),
         r"scale must go with what it divides, not be of shape \[3\] and \[8, 4\]"),
        (changed(scale=np.zeros(0)), "scale must be positive and finite"),
        (changed(scale=0), "scale must be positive and finite"),
        (changed(scale=[[1, 2], [3, 4]]), r"scale must vary along one axis at most, not of shape \[2, 2\]"),
        (lambda maker: maker.quant("x", 1, 4, domain=DOMAIN) and maker.add("Quant", "x", "x", "x", "x", domain=DOMAIN),
         "bitwidth must be a constant, not 'x'"),
    ],
)  # fmt: skip
def test_what_has_no_standard_form(make, reason):
    maker = Maker()
    proto = maker.model(make(maker))
    wanted = rf":\n  Quant 'Q[^']*': {reason}.*; export it in the QDQ form$"
    with pytest.raises(UnsupportedModel, match=f"net cannot be compiled{wanted}"):
        import_model(proto)
    with pytest.raises(UnquantisedModel, match=f"cannot be executed in integers{wanted}"):
        load(proto)
