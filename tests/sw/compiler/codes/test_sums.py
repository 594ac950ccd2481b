"""Sums of two tensors of codes: read where they are, also inside a border and in row tiles."""

import dataclasses

import numpy as np
import pytest

from concord.compiler.codes.package import compile_codes
from concord.compiler.ir.layers import Reduction
from concord.compiler.memory.row_tiling import layer_spans
from concord.frontend.codes import load
from concord.host import connect
from concord.report.places import reads
from support.code_networks import CodeNetwork, residual_network
from support.onnx_models import model
from support.row_tiled_nets import image_in_row_tiles
from support.rtl_configs import FED_SCALING, ORIGINS

#: Mantissas of a byte, and room for random networks.
EIGHT = FED_SCALING.replace(
    name="eight", act_mant=8, wgt_mant=8, narrow_depth=8192, wide_depth=8192, matrix_depth=16384, program_depth=4096,
    table_slots=16, table_depth=2048,
)  # fmt: skip
NINE = EIGHT.replace(name="nine", act_mant=9)


def compiled(seed, config=EIGHT):
    proto, inputs = residual_network(seed)
    return compile_codes(load(proto, pairs=False), config), inputs


def right(codes, inputs, device):
    """True if a device gives the codes of the definition."""
    device.load(codes.image)
    found, wanted = codes.run(device, inputs), codes.package.expected(inputs)
    return not device.flags() and all(np.array_equal(found[name], wanted[name]) for name in wanted)


def layers(codes):
    return codes.lowered.layers


def with_room(codes):
    """Layers whose rows are as far apart as those of what they are added to."""
    return [layer for layer in layers(codes) if layer.border is not None and layer.border.constant is None]


def in_row_tiles(codes, heights):
    """The network with every choice of first layers that has a sum, in row tiles of these heights."""
    lowered = codes.lowered
    for prefix in layer_spans(lowered):
        if any(layer.second is not None for layer in prefix.layers):
            for rows in sorted({min(rows, prefix.source.height) for rows in heights}):
                formats = codes.package.formats
                image, _ = image_in_row_tiles(lowered, prefix, rows, codes.image.config, formats)
                yield dataclasses.replace(codes, package=dataclasses.replace(codes.package, image=image))


def test_no_tensor_is_copied_for_a_sum():
    codes, inputs = compiled(8)
    assert any(layer.second is not None for layer in layers(codes)) and with_room(codes)
    assert all(layer.reduction is not Reduction.NONE for layer in layers(codes))
    with connect("emulator", EIGHT) as device:
        assert right(codes, inputs, device)


def test_what_is_padded_after_a_sum_is_copied():
    """A border would move rows of one of both tensors further apart."""
    net = CodeNetwork(np.random.default_rng(0), False)
    x, first, second = net.input((2, 5, 4)), *(net.weight(3, 2, 1, 1) for _ in range(2))
    a, b = (net.add("Conv", [x, weight], (3, 5, 4), net.scales[x] * scale) for weight, scale in (first, second))
    total = net.add("Add", [a, b], (3, 5, 4), 2 * net.scales[a])
    weight, scale = net.weight(2, 3, 3, 3)
    last = net.add("Conv", [a, weight], (2, 5, 4), net.scales[a] * scale, pads=[1] * 4)
    proto = model(net.nodes, net.inputs, [total, last], constants=net.constants)
    codes = compile_codes(load(proto, pairs=False), EIGHT)
    (summed,) = (layer for layer in layers(codes) if layer.second is not None)
    assert summed.source.storage.parent is summed.second.storage.parent is None
    assert any(layer.reduction is Reduction.NONE for layer in layers(codes))
    with connect("emulator", EIGHT) as device:
        assert right(codes, {"x0": np.random.default_rng(1).integers(0, 256, (3, 2, 5, 4))}, device)


def test_a_report_names_both_tensors():
    codes, _ = compiled(8)
    (index, *_), (layer, *_) = zip(*((k, part) for k, part in enumerate(layers(codes)) if part.second), strict=True)
    read = reads(codes, index)
    assert [part.role for part in read] == ["source", "source"] and len({part.tensor for part in read}) == 2
    assert [layers(codes)[part.layer].target for part in read] == [layer.source.storage, layer.second.storage]


@pytest.mark.slow
@pytest.mark.parametrize("config", [EIGHT, NINE], ids=lambda config: config.name)
def test_row_tiles_of_any_height(config):
    tiled = sums = room = 0
    with connect("emulator", config) as device:
        for seed in range(8):
            codes, inputs = compiled(seed, config)
            assert right(codes, inputs, device), seed
            for part in in_row_tiles(codes, (1, 2, 5)):
                assert right(part, inputs, device), seed
                tiled += 1
            sums += sum(layer.second is not None for layer in layers(codes))
            room += len(with_room(codes))
    assert tiled > 30 and sums > 10 and (room > 1) == (config is EIGHT)


@pytest.mark.deep
def test_more_row_tiles():
    for config in (EIGHT, NINE):
        with connect("emulator", config) as device:
            for seed in range(8, 18):
                codes, inputs = compiled(seed, config)
                assert all(right(part, inputs, device) for part in (codes, *in_row_tiles(codes, (1, 2, 3, 7)))), seed


def tight(seed, depth):
    config = EIGHT.replace(narrow_depth=depth)
    codes, inputs = compiled(seed, config)
    with connect("emulator", config) as device:
        return codes, right(codes, inputs, device)


@pytest.mark.slow
@pytest.mark.parametrize("seed, depth", [(3, 144), (8, 126)])
def test_where_little_room_is(seed, depth):
    """Buffers in both orders: those of a sum lie forwards."""
    codes, same = tight(seed, depth)
    plan, tiling = codes.plan, codes.row_tiling
    assert same and tiling is not None and any(copy.reversed for copy in plan.all())
    summed = {walk.storage.root for layer in layers(codes)[: tiling.layers] if layer.second is not None
              for walk in (layer.source, layer.second)}  # fmt: skip
    assert summed and not any(copy.reversed for storage in summed for copy in plan.copies_of(storage))


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 8])
def test_on_the_rtl(seed):
    codes, inputs = compiled(seed, ORIGINS)
    with connect("rtl", ORIGINS) as device:
        assert all(right(part, inputs, device) for part in (codes, *in_row_tiles(codes, (1, 3))))
