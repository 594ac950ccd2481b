"""Networks of which the host computes the begin or the end, and what it may not compute."""

import numpy as np
import onnxruntime
import pytest

import concord
from concord.compiler.lowering import host_partition
from concord.compiler.lowering.host_partition import without_front
from concord.compiler.lowering.lowered import Unsupported
from concord.frontend import import_model
from concord.graph import host_evaluation, host_rules
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_operations import Action
from concord.host.emulated import EmulatedDevice
from concord.networks import npu_share
from concord.networks.folder import recompile
from concord.networks.host_share import host_lines
from concord.networks.npu_share import NpuShare
from concord.overflow.compiled import analyse_machine
from concord.program.allocator import CapacityError
from concord.prove import prove
from concord.report import analyse, render
from concord.spec.presets import ECP5_85F_256
from support.expressions import network as graph_network
from support.expressions import tensor
from support.host_stage_nets import ANY, NETWORKS, PRESET, chooser, classifier, floats, inputs_of, pixels, too_large
from support.onnx_expressions import FLOAT, INT64, given, model_of, op

PARTS = {
    "classifier": (["Lookup"], ["ArgMax", "TopK"]),
    "masked": (["Lookup"], []),
    "pixels": ([], ["ArgMax"]),
    "chooser": ([], ["TopK", "Conv"]),
    "too_large": (["Dense", "Dense"], ["Dense", "Add", "Concat"]),
}


def ops(graph):
    return [item.op for item in graph.nodes] if graph is not None else []


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request):
    partition = "any" if request.param in ANY else "ends"
    return request.param, concord.compile(NETWORKS[request.param](), preset=PRESET, partition=partition)


def test_results_are_those_of_the_model(compiled):
    """Decisions are those of the scores that the NPU computes; scores are near those of the model."""
    name, net = compiled
    x = inputs_of(name)
    assert (ops(net.package.front), ops(net.package.host_graph)) == PARTS[name]
    session = onnxruntime.InferenceSession(NETWORKS[name]().SerializeToString())
    want = dict(zip((output.name for output in session.get_outputs()), session.run(None, x), strict=True))
    results = net.run(x)
    assert {k: (v.dtype.kind, v.shape) for k, v in results.items()} == {
        k: (v.dtype.kind, v.shape) for k, v in want.items()
    }
    for key, value in want.items():
        if value.dtype.kind == "f":
            assert np.abs(results[key] - value).max() < 0.03 * np.abs(value).max()
    if "class" in results:
        scores = results.get("scores", results.get("p"))
        assert results["class"].dtype == np.int64
        np.testing.assert_array_equal(results["class"], scores.argmax(1))
    if "yes" in results:
        np.testing.assert_array_equal(results["yes"], results["scores"] > 0)
    if "places" in results:
        np.testing.assert_array_equal(results["best"], np.take_along_axis(results["scores"], results["places"], 1))


def test_samples_are_independent(compiled):
    name, net = compiled
    x = inputs_of(name)
    together = net.run(x)
    for k in range(5):
        alone = net.run({key: values[k : k + 1] for key, values in x.items()})
        assert all(alone[key].tobytes() == value[k].tobytes() for key, value in together.items())


def test_a_folder_keeps_it(compiled, tmp_path):
    name, net = compiled
    net.save(tmp_path / "net")
    loaded = concord.load(tmp_path / "net")
    assert loaded.inputs == net.inputs and loaded.outputs == net.outputs
    want = net.run(inputs_of(name))
    for key, value in loaded.run(inputs_of(name)).items():
        assert value.dtype == want[key].dtype and value.tobytes() == want[key].tobytes()


def test_inputs_are_those_of_the_network(compiled):
    name, net = compiled
    x = inputs_of(name)
    assert {key: value.shape[1:] for key, value in x.items()} == net.inputs
    first = next(iter(x))
    with pytest.raises(ValueError, match="inputs must be"):
        net.run({"other": x[first]} | {key: value for key, value in x.items() if key != first})
    with pytest.raises(ValueError, match="must have the shape"):
        net.run(x | {first: x[first][..., :1]})


