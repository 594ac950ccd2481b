"""Tensors whose elements do not lie where a layer needs them are copied, to the bit where lanes stay."""

import re

import numpy as np
import pytest

from concord.compiler.ir.layers import Reduction
from concord.compiler.lowering.layout_copies import copies_text
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.networks import layer_results
from concord.spec.presets import ECP5_85F_256, TINY
from support.expressions import ROOMY, check, concat, exact, network, tensor, whole
from support.onnx_models import model, node


def between_positions(first, second, third, fourth):
    """Four images of one size as one of twice the size: every one has the positions of one parity."""
    _, channels, height, width = first.shape
    parts = [part.reshape(1, channels, height, 1, width, 1) for part in (first, second, third, fourth)]
    rows = concat(3, concat(5, *parts[:2]), concat(5, *parts[2:]))
    return rows.reshape(1, channels, 2 * height, 2 * width)


def copies(compiled):
    """Names and reductions of the chains that copy."""
    nodes = {node.name for node in compiled.graph.nodes if node.op == "Copy"}
    return [layer.reduction for layer in compiled.lowered.layers if set(layer.nodes) & nodes]


@pytest.mark.parametrize("channels", [4, 16, 20])
@pytest.mark.parametrize("size", [(3, 3), (4, 5), (1, 6)])
def test_an_image_of_which_four_layers_compute_every_second_position(channels, size):
    x = tensor(1, 2, *size)
    image = between_positions(*(x.whole_conv(channels, 1, 1) for _ in range(4)))
    assert not copies(exact(image.whole_conv(3, 3, 3, pads=1), limit=1))


def test_operations_on_an_image_of_four_layers():
    """As in a generator of transposed convolutions: what is computed of the image is one, too."""
    x = tensor(1, 2, 3, 4)
    image = between_positions(*(x.whole_conv(6, 1, 1) for _ in range(4)))
    scaled = image * np.arange(1.0, 7.0).reshape(6, 1, 1)
    compiled = exact(scaled.whole_conv(3, 3, 3, pads=1), limit=1)
    assert not copies(compiled) and len(compiled.lowered.layers) == 6


@pytest.mark.parametrize("channels", [3, 16, 20])
def test_an_enlarged_image(channels):
    """Every position stands for four: nearest neighbours. Padding lanes hold no other elements, so lanes stay."""
    small = tensor(1, 2, 3, 4).whole_conv(channels, 1, 1)
    compiled = exact(between_positions(*[small] * 4).whole_conv(3, 3, 3, pads=1), limit=1)
    assert copies(compiled) == [Reduction.NONE] * 4


@pytest.mark.parametrize(("channels", "products"), [(64, False), (8, True), (24, True)])
@pytest.mark.parametrize("order", [(0, 3, 4, 1, 5, 2), (0, 1, 4, 2, 5, 3)])
def test_channels_that_become_positions(channels, products, order):
    """Depth to space in both orders: vectors are moved whole if every position gets whole ones."""
    last = channels // 4
    split = (2, 2, last) if order[1] == 3 else (last, 2, 2)
    moved = tensor(1, 2, 3, 3).whole_conv(channels, 1, 1).reshape(1, *split, 3, 3).transpose(*order)
    compiled = exact(moved.reshape(1, last, 6, 6).whole_conv(3, 3, 3, pads=1), limit=1)
    alike = products or order[1] == 1
    assert set(copies(compiled)) == {Reduction.DENSE if alike else Reduction.NONE}


SHAPES = [
    ((1, 4, 1), (1, 1, 5)),
    ((1, 1, 5), (1, 4, 1)),
    ((1, 4, 1, 1), (1, 1, 5, 5)),
    ((1, 4, 5, 1), (1, 1, 1, 5)),
    ((1, 4, 1), (1, 5)),
    ((1, 7), (1, 4, 1)),
    ((1, 20, 1), (1, 1, 20)),
]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize(("x", "z"), SHAPES)
def test_operands_that_are_both_broadcast(op, x, z):
    exact(tensor(*x).combined(op, tensor(*z, name="z")))


def test_an_operand_with_fewer_vectors_than_the_box_it_meets():
    """Three of four vectors are elements; the operand has no fourth, and is copied."""
    x, z = tensor(1, 5, 2), tensor(1, 5, 3, name="z")
    columns = concat(3, *(x.whole_conv(2, 1).reshape(1, 2, 2, 1) for _ in range(2)))
    some = columns.reshape(1, 2, 4)[:, :, :3]
    exact(z.whole_conv(2, 1) + some * 2.0, limit=1)


