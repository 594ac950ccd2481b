"""Tensors whose elements do not lie where a layer needs them are copied, to the bit where lanes stay."""

import re

import numpy as np
import pytest

from concord.compiler.ir.layers import Reduction
from concord.compiler.lowering.layout_copies import copies_text
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.ir import Node
from concord.networks import layer_results
from concord.spec.presets import ECP5_85F_256, TINY
from support.compiled_nets import ROOMY, check, graph_of, integers
from support.onnx_models import model, node


def conv(name, x, y, inputs, outputs, rng, kernel=3, pad=1):
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (pad,) * 4}
    weight = integers(rng, (outputs, inputs, kernel, kernel), 1)
    return Node("Conv", name, (x,), (y,), {"weight": weight, "bias": np.zeros(outputs), **attrs})


def reshape(name, x, y, *shape):
    return Node("Reshape", name, (x,), (y,), {"shape": shape})


def between_positions(channels, parts, height, width):
    """Four images of one size as one of twice the size: every one has the positions of one parity."""
    nodes = [reshape(f"to {k}", part, f"g{k}", 1, channels, height, 1, width, 1) for k, part in enumerate(parts)]
    return [
        *nodes,
        Node("Concat", "even", ("g0", "g1"), ("even",), {"axis": 5}),
        Node("Concat", "odd", ("g2", "g3"), ("odd",), {"axis": 5}),
        Node("Concat", "rows", ("even", "odd"), ("rows",), {"axis": 3}),
        reshape("image", "rows", "image", 1, channels, 2 * height, 2 * width),
    ]


def copies(compiled):
    """Names and reductions of the chains that copy."""
    nodes = {node.name for node in compiled.graph.nodes if node.op == "Copy"}
    return [layer.reduction for layer in compiled.lowered.layers if set(layer.nodes) & nodes]


@pytest.mark.parametrize("channels", [4, 16, 20])
@pytest.mark.parametrize("size", [(3, 3), (4, 5), (1, 6)])
def test_an_image_of_which_four_layers_compute_every_second_position(channels, size):
    rng = np.random.default_rng(channels)
    nodes = [conv(f"part {k}", "x", f"p{k}", 2, channels, rng, 1, 0) for k in range(4)]
    nodes += [
        *between_positions(channels, ("p0", "p1", "p2", "p3"), *size),
        conv("last", "image", "y", channels, 3, rng),
    ]
    compiled = check(graph_of(nodes, x=(1, 2, *size)), rng, limit=1)
    assert not copies(compiled)


def test_operations_on_an_image_of_four_layers():
    """As in a generator of transposed convolutions: what is computed of the image is one, too."""
    rng = np.random.default_rng(14)
    nodes = [conv(f"part {k}", "x", f"p{k}", 2, 6, rng, 1, 0) for k in range(4)]
    nodes += between_positions(6, ("p0", "p1", "p2", "p3"), 3, 4)
    nodes += [Node("Mul", "scaled", ("image",), ("s",), {"constant": np.arange(1.0, 7.0).reshape(6, 1, 1)})]
    compiled = check(graph_of([*nodes, conv("last", "s", "y", 6, 3, rng)], x=(1, 2, 3, 4)), rng, limit=1)
    assert not copies(compiled) and len(compiled.lowered.layers) == 6


@pytest.mark.parametrize("channels", [3, 16, 20])
def test_an_enlarged_image(channels):
    """Every position stands for four: nearest neighbours. Padding lanes hold no other elements, so lanes stay."""
    rng = np.random.default_rng(channels)
    nodes = [conv("first", "x", "p", 2, channels, rng, 1, 0), *between_positions(channels, ("p",) * 4, 3, 4)]
    compiled = check(graph_of([*nodes, conv("last", "image", "y", channels, 3, rng)], x=(1, 2, 3, 4)), rng, limit=1)
    assert copies(compiled) == [Reduction.NONE] * 4


@pytest.mark.parametrize(("channels", "products"), [(64, False), (8, True), (24, True)])
@pytest.mark.parametrize("order", [(0, 3, 4, 1, 5, 2), (0, 1, 4, 2, 5, 3)])
def test_channels_that_become_positions(channels, products, order):
    """Depth to space in both orders: vectors are moved whole if every position gets whole ones."""
    rng = np.random.default_rng(channels)
    last = channels // 4
    split = (1, 2, 2, last, 3, 3) if order[1] == 3 else (1, last, 2, 2, 3, 3)
    nodes = [
        conv("first", "x", "p", 2, channels, rng, 1, 0),
        reshape("split", "p", "s", *split),
        Node("Transpose", "turn", ("s",), ("t",), {"perm": order}),
        reshape("image", "t", "image", 1, last, 6, 6),
        conv("last", "image", "y", last, 3, rng),
    ]
    compiled = check(graph_of(nodes, x=(1, 2, 3, 3)), rng, limit=1)
    alike = products or order[1] == 1
    assert set(copies(compiled)) == {Reduction.DENSE if alike else Reduction.NONE}


