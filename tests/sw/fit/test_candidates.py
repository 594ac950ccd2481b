"""The edges of the search: which candidates are tried, which are kept, and which shapes there are."""

from types import SimpleNamespace

import numpy as np
import pytest

from concord.fit import candidates, shapes
from concord.fit.bounds import is_depthwise, least_cycles
from concord.fit.candidates import Candidate, ConfigRefusal, _Search, say_nothing
from concord.fit.resources import use_of
from concord.fit.shapes import SERIAL_SHAPES, SHAPES, VECTORS, Shape, smallest, widths, with_memories
from concord.graph.ir import Node
from concord.program.allocator import CapacityError
from concord.spec.blocks import LEAST_RAM_WORDS
from concord.spec.devices import DEVICES
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F, ECP5_85F_256, UP5K, presets_of
from support.compiled_nets import perceptron
from support.expressions import graph_of

BOARD = "ulx3s-85f"


def searching(most=2, least_mhz=0.0, graph=None, board=BOARD):
    return _Search(graph, board, (8, 7), None, most, least_mhz, None, say_nothing)


def rated(per_second, seconds=0.001, within=True, raw=True, **changes):
    """A candidate with rates of one's own."""
    rates = SimpleNamespace(per_second=per_second, compute_seconds=seconds, raw=raw)
    verdict = SimpleNamespace(within=within)
    return Candidate(ECP5_85F.replace(**changes), None, rates, False, verdict)


def test_mantissas_that_are_as_wide_lose_as_much():
    search = searching()
    plain = ECP5_85F.replace(writable_matrix=False, integer_chains=False)
    search.lost = [plain.replace(native=16, act_mant=7, wgt_mant=6)]
    for native, act, wgt, loses in (
        (16, 7, 6, True), (16, 6, 6, True), (16, 7, 5, True), (16, 8, 6, False), (16, 7, 7, False), (8, 7, 6, False),
    ):  # fmt: skip
        assert search._loses(plain.replace(native=native, lanes=4, mfu_lanes=2, act_mant=act, wgt_mant=wgt)) == loses


def test_what_a_core_must_exceed():
    """The slowest of the best, as soon as there are as many as are wanted; of cores, if all inputs travel raw."""
    search = searching(most=2)
    assert search._to_beat == 0.0
    search.race.candidates = [rated(500.0, 1 / 700)]
    assert search._to_beat == 0.0
    search.race.candidates.append(rated(900.0, 1 / 800, within=False))
    assert search._to_beat == 0.0
    search.race.candidates += [rated(300.0, 1 / 400), rated(100.0, 1 / 200)]
    assert search._to_beat == pytest.approx(400.0)
    search.race.candidates[0] = rated(500.0, 1 / 700, raw=False)
    assert search._to_beat == 300.0


def test_a_candidate_is_taken_while_there_is_room():
    search = searching(most=2)
    search.race.candidates = [rated(500.0), rated(900.0, within=False)]
    assert search._is_among(rated(1.0))
    search.race.candidates.append(rated(300.0))
    assert not search._is_among(rated(200.0)) and search._is_among(rated(400.0))
    assert not search._is_among(rated(300.0, name="later"))  # the first of equal ones stays
    assert search._is_among(rated(300.0, 0.0001, name="later"))  # unless the core is faster


@pytest.mark.parametrize(("limit", "tried"), [(400.0, False), (400.5, True)])
def test_a_shape_that_is_as_fast_at_best_is_not_tried(monkeypatch, limit, tried):
    search, asked = searching(most=1), []
    monkeypatch.setattr(search, "_of_presets", lambda: [rated(300.0, 1 / 400)])
    monkeypatch.setattr(search, "_possible", lambda: SHAPES[:1])
    monkeypatch.setattr(search, "_limit", lambda shape: limit)
    monkeypatch.setattr(search, "_of_shape", lambda shape: asked.append(shape) or [])
    search.run()
    assert bool(asked) == tried


def test_as_many_are_kept_as_are_wanted(monkeypatch):
    """And better ones that lose too much; nothing behind the last one that is kept."""
    search = searching(most=2)
    some = [rated(900.0, within=False), rated(800.0), rated(700.0, within=False), rated(600.0)]
    monkeypatch.setattr(search, "_possible", list)
    monkeypatch.setattr(search, "_of_presets", lambda: [*some, rated(500.0, within=False), rated(400.0)])
    monkeypatch.setattr(search, "_is_among", lambda found: True)
    assert search.run().candidates == some


@pytest.mark.parametrize("missing", [-1, 0, 1, LEAST_RAM_WORDS - 1, LEAST_RAM_WORDS])
def test_words_of_logic_are_fewer_than_a_memory(monkeypatch, missing):
    search, have = searching(), ECP5_85F.matrix_depth // 2
    config = ECP5_85F.replace(matrix_depth=have, integer_chains=False)
    monkeypatch.setattr(search, "_compiled", lambda deeper: deeper.matrix_depth)
    assert search._a_bit_deeper(config) is None
    search.race.refusals = [ConfigRefusal(config, CapacityError("small", {RegionId.MATRIX: (have, have + missing)}))]
    assert search._a_bit_deeper(config) == (have + missing if 0 < missing < LEAST_RAM_WORDS else None)
    assert search._a_bit_deeper(config.replace(matrix_depth=have)) is None  # which was not refused


