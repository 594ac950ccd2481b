"""Random networks with long axes: a compilation asks for memory and time before it takes them.

Every network has a tensor with an axis of up to 50,000 elements, one to three operators, and less than a megabyte of
weights. Compilation ends with a network or a message within the limits of a case; a message about memory that could
not be had is a finding, since whatever grows with a product of sizes has to be checked before.
"""

from __future__ import annotations

import math

import numpy as np

from support.fuzz.commands import call
from support.fuzz.ends import End, of_command
from support.onnx_models import model, node, onnxruntime_results

#: The longest axis, and elements of any tensor.
LONGEST, _ELEMENTS = 50_000, 400_000
_NEAR = (7, 64, 511, 1024, 4099, 16_000, 22_050, 44_100, LONGEST)
PRESETS = ("tiny", "up5k", "ecp5-25f", "ecp5-85f", "ecp5-85f-256", "ecp5-85f-256")


class Network:
    """Appends random operators that onnxruntime takes, so that shapes are valid; knows the shapes of all tensors."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.nodes, self.constants = [], {}
        rank, size = int(rng.integers(1, 5)), int(rng.choice(_NEAR))
        size = max(size - int(rng.integers(0, 3)), 1) if rng.random() < 0.5 else int(rng.integers(1, LONGEST))
        others = [int(k) for k in rng.choice([1, 1, 1, 2, 3, 8, 16, 40], rank - 1)]
        while size * math.prod(others) > _ELEMENTS:
            others[int(np.argmax(others))] = 1
        shape = list(others)
        shape.insert(int(rng.integers(0, rank)) if rng.random() < 0.5 else rank - 1, size)
        self.input = (1, *shape)
        self.values = {"x": rng.standard_normal(self.input).astype(np.float32)}

    def constant(self, value):
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def some(self, choices):
        """Any of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def add(self, op, inputs, outputs=1, **attrs):
        """Append an operator, unless onnxruntime refuses it or it makes large tensors."""
        results = [f"t{len(self.nodes)}.{k}" for k in range(outputs)]
        made = node(op, inputs, results, name=f"{op} {len(self.nodes)}", **attrs)
        known = {name: self.values[name] for name in inputs if name in self.values}
        constants = {name: self.constants[name] for name in inputs if name in self.constants}
        try:
            alone = model([made], {name: value.shape for name, value in known.items()}, results, constants, opset=18)
            found = onnxruntime_results(alone, known)
        except Exception:  # those of onnxruntime have no class in common
            return
        if all(0 < value.size <= _ELEMENTS and value.dtype == np.float32 for value in found):
            self.nodes.append(made)
            self.values |= dict(zip(results, found, strict=True))

    def step(self):
        """An operator on what comes last."""
        x = list(self.values)[-1]
        self.some(_STEPS)(self, x, self.values[x].shape)

    def proto(self):
        """The model; its outputs are what no operator reads."""
        read = {name for item in self.nodes for name in item.input}
        outputs = [name for item in self.nodes for name in item.output if name not in read]
        constants = {name: value for name, value in self.constants.items() if name in read}
        return model(self.nodes, {"x": self.input}, outputs, constants, opset=18)


def _axis(net, shape):
    """An axis, mostly the longest."""
    return int(np.argmax(shape)) if net.rng.random() < 0.7 else int(net.rng.integers(0, len(shape)))


def _pad(net, x, shape):
    pads = np.zeros((2, len(shape)), np.int64)
    pads[:, _axis(net, shape)] = net.rng.integers(0, net.some([2, 9, 300]), 2)
    if net.rng.random() < 0.2:
        pads[0, _axis(net, shape)] += 1
    mode = net.some(["constant", "reflect", "edge", "wrap"])
    value = [net.constant(np.float32(net.some([0, 0, 1.5])))] if mode == "constant" else []
    net.add("Pad", [x, net.constant(pads.reshape(-1)), *value], mode=mode)


def _running(net, x, shape):
    op = net.some(["CumSum", "CumSum", "Hardmax", "LogSoftmax", "Softmax"])
    if op == "CumSum":
        flags = {"exclusive": int(net.rng.integers(2)), "reverse": int(net.rng.integers(2))}
        net.add(op, [x, net.constant(np.int64(_axis(net, shape)))], **flags)
    else:
        net.add(op, [x], axis=_axis(net, shape))