def test_numbers_that_an_input_does_not_have():
    net = concord.compile(classifier(), preset=PRESET)
    ids = inputs_of("classifier")["ids"]
    with pytest.raises(ValueError, match="indices must be whole numbers from -70000 to 69999, not 70000"):
        net.run(np.where(ids > 0, 70000, ids))
    with pytest.raises(ValueError, match=r"input 'ids' must have whole numbers from .* \(int64\), not 0.5"):
        net.run(ids * 0 + 0.5)
    with pytest.raises(ValueError, match=r"input 'x' must have whole numbers from 0 to 255 \(uint8\), not 256"):
        concord.compile(pixels(), preset=PRESET).run(np.full((1, 3, 8, 8), 256))


@pytest.mark.slow
def test_samples_choose_formats():
    """Calibration data are those of the network; labels are compared with the class that it gives."""
    x = inputs_of("classifier", 24)
    session = onnxruntime.InferenceSession(classifier().SerializeToString())
    labels = session.run(["class"], x)[0]
    net = concord.compile(classifier(), preset=PRESET, calibrate=x, labels=labels, mantissa="auto")
    assert net.compilation.mantissas is not None and net.compilation.mantissas.chosen.accuracy >= 0.9
    assert net.expected_error.result < 0.05


@pytest.mark.slow
def test_bytes_travel_as_bytes():
    """An image of bytes that the model normalises by itself: the folded factors do not make two bytes of one."""
    net = concord.compile(pixels(), preset=PRESET)
    assert net.rates.input_route == "raw: x: 192 bytes, a byte for an element, one of at most 256 values"
    assert net.input_records["x"].source == "of uint8"
    floats = concord.compile(NETWORKS["chooser"](), preset=PRESET, partition="any")
    assert "two bytes for an element" in floats.rates.input_route


def test_an_output_that_is_constant():
    """Sizes or anchors beside what is computed, of any type."""
    anchors, number = op.Identity(floats(3, 2)), op.Identity(np.array([7]))
    model = model_of(y=op.Gemm(given("n", 4), floats(4, 3)), a=anchors, c=number)
    net = concord.compile(model, preset=PRESET)
    results = net.run(np.ones((2, 4)))
    np.testing.assert_array_equal(results["a"].reshape(2, 3, 2), np.stack([floats(3, 2)] * 2))
    assert results["c"].dtype == np.int64 and results["c"].reshape(-1).tolist() == [7, 7]


def test_truth_values_of_the_npu_alone():
    """The only output is a comparison, which has an error like numbers."""
    model = model_of(op.Greater(op.Gemm(given("n", 4), floats(4, 3)), 0.0))
    x = np.random.default_rng(2).normal(size=(20, 4))
    net = concord.compile(model, preset=PRESET, calibrate=x)
    assert net.package.host_graph is None
    results = net.run(x)["y"]
    assert results.dtype == bool and (results == (x @ floats(4, 3) > 0)).mean() > 0.95


def test_nothing_for_the_host():
    with pytest.raises(Unsupported, match=r"ArgMax 'class': no instruction computes it; --partition ends lets"):
        concord.compile(classifier(), preset=PRESET, partition="none")
    with pytest.raises(ValueError, match="partition must be one of none, ends, any, not 'all'"):
        concord.compile(classifier(), preset=PRESET, partition="all")


def test_a_softmax_stays_on_the_npu_if_nothing_is_for_the_host():
    model = model_of(op.Softmax(op.Gemm(given("n", 4), floats(4, 5))))
    assert ops(concord.compile(model, preset=PRESET).package.host_graph) == ["Softmax"]
    assert concord.compile(model, preset=PRESET, partition="none").package.host_graph is None


def test_products_on_both_sides():
    message = (
        "TopK 'best': no instruction computes it, and products are in front of it and behind it; "
        "--partition any lets the host compute what is on one side of it"
    )
    with pytest.raises(Unsupported, match=message):
        concord.compile(chooser(), preset=PRESET)


