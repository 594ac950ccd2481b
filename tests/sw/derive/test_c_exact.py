"""Quantised networks in C on codes: the codes of :mod:`concord.integer`, with every compiler and at every level."""

import re
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from shutil import which

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord.derive.c.program import compiler
from concord.derive.c_exact.program import ExactProgram
from concord.derive.c_exact.source import exact_files
from concord.frontend.codes import load
from concord.integer import IntegerNetwork
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import NoMove, PadMove
from concord.integer.operations import CodeMovement, CodePairTable, CodeSum
from concord.integer.pairs import with_pair_tables
from concord.integer.requantise import Requantisation
from concord.integer.weighted_sums import IntegerMatMul
from concord.prove.exact import prove_exact
from concord.transfer import CodeRange, Codes
from support.c_compilers import IN_32_BITS, LEVELS, cortex_m4, every_way, random_networks, words, zig
from support.c_units import CodeUnit, word
from support.commands import run
from support.derived_backends import needs_c
from support.exact_graphs import GRAPHS, GraphDraw
from support.few_bits import in_few_bits
from support.fixed_point_graphs import FIXED_POINT_GRAPHS
from support.integer_nets import SHAPE, quantised, small_network
from support.trained import DATA, needs_data
from sw.frontend.codes.test_networks import TRAINED, trained_input

pytestmark = needs_c
#: Of operations of ONNX and of TensorFlow Lite.
EVERY_GRAPH = GRAPHS | FIXED_POINT_GRAPHS
#: Least and greatest bits of codes.
WIDTHS = {"8 bits": (8, 8), "up to 8 bits": (1, 8), "up to 16 bits": (1, 16), "more than 8 bits": (9, 16)}


def expected(graph, samples):
    """Codes sample by sample, for a movement may take the samples as an axis like others."""
    count = len(next(iter(samples.values())))
    rows = [IntegerNetwork(graph).run({name: x[k : k + 1] for name, x in samples.items()}) for k in range(count)]
    return {name: np.concatenate([row[name] for row in rows]) for name in graph.outputs}


def compare(graph, samples, folder, command=None, options=("-O0",)):
    """How many codes were compared; all are equal."""
    return compare_program(graph, samples, ExactProgram(graph, folder, words(command), options))


def compare_program(graph, samples, program):
    """The same of a program."""
    want = expected(graph, samples)
    codes, flags = program.run(samples)
    assert [*codes] == [*want] and not flags.any()
    for name, made in codes.items():
        assert made.dtype == want[name].dtype and made.shape == want[name].shape
        assert np.array_equal(made, want[name]), name
    return sum(made.size for made in codes.values())


def drawn(kind, widths="8 bits", seed=None):
    return EVERY_GRAPH[kind](len(kind) if seed is None else seed, WIDTHS[widths])


def near_the_middle(name, bits):
    """Accumulators with scales of all sizes, far apart, or with scales alike."""
    rng, scheme = np.random.default_rng(bits), Codes(bits, 1.0, 0, CodeRange.SIGNED)
    sums, scales = [], []
    for exponent in (*range(-45, 30), *[-20] * 400):
        scale = np.float32(rng.uniform(1, 2) * 2.0**exponent)
        scale = np.float32(np.exp2(exponent)) if rng.random() < 0.1 else scale
        sums.append(sums_near_the_middle(scale, scheme.low, scheme.high, rng, 40))
        scales += [scale] * 40
    requantisation = Requantisation(np.array(scales, np.float32), scheme.zero, scheme.low, scheme.high)
    if name == "far":
        return row_of_sums(np.concatenate(sums), requantisation, scheme)
    alike = replace(requantisation, scale=requantisation.scale[3000:])
    return row_of_sums(np.concatenate(sums[75:]), alike, scheme)


#: What every compiler gets.
EVERYWHERE = CodeUnit(
    **{word(kind): lambda kind=kind: drawn(kind).graph for kind in EVERY_GRAPH},
    **{
        f"{name}_{bits}": partial(near_the_middle, name, bits)
        for name in ("far", "alike") for bits in (1, 2, 8, 12, 16)
    },
)  # fmt: skip


@every_way
@pytest.mark.parametrize("kind", EVERY_GRAPH)
def test_operations(command, options, kind, tmp_path):
    draw = drawn(kind)
    program = EVERYWHERE.program(word(kind), tmp_path, command, options)
    assert compare_program(draw.graph, draw.samples(20), program) > 500


