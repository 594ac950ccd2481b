"""Networks that others trained and exported, on the inputs they were made for, against onnxruntime.

They lie in the folder ``CONCORD_DATA``: ``models/*.onnx``, those in ``models/raw`` as converters left them.
"""

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from concord.frontend import import_model
from concord.graph.execute import run
from support.onnx_models import disagreement, ops, samples
from support.trained import DATA, needs_data

pytestmark = needs_data

COUNT = 5
#: Data file, key, and what is done with it before the network reads it.
SOURCES = {
    "ic_resnet8": ("ic_cifar10", "x", lambda x: x),
    "raw/ic_resnet8_nhwc": ("ic_cifar10", "x", lambda x: x.transpose(0, 2, 3, 1)),
    "kws_dscnn": ("kws_mfcc_int8", "x", lambda x: (x.astype(float) - 83) * 0.5847),
    "vww_mobilenetv1_025": ("vww_coco", "x", lambda x: x / 255),
    "ad_fc_autoencoder": ("ad_toycar", "x", lambda x: x[:, :5].reshape(-1, 640)),
    "sww_dscnn1d": ("sww_logmel", "x", lambda x: x),
    "kws_lstm118": ("kws_mfcc_f32", "x", lambda x: x),
    "kws_gru154": ("kws_mfcc_f32", "x", lambda x: x[:, ::2]),
    "kws_crnn": ("kws_mfcc_f32", "x", lambda x: x[:, None]),
    "mnist_cnn": ("mnist", "x", lambda x: x),
    "silero_vad_16k": ("silero_speech", "pcm", lambda x: sliding_window_view(x, 576)[48000::48000] / 32768),
    "silero_vad_16k_core": ("silero_speech", "core_spec", lambda x: x[30::60]),
    "digits_cnn": ("digits", "x", lambda x: x[:, None] / 16),
    **dict.fromkeys(
        ("digits_mlp", "digits_lstm64", "digits_gru64", "digits_transformer", "raw/digits_transformer_op14"),
        ("digits", "x", lambda x: x / 16),
    ),
}
#: What converters made of networks that also exist without their detours.
CONVERTED = {
    "raw/ad_fc_autoencoder": "ad_fc_autoencoder",
    "raw/digits_lstm64": "digits_lstm64",
    "raw/ic_resnet8_nhwc": "ic_resnet8",
    "raw/kws_dscnn": "kws_dscnn",
    "raw/mnist_cnn": "mnist_cnn",
    "raw/sww_dscnn1d": "sww_dscnn1d",
}
NETWORKS = sorted({*SOURCES, *CONVERTED})


def path(name):
    return DATA / "models" / f"{name}.onnx"


def inputs(name, graph):
    """Recorded inputs; recurrent states are random."""
    data = {tensor: 0.1 * value for tensor, value in samples(graph, COUNT).items()}
    file, key, prepare = SOURCES.get(name) or SOURCES[CONVERTED[name]]
    with np.load(DATA / "data" / f"{file}.npz") as content:
        data[graph.inputs[0]] = prepare(content[key])[:COUNT]
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_network_agrees_with_onnxruntime(name):
    graph = import_model(path(name))
    data = inputs(name, graph)
    proto = onnx.load(path(name))
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, graph.shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    assert disagreement(graph, proto, data) < 2e-5


@pytest.mark.parametrize("name", CONVERTED)
def test_converters_detours_are_undone(name):
    raw, clean = import_model(path(name)), import_model(path(CONVERTED[name]))
    assert [op for op in ops(raw) if op != "Transpose"] == ops(clean)
    turn = (lambda x: x.transpose(0, 2, 3, 1)) if "nhwc" in name else lambda x: x
    data = inputs(CONVERTED[name], clean)
    (want,) = run(clean, data).values()
    (got,) = run(raw, {raw.inputs[0]: turn(data[clean.inputs[0]])}).values()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_what_a_quantiser_leaves_is_the_same_network(tmp_path):
    """onnxruntime's own quantiser merges Relu into the codes; weights of 8 bits are all that differs."""
    clean = import_model(path("digits_cnn"))
    data = inputs("digits_cnn", clean)

    class Calibration(CalibrationDataReader):
        images = iter([{"input": x[None].astype(np.float32)} for x in data["input"]])

        def get_next(self):
            return next(self.images, None)

    target = tmp_path / "quantised.onnx"
    quantize_static(path("digits_cnn"), target, Calibration(), per_channel=True)
    graph = import_model(target)
    assert "Relu" not in {item.op_type for item in onnx.load(target).graph.node}
    kept, moved = [item.outputs for item in graph.nodes if item.op == "FakeQuantize"], ("Reshape", "FakeQuantize")
    assert kept == [("output",)]
    assert [op for op in ops(graph) if op not in moved] == [op for op in ops(clean) if op not in moved]
    assert {known.bits for known in graph.weight_quantization.values()} == {8} and len(graph.weight_quantization) == 3
    want, got = (run(g, data)["output"] for g in (clean, graph))
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_every_network_of_the_folder_is_here():
    found = {str(p.relative_to(DATA / "models").with_suffix("")) for p in (DATA / "models").rglob("*.onnx")}
    assert found == {*NETWORKS}