def test_nothing_left_for_the_npu():
    model = model_of(op.Gather(floats(9, 4), given("n", 3, name="ids", kind=INT64)))
    with pytest.raises(Unsupported, match="nothing is left for the NPU"):
        concord.compile(model, preset=PRESET)


def test_what_the_host_has_no_operations_for():
    """A recurrent layer between two nodes of the host."""
    e = op.Gather(floats(9, 4), given(1, 3, name="ids", kind=INT64))
    _, h = op.RNN(op.Transpose(e, perm=[1, 0, 2]), floats(1, 3, 4), floats(1, 3, 3), hidden_size=3, outputs=2)
    v, _ = op.TopK(h, [2], axis=2, outputs=2)
    model = model_of(op.MatMul(v, floats(2, 400)), opset=18)
    with pytest.raises(Unsupported, match=r"RNN .*: lies beside what the host computes, and the host has no"):
        concord.compile(model, preset=PRESET, partition="any")


def test_work_that_is_too_much_for_the_host(monkeypatch):
    monkeypatch.setattr(host_partition, "MOST_MACS", 4000)
    v, _ = op.TopK(given("n", 64), [64], axis=1, outputs=2)
    f, _ = op.TopK(op.MatMul(v, floats(64, 64)), [64], axis=1, outputs=2)
    model = model_of(op.MatMul(f, floats(64, 64)))
    graph = import_model(model)
    graph.partition = "any"
    with pytest.raises(Unsupported, match=r"at most 4,000 multiply-accumulates to be for the host, .* not 4,096"):
        without_front(graph)


def test_products_of_the_host_come_in_parts_of_bounded_size(monkeypatch):
    """Numbers of the parts have the same bits as of the whole: each sum has its own order."""
    rng = np.random.default_rng(3)
    conv = tensor(1, 4, 7, 7).conv(rng.normal(size=(6, 4, 3, 3)), rng.normal(size=6), pads=1)
    flat = conv.reshape(1, 294)
    graph = graph_network(y=conv, f=flat, z=flat.dense(rng.normal(size=(30, 294)), rng.normal(size=30)))
    x = {"x": rng.normal(size=(5, 1, 4, 7, 7))}
    want = run_on_host(graph, x)
    monkeypatch.setattr(host_rules, "MOST_PRODUCTS", 1000)
    monkeypatch.setattr(host_evaluation, "_AT_ONCE", 3000)
    made = host_rules.operations(graph)
    assert max(np.prod(item.shape) for item in made if item.action is Action.MUL) <= 1000
    for name, values in run_on_host(graph, x).items():
        assert values.tobytes() == want[name].tobytes()


@pytest.mark.slow
def test_what_does_not_fit_is_for_the_host():
    """The part with most products stays; only what the NPU reads and computes travels."""
    net = concord.compile(too_large(), preset=PRESET, partition="any")
    assert net.compilation.share == (
        "the NPU computes 64,000 of 72,240 multiply-accumulates (88.6 %), and the host the rest: "
        "ecp5-25f refuses the whole (matrix memory has 4096 words of 4664)"
    )
    arrangement = net.package.arrangement
    assert [list(ports) for ports in (arrangement.inputs, arrangement.outputs)] == [["a"], ["d"]]
    front, back, share = host_lines(net.compilation.compiled)
    assert front.endswith("12 values become 400 values") and back.endswith("160 values become 32 values")
    assert share == "the host computes 8,240 of 72,240 multiply-accumulates of the network (11.4 %)"
    with pytest.raises(CapacityError, match="does not fit"):
        concord.compile(too_large(), preset=PRESET)
    assert share[1:] in render(analyse(net.compilation.compiled, inputs_of("too_large", 8)))


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_channels_that_the_host_reads_stay_as_they_are(sampled):
    """Those between two products of the NPU are divided, those that a product of the host reads are not."""
    rng = np.random.default_rng(4)
    sizes = np.exp2(rng.permutation(np.linspace(-5, 5, 32)))
    others = np.exp2(rng.permutation(np.linspace(-5, 5, 32)))
    a = op.MatMul(given("n", 8), rng.normal(size=(8, 32)) * sizes, name="a/y")
    b = op.MatMul(op.Relu(a), rng.normal(size=(32, 32)) / sizes[:, None] * others / 6)
    c = op.MatMul(op.Relu(b), rng.normal(size=(32, 8400)) / others[:, None] / 6)
    model = model_of(c)
    x = {"x": rng.normal(size=(24, 8)).astype(np.float32)}
    samples = {"calibrate": x, "quick": True} if sampled else {}
    net = concord.compile(model, preset="ecp5-85f-256", partition="any", **samples)
    assert net.package.formats.channel_scales.keys() == {"a/y"} and ops(net.package.host_graph)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0]
    assert np.linalg.norm(net.run(x)["y"] - want) < 0.02 * np.linalg.norm(want)


