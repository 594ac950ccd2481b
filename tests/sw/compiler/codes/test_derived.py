"""Software with the codes of an NPU: files for NumPy, PyTorch, ONNX Runtime, and C, have those of its definition."""

from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.compiler.codes.package import compile_codes
from concord.derive.c.program import compiler
from concord.derive.c_exact.program import ExactProgram
from concord.derive.exact.registry import EXACT_BACKENDS
from concord.frontend.codes import load
from concord.integer.graph import IntegerGraph
from concord.integer.network import IntegerNetwork
from concord.integer.weighted_sums import IntegerMatMul, windows_of
from concord.networks.folder import save_package
from concord.prove.exact import prove_exact
from concord.spec.presets import ECP5_85F
from concord.transfer import Codes
from support.commands import run
from support.derived_backends import needs_c
from support.exact_files import LIBRARIES, different, module
from support.integer_nets import SHAPE, quantised, small_network
from support.rtl_configs import FED_SCALING
from support.trained import DATA, needs_data
from sw.frontend.codes.test_networks import TRAINED, trained_input


@pytest.fixture(scope="module", params=["int8", "uint8"])
def compiled(request, tmp_path_factory):
    """A small network on an NPU, and inputs at which factors of 16 bits and the scales of the network differ."""
    kind = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}[request.param]
    samples = np.random.default_rng(1).normal(size=(64, *SHAPE)).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    network = load(quantised(tmp_path_factory.mktemp("net"), small_network(), samples, **options))
    return compile_codes(network, FED_SCALING), {"x": samples}


@pytest.mark.parametrize("library", LIBRARIES)
def test_derived_files(compiled, library, tmp_path):
    codes, inputs = compiled
    assert different(codes.package.arithmetic, library, tmp_path, inputs) == 0


@needs_c
def test_c(compiled, tmp_path):
    codes, inputs = compiled
    assert equal_in_c(codes.package.arithmetic, inputs, tmp_path) > 0


@pytest.mark.slow
@needs_c
def test_commands(compiled, tmp_path):
    """Of a folder, files have the codes of the NPU, and with --exact those of the network; C is compared."""
    codes, inputs = compiled
    save_package(codes.package, tmp_path / "net", b"a model")
    made = {}
    for words in ((), ("--exact",)):
        code, output = run("derive", tmp_path / "net", "-o", tmp_path / "net.py", *words)
        assert code == 0 and "net.py: y " in output
        made[words] = module(tmp_path / "net.py").run(inputs)["y"]
        code, output = run("prove", tmp_path / "net", "--with", "c", "--samples", 5, *words)
        assert code == 0 and output.endswith("codes compared, 0 different\n")
    assert np.array_equal(made[()], codes.package.expected(inputs)["y"])
    assert np.array_equal(made["--exact",], codes.package.network.run(inputs)["y"])
    assert not np.array_equal(made[()], made["--exact",])
    for words in (("derive", tmp_path / "net", "--npu-part", "-o", tmp_path / "x.py"), ("prove", tmp_path / "net")):
        code, output = run(*words)
        assert code == 1 and "a network on codes must be given with" in output


def large(name):
    """Marks of a trained network that takes half a minute."""
    return [pytest.mark.deep] if name.startswith("vww") else []


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, file", [pytest.param(name, file, id=name, marks=large(name)) for name, file in TRAINED[:4]]
)
def test_trained_networks(name, file, tmp_path):
    """Every tensor in C, and the outputs in Python and ONNX."""
    x, few = trained_input(name, file)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    network = load(quantised(tmp_path, onnx.load(DATA / "models" / f"{name}.onnx"), few, **options))
    codes, inputs = compile_codes(network, ECP5_85F.replace(narrow_depth=8192)), {next(iter(network.graph.inputs)): x}
    for library in LIBRARIES[::2]:
        assert different(codes.package.arithmetic, library, tmp_path, inputs) == 0
    proof = prove_exact(codes.package.arithmetic, inputs)
    print(f"{name}: {sum(proof.compared.values())} codes compared in C, {sum(proof.different.values())} different")
    assert proof.same and sum(proof.compared.values()) > 40000


def equal_in_c(network, inputs, folder):
    """How many codes of the outputs were compared, all of them equal, with no flag."""
    graph = network.graph
    samples = network.codes(inputs)
    made, flags = ExactProgram(graph, folder, [compiler()], ("-O0",)).run(samples)
    want = network.run(samples)
    assert all(np.array_equal(made[name], want[name]) for name in want) and made.keys() == want.keys()
    assert not flags.any()
    return sum(array.size for array in want.values())


