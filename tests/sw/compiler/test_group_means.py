"""Normalisation of groups of channels over all positions: nothing is moved, however an exporter has written it."""

import numpy as np
import pytest
from onnx import numpy_helper

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.execute import run
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.presets import ECP5_85F
from support.compiled_nets import ROOMY
from support.onnx_models import model, node, onnxruntime_results

WIDE = ECP5_85F.replace(narrow_depth=8192, wide_depth=8192, matrix_depth=1024)
FOUR = ROOMY.replace(narrow_depth=8192, wide_depth=8192, program_depth=1024, matrix_depth=512, table_depth=1024)


def constants(channels, rank, rng):
    size = (channels, *[1] * rank)
    return {"gain": rng.normal(1, 0.3, size).astype(np.float32), "bias": rng.normal(0, 0.3, size).astype(np.float32)}


def behind_conv(nodes, shape, more, opset=17):
    """The nodes from ``h`` to ``y`` behind a convolution."""
    rng, (channels, *size) = np.random.default_rng(1), shape[1:]
    weight = rng.normal(0, 0.5, (channels, 3, *[1] * len(size))).astype(np.float32)
    first = node("Conv", ["x", "w"], ["h"])
    return model([first, *nodes], {"x": (1, 3, *size)}, ["y"], {"w": weight, **more}, opset)


