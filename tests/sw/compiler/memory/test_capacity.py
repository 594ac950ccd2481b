"""Networks that are too large: which memory lacks how much, why row tiles do not help, and suggestions."""

import re

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.calibration.suggestions import suggestions
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.program.allocator import CapacityError
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_25F, ECP5_85F, ECP5_85F_256, TINY, UP5K, with_mantissas
from support.compiled_nets import heads, perceptron
from support.expressions import ROOMY, concat, exact, network, tensor, whole
from support.onnx_expressions import given, model_of, op
from support.onnx_models import floats, mlp
from support.row_tiled_nets import separable


def refused(graph, config, **options):
    with pytest.raises(CapacityError) as caught:
        compile_graph(graph, config, **options)
    return caught.value


def compiled_by_command(tmp_path, proto, *arguments):
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    result = CliRunner().invoke(main, ["compile", str(path), *arguments, "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, SystemExit) and result.exit_code == 1, result.exception
    assert not (tmp_path / "out").exists()
    return result.output.splitlines()


@pytest.mark.slow
def test_the_command_says_what_lacks_and_what_would_do(tmp_path):
    lines = compiled_by_command(tmp_path, mlp(784, 300, 10), "--board", "ulx3s-25f")
    assert lines == [
        (
            "Error: does not fit into ecp5-25f: matrix memory has 4096 words, but 15200 are needed "
            "(weight.fc0 14896, weight.fc1 304); row tiling does not help, as constants alone do not fit"
        ),
        "  it fits into ecp5-85f-256, ecp5-85f (--board ulx3s-85f or orangecrab-85f)",
        "  it fits into an NPU of its own, 3.35 times the memory; in a file for --config that is",
        '    preset = "ecp5-25f"',
        "    matrix_depth = 15232",
        "    does not fit on ulx3s-25f: ecp5-25f needs 176 block RAMs of 56",
        "  --mantissa alone does not help: narrower mantissas make words smaller, not more",
        "  --partition any lets the host compute what the NPU does not take",
    ]
    graph = import_model(tmp_path / "net.onnx")
    for larger in (ECP5_85F, ECP5_25F.replace(matrix_depth=15200)):
        compile_graph(graph, larger)
    refused(graph, ECP5_25F.replace(matrix_depth=15199))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "presets"),
    [
        ("orangecrab-85f", ["ecp5-85f-256", "ecp5-85f"]),
        ("ulx3s-25f", ["ecp5-25f"]),
        ("icebreaker", ["up5k"]),
    ],
)
def test_what_is_too_large_for_every_preset(tmp_path, board, presets):
    lines = compiled_by_command(tmp_path, mlp(784, 1024, 1024, 10), "--board", board)
    if len(presets) == 1:
        assert lines[0].startswith(f"Error: does not fit into {presets[0]}: matrix memory has ")
    else:
        assert lines[0] == f"Error: net fits into no preset of {board}:"
        assert [line.split(": ")[0].strip() for line in lines[1 : 1 + len(presets)]] == presets
    assert any(line.startswith("  it fits into ecp5-85f (--board ulx3s-85f") for line in lines)


@pytest.mark.slow
def test_feature_maps_beyond_every_address_are_told_as_such(tmp_path):
    """The first convolution writes 2 x 16,384 vectors and more, which no instruction can address."""
    a = op.Conv(given(1, 3, 128, 128), floats(8, 3, 3, 3), name="first", pads=[1] * 4)
    b = op.Conv(a, floats(8, 8, 3, 3), name="second", pads=[1] * 4)
    proto = model_of(op.MaxPool(b, name="pool", kernel_shape=[32, 32], strides=[32, 32]))
    lines = compiled_by_command(tmp_path, proto, "--preset", "up5k")
    assert re.match(
        r"Error: does not fit into up5k: narrow memory has 256 vectors, but \d+ are needed \(tensors.narrow "
        r"\d+\).*; row tiles need \d+ vectors of narrow memory, which has \d+ left and ",
        lines[0],
    )
    assert len(lines) == 3 and "of its own" not in "".join(lines)  # such depths there are in no NPU