@pytest.mark.parametrize("kind", EVERY_GRAPH)
def test_files_have_no_function_that_nothing_calls(kind):
    """A compiler may warn of one, as clang does; a variable of the same name is no call."""
    source = exact_files(drawn(kind).graph, "net").source
    for name in re.findall(r"^static inline [\w ]+?\**(\w+)\(", source, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\(", source)) > 1, name


@random_networks(1, 4)
def test_codes_of_all_widths(options, count, tmp_path):
    draws = {
        word(f"{kind} {widths} {seed}"): drawn(kind, widths, 100 + seed)
        for kind in EVERY_GRAPH for widths in [*WIDTHS][1:] for seed in range(count)
    }  # fmt: skip
    unit = CodeUnit(**{name: lambda draw=draw: draw.graph for name, draw in draws.items()})

    def check(name, program):
        compare_program(draws[name].graph, draws[name].samples(20), program)

    unit.all(check, tmp_path, options)


def sums_near_the_middle(scale, low, high, rng, count):
    """Accumulators whose product with a scale is near the middle between two codes, and some at the ends of 32 bits."""
    middles = rng.integers(low - 1, high + 1, count) + 0.5
    sums = np.rint(middles / np.float64(scale)) + rng.integers(-2, 3, count)
    ends = rng.choice([-(2**31), 2**31 - 1, 0, 1, -1, 2**24, 2**24 + 1, -(2**24) - 1, 2**25 + 2, 2**25 + 6], count)
    sums = np.where(rng.random(count) < 0.1, ends, sums)
    return np.clip(sums, -(2**31), 2**31 - 1).astype(np.int64)


def row_of_sums(sums, requantisation, scheme, kind=IntegerMatMul):
    """A graph whose accumulators are these: products with 0, and a bias."""
    graph = IntegerGraph("sums", shapes={"x": (None, 1)}, inputs={"x": "x"}, outputs={"y": "y"})
    graph.schemes.update(x=Codes(1, 1.0, 0), y=scheme)
    graph.operations.append(
        kind(name="sums", inputs=("x",), output="y", weight=np.zeros((1, len(sums)), np.int64), bias=sums,
             zero_point=0, reach=1, requantisation=requantisation)
    )  # fmt: skip
    return graph


@every_way
@pytest.mark.parametrize("bits", [1, 2, 8, 12, 16])
def test_sums_near_the_middle(command, options, bits, tmp_path):
    """Where one rounding gives another code than two, and ties; with scales of all sizes, alike and far apart."""
    x = {"x": np.zeros((1, 1), np.int64)}
    for name in ("far", "alike"):
        graph = EVERYWHERE[f"{name}_{bits}"]
        program = EVERYWHERE.program(f"{name}_{bits}", tmp_path, command, options)
        assert compare_program(graph, x, program) >= 16000
    (operation,) = graph.operations
    product = np.float64(operation.bias) * np.float64(operation.requantisation.scale)
    plain = np.clip(np.rint(product), operation.requantisation.low, operation.requantisation.high)
    assert (plain != expected(graph, x)["y"][0]).sum() > 3


@pytest.mark.slow
@pytest.mark.parametrize("options", [("-O0",), ("-O3",)])
def test_accumulators_that_do_not_fit(options, tmp_path):
    """Flags of samples and layers for which Python has an error; where bounds rule it out there is no place."""
    draw = GraphDraw(5)
    draw.convolution((2, 3, 3), 3, (2, 2), weight_bits=8)
    for wide in (draw.matmul((6,), 5), draw.matmul((4, 6), 3), draw.convolution((3, 4, 4), 4, (2, 2))):
        (operation,) = [operation for operation in draw.graph.operations if operation.output == wide]
        draw.graph.operations.remove(operation)
        bias = np.where(np.arange(len(operation.bias)) == 1, (1 << 31) - 1, operation.bias)
        draw.graph.operations.append(replace(operation, bias=bias))
    samples = draw.samples(60)
    outputs = [operation.output for operation in draw.graph.operations]
    codes, flags = ExactProgram(draw.graph, tmp_path, [compiler()], options).run(samples)
    assert flags.shape == (60, 3) and 0 < flags.any(axis=1).sum() and 0 < (flags == 0).sum()
    for output, column in zip(outputs, [None, *flags.T], strict=True):
        (operation,) = [operation for operation in draw.graph.operations if operation.output == output]
        for k in range(60):
            try:
                want = operation.run(samples[operation.inputs[0]][k : k + 1])[0]
            except OverflowError:
                assert column is not None and column[k] == 1
            else:
                assert (column is None or column[k] == 0) and np.array_equal(want, codes[output][k])
    text = exact_files(draw.graph, "net").source
    assert text.count("fitted((int64_t)sums") == 3 and '"integerconvolution0"' not in text
    plain = exact_files(draw.graph, "net", flags=False)
    assert "flags" not in plain.source and "PLACES" not in plain.header
    silent, none = ExactProgram(draw.graph, tmp_path, [compiler()], options, flags=False).run(samples)
    assert none.shape == (60, 0) and all(np.array_equal(silent[name], codes[name]) for name in codes)


def small_graph(tmp_path, kind=QuantType.QInt8):
    x = np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    return quantised(tmp_path, small_network(), x, **options), x


@every_way
def test_a_small_network(command, options, tmp_path):
    proto, x = small_graph(tmp_path)
    graph = load(proto).graph
    codes = graph.schemes[graph.inputs["x"]].codes_of(np.float32(x))
    assert compare(graph, {"x": codes}, tmp_path, command, options) == 80


@pytest.mark.slow
def test_every_tensor_of_a_small_network(tmp_path):
    proto, x = small_graph(tmp_path, QuantType.QUInt8)
    graph = load(proto, compose=False).graph
    every = replace(graph, outputs={name: name for name in graph.schemes})
    codes = graph.schemes[graph.inputs["x"]].codes_of(np.float32(x))
    assert compare(every, {"x": codes}, tmp_path) > 16 * (3 * 64 + 8 * 64 + 3 * 8 * 16)


@pytest.mark.slow
@pytest.mark.parametrize("kind, bits", [(QuantType.QUInt8, 3), (QuantType.QInt8, 5)])
def test_every_tensor_of_few_bits(kind, bits, tmp_path):
    proto, x = small_graph(tmp_path, kind)
    graph = load(in_few_bits(proto, bits), compose=False).graph
    every = replace(graph, outputs={name: name for name in graph.schemes})
    codes = graph.schemes[graph.inputs["x"]].codes_of(np.float32(x))
    assert compare(every, {"x": codes}, tmp_path) > 16 * (3 * 64 + 8 * 64 + 3 * 8 * 16)


@needs_data
@pytest.mark.parametrize("command, options", [*LEVELS, zig("-O3"), zig(*IN_32_BITS), cortex_m4("-Os")])
@pytest.mark.parametrize("kind, form", [(QuantType.QUInt8, QuantFormat.QDQ), (QuantType.QInt8, QuantFormat.QOperator)])
@pytest.mark.parametrize("name, file", TRAINED, ids=[name for name, _ in TRAINED])
def test_trained_networks(name, file, kind, form, command, options, tmp_path):
    x, few = trained_input(name, file)
    settings = {"quant_format": form, "activation_type": kind, "weight_type": QuantType.QInt8}
    proto = quantised(tmp_path, onnx.load(DATA / "models" / f"{name}.onnx"), few, **settings)
    graph = load(proto).graph
    ((port, tensor),) = graph.inputs.items()
    every = replace(graph, outputs={name: name for name in graph.schemes})
    assert compare(every, {port: graph.schemes[tensor].codes_of(np.float32(x))}, tmp_path, command, options) > 100


def test_places_are_shared(tmp_path):
    """A sum takes the place of one of its operands, and a shape in another one is the same array."""
    draw = GraphDraw(0)
    x = draw.input((4, 16, 16))
    a = draw.table((), x, output=False)
    b = draw.table((), a, output=False)
    made = exact_files(replace(draw.graph, outputs={"y": draw.table((), b)}), "net")
    assert made.ram == 4 * 16 * 16
    assert "net_RAM" not in made.header and f"#define NET_RAM {made.ram}\n" in made.header


def test_a_row_that_is_added_to_rows(tmp_path):
    """It is needed for all of them, so nothing is written over it."""
    draw = GraphDraw(4)
    row, rows = (draw.table((), draw.input(shape), output=False) for shape in ((1, 6), (4, 6)))
    settings = draw.of_two(row, rows, scheme := draw.scheme(), ratios=(np.float32(0.7),) * 2)
    draw.table((), draw.add(CodeSum, row, rows, scheme=scheme, output=False, **settings))
    assert compare(draw.graph, draw.samples(8), tmp_path) == 8 * 4 * 6


def test_a_product_of_one_sum(tmp_path):
    """Its channels have no step between them."""
    draw = GraphDraw(1, (8, 8))
    draw.matmul((7,), 1)
    assert compare(draw.graph, draw.samples(9), tmp_path) == 9


@pytest.mark.parametrize("kind", ["softmax", "number_softmax"])
def test_softmax_of_all_samples(kind, tmp_path):
    """One row of all that a run has, of a network with so many samples."""
    draw = GraphDraw(1, (8, 8))
    getattr(draw, kind)((4, 5), 0, flattened=True)
    graph = replace(draw.graph, shapes={name: (3, *shape[1:]) for name, shape in draw.graph.shapes.items()})
    x = draw.samples(3)
    want = IntegerNetwork(graph).run(x)
    codes, _ = ExactProgram(graph, tmp_path, words(None), ("-O0",)).run(x)
    assert all(np.array_equal(codes[name].reshape(want[name].shape), want[name]) for name in want)


def test_files_need_nothing(tmp_path):
    """Neither numbers with a point nor a library; constants are in sections of their own."""
    for make in EVERY_GRAPH.values():
        source = re.sub(r"/\*.*?\*/", "", exact_files(make(1, WIDTHS["8 bits"]).graph, "net").source, flags=re.DOTALL)
        assert not re.search(r"\b(float|double|malloc|printf|memcpy)\b|\d\.\d", source)
        assert re.findall(r'section\("(\.\w+)"\)', source) == [".concord_weights", ".concord_tables"]


@pytest.mark.slow
@pytest.mark.skipif(which("size") is None, reason="needs size of binutils")
def test_memory_is_as_the_header_says(tmp_path):
    files = ExactProgram(load(small_graph(tmp_path)[0]).graph, tmp_path, [compiler()]).files
    text = subprocess.run(["size", "-A", "net.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size) for name, size in re.findall(r"^(\S+) +(\d+)", text, re.MULTILINE)}
    constants = files.source.count("static const")  # each of which begins at a multiple of 32
    assert files.rom <= sizes[".concord_weights"] + sizes[".concord_tables"] <= files.rom + 32 * constants
    assert files.ram <= sizes[".bss"] <= files.ram + 32


@dataclass(frozen=True, kw_only=True, eq=False)
class UnknownOperation(IntegerOperation):
    def run(self, *codes):
        return codes[0]


def test_what_is_refused():
    draw = GraphDraw(0)
    x = draw.input((3, 4))
    draw.add(UnknownOperation, x)
    with pytest.raises(ValueError, match="random must have operations with a form in C, not UnknownOperation 'unknown"):
        exact_files(draw.graph, "net")
    draw = GraphDraw(0)
    draw.table((3, 4))
    draw.graph.shapes["x0"] = (None, 3, None)
    with pytest.raises(
        ValueError, match=r"input 'x0' must have fixed sizes behind the samples, not \['samples', 3, 'any'\]"
    ):
        exact_files(draw.graph, "net")
    draw = GraphDraw(0)
    draw.average((2, 3, 3), (2, 2), pads=(2, 2, 0, 0), padding_counts=True)
    with pytest.raises(ValueError, match="windows of 'codeaverage0' must not be all padding in C"):
        exact_files(draw.graph, "net")


def test_the_command(tmp_path):
    proto, _ = small_graph(tmp_path)
    onnx.save(proto, tmp_path / "small.onnx")
    code, output = run("derive", tmp_path / "small.onnx", "--to", "c", "--exact", "-o", tmp_path / "net.c")
    assert code == 0 and re.search(r"net\.c: [\d,]+ bytes of RAM, [\d,]+ of constants", output), output
    source = (tmp_path / "net.c").read_text()
    assert "NET_RAM" in (tmp_path / "net.h").read_text() and "uint8_t *flags" in source
    assert run("compile", tmp_path / "small.onnx", "--exact", "-o", tmp_path / "small")[0] == 0
    words = ["--exact", "--no-flags", "-o", tmp_path / "net.c"]
    code, output = run("derive", tmp_path / "small", *words)
    assert code == 0 and "flags" not in (tmp_path / "net.c").read_text()
    for more, reason in (
        (["--npu-part"], "must be given without --bytes"),
        (["--to", "c-host"], "--to must be one of"),
    ):
        code, output = run("derive", tmp_path / "small.onnx", "--exact", "-o", tmp_path / "net.c", *more)
        assert code == 1 and reason in output
    code, output = run("derive", tmp_path / "small.onnx", "--exact", "-o", tmp_path / "Net.c")
    assert code == 1 and "output must be a file like net.c" in output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "x0", "weight", "é*/ sums", f"{'long/' * 40}name;{'other/' * 40}name"])
def test_names_of_layers(name, tmp_path):
    """None, those of variables, what ends a comment, and more than the 63 characters that compilers tell apart."""
    for kind, make in EVERY_GRAPH.items():
        draw = make(3, WIDTHS["up to 16 bits"])
        draw.graph.operations[:] = [replace(operation, name=name) for operation in draw.graph.operations]
        (folder := tmp_path / kind).mkdir()
        compare(draw.graph, draw.samples(2), folder, options=("-O0",))
        source = re.sub(r"/\*.*?\*/|\".*?\"", "", (folder / "net.c").read_text(), flags=re.DOTALL)
        assert max(map(len, re.findall(r"\w+", source))) <= 63


def test_a_copy_of_an_input(tmp_path):
    draw = GraphDraw(3)
    x = draw.input((5,))
    scheme = draw.graph.schemes[x]
    draw.add(CodeMovement, x, scheme=scheme, move=NoMove(), low=scheme.low, high=scheme.high)
    assert compare(draw.graph, draw.samples(4), tmp_path) == 20


@pytest.mark.slow
def test_the_proof(tmp_path, monkeypatch):
    """The command compares all tensors; a changed weight and a changed flag are noticed."""
    proto, x = small_graph(tmp_path)
    onnx.save(proto, tmp_path / "small.onnx")
    code, output = run("prove", tmp_path / "small.onnx", "--with", "c", "--exact", "--samples", 5)
    assert code == 0 and re.search(r"5 samples, 0 of them .*, [\d,]+ codes compared, 0 different", output), output
    np.savez(tmp_path / "x.npz", x=x[:3])
    assert run("prove", tmp_path / "small.onnx", "--with", "c", "--exact", "-i", tmp_path / "x.npz")[0] == 0
    code, output = run("prove", tmp_path / "small.onnx", "--exact")
    assert code == 1 and "a network on codes must be given with --with c" in output
    draw = GraphDraw(5)
    wide = draw.matmul((6,), 5)
    (operation,) = draw.graph.operations
    bias = np.where(np.arange(5) == 1, (1 << 31) - 1, operation.bias)
    draw.graph.operations[:] = [replace(operation, bias=bias)]
    proof = prove_exact(IntegerNetwork(draw.graph), samples=40)
    assert proof.same and 0 < proof.overflows < 40 and proof.compared[wide] == (40 - proof.overflows) * 5
    original = ExactProgram.run
    monkeypatch.setattr(ExactProgram, "run", lambda program, codes: changed(*original(program, codes)))
    proof = prove_exact(load(proto), samples=2)
    assert not proof.same and not proof.flags and set(proof.different.values()) == {2}
    proof = prove_exact(IntegerNetwork(draw.graph), samples=40)
    assert not proof.same and proof.flags == proof.overflows > 0


def changed(codes, flags):
    """Codes with another first one in every sample, and no flags."""
    codes = {name: array.copy() for name, array in codes.items()}
    for array in codes.values():
        array.reshape(len(array), -1)[:, 0] ^= 1
    return codes, 0 * flags


@every_way
def test_pads_and_tables_of_pairs(command, options, tmp_path):
    """Padding is no element of the source; both operands of the sum have 4 bits, and one is broadcast."""
    schemes = dict.fromkeys("abcy", Codes(4, 0.5, 3, CodeRange.UNSIGNED))
    ends = {"low": 0, "high": 15}
    ratios, zeros = (np.float32(1), np.float32(0.5)), (3, 3)
    pad = CodeMovement(name="pad", inputs=("a",), output="c", move=PadMove(((0, 0), (1, 2), (0, 1)), 9), **ends)
    total = CodeSum(name="sum", inputs=("c", "b"), output="y", ratios=ratios, zeros=zeros, zero_point=3, **ends)
    shapes = {"a": (None, 3, 4), "b": (None, 6, 1)}
    plain = IntegerGraph("net", schemes, {"a": "a", "b": "b"}, {"y": "y", "c": "c"}, [pad, total], {}, shapes)
    graph = with_pair_tables(plain)
    assert [type(operation) for operation in graph.operations] == [CodeMovement, CodePairTable]
    rng = np.random.default_rng(2)
    x = {name: rng.integers(0, 16, (20, *shape[1:])) for name, shape in shapes.items()}
    assert all(np.array_equal(codes, expected(graph, x)[name]) for name, codes in expected(plain, x).items())
    assert compare(graph, x, tmp_path, command, options) == 20 * 30 * 2