def _resize(net, x, shape):
    sizes = np.array(shape)
    axis = max(_axis(net, shape), 1)
    sizes[axis % len(shape)] = max(1, int(shape[axis % len(shape)] * net.some([0.5, 1.7, 2, 3, 4, 1 / 3])))
    where = net.some(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
    mode = net.some(["nearest", "linear", "cubic"])
    net.add("Resize", [x, "", "", net.constant(sizes)], mode=mode, coordinate_transformation_mode=where)


def _gathered(net, x, shape):
    axis = _axis(net, shape)
    count = net.some([1, 5, shape[axis] // 2 + 1, shape[axis]])
    order = net.some([
        lambda: net.rng.integers(0, shape[axis], count), lambda: np.sort(net.rng.integers(0, shape[axis], count)),
        lambda: np.arange(count)[::-1].copy(), lambda: np.arange(count) * 2 % shape[axis],
    ])()  # fmt: skip
    op = net.some(["Gather", "Gather", "GatherElements", "GatherND"])
    if op == "Gather":
        net.add(op, [x, net.constant(order)], axis=axis)
    elif op == "GatherElements":
        places = net.rng.integers(0, shape[axis], [n if k != axis else count for k, n in enumerate(shape)])
        net.add(op, [x, net.constant(places)], axis=axis)
    else:
        depth = int(net.rng.integers(1, len(shape) + 1))
        net.add(op, [x, net.constant(np.stack([net.rng.integers(0, n, count) for n in shape[:depth]], axis=-1))])


def _scattered(net, x, shape):
    axis = _axis(net, shape)
    places = [n if k != axis else min(n, net.some([1, 3, max(n // 3, 1)])) for k, n in enumerate(shape)]
    indices = np.argsort(net.rng.random(shape), axis=axis).take(np.arange(places[axis]), axis)
    updates = net.rng.standard_normal(places).astype(np.float32)
    reduction = net.some(["none", "none", "add", "max"])
    names = [x, net.constant(indices), net.constant(updates)]
    if net.rng.random() < 0.3:
        names = [net.constant(net.rng.standard_normal(shape).astype(np.float32)), names[1], x]
    net.add("ScatterElements", names, axis=axis, reduction=reduction)


def _moved(net, x, shape):
    kind = net.some(["Transpose", "Slice", "Concat", "Tile", "Expand", "Reshape", "Flatten", "Trilu", "Split"])
    axis = _axis(net, shape)
    if kind == "Transpose":
        net.add(kind, [x], perm=[0, *(1 + net.rng.permutation(len(shape) - 1)).tolist()])
    elif kind == "Slice":
        step = int(net.some([1, 2, 3, -1, -2]))
        first, last = sorted(net.rng.integers(0, shape[axis] + 1, 2).tolist())
        ends = (first, last) if step > 0 else (last, first)
        net.add(kind, [x, *(net.constant(np.array([k])) for k in (*ends, axis, step))])
    elif kind == "Concat":
        net.add(kind, [x] * int(net.some([2, 3])), axis=axis)
    elif kind == "Tile":
        counts = np.ones(len(shape), np.int64)
        counts[axis] = net.some([2, 5])
        net.add(kind, [x, net.constant(counts)])
    elif kind == "Expand":
        net.add(kind, [x, net.constant(np.array([net.some([2, 7]), *shape]))])
    elif kind == "Reshape":
        size = math.prod(shape)
        divisors = [k for k in range(1, 600) if size % k == 0]
        first = net.some(divisors)
        net.add(kind, [x, net.constant(np.array([1, first, size // first] if net.rng.random() < 0.7 else [1, size]))])
    elif kind == "Flatten":
        net.add(kind, [x], axis=int(net.rng.integers(0, len(shape) + 1)))
    elif kind == "Trilu":
        net.add(kind, [x, net.constant(np.int64(net.rng.integers(-3, 4)))], upper=int(net.rng.integers(2)))
    else:
        first = int(net.rng.integers(0, shape[axis] + 1))
        net.add(kind, [x, net.constant(np.array([first, shape[axis] - first]))], 2, axis=axis)


def _reduced(net, x, shape):
    axes = sorted({_axis(net, shape) for _ in range(int(net.rng.integers(1, 3)))})
    op = net.some(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ReduceProd"])
    named = op == "ReduceSum"
    inputs = [x, net.constant(np.array(axes))] if named else [x]
    net.add(op, inputs, keepdims=int(net.rng.integers(2)), **({} if named else {"axes": axes}))


def _product(net, x, shape):
    size = shape[-1]
    if size * 4 <= 200_000:
        net.add("MatMul", [x, net.constant(net.rng.standard_normal((size, int(net.rng.integers(1, 5)))) / size**0.5)])
    net.constants = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in net.constants.items()}


def _windows(net, x, shape):
    if not 3 <= len(shape) <= 5:
        return
    rank, channels = len(shape) - 2, shape[1]
    kernel = [min(int(net.some([1, 2, 3, 8, 25, 400])), n) for n in shape[2:]]
    strides = [int(net.some([1, 1, 2, 160])) for _ in range(rank)]
    op = net.some(["Conv", "Conv", "MaxPool", "AveragePool", "ConvTranspose", "GlobalAveragePool", "LpPool"])
    attrs = {} if op == "GlobalAveragePool" else {"kernel_shape": kernel, "strides": strides}
    if op == "LpPool":
        attrs["p"] = 2
    if op in ("Conv", "ConvTranspose"):
        if channels > 64:
            return
        weight = net.rng.standard_normal((channels, channels, *kernel)) / math.prod(kernel) ** 0.5
        if weight.size > 250_000:
            return
        net.add(op, [x, net.constant(weight.astype(np.float32))], **attrs)
    else:
        net.add(op, [x], **attrs)


def _normalised(net, x, shape):
    ones = [net.constant(np.ones(shape[1], np.float32)), net.constant(np.zeros(shape[1], np.float32))]
    op = net.some(["InstanceNormalization", "BatchNormalization", "LayerNormalization", "LRN", "LpNormalization"])
    if op == "InstanceNormalization":
        net.add(op, [x, *ones])
    elif op == "BatchNormalization":
        net.add(op, [x, *ones, ones[1], ones[0]])
    elif op == "LayerNormalization":
        net.add(op, [x, net.constant(np.ones(shape[-1], np.float32))], axis=-1)
    elif op == "LRN":
        net.add(op, [x], size=3)
    else:
        net.add(op, [x], axis=_axis(net, shape), p=int(net.some([1, 2])))


def _elementwise(net, x, shape):
    op = net.some(["Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Add", "Mul", "Max", "Where", "Elu", "Gelu"])
    if op in ("Add", "Mul", "Max"):
        size = shape[-1:] if net.rng.random() < 0.5 else shape[1:]
        net.add(op, [x, net.constant(net.rng.standard_normal(size).astype(np.float32))])
    elif op == "Where":
        net.add(op, [net.constant(net.rng.random(shape[-1:]) < 0.5), x, net.constant(np.float32(0))])
    else:
        net.add(op, [x])


def _recurrent(net, x, shape):
    if len(shape) != 3 or shape[1] * shape[2] > 60_000 or shape[2] > 4000:
        return
    gates, op = net.some([(4, "LSTM"), (3, "GRU"), (1, "RNN")])
    hidden = int(net.some([2, 8]))
    turned = f"t{len(net.nodes)}.0"
    net.add("Transpose", [x], perm=[1, 0, 2])
    if turned not in net.values:
        return
    w = net.rng.standard_normal((1, gates * hidden, shape[2])).astype(np.float32) / 10
    r = net.rng.standard_normal((1, gates * hidden, hidden)).astype(np.float32) / 10
    net.add(op, [turned, net.constant(w), net.constant(r)], hidden_size=hidden)


def _spectrum(net, x, shape):
    if net.rng.random() < 0.5 and shape[-1] > 1:
        net.add("DFT", [x], axis=1)
    frame = int(net.some([16, 256]))
    if len(shape) == 2 and shape[1] > frame:
        window = net.constant(np.hanning(frame).astype(np.float32))
        net.add("STFT", [x, net.constant(np.int64(frame // 2)), window], onesided=1)


def _space(net, x, shape):
    size = int(net.some([2, 4]))
    if len(shape) == 4:
        net.add(net.some(["DepthToSpace", "SpaceToDepth"]), [x], blocksize=size)
    elif len(shape) == 3:
        net.add("Einsum", [x, x], equation=net.some(["abc,abc->ab", "abc,adc->abd", "abc,abd->acd"]))


def _places(net, x, shape):
    axis = _axis(net, shape)
    if net.rng.random() < 0.5:
        net.add("OneHot", [x, net.constant(np.int64(8)), net.constant(np.array([0, 1], np.float32))], axis=-1)
    net.add("CumProd", [x, net.constant(np.int64(axis))])


_STEPS = (
    _pad, _pad, _running, _resize, _resize, _gathered, _gathered, _scattered, _moved, _moved, _moved, _reduced,
    _product, _windows, _windows, _normalised, _elementwise, _recurrent, _spectrum, _space, _places,
)  # fmt: skip


def network(rng: np.random.Generator) -> Network:
    """One to three operators."""
    while True:
        made = Network(rng)
        for _ in range(int(rng.integers(1, 4))):
            made.step()
        if made.nodes:
            return made


def case(rng, folder) -> End:
    """Compile a network with long axes."""
    numbers = np.random.default_rng(rng.randrange(1 << 60))
    made = network(numbers)
    (folder / "net.onnx").write_bytes(made.proto().SerializeToString())
    more = rng.choice(([], [], ["--partition", "any"]))
    if rng.random() < 0.3:
        np.savez(folder / "x.npz", x=numbers.standard_normal((4, *made.input[1:])).astype(np.float32))
        more = [*more, "--calibrate", folder / "x.npz"]
    end = of_command(*call("compile", folder / "net.onnx", "--preset", rng.choice(PRESETS), *more))
    if end.kind == "message" and "not enough memory" in end.text:
        return End("finding", f"memory was taken before it was asked for:\n{end.text}")
    return end
