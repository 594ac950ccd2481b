"""Training for accumulators of few bits: what is counted, how ranges react, and that the NPU gives the same bits."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.frontend import import_model
from concord.golden import binary16, blocks
from concord.graph.ir import Node
from concord.graph.signs import never_negative
from concord.overflow.accumulator import AccumulatorError
from concord.overflow.kinds import KINDS
from concord.overflow.required import CountedWidths
from concord.overflow.trained import Trained, TrainedLayer, compile_trained, evidence_path, read_trained
from concord.program import trace
from concord.spec.formats import ExponentMode
from concord.spec.presets import ECP5_25F, ECP5_85F, TINY, UP5K
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described, export_onnx
from concord.train.layers.base import PassContext
from concord.train.overflow_monitor import move, weight_exponent
from concord.train.overflow_settings import OverflowSettings
from concord.train.parameters import Parameter
from concord.train.sites import root_of
from concord.train.tensor import Tensor
from support.bounded import same_bits_on_the_npu, within_bound
from support.expressions import graph_of
from support.rtl_configs import COPYING
from support.train_digits import assert_a_break_changes_nothing

MLP = [{"op": "flatten"}, {"op": "dense", "outputs": 12}, {"op": "relu"}, {"op": "dense", "outputs": 4}]
CNN = [
    {"op": "conv", "channels": 5, "pad": 1}, {"op": "relu"}, {"op": "max_pool"}, {"op": "depthwise", "pad": 1},
    {"op": "conv", "channels": 6, "kernel": 1}, {"op": "relu"}, {"op": "flatten"}, {"op": "dense", "outputs": 4},
]  # fmt: skip


def data(count=64):
    """Images of four classes: a bright quarter each, and noise."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, (count, 1, 8, 8)), rng.integers(0, 4, count)
    for image, label in zip(x, y, strict=True):
        image[0, 4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 11
    return Samples(x, y, 1 / 16)


def trainer(layers=MLP, bits=12, formats=None, **options):
    epochs, test = options.pop("epochs", 2), options.pop("test", None)
    overflow = OverflowSettings(accumulator_bits=bits, **options)
    settings = Settings(epochs=epochs, batch=16, formats=formats or TrainingFormats(), overflow=overflow)
    return Trainer(described(layers, (1, 8, 8)), data(), settings, test, random=True)


def everything(trained):
    """Parameters, exponents and counts."""
    network = {k: [p.weight.tolist(), p.acc.tolist(), p.exp.tolist()] for k, p in trained.network.parameters.items()}
    return network, trained.monitor.state, [figures.overflow for figures in trained.history]


# What layers read and give --------------------------------------------------------------------------------


def test_products_read_and_give_what_the_npu_does():
    monitor = trainer().monitor
    scale = monitor.scales[0]
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(0, 4, 400), [0.5, -0.5, 1.5, 2.5, 1e5, -1e5, 2e-9, 0.0]])
    x = monitor.input(values)
    bits = binary16.encode(np.clip(values, -65504, 65504))
    assert np.array_equal(x.values, binary16.decode(bits))
    for scale.exp in (-6, -3, 0, 2):
        got = monitor.operand(x, "dense1")
        fmt = TINY.replace(act_mant=monitor.widths(scale)[1], wgt_mant=3).act
        want = blocks.quantize(bits.reshape(-1, 4), fmt, ExponentMode.STATIC, scale.exp)
        assert np.array_equal(got.mant, want.mant.reshape(-1)) and got.exp == scale.exp
    assert monitor.counts.clipped
    sums = rng.integers(-(1 << 15), 1 << 15, (3, 50)).astype(np.float64)
    bias = Tensor(rng.integers(-127, 128, 50).astype(np.float64), -9, 127)
    for exp in (-30, -12, -9, -4, 3):
        got = monitor.binary16(sums, exp, bias)
        on_grid = np.ldexp(np.sign(bias.mant) * np.floor(np.abs(bias.mant) * 2.0 ** (-9 - max(exp, -9)) + 0.5),
                           max(exp, -9))  # fmt: skip
        want = binary16.add(binary16.encode(np.clip(np.ldexp(sums, exp), -65504, 65504)), binary16.encode(on_grid))
        assert np.array_equal(got.values, np.clip(binary16.decode(want), -65504, 65504))


