"""Files of ``concord types`` with real factors, executed on codes: the four forms of [dtype-pass] from end to end."""

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_static

from concord.frontend import import_model
from concord.frontend.codes import load
from concord.graph.passes.dtypes import assign, factors_of_codes
from concord.integer.weighted_sums import IntegerMatMul
from concord.integer.wide import CodesOfNumbers, WideSum
from support.commands import run
from support.derived_backends import needs_c
from support.integer_nets import Samples
from support.onnx_models import onnxruntime_results
from support.quantised_nets import QdqMaker
from support.trained import DATA, needs_data
from sw.frontend.codes.test_networks import TRAINED, trained_input

#: Products of :func:`forms`, with what they read and write.
FORMS = {
    "fc1": "narrow to narrow", "fc2": "narrow to wide", "fc3": "narrow to wide", "fc4": "narrow to narrow",
    "fc5": "narrow to wide", "fc6": "wide to narrow", "fc7": "narrow to wide", "fc8": "wide to wide",
}  # fmt: skip


def forms(seed=0, exact=False):
    """A model with products in all four forms, and samples; ``exact``: scales are powers of two."""
    rng = np.random.default_rng(seed)
    maker, x = QdqMaker((8,), rng), rng.normal(0, 1, (40, 8)).astype(np.float32)
    names = {}

    def product(name, decoded):
        made = maker.product(decoded, 8, 8, exact)
        names[made] = name
        return made

    def coded(tensor):
        return maker.fitted(tensor, "INT8", x, exact=exact)

    hidden = coded(maker.add("Relu", product("fc1", coded("x"))))
    a = maker.add("Add", product("fc2", hidden), maker.constant(np.float32(0.5)))
    shared = coded(a)
    b = maker.add("Mul", product("fc3", shared), a)
    y1 = product("fc5", coded(product("fc4", shared)))
    y2 = product("fc7", coded(product("fc6", coded(b))))
    y3 = product("fc8", coded(maker.add("Add", b, a)))
    proto = maker.model([y1, y2, y3])
    for item in proto.graph.node:
        item.name = names.get(item.output[0], item.name)
    return proto, x


