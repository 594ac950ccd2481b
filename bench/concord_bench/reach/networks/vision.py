"""Networks that classify images."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from concord_bench.reach.networks.builder import Builder, Family, uniform, whole

IMAGES = Family("images: classes")
network = IMAGES.network


def hard_swish(b: Builder, x: str) -> str:
    """x Relu6(x + 3) / 6, as exporters before opset 14 write it."""
    return str(b.op("Div", b.mul(x, b.clip(b.add(x, b.scalar(3)), 0, 6)), b.scalar(6)))


def squeeze_excite(b: Builder, x: str, c: int, inner: int, gate: str = "HardSigmoid") -> str:
    """A factor per channel from the means of all of them."""
    y = b.conv_relu(b.op("GlobalAveragePool", x), c, inner, 1)
    y = b.conv(y, inner, c, 1)
    y = b.op("HardSigmoid", y, alpha=1 / 6) if gate == "HardSigmoid" else b.op(gate, y)
    return b.mul(x, y)


@network("LeNet-5 with tanh and mean pooling, as lectures have it (PyTorch, legacy exporter)")
def lenet5(b: Builder) -> None:
    x = b.input("input.1", ["batch", 1, 28, 28], values=uniform(0, 1))
    x = b.avgpool(b.op("Tanh", b.conv(x, 1, 6, 5)), 2)
    x = b.avgpool(b.op("Tanh", b.conv(x, 6, 16, 5, p=0)), 2)
    x = b.op("Tanh", b.linear(b.op("Flatten", x), 400, 120))
    b.result("logits", b.linear(b.op("Tanh", b.linear(x, 120, 84)), 84, 10))


@network("examples/mnist of PyTorch: two convolutions, 9216-128-10, log_softmax")
def pytorch_mnist(b: Builder) -> None:
    x = b.input("x", ["batch", 1, 28, 28])
    x = b.conv_relu(b.conv_relu(x, 1, 32, p=0), 32, 64, p=0)
    x = b.op("Relu", b.linear(b.op("Flatten", b.maxpool(x, 2)), 9216, 128))
    b.result("log_probs", b.op("LogSoftmax", b.linear(x, 128, 10), axis=1))


@network("the same network at a quarter of the channels, with `x.view(x.size(0), -1)`")
def pytorch_mnist_small(b: Builder) -> None:
    x = b.input("x", ["batch", 1, 28, 28])
    x = b.maxpool(b.conv_relu(b.conv_relu(x, 1, 8, p=0), 8, 8, p=0), 2)
    size = b.op("Gather", b.op("Shape", x), b.const(np.int64(0)), axis=0)
    shape = b.concat(b.unsqueeze(size, 0), b.ints(-1), axis=0)
    x = b.op("Relu", b.linear(b.op("Reshape", x, shape), 1152, 64))
    b.result("log_probs", b.op("LogSoftmax", b.linear(x, 64, 10), axis=1))


def basic_block(b: Builder, x: str, cin: int, cout: int, s: int) -> str:
    """Two 3 x 3 convolutions beside the identity or a 1 x 1 convolution."""
    y = b.conv(b.conv_relu(x, cin, cout, s=s), cout, cout, gain=0.7)
    return str(b.op("Relu", b.add(y, x if (cin, s) == (cout, 1) else b.conv(x, cin, cout, 1, s=s, gain=1))))


@network("torchvision's resnet18 with an eighth of the channels at 32 x 32, stem 7 x 7 and max pooling")
def resnet18(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.maxpool(b.conv_relu(x, 3, 8, 7, s=2), 3, 2, 1)
    for cin, cout, s in (
        (8, 8, 1),
        (8, 8, 1),
        (8, 16, 2),
        (16, 16, 1),
        (16, 32, 2),
        (32, 32, 1),
        (32, 64, 2),
        (64, 64, 1),
    ):
        x = basic_block(b, x, cin, cout, s)
    b.result("logits", b.linear(b.flatten_pool(x), 64, 10))


@network("bottleneck blocks of torchvision's resnet50, narrow, with batch normalisation left in the file")
def resnet_bottleneck(b: Builder) -> None:
    x = b.input("input", [1, 3, 32, 32])
    x = b.op("Relu", b.batchnorm(b.conv(x, 3, 16, s=2, bias=False), 16))
    for cin, inner, s in ((16, 8, 1), (32, 8, 1), (32, 16, 2)):
        y = b.op("Relu", b.batchnorm(b.conv(x, cin, inner, 1, bias=False), inner))
        y = b.op("Relu", b.batchnorm(b.conv(y, inner, inner, s=s, bias=False), inner))
        y = b.batchnorm(b.conv(y, inner, 4 * inner, 1, bias=False, gain=0.7), 4 * inner)
        if (cin, s) != (4 * inner, 1):
            x = b.batchnorm(b.conv(x, cin, 4 * inner, 1, s=s, p=0, bias=False, gain=1), 4 * inner)
        x = b.op("Relu", b.add(y, x))
    b.result("logits", b.linear(b.flatten_pool(x), 64, 10))


@network("MobileNetV2 of torchvision, width 0.25 and fewer blocks, Relu6")
def mobilenet_v2(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.clip(b.conv(x, 3, 8, s=2), 0, 6)
    for cin, cout, s in ((8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 24, 2)):
        y = b.clip(b.conv(x, cin, 6 * cin, 1), 0, 6)
        y = b.clip(b.conv(y, 6 * cin, 6 * cin, s=s, g=6 * cin), 0, 6)
        y = b.conv(y, 6 * cin, cout, 1, gain=1)
        x = b.add(x, y) if (cin, s) == (cout, 1) else y
    x = b.clip(b.conv(x, 24, 64, 1), 0, 6)
    b.result("logits", b.linear(b.flatten_pool(x), 64, 10))


@network("MobileNetV3 of torchvision: hard swish, squeeze and excitation (opset 17 has both functions)")
def mobilenet_v3(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.op("HardSwish", b.conv(x, 3, 8, s=2))
    for cin, inner, cout, k, s in ((8, 16, 8, 3, 1), (8, 24, 16, 5, 2), (16, 48, 16, 5, 1)):
        y = b.op("HardSwish", b.conv(x, cin, inner, 1))
        y = b.op("HardSwish", b.conv(y, inner, inner, k, s=s, g=inner))
        y = b.conv(squeeze_excite(b, y, inner, 8), inner, cout, 1, gain=1)
        x = b.add(x, y) if (cin, s) == (cout, 1) else y
    x = b.op("HardSwish", b.linear(b.flatten_pool(x), 16, 32))
    b.result("logits", b.linear(x, 32, 10))


@network("MobileNetV3 as exported before opset 14: hard swish by Clip and Div", opset=13)
def mobilenet_v3_clip(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = hard_swish(b, b.conv(x, 3, 8, s=2))
    y = hard_swish(b, b.conv(x, 8, 24, 1))
    y = hard_swish(b, b.conv(y, 24, 24, 5, s=2, g=24))
    gate = b.conv(b.conv_relu(b.op("GlobalAveragePool", y), 24, 8, 1), 8, 24, 1)
    y = b.mul(y, b.op("Div", b.clip(b.add(gate, b.scalar(3)), 0, 6), b.scalar(6)))
    x = hard_swish(b, b.conv(b.conv(y, 24, 16, 1), 16, 48, 1))
    b.result("logits", b.linear(b.flatten_pool(x), 48, 10))


@network("EfficientNet (MBConv with SiLU and squeeze and excitation by Sigmoid)")
def efficientnet(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.silu(b.conv(x, 3, 8, s=2))
    for cin, cout, k, s in ((8, 8, 3, 1), (8, 16, 3, 2), (16, 16, 5, 1)):
        y = b.silu(b.conv(x, cin, 4 * cin, 1))
        y = squeeze_excite(b, b.silu(b.conv(y, 4 * cin, 4 * cin, k, s=s, g=4 * cin)), 4 * cin, 4, "Sigmoid")
        y = b.conv(y, 4 * cin, cout, 1, gain=1)
        x = b.add(x, y) if (cin, s) == (cout, 1) else y
    b.result("logits", b.linear(b.flatten_pool(b.silu(b.conv(x, 16, 64, 1))), 64, 10))


@network("EfficientNet-Lite from Keras (tf2onnx): NHWC, Transpose at both ends, asymmetric padding, Softmax", opset=15)
def efficientnet_lite_keras(b: Builder) -> None:
    x = b.transpose(b.input("input_1", ["unk__10", 32, 32, 3], values=uniform(0, 1)), 0, 3, 1, 2)
    x = b.clip(b.conv(x, 3, 8, s=2, p=(0, 0, 1, 1)), 0, 6)
    y = b.clip(b.conv(x, 8, 32, 1), 0, 6)
    y = b.clip(b.conv(y, 32, 32, s=2, g=32, p=(0, 0, 1, 1)), 0, 6)
    x = b.conv(y, 32, 16, 1, gain=1)
    y = b.clip(b.conv(b.clip(b.conv(x, 16, 48, 1), 0, 6), 48, 48, g=48), 0, 6)
    x = b.add(x, b.conv(y, 48, 16, 1, gain=1))
    x = b.op("GlobalAveragePool", b.clip(b.conv(x, 16, 64, 1), 0, 6))
    x = b.op("Squeeze", x, b.ints(2, 3))
    b.result("dense", b.op("Softmax", b.dense(x, 64, 10), axis=-1))


def channel_shuffle(b: Builder, x: str, c: int, groups: int, size: int) -> str:
    """Channels of groups in turn."""
    y = b.transpose(b.reshape(x, -1, groups, c // groups, size, size), 0, 2, 1, 3, 4)
    return b.reshape(y, -1, c, size, size)


@network("ShuffleNetV2 of torchvision: halves of the channels, concatenation, shuffle")
def shufflenet_v2(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.maxpool(b.conv_relu(x, 3, 16, s=2), 3, 2, 1)
    left = b.conv_relu(b.conv(x, 16, 16, s=2, g=16), 16, 16, 1)
    right = b.conv_relu(b.conv(b.conv_relu(x, 16, 16, 1), 16, 16, s=2, g=16), 16, 16, 1)
    x = channel_shuffle(b, b.concat(left, right), 32, 2, 4)
    kept, right = b.op("Split", x, b.ints(16, 16), results=2, axis=1)
    right = b.conv_relu(b.conv(b.conv_relu(right, 16, 16, 1), 16, 16, g=16), 16, 16, 1)
    x = channel_shuffle(b, b.concat(kept, right), 32, 2, 4)
    b.result("logits", b.linear(b.mean(b.conv_relu(x, 32, 64, 1), 2, 3, keep=False), 64, 10))


@network("ShuffleNet with grouped 1 x 1 convolutions of three groups")
def shufflenet_v1(b: Builder) -> None:
    x = b.input("input", [1, 3, 32, 32])
    x = b.conv_relu(b.conv_relu(x, 3, 12, s=2), 12, 24, s=2)
    y = channel_shuffle(b, b.conv_relu(x, 24, 12, 1, g=3), 12, 3, 8)
    y = b.conv(b.conv(y, 12, 12, g=12), 12, 24, 1, g=3, gain=1)
    x = b.op("Relu", b.add(x, y))
    b.result("logits", b.linear(b.flatten_pool(x), 24, 10))


@network("SqueezeNet of torchvision: fire modules, classes by a 1 x 1 convolution and a mean")
def squeezenet(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.op("MaxPool", b.conv_relu(x, 3, 16, s=2, p=0), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    for cin, inner, cout in ((16, 8, 16), (32, 8, 16), (32, 12, 24)):
        y = b.conv_relu(x, cin, inner, 1)
        x = b.concat(b.conv_relu(y, inner, cout, 1), b.conv_relu(y, inner, cout, 3))
    x = b.conv_relu(b.op("Dropout", x), 48, 10, 1)
    b.result("logits", b.op("Flatten", b.op("GlobalAveragePool", x)))


@network("DenseNet of torchvision: batch normalisation in front, concatenation of all layers")
def densenet(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.conv_relu(x, 3, 16, s=2)
    c = 16
    for layers in (3, 3):
        for _ in range(layers):
            y = b.conv(b.op("Relu", b.batchnorm(x, c)), c, 16, 1, bias=False)
            x = b.concat(x, b.conv(b.op("Relu", b.batchnorm(y, 16)), 16, 8, bias=False))
            c += 8
        x = b.avgpool(b.conv(b.op("Relu", b.batchnorm(x, c)), c, c // 2, 1, bias=False), 2)
        c //= 2
    x = b.op("Relu", b.batchnorm(x, c))
    b.result("logits", b.linear(b.flatten_pool(x), c, 10))


@network("Inception / GoogLeNet: four branches, one of pooling, and 1 x 7 with 7 x 1")
def inception(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.maxpool(b.conv_relu(x, 3, 16, s=2), 2)
    for cin in (16, 40):
        x = b.concat(
            b.conv_relu(x, cin, 8, 1),
            b.conv_relu(b.conv_relu(x, cin, 8, 1), 8, 16),
            b.conv_relu(b.conv_relu(b.conv_relu(x, cin, 4, 1), 4, 8, (1, 7)), 8, 8, (7, 1)),
            b.conv_relu(b.maxpool(x, 3, 1, 1), cin, 8, 1),
        )
    b.result("logits", b.linear(b.flatten_pool(x), 40, 10))


@network("ConvNeXt of torchvision: 7 x 7 depthwise, LayerNorm over channels in NHWC, GELU, layer scale")
def convnext(b: Builder) -> None:
    x = b.input("input", ["batch", 3, 32, 32])
    x = b.conv(x, 3, 16, 4, s=4, p=0)
    x = b.transpose(b.layernorm(b.transpose(x, 0, 2, 3, 1), 16), 0, 3, 1, 2)
    for _ in range(2):
        y = b.layernorm(b.transpose(b.conv(x, 16, 16, 7, g=16), 0, 2, 3, 1), 16)
        y = b.dense(b.gelu(b.dense(y, 16, 64)), 64, 16)
        x = b.add(b.mul(b.transpose(y, 0, 3, 1, 2), b.small(16, 1, 1, middle=0.5)), x)
    b.result("logits", b.linear(b.layernorm(b.flatten_pool(x), 16), 16, 10))


@network("network with GroupNorm and SiLU, as small batches are trained")
def groupnorm_net(b: Builder) -> None:
    x = b.input("input", [1, 3, 16, 16])
    x = b.silu(b.group_norm(b.conv(x, 3, 16), 16, 4, (16, 16)))
    x = b.silu(b.group_norm(b.conv(x, 16, 32, s=2), 32, 8, (8, 8)))
    b.result("logits", b.linear(b.flatten_pool(x), 32, 10))


@network("ECA-Net: a 1-d convolution over channel means as attention")
def eca_net(b: Builder) -> None:
    x = b.conv_relu(b.input("input", ["batch", 3, 32, 32]), 3, 16, s=2)
    for _ in range(2):
        y = b.transpose(b.squeeze(b.op("GlobalAveragePool", x), -1), 0, 2, 1)
        y = b.unsqueeze(b.transpose(b.conv(y, 1, 1, 3, bias=False, axes=1), 0, 2, 1), -1)
        x = b.conv_relu(b.mul(x, b.op("Sigmoid", y)), 16, 16)
    b.result("logits", b.linear(b.flatten_pool(x), 16, 10))


@network("CBAM: attention of channels by mean and maximum, then of places by a 7 x 7 convolution")
def cbam(b: Builder) -> None:
    x = b.conv_relu(b.input("input", ["batch", 3, 32, 32]), 3, 16, s=2)
    first, second = b.weight(4, 16, 1, 1), b.weight(16, 4, 1, 1)

    def gate(pooled: str) -> str:
        return str(b.op("Conv", b.op("Relu", b.op("Conv", pooled, first)), second))

    y = b.add(gate(b.op("GlobalAveragePool", x)), gate(b.op("GlobalMaxPool", x)))
    x = b.mul(x, b.op("Sigmoid", y))
    y = b.concat(b.mean(x, 1), b.mean(x, 1, op="ReduceMax"))
    x = b.mul(x, b.op("Sigmoid", b.conv(y, 2, 1, 7, bias=False)))
    b.result("logits", b.linear(b.flatten_pool(b.conv_relu(x, 16, 32, s=2)), 32, 10))


@network("Maxout network: the greatest of three linear functions, by Reshape and ReduceMax")
def maxout(b: Builder) -> None:
    x = b.op("Flatten", b.input("image", ["batch", 1, 16, 16]))
    for cin in (256, 64):
        x = b.mean(b.reshape(b.linear(x, cin, 192), -1, 64, 3), 2, keep=False, op="ReduceMax")
    b.result("logits", b.linear(x, 64, 10))


@network("capsules: squash of vectors, class by the length of one")
def capsules(b: Builder) -> None:
    x = b.conv_relu(b.input("image", ["batch", 1, 16, 16]), 1, 16, 5, s=2)
    x = b.conv(x, 16, 32, 2, s=2, p=0)
    x = b.reshape(b.transpose(b.reshape(x, -1, 4, 8, 16), 0, 1, 3, 2), -1, 64, 8)
    square = b.mean(b.mul(x, x), 2, op="ReduceSum")
    root = b.op("Sqrt", b.add(square, b.scalar(1e-6)))
    x = b.op("Div", b.mul(x, square), b.mul(b.add(square, b.scalar(1)), root))
    x = b.reshape(b.linear(b.op("Flatten", x), 512, 80, gain=3), -1, 10, 8)
    b.result("lengths", b.op("ReduceL2", x, axes=[2], keepdims=0))


@network("CNN for uint8 images in NCHW with mean and deviation of ImageNet per channel in front")
def uint8_normalised(b: Builder) -> None:
    x = b.input("image", ["batch", 3, 32, 32], TensorProto.UINT8, whole(0, 256, np.uint8))
    x = b.op("Div", b.op("Cast", x, to=1), b.scalar(255))
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1)
    x = b.op("Div", b.op("Sub", x, b.const(mean)), b.const(deviation))
    x = b.conv_relu(b.conv_relu(x, 3, 8, s=2), 8, 16, s=2)
    b.result("logits", b.linear(b.flatten_pool(x), 16, 10))


@network("the same with float pixels from 0 to 255 as input")
def float_normalised(b: Builder) -> None:
    x = b.input("image", ["batch", 3, 32, 32], values=lambda rng, shape: rng.integers(0, 256, shape).astype(np.float32))
    mean = np.array([123.675, 116.28, 103.53], np.float32).reshape(1, 3, 1, 1)
    x = b.mul(
        b.op("Sub", x, b.const(mean)), b.const(np.array([0.0171, 0.0175, 0.0174], np.float32).reshape(1, 3, 1, 1))
    )
    x = b.conv_relu(b.conv_relu(x, 3, 8, s=2), 8, 16, s=2)
    b.result("logits", b.linear(b.flatten_pool(x), 16, 10))


@network("Keras on a phone: uint8 NHWC, Rescaling inside, Softmax and ArgMax (tf2onnx)", opset=15)
def uint8_nhwc_argmax(b: Builder) -> None:
    x = b.input("input_image", ["unk__1", 32, 32, 3], TensorProto.UINT8, whole(0, 256, np.uint8))
    x = b.add(b.mul(b.op("Cast", x, to=1), b.scalar(1 / 127.5)), b.scalar(-1))
    x = b.transpose(x, 0, 3, 1, 2)
    x = b.conv_relu(b.conv_relu(x, 3, 8, s=2, p=(0, 0, 1, 1)), 8, 16, s=2, p=(0, 0, 1, 1))
    x = b.dense(b.mean(x, 2, 3, keep=False), 16, 10)
    b.result("probabilities", b.op("Softmax", x, axis=-1))
    b.result("label", b.op("ArgMax", x, axis=1, keepdims=0), TensorProto.INT64)


@network("classifier whose results are the three best classes (TopK)")
def topk_classifier(b: Builder) -> None:
    x = b.input("image", ["batch", 3, 32, 32])
    x = b.conv_relu(b.conv_relu(x, 3, 8, s=2), 8, 16, s=2)
    x = b.op("Softmax", b.linear(b.flatten_pool(x), 16, 10, gain=3), axis=1)
    best, classes = b.op("TopK", x, b.ints(3), results=2, axis=1, largest=1, sorted=1)
    b.result("scores", best)
    b.result("classes", classes, TensorProto.INT64)


@network("classifier that gives only the class, int64")
def argmax_only(b: Builder) -> None:
    x = b.input("image", ["batch", 1, 16, 16])
    x = b.linear(b.flatten_pool(b.conv_relu(b.conv_relu(x, 1, 8), 8, 16, s=2)), 16, 4, gain=4)
    b.result("class", b.op("ArgMax", x, axis=1, keepdims=0), TensorProto.INT64)


@network("face recognition with CosFace: normalised features times normalised class vectors, scaled")
def cosface(b: Builder) -> None:
    x = b.input("face", ["batch", 3, 32, 32])
    x = b.op("PRelu", b.conv(x, 3, 16, s=2), b.small(16, 1, 1, middle=0.25))
    x = b.op("PRelu", b.conv(x, 16, 32, s=2), b.small(32, 1, 1, middle=0.25))
    x = b.linear(b.op("Flatten", b.conv(x, 32, 32, 8, g=32, p=0)), 32, 64)
    norm = b.op("Expand", b.op("Clip", b.op("ReduceL2", x, axes=[1], keepdims=1), b.scalar(1e-12)), b.op("Shape", x))
    classes = b.rng.standard_normal((64, 20)).astype(np.float32)
    classes /= np.linalg.norm(classes, axis=0)
    b.result("logits", b.mul(b.op("MatMul", b.op("Div", x, norm), b.const(classes)), b.scalar(30)))


@network("plain CNN of Keras' tutorial for CIFAR-10 (tf2onnx): NHWC, flattened as NHWC", opset=15)
def vgg_keras(b: Builder) -> None:
    x = b.transpose(b.input("input_1", ["N", 32, 32, 3], values=uniform(0, 1)), 0, 3, 1, 2)
    for cin, cout in ((3, 8), (8, 16), (16, 32)):
        x = b.maxpool(b.conv_relu(b.conv_relu(x, cin, cout), cout, cout), 2)
    x = b.reshape(b.transpose(x, 0, 2, 3, 1), -1, 512)
    x = b.op("Relu", b.dense(x, 512, 64))
    b.result("dense_1", b.op("Softmax", b.dense(x, 64, 10), axis=-1))


@network("Fourier features of an image: FFT as a product with a cosine and a sine matrix, magnitude, dense")
def fourier_layer(b: Builder) -> None:
    x = b.input("image", ["batch", 16, 16])
    turn = 2 * np.pi * np.outer(np.arange(16), np.arange(16)) / 16
    real, imaginary = (b.op("MatMul", x, b.const(f(turn).astype(np.float32) / 4)) for f in (np.cos, np.sin))
    power = b.add(b.mul(real, real), b.mul(imaginary, imaginary))
    magnitude = b.op("Sqrt", b.add(power, b.scalar(1e-4)))
    b.result("logits", b.linear(b.op("Relu", b.linear(b.op("Flatten", magnitude), 256, 64)), 64, 10))
