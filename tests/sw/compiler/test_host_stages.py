"""Networks of which the host computes the begin or the end, and what it may not compute."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import concord
from concord.compiler.lowering import host_partition
from concord.compiler.lowering.host_partition import without_front
from concord.compiler.lowering.lowered import Unsupported
from concord.frontend import import_model
from concord.graph import host_evaluation, host_rules
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_operations import Action
from concord.graph.ir import Node
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
from support.compiled_nets import graph_of
from support.host_stage_nets import (
    ANY,
    BOOL,
    FLOAT,
    INT64,
    NETWORKS,
    PRESET,
    chooser,
    classifier,
    floats,
    inputs_of,
    network,
    pixels,
    too_large,
)
from support.onnx_models import node

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
    model = network(
        [node("Gemm", ["x", "w"], ["y"]), node("Identity", ["anchors"], ["a"]), node("Identity", ["count"], ["c"])],
        {"x": (FLOAT, [4])}, {"y": (FLOAT, [3]), "a": (FLOAT, [2]), "c": (INT64, [])},
        {"w": floats(4, 3), "anchors": floats(3, 2), "count": np.array([7])},
    )  # fmt: skip
    net = concord.compile(model, preset=PRESET)
    results = net.run(np.ones((2, 4)))
    np.testing.assert_array_equal(results["a"], np.stack([floats(3, 2)] * 2))
    assert results["c"].dtype == np.int64 and results["c"].reshape(-1).tolist() == [7, 7]


def test_truth_values_of_the_npu_alone():
    """The only output is a comparison, which has an error like numbers."""
    model = network([node("Gemm", ["x", "w"], ["a"]), node("Greater", ["a", "zero"], ["y"])],
                    {"x": (FLOAT, [4])}, {"y": (BOOL, [3])}, {"w": floats(4, 3), "zero": np.float32(0)})  # fmt: skip
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
    model = network([node("Gemm", ["x", "w"], ["a"]), node("Softmax", ["a"], ["y"])],
                    {"x": (FLOAT, [4])}, {"y": (FLOAT, [5])}, {"w": floats(4, 5)})  # fmt: skip
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
    model = network([node("Gather", ["table", "ids"], ["y"])], {"ids": (INT64, [3])}, {"y": (FLOAT, [3, 4])},
                    {"table": floats(9, 4)})  # fmt: skip
    with pytest.raises(Unsupported, match="nothing is left for the NPU"):
        concord.compile(model, preset=PRESET)


def test_what_the_host_has_no_operations_for():
    """A recurrent layer between two nodes of the host."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Transpose", ["e"], ["t"], perm=[1, 0, 2]),
        node("RNN", ["t", "W", "R"], ["", "h"], hidden_size=3),
        node("TopK", ["h", "two"], ["v", "i"], axis=2),
        node("MatMul", ["v", "w"], ["z"]),
    ]
    constants = {"table": floats(9, 4), "W": floats(1, 3, 4), "R": floats(1, 3, 3), "two": np.array([2]),
                 "w": floats(2, 400)}  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("ids", INT64, [1, 3])],
        [helper.make_tensor_value_info("z", FLOAT, [1, 1, 400])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(Unsupported, match=r"RNN .*: lies beside what the host computes, and the host has no"):
        concord.compile(model, preset=PRESET, partition="any")


def test_work_that_is_too_much_for_the_host(monkeypatch):
    monkeypatch.setattr(host_partition, "MOST_MACS", 4000)
    model = network(
        [node("TopK", ["x", "k"], ["v", "i"], axis=1), node("MatMul", ["v", "a"], ["b"]),
         node("TopK", ["b", "k"], ["f", "j"], axis=1),
         node("MatMul", ["f", "w"], ["z"])],
        {"x": (FLOAT, [64])}, {"z": (FLOAT, [64])},
        {"k": np.array([64]), "a": floats(64, 64), "w": floats(64, 64)},
    )  # fmt: skip
    graph = import_model(model)
    graph.partition = "any"
    with pytest.raises(Unsupported, match=r"at most 4,000 multiply-accumulates to be for the host, .* not 4,096"):
        without_front(graph)


def test_products_of_the_host_come_in_parts_of_bounded_size(monkeypatch):
    """Numbers of the parts have the same bits as of the whole: each sum has its own order."""
    rng = np.random.default_rng(3)
    conv = {"weight": rng.normal(size=(6, 4, 3, 3)), "bias": rng.normal(size=6), "strides": (1, 1), "group": 1,
            "pads": (1, 1, 1, 1), "dilations": (1, 1)}  # fmt: skip
    dense = {"weight": rng.normal(size=(30, 6 * 7 * 7)), "bias": rng.normal(size=30)}
    graph = graph_of(
        [Node("Conv", "c", ("x",), ("y",), conv), Node("Reshape", "r", ("y",), ("f",), {"shape": (1, 294)}),
         Node("Dense", "d", ("f",), ("z",), dense)], x=(1, 4, 7, 7),
    )  # fmt: skip
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
    constants = {
        "a": rng.normal(size=(8, 32)) * sizes,
        "b": rng.normal(size=(32, 32)) / sizes[:, None] * others / 6,
        "c": rng.normal(size=(32, 8400)) / others[:, None] / 6,
    }  # fmt: skip
    nodes, name = [], "x"
    for weight in constants:
        nodes += [
            node("MatMul", [name, weight], [f"{weight}/y"]),
            node("Relu", [f"{weight}/y"], [name := f"{weight}/r"]),
        ]
    constants = {name: np.float32(value) for name, value in constants.items()}
    model = network(nodes[:-1], {"x": (FLOAT, [8])}, {"c/y": (FLOAT, [8400])}, constants)
    x = {"x": rng.normal(size=(24, 8)).astype(np.float32)}
    samples = {"calibrate": x, "quick": True} if sampled else {}
    net = concord.compile(model, preset="ecp5-85f-256", partition="any", **samples)
    assert net.package.formats.channel_scales.keys() == {"a/y"} and ops(net.package.host_graph)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0]
    assert np.linalg.norm(net.run(x)["c/y"] - want) < 0.02 * np.linalg.norm(want)