SHAPES = [
    ((1, 4, 1), (1, 1, 5)), ((1, 1, 5), (1, 4, 1)), ((1, 4, 1, 1), (1, 1, 5, 5)), ((1, 4, 5, 1), (1, 1, 1, 5)),
    ((1, 4, 1), (1, 5)), ((1, 7), (1, 4, 1)), ((1, 20, 1), (1, 1, 20)),
]  # fmt: skip


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize(("x", "z"), SHAPES)
def test_operands_that_are_both_broadcast(op, x, z):
    rng = np.random.default_rng(5)
    check(graph_of([Node(op, "both", ("x", "z"), ("y",))], x=x, z=z), rng)


def test_an_operand_with_fewer_vectors_than_the_box_it_meets():
    """Three of four vectors are elements; the operand has no fourth, and is copied."""
    rng = np.random.default_rng(5)
    part = {"axes": (2,), "starts": (0,), "stops": (3,), "steps": (1,)}
    one_row = {"strides": (1,), "dilations": (1,), "group": 1, "pads": (0, 0), "bias": np.zeros(2)}
    nodes = [Node("Conv", f"part {k}", ("x",), (f"p{k}",), {"weight": integers(rng, (2, 5, 1), 1), **one_row})
             for k in range(2)]  # fmt: skip
    nodes += [reshape(f"to {k}", f"p{k}", f"g{k}", 1, 2, 2, 1) for k in range(2)]
    nodes += [
        Node("Concat", "columns", ("g0", "g1"), ("c",), {"axis": 3}),
        reshape("row", "c", "r", 1, 2, 4),
        Node("Slice", "some", ("r",), ("s",), part),
        Node("Conv", "other", ("z",), ("o",), {"weight": integers(rng, (2, 5, 1), 1), **one_row}),
        Node("Mul", "twice", ("s",), ("t",), {"constant": np.asarray(2.0)}),
        Node("Add", "sum", ("o", "t"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 5, 2), z=(1, 5, 3)), rng, limit=1)


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
    rng = np.random.default_rng(6)
    attrs = {"constant": integers(rng, constant, 3)} | ({"reversed": True} if op == "Sub" else {})
    check(graph_of([Node(op, "grown", ("x",), ("y",), attrs)], x=x), rng)


def test_results_of_copies_are_told_by_layer():
    """Comparisons layer by layer know what chains that copy compute."""
    rng = np.random.default_rng(7)
    compiled = check(graph_of([Node("Add", "both", ("x", "z"), ("y",))], x=(1, 4, 1), z=(1, 1, 5)), rng)
    told = [part.tensor for layer in compiled.lowered.layers for part in layer_results.parts(compiled.lowered, layer)]
    assert any("copy of" in name for name in told) and told[-1] == "y"


def test_too_many_chains_are_refused_with_the_reason_of_the_node():
    """A permutation without order takes a chain for each position."""
    rng = np.random.default_rng(8)
    order = rng.permutation(700)
    parts = [
        Node(
            "Slice",
            f"part {k}",
            ("p",),
            (f"s{k}",),
            {"axes": (2,), "starts": (int(n),), "stops": (int(n) + 1,), "steps": (1,)},
        )
        for k, n in enumerate(order)
    ]
    nodes = [
        Node(
            "Conv",
            "first",
            ("x",),
            ("p",),
            {
                "weight": integers(rng, (4, 2, 1), 1),
                "bias": np.zeros(4),
                "strides": (1,),
                "dilations": (1,),
                "group": 1,
                "pads": (0, 0),
            },
        ),
        *parts,
        Node("Concat", "mixed", tuple(f"s{k}" for k in range(700)), ("m",), {"axis": 2}),
        Node("MaxPool", "last", ("m",), ("y",), {"kernel": (3,), "strides": (1,), "dilations": (1,), "pads": (0, 0)}),
    ]
    with pytest.raises(Unsupported) as caught:
        compile_graph(graph_of(nodes, x=(1, 2, 700)), ROOMY)
    (reason,) = caught.value.reasons
    assert reason.startswith("MaxPool 'last': input must have every channel in the same place of every position")


def test_copies_on_a_small_device():
    rng = np.random.default_rng(9)
    check(graph_of([Node("Add", "both", ("x", "z"), ("y",))], x=(1, 4, 1), z=(1, 1, 5)), rng, TINY)