def test_factors_of_a_product_keep_their_shapes():
    """Copied each for itself: a product of two tensors does not broadcast them to the shape of its result."""
    nodes = [
        node("ReduceSumSquare", ["x", "axis"], ["s"]),
        node("Concat", ["x", "s", "s"], ["b"], axis=1),
        node("Einsum", ["b", "x"], ["y"], equation="abc,aec->bc"),
    ]
    graph = import_model(model(nodes, {"x": (1, 6, 2)}, constants={"axis": np.array([0])}, opset=18))
    compiled = check(graph, np.random.default_rng(5))
    assert copies(compiled)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max"])
@pytest.mark.parametrize(
    ("x", "constant"), [((1, 4, 1, 1), (1, 4, 3, 3)), ((1, 4), (3, 4, 4)), ((1, 4, 1), (1, 4, 20))]
)
def test_a_constant_that_enlarges_a_tensor(op, x, constant):
    exact(tensor(*x).with_constant(op, whole(*constant, limit=3), **({"reversed": True} if op == "Sub" else {})))


def both_copied():
    """Two operands that are copied to meet."""
    return tensor(1, 4, 1) + tensor(1, 1, 5, name="z")


def test_what_copies_are_for_is_told_by_layer_and_in_a_line():
    """Comparisons layer by layer know what chains that copy compute. A small device has room for them, too."""
    compiled = exact(both_copied())
    told = [part.tensor for layer in compiled.lowered.layers for part in layer_results.parts(compiled.lowered, layer)]
    assert any("copy of" in name for name in told) and told[-1] == "y"
    text = copies_text(compiled.lowered)
    assert re.fullmatch(r"2 operands copied to where a layer needs them, by \d+ chains, \d of them rounded .*", text)
    assert copies_text(exact(tensor(1, 4).relu()).lowered) == ""
    exact(both_copied(), TINY)


def test_too_many_chains_are_refused_with_the_reason_of_the_node():
    """A permutation without order takes a chain for each position."""
    p = tensor(1, 2, 700).whole_conv(4, 1)
    mixed = concat(2, *(p[:, :, n : n + 1] for n in np.random.default_rng(8).permutation(700).tolist()))
    with pytest.raises(Unsupported) as caught:
        compile_graph(network(mixed.pool("MaxPool", 3, name="last")), ROOMY)
    (reason,) = caught.value.reasons
    assert reason.startswith("MaxPool 'last': input must have every channel in the same place of every position")


def test_a_result_that_no_memory_holds_is_refused_at_once():
    with pytest.raises(Unsupported, match="elements that are copied must be at most 65536, not 524288"):
        compile_graph(network(tensor(1, 1) + whole(1, 1 << 19, limit=3)), ROOMY)


@pytest.mark.parametrize("channels", [3, 4, 5])
@pytest.mark.parametrize("reader", ["product", "sum", "output"])
def test_channels_that_come_from_several_places(channels, reader):
    """An image, and beside it one whose positions are channels of a smaller one: no storage holds both as they are."""
    x = tensor(1, 2, 4, 4)
    a = x.whole_conv(channels, 1, 1)
    deep = a.pool("MaxPool", 2, 2).whole_conv(4 * channels, 1, 1).reshape(1, 2, 2, channels, 2, 2)
    beside = concat(1, a, deep.transpose(0, 3, 4, 1, 5, 2).reshape(1, channels, 4, 4))
    y = {
        "product": lambda: beside.whole_conv(3, 3, 3, pads=1),
        "sum": lambda: beside + x.whole_conv(2 * channels, 1, 1),
        "output": lambda: beside,
    }[reader]()
    assert bool(copies(exact(y, limit=1))) == (reader != "output")  # the host finds elements anywhere


@pytest.mark.parametrize("channels", [3, 8, 20])
@pytest.mark.parametrize("beside", ["map", "input", "part"])
def test_an_enlarged_map_beside_another(channels, beside):
    """As in a U-Net: the enlarged map is copied position by position, the other one only if it cannot be placed."""
    x = tensor(1, 2, 6, 8)
    a = x.whole_conv(6, 3, 3, pads=1)
    enlarged = between_positions(*[tensor(1, 2, 3, 4, name="z").whole_conv(channels, 1, 1)] * 4)
    half = a[:, :, :, ::2].whole_conv(2, 1, 1)
    other = {"map": a, "input": x, "part": a[:, 1:4] if beside == "part" else None}[beside]
    compiled = exact(y=concat(1, other, enlarged).whole_conv(3, 3, 3, pads=1), half=half, limit=1)
    if beside == "map":
        assert copies(compiled) == [Reduction.NONE] * 4
    assert max(layer.weight.size for layer in compiled.lowered.layers if layer.weight is not None) < 4000