def graph_of(operation, shapes, schemes):
    """A network of one operation."""
    names = [f"x{k}" for k in range(len(shapes))]
    graph = IntegerGraph("net", shapes={name: (None, *shape) for name, shape in zip(names, shapes, strict=True)})
    graph.inputs.update({name: name for name in names})
    graph.schemes.update(dict(zip(names, schemes, strict=False)) | {"y": BYTES})
    graph.operations.append(operation)
    graph.outputs["y"] = "y"
    return IntegerNetwork.of(graph)


BYTES = Codes(8, 0.1, 3)


def everywhere(operation, shapes, folder, seed=0, schemes=(BYTES, BYTES)):
    """A graph of one operation has its codes in every form."""
    network, rng = graph_of(operation, shapes, schemes), np.random.default_rng(seed)
    inputs = {
        name: rng.integers(-128, 128, (50, *shape)).astype(np.int8)
        for name, shape in zip(network.graph.inputs, shapes, strict=True)
    }
    for library in LIBRARIES[::2]:
        assert different(network, library, folder, inputs) == 0
    if compiler():
        assert equal_in_c(network, inputs, folder) > 0
    assert len(np.unique(network.run(inputs)["y"])) > 5


@pytest.mark.slow
@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "size, kernel, strides, pads",
    [((6, 6), (2, 2), (2, 2), (0,) * 4), ((5, 4), (3, 2), (1, 2), (1, 1, 1, 1)), ((4, 3), (4, 3), (4, 3), (0,) * 4),
     ((7,), (3,), (2,), (1, 1))],
)  # fmt: skip
def test_means(size, kernel, strides, pads, last, up, tmp_path):
    """Windows with padding have another count, and so another factor; halves go to the even code, or up."""
    rank = len(size)
    counts = windows_of(np.ones((1, 1, *size), np.int64), kernel, strides, (1,) * rank, pads, 0)
    counts = counts.sum(axis=tuple(range(-rank, 0)))[0, 0]
    scales = [Fraction(1, int(count)) for count in counts.ravel()]
    if max(scales) == 1:
        scales = [scale / 2 for scale in scales]
    how = FactorRequantisation.of(scales, [Fraction(0)] * len(scales), (1, *counts.shape), (-5, -128, 127), up=up)
    shape, result = (3, *size), (3, *counts.shape)
    if last:
        shape, result = (*size, 3), (*counts.shape, 3)
    operation = WindowSums(name="mean", inputs=("x0",), output="y", kernel=kernel, strides=strides, pads=pads,
                           last=last, shape=result, zero_point=3, reach=131, requantisation=how)  # fmt: skip
    everywhere(operation, [shape], tmp_path)


@pytest.mark.parametrize("weights", [(64, 127), (-1, 100), (127, -127), (3, 0)])
def test_sums_of_two_tensors(weights, tmp_path):
    how = FactorRequantisation.of([Fraction(1, 129)], [Fraction(0)], (1, 1, 1), (3, -128, 127))
    operation = WeightedPair(name="sum", inputs=("x0", "x1"), output="y", weights=weights, zeros=(3, -7),
                             reaches=(131, 134), last=False, requantisation=how)  # fmt: skip
    everywhere(operation, [(2, 3, 4)] * 2, tmp_path, schemes=(BYTES, Codes(8, 0.2, -7)))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0, 1, 7, 15, 31])
@pytest.mark.parametrize("seed", range(3))
def test_factors_of_all_sizes(shift, seed, tmp_path):
    """Products by channel, with accumulators at which results are beside a half, and beyond all codes."""
    rng = np.random.default_rng(seed)
    factor = np.concatenate([[0, 1, 65535, 32768], rng.integers(0, 65536, 12)])
    fraction = np.concatenate([[-32768, 32767, 0], rng.integers(-32768, 32768, 13)])
    how = FactorRequantisation(factor, fraction, rng.integers(-300, 300, 16), shift, 3, -128, 127)
    weight, bias = rng.integers(-127, 128, (40, 16)), rng.integers(-(2 ** min(shift, 30)), 2 ** min(shift, 30) + 1, 16)
    operation = IntegerMatMul(name="product", inputs=("x0",), output="y", weight=weight, bias=bias, zero_point=3,
                              reach=131, requantisation=how)  # fmt: skip
    everywhere(operation, [(40,)], tmp_path, seed)


@pytest.mark.slow
def test_accumulators_of_more_than_32_bits(tmp_path):
    """An NPU that holds them has their codes, and so has software."""
    rng = np.random.default_rng(7)
    weight = rng.integers(-(1 << 20), 1 << 20, (60, 4))
    how = FactorRequantisation.of([Fraction(1, 1 << 25)], [Fraction(0)], (-1,), (3, -128, 127))
    operation = IntegerMatMul(name="product", inputs=("x0",), output="y", weight=weight, bias=np.zeros(4, np.int64),
                              zero_point=3, reach=131, requantisation=how)  # fmt: skip
    assert 1 << 32 < operation.largest_sum < how.largest_sum
    codes = np.sign(weight.T) * 127  # a sample for each of the greatest sums
    assert np.abs((codes - 3) @ weight).max() > 1 << 31
    everywhere(operation, [(60,)], tmp_path)
    network = graph_of(operation, [(60,)], [BYTES])
    assert different(network, "onnx", tmp_path, {"x0": codes.astype(np.int8)}) == 0
    assert equal_in_c(network, {"x0": codes.astype(np.int8)}, tmp_path) > 0


