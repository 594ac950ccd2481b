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
from support.expressions import ROOMY
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results

WIDE = ECP5_85F.replace(narrow_depth=8192, wide_depth=8192, matrix_depth=1024)
FOUR = ROOMY.replace(narrow_depth=8192, wide_depth=8192, program_depth=1024, matrix_depth=512, table_depth=1024)


def drawn(*shape, middle=1):
    """Gains, around 1, or biases, around 0."""
    return np.random.default_rng(2 + middle).normal(middle, 0.3, shape)


def behind_conv(shape):
    """The result of a convolution, of a shape."""
    channels, *size = shape[1:]
    weight = np.random.default_rng(1).normal(0, 0.5, (channels, 3, *[1] * len(size)))
    return op.Conv(given(1, 3, *size), weight)


def affine(x, shape):
    """Gain and bias of channels."""
    size = (shape[1], *[1] * (len(shape) - 2))
    return op.Add(op.Mul(x, drawn(*size)), drawn(*size, middle=0))


def centred_over_root(x, axes):
    """Mean, difference, squares, as frameworks without the operator write a normalisation."""
    c = op.Sub(x, op.ReduceMean(x, axes=axes))
    variance = op.ReduceMean(op.Mul(c, c), axes=axes)
    return op.Div(c, op.Sqrt(op.Add(variance, 1e-5)))


def grouped(h, groups, shape):
    """Groups of channels as rows of an instance normalisation."""
    normal = op.InstanceNormalization(op.Reshape(h, [0, groups, -1]), np.ones(groups), np.zeros(groups))
    return op.Reshape(normal, list(shape))


def torch_form(shape, groups):
    """As both exporters of PyTorch write nn.GroupNorm."""
    return model_of(affine(grouped(behind_conv(shape), groups, shape), shape))


def written_out(shape, groups):
    """Over the axes of a group."""
    split = op.Reshape(behind_conv(shape), [1, groups, -1, *shape[2:]])
    normal = op.Reshape(centred_over_root(split, [*range(2, len(shape) + 1)]), list(shape))
    return model_of(affine(normal, shape))


def channels_last(shape, groups):
    """As a group normalisation of Keras: channels are the last axis, and the groups of it."""
    channels, *size = shape[1:]
    rank = len(size)
    turned = op.Transpose(behind_conv(shape), perm=[0, *range(2, rank + 2), 1])
    split = op.Reshape(turned, [1, *size, groups, channels // groups])
    normal = centred_over_root(split, [*range(1, rank + 1), rank + 2])
    return model_of(op.Mul(op.Reshape(normal, [1, *size, channels]), drawn(channels)))


def operator(shape, groups):
    """The operator of ONNX, whose constants are of channels from opset 21 on."""
    constants = drawn(shape[1]), drawn(shape[1], middle=0)
    return model_of(op.GroupNormalization(behind_conv(shape), *constants, num_groups=groups), opset=21)


def whole_layer(shape, groups):
    """LayerNormalization over channels and positions, with a gain for every element."""
    return model_of(op.LayerNormalization(behind_conv(shape), drawn(*shape[1:]), axis=1))


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
    weight = next(item for item in proto.graph.initializer if len(item.dims) == 4 and item.dims[1] == 3)
    values = numpy_helper.to_array(weight).copy()
    values[:4] /= 16
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
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
    some = op.Slice(behind_conv((1, 12, 4, 4)), [3], [9], [1])
    proto, rng = model_of(grouped(some, 2, (1, 6, 4, 4))), np.random.default_rng(5)
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
    heads_apart = op.Reshape(op.MatMul(given(1, 5, 6), rng.normal(0, 0.3, (6, width))), [1, 5, heads, size])
    norm = op.RMSNormalization if rms else op.LayerNormalization
    normal = norm(heads_apart, rng.normal(1, 0.3, size), axis=-1, epsilon=1e-6)
    proto = model_of(op.Reshape(normal, [1, 5, width]), opset=23 if rms else 17)
    graph, x = import_model(proto), rng.normal(0.2 * scale, scale, (6, 5, 6))
    compiled = compile_graph(graph, WIDE)
    assert not moved(compiled)
    assert relative_error(emulate(compiled, {"x": x})["y"], run(graph, {"x": x})["y"]) < 0.02
