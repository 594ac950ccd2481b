"""Random networks of whole numbers and truth values beside a product, with numbers where types and formats end.

Some come from floats, which are cast and compared: none that the network computes, as the NPU rounds those.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import info, node, onnxruntime_results

#: Types of inputs, those that embeddings and masks have most often.
KINDS = ("int64", "int64", "int64", "int32", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool")
#: Types of inputs that are cast and compared.
FLOATS = ("float32", "float32", "float32", "float64", "float16")
#: Floats where binary16, a type or the subnormal numbers end, and some between.
_FLOAT_CORNERS = [
    0, 1e-45, 1e-38, 1e-9, 2**-26, 2**-25, 5.97e-8, 6e-8, 2**-14, 0.1, 1 / 3, 1, 254.5, 2047.5, 2049, 32767.5, 65504,
    65519, 65520, 1e6, 1 << 24, 1 << 31, 3e38,
]  # fmt: skip
#: Beside these numbers binary16, a type or double precision ends.
_CORNERS = [0, *(1 << bits for bits in (0, 7, 8, 11, 12, 15, 16, 24, 31, 32, 52))]
#: Of indices.
_TABLE = 4100


def numbers(rng, kind, shape):
    """Numbers of a type that double precision holds, of which many are beside an end."""
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind.startswith("float"):
        most = float(np.finfo(kind).max)
        near = np.clip(rng.choice(_FLOAT_CORNERS, shape) * rng.choice([1, 1, -1], shape), -most, most).astype(kind)
        other = np.where(rng.random(shape) < 0.5, near, rng.choice([-most, most], shape)).astype(kind)
        return np.nextafter(near, other)
    limits = np.iinfo(kind)
    low, high = max(limits.min, -(1 << 53)), min(limits.max, 1 << 53)
    near = rng.choice([*_CORNERS, low, high], shape) * rng.choice([1, 1, -1], shape) + rng.integers(-2, 3, shape)
    small = rng.integers(-9, 10, shape)
    return np.clip(np.where(rng.random(shape) < rng.choice([0.2, 0.9]), near, small), low, high).astype(kind)


class Network:
    """Appends random operators that onnxruntime takes; knows what every tensor is for one sample.

    With ``floats`` there are inputs of floats, too, and more operators; what has them is no output.
    """

    def __init__(self, rng, floats=False):
        self.rng, self.nodes, self.constants, self.inputs, self.values = rng, [], {}, {}, {}
        self.floats, self.steps = set(), _FLOAT_STEPS if floats else _STEPS
        for k in range(int(rng.integers(1, 3))):
            shape = (1, *rng.integers(1, 5, int(rng.integers(0, 3))).tolist())
            self.values[f"z{k}"] = numbers(rng, str(rng.choice(KINDS)), shape)
            self.inputs[f"z{k}"] = self.values[f"z{k}"]
        for k in range(int(rng.integers(1, 3)) if floats else 0):
            shape = (1, *rng.integers(1, 5, int(rng.integers(0, 3))).tolist())
            self.inputs[f"f{k}"] = self.values[f"f{k}"] = numbers(rng, str(rng.choice(FLOATS)), shape)
            self.floats.add(f"f{k}")
        if floats:  # the product, too, and what it reads, whole numbers that all formats hold
            self.floats.add("x")
            self.constants["weight"] = rng.integers(-2, 3, (4, 4)).astype(np.float32)
            self.values["x"] = rng.integers(-3, 4, (1, 4)).astype(np.float32)
            self.values["m"] = self.values["x"] @ self.constants["weight"]

    def some(self, choices):
        """Any of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def kind(self, x):
        """Type of a tensor."""
        return self.values[x].dtype.name

    def constant(self, value):
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def like(self, x):
        """A constant of the type of a tensor that broadcasts to it, or one number."""
        shape = self.some([(), self.values[x].shape[1:], self.values[x].shape[-1:]])
        return self.constant(numbers(self.rng, self.kind(x), shape))

    def other(self, x):
        """Another tensor of the type, or a constant."""
        names = [name for name, value in self.values.items() if value.dtype == self.values[x].dtype]
        return self.like(x) if self.rng.random() < 0.6 else self.some(names)

    def ends(self, f):
        """Least and greatest number of a tensor."""
        return float(self.values[f].min()), float(self.values[f].max())

    def pair_with(self, f):
        """Floats and others of their type, in any order: an input, or a constant that has some of their numbers."""
        names = [name for name in sorted(self.floats) if self.kind(name) == self.kind(f)]
        values = self.values[f]
        own = np.where(self.rng.random(values.shape) < 0.5, values, numbers(self.rng, self.kind(f), values.shape))
        other = self.some([self.some(names), self.constant(own.astype(values.dtype)), self.like(f)])
        return self.some([[f, other], [other, f]])

    def add(self, op, inputs, outputs=1, **attrs):
        """Append an operator, unless onnxruntime refuses it."""
        results = [f"t{len(self.nodes)}.{k}" for k in range(outputs)]
        made = node(op, inputs, results, name=f"{op} {len(self.nodes)}", **attrs)
        known = {name: self.values[name] for name in inputs if name in self.values}
        try:
            found = onnxruntime_results(self.proto([made], known, results), known, None)
        except Exception:  # those of onnxruntime have no class in common
            return
        if all(0 < value.size <= 300 and value.dtype.kind in "iubf" for value in found):
            self.nodes.append(made)
            self.values |= dict(zip(results, found, strict=True))

    def proto(self, nodes, inputs, outputs):
        """A model of some nodes."""
        kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
        made = helper.make_graph(
            nodes, "net", [info(name, inputs[name].shape, kinds[name]) for name in inputs],
            [info(name, None, helper.np_dtype_to_tensor_dtype(self.values[name].dtype)) if name in self.values
             else helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()
             if any(name in item.input for item in nodes)],
        )  # fmt: skip
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def step(self):
        """An operator on what comes last, mostly, so that chains grow."""
        names = [name for name, value in self.values.items() if value.dtype.kind != "f" and value.ndim]
        x = names[-1] if self.rng.random() < 0.7 else self.some(names)
        self.some(self.steps)(self, x, self.values[x].shape)

    def network(self):
        """The model with a product beside, and its inputs."""
        made = [name for item in self.nodes for name in item.output]
        read = {name for item in self.nodes for name in item.input}
        outputs = [name for name in made if name not in read or self.rng.random() < 0.2]
        outputs = [name for name in outputs if name not in self.floats]
        read = {*outputs}
        for item in self.nodes[::-1]:
            if read.isdisjoint(item.output):
                self.nodes.remove(item)
            else:
                read.update(item.input)
        inputs = {name: value for name, value in self.inputs.items() if name in read}
        if not self.floats:
            self.constants["weight"] = self.rng.integers(-2, 3, (4, 4)).astype(np.float32)
            self.values |= {"x": np.ones((1, 4), np.float32), "m": np.ones((1, 4), np.float32)}
        product = node("MatMul", ["x", "weight"], ["m"], name="product")
        inputs["x"] = self.values["x"]
        return self.proto([product, *self.nodes], inputs, ["m", *outputs]), inputs