def test_a_result_that_no_memory_holds_is_refused_at_once():
    rng = np.random.default_rng(10)
    graph = graph_of([Node("Add", "grown", ("x",), ("y",), {"constant": integers(rng, (1, 1 << 19), 3)})], x=(1, 1))
    with pytest.raises(Unsupported, match="elements that are copied must be at most 65536, not 524288"):
        compile_graph(graph, ROOMY)


def beside(channels, rng):
    """An image, and beside it one whose positions are channels of a smaller one: no storage holds both as they are."""
    half = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1), "pads": (0,) * 4}
    return [
        conv("first", "x", "a", 2, channels, rng, 1, 0),
        Node("MaxPool", "half", ("a",), ("p",), half),
        conv("deep", "p", "q", channels, 4 * channels, rng, 1, 0),
        reshape("split", "q", "s", 1, 2, 2, channels, 2, 2),
        Node("Transpose", "turn", ("s",), ("t",), {"perm": (0, 3, 4, 1, 5, 2)}),
        reshape("image", "t", "u", 1, channels, 4, 4),
        Node("Concat", "beside", ("a", "u"), ("j",), {"axis": 1}),
    ]  # fmt: skip


@pytest.mark.parametrize("channels", [3, 4, 5])
@pytest.mark.parametrize("reader", ["product", "sum", "output"])
def test_channels_that_come_from_several_places(channels, reader):
    rng = np.random.default_rng(channels)
    nodes = beside(channels, rng)
    if reader == "product":
        nodes.append(conv("last", "j", "y", 2 * channels, 3, rng))
    if reader == "sum":
        nodes += [conv("other", "x", "b", 2, 2 * channels, rng, 1, 0), Node("Add", "last", ("j", "b"), ("y",))]
    compiled = check(graph_of(nodes, x=(1, 2, 4, 4)), rng, limit=1)
    assert bool(copies(compiled)) == (reader != "output")  # the host finds elements anywhere


@pytest.mark.parametrize("channels", [3, 8, 20])
@pytest.mark.parametrize("beside", ["map", "input", "part"])
def test_an_enlarged_map_beside_another(channels, beside):
    """As in a U-Net: the enlarged map is copied position by position, the other one only if it cannot be placed."""
    rng = np.random.default_rng(channels)
    nodes = [conv("first", "x", "a", 2, 6, rng), conv("deep", "z", "d", 2, channels, rng, 1, 0)]
    nodes += between_positions(channels, ("d",) * 4, 3, 4)
    half = {"axes": (3,), "starts": (0,), "stops": (8,), "steps": (2,)}
    nodes += [Node("Slice", "half", ("a",), ("h",), half), conv("small", "h", "s", 6, 2, rng, 1, 0)]
    other = {"map": "a", "input": "x", "part": "p"}[beside]
    if beside == "part":
        nodes.append(
            Node("Slice", "part", ("a",), ("p",), {"axes": (1,), "starts": (1,), "stops": (4,), "steps": (1,)})
        )
    count = {"map": 6, "input": 2, "part": 3}[beside] + channels
    nodes += [Node("Concat", "both", (other, "image"), ("c",), {"axis": 1}), conv("last", "c", "y", count, 3, rng)]
    graph = graph_of(nodes, x=(1, 2, 6, 8), z=(1, 2, 3, 4))
    graph.outputs.append("s")
    graph.batched.add("s")
    compiled = check(graph, rng, limit=1)
    if beside == "map":
        assert copies(compiled) == [Reduction.NONE] * 4
    assert max(layer.weight.size for layer in compiled.lowered.layers if layer.weight is not None) < 4000


