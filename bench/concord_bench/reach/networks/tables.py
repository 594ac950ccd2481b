"""Networks of dense layers: for tables, control and physics, graphs, points and sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import TensorProto

from concord_bench.reach.networks.builder import Builder, Family, uniform, whole

DENSE = Family("dense")
CONTROL = Family("control and physics")
TABLES = Family("tables and recommendations")
SETS = Family("graphs, points and sets")


def layers(b: Builder, x: str, *sizes: int, act: str = "Relu", last: str = "", gain: float = 1.4) -> str:
    """Dense layers with a function between them."""
    for k, (cin, cout) in enumerate(pairwise(sizes)):
        x = b.linear(x, cin, cout, gain=gain)
        kind = act if k < len(sizes) - 2 else last
        x = b.op(kind, x) if kind else x
    return x


@DENSE.network("MNIST perceptron of PyTorch's quick start: 784-512-512-10")
def mlp_mnist(b: Builder) -> None:
    x = b.op("Flatten", b.input("onnx::Flatten_0", ["batch", 1, 28, 28], values=uniform(0, 1)))
    b.result("logits", layers(b, x, 784, 512, 512, 10))


@DENSE.network("a small perceptron of Keras: 784-128-10, MatMul and Add, softmax (tf2onnx)", opset=15)
def mlp_keras(b: Builder) -> None:
    x = b.reshape(b.input("flatten_input", ["unk__4", 28, 28], values=uniform(0, 1)), -1, 784)
    b.result("dense_1", b.op("Softmax", b.dense(b.op("Relu", b.dense(x, 784, 128)), 128, 10), axis=-1))


@DENSE.network("perceptron of the dynamo exporter: weights transposed at run time, Gelu of opset 20", opset=20)
def mlp_dynamo(b: Builder) -> None:
    x = b.input("x", ["s0", 32])
    for cin, cout in ((32, 64), (64, 64)):
        weight = b.op("Transpose", b.weight(cout, cin), perm=[1, 0])
        x = b.op("Gelu", b.add(b.op("MatMul", x, weight), b.small(cout)))
    b.result("linear_2", b.linear(x, 64, 8))


@DENSE.network("residual perceptron with batch normalisation for tables (RTDL ResNet)")
def tabular_resnet(b: Builder) -> None:
    x = b.linear(b.input("x", ["batch", 12]), 12, 32)
    for _ in range(2):
        x = b.add(x, b.linear(b.op("Relu", b.linear(b.batchnorm(x, 32), 32, 64)), 64, 32))
    b.result("y", b.linear(b.op("Relu", b.batchnorm(x, 32)), 32, 1))


@DENSE.network("highway network: gate times the layer plus the rest times the input")
def highway(b: Builder) -> None:
    x = b.linear(b.input("x", ["batch", 12]), 12, 32)
    for _ in range(2):
        gate = b.op("Sigmoid", b.linear(x, 32, 32))
        h = b.op("Relu", b.linear(x, 32, 32, gain=1.4))
        x = b.add(b.mul(gate, h), b.mul(b.op("Sub", b.scalar(1), gate), x))
    b.result("y", b.linear(x, 32, 4))


@DENSE.network("self-normalising network: Selu and alpha dropout")
def selu_net(b: Builder) -> None:
    x = layers(b, b.input("x", ["batch", 20]), 20, 48, 48, act="Selu", last="Selu", gain=1)
    b.result("y", b.op("Sigmoid", b.linear(x, 48, 1)))


@CONTROL.network("actor of SAC (Stable-Baselines3): mean through tanh, scaled to the limits of the actions")
def sac_actor(b: Builder) -> None:
    x = layers(b, b.input("obs", ["batch", 17]), 17, 64, 64, 6, gain=1.2)
    y = b.op("Tanh", x)
    low, high = np.full(6, -2, np.float32), np.full(6, 3, np.float32)
    b.result("action", b.add(b.const(low), b.mul(b.mul(b.scalar(0.5), b.add(y, b.scalar(1))), b.const(high - low))))


@CONTROL.network("actor of PPO: clipped observations and actions, deviation as exp of a constant beside it")
def ppo_actor(b: Builder) -> None:
    x = b.input("obs", ["batch", 12], values=lambda rng, shape: (5 * rng.standard_normal(shape) + 1).astype("f"))
    x = b.op("Div", b.op("Sub", x, b.small(12, middle=1.0)), b.const(np.full(12, 5, np.float32)))
    x = layers(b, b.clip(x, -10, 10), 12, 64, 64, act="Tanh", last="Tanh", gain=1)
    b.result("action", b.clip(b.linear(x, 64, 4), -1, 1))
    b.result("deviation", b.op("Exp", b.small(1, 4, middle=-0.5)))


@CONTROL.network("DQN of Atari, narrow: four frames, three convolutions, values")
def dqn(b: Builder) -> None:
    x = b.input("frames", ["batch", 4, 42, 42], values=uniform(0, 1))
    x = b.conv_relu(x, 4, 8, 8, s=4, p=0)
    x = b.conv_relu(b.conv_relu(x, 8, 16, 4, s=2, p=0), 16, 16, 2, p=0)
    b.result("values", layers(b, b.op("Flatten", x), 64, 32, 6))


@CONTROL.network("dueling DQN: value plus advantage less the mean over actions")
def dueling_dqn(b: Builder) -> None:
    x = layers(b, b.input("obs", ["batch", 8]), 8, 64, 64, last="Relu")
    value, advantage = layers(b, x, 64, 32, 1), layers(b, x, 64, 32, 4)
    b.result("q", b.add(value, b.op("Sub", advantage, b.mean(advantage, 1))))


@CONTROL.network("DQN whose result is the action (ArgMax)")
def dqn_action(b: Builder) -> None:
    x = layers(b, b.input("obs", ["batch", 4]), 4, 64, 64, 2, gain=1.5)
    b.result("action", b.op("ArgMax", x, axis=1, keepdims=0), TensorProto.INT64)


@CONTROL.network("physics-informed perceptron: coordinates as two inputs, tanh, six layers")
def pinn(b: Builder) -> None:
    x = b.concat(b.input("x", ["batch", 1], values=uniform(-1, 1)), b.input("t", ["batch", 1], values=uniform(0, 1)))
    b.result("u", layers(b, x, 2, 24, 24, 24, 24, 24, 1, act="Tanh", gain=1.6))


@CONTROL.network("NeRF: sines and cosines of coordinates at six frequencies, skip, density and colour")
def nerf(b: Builder) -> None:
    x = b.input("position", ["batch", 3], values=uniform(-1, 1))
    parts = [x]
    for k in range(6):
        angle = b.mul(x, b.scalar(2.0**k))
        parts += [b.op("Sin", angle), b.op("Cos", angle)]
    x = b.concat(*parts, axis=-1)
    h = layers(b, x, 39, 32, 32, last="Relu")
    h = layers(b, b.concat(h, x, axis=-1), 71, 32, 32, last="Relu")
    b.result("density", b.op("Relu", b.linear(h, 32, 1)))
    b.result("colour", b.op("Sigmoid", b.linear(h, 32, 3)))


@CONTROL.network("SIREN: sines of 30 times the product in the first layer")
def siren(b: Builder) -> None:
    x = b.input("coords", [1, 16, 2], values=uniform(-1, 1))
    x = b.op("Sin", b.mul(b.scalar(30), b.dense(x, 2, 24, gain=0.5)))
    for _ in range(2):
        x = b.op("Sin", b.dense(x, 24, 24, gain=1.4))
    b.result("colour", b.dense(x, 24, 3))


@CONTROL.network("Kalman filter with constant gain: products of state and measurement, new state as result")
def kalman_step(b: Builder) -> None:
    state, measured = b.input("state", [1, 6, 1]), b.input("measurement", [1, 3, 1])
    step, look, gain = b.weight(6, 6), b.weight(3, 6), b.weight(6, 3)
    predicted = b.op("MatMul", step, state)
    innovation = b.op("Sub", measured, b.op("MatMul", look, predicted))
    b.result("state_out", b.add(predicted, b.op("MatMul", gain, innovation)))
    b.result("distance", b.mean(b.mul(innovation, innovation), 1, 2, keep=False, op="ReduceSum"))


@CONTROL.network("attitude: a quaternion made unit and turned into a rotation matrix by products of its parts")
def quaternion(b: Builder) -> None:
    x = layers(b, b.input("imu", ["batch", 18]), 18, 32, 4)
    x = b.op("Div", x, b.op("Sqrt", b.add(b.mean(b.mul(x, x), 1, op="ReduceSum"), b.scalar(1e-8))))
    w, i, j, k = b.op("Split", x, b.ints(1, 1, 1, 1), results=4, axis=1)
    two = b.scalar(2)
    first = b.op("Sub", b.scalar(1), b.mul(two, b.add(b.mul(j, j), b.mul(k, k))))
    second = b.mul(two, b.op("Sub", b.mul(i, j), b.mul(k, w)))
    third = b.mul(two, b.add(b.mul(i, k), b.mul(j, w)))
    b.result("row", b.concat(first, second, third))


@TABLES.network("DLRM: three embeddings of int64 features, dense part, products of all pairs, perceptron")
def dlrm(b: Builder) -> None:
    x = layers(b, b.input("dense", ["batch", 8]), 8, 32, 16, last="Relu")
    vectors = [x]
    for k in range(3):
        ids = b.input(f"feature_{k}", ["batch"], TensorProto.INT64, whole(0, 30))
        vectors.append(b.op("Gather", b.small(30, 16, size=0.7), ids))
    stacked = b.concat(*(b.unsqueeze(v, 1) for v in vectors), axis=1)
    products = b.reshape(b.op("MatMul", stacked, b.transpose(stacked, 0, 2, 1)), -1, 16)
    below = [4 * row + column for row in range(4) for column in range(row)]
    pairs = b.op("Gather", products, b.ints(*below), axis=1)
    b.result("click", layers(b, b.concat(x, pairs), 22, 32, 1, last="Sigmoid"))


@TABLES.network("wide and deep: one-hot categories of an int64 column (OneHot) beside numbers")
def wide_and_deep(b: Builder) -> None:
    x = b.input("numbers", ["batch", 6])
    kind = b.input("category", ["batch"], TensorProto.INT64, whole(0, 8))
    hot = b.op("OneHot", kind, b.const(np.int64(8)), b.const(np.array([0, 1], np.float32)), axis=-1)
    deep = layers(b, b.concat(x, hot), 14, 32, 16, 1)
    b.result("y", b.op("Sigmoid", b.add(deep, b.linear(hot, 8, 1))))


@TABLES.network("matrix factorisation: product of the embeddings of a user and an item, with biases")
def recommender(b: Builder) -> None:
    user = b.input("user", ["batch"], TensorProto.INT64, whole(0, 40))
    item = b.input("item", ["batch"], TensorProto.INT64, whole(0, 40))
    u, v = b.op("Gather", b.small(40, 16, size=0.7), user), b.op("Gather", b.small(40, 16, size=0.7), item)
    score = b.mean(b.mul(u, v), 1, keep=False, op="ReduceSum")
    biases = b.add(b.op("Gather", b.small(40), user), b.op("Gather", b.small(40), item))
    b.result("score", b.add(score, biases))


@TABLES.network("Siamese network: one encoder for two inputs, Euclidean distance")
def siamese(b: Builder) -> None:
    weights = [(b.weight(32, 24, gain=1.4), b.small(32)), (b.weight(16, 32), b.small(16))]

    def code(x: str) -> str:
        h = b.op("Relu", b.op("Gemm", x, *weights[0], transB=1))
        return str(b.op("Gemm", h, *weights[1], transB=1))

    difference = b.op("Sub", code(b.input("left", ["batch", 24])), code(b.input("right", ["batch", 24])))
    square = b.mean(b.mul(difference, difference), 1, keep=False, op="ReduceSum")
    b.result("distance", b.op("Sqrt", b.add(square, b.scalar(1e-6))))


@TABLES.network("metric learning: features divided by their length (F.normalize)")
def metric_learning(b: Builder) -> None:
    x = layers(b, b.input("x", ["batch", 24]), 24, 48, 16)
    norm = b.op("Clip", b.op("ReduceL2", x, axes=[1], keepdims=1), b.scalar(1e-12))
    b.result("embedding", b.op("Div", x, b.op("Expand", norm, b.op("Shape", x))))


@TABLES.network("cosine similarity of two inputs behind one encoder")
def cosine_similarity(b: Builder) -> None:
    weight, bias = b.weight(16, 24), b.small(16)
    left, right = (b.op("Gemm", b.input(name, ["batch", 24]), weight, bias, transB=1) for name in ("left", "right"))
    product = b.mean(b.mul(left, right), 1, keep=False, op="ReduceSum")
    norms = b.mul(*(b.op("ReduceL2", x, axes=[1], keepdims=0) for x in (left, right)))
    b.result("similarity", b.op("Div", product, b.op("Max", norms, b.scalar(1e-8))))


@TABLES.network("radial basis functions: exp of minus the squared distance to centres")
def rbf_network(b: Builder) -> None:
    x = b.unsqueeze(b.input("x", ["batch", 4]), 1)
    distance = b.op("Sub", x, b.small(1, 16, 4, size=1.0))
    square = b.mean(b.mul(distance, distance), 2, keep=False, op="ReduceSum")
    b.result("y", b.linear(b.op("Exp", b.mul(square, b.scalar(-0.25))), 16, 2))


@TABLES.network("the same with the square written out: products with centres")
def rbf_products(b: Builder) -> None:
    x = b.input("x", ["batch", 4])
    centres = b.rng.standard_normal((4, 16)).astype(np.float32)
    square = b.mean(b.mul(x, x), 1, op="ReduceSum")
    cross = b.op("MatMul", x, b.const(-2 * centres))
    distance = b.add(b.add(square, cross), b.const((centres**2).sum(0)))
    b.result("y", b.linear(b.op("Exp", b.mul(distance, b.scalar(-0.25))), 16, 2))


@TABLES.network("KAN with piecewise linear splines: hats of every feature, then a product")
def kan_spline(b: Builder) -> None:
    x = b.input("x", ["batch", 6], values=uniform(-1, 1))
    for cin, cout in ((6, 8), (8, 2)):
        knots = np.linspace(-1, 1, 5, dtype=np.float32).reshape(1, 1, 5)
        away = b.op("Abs", b.op("Sub", b.unsqueeze(x, 2), b.const(knots)))
        hats = b.op("Relu", b.op("Sub", b.scalar(1), b.mul(away, b.scalar(2))))
        spline = b.linear(b.reshape(hats, -1, 5 * cin), 5 * cin, cout)
        x = b.add(spline, b.linear(b.silu(x), cin, cout))
    b.result("y", x)


@TABLES.network("hyperdimensional classifier: sign of a random projection, product with class vectors")
def hyperdimensional(b: Builder) -> None:
    x = b.input("x", ["batch", 16])
    code = b.op("Sign", b.op("MatMul", x, b.weight(16, 256, fan=16)))
    b.result("similarity", b.op("MatMul", code, b.weight(256, 5, fan=256)))


@TABLES.network("TabNet step: GLU, prior scales, softmax in the place of sparsemax as a feature mask")
def tabnet(b: Builder) -> None:
    x = b.batchnorm(b.input("x", ["batch", 16]), 16)
    mask = b.op("Softmax", b.linear(x, 16, 16), axis=1)
    h = b.mul(x, mask)
    for cin in (16, 16):
        value, gate = b.op("Split", b.linear(h, cin, 32), b.ints(16, 16), results=2, axis=1)
        h = b.mul(value, b.op("Sigmoid", gate))
    b.result("y", b.linear(b.op("Relu", h), 16, 2))
    b.output(mask)


def adjacency(b: Builder, nodes: int) -> np.ndarray:
    """A random graph with loops: normalised weights of its edges."""
    edges = (b.rng.random((nodes, nodes)) < 0.25) | np.eye(nodes, dtype=bool)
    edges = edges | edges.T
    degree = edges.sum(1)
    return np.asarray(edges / np.sqrt(np.outer(degree, degree)), np.float32)


@SETS.network("graph convolution (Kipf) on a fixed graph of 20 nodes")
def gcn(b: Builder) -> None:
    graph = b.const(adjacency(b, 20))
    x = b.input("features", [1, 20, 8])
    x = b.op("Relu", b.op("MatMul", graph, b.dense(x, 8, 16)))
    b.result("logits", b.op("MatMul", graph, b.dense(x, 16, 4)))


@SETS.network("graph convolution whose adjacency is an input")
def gcn_input(b: Builder) -> None:
    x = b.input("features", [1, 10, 8])
    graph = b.input("adjacency", [1, 10, 10], values=lambda rng, shape: rng.uniform(0, 0.3, shape).astype("f"))
    x = b.op("Relu", b.op("MatMul", graph, b.dense(x, 8, 16)))
    b.result("logits", b.dense(b.mean(b.op("MatMul", graph, b.dense(x, 16, 8)), 1, keep=False), 8, 4))


@SETS.network("graph attention: sums of two scores by broadcasting, mask of the graph, softmax")
def gat(b: Builder) -> None:
    h = b.dense(b.input("features", [1, 10, 8]), 8, 16, bias=False)
    left, right = b.dense(h, 16, 1, bias=False), b.dense(h, 16, 1, bias=False)
    scores = b.op("LeakyRelu", b.add(left, b.transpose(right, 0, 2, 1)), alpha=0.2)
    edges = adjacency(b, 10) > 0
    scores = b.op("Where", b.const(edges[None]), scores, b.scalar(-9e15))
    b.result("out", b.op("Elu", b.op("MatMul", b.op("Softmax", scores, axis=-1), h)))


@SETS.network("PointNet: shared perceptron by 1 x 1 convolutions, maximum over the points")
def pointnet(b: Builder) -> None:
    x = b.transpose(b.input("points", ["batch", 64, 3]), 0, 2, 1)
    for cin, cout in ((3, 16), (16, 32), (32, 64)):
        x = b.conv_relu(x, cin, cout, 1, axes=1)
    x = b.mean(x, 2, keep=False, op="ReduceMax")
    b.result("logits", layers(b, x, 64, 32, 8))


@SETS.network("PointNet for parts: the global feature is repeated for every point")
def pointnet_parts(b: Builder) -> None:
    x = b.input("points", [1, 3, 32])
    local = b.conv_relu(x, 3, 16, 1, axes=1)
    whole_set = b.mean(b.conv_relu(local, 16, 32, 1, axes=1), 2, op="ReduceMax")
    x = b.concat(local, b.op("Expand", whole_set, b.ints(1, 32, 32)))
    b.result("parts", b.conv(b.conv_relu(x, 48, 32, 1, axes=1), 32, 4, 1, axes=1))


@SETS.network("DeepSets: sum over the elements of a set")
def deepsets(b: Builder) -> None:
    x = b.op("Relu", b.dense(b.input("set", ["batch", 16, 4]), 4, 32, gain=1.4))
    x = b.mean(b.dense(x, 32, 32), 1, keep=False, op="ReduceSum")
    b.result("y", layers(b, x, 32, 32, 1))
