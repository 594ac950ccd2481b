"""Networks whose results are images, maps or boxes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from concord_bench.reach.networks.builder import Builder, Family, uniform

DETECTION = Family("images: maps and boxes")
GENERATION = Family("images: made and restored")


@DETECTION.network("U-Net with transposed convolutions (milesial/Pytorch-UNet, narrow)")
def unet_transposed(b: Builder) -> None:
    x = b.input("image", ["batch", 1, 32, 32])
    first = b.conv_relu(b.conv_relu(x, 1, 4), 4, 4)
    second = b.conv_relu(b.conv_relu(b.maxpool(first, 2), 4, 8), 8, 8)
    x = b.conv_relu(b.conv_relu(b.maxpool(second, 2), 8, 16), 16, 16)
    x = b.concat(second, b.conv_transpose(x, 16, 8, 2, 2))
    x = b.conv_relu(b.conv_relu(x, 16, 8), 8, 8)
    x = b.concat(first, b.conv_transpose(x, 8, 4, 2, 2))
    b.result("mask", b.op("Sigmoid", b.conv(b.conv_relu(x, 8, 4), 4, 1, 1)))


@DETECTION.network("U-Net with bilinear Resize, align_corners as in older code")
def unet_resize(b: Builder) -> None:
    x = b.input("image", ["batch", 1, 32, 32])
    first = b.conv_relu(b.conv_relu(x, 1, 4), 4, 4)
    second = b.conv_relu(b.conv_relu(b.maxpool(first, 2), 4, 8), 8, 8)
    x = b.conv_relu(b.maxpool(second, 2), 8, 8)
    for skip, c in ((second, 8), (first, 4)):
        scales = b.const(np.array([1, 1, 2, 2], np.float32))
        up = b.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="align_corners")
        x = b.conv_relu(b.concat(skip, up), 2 * c if c == 8 else 4 + 8, 8 if c == 8 else 4)
    b.result("mask", b.conv(x, 4, 2, 1))


@DETECTION.network("FCN for segmentation: stride 8, nearest up-sampling, ArgMax over classes")
def fcn_argmax(b: Builder) -> None:
    x = b.input("image", [1, 3, 32, 32])
    for cin, cout in ((3, 8), (8, 16), (16, 16)):
        x = b.conv_relu(x, cin, cout, s=2)
    x = b.conv(x, 16, 5, 1, gain=3)
    x = b.op(
        "Resize", x, "", b.const(np.array([1, 1, 4, 4], np.float32)), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    b.result("classes", b.op("ArgMax", x, axis=1, keepdims=0), TensorProto.INT64)


@DETECTION.network("DeepLab head: dilated convolutions and image pooling, concatenated, bilinear to full size")
def deeplab(b: Builder) -> None:
    x = b.conv_relu(b.conv_relu(b.input("image", ["batch", 3, 32, 32]), 3, 8, s=2), 8, 16, s=2)
    pooled = b.conv_relu(b.op("GlobalAveragePool", x), 16, 8, 1)
    pooled = b.op(
        "Resize", pooled, "", "", b.ints(1, 8, 8, 8), mode="linear", coordinate_transformation_mode="half_pixel"
    )
    rates = [b.conv_relu(x, 16, 8, 3, d=d) for d in (2, 3)]
    x = b.conv_relu(b.concat(b.conv_relu(x, 16, 8, 1), *rates, pooled), 32, 16, 1)
    x = b.conv(x, 16, 4, 1)
    b.result(
        "scores",
        b.op("Resize", x, "", "", b.ints(1, 4, 32, 32), mode="linear", coordinate_transformation_mode="half_pixel"),
    )  # fmt: skip


@DETECTION.network("YOLOv5 head: anchors, sigmoid, grids as constants, two scales, concatenation of boxes")
def yolo_v5(b: Builder) -> None:
    x = b.silu(b.conv(b.input("images", [1, 3, 32, 32], values=uniform(0, 1)), 3, 8, s=2))
    fine = b.silu(b.conv(x, 8, 16, s=2))
    coarse = b.silu(b.conv(fine, 16, 16, s=2))
    boxes = []
    for x, size, step in ((fine, 8, 4), (coarse, 4, 8)):
        y = b.transpose(b.reshape(b.conv(x, 16, 3 * 7, 1), 1, 3, 7, size, size), 0, 1, 3, 4, 2)
        y = b.op("Sigmoid", y)
        xy, wh, rest = b.op("Split", y, b.ints(2, 2, 3), results=3, axis=4)
        rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
        grid = np.broadcast_to(np.stack([columns, rows], -1) - 0.5, (1, 3, size, size, 2)).astype(np.float32)
        xy = b.mul(b.add(b.mul(xy, b.scalar(2)), b.const(grid.copy())), b.scalar(step))
        anchors = np.broadcast_to(
            step * np.array([[1, 1.5], [2, 1], [2, 3]]).reshape(1, 3, 1, 1, 2), (1, 3, size, size, 2)
        )
        wh = b.mul(b.op("Pow", b.mul(wh, b.scalar(2)), b.scalar(2)), b.const(anchors.astype(np.float32)))
        boxes.append(b.reshape(b.concat(xy, wh, rest, axis=4), 1, 3 * size**2, 7))
    b.result("output0", b.concat(*boxes, axis=1))


@DETECTION.network("YOLOv8 head: distances as the mean of a softmax over 8 bins, classes by sigmoid")
def yolo_v8(b: Builder) -> None:
    x = b.silu(b.conv(b.input("images", [1, 3, 32, 32], values=uniform(0, 1)), 3, 8, s=2))
    x = b.silu(b.conv(x, 8, 16, s=2))
    box = b.reshape(b.conv(b.silu(b.conv(x, 16, 16)), 16, 32, 1), 1, 32, 64)
    classes = b.reshape(b.conv(b.silu(b.conv(x, 16, 16)), 16, 3, 1), 1, 3, 64)
    bins = b.op("Softmax", b.transpose(b.reshape(box, 1, 4, 8, 64), 0, 2, 1, 3), axis=1)
    distance = b.reshape(b.op("Conv", bins, b.const(np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1))), 1, 4, 64)
    low, high = b.slice(distance, 0, 2, 1), b.slice(distance, 2, 4, 1)
    rows, columns = np.meshgrid(np.arange(8) + 0.5, np.arange(8) + 0.5, indexing="ij")
    anchors = b.const(np.stack([columns.ravel(), rows.ravel()])[None].astype(np.float32))
    start, end = b.op("Sub", anchors, low), b.add(anchors, high)
    middle = b.op("Div", b.add(start, end), b.scalar(2))
    boxes = b.mul(b.concat(middle, b.op("Sub", end, start)), b.scalar(4))
    b.result("output0", b.concat(boxes, b.op("Sigmoid", classes)))


@DETECTION.network("SSD head: boxes and scores of two maps, permuted, flattened and concatenated, softmax")
def ssd_head(b: Builder) -> None:
    x = b.conv_relu(b.conv_relu(b.input("image", ["batch", 3, 32, 32]), 3, 8, s=2), 8, 16, s=2)
    places: list[str] = []
    scores: list[str] = []
    for _ in range(2):
        for results, size in ((places, 4), (scores, 3)):
            y = b.transpose(b.conv(x, 16, 2 * size), 0, 2, 3, 1)
            results.append(b.op("Reshape", y, b.ints(1, -1, size)))
        x = b.conv_relu(x, 16, 16, s=2)
    b.result("boxes", b.concat(*places, axis=1))
    b.result("scores", b.op("Softmax", b.concat(*scores, axis=1), axis=2))


@DETECTION.network("key points by heat maps, with the expected place of each (soft-argmax)")
def soft_argmax(b: Builder) -> None:
    x = b.conv_relu(b.conv_relu(b.input("image", ["batch", 3, 32, 32]), 3, 8, s=2), 8, 16, s=2)
    x = b.op("Softmax", b.reshape(b.conv(x, 16, 5, 1), -1, 5, 64), axis=2)
    rows, columns = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8), indexing="ij")
    places = np.stack([columns.ravel(), rows.ravel()], 1).astype(np.float32)
    b.result("points", b.op("MatMul", x, b.const(places)))


@DETECTION.network("feature pyramid (torchvision FPN): nearest up-sampling to the size of the finer map and sums")
def fpn(b: Builder) -> None:
    first = b.conv_relu(b.input("image", ["batch", 3, 32, 32]), 3, 8, s=2)
    second = b.conv_relu(first, 8, 16, s=2)
    third = b.conv_relu(second, 16, 16, s=2)
    top = b.conv(third, 16, 8, 1)
    middle = b.op(
        "Resize", top, "", "", b.ints(1, 8, 8, 8), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    middle = b.add(b.conv(second, 16, 8, 1), middle)
    b.result("p4", b.conv(middle, 8, 8))
    b.result("p5", b.conv(top, 8, 8))


@GENERATION.network("convolutional autoencoder with ConvTranspose and output_padding")
def conv_autoencoder(b: Builder) -> None:
    x = b.input("image", ["batch", 1, 28, 28], values=uniform(0, 1))
    x = b.conv_relu(b.conv_relu(x, 1, 8, s=2), 8, 16, s=2)
    x = b.op("Relu", b.conv_transpose(x, 16, 8, 3, 2, 1, output_padding=[1, 1]))
    b.result("image_again", b.op("Sigmoid", b.conv_transpose(x, 8, 1, 3, 2, 1, output_padding=[1, 1])))


@GENERATION.network("VAE: encoder with mean and logarithm of variance, noise as an input, decoder")
def vae(b: Builder) -> None:
    x, noise = b.input("image", ["batch", 64], values=uniform(0, 1)), b.input("noise", ["batch", 8])
    h = b.op("Relu", b.linear(x, 64, 32))
    mean, log_variance = b.linear(h, 32, 8), b.linear(h, 32, 8)
    deviation = b.op("Exp", b.mul(log_variance, b.scalar(0.5)))
    z = b.add(mean, b.mul(noise, deviation))
    b.result("image_again", b.op("Sigmoid", b.linear(b.op("Relu", b.linear(z, 8, 32)), 32, 64)))
    b.output(mean)


@GENERATION.network("decoder of a VAE: dense, reshaped to a map, two transposed convolutions")
def vae_decoder(b: Builder) -> None:
    x = b.op("Relu", b.linear(b.input("z", ["batch", 16]), 16, 256))
    x = b.op("Relu", b.conv_transpose(b.reshape(x, -1, 16, 4, 4), 16, 8, 4, 2, 1))
    b.result("image", b.op("Sigmoid", b.conv_transpose(x, 8, 3, 4, 2, 1)))


@GENERATION.network("ESPCN super-resolution of PyTorch's tutorial: PixelShuffle by 3")
def super_resolution(b: Builder) -> None:
    x = b.input("input", ["batch_size", 1, 16, 16], values=uniform(0, 1))
    x = b.conv_relu(b.conv_relu(b.conv_relu(x, 1, 16, 5), 16, 16), 16, 8)
    b.result("output", b.op("DepthToSpace", b.conv(x, 8, 9), blocksize=3, mode="CRD"))


@GENERATION.network("PixelShuffle as exporters before DepthToSpace write it: Reshape, Transpose, Reshape")
def pixel_shuffle_reshaped(b: Builder) -> None:
    x = b.input("input", [1, 1, 12, 12], values=uniform(0, 1))
    x = b.conv(b.conv_relu(x, 1, 16, 5), 16, 4)
    x = b.transpose(b.reshape(x, -1, 1, 2, 2, 12, 12), 0, 1, 4, 2, 5, 3)
    b.result("output", b.reshape(x, -1, 1, 24, 24))


@GENERATION.network("FSRCNN: PRelu, shrink, map, expand, one transposed convolution of 9 x 9 and stride 2")
def fsrcnn(b: Builder) -> None:
    def prelu(x: str, c: int) -> str:
        return str(b.op("PRelu", x, b.small(c, 1, 1, middle=0.25)))

    x = prelu(b.conv(b.input("low", ["batch", 1, 16, 16], values=uniform(0, 1)), 1, 16, 5), 16)
    x = prelu(b.conv(x, 16, 8, 1), 8)
    for _ in range(2):
        x = prelu(b.conv(x, 8, 8), 8)
    x = prelu(b.conv(x, 8, 16, 1), 16)
    b.result("high", b.conv_transpose(x, 16, 1, 9, 2, 4, output_padding=[1, 1]))


@GENERATION.network("DnCNN: noise by a plain CNN, subtracted from the image")
def dncnn(b: Builder) -> None:
    x = image = b.input("noisy", ["batch", 1, 24, 24], values=uniform(0, 1))
    x = b.conv_relu(x, 1, 16)
    for _ in range(3):
        x = b.op("Relu", b.batchnorm(b.conv(x, 16, 16, bias=False), 16))
    b.result("clean", b.op("Sub", image, b.conv(x, 16, 1, gain=0.3)))


@GENERATION.network("DCGAN generator of PyTorch's tutorial, narrow: ConvTranspose from a 1 x 1 map, tanh")
def dcgan(b: Builder) -> None:
    x = b.input("noise", ["batch", 32, 1, 1])
    x = b.op("Relu", b.batchnorm(b.conv_transpose(x, 32, 32, 4, 1), 32))
    x = b.op("Relu", b.batchnorm(b.conv_transpose(x, 32, 16, 4, 2, 1), 16))
    x = b.op("Relu", b.batchnorm(b.conv_transpose(x, 16, 8, 4, 2, 1), 8))
    b.result("image", b.op("Tanh", b.conv_transpose(x, 8, 3, 4, 2, 1)))


@GENERATION.network("DCGAN discriminator: LeakyRelu, strides, sigmoid")
def dcgan_discriminator(b: Builder) -> None:
    x = b.op("LeakyRelu", b.conv(b.input("image", ["batch", 3, 32, 32]), 3, 8, 4, s=2, p=1), alpha=0.2)
    x = b.op("LeakyRelu", b.batchnorm(b.conv(x, 8, 16, 4, s=2, p=1, bias=False), 16), alpha=0.2)
    x = b.op("LeakyRelu", b.batchnorm(b.conv(x, 16, 32, 4, s=2, p=1, bias=False), 32), alpha=0.2)
    b.result("real", b.op("Sigmoid", b.op("Flatten", b.conv(x, 32, 1, 4, p=0, bias=False))))


@GENERATION.network("fast style transfer (PyTorch examples): reflection padding, InstanceNorm, nearest up-sampling")
def style_transfer(b: Builder) -> None:
    def layer(x: str, cin: int, cout: int, k: int, s: int = 1, relu: bool = True) -> str:
        p = k // 2
        x = b.op("Pad", x, b.ints(0, 0, p, p, 0, 0, p, p), mode="reflect")
        x = b.conv(x, cin, cout, k, s=s, p=0)
        x = b.op("InstanceNormalization", x, b.small(cout, middle=1.0), b.small(cout), epsilon=1e-5)
        return str(b.op("Relu", x)) if relu else str(x)

    x = layer(b.input("image", [1, 3, 24, 24], values=uniform(0, 1)), 3, 8, 5)
    x = layer(x, 8, 16, 3, 2)
    x = b.add(x, layer(layer(x, 16, 16, 3), 16, 16, 3, relu=False))
    x = b.op(
        "Resize", x, "", b.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    x = layer(x, 16, 8, 3)
    x = b.op("Pad", x, b.ints(0, 0, 2, 2, 0, 0, 2, 2), mode="reflect")
    b.result("styled", b.conv(x, 8, 3, 5, p=0))


@GENERATION.network("diffusion U-Net block: sinusoidal time embedding, GroupNorm, SiLU, a bias per channel from time")
def diffusion_block(b: Builder) -> None:
    x = b.input("sample", [1, 2, 16, 16])
    time = b.input("timestep", [1, 1], values=uniform(0, 10))
    angle = b.mul(time, b.const(np.exp(-np.arange(8) * np.log(100) / 8)[None].astype(np.float32)))
    time = b.concat(b.op("Sin", angle), b.op("Cos", angle))
    time = b.linear(b.silu(b.linear(time, 16, 32)), 32, 16)
    h = b.conv(b.silu(b.group_norm(b.conv(x, 2, 16), 16, 4, (16, 16))), 16, 16)
    h = b.add(h, b.unsqueeze(b.unsqueeze(time, -1), -1))
    b.result("noise", b.conv(b.silu(b.group_norm(h, 16, 4, (16, 16))), 16, 2))