@pytest.mark.slow
def test_narrower_mantissas_pay_for_more_words():
    """The depths that are told fit, and in as many bits as now with the width that is told."""
    graph = separable()
    config = TINY.replace(narrow_depth=16, program_depth=512, wide_depth=256)
    error = refused(graph, config)
    (have, need) = error.short[RegionId.NARROW]
    assert have == 16 and list(error.short) == [RegionId.NARROW]
    _, text, *lines = suggestions(graph, config, DEFAULT, 1, error)
    found = re.fullmatch(
        r"it fits into an NPU of its own, 1\.\d\d times the memory; with mantissas of (\d) bits in no more than now; "
        r"in a file for --config that is",
        text,
    )
    depth = int(next(line for line in lines if "narrow_depth" in line).split()[-1])
    assert depth == (need if need < 128 else -(-need // 128) * 128)
    larger = config.replace(narrow_depth=depth)
    compile_graph(graph, larger)

    def bits(npu):
        widths = (npu.matrix_row.width * npu.rows, npu.narrow_word.width, npu.wide_word.width)
        return np.dot(widths, (npu.matrix_depth, npu.narrow_depth, npu.wide_depth))

    width = int(found[1])
    assert bits(with_mantissas(larger, width)) <= bits(config) < bits(with_mantissas(larger, width + 1))
    compile_graph(graph, with_mantissas(larger, width))


@pytest.mark.slow
def test_attention_is_told_of_matrices_that_programs_write():
    """The lines are a configuration that the network fits into; without products of two tensors there are none."""
    graph = heads(40, 2, 8)
    plain = ECP5_85F_256.replace(window_taps=0)
    error = refused(graph, plain)
    lines = suggestions(graph, plain, DEFAULT, 1, error)
    told = lines.index("it fits where programs write the matrix memory; in a file for --config that is")
    assert lines[told + 1 : told + 4] == ['  preset = "ecp5-85f-256"', "  window_taps = 0", "  writable_matrix = true"]
    compile_graph(graph, ECP5_85F)
    for other, config in ((graph, ECP5_85F.replace(wide_depth=256)), (perceptron(1024, 600, 10), plain)):
        lines = suggestions(other, config, DEFAULT, 1, refused(other, config))
        assert not any("programs write" in line for line in lines)


def test_samples_side_by_side_are_named():
    graph = perceptron(64, 64, 10)
    config = TINY.replace(matrix_depth=1024, narrow_depth=32)
    error = refused(graph, config, batch=8)
    assert suggestions(graph, config, DEFAULT, 8, error)[0] == "fewer samples per run need less: --batch"
    compile_graph(graph, config)


def test_why_there_is_no_row_tiling():
    rng = np.random.default_rng(0)
    few, x = TINY.replace(narrow_depth=16, wide_depth=16), tensor(1, 4, 8, 8)
    line = network(tensor(1, 4, 1, 40).conv(rng.normal(size=(4, 4, 1, 3)), name="c"))
    both = network(x.pool("MaxPool", 2, 2) + x.conv(rng.normal(size=(4, 4, 2, 2)), strides=2))
    assert "row tiling is not possible: layer 'c' reads a tensor of a single row" in str(refused(line, few))
    as_it_is = network(tensor(1, 400).reshape(1, 20, 20))
    assert "row tiling is not possible: outputs are inputs as they are" in str(refused(as_it_is, few))
    assert "row tiles need" in str(refused(both, few.replace(matrix_depth=1024)))
    proto = model_of(op.LSTM(given(40, 1, 3), floats(1, 8, 3), floats(1, 8, 2), hidden_size=2, name="cell"))
    message = str(refused(import_model(proto), TINY.replace(narrow_depth=16)))
    assert "row tiling is not possible: layer 'cell' is recurrent" in message


TOO_LARGE = {
    "per position must be at most 1023": op.Gemm(given(1, 20000), floats(20000, 4), name="n"),
    "native vectors per position must be at most 1023": op.Gemm(given(1, 4), floats(4, 20000), name="n"),
    "sum on tiny must be at most 64, not 750": op.Gemm(given(1, 3000), floats(3000, 4), name="n"),
    "dilation must be at most 31, not 40": op.Conv(
        given(1, 8, 100, 100), floats(4, 8, 1, 3), name="n", dilations=[1, 40]
    ),
    "size of a padded image must be at most 4095, not 9000": op.Conv(
        given(1, 8, 4, 9000), floats(4, 8, 1, 3), name="n", pads=[0, 1, 0, 1]
    ),
}


@pytest.mark.parametrize("message", TOO_LARGE)
def test_what_no_chain_can_say_is_told_by_node(message):
    with pytest.raises(Unsupported, match=message) as caught:
        compile_graph(import_model(model_of(TOO_LARGE[message])), TINY)
    (reason,) = caught.value.reasons
    assert " 'n': " in reason


def test_sums_of_recurrent_layers_are_checked():
    proto = model_of(op.LSTM(given(2, 1, 600), floats(1, 4, 600), floats(1, 4, 1), hidden_size=1, name="n"))
    graph = import_model(proto)
    with pytest.raises(Unsupported, match="LSTM 'n': native products in a sum on tiny must be at most 64, not 150"):
        compile_graph(graph, TINY)
    with pytest.raises(CapacityError):
        compile_graph(graph, UP5K.replace(matrix_depth=16))


def attention_of(tokens, heads, width):
    q, v = (given(1, heads, tokens, width, name=name) for name in "qv")
    scores = op.MatMul(q, given(1, heads, width, tokens, name="k"))
    return model_of(op.MatMul(op.Softmax(scores, axis=-1), v))


def product(shape, *weight):
    return model_of(op.Gemm(given(*shape), np.zeros(weight), name="fc"))


FAR_TOO_LARGE = {
    "Dense 'fc': native vectors of x must be at most 16384, not 262144": product((65536, 64), 64, 16),
    "vectors of x must be at most 16384, not 2": model_of(op.Relu(given(1, 1 << 22))),
    "input 'x': must have at most 16777216 elements, not 2147483648; make it smaller": model_of(
        op.Relu(given(1, 1 << 31))
    ),
    "Expand 'y': ": model_of(op.Expand(given(1, 8), [1 << 30, 8])),
    "the elements [1, 4, 128, 128, 32] must be at most 262144, not 2097152": attention_of(128, 4, 32),
    "narrow memory has 2048 vectors, but ": attention_of(64, 6, 8),
    "memory has 2048 words, but 4194304 weights need at least 32768": product((1, 4096), 4096, 1024),
    "memory has 2048 vectors, but 2": model_of(
        op.Conv(given(1, 16, 512, 512), np.zeros((16, 16, 3, 3)), name="fc", pads=[1] * 4)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("message", FAR_TOO_LARGE)
def test_what_is_far_too_large_is_told_first(tmp_path, message):
    lines = compiled_by_command(tmp_path, FAR_TOO_LARGE[message], "--board", "orangecrab-85f")
    assert any(message in line for line in lines[:4]), lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proto", "options"),
    [
        (mlp(784, 300, 10), ("--board", "ulx3s-25f")),
        (mlp(2048, 512, 10), ("--board", "orangecrab-85f")),
        (mlp(784, 300, 10), ("--preset", "ecp5-25f", "--mantissa", "6")),
        (mlp(256, 64, 10), ("--preset", "tiny")),
    ],
)
def test_the_suggested_configuration_holds_the_network(tmp_path, proto, options):
    """Written to a file as it stands there, and compiled for."""
    lines = [line.strip() for line in compiled_by_command(tmp_path, proto, *options)]
    first = lines.index(next(line for line in lines if line.startswith("preset = ")))
    settings = [line for line in lines[first:] if " = " in line]
    (tmp_path / "own.toml").write_text("\n".join(settings))
    arguments = [
        "compile",
        str(tmp_path / "net.onnx"),
        "--config",
        str(tmp_path / "own.toml"),
        "-o",
        str(tmp_path / "n"),
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    lacking = [line for line in lines if line.startswith("does not fit on ")]
    assert len(lacking) == ("does not fit on" in result.output)


@pytest.mark.slow
def test_the_preset_that_computes_most_is_named_first(tmp_path):
    """266,240 weights of dense layers, which are a little too many for one preset and as many as the other has."""
    lines = compiled_by_command(tmp_path, mlp(1024, 256, 16), "--board", "orangecrab-85f", "--preset", "ecp5-85f")
    assert lines[1] == "  it fits into ecp5-85f-256 (--board ulx3s-85f or orangecrab-85f)"


def test_equal_weights_are_stored_once():
    """Not those whose mantissas differ."""
    y, weight, bias = tensor(1, 8), whole(8, 8), whole(8)
    for k in range(3):
        y = y.dense(weight, bias, name=f"d{k}")
    graph = network(y)
    compiled = exact(y, limit=1)
    counts = [compiled.allocations[f"weight.d{k}"].count for k in range(3)]
    assert counts == [counts[0], 0, 0] and counts[0] > 0
    narrower = compile_graph(graph, ROOMY, Formats(mantissas={"d1": 4})).allocations
    assert [narrower[f"weight.d{k}"].count for k in range(3)] == [counts[0], counts[0], 0]


def test_copies_that_are_far_too_large_are_refused_before_they_are_made():
    """Elements in no order, each from a vector of its own: a matrix over all of these vectors."""
    size = 300
    a, b = (tensor(1, 4, name=name).dense(whole(size, 4, limit=1)) for name in "xz")
    parts = (a[:, n : n + 1] for n in np.random.default_rng(12).permutation(size).tolist())
    mixed = concat(1, *parts, name="mixed")
    config = TINY.replace(matrix_depth=1024)
    error = refused(network(mixed * b), config)
    assert str(error) == "does not fit into tiny: matrix memory has 1024 words, but copies of mixed.out need 45000"