def test_weights_move_between_grids_without_loss():
    rng = np.random.default_rng(3)
    parameter = Parameter.begin("w", rng.normal(0, 1, 50), TrainingFormat(8), AccumulatorFormat())
    total = np.ldexp((parameter.weight.astype(np.float64) * 2**15 + parameter.acc), parameter.exp[:, None] - 15)
    five = TrainingFormat(5)
    exp = weight_exponent(parameter, five, False)
    assert exp == parameter.exp[0] + 3
    move(parameter, exp, five)
    found = np.ldexp((parameter.weight.astype(np.float64) * 2**15 + parameter.acc), exp - 15)
    assert np.abs(parameter.weight).max() <= 15 and np.abs(found - total).max() <= 2.0 ** (exp - 16)
    assert weight_exponent(parameter, TrainingFormat(8), False) == exp
    assert weight_exponent(parameter, TrainingFormat(8), True) == exp - 3


def test_where_products_are_and_what_they_read():
    monitor = trainer(CNN, method="bound", grid="layer", bits=14).monitor
    assert {name: (site.tensor, site.positive) for name, site in monitor.sites.items()} == {
        "conv1": ("x", False), "depthwise1": ("max_pool1", True), "conv2": ("depthwise1", False),
        "dense1": ("flatten1", True),
    }  # fmt: skip
    graph = described(CNN, (1, 8, 8))
    assert root_of(graph, "flatten1") == "conv2" and root_of(graph, "x") == "x"
    assert never_negative(graph, "flatten1") and not never_negative(graph, "x")


# The predictor --------------------------------------------------------------------------------------------


def test_the_predictor_counts_every_product_and_every_partial_sum():
    got = trainer(bits=10, method="plain", samples=3, lanes=1)
    rows = np.arange(16)
    got.monitor.count_next(len(rows))
    got._forward(got.samples, rows, PassContext(got.settings.formats))
    found = got.monitor.sites["dense1"].sums
    scale, weight = got.monitor.scales[0], got.network.parameters["dense1.weight"].tensor.mant
    x = np.rint(got.samples.inputs(rows[:3]).reshape(3, -1) * 2.0**-scale.exp)
    products = [x[n] * weight[o] for n in range(3) for o in range(12)]
    beyond = sum(int(np.count_nonzero((p > 511) | (p < -512))) for p in products)
    sums = [np.cumsum(p)[1:] for p in products]
    left = sum(int(np.count_nonzero((s > 511) | (s < -512))) for s in sums)
    assert (found["product"].total, found["sum"].total, found["output"].total) == (3 * 12 * 64, 3 * 12 * 63, 3 * 12)
    assert (found["product"].beyond(10), found["sum"].beyond(10)) == (beyond, left) and left > beyond > 0


def test_ranges_grow_until_the_count_is_within_the_threshold():
    """Without lanes that must fit it is the predictor alone that decides."""
    plain, scaled, loose = (
        trainer(bits=11, lanes=1, **options) for options in ({"method": "plain"}, {}, {"threshold": 50_000})
    )
    ahead = {}
    for name, one in (("plain", plain), ("scaled", scaled), ("loose", loose)):
        one.monitor.count_next(16)
        with one.monitor.separate_counts() as counts:
            one._forward(one.samples, one._shuffled(0)[:16], PassContext(one.settings.formats))
        one.monitor.count_next(16)
        one._forward(one.samples, one._shuffled(0)[:16], PassContext(one.settings.formats))
        sums = [site.sums for site in one.monitor.sites.values()]
        ahead[name] = sum(s.beyond(11) for one_site in sums for s in one_site.values()), counts.ended
    assert ahead["plain"][0] > 0 and ahead["plain"][1] > 0
    assert ahead["scaled"] == (0, 0)
    widths = [one.monitor.widths(one.monitor.scales[0]) for one in (plain, scaled, loose)]
    assert widths[0] == (8, 8) and sum(widths[1]) < sum(widths[2]) <= 16
    assert abs(widths[1][0] - widths[1][1]) <= 1  # a dense network shares alike


def test_the_share_of_the_weights_is_that_of_the_kind():
    found = {}
    for kind in ("dense", "lstm"):
        monitor = trainer(bits=32, kind=kind, lanes=1).monitor
        scale = monitor.scales[0]
        for _ in range(8):
            monitor._share(scale, 1)
        found[kind] = scale.weight, scale.data
        assert monitor.counting.weight_share == KINDS[kind].weight_share
        while scale.weight + scale.data:
            monitor._share(scale, -1)
        assert not monitor._share(scale, -1)
        assert monitor._share(scale, 50) and monitor.widths(scale) == (3, 3) and not monitor._share(scale, 1)
    assert found == {"dense": (4, 4), "lstm": (3, 5)}  # mantissas of inputs have no more to give


