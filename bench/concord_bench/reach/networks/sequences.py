"""Networks for sound and other series, and recurrent ones."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from concord_bench.reach.networks.builder import Builder, Family, uniform, whole

SOUND = Family("sound and series")
RECURRENT = Family("recurrent")


def conv1d(b: Builder, x: str, cin: int, cout: int, k: int, *, relu: bool = True, causal: bool = False, d: int = 1,
           s: int = 1, g: int = 1) -> str:  # fmt: skip
    """A convolution along time, causal by padding in front."""
    pads = [d * (k - 1), 0] if causal else None
    y = b.conv(x, cin, cout, k, axes=1, p=pads, d=d, s=s, g=g)
    return str(b.op("Relu", y)) if relu else y


@SOUND.network("DS-CNN for keywords from Keras (tf2onnx): NHWC spectrogram, depthwise and pointwise", opset=13)
def dscnn_keras(b: Builder) -> None:
    x = b.transpose(b.input("input_1", ["unk__9", 25, 10, 1]), 0, 3, 1, 2)
    x = b.conv_relu(x, 1, 16, (10, 4), s=2, p=(4, 1, 5, 1))
    for _ in range(2):
        x = b.conv_relu(b.conv_relu(x, 16, 16, g=16), 16, 16, 1)
    x = b.op("Squeeze", b.op("GlobalAveragePool", x), b.ints(2, 3))
    b.result("Softmax", b.op("Softmax", b.dense(x, 16, 12), axis=-1))


@SOUND.network("TC-ResNet for keywords: spectral bands are channels, convolutions along time")
def tc_resnet(b: Builder) -> None:
    x = b.op("Squeeze", b.input("mfcc", ["batch", 1, 40, 50]), b.ints(1))
    x = conv1d(b, x, 40, 16, 3, relu=False)
    for cin, cout in ((16, 24), (24, 32)):
        y = conv1d(b, conv1d(b, x, cin, cout, 9, s=2), cout, cout, 9, relu=False)
        x = b.op("Relu", b.add(y, b.op("Relu", b.conv(x, cin, cout, 1, axes=1, s=2))))
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    b.result("logits", b.linear(x, 32, 12))


@SOUND.network("CRNN for keywords on raw sound: STFT as a convolution, logarithm, convolution, GRU")
def crnn_stft(b: Builder) -> None:
    x = b.unsqueeze(
        b.input("sound", ["batch", 640], values=lambda rng, shape: 0.3 * rng.standard_normal(shape).astype("f")), 1
    )
    turn = 2 * np.pi * np.outer(np.arange(16), np.arange(64)) / 64
    window = np.hanning(64)
    basis = np.concatenate([np.cos(turn) * window, np.sin(turn) * window])[:, None].astype(np.float32)
    x = b.op("Conv", x, b.const(basis), kernel_shape=[64], strides=[32])
    real, imaginary = b.slice(x, 0, 16, 1), b.slice(x, 16, 32, 1)
    power = b.add(b.op("Pow", real, b.scalar(2)), b.op("Pow", imaginary, b.scalar(2)))
    x = b.op("Log", b.add(power, b.scalar(1e-2)))
    x = b.transpose(conv1d(b, x, 16, 24, 3), 2, 0, 1)
    y, _ = gru(b, x, 24, 24)
    b.result("logits", b.linear(b.op("Gather", b.squeeze(y, 1), b.const(np.int64(-1)), axis=0), 24, 4))


@SOUND.network("TCN (locuslab): causal dilated convolutions by padding and cutting off, residual")
def tcn(b: Builder) -> None:
    x = b.input("input", ["batch", 4, 64])
    c = 4
    for d in (1, 2, 4, 8):
        y = x
        for cin in (c, 16):
            y = b.conv(y, cin, 16, 3, axes=1, d=d, p=2 * d)
            y = b.op("Relu", b.slice(y, 0, 64, 2))
        x = b.op("Relu", b.add(y, x if c == 16 else b.conv(x, c, 16, 1, axes=1)))
        c = 16
    b.result("forecast", b.linear(b.op("Gather", x, b.const(np.int64(-1)), axis=2), 16, 1))


@SOUND.network("WaveNet: gates of tanh and sigmoid, dilations to 16, skips added up")
def wavenet(b: Builder) -> None:
    x = conv1d(b, b.input("wave", [1, 1, 64]), 1, 16, 2, relu=False, causal=True)
    skips = []
    for d in (1, 2, 4, 8, 16):
        y = conv1d(b, x, 16, 32, 2, relu=False, causal=True, d=d)
        filtered, gate = b.op("Split", y, b.ints(16, 16), results=2, axis=1)
        y = b.mul(b.op("Tanh", filtered), b.op("Sigmoid", gate))
        skips.append(b.conv(y, 16, 16, 1, axes=1))
        x = b.add(x, b.conv(y, 16, 16, 1, axes=1))
    y = b.op("Relu", b.op("Sum", *skips))
    b.result("next", b.conv(b.op("Relu", b.conv(y, 16, 16, 1, axes=1)), 16, 32, 1, axes=1))


@SOUND.network("ECG classifier: 1-d convolutions, max pooling, dropout")
def ecg_conv1d(b: Builder) -> None:
    x = b.input("ecg", ["batch", 1, 187])
    for cin, cout, k in ((1, 8, 7), (8, 16, 5), (16, 32, 5)):
        x = b.op("MaxPool", conv1d(b, x, cin, cout, k), kernel_shape=[3], strides=[2], pads=[1, 1])
    x = b.op("Relu", b.linear(b.op("Flatten", b.op("Dropout", x)), 32 * 24, 32))
    b.result("logits", b.linear(x, 32, 5))


@SOUND.network("1-d CNN of Keras for motion sensors (tf2onnx): Conv1D by Unsqueeze and two axes", opset=15)
def har_keras(b: Builder) -> None:
    x = b.transpose(b.input("input_1", ["unk__7", 64, 6]), 0, 2, 1)
    for cin, cout in ((6, 16), (16, 16)):
        x = b.op("Relu", b.squeeze(b.conv(b.unsqueeze(x, 2), cin, cout, (1, 3), p=0), 2))
    x = b.op("MaxPool", b.unsqueeze(x, 2), kernel_shape=[1, 2], strides=[1, 2])
    x = b.reshape(b.transpose(b.squeeze(x, 2), 0, 2, 1), -1, 480)
    b.result("dense_1", b.op("Softmax", b.dense(b.op("Relu", b.dense(x, 480, 32)), 32, 6), axis=-1))


@SOUND.network("1-d U-Net for sources in sound: convolutions, linear up-sampling, skips")
def wave_unet(b: Builder) -> None:
    x = b.input("mixture", [1, 1, 64])
    first = conv1d(b, x, 1, 8, 5)
    second = conv1d(b, b.slice(first, 0, 64, 2, 2), 8, 16, 5)
    scales = b.const(np.array([1, 1, 2], np.float32))
    y = b.op("Resize", second, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    y = conv1d(b, b.concat(first, y), 24, 8, 5)
    b.result("voice", b.op("Tanh", b.conv(y, 8, 1, 1, axes=1)))


@SOUND.network("anomaly detector: autoencoder whose result is the mean of squared errors")
def anomaly_autoencoder(b: Builder) -> None:
    x = y = b.input("features", ["batch", 64])
    for cin, cout in ((64, 32), (32, 8), (8, 32)):
        y = b.op("Relu", b.linear(y, cin, cout, gain=1.4))
    error = b.op("Sub", x, b.linear(y, 32, 64))
    b.result("score", b.mean(b.mul(error, error), 1, keep=False))


@SOUND.network("N-BEATS: dense blocks whose backcast is subtracted and whose forecasts are added")
def nbeats(b: Builder) -> None:
    x = b.input("history", ["batch", 32])
    forecasts = []
    for _ in range(3):
        h = b.op("Relu", b.linear(b.op("Relu", b.linear(x, 32, 48, gain=1.4)), 48, 48, gain=1.4))
        x = b.op("Sub", x, b.linear(h, 48, 32, gain=0.5))
        forecasts.append(b.linear(h, 48, 8))
    b.result("forecast", b.add(b.add(forecasts[0], forecasts[1]), forecasts[2]))


def gru(b: Builder, x: str, cin: int, c: int, both: bool = False) -> list[str]:
    """A GRU with initial states of zeros that the exporter makes of the size of the batch."""
    n = 2 if both else 1
    weights = [b.weight(n, 3 * c, cin), b.weight(n, 3 * c, c), b.small(n, 6 * c)]
    size = b.op("Gather", b.op("Shape", x), b.const(np.int64(1)), axis=0)
    shape = b.concat(b.ints(n), b.unsqueeze(size, 0), b.ints(c), axis=0)
    start = b.op("Expand", b.const(np.zeros((n, 1, c), np.float32)), shape)
    direction = "bidirectional" if both else "forward"
    results: list[str] = b.op(
        "GRU", x, *weights, "", start, results=2, hidden_size=c, linear_before_reset=1, direction=direction
    )
    return results


def lstm(b: Builder, x: str, cin: int, c: int, both: bool = False, lengths: str = "") -> list[str]:
    """An LSTM whose states begin with zeros."""
    n = 2 if both else 1
    weights = [b.weight(n, 4 * c, cin), b.weight(n, 4 * c, c), b.small(n, 8 * c)]
    operands = [x, *weights] + ([lengths] if lengths else [])
    direction = "bidirectional" if both else "forward"
    results: list[str] = b.op("LSTM", *operands, results=3, hidden_size=c, direction=direction)
    return results


@RECURRENT.network("text classifier: int64 ids, embedding, LSTM, last state (PyTorch, batch first)")
def lstm_embedding(b: Builder) -> None:
    ids = b.input("ids", ["batch", 12], TensorProto.INT64, whole(0, 50))
    x = b.op("Gather", b.small(50, 16, size=1.0), ids)
    _, state, _ = lstm(b, b.transpose(x, 1, 0, 2), 16, 24)
    b.result("logits", b.linear(b.squeeze(state, 0), 24, 3))


@RECURRENT.network("text classifier: int64 ids, embedding, GRU and a dense layer on the last step")
def gru_embedding(b: Builder) -> None:
    ids = b.input("ids", [1, 12], TensorProto.INT64, whole(0, 50))
    x = b.op("Gather", b.small(50, 16, size=1.0), ids)
    y, _ = gru(b, b.transpose(x, 1, 0, 2), 16, 24)
    b.result("logits", b.linear(b.op("Gather", b.squeeze(y, 1), b.const(np.int64(-1)), axis=0), 24, 3))


@RECURRENT.network("bidirectional LSTM with mean over time, as taggers and sensors have it")
def bilstm(b: Builder) -> None:
    x = b.transpose(b.input("series", ["batch", 20, 6]), 1, 0, 2)
    y, _, _ = lstm(b, x, 6, 16, both=True)
    y = b.transpose(b.op("Reshape", b.transpose(y, 0, 2, 1, 3), b.ints(0, 0, -1)), 1, 0, 2)
    b.result("logits", b.linear(b.mean(y, 1, keep=False), 32, 4))


@RECURRENT.network(
    "sequence-to-sequence autoencoder of Keras: LSTM, RepeatVector, LSTM, TimeDistributed (tf2onnx)", opset=15
)
def seq2seq_repeat(b: Builder) -> None:
    x = b.transpose(b.input("lstm_input", ["unk__3", 16, 4]), 1, 0, 2)
    _, state, _ = lstm(b, x, 4, 16)
    x = b.op("Tile", b.transpose(state, 1, 0, 2), b.ints(1, 16, 1))
    y, _, _ = lstm(b, b.transpose(x, 1, 0, 2), 16, 16)
    y = b.transpose(b.squeeze(y, 1), 1, 0, 2)
    b.result("time_distributed", b.dense(y, 16, 4))


@RECURRENT.network("Keras LSTM on sensor windows, return_sequences=False, softmax (tf2onnx)", opset=15)
def lstm_keras(b: Builder) -> None:
    x = b.transpose(b.input("lstm_input", ["unk__5", 24, 5]), 1, 0, 2)
    y, _, _ = lstm(b, x, 5, 20)
    y = b.squeeze(b.slice(b.squeeze(y, 1), -1, 2**31 - 1, 0), 0)
    b.result("dense", b.op("Softmax", b.dense(y, 20, 3), axis=-1))


@RECURRENT.network("LSTM with an int64 input of lengths (packed sequences)")
def lstm_lengths(b: Builder) -> None:
    x = b.input("series", [1, 10, 4])
    lengths = b.input("lengths", [1], TensorProto.INT64, whole(3, 11))
    y, state, _ = lstm(b, b.transpose(x, 1, 0, 2), 4, 16, lengths=b.op("Cast", lengths, to=6))
    b.result("logits", b.linear(b.squeeze(state, 0), 16, 3))
    b.output(y)


@RECURRENT.network("recurrent step with its state as input and result, for streams")
def gru_stream(b: Builder) -> None:
    x, state = b.input("frame", [1, 1, 16]), b.input("state", [1, 1, 32], values=uniform(-0.5, 0.5))
    y, new = b.op(
        "GRU", x, b.weight(1, 96, 16), b.weight(1, 96, 32), b.small(1, 192), "", state, results=2,
        hidden_size=32, linear_before_reset=1,
    )  # fmt: skip
    b.result("gain", b.op("Sigmoid", b.dense(b.squeeze(y, 1), 32, 16)))
    b.result("new_state", new)


@RECURRENT.network("LSTM with attention over its outputs (Bahdanau) for the class")
def lstm_attention(b: Builder) -> None:
    x = b.transpose(b.input("series", ["batch", 16, 6]), 1, 0, 2)
    y, _, _ = lstm(b, x, 6, 16)
    y = b.transpose(b.squeeze(y, 1), 1, 0, 2)
    scores = b.dense(b.op("Tanh", b.dense(y, 16, 8)), 8, 1, bias=False)
    weights = b.op("Softmax", scores, axis=1)
    b.result("logits", b.linear(b.mean(b.mul(weights, y), 1, keep=False, op="ReduceSum"), 16, 3))