@pytest.mark.slow
def test_little_work_of_the_npu_is_told():
    """A tenth of the multiply-accumulates is worth a word, as a larger NPU may compute all of them."""
    model = model_of(op.MatMul(op.MatMul(given("n", 40), floats(40, 16)), floats(16, 9000)))
    net = concord.compile(model, preset=PRESET, partition="any")
    (line,) = (line for line in net.warnings if "multiply-accumulates" in line)
    assert line.startswith(
        "the NPU computes 0.442 % of the multiply-accumulates alone, and the host takes some 0.0029 s"
    )
    net = concord.compile(too_large(), preset=PRESET, partition="any")
    assert not any("multiply-accumulates" in line for line in net.warnings)


@pytest.mark.parametrize(("most", "found"), [(12_000, "c"), (1, "a")])
def test_the_search_for_a_part_ends(monkeypatch, most, found):
    """The first part that compiles is taken when enough has been tried; else the largest one."""
    monkeypatch.setattr(npu_share, "_MOST_NODES", most)
    a = tensor(1, 3).dense(np.ones((4, 3)), name="a")
    b = a.dense(np.ones((5, 4)), name="b")
    graph = graph_network(c=b.dense(np.ones((9, 5)), name="c"))
    graph.partition = "any"
    share = NpuShare(graph, lambda part: len(part.npu_nodes) == 1, ECP5_85F_256)
    assert share.largest() == {found}


@pytest.mark.slow
def test_a_network_of_which_no_part_fits_says_what_its_largest_layer_lacks():
    weight = floats(1, 1, 80, 80)
    a = op.Conv(given("n", 1, 90, 90), weight, pads=[40] * 4, name="a")
    model = model_of(op.Conv(a, weight, pads=[40] * 4))
    with pytest.raises(Unsupported) as caught:
        concord.compile(model, preset=PRESET, partition="any")
    told = "no part of it compiles, either: Conv 'y' alone is refused (Conv 'y': window must be at most 63, not 80)"
    assert told in str(caught.value)


@pytest.mark.slow
def test_cuts_are_where_few_values_pass():
    """The maximum of the windows stays with the product in front of it, whose own result would not fit."""
    a = op.Conv(given("n", 4, 48, 48), floats(8, 4, 3, 3), pads=[1] * 4)
    f = op.Flatten(op.MaxPool(a, kernel_shape=[2, 2], strides=[2, 2]), name="f")
    model = model_of(op.Gemm(f, floats(8 * 24 * 24, 20)))
    net = concord.compile(model, preset="ecp5-85f-256", partition="any")
    assert ops(net.package.front) == [] and ops(net.package.host_graph) == ["Dense"]
    assert net.package.arrangement.outputs.keys() == {"f"}