def test_ranges_shrink_when_bits_are_unused_and_not_at_the_end():
    got = trainer(bits=24, lanes=1, epochs=3)
    got.monitor._grow(got.monitor.scales[0], 4)
    got.monitor.counts.scaled = 0
    got.fit()
    assert [figures.overflow.scaled for figures in got.history] == [-1, -1, 0]
    assert got.monitor.widths(got.monitor.scales[0]) == (7, 7)


def test_ranges_of_inputs_follow_the_samples():
    """At once when a batch needs more; less after an epoch that did not need it."""
    got = trainer(bits=24, epochs=3)
    scale = got.monitor.scales[0]
    first = scale.exp
    got.samples.x[got._shuffled(0)[16:32]] *= 8
    got.step()
    assert scale.exp == first
    got.step()
    assert scale.exp >= first + 2
    before = scale.exp
    got.samples.x[:] = 0
    got.fit(lambda current: current.epoch == 2)
    assert scale.exp < before


def test_a_bias_is_written_on_the_grid_of_its_sums():
    got = trainer(bits=10, lanes=4)
    got.fit()
    written = {node.name: node.attrs["bias"] for node in got.trained().nodes if node.op == "Dense"}
    changed = 0
    for name, values in written.items():
        step = 2.0 ** (got.monitor.scales[0].exp + int(got.monitor.sites[name].weight.exp[0]))
        exact = got.network.parameters[f"{name}.bias"].values
        assert np.array_equal(values % step, np.zeros_like(values)) and np.abs(values - exact).max() <= step / 2
        changed += np.count_nonzero(values != exact)
    assert changed


def test_a_sum_that_ends_changes_what_is_learned():
    plain, wide = (trainer(bits=bits, method="plain", lanes=1) for bits in (10, 32))
    for one in (plain, wide):
        one.fit()
    assert plain.history[0].overflow.ended > 0 and wide.history[0].overflow.ended == 0
    assert plain.history[0].loss != wide.history[0].loss
    loss, _ = wide.judge(wide.samples, 10)
    assert wide.judged.ended > 0 and loss != wide.judge(wide.samples)[0] and wide.judged.ended == 0
    assert wide.monitor.bits == 32


@pytest.mark.parametrize("grid", ["network", "layer"])
def test_weights_stay_within_the_bound_at_every_step(grid):
    got = trainer(bits=9, lanes=4, method="bound", grid=grid, epochs=1)

    got.fit(within_bound)
    assert got.history[0].overflow.ended == 0 and got.history[0].overflow.bounded > 0


def test_normalisations_must_be_folded():
    with pytest.raises(ValueError, match='batchnorm must be "fold" with'):
        trainer([{"op": "flatten"}, {"op": "dense", "outputs": 4}, {"op": "batch_norm"}])


def test_recurrent_layers_have_two_products():
    rng = np.random.default_rng(1)
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        attrs = {
            "W": rng.normal(0, 0.4, (1, gates * 5, 3)),
            "R": rng.normal(0, 0.4, (1, gates * 5, 5)),
            "B": np.zeros((1, 2 * gates * 5)),
            "hidden_size": 5,
            "direction": "forward",
            "clip": None,
            "activations": ((("Sigmoid", "Tanh", "Tanh") if op == "LSTM" else ("Sigmoid", "Tanh")),),
            "activation_parameters": (({},) * (3 if op == "LSTM" else 2),),
            "initial_h": None,
        } | ({"P": None, "input_forget": False, "initial_c": None} if op == "LSTM" else {"linear_before_reset": False})
        nodes = [
            Node(op, "cell", ("x", "", ""), ("", "h", "")[: gates - 1], attrs),
            Node("Reshape", "flat", ("h",), ("f",), {"shape": (1, 5)}),
            Node("Dense", "out", ("f",), ("y",), {"weight": rng.normal(0, 1, (2, 5)), "bias": np.zeros(2)}),
        ]
        graph = graph_of(nodes, x=(4, 1, 3))
        samples = Samples(rng.normal(0, 1, (16, 4, 1, 3)), rng.integers(0, 2, 16))
        overflow = OverflowSettings(accumulator_bits=10, lanes=2)
        got = Trainer(graph, samples, Settings(epochs=2, batch=8, overflow=overflow))
        assert set(got.monitor.sites) == {"cell.W0", "cell.R0", "out"} and got.monitor.counting == KINDS[
            "lstm" if op == "LSTM" else "recurrent"
        ].replace(width=10, output_width=10)
        first = [p.acc.copy() for p in got.network.parameters.values()]
        got.fit()
        assert all(np.any(a != p.acc) for a, p in zip(first, got.network.parameters.values(), strict=True))
        layers = {layer.name: layer for layer in got.evidence(b"").layers}
        assert set(layers) == set(got.monitor.sites) and all(0 < one.observed <= 10 for one in layers.values())