def test_sums_of_two_tensors_of_more_than_32_bits(tmp_path):
    """Mantissas of 12 bits have weights of up to 22."""
    how = FactorRequantisation.of([Fraction(1, 1 << 25)], [Fraction(0)], (1, 1, 1), (3, -128, 127))
    operation = WeightedPair(name="sum", inputs=("x0", "x1"), output="y", weights=(1 << 25, 3 - (1 << 25)),
                             zeros=(3, -7), reaches=(131, 134), last=False, requantisation=how)  # fmt: skip
    assert 1 << 32 < operation.largest_sum < how.largest_sum
    everywhere(operation, [(2, 3, 4)] * 2, tmp_path, schemes=(BYTES, Codes(8, 0.2, -7)))


def operations_that_overflow(bits):
    """Sums of several kinds of up to about 1,200, in few bits."""

    def factors(*shape):
        channels = int(np.prod(np.abs(shape)))
        return FactorRequantisation.of(
            [Fraction(1, 9)] * channels, [Fraction(0)] * channels, shape, (3, -128, 127), bits=bits
        )

    window = {"inputs": ("x0",), "output": "y", "kernel": (3, 3), "strides": (3, 3), "zero_point": 3, "reach": 131}
    return [
        (WindowSums(name="mean", pads=(0,) * 4, last=False, shape=(1, 1, 1), requantisation=factors(1, 1, 1), **window),
         [(1, 3, 3)]),
        (WindowSums(name="means", pads=(1,) * 4, last=True, shape=(2, 2, 1), requantisation=factors(1, 2, 2), **window),
         [(4, 4, 1)]),
        (WeightedPair(name="sum", inputs=("x0", "x1"), output="y", weights=(-4, 5), zeros=(3, -7), reaches=(131, 134),
                      last=False, requantisation=factors(1, 1, 1)), [(1, 1, 2)] * 2),
        (IntegerMatMul(name="product", inputs=("x0",), output="y", weight=np.array([[3], [-6]]), bias=np.zeros(1, int),
                       zero_point=3, reach=131, requantisation=factors(-1)), [(2,)]),
    ]  # fmt: skip


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("library", LIBRARIES[:2])
@pytest.mark.parametrize("k", range(4), ids=["mean", "means", "sum", "product"])
@pytest.mark.parametrize("bits", [9, 10])
def test_what_does_not_fit_the_accumulator_is_said(k, bits, library, tmp_path):
    """An error in Python, a flag in C, and no graph of ONNX; what fits has the same codes."""
    operation, shapes = operations_that_overflow(bits)[k]
    network = graph_of(operation, shapes, (BYTES, Codes(8, 0.2, -7)))
    assert network.wide_sums == {operation.name: operation.largest_sum}
    message = rf"^accumulators of {operation.name} must fit {bits} bits, and may reach {operation.largest_sum}: "
    with pytest.raises(ValueError, match=message):
        EXACT_BACKENDS["onnx"].write(network, tmp_path / "net.onnx")
    EXACT_BACKENDS[library].write(network, tmp_path / "net.py")
    file, program = module(tmp_path / "net.py"), ExactProgram(network.graph, tmp_path, [compiler()], ("-O0",))
    rng, ports = np.random.default_rng(k), dict(zip(network.graph.inputs, shapes, strict=True))
    fits = []
    ends = [(-128, -127), (-8, 8), (-64, 64), (-128, 128), (127, 128)]
    for _ in range(60):
        spans = {name: ends[rng.integers(5)] for name in ports}
        sample = {name: rng.integers(*spans[name], (1, *shape)).astype(np.int8) for name, shape in ports.items()}
        made, flags = program.run(network.codes(sample))
        try:
            want = network.run(sample)["y"]
        except OverflowError as error:
            fits.append(False)
            assert str(error).startswith(f"accumulators must fit {bits} bits, not be in ") and flags.any()
            with pytest.raises(OverflowError, match=f"^accumulators must fit {bits} bits, not be in "):
                file.run(sample)
        else:
            fits.append(True)
            assert not flags.any() and np.array_equal(made["y"], want)
            assert np.array_equal(file.run(sample)["y"], want)
    assert any(fits) and not all(fits)
