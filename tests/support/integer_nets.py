"""Networks that ONNX Runtime has quantised, and every tensor of codes that it computes for them."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from concord.frontend.codes import load
from concord.networks.folder import load_codes, save_codes
from support.onnx_models import exact_sums, floats, ints, model, node

SHAPE = (3, 8, 8)


def stored(network, folder):
    """A network on codes from the folder that it was written to."""
    save_codes(network, folder, b"a model")
    return load_codes(folder)


def small_network():
    """Convolutions, one of them in depth, with a sum beside them, pools, a mean, functions and a dense layer."""
    constants = {
        "w1": floats(8, 3, 3, 3) / 4, "b1": floats(8), "w2": floats(8, 1, 3, 3) / 2, "b2": floats(8),
        "w3": floats(8, 5) / 3, "b3": floats(5), "flat": ints(0, -1),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w2", "b2"], ["d"], pads=[1] * 4, group=8),
        node("Add", ["c", "d"], ["e"]),
        node("LeakyRelu", ["e"], ["f"], alpha=0.2),
        node("GlobalAveragePool", ["f"], ["g"]),
        node("Reshape", ["g", "flat"], ["h"]),
        node("Gemm", ["h", "w3", "b3"], ["i"]),
        node("Sigmoid", ["i"], ["y"]),
    ]
    return model(nodes, {"x": ["N", *SHAPE]}, constants=constants)


class Samples(CalibrationDataReader):
    """Samples of one input, one after the other."""

    def __init__(self, name, x):
        self.rows = iter({name: row[None]} for row in x)

    def get_next(self):
        return next(self.rows, None)


def quantised(folder, proto, x, per_channel=True, **options):
    """The model as ONNX Runtime quantises it with the samples ``x``."""
    source, target = folder / "floats.onnx", folder / "quantised.onnx"
    source.write_bytes(proto.SerializeToString())
    quantize_static(source, target, Samples(proto.graph.input[0].name, x), per_channel=per_channel, **options)
    return onnx.load(target)


def codes_of_onnxruntime(proto, names, inputs, kind):
    """Codes of the tensors ``names`` of ONNX Runtime, with its integer kernels wherever it has some."""
    seen = type(proto)()
    seen.CopyFrom(proto)
    del seen.graph.output[:]
    seen.graph.output.extend(helper.make_tensor_value_info(name, getattr(TensorProto, kind), None) for name in names)
    options = exact_sums(kind == "UINT8")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session = onnxruntime.InferenceSession(seen.SerializeToString(), options)
    return dict(zip(names, session.run(None, inputs), strict=True))


def compared(proto, inputs, kind, outputs=None):
    """How many codes were compared with ONNX Runtime's, in all tensors of a model, and how many differ."""
    network = load(proto, outputs, compose=False)
    own = network.run(inputs, every=True)
    made = [name for item in proto.graph.node for name in item.output]
    names = [name for name in made if name in own and own[name].dtype.kind != "f"]
    theirs = codes_of_onnxruntime(proto, names, inputs, kind)
    assert all(own[name].dtype == theirs[name].dtype and own[name].shape == theirs[name].shape for name in names)
    return sum(codes.size for codes in theirs.values()), sum(int(np.sum(own[k] != theirs[k])) for k in names)