# From the command line to the NPU -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "method", "grid", "before"),
    [(12, "evidence", "network", ECP5_85F), (16, "bound", "network", ECP5_25F), (12, "bound", "layer", ECP5_25F)],
    ids=["12, evidence", "16, bound", "12, bound by layer"],
)
def test_the_npu_with_that_accumulator_gives_the_same_bits(bits, method, grid, before):
    got = trainer(CNN, bits=bits, method=method, grid=grid, lanes=before.lanes)
    got.fit()
    evidence, config = same_bits_on_the_npu(got, before)
    assert evidence.register == bits if grid == "network" else evidence.register > bits
    assert (config.act_mant, config.wgt_mant) == (evidence.input_bits, evidence.weight_bits)


def test_what_was_trained_without_a_reaction_needs_more():
    got = trainer(bits=12, method="plain", lanes=1, formats=TrainingFormats(weight=TrainingFormat(6)))
    got.fit()
    network = export_onnx(got.trained())
    graph, evidence = import_model(network), got.evidence(network)
    inputs = {graph.inputs[0]: got.samples.inputs(slice(None))}
    assert sum(layer.beyond for layer in evidence.layers) > 0
    found = compile_trained(graph, TINY.replace(matrix_depth=2048, narrow_depth=512), evidence, CountedWidths(inputs))
    assert found.compiled.image.config.acc_register > 12
    assert any("samples need more than it was trained for" in line for line in found.lines)
    copying = COPYING.replace(matrix_depth=64, narrow_depth=512, program_depth=1024)
    copied = compile_trained(graph, copying, evidence, CountedWidths(inputs)).compiled.image
    assert trace(copied.program, copied.config).copies, "weights that do not fit stay in the external memory"
    with pytest.raises(AccumulatorError, match="serial"):
        compile_trained(graph, UP5K, evidence, CountedWidths(inputs))
    with pytest.raises(AccumulatorError, match=r"act_mant must be in 3\.\.12"):
        compile_trained(graph, TINY, replace(evidence, input_bits=13), CountedWidths(inputs))


CONFIG = """
[model]
input = [1, 8, 8]
layers = [{op = "flatten"}, {op = "dense", outputs = 12}, {op = "relu"}, {op = "dense", outputs = 4}]
[data]
file = "data.npz"
x = "x"
y = "y"
test_x = "x"
test_y = "y"
scale = 0.0625
[train]
epochs = 2
batch = 16
[overflow]
accumulator_bits = 12
"""


def command(folder, *words):
    return CliRunner().invoke(main, [str(word) for word in words])


def prepared(folder, config=CONFIG):
    samples = data()
    np.savez(folder / "data.npz", x=samples.x, y=samples.y)
    np.savez(folder / "x.npz", x=samples.inputs(slice(None)))
    (folder / "net.toml").write_text(config)
    return folder