@pytest.fixture(params=[False, True], ids=["real factors", "powers of two"])
def place(request, tmp_path):
    """``net.onnx``, and ``typed.onnx`` as the command writes it; ``x.npz``; whether scales are powers of two."""
    proto, x = forms(exact=request.param)
    onnx.save(proto, tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    code, output = run("types", tmp_path / "net.onnx", "-o", tmp_path / "typed.onnx")
    assert code == 0 and "1 shared conversion as a node" in output, output
    return tmp_path, request.param


def notes(part):
    return {item.key: item.value for item in part.metadata_props}


def test_the_file_has_the_forms_and_the_factors(place):
    proto = onnx.load(place[0] / "typed.onnx")
    assert {item.name: notes(item).get("concord:form") for item in proto.graph.node if item.name in FORMS} == FORMS
    (conversion,) = [item for item in proto.graph.node if item.op_type == "ToNarrow"]
    (quantiser,) = [item for item in proto.graph.node if conversion.output[0] in item.input]
    scales = {item.name: onnx.numpy_helper.to_array(item) for item in proto.graph.initializer}
    assert quantiser.op_type == "QuantizeLinear" and notes(conversion) == {"concord:readers": "fc4, fc3"}
    assert conversion.attribute[0].f == np.float32(1 / float(scales[quantiser.input[1]]))


def test_the_forms_of_the_file_are_those_that_are_executed(place):
    """A product is wide where the file says so; it has a conversion of its own if its form reads wide."""
    graph = load(place[0] / "typed.onnx").graph
    makers = {operation.output: operation for operation in graph.operations}
    executed = {}
    for operation in graph.operations:
        if isinstance(operation, IntegerMatMul):
            readers = [other for other in graph.operations if operation.inputs[0] in other.inputs]
            own = isinstance(makers.get(operation.inputs[0]), CodesOfNumbers) and len(readers) == 1
            writes = "wide" if graph.is_wide(operation.output) else "narrow"
            executed[operation.name] = f"{'wide' if own else 'narrow'} to {writes}"
    assert executed == FORMS


def test_results_are_those_of_the_model_and_of_onnxruntime(place):
    folder, exact = place
    (x,) = np.load(folder / "x.npz").values()
    results = []
    for name in ("net", "typed"):
        code, output = run("run", folder / f"{name}.onnx", "--exact", "-i", folder / "x.npz", "-o", folder / "y.npz")
        assert code == 0 and output.count("float32") == 3, output
        results.append(dict(np.load(folder / "y.npz")))
    proto = onnx.load(folder / "typed.onnx")
    for item, want in zip(proto.graph.output, onnxruntime_results(proto, {"x": x}), strict=True):
        assert results[0][item.name].tobytes() == results[1][item.name].tobytes()
        if exact:
            assert np.array_equal(results[1][item.name], want)
        else:  # where a sum of floats is rounded in another place, a code may be the next one
            assert np.abs(results[1][item.name] - want).max() < 0.05 * np.abs(want).max()


def test_a_folder_of_the_file(place):
    folder, _ = place
    code, output = run("compile", folder / "typed.onnx", "--exact", "-o", folder / "net")
    assert code == 0, output
    code, output = run("run", folder / "net", "-i", folder / "x.npz", "-o", folder / "y.npz")
    assert code == 0, output
    want = load(folder / "net.onnx").run(dict(np.load(folder / "x.npz")))
    assert all(np.array_equal(made, want[name]) for name, made in np.load(folder / "y.npz").items())
    code, output = run("inspect", folder / "net")
    assert code == 0 and "WideSum" in output and "float32" in output
    code, output = run("report", folder / "net", "-i", folder / "x.npz")
    assert code == 0, output


@pytest.mark.slow
@needs_c
def test_c_of_the_file(place):
    code, output = run("prove", place[0] / "typed.onnx", "--with", "c", "--exact")
    assert code == 0, output
    code, output = run("derive", place[0] / "typed.onnx", "--to", "c", "--exact", "-o", place[0] / "made.c")
    assert code == 0 and output.count("float32") == 3, output


def test_factors_are_one_over_the_scale():
    proto, _ = forms()
    graph = import_model(proto)
    factors = factors_of_codes(graph)
    assert {name for name, _ in factors} == {*FORMS} and len(set(factors.values())) == 7  # two products share one
    scales = {float(scheme.scale) for scheme in graph.quantization.values()}
    assert set(factors.values()) == {1 / scale for scale in scales}
    types = assign(graph, factors)
    assert [conversion.factor for conversion in types.conversions] == [factors["fc3", 0]] == [factors["fc4", 0]]


def test_scales_of_channels_are_no_factor():
    """A product multiplies what it reads by one number."""
    rng = np.random.default_rng(1)
    maker = QdqMaker((4, 4, 4), rng)
    x = maker.pair("x", "INT8", rng.uniform(0.1, 0.2, 4), np.zeros(4, int), axis=1)
    y = maker.add("Conv", x, maker.weight((2, 4, 1, 1)))
    assert factors_of_codes(import_model(maker.model([y]))) == {}


@needs_data
@pytest.mark.slow
def test_resnet_with_wide_sums(tmp_path):
    """Trained, and quantised by ONNX Runtime in front of convolutions alone: sums of the residuals are wide."""
    x, few = trained_input("ic_resnet8", dict(TRAINED)["ic_resnet8"])
    proto = onnx.load(DATA / "models" / "ic_resnet8.onnx")
    layers = ["Conv", "Gemm"]
    quantize_static(
        DATA / "models" / "ic_resnet8.onnx", tmp_path / "net.onnx", Samples(proto.graph.input[0].name, few),
        per_channel=True, op_types_to_quantize=layers,
        extra_options={"OpTypesToExcludeOutputQuantization": layers},
    )  # fmt: skip
    code, output = run("types", tmp_path / "net.onnx", "-o", tmp_path / "typed.onnx")
    assert code == 0, output
    (name,) = [item.input[0] for item in proto.graph.node if "AveragePool" in item.op_type]
    network = load(tmp_path / "typed.onnx", [name])
    assert sum(isinstance(operation, WideSum) for operation in network.graph.operations) == 3
    (made,) = network.run({proto.graph.input[0].name: x}).values()
    typed = onnx.load(tmp_path / "typed.onnx")
    typed.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    want = onnxruntime_results(typed, {proto.graph.input[0].name: x})[-1]
    print(f"{made.size} numbers: the largest differs by {np.abs(made - want).max() / want.max():.2g} of the greatest")
    assert made.shape == want.shape and np.abs(made - want).max() < 0.05 * want.max()