@pytest.mark.slow
def test_little_work_of_the_npu_is_told():
    """A tenth of the multiply-accumulates is worth a word, as a larger NPU may compute all of them."""
    shapes = {"u": (40, 16), "v": (16, 9000)}
    nodes = [node("MatMul", ["x", "u"], ["a"]), node("MatMul", ["a", "v"], ["y"])]
    model = network(nodes, {"x": (FLOAT, [40])}, {"y": (FLOAT, [9000])}, {k: floats(*s) for k, s in shapes.items()})
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
    nodes = [Node("Dense", name, (x,), (name,), {"weight": np.ones((n, k)), "bias": np.zeros(n)})
             for name, x, n, k in (("a", "x", 4, 3), ("b", "a", 5, 4), ("c", "b", 9, 5))]  # fmt: skip
    graph = graph_of(nodes, x=(1, 3))
    graph.partition = "any"
    share = NpuShare(graph, lambda part: len(part.npu_nodes) == 1, ECP5_85F_256)
    assert share.largest() == {found}


@pytest.mark.slow
def test_a_network_of_which_no_part_fits_says_what_its_largest_layer_lacks():
    model = network(
        [node("Conv", ["x", "v"], ["a"], pads=[40] * 4), node("Conv", ["a", "w"], ["y"], pads=[40] * 4)],
        {"x": (FLOAT, [1, 90, 90])}, {"y": (FLOAT, [1, 92, 92])}, dict.fromkeys("vw", floats(1, 1, 80, 80)),
    )  # fmt: skip
    with pytest.raises(Unsupported) as caught:
        concord.compile(model, preset=PRESET, partition="any")
    told = "no part of it compiles, either: Conv 'y' alone is refused (Conv 'y': window must be at most 63, not 80)"
    assert told in str(caught.value)