@pytest.mark.slow
def test_from_the_command_line(tmp_path):
    prepared(tmp_path)
    out, net = tmp_path / "out", tmp_path / "net"
    done = command(tmp_path, "train", tmp_path / "net.toml", "-o", out)
    assert done.exit_code == 0, done.output
    assert "overflows 0 of 1,024 sums" in done.output and "accumulator of 12 bits" in done.output
    history = json.loads((out / "history.json").read_text())
    assert history[0]["overflow"]["sums"] == 1024 and history[0]["test_overflow"]["ended"] == 0
    trained = read_trained(out / "network.onnx")
    assert (trained.accumulator_bits, trained.method, trained.samples) == (12, "evidence", 128)
    done = command(tmp_path, "compile", out / "network.onnx", "-o", net)
    assert done.exit_code == 0 and "--accumulator auto has it" in done.output
    auto = ("compile", out / "network.onnx", "-o", net, "--accumulator", "auto")
    done = command(tmp_path, *auto, "--calibrate", tmp_path / "x.npz", "--output-format", "narrow")
    assert done.exit_code == 0 and "trained for 12 bits (evidence)" in done.output
    assert "12 bits in units of" in done.output and "bit for bit" in done.output
    assert "trained for 12 bits (evidence)" in command(tmp_path, "inspect", net).output
    for more, message in ((["--mantissa", "5"], "--mantissa must be left out"), (["--guard", "2"], "--guard must be")):
        done = command(tmp_path, *auto, *more)
        assert done.exit_code != 0 and message in done.output
    evidence_path(out / "network.onnx").write_text("{}")
    done = command(tmp_path, *auto)
    assert done.exit_code != 0 and "must be evidence that" in done.output and "Traceback" not in done.output
    evidence_path(out / "network.onnx").write_text(replace(trained, network="0").to_json())
    done = command(tmp_path, *auto)
    assert done.exit_code != 0 and "which has changed since" in done.output


EMPTY = (
    '{"version": 1, "layers": [], "network": "", "accumulator_bits": 1, "method": "", "input_bits": 1, '
    '"weight_bits": 1, "exponents": {}, "samples": 1}'
)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"version": 2}', '{"version": 1, "layers": 3}', '{"version": 1, "layers": [{"name": 1}]}',
     EMPTY],
)  # fmt: skip
def test_damaged_evidence(text):
    with pytest.raises(ValueError, match="it is "):
        Trained.from_json(text)


def test_evidence_is_written_and_read():
    one = Trained("a", 12, "bound", 5, 4, {"x": -3}, 7, (TrainedLayer("l", -3, -2, 9, 11, 0),))
    assert Trained.from_json(one.to_json()) == one
    two = replace(one, layers=(*one.layers, TrainedLayer("m", -1, -4, 9, 11, 0), TrainedLayer("n", -3, -4, 9, 11, 0)))
    assert (one.register, two.register, two.weights, two.least) == (12, 14, (-4, -2), -3)
    with pytest.raises(ValueError, match="a number is none"):
        Trained.from_json(one.to_json().replace('"x": -3', '"x": "y"'))


@pytest.mark.parametrize("method", ["evidence", "bound"])
def test_a_break_changes_nothing(method, tmp_path):
    assert_a_break_changes_nothing(lambda: trainer(CNN, method=method, epochs=2), tmp_path / "c.npz", everything)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "must have accumulator_bits"),
        ("accumulator_bits = 7", r"accumulator_bits must be a whole number in 8\.\.32, not 7"),
        ("accumulator_bits = true", "accumulator_bits must be a whole number"),
        ("accumulator_bits = 16\nlanes = 0", r"lanes must be a whole number in 1\.\.64"),
        ("accumulator_bits = 16\nmethod = 'both'", "method must be one of plain, evidence, bound"),
        ("accumulator_bits = 16\ngrid = 'none'", "grid must be one of network, layer"),
        ("accumulator_bits = 16\nkind = 'rnn'", "kind must be one of cnn, dense"),
        ("accumulator_bits = 16\nthreshold = -1", "threshold must be an integer of at least 0"),
        ("accumulator_bits = 16\nweight_share = 2", r"weight_share must be in 0\.\.1"),
        ("accumulator_bits = 16\nweight_share = '1'", "weight_share must be a number"),
        ("accumulator_bits = 16\nbits = 3", "must have accumulator_bits, method"),
        ("accumulator_bits = 8\nlanes = 64", "accumulator_bits must be at least 11 for 64 lanes"),
        (
            "accumulator_bits = 16\n[formats]\nweight = {bits = 8, block = 4}",
            "weight must have one exponent per tensor",
        ),
        ("accumulator_bits = 16\n[formats]\nactivation = 2", "activation must have at least 3 bits"),
    ],
)
def test_settings_that_cannot_be(line, message, tmp_path):
    prepared(tmp_path, CONFIG.replace("accumulator_bits = 12", line))
    done = command(tmp_path, "train", tmp_path / "net.toml", "-o", tmp_path / "out")
    assert done.exit_code != 0 and "Traceback" not in done.output
    assert re.search(message, " ".join(done.output.split())), done.output
    assert not (tmp_path / "out" / "checkpoint.npz").exists()
