"""ONNX: small networks with one to four changes of their structure, attributes, shapes and types, or of their bytes."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from support.fuzz.commands import call, damaged
from support.fuzz.ends import End, of_command
from support.onnx_models import model, node
from support.quantised_nets import network as quantised

_OPS = (
    "Conv", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean",
    "ReduceSum",
    "ReduceMax", "Softmax", "BatchNormalization", "LayerNormalization", "InstanceNormalization", "Relu", "LeakyRelu",
    "PRelu",
    "Clip", "Sigmoid", "Tanh", "Erf", "HardSwish", "Softplus", "Elu", "Exp", "Sqrt", "Log", "Abs", "Neg", "Add",
    "Sub", "Mul",
    "Div", "Max", "Min", "Sum", "Mean", "Pow", "Reshape", "Transpose", "Slice", "Pad", "Concat", "Split", "Flatten",
    "Squeeze",
    "Unsqueeze", "Gather", "Shape", "Cast", "Expand", "Where", "Identity", "Dropout", "QuantizeLinear",
    "DequantizeLinear",
    "Constant", "ConstantOfShape", "Range", "Tile", "If", "Loop", "Resize", "ConvTranspose", "DepthToSpace", "ArgMax",
    "TopK",
)  # fmt: skip
_SIZES = (
    -(2**63),
    -(2**31),
    -7,
    -2,
    -1,
    0,
    1,
    2,
    3,
    5,
    8,
    17,
    64,
    100,
    1023,
    1024,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    2**40,
    2**63 - 1,
)
_NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-30,
    1e5,
    65504.0,
    70000.0,
    1e30,
    3e38,
    float("inf"),
    float("-inf"),
    float("nan"),
)


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.3, shape).astype(np.float32)


def _dense(rng):
    nodes = [node("Gemm", ["x", "w", "b"], ["a"], name="one", transB=1), node("Relu", ["a"], ["c"]),
             node("MatMul", ["c", "v"], ["d"], name="two"), node("Softmax", ["d"], ["y"], axis=-1)]  # fmt: skip
    constants = {"w": _weights(rng, 8, 6), "b": _weights(rng, 8), "v": _weights(rng, 8, 3)}
    return model(nodes, {"x": ("n", 6)}, constants=constants)


def _image(rng):
    nodes = [
        node("Conv", ["x", "w", "b"], ["a"], name="one", pads=[1] * 4, strides=[1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["a", "s", "s", "b", "s"], ["n"]), node("Relu", ["n"], ["c"]),
        node("Conv", ["c", "d"], ["e"], name="depthwise", group=4, pads=[1] * 4), node("Clip", ["e", "lo", "hi"],
        ["f"]),
        node("Add", ["f", "c"], ["g"]), node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["h"], ["i"]), node("Flatten", ["i"], ["j"]), node("Gemm", ["j", "v"], ["y"],
        name="last"),
    ]  # fmt: skip
    constants = {
        "w": _weights(rng, 4, 3, 3, 3), "b": _weights(rng, 4), "s": np.abs(_weights(rng, 4)) + 1, "d": _weights(rng,
        4, 1, 3, 3),
        "lo": np.float32(0), "hi": np.float32(6), "v": _weights(rng, 4, 2),
    }  # fmt: skip
    return model(nodes, {"x": (1, 3, 4, 4)}, constants=constants)


def _recurrent(rng):
    op, gates = [("LSTM", 4), ("GRU", 3), ("RNN", 1)][int(rng.integers(3))]
    weights = {
        "w": _weights(rng, 1, gates * 3, 4),
        "r": _weights(rng, 1, gates * 3, 3),
        "b": _weights(rng, 1, 2 * gates * 3),
    }
    nodes = [node(op, ["x", "w", "r", "b"], ["h"], hidden_size=3, name="cell"), node("Squeeze", ["h", "axes"], ["k"]),
             node("Tanh", ["k"], ["y"])]  # fmt: skip
    return model(nodes, {"x": (3, 1, 4)}, constants=weights | {"axes": np.array([1])})


def _moving(rng):
    nodes = [
        node("Reshape", ["x", "s"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
        node("Slice", ["b", "from", "to", "axes"], ["c"]), node("Concat", ["c", "c"], ["d"], axis=2),
        node("Pad", ["d", "pads"], ["e"]), node("LayerNormalization", ["e", "scale"], ["f"], axis=-1),
        node("Sigmoid", ["f"], ["g"]), node("ReduceMean", ["g"], ["y"], axes=[1], keepdims=0),
    ]  # fmt: skip
    constants = {
        "s": np.array([1, 4, 6]), "from": np.array([0]), "to": np.array([4]), "axes": np.array([1]),
        "pads": np.array([0, 0, 0, 0, 1, 0]), "scale": np.ones(8, np.float32),
    }  # fmt: skip
    return model(nodes, {"x": (1, 24)}, constants=constants)


def _attention(rng):
    nodes = [
        *(node("MatMul", ["x", f"w{k}"], [k], name=k) for k in "qkv"), node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["s"]), node("Div", ["s", "root"], ["u"]), node("Softmax", ["u"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]), node("Add", ["o", "x"], ["y"]),
    ]  # fmt: skip
    return model(
        nodes, {"x": (1, 3, 4)}, constants={f"w{k}": _weights(rng, 4, 4) for k in "qkv"} | {"root": np.float32(2)}
    )


BASES = (_dense, _image, _recurrent, _moving, _attention, lambda rng: quantised())


def base(rng: random.Random) -> onnx.ModelProto:
    """One of the small networks."""
    return rng.choice(BASES)(np.random.default_rng(rng.randrange(1 << 30)))


# Changes of structure ------------------------------------------------------------------------------


def _names(proto):
    found = {name for item in proto.graph.node for name in (*item.input, *item.output)}
    return sorted(found | {item.name for item in (*proto.graph.input, *proto.graph.initializer)})


def _node(rng, proto):
    return rng.choice(proto.graph.node) if proto.graph.node else node("Relu", ["x"], ["y"])


def drop_node(rng, proto):
    if proto.graph.node:
        del proto.graph.node[rng.randrange(len(proto.graph.node))]


def repeat_node(rng, proto):
    again = proto.graph.node.add()
    again.CopyFrom(_node(rng, proto))
    if rng.random() < 0.5:
        again.output[:] = [f"{name}.again" for name in again.output]


def shuffle_nodes(rng, proto):
    nodes = list(proto.graph.node)
    rng.shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def change_operator(rng, proto):
    item = _node(rng, proto)
    item.op_type = rng.choice([*_OPS, "", "Nothing", "A" * 300])
    if rng.random() < 0.1:
        item.domain = rng.choice(["ai.onnx.ml", "com.microsoft", "\n"])


def change_edge(rng, proto):
    item = _node(rng, proto)
    names = item.input if rng.random() < 0.7 else item.output
    choice = rng.choice([*_names(proto), "", "nowhere", "x\ny", "é" * 50])
    if names and rng.random() < 0.7:
        names[rng.randrange(len(names))] = choice
    elif names and rng.random() < 0.5:
        del names[rng.randrange(len(names))]
    else:
        names.append(choice)


def _value(rng):
    return rng.choice([
        lambda: rng.choice(_SIZES), lambda: rng.choice(_NUMBERS), lambda: rng.choice(["", "SAME_UPPER", "constant",
        "\x00", "x" * 999]),
        lambda: [rng.choice(_SIZES) for _ in range(rng.randrange(6))],
        lambda: [rng.choice(_NUMBERS) for _ in range(rng.randrange(1, 4))],
        lambda: [rng.choice(["Tanh", "Sigmoid", "Relu", "Affine", ""]) for _ in range(rng.randrange(1, 4))],
        lambda: numpy_helper.from_array(np.arange(3.0)),
    ])()  # fmt: skip


def change_attribute(rng, proto):
    item = _node(rng, proto)
    known = [
        "axis", "axes", "pads", "strides", "kernel_shape", "dilations", "group", "auto_pad", "ceil_mode", "perm",
        "keepdims",
        "hidden_size", "direction", "activations", "clip", "linear_before_reset", "transA", "transB", "alpha", "beta",
        "epsilon",
        "to", "mode", "training_mode", "value", "split", "num_outputs", "block_size", "count_include_pad",
        "allowzero", "foo",
    ]  # fmt: skip
    if item.attribute and rng.random() < 0.7:
        index = rng.randrange(len(item.attribute))
        found = item.attribute[index]
        if rng.random() < 0.2:
            del item.attribute[index]
        elif found.type == AttributeProto.INTS and rng.random() < 0.7:
            if found.ints and rng.random() < 0.6:
                found.ints[rng.randrange(len(found.ints))] = rng.choice(_SIZES)
            else:
                found.ints.append(rng.choice(_SIZES))
        elif found.type == AttributeProto.INT and rng.random() < 0.7:
            found.i = rng.choice(_SIZES)
        else:
            found.CopyFrom(_attribute(found.name, _value(rng)))
    else:
        item.attribute.append(_attribute(rng.choice(known), _value(rng)))


def _attribute(name, value):
    return helper.make_attribute(name, value, attr_type=AttributeProto.INTS if value == [] else None)


def change_constant(rng, proto):
    if not proto.graph.initializer:
        return
    item = rng.choice(proto.graph.initializer)
    try:
        array = numpy_helper.to_array(item)
    except ValueError:  # changed before
        return
    change = rng.choice(["values", "shape", "axis", "type", "dims", "bytes", "scale", "drop", "name"])
    if change == "values" and array.size:
        array = array.copy()
        flat = array.reshape(-1)
        with np.errstate(all="ignore"):
            number = rng.choice(_NUMBERS if array.dtype.kind == "f" else _SIZES)
            flat[rng.randrange(flat.size)] = np.asarray(number).astype(array.dtype)
    elif change == "scale":
        with np.errstate(all="ignore"):
            array = (array * np.asarray(rng.choice((0, 1e-6, 100, 1e4, 1e6, 1e30)))).astype(array.dtype)
    elif change == "shape":
        shape = list(array.shape) or [1]
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 7, 40))
        array = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif change == "axis":
        array = array[None] if rng.random() < 0.5 else array[..., None] if rng.random() < 0.7 else array.reshape(-1)
    elif change == "type":
        with np.errstate(all="ignore"):
            array = array.astype(
                rng.choice([np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_, np.complex64])
            )
    elif change == "dims":
        item.dims[:] = [rng.choice(_SIZES) for _ in range(rng.randrange(4))]
        return
    elif change == "bytes":
        item.raw_data = item.raw_data[: rng.randrange(len(item.raw_data) + 1)]
        return
    elif change == "drop":
        proto.graph.initializer.remove(item)
        return
    elif change == "name":
        item.name = rng.choice(_names(proto))
        return
    item.CopyFrom(numpy_helper.from_array(array, item.name))


def change_input(rng, proto):
    values = proto.graph.input if rng.random() < 0.7 or not proto.graph.output else proto.graph.output
    if not values:
        return
    value = rng.choice(values)
    kind = value.type.tensor_type
    change = rng.choice(["size", "size", "rank", "type", "none", "drop", "twice", "name", "sequence"])
    if change == "size" and kind.shape.dim:
        dim = rng.choice(kind.shape.dim)
        if rng.random() < 0.8:
            dim.dim_value = rng.choice(_SIZES)
        else:
            dim.dim_param = rng.choice(["n", "", "m"])
    elif change == "rank" and kind.shape.dim:
        del kind.shape.dim[-1]
    elif change == "rank":
        kind.shape.dim.add().dim_value = 2
    elif change == "type":
        kind.elem_type = rng.choice(
            [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT8, TensorProto.STRING, 0, 99]
        )
    elif change == "none":
        kind.ClearField("shape")
    elif change == "drop":
        values.remove(value)
    elif change == "twice":
        values.add().CopyFrom(value)
    elif change == "name":
        value.name = rng.choice([*_names(proto), "", "other"])
    else:
        value.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT


def change_version(rng, proto):
    if proto.opset_import and rng.random() < 0.7:
        proto.opset_import[0].version = rng.choice([-1, 0, 1, 7, 8, 9, 11, 12, 13, 15, 18, 20, 21, 30, 2**31])
    elif rng.random() < 0.5:
        proto.ir_version = rng.choice([0, 1, 3, 4, 7, 30, -1])
    else:
        del proto.opset_import[:]


CHANGES = (
    drop_node, repeat_node, shuffle_nodes, change_operator, change_edge, change_attribute, change_attribute,
    change_constant,
    change_constant, change_input, change_version,
)  # fmt: skip


def structure(rng, folder) -> End:
    """Compile a network with changes of its structure, and run what comes of it."""
    proto = base(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        rng.choice(CHANGES)(rng, proto)
    return compile_and_run(rng, folder, proto.SerializeToString())


def contents(rng, folder) -> End:
    """Compile the file of a network with changes of its bytes."""
    return compile_and_run(rng, folder, damaged(rng, base(rng).SerializeToString()))


def compile_and_run(rng, folder, data: bytes) -> End:
    """Compile; run, inspect or report a network that compiles."""
    (folder / "net.onnx").write_bytes(data)
    preset = rng.choice(("tiny", "tiny", "up5k", "ecp5-25f", "ecp5-85f"))
    end = of_command(*call("compile", folder / "net.onnx", "--preset", preset))
    if end.kind != "result":
        return end
    from concord.networks.folder import load_package

    shapes = load_package(folder / "net").arrangement.shapes
    package = load_package(folder / "net")
    values = np.random.default_rng(rng.randrange(1 << 30))
    scale = rng.choice((0.1, 1, 1, 1, 10, 1000))
    arrays = {name: scale * values.normal(0, 1, (2, *shapes[name])) for name in package.arrangement.inputs}
    np.savez(folder / "x.npz", **arrays)
    words = rng.choice((["run", folder / "net", "-i", folder / "x.npz", "-o", folder / "y.npz"], ["inspect",
    folder / "net"],
                        ["report", folder / "net", "-i", folder / "x.npz"]))  # fmt: skip
    return of_command(*call(*words))
