"""Random networks of whole numbers: the emulator must compute what onnxruntime computes, to the bit.

Numbers stay so small that blocks of 12 bits and binary16 hold all of them, so no layout and no order of operations
changes a result. The invariants of every level of the compiler hold, too.
"""

from __future__ import annotations

import warnings

import numpy as np

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph import execute
from concord.graph.passes.batch import BatchError
from concord.networks.calibrated import emulate
from concord.pipeline.instruments import Checks
from concord.pipeline.manager import instrumented
from concord.program.allocator import CapacityError
from concord.spec.presets import ECP5_85F, TINY, with_mantissas
from support.fuzz.ends import End, of_message
from support.onnx_models import ints, model, node, onnxruntime_results

_ROOM = {"narrow_depth": 16384, "wide_depth": 16384, "matrix_depth": 16384, "program_depth": 4096}
#: With so much memory that nothing is refused for want of it.
CONFIGS = tuple(with_mantissas(preset.replace(**_ROOM), 12) for preset in (TINY, ECP5_85F))
#: Greatest magnitude of a number, and elements of a tensor.
_LARGEST, _ELEMENTS = 1000, 600
_LETTERS = "abcdefghijklmnop"


class Network:
    """Appends random operators; knows what every tensor is for one sample."""

    def __init__(self, rng):
        self.rng, self.limit = rng, int(rng.choice([1, 1, 9, 60]))
        self.nodes, self.constants, self.inputs, self.values = [], {}, {}, {}
        for k in range(int(rng.choice([1, 1, 1, 2]))):
            first = int(rng.integers(2, 4)) if rng.random() < 0.2 else 1
            shape = (first, *rng.integers(1, 7, int(rng.choice(5, p=[0.05, 0.25, 0.3, 0.3, 0.1]))).tolist())
            self.inputs[f"x{k}"] = shape
            self.values[f"x{k}"] = self.whole(*shape, limit=self.limit)

    def whole(self, *shape, limit=2):
        """Whole numbers."""
        return self.rng.integers(-limit, limit + 1, shape).astype(np.float32)

    def weights(self, *shape):
        """Ones, minus ones, and more zeros."""
        return self.whole(*shape, limit=1) * (self.rng.random(shape) < 0.5)

    def count(self, low, high):
        """A number from ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def some(self, choices):
        """Any of them."""
        return choices[self.count(0, len(choices) - 1)]

    def other(self, fits=lambda value: True):
        """The name of a tensor that fits, if there is one."""
        names = [name for name, value in self.values.items() if fits(value)]
        return self.some(names) if names else None

    def add(self, op, inputs, constants=(), outputs=1, **attrs):
        """Append an operator, and return its first result, unless onnxruntime refuses it or its numbers are large.

        Constants are its last operands, or, from the last on, those that are ``None``.
        """
        names = [f"c{len(self.constants) + k}" for k in range(len(constants))]
        known = dict(zip(names, map(np.asarray, constants), strict=True))
        order = [*inputs, *names] if None not in inputs else [name or names.pop() for name in inputs]
        results = [f"t{len(self.nodes)}.{k}" for k in range(outputs)]
        made = node(op, order, results, name=f"{op} {len(self.nodes)}", **attrs)
        shapes = {name: self.values[name].shape for name in inputs if name is not None}
        try:
            alone = model([made], shapes, results, known, opset=18)
            values = onnxruntime_results(alone, {name: self.values[name] for name in shapes})
        except Exception:  # those of onnxruntime have no class in common
            return None
        if any(not 0 < value.size <= _ELEMENTS or np.abs(value).max() > _LARGEST / 2 for value in values):
            return None
        self.nodes.append(made)
        self.constants |= known
        self.values |= dict(zip(results, values, strict=True))
        return results[0]

    def step(self):
        """An operator on what comes last, mostly, so that chains grow; else on any tensor: some are read twice."""
        names = list(self.values)
        x = names[-1] if self.rng.random() < 0.6 else self.some(names)
        self.some(_STEPS)(self, x, self.values[x].shape)

    def proto(self):
        """The model: what nothing reads is an output, and some of what is read."""
        made = [name for item in self.nodes for name in item.output]
        read = {name for item in self.nodes for name in item.input}
        outputs = {name for name in made if name not in read}
        outputs |= {name for name in made if self.rng.random() < 0.1}
        outputs, needed, nodes = [name for name in made if name in outputs][-4:], set(), []
        needed.update(outputs)
        for item in reversed(self.nodes):
            if needed.intersection(item.output):
                nodes.append(item)
                needed.update(item.input)
        inputs = {name: shape for name, shape in self.inputs.items() if name in needed}
        constants = {name: value for name, value in self.constants.items() if name in needed}
        return model(nodes[::-1], inputs, outputs, constants, opset=18) if inputs and nodes else None


def _conv(net, x, shape):
    if len(shape) in (3, 4):
        kernel = [net.count(1, min(3, size)) for size in shape[2:]]
        group = net.some([1, 1, shape[1]])
        outputs = net.count(1, 6) if group == 1 else group * net.count(1, 2)
        attrs = {name: [net.count(low, 2) for _ in kernel] for name, low in (("strides", 1), ("dilations", 1))}
        pads = [net.count(0, size - 1) for size in kernel] * 2
        weight = net.weights(outputs, shape[1] // group, *kernel)
        net.add("Conv", [x], [weight], group=group, kernel_shape=kernel, pads=pads, **attrs)


def _transposed_conv(net, x, shape):
    if len(shape) in (3, 4):
        kernel = [net.count(1, 3) for _ in shape[2:]]
        weight = net.weights(shape[1], net.count(1, 4), *kernel)
        net.add("ConvTranspose", [x], [weight], kernel_shape=kernel, strides=[net.count(1, 2) for _ in kernel])


def _dense(net, x, shape):
    net.add("MatMul", [x], [net.weights(shape[-1], net.count(1, 8))] if shape else [])


def _transpose(net, x, shape):
    if shape:
        net.add("Transpose", [x], perm=net.rng.permutation(len(shape)).tolist())


def _reshape(net, x, shape):
    left, sizes = int(np.prod(shape)), []
    for _ in range(net.count(0, 3)):
        sizes.append(net.some([size for size in range(1, left + 1) if left % size == 0]))
        left //= sizes[-1]
    sizes = net.rng.permutation([*sizes, left]).tolist()
    net.add("Reshape", [x], [ints(*([1] if net.rng.random() < 0.6 else []), *sizes)])


def _slice(net, x, shape):
    axes = [axis for axis in range(len(shape)) if net.rng.random() < 0.5]
    steps = [net.some([1, 1, 2, 3, -1, -2]) for _ in axes]
    starts = [net.count(0, shape[axis] - 1) for axis in axes]
    stops = [shape[axis] if step > 0 else -shape[axis] - 1 for axis, step in zip(axes, steps, strict=True)]
    net.add("Slice", [x], [ints(*starts), ints(*stops), ints(*axes), ints(*steps)])


def _split(net, x, shape):
    if shape:
        parts = net.count(2, 3)
        net.add("Split", [x], outputs=parts, axis=net.count(0, len(shape) - 1), num_outputs=parts)


def _concat(net, x, shape):
    if not shape:
        return
    axis = net.count(0, len(shape) - 1)

    def fits(value):
        return value.ndim == len(shape) and np.delete(value.shape, axis).tolist() == np.delete(shape, axis).tolist()

    names = [net.other(fits) for _ in range(net.count(2, 4))]
    constants = []
    if net.rng.random() < 0.25:
        names.insert(net.count(0, len(names)), None)
        constants = [net.whole(*shape[:axis], net.count(1, 2), *shape[axis + 1 :])]
    net.add("Concat", names, constants, axis=axis)


def _pad(net, x, shape):
    pads = [net.some([0, 0, 1, 2]) for _ in (*shape, *shape)]
    mode = net.some(["constant", "edge", "reflect", "wrap"])
    value = [np.float32(net.count(-2, 2))] if mode == "constant" else []
    net.add("Pad", [x], [ints(*pads), *value], mode=mode)


def _tile(net, x, shape):
    net.add("Tile", [x], [ints(*(net.some([1, 1, 2, 3]) for _ in shape))])


def _expand(net, x, shape):
    full = [net.count(1, 3) if size == 1 else size for size in shape]
    net.add("Expand", [x], [ints(*([2] if net.rng.random() < 0.2 else []), *full)])


def _space(net, x, shape):
    net.add(net.some(["DepthToSpace", "SpaceToDepth"]), [x], blocksize=2)


def _binary(net, x, shape):
    op, other = net.some(["Add", "Sub", "Mul", "Max", "Min", "Add", "Mul"]), net.other()
    net.add(op, net.some([[x, other], [other, x]]))


def _constant(net, x, shape):
    sizes = [net.count(2, 3) if size == 1 and net.rng.random() < 0.15 else net.some([1, size]) for size in shape]
    sizes = [*([2] if net.rng.random() < 0.1 else []), *sizes[net.count(0, len(sizes)) :]]
    op, value = net.some(["Add", "Sub", "Mul", "Max", "Min"]), net.whole(*sizes)
    net.add(op, net.some([[x, None], [None, x]]), [value])


def _matmul(net, x, shape):
    def fits(value):
        return value.ndim > 0 and value.shape[-2 if value.ndim > 1 else 0] == shape[-1]

    if shape and (other := net.other(fits)):
        net.add("MatMul", [x, other])


def _einsum(net, x, shape):
    first = _LETTERS[: len(shape)]
    if net.rng.random() < 0.4:
        left = "".join(letter for letter in net.rng.permutation(list(first)) if net.rng.random() < 0.7)
        net.add("Einsum", [x], equation=f"{first}->{left}")
        return
    other, second = net.other(), ""
    for size in net.values[other].shape:
        same = [letter for letter, own in zip(first, shape, strict=True) if own == size and letter not in second]
        second += net.some(same) if same and net.rng.random() < 0.7 else _LETTERS[len(shape) + len(second)]
    letters = [*dict.fromkeys(first + second)]
    left = "".join(letter for letter in net.rng.permutation(letters) if net.rng.random() < 0.6) if letters else ""
    net.add("Einsum", [x, other], equation=f"{first},{second}->{left}")


def _reduce(net, x, shape):
    axes = [axis for axis in range(len(shape)) if net.rng.random() < 0.5]
    op = net.some(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceProd"])
    net.add(op, [x], [ints(*axes)], keepdims=net.count(0, 1))


def _cumulated(net, x, shape):
    if shape:
        axis = np.array(net.count(0, len(shape) - 1))
        net.add("CumSum", [x], [axis], exclusive=net.count(0, 1), reverse=net.count(0, 1))


def _pool(net, x, shape):
    if len(shape) in (3, 4):
        kernel = [net.count(1, min(3, size)) for size in shape[2:]]
        net.add("MaxPool", [x], kernel_shape=kernel, strides=[net.count(1, 2) for _ in kernel])


def _unary(net, x, shape):
    net.add(net.some(["Relu", "Abs", "Neg", "Identity"]), [x])


def _clip(net, x, shape):
    net.add("Clip", [x], [np.float32(net.count(-3, 0)), np.float32(net.count(0, 3))])


def _gather(net, x, shape):
    if shape:
        axis = net.count(0, len(shape) - 1)
        sizes = net.some([(), (1,), (2,), (4,), (2, 2)])
        net.add("Gather", [x], [net.rng.integers(-shape[axis], shape[axis], sizes)], axis=axis)


def _power(net, x, shape):
    exponents = [np.float32(2), np.float32(1), np.full((2, *shape), 2, np.float32), np.abs(net.whole(*shape[-1:]))]
    net.add("Pow", [x], [net.some(exponents)])


def _where(net, x, shape):
    mask = net.rng.random(net.some([shape, shape[-1:], (2, *shape)])) < 0.5
    if net.rng.random() < 0.5:
        net.add("Where", net.some([[None, x, net.other()], [None, net.other(), x]]), [mask])
    else:
        constant = net.whole(*net.some([(), shape, shape[-1:]]))
        net.add("Where", net.some([[None, x, None], [None, None, x]]), [constant, mask])


def _resize(net, x, shape):
    if len(shape) in (3, 4):
        scales = np.float32([1, 1, *(net.some([1, 2, 3]) for _ in shape[2:])])
        attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        net.add("Resize", [x], [np.float32([]), scales], **attrs)


def _triangle(net, x, shape):
    if len(shape) > 1:
        net.add("Trilu", [x], [np.array(net.count(-1, 1))], upper=net.count(0, 1))


def _interleave(net, x, shape):
    """Columns of one map between those of another one."""
    if len(shape) == 4:
        names = [net.add("Unsqueeze", [name], [ints(4)]) for name in (x, net.other(lambda value: value.shape == shape))]
        if None not in names and (both := net.add("Concat", names, axis=4)):
            net.add("Reshape", [both], [ints(*shape[:3], 2 * shape[3])])


_STEPS = (
    _conv, _transposed_conv, _dense, _transpose, _reshape, _slice, _split, _concat, _concat, _pad, _tile, _expand,
    _space, _binary, _binary, _constant, _constant, _matmul, _einsum, _reduce, _reduce, _cumulated, _pool, _unary,
    _clip, _gather, _power, _where, _resize, _triangle, _interleave,
)  # fmt: skip


def network(rng):
    """A random model, and the largest magnitude of its inputs."""
    while True:
        net = Network(rng)
        for _ in range(net.count(3, 14)):
            net.step()
        if (proto := net.proto()) is not None:
            return proto, net.limit


def end_of(proto, limit, rng):
    """What comes of a model; ``None`` if numbers on the way become large."""
    try:
        graph = import_model(proto)
    except UnsupportedModel as error:
        return of_message(str(error))
    shapes = {name: (3, *graph.sample_shape(name)) for name in graph.inputs}
    inputs = {name: rng.integers(-limit, limit + 1, shape).astype(float) for name, shape in shapes.items()}
    on_the_way = execute.run(graph, inputs, keep="all")
    if max(np.abs(value).max() for value in on_the_way.values()) > _LARGEST:
        return None
    wanted = {name: [] for name in graph.outputs}
    for k in range(3):
        sample = {name: value[k].reshape(graph.shapes[name]) for name, value in inputs.items()}
        for name, value in zip(graph.outputs, onnxruntime_results(proto, sample), strict=True):
            wanted[name].append(value)
    for name, values in wanted.items():
        if values[0].shape != graph.shapes[name]:
            return End("finding", f"shape of {name} must be {values[0].shape}, not {graph.shapes[name]}")
    config, batch = CONFIGS[int(rng.integers(2))], int(rng.integers(1, 3))
    try:
        try:
            compiled = compile_graph(graph, config, batch=batch)
        except BatchError:  # as samples are not independent of each other in all operators
            compiled = compile_graph(graph, config)
    except (Unsupported, CapacityError) as error:
        return of_message(str(error))
    got = emulate(compiled, inputs)
    for name, values in wanted.items():
        want = np.stack(values).reshape(got[name].shape)
        if not np.array_equal(got[name], want):
            wrong, most = np.count_nonzero(got[name] != want), np.abs(got[name] - want).max()
            return End("finding", f"{wrong} of {want.size} elements of {name} are wrong, by {most:g} at most")
    return End("result")


def case(random, folder):
    """Compile a network and run it; the model is kept in ``folder``."""
    rng = np.random.default_rng(random.randrange(1 << 30))
    with warnings.catch_warnings(), instrumented(Checks()):
        warnings.simplefilter("ignore")
        while True:
            proto, limit = network(rng)
            (folder / "net.onnx").write_bytes(proto.SerializeToString())
            if (end := end_of(proto, limit, rng)) is not None:
                return end