def test_a_row_of_twice_the_length_beside_another():
    """Rows may lie one behind the other in a storage; then channels of a position would be far apart."""
    x, z = tensor(1, 3, 20), tensor(1, 2, 10, name="z")
    columns = concat(3, *(z.whole_conv(3, 1).reshape(1, 3, 10, 1) for _ in range(2)))
    both = concat(1, x.whole_conv(4, 1), columns.reshape(1, 3, 20))
    compiled = exact(both.whole_conv(3, 3), limit=1)
    assert copies(compiled) == [Reduction.NONE] * 2
    assert sum(layer.weight.size for layer in compiled.lowered.layers if layer.weight is not None) < 300


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("passed", [False, True])
def test_an_output_of_parts_of_all_sizes(axis, passed):
    """Maps of a detector, flattened and joined, and an input as it is: nothing is copied but what the host writes."""
    maps = [
        tensor(1, 2, 4, 4).whole_conv(5, 3, 3, pads=1),
        tensor(1, 2, 2, 3, name="z").whole_conv(5, 1, 1),
        *([tensor(1, 5, 3, name="w")] if passed else []),
    ]
    flat = [one.reshape(1, 5, int(np.prod(one.shape[2:]))) for one in maps]
    parts = flat if axis == 2 else [one.reshape(1, int(np.prod(one.shape)), 1) for one in flat]
    compiled = exact(concat(axis, *parts), limit=1)
    assert not copies(compiled)
    chains = [layer.reduction for layer in compiled.lowered.layers]
    assert chains == [Reduction.DENSE] * 2 + [Reduction.NONE] * passed


@pytest.mark.parametrize("channels", [4, 6, 20])
def test_a_channel_shuffle(channels):
    x = tensor(1, 2, 3, 3)
    parts = x.whole_conv(channels, 1, 1).reshape(1, 2, channels // 2, 3, 3)
    shuffled = parts.transpose(0, 2, 1, 3, 4).reshape(1, channels, 3, 3)
    exact(shuffled + x.whole_conv(channels, 1, 1), limit=1)


def test_what_padding_lanes_hold_is_not_copied():
    """A part of a position, beside which other channels lie, goes through a product; its block has no more than it."""
    part = tensor(1, 2, 2, 2).whole_conv(4, 1, 1).pool("MaxPool", 1)[:, :3]
    compiled = exact(between_positions(*[part] * 4).whole_conv(3, 3, 3, pads=1), limit=1)
    assert copies(compiled) == [Reduction.DENSE] * 4


def turned(channels, size, split, perm, last):
    """A convolution whose result, of shape ``split``, is transposed and read as an image by another one."""
    h = tensor(1, 2, *size).whole_conv(channels, 1, 1).reshape(1, *split)
    return h.transpose(0, *(axis + 1 for axis in perm)).reshape(1, *last).whole_conv(2, 1, 1)


def copy_words(compiled):
    """Words of the matrix memory that copies take."""
    nodes = {node.name for node in compiled.graph.nodes if node.op == "Copy"}
    layers = [layer for layer in compiled.lowered.layers if set(layer.nodes) & nodes and layer.weight is not None]
    return sum(compiled.allocations[f"weight.{layer.name}"].count for layer in layers)


LARGE = ECP5_85F_256.replace(matrix_depth=2048, narrow_depth=8192, wide_depth=8192, program_depth=1024)


@pytest.mark.parametrize(
    ("channels", "size", "split", "perm", "last", "words"),
    [
        (16, (16, 16), (16, 16, 16), (1, 0, 2), (16, 16, 16), 256),  # channels and rows change places
        (16, (16, 16), (16, 16, 16), (2, 1, 0), (16, 16, 16), 256),  # channels and columns
        (48, (4, 16), (48, 4, 16), (2, 1, 0), (16, 4, 48), 256),  # in the lanes of three vectors
        (16, (4, 24), (16, 4, 24), (2, 1, 0), (24, 4, 16), 384),  # columns become the lanes of two
    ],
)
def test_vectors_at_equal_distances_are_a_window(channels, size, split, perm, last, words):
    """A position of the copy takes lanes of several vectors; those in between take no place in a matrix."""
    compiled = exact(turned(channels, size, split, perm, last), LARGE, limit=1)
    assert copies(compiled) and copy_words(compiled) <= words


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("config", [ROOMY, LARGE], ids=lambda config: config.name)
def test_random_orders_of_axes(seed, config):
    """Every element comes from where it should, whatever axes become channels."""
    rng = np.random.default_rng(seed)
    height, width = (tuple(rng.integers(1, 4, 2).tolist()) for _ in range(2))
    channels = tuple(rng.integers(1, 6, 2).tolist())
    split = (*channels, *height, *width)
    perm = tuple(rng.permutation(6).tolist())
    sizes = [split[axis] for axis in perm]
    cuts = sorted(rng.choice(np.arange(1, 6), 2, replace=False).tolist())
    last = [int(np.prod(part)) for part in np.split(sizes, cuts)]
    size = int(np.prod(height)), int(np.prod(width))
    exact(turned(int(np.prod(channels)), size, split, perm, last), config, limit=1)