def test_element_serial_configurations_have_no_words_of_logic(monkeypatch):
    search, words = searching(board="icebreaker"), UP5K.matrix_depth - 2
    monkeypatch.setattr(search, "_compiled", lambda deeper: deeper)
    config = UP5K.replace(matrix_depth=words)
    search.race.refusals = [ConfigRefusal(config, CapacityError("small", {RegionId.MATRIX: (words, words + 1)}))]
    assert use_of(config.replace(matrix_depth=words + 1)).fits(DEVICES["icebreaker"])
    assert search._a_bit_deeper(config) is None


def test_the_least_clock_may_be_the_clock(monkeypatch):
    """Of shapes, and of presets."""
    monkeypatch.setattr("concord.fit.shapes.SHAPES", (Shape(8, 2, 2),))
    graph = perceptron(8, 8)
    search = searching(graph=graph)
    mhz = max(use_of(one).clock_mhz for m in (8, 7) for one in widths(BOARD, Shape(8, 2, 2), m))
    search.least_mhz = mhz
    assert search._possible() == [Shape(8, 2, 2)]
    search.least_mhz = mhz * 1.001
    with pytest.raises(ValueError, match="clock must be at most"):
        search._possible()
    monkeypatch.setattr(search, "_compiled", lambda config: config)
    fastest = max(one.clock_hz for one in presets_of(BOARD))
    search.least_mhz = fastest / 1e6
    assert {one.clock_hz for one in search._of_presets()} == {fastest}


def test_larger_boards_are_larger(monkeypatch):
    monkeypatch.setattr(candidates, "_holds", lambda graph, config: True)
    for board, device in DEVICES.items():
        larger = candidates.boards_for(None, board, 8)
        assert larger == [name for name, one in DEVICES.items() if one.luts > device.luts] and board not in larger


def test_which_shapes_there_are():
    for shape, there in {
        Shape(8, 8, 4): True, Shape(8, 16, 4): False, Shape(8, 8, 8): False, Shape(16, 16, 8, 9): True,
        Shape(16, 8, 4, 9): False, Shape(32, 16, 8, 9): True, Shape(32, 2, 2): True,
    }.items():  # fmt: skip
        assert (shape in SHAPES) == there, shape
    assert {(one.native, one.lanes) for one in SERIAL_SHAPES} == {(n, k) for n in (4, 8, 16) for k in (1, 2, 4)}
    assert {one.mfu_lanes for one in SERIAL_SHAPES} == {1}
    slides = shapes.shapes_of(BOARD, True)
    assert slides == list(SHAPES) and shapes.shapes_of(BOARD, False) == [one for one in SHAPES if not one.window_taps]


def test_memories_are_the_deepest_that_fit():
    base = presets_of(BOARD)[0]
    for shape in (Shape(8, 2, 2), Shape(16, 16, 4)):
        config = smallest(BOARD, shape, 8)
        assert config.narrow_depth * shape.native == base.narrow_depth * base.native
        assert config.wide_depth * shape.native == base.wide_depth * base.native
        found = with_memories(config, BOARD, (2, 1))
        assert found.narrow_depth == 2 * config.narrow_depth and found.wide_depth == config.wide_depth
        deepest, step = 16 * 1024, 512
        deeper = found.matrix_depth + step
        assert found.matrix_depth % step == 0 and use_of(found).fits(DEVICES[BOARD])
        assert found.matrix_depth == deepest or not use_of(found.replace(matrix_depth=deeper)).fits(DEVICES[BOARD])
    assert with_memories(smallest(BOARD, Shape(8, 2, 2), 5), BOARD, VECTORS[0]).matrix_depth == 16 * 1024


def test_weights_of_the_preset_are_tried_where_only_they_are_narrower():
    shape = Shape(4, 4, 1)
    assert [(one.act_mant, one.wgt_mant) for one in widths("icebreaker", shape, 8)] == [(8, 8), (8, 7)]
    assert [(one.act_mant, one.wgt_mant) for one in widths("icebreaker", shape, 7)] == [(7, 7)]
    for bits in (7, 8):
        assert [(one.act_mant, one.wgt_mant) for one in widths(BOARD, Shape(8, 2, 2), bits)] == [(bits, bits)]


def test_only_results_of_convolutions_take_beats():
    """Of a product with few inputs and many outputs the bound is the steps of its products alone."""
    assert least_cycles(perceptron(1, 64), ECP5_85F) == 64 / ECP5_85F.macs < 64 / ECP5_85F.mfu_lanes


def test_one_channel_is_no_depthwise_product():
    """Its only window is that of the whole input."""
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}

    def graph(channels, group):
        weight = [[[[1.0] * 3] * 3] * (channels // group)] * channels
        values = {"weight": np.array(weight), "bias": np.zeros(channels), **attrs, "group": group}
        return graph_of([Node("Conv", "conv", ("x",), ("y",), values)], x=(1, channels, 4, 4))

    one, two = graph(1, 1), graph(2, 2)
    assert not is_depthwise(one.nodes[0]) and is_depthwise(two.nodes[0]) and not is_depthwise(graph(2, 1).nodes[0])
    assert least_cycles(one, ECP5_85F) == max(9 * 16 / ECP5_85F.macs, 16 / ECP5_85F.mfu_lanes)
    slides = ECP5_85F_256.replace(mfu_lanes=8)
    assert least_cycles(two, slides) == max(32 / slides.rows, 32 / slides.mfu_lanes)
    assert least_cycles(two, ECP5_85F) == max(9 * 32 / ECP5_85F.rows, 32 / ECP5_85F.mfu_lanes)