def _unary(net, x, shape):
    net.add(net.some(["Neg", "Abs", "Sign", "Identity", "Not", "Neg", "Abs"]), [x])


def _binary(net, x, shape):
    op = net.some(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Add", "Sub", "Mul"])
    pair = [x, net.other(x)]
    attrs = {"fmod": 1} if op == "Mod" and net.rng.random() < 0.3 else {}
    net.add(op, pair if net.rng.random() < 0.7 else pair[::-1], **attrs)


def _compared(net, x, shape):
    net.add(net.some(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), [x, net.other(x)])


def _logic(net, x, shape):
    if net.kind(x) == "bool":
        net.add(net.some(["And", "Or", "Xor"]), [x, net.other(x)])
    else:
        net.add("Cast", [x], to=TensorProto.BOOL)


def _cast(net, x, shape):
    kinds = [TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8,
             TensorProto.UINT16, TensorProto.UINT32, TensorProto.BOOL]  # fmt: skip
    net.add("Cast", [x], to=net.some(kinds))


def _clip(net, x, shape):
    if net.kind(x) != "bool":
        limits = sorted(numbers(net.rng, net.kind(x), 2).tolist())
        names = [net.constant(np.array(limit, net.kind(x))) for limit in limits]
        net.add("Clip", [x, *net.some([names, names[:1], ["", names[1]]])])


def _where(net, x, shape):
    masks = [name for name, value in net.values.items() if value.dtype == bool]
    mask = net.some(masks) if masks else net.constant(net.rng.random(shape) < 0.5)
    net.add("Where", [mask, *net.some([[x, net.other(x)], [net.other(x), x]])])


def _reduce(net, x, shape):
    axes = net.constant(np.array([net.some(range(len(shape)))], np.int64))
    op = net.some(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceMean"])
    if _may_leave_the_type(op, net.values[x]):
        return  # there onnxruntime 1.32 gives the end of the type, and ONNX's own evaluator wraps around
    net.add(op, [x, axes], keepdims=net.some([0, 1]))


def _may_leave_the_type(op, x):
    """Whether a sum or product of numbers of 32 bits may be none of their type."""
    sizes = np.abs(x.astype(float))
    terms = {"ReduceProd": np.maximum(sizes, 1), "ReduceSumSquare": sizes**2}.get(op, sizes)
    largest = terms.prod() if op == "ReduceProd" else terms.sum()
    whole = op in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare")
    return whole and x.dtype == np.int32 and largest >= 1 << 31


def _also_reduced(net, x, shape):
    axes = net.rng.choice(len(shape), net.rng.integers(1, len(shape) + 1), replace=False)
    op = net.some(["ReduceProd", "ReduceMean", "ReduceL1", "ReduceSumSquare"])
    if not _may_leave_the_type(op, net.values[x]):
        net.add(op, [x, net.constant(axes.astype(np.int64))], keepdims=net.some([0, 1]))


def _cumulated_before(net, x, shape):
    axis = net.constant(np.array(net.some(range(len(shape))), np.int64))
    net.add("CumSum", [x, axis], exclusive=1, reverse=net.some([0, 1]))


def _from_floats(net, x, shape):
    """A number or a truth value of floats, which may have been moved before."""
    f = net.some(sorted(net.floats))
    values = net.values[f]
    match net.some(["compare", "compare", "compare", "cast", "truth", "truth", "sign", "number", "move"]):
        case "compare":
            net.add(net.some(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), net.pair_with(f))
        case "truth":
            net.add("Cast", [f], to=TensorProto.BOOL)
        case "sign":
            net.add("Sign", [f])
        case "number":
            net.add(net.some(["IsNaN", "IsInf"]), [f])
        case "cast":
            kind, (low, high) = net.some(["int64", "int64", "int32", "int16", "uint8", "int8"]), net.ends(f)
            if np.iinfo(kind).min <= low and high < min(np.iinfo(kind).max, 1 << 53):
                net.add("Cast", [f], to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
        case "move" if values.ndim:
            known = set(net.values)
            _moved(net, f, values.shape)
            net.floats |= net.values.keys() - known


def _from_the_product(net, x, shape):
    """A number or a truth value of what the network computes."""
    match net.some(["place", "number", "truth", "compare", "compare"]):
        case "place":
            net.add(net.some(["ArgMax", "ArgMin"]), ["m"], axis=1, keepdims=net.some([0, 1]))
        case "number":
            net.add("Cast", ["m"], to=net.some([TensorProto.INT64, TensorProto.INT32, TensorProto.INT16]))
        case "truth":
            net.add("Cast", ["m"], to=TensorProto.BOOL)
        case "compare":
            half = net.constant((net.rng.integers(-9, 10, 4) / 2).astype(np.float32))
            net.add(net.some(["Less", "Greater", "Equal", "LessOrEqual"]), ["m", net.some([half, "x"])])


def _cumulated(net, x, shape):
    net.add("CumSum", [x, net.constant(np.array(net.some(range(len(shape))), np.int64))], reverse=net.some([0, 1]))


def _moved(net, x, shape):
    rank = len(shape)
    axis = net.some(range(rank))
    kind = net.some(["Reshape", "Transpose", "Concat", "Tile", "Slice", "Pad", "Expand", "Unsqueeze", "Gather"])
    integers = lambda *values: net.constant(np.array(values, np.int64))  # noqa: E731
    match kind:
        case "Reshape":
            net.add(kind, [x, integers(shape[0], -1)])
        case "Transpose":
            net.add(kind, [x], perm=[0, *(net.rng.permutation(rank - 1) + 1).tolist()])
        case "Concat":
            net.add(kind, [x, net.other(x)], axis=axis)
        case "Tile":
            net.add(kind, [x, integers(1, *([2] * (rank - 1)))])
        case "Slice":
            net.add(kind, [x, integers(0), integers(max(1, shape[axis] - 1)), integers(axis)])
        case "Pad":
            value = net.constant(numbers(net.rng, net.kind(x), ()))
            net.add(kind, [x, integers(*[0] * rank, 0, *[1] * (rank - 1)), value])
        case "Expand":
            net.add(kind, [x, integers(*(2 if size == 1 and k else size for k, size in enumerate(shape)))])
        case "Unsqueeze":
            net.add(kind, [x, integers(rank)])
        case "Gather":
            net.add(kind, [x, net.constant(net.rng.integers(0, shape[axis], 2))], axis=axis)


def _looked_up(net, x, shape):
    if net.kind(x) in ("int32", "int64"):
        table = net.rng.integers(-99, 99, (_TABLE, net.some([1, 3]))).astype(net.some([np.float32, np.int64, np.int32]))
        net.add("Gather", [net.constant(table), x], axis=0)


def _placed(net, x, shape):
    net.add(net.some(["ArgMax", "ArgMin"]), [x], axis=len(shape) - 1, keepdims=net.some([0, 1]))


def _hot(net, x, shape):
    if net.kind(x) in ("int32", "int64"):
        values = np.array([0, 1], net.some([np.float32, np.int64]))
        net.add("OneHot", [x, net.constant(np.array(5, np.int64)), net.constant(values)])


_STEPS = (
    _unary, _unary, _binary, _binary, _binary, _binary, _compared, _logic, _cast, _cast, _clip, _where, _reduce,
    _reduce, _cumulated, _moved, _moved, _moved, _looked_up, _placed, _hot,
)  # fmt: skip
_FLOAT_STEPS = (
    *_STEPS, *[_from_floats] * 10, *[_from_the_product] * 3, _also_reduced, _also_reduced, _cumulated_before,
)  # fmt: skip


def network(rng, floats=False):
    """A random model, and one sample of its inputs; ``floats`` as for :class:`Network`."""
    while True:
        net = Network(rng, floats)
        for _ in range(40):
            net.step()
            if len(net.nodes) >= int(rng.integers(2, 7)):
                break
        if net.nodes and any(name in net.inputs for item in net.nodes for name in item.input):
            return net.network()