def test_a_row_of_twice_the_length_beside_another():
    """Rows may lie one behind the other in a storage; then channels of a position would be far apart."""
    rng = np.random.default_rng(13)
    line = {"strides": (1,), "dilations": (1,), "group": 1, "pads": (0, 0)}
    sizes = {"a": ("x", 3, 4), "d": ("z", 2, 3), "e": ("z", 2, 3)}
    nodes = [
        Node("Conv", f"to {y}", (x,), (y,), {"weight": integers(rng, (n, k, 1), 1), "bias": np.zeros(n), **line})
        for y, (x, k, n) in sizes.items()
    ]
    nodes += [reshape(f"column {name}", name, f"{name}c", 1, 3, 10, 1) for name in "de"]
    nodes += [Node("Concat", "columns", ("dc", "ec"), ("c",), {"axis": 3}), reshape("row", "c", "r", 1, 3, 20)]
    nodes.append(Node("Concat", "both", ("a", "r"), ("b",), {"axis": 1}))
    weight = integers(rng, (3, 7, 3), 1)
    nodes.append(Node("Conv", "last", ("b",), ("y",), {"weight": weight, "bias": np.zeros(3), **line}))
    compiled = check(graph_of(nodes, x=(1, 3, 20), z=(1, 2, 10)), rng, limit=1)
    assert copies(compiled) == [Reduction.NONE] * 2
    assert sum(layer.weight.size for layer in compiled.lowered.layers if layer.weight is not None) < 300


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("passed", [False, True])
def test_an_output_of_parts_of_all_sizes(axis, passed):
    """Maps of a detector, flattened and joined, and an input as it is: nothing is copied but what the host writes."""
    rng = np.random.default_rng(axis)
    parts = [conv("first", "x", "a", 2, 5, rng), conv("second", "z", "b", 2, 5, rng, 1, 0)]
    parts += [reshape("flat a", "a", "fa", 1, 5, 16), reshape("flat b", "b", "fb", 1, 5, 6)]
    if axis == 1:
        parts += [reshape("rows a", "fa", "ra", 1, 80, 1), reshape("rows b", "fb", "rb", 1, 30, 1)]
    names = ("fa", "fb") if axis == 2 else ("ra", "rb")
    if passed:
        parts.append(reshape("itself", "w", "i", 1, *((5, 3) if axis == 2 else (15, 1))))
        names = (names[0], "i", names[1])
    graph = graph_of(
        [*parts, Node("Concat", "all", names, ("y",), {"axis": axis})],
        x=(1, 2, 4, 4), z=(1, 2, 2, 3), **({"w": (1, 5, 3)} if passed else {}),
    )  # fmt: skip
    compiled = check(graph, rng, limit=1)
    assert not copies(compiled)
    chains = [layer.reduction for layer in compiled.lowered.layers]
    assert chains == [Reduction.DENSE] * 2 + [Reduction.NONE] * passed


@pytest.mark.parametrize("channels", [4, 6, 20])
def test_a_channel_shuffle(channels):
    rng = np.random.default_rng(channels)
    nodes = [
        conv("first", "x", "h", 2, channels, rng, 1, 0),
        reshape("split", "h", "a", 1, 2, channels // 2, 3, 3),
        Node("Transpose", "shuffle", ("a",), ("b",), {"perm": (0, 2, 1, 3, 4)}),
        reshape("join", "b", "c", 1, channels, 3, 3),
        conv("other", "x", "d", 2, channels, rng, 1, 0),
        Node("Add", "last", ("c", "d"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 2, 3, 3)), rng, limit=1)


def test_what_padding_lanes_hold_is_not_copied():
    """A part of a position, beside which other channels lie, goes through a product; its block has no more than it."""
    rng = np.random.default_rng(11)
    part = {"axes": (1,), "starts": (0,), "stops": (3,), "steps": (1,)}
    nodes = [
        conv("first", "x", "h", 2, 4, rng, 1, 0),
        Node(
            "MaxPool",
            "same",
            ("h",),
            ("g",),
            {"kernel": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4},
        ),
        Node("Slice", "part", ("g",), ("s",), part),
        *between_positions(3, ("s",) * 4, 2, 2),
        conv("last", "image", "y", 3, 3, rng),
    ]
    compiled = check(graph_of(nodes, x=(1, 2, 2, 2)), rng, limit=1)
    assert copies(compiled) == [Reduction.DENSE] * 4


def test_what_copies_cost_is_one_line():
    rng = np.random.default_rng(12)
    whole = check(graph_of([Node("Relu", "r", ("x",), ("y",))], x=(1, 4)), rng)
    assert copies_text(whole.lowered) == ""
    both = check(graph_of([Node("Add", "both", ("x", "z"), ("y",))], x=(1, 4, 1), z=(1, 1, 5)), rng)
    text = copies_text(both.lowered)
    assert re.fullmatch(r"2 operands copied to where a layer needs them, by \d+ chains, \d of them rounded .*", text)


def turned(rng, channels, size, split, perm, last):
    """A convolution whose result, of shape ``split``, is transposed and read as an image by another one."""
    return graph_of(
        [
            conv("first", "x", "h", 2, channels, rng, 1, 0),
            reshape("split", "h", "s", 1, *split),
            Node("Transpose", "turn", ("s",), ("t",), {"perm": (0, *(axis + 1 for axis in perm))}),
            reshape("image", "t", "i", 1, *last),
            conv("last", "i", "y", last[0], 2, rng, 1, 0),
        ],
        x=(1, 2, *size),
    )


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
    graph = turned(np.random.default_rng(1), channels, size, split, perm, last)
    compiled = check(graph, np.random.default_rng(2), LARGE, limit=1)
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
    graph = turned(rng, int(np.prod(channels)), (int(np.prod(height)), int(np.prod(width))), split, perm, last)
    check(graph, rng, config, limit=1)