@pytest.mark.slow
def test_what_does_not_fit_is_for_the_host_with_samples(tmp_path):
    """The samples are those of the network; a folder compiles to the same program once more."""
    x = inputs_of("too_large", 24)
    net = concord.compile(too_large(), preset=PRESET, partition="any", calibrate=x, quick=True)
    session = onnxruntime.InferenceSession(too_large().SerializeToString())
    want = session.run(None, x)[0]
    assert np.linalg.norm(net.run(x)["y"] - want) < 0.01 * np.linalg.norm(want)
    net.save(tmp_path / "net")
    again = recompile(tmp_path / "net")
    assert again.image.program == net.image.program and again.package.npu_nodes == net.package.npu_nodes


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_of_the_presets_of_a_board_the_one_that_computes_most_is_taken(sampled):
    """The first product has a few more weights than most presets hold, and as many as one does."""
    b = op.Relu(op.Gemm(given("n", 256), floats(256, 1040) / 9))
    model = model_of(op.Gemm(b, floats(1040, 160) / 9))
    samples = {"calibrate": {"x": np.random.default_rng(1).normal(size=(8, 256))}, "quick": True} if sampled else {}
    board = "orangecrab-85f"  # without the external memory that takes all weights
    net = concord.compile(model, board=board, partition="any", **samples)
    assert net.config.name == "ecp5-85f-256" and "266,240 of 432,640" in net.compilation.share
    assert "ecp5-85f-256 refuses the whole (matrix memory has 1040 words" in net.compilation.share
    net = concord.compile(model, board=board, preset="ecp5-85f", partition="any", **samples)
    assert "166,400 of 432,640" in net.compilation.share


@pytest.mark.slow
def test_equal_weights_count_once():
    """A product that is there three times, of which the memory holds one; and a fourth, which is another."""
    x, weight = given("n", 200), floats(200, 200) / 9
    for _ in range(3):
        x = op.Gemm(x, weight)
    model = model_of(op.Gemm(x, weight[::-1]))
    net = concord.compile(model, preset=PRESET, partition="any")
    assert (ops(net.package.front), ops(net.package.host_graph)) == ([], ["Dense"])
    assert "120,000 of 160,000" in net.compilation.share


@pytest.mark.slow
def test_what_the_host_alone_reads_is_no_input_of_the_npu(tmp_path):
    """Derived software, also with everything inside, and counts of bits."""
    x = inputs_of("too_large", 8)
    net = concord.compile(too_large(), preset=PRESET, partition="any")
    net.save(tmp_path / "net")
    proof = prove(tmp_path / "net", x, samples=2, machine_samples=1, only=["numpy", "onnx"])
    assert proof.count.different == 0 and proof.count.values > 1000
    assert net.package.arrangement.beside == {"t", "x"}
    assert len(analyse_machine(net.package, x).layers) == 1


@pytest.mark.slow
def test_a_part_that_no_preset_takes_is_no_help():
    """There is one product, and it is too large."""
    model = model_of(op.Gemm(given("n", 300), floats(300, 300)))
    with pytest.raises(CapacityError, match="matrix memory has 4096 words, but 5776 are needed"):
        concord.compile(model, preset=PRESET, partition="any")


def test_an_input_that_both_read():
    """The host reads what is given, the NPU the rounded number; and an input that the host alone reads."""
    x = given("n", 4)
    y = op.Add(op.Gemm(op.Cast(op.Cast(x, to=INT64), to=FLOAT), floats(4, 4)), x)
    model = model_of(c=op.ArgMax(y, axis=1), y=y)
    net = concord.compile(model, preset=PRESET)
    x = np.random.default_rng(1).normal(0, 3, (6, 4))
    front = net.package.arranged_inputs({"x": x})
    (name,) = {*front} - {"x"}
    np.testing.assert_array_equal(front[name], np.trunc(x))
    with EmulatedDevice(net.config) as device:
        device.load(net.image)
        outputs = net.package.run(device, {"x": x})
    np.testing.assert_array_equal(outputs["c"][:, 0], outputs["y"].argmax(1))
    want = np.trunc(x) @ floats(4, 4) + x
    assert np.abs(outputs["y"] - want).max() < 0.03 * np.abs(want).max()


def test_a_result_of_the_front_is_an_output():
    e = op.Gather(floats(9, 4), given("n", 2, name="ids", kind=INT64))
    net = concord.compile(model_of(y=op.Gemm(op.Flatten(e), floats(8, 3)), e=e), preset=PRESET)
    results = net.run({"ids": np.array([[1, 8], [0, 3]])})
    assert np.abs(results["e"] - floats(9, 4)[[[1, 8], [0, 3]]]).max() < 1e-3