@pytest.mark.slow
def test_cuts_are_where_few_values_pass():
    """The maximum of the windows stays with the product in front of it, whose own result would not fit."""
    model = network(
        [node("Conv", ["x", "v"], ["a"], pads=[1, 1, 1, 1]), node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2],
         strides=[2, 2]), node("Flatten", ["b"], ["f"]), node("Gemm", ["f", "w"], ["y"])],
        {"x": (FLOAT, [4, 48, 48])}, {"y": (FLOAT, [20])}, {"v": floats(8, 4, 3, 3), "w": floats(8 * 24 * 24, 20)},
    )  # fmt: skip
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
    model = network(
        [node("Gemm", ["x", "v"], ["a"]), node("Relu", ["a"], ["b"]), node("Gemm", ["b", "w"], ["y"])],
        {"x": (FLOAT, [256])}, {"y": (FLOAT, [160])}, {"v": floats(256, 1040) / 9, "w": floats(1040, 160) / 9},
    )  # fmt: skip
    samples = {"calibrate": {"x": np.random.default_rng(1).normal(size=(8, 256))}, "quick": True} if sampled else {}
    net = concord.compile(model, partition="any", **samples)
    assert net.config.name == "ecp5-85f-256" and "266,240 of 432,640" in net.compilation.share
    assert "ecp5-85f-256 refuses the whole (matrix memory has 1040 words" in net.compilation.share
    net = concord.compile(model, preset="ecp5-85f", partition="any", **samples)
    assert "166,400 of 432,640" in net.compilation.share


@pytest.mark.slow
def test_equal_weights_count_once():
    """A product that is there three times, of which the memory holds one; and a fourth, which is another."""
    model = network(
        [*(node("Gemm", [f"x{k}", "w"], [f"x{k + 1}"]) for k in range(3)), node("Gemm", ["x3", "v"], ["y"])],
        {"x0": (FLOAT, [200])}, {"y": (FLOAT, [200])}, {"w": floats(200, 200) / 9, "v": floats(200, 200)[::-1] / 9},
    )  # fmt: skip
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
    model = network([node("Gemm", ["x", "w"], ["y"])], {"x": (FLOAT, [300])}, {"y": (FLOAT, [300])},
                    {"w": floats(300, 300)})  # fmt: skip
    with pytest.raises(CapacityError, match="matrix memory has 4096 words, but 5776 are needed"):
        concord.compile(model, preset=PRESET, partition="any")


def test_an_input_that_both_read():
    """The host reads what is given, the NPU the rounded number; and an input that the host alone reads."""
    model = network(
        [node("Cast", ["x"], ["i"], to=INT64), node("Cast", ["i"], ["f"], to=FLOAT),
         node("Gemm", ["f", "w"], ["a"]), node("Add", ["a", "x"], ["y"]),
         node("ArgMax", ["y"], ["c"], axis=1)],
        {"x": (FLOAT, [4])}, {"c": (INT64, [1]), "y": (FLOAT, [4])}, {"w": floats(4, 4)},
    )  # fmt: skip
    net = concord.compile(model, preset=PRESET)
    x = np.random.default_rng(1).normal(0, 3, (6, 4))
    front = net.package.arranged_inputs({"x": x})
    (name,) = {*front} - {"x"}
    np.testing.assert_array_equal(front[name], np.trunc(x))
    with EmulatedDevice(net.config) as device:
        device.load(net.image)
        outputs = net.package.run(device, {"x": x})
    np.testing.assert_array_equal(outputs["c"][:, 0], outputs["y"].argmax(1))
    want = np.trunc(x) @ np.array(numpy_helper.to_array(model.graph.initializer[0]), float) + x
    assert np.abs(outputs["y"] - want).max() < 0.03 * np.abs(want).max()


def test_a_result_of_the_front_is_an_output():
    model = network(
        [node("Gather", ["table", "ids"], ["e"]), node("Flatten", ["e"], ["f"]), node("Gemm", ["f", "w"], ["y"])],
        {"ids": (INT64, [2])}, {"y": (FLOAT, [3]), "e": (FLOAT, [2, 4])}, {"table": floats(9, 4), "w": floats(8, 3)},
    )  # fmt: skip
    net = concord.compile(model, preset=PRESET)
    results = net.run({"ids": np.array([[1, 8], [0, 3]])})
    table = np.asarray(numpy_helper.to_array(model.graph.initializer[0]), np.float64)
    assert np.abs(results["e"] - table[[[1, 8], [0, 3]]]).max() < 1e-3