def torch_form(shape, groups):
    """As both exporters of PyTorch write nn.GroupNorm."""
    more = constants(shape[1], len(shape) - 2, np.random.default_rng(2))
    more |= {"flat": np.array([0, groups, -1]), "back": np.array(shape)}
    more |= {"ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32)}
    return behind_conv([
        node("Reshape", ["h", "flat"], ["f"]), node("InstanceNormalization", ["f", "ones", "zeros"], ["n"]),
        node("Reshape", ["n", "back"], ["m"]), node("Mul", ["m", "gain"], ["g"]), node("Add", ["g", "bias"], ["y"]),
    ], shape, more)  # fmt: skip


def written_out(shape, groups):
    """Mean, difference, squares, over the axes of a group, as frameworks without the operator write it."""
    more = constants(shape[1], len(shape) - 2, np.random.default_rng(2))
    more |= {"split": np.array([1, groups, -1, *shape[2:]]), "back": np.array(shape), "e": np.float32(1e-5)}
    axes = list(range(2, len(shape) + 1))
    return behind_conv([
        node("Reshape", ["h", "split"], ["f"]), node("ReduceMean", ["f"], ["m"], axes=axes),
        node("Sub", ["f", "m"], ["c"]), node("Mul", ["c", "c"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=axes),
        node("Add", ["v", "e"], ["s"]), node("Sqrt", ["s"], ["r"]), node("Div", ["c", "r"], ["n"]),
        node("Reshape", ["n", "back"], ["o"]), node("Mul", ["o", "gain"], ["g"]), node("Add", ["g", "bias"], ["y"]),
    ], shape, more)  # fmt: skip


def channels_last(shape, groups):
    """As a group normalisation of Keras: channels are the last axis, and the groups of it."""
    channels, *size = shape[1:]
    rank, rng = len(size), np.random.default_rng(2)
    turned = [0, *range(2, rank + 2), 1]
    more = {"gain": rng.normal(1, 0.3, channels).astype(np.float32), "e": np.float32(1e-5)}
    more |= {"split": np.array([1, *size, groups, channels // groups]), "back": np.array([1, *size, channels])}
    axes = [*range(1, rank + 1), rank + 2]
    return behind_conv([
        node("Transpose", ["h"], ["t"], perm=turned), node("Reshape", ["t", "split"], ["f"]),
        node("ReduceMean", ["f"], ["m"], axes=axes), node("Sub", ["f", "m"], ["c"]), node("Mul", ["c", "c"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=axes), node("Add", ["v", "e"], ["s"]), node("Sqrt", ["s"], ["r"]),
        node("Div", ["c", "r"], ["n"]), node("Reshape", ["n", "back"], ["o"]), node("Mul", ["o", "gain"], ["y"]),
    ], shape, more)  # fmt: skip


def operator(shape, groups, opset=21):
    """The operator of ONNX: constants are those of groups up to opset 20, of channels from 21 on."""
    size = shape[1] if opset > 20 else groups
    rng = np.random.default_rng(2)
    more = {"gain": rng.normal(1, 0.3, size).astype(np.float32), "bias": rng.normal(0, 0.3, size).astype(np.float32)}
    return behind_conv(
        [node("GroupNormalization", ["h", "gain", "bias"], ["y"], num_groups=groups)], shape, more, opset
    )


def whole_layer(shape, groups):
    """LayerNormalization over channels and positions, with a gain for every element."""
    gain = np.random.default_rng(2).normal(1, 0.3, shape[1:]).astype(np.float32)
    return behind_conv([node("LayerNormalization", ["h", "gain"], ["y"], axis=1)], shape, {"gain": gain})


def results(proto, x):
    """Of onnxruntime, sample by sample."""
    return np.concatenate([onnxruntime_results(proto, {"x": one[None]})[0] for one in x])


def moved(compiled):
    """Operators that move elements by a product with zeros and ones."""
    return {each.op for each in compiled.graph.nodes} & {"Copy", "AlignGroups", "Expand"}


CASES = {
    "torch": (torch_form, (1, 8, 4, 4), 2),
    "torch 3 of 12": (torch_form, (1, 12, 3, 5), 3),
    "torch 5 of 10": (torch_form, (1, 10, 4, 3), 5),
    "torch 2 of 40": (torch_form, (1, 40, 4, 3), 2),
    "torch 2 of 32": (torch_form, (1, 32, 4, 3), 2),
    "torch, one group": (torch_form, (1, 10, 4, 4), 1),
    "torch, one group of 20": (torch_form, (1, 20, 4, 4), 1),
    "torch, a group a channel": (torch_form, (1, 6, 4, 4), 6),
    "torch, 1-D": (torch_form, (1, 8, 12), 2),
    "torch, many positions": (torch_form, (1, 4, 10, 13), 2),
    "operator": (operator, (1, 8, 4, 4), 4),
    "operator, 1-D": (operator, (1, 12, 10), 3),
    "written out": (written_out, (1, 8, 4, 4), 2),
    "channels last": (channels_last, (1, 8, 4, 4), 2),
    "whole layer": (whole_layer, (1, 8, 4, 4), 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("config", [WIDE, FOUR], ids=lambda config: config.name)
@pytest.mark.parametrize("sampled", [True, False], ids=["samples", "none"])
def test_groups_are_normalised_where_they_lie(case, config, sampled):
    make, shape, groups = CASES[case]
    proto = make(shape, groups)
    graph = import_model(proto)
    rng = np.random.default_rng(3)
    for size in (1.0,) if sampled else (0.05, 1.0, 40.0):
        x = rng.normal(0.5 * size, size, (12, 3, *shape[2:]))
        if sampled:
            compiled = calibration_of(graph, {"x": x[:8]}).measure("samples", config, Formats()).compiled
        else:
            compiled = compile_graph(graph, config)
        assert not moved(compiled)
        got = emulate(compiled, {"x": x[8:]})["y"].reshape(4, *shape[1:])
        assert relative_error(got, results(proto, x[8:]).reshape(got.shape)) < 0.012


@pytest.mark.parametrize("sampled", [True, False], ids=["samples", "none"])
def test_a_quiet_group_beside_a_loud_one(sampled):
    """They share native vectors: a mean of the squares of both would leave the quiet one no bits."""
    proto = torch_form((1, 8, 4, 4), 2)
    weight = next(item for item in proto.graph.initializer if item.name == "w")
    values = numpy_helper.to_array(weight).copy()
    values[:4] /= 16
    weight.CopyFrom(numpy_helper.from_array(values, "w"))
    graph, x = import_model(proto), np.random.default_rng(4).normal(0, 1, (12, 3, 4, 4))
    if sampled:
        compiled = calibration_of(graph, {"x": x[:8]}).measure("samples", WIDE, Formats()).compiled
    else:
        compiled = compile_graph(graph, WIDE)
    got, want = emulate(compiled, {"x": x[8:]})["y"], results(proto, x[8:])
    for part in (slice(0, 4), slice(4, 8)):
        assert relative_error(got[:, part], want[:, part]) < 0.04


def test_groups_of_a_part_of_the_channels():
    """Other channels in the same native vectors take no part."""
    shape, rng = (1, 6, 4, 4), np.random.default_rng(5)
    more = {"from": np.array([3]), "to": np.array([9]), "axis": np.array([1]), "flat": np.array([1, 2, -1])}
    more |= {"ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32), "back": np.array(shape)}
    nodes = [
        node("Conv", ["x", "w"], ["a"]), node("Slice", ["a", "from", "to", "axis"], ["h"]),
        node("Reshape", ["h", "flat"], ["f"]), node("InstanceNormalization", ["f", "ones", "zeros"], ["n"]),
        node("Reshape", ["n", "back"], ["y"]),
    ]  # fmt: skip
    weight = rng.normal(0, 0.5, (12, 3, 1, 1)).astype(np.float32)
    proto = model(nodes, {"x": (1, 3, 4, 4)}, ["y"], {"w": weight, **more})
    compiled = compile_graph(import_model(proto), WIDE)
    x = rng.normal(0, 1, (4, 3, 4, 4))
    assert not moved(compiled)
    assert relative_error(emulate(compiled, {"x": x})["y"], results(proto, x)) < 0.012


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize(("heads", "size"), [(4, 8), (3, 10), (2, 20), (8, 4)])
@pytest.mark.parametrize("scale", [0.02, 1.0, 50.0])
def test_features_of_every_head_are_normalised_where_they_lie(rms, heads, size, scale):
    """Queries and keys of a transformer: groups of lanes, at every position by itself."""
    rng, width = np.random.default_rng(7), heads * size
    more = {"w": rng.normal(0, 0.3, (6, width)).astype(np.float32), "split": np.array([1, 5, heads, size])}
    more |= {"gain": rng.normal(1, 0.3, size).astype(np.float32), "back": np.array([1, 5, width])}
    name = "RMSNormalization" if rms else "LayerNormalization"
    nodes = [
        node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "split"], ["h"]),
        node(name, ["h", "gain"], ["n"], axis=-1, epsilon=1e-6), node("Reshape", ["n", "back"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (1, 5, 6)}, ["y"], more, opset=23 if rms else 17)
    graph, x = import_model(proto), rng.normal(0.2 * scale, scale, (6, 5, 6))
    compiled = compile_graph(graph, WIDE)
    assert not moved(compiled)
    assert relative_error(emulate(compiled, {"x": x})["y"], run(graph, {"x": x})["y"]) < 0.02
