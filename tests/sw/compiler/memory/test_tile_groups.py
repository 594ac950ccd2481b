"""Networks in groups of row tiles, with the tensors between them in the external memory: the bits of one piece."""

import re
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest

from concord.compiler.emission.arranging import arranged
from concord.compiler.emission.row_tiled import KINDS
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.memory.copies import Copy, at_a_time
from concord.compiler.memory.row_tiling import layer_spans
from concord.compiler.model import compile_graph
from concord.compiler.pipeline import strategies
from concord.derive.backends.python_file import write_numpy
from concord.derive.model import derive_package
from concord.emulator import machine
from concord.host.copied_weights import copied_weights
from concord.networks.calibrated import emulate
from concord.program import trace
from concord.program.allocator import CapacityError
from concord.report.prefixes import layer_at
from concord.spec.isa import Mem, Op, decode
from concord.spec.presets import ECP5_85F
from support.row_tiled_nets import (
    LARGE,
    choices,
    drawn_groups,
    image_in_groups,
    image_in_one_piece,
    outputs_of,
    random_net,
    residual,
)

#: Large enough for networks in one piece, and with the external memory.
EXTERNAL = LARGE.replace(name="large-external", dram="sdram-32mb", dram_refresh=120)
#: Maps of the network below do not fit, and neither do row tiles of one group.
SMALL = ECP5_85F.replace(
    name="small", native=8, lanes=4, integer_chains=False, matrix_depth=96, table_depth=2048, narrow_depth=100,
    wide_depth=110,
)  # fmt: skip


def compiled_alike(graph, config, unfold):
    """Windows decide how values share exponents: the network with those of another compilation."""
    every = strategies.strategies
    with patch.object(strategies, "strategies", lambda *of: [each for each in every(*of) if each.unfold is unfold]):
        return compile_graph(graph, config)


def drawn_net(seed, rng):
    """A random network, or one with residual blocks, in which two tensors lead from a group to the next."""
    height, width, channels = rng.integers(5, 13), rng.integers(3, 9), rng.choice([3, 4, 8])
    return random_net(seed) if seed % 2 else residual(*map(int, (height, width, channels)), int(rng.integers(1, 3)))


def check_seed(seed):
    """Groups wherever there can be some have the same results; returns operations of the program by name."""
    rng = np.random.default_rng(seed)
    graph, unfold = drawn_net(seed, rng), rng.choice(list(Unfold))
    lowered, _ = choices(graph, EXTERNAL, unfold)
    tiling = drawn_groups(lowered, rng)
    (name,) = graph.outputs
    arrangement = arranged(lowered, {tensor: graph.sample_shape(tensor) for tensor in ("x", name)})
    ports = arrangement.pack({"x": rng.normal(0, 1, (3, *graph.sample_shape("x")))})
    image = image_in_groups(lowered, tiling, EXTERNAL, kinds=int(rng.choice([1, KINDS])))
    want, got = (outputs_of(each, ports)[name] for each in (image_in_one_piece(lowered, EXTERNAL), image))
    np.testing.assert_array_equal(got, want, tiling.text)
    assert len(image.phases) == tiling.groups[0].phases, "the others take part in the last one"
    return Counter(decode(word)[0].op for word in image.program) + Counter(
        {len(tiling.groups): 1, "others": sum(bool(group.others) for group in tiling.groups)}
    )


def test_groups_of_any_layers_give_the_same_bits():
    found = sum((check_seed(seed) for seed in range(16)), Counter())
    assert found["others"] > 4 and found[3] > 4 and found[5] > 4 and found[Op.LOOP] > 5 and found[Op.V_COPY] > 200


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(16, 216))
def test_groups_of_more_networks(seed):
    check_seed(seed)


@pytest.fixture(scope="module")
def small():
    return compile_graph(residual(), SMALL)


def test_a_network_whose_row_tiles_do_not_fit(small):
    graph = residual()
    with pytest.raises(CapacityError, match=r"row tiles (need|were found)|no row tiles"):
        compile_graph(graph, SMALL.without(Op.COPY).replace(matrix_depth=4096))
    assert len(small.row_tiling.groups) > 2
    text = f"first {small.row_tiling.layers} layers in groups, with the tensors between them in the external memory: "
    assert small.row_tiling.text.startswith(text)
    large = SMALL.without(Op.COPY).replace(matrix_depth=4096, narrow_depth=4096, wide_depth=4096)
    whole = compiled_alike(graph, large, small.lowered.unfold)
    x = {"x": np.random.default_rng(1).normal(size=(5, *graph.sample_shape("x")))}
    want, got = (emulate(each, x) for each in (whole, small))
    assert all(got[name].tobytes() == values.tobytes() for name, values in want.items())


def test_what_is_said_of_copies(small):
    found, config = copied_weights(small.image), small.image.config
    copies = [
        copy for phase in small.image.phases for copy in trace(small.image.program, config, phase.pc).vector_copies
    ]
    assert found.vector_bytes == 2 * sum(copy.columns(config) for copy in copies)
    assert "MB of weights in" in found.text(10**6) and "MB of tensors are copied from and to" in found.text(10**6)
    held = [allocation for allocation in small.allocations.values() if allocation.doc == "rows of a tensor"]
    assert len(held) >= len(small.row_tiling.groups) - 1


def test_every_instruction_belongs_to_a_layer(small):
    """Layers without rows in a tile have no instructions there."""
    for first, starts in (*small.tile_starts, (0, small.starts)):
        last = [first + max(k for k, other in enumerate(starts) if other == pc) for pc in starts]
        assert [layer_at(small, pc) for pc in starts] == last


def test_derived_software_is_the_same(small, tmp_path):
    """All but the addresses of chains in comments."""
    large = SMALL.replace(matrix_depth=4096, narrow_depth=4096, wide_depth=4096, dram="", dram_refresh=0)
    texts = []
    for compiled in (small, compiled_alike(residual(), large, small.lowered.unfold)):
        write_numpy(derive_package(compiled.package), tmp_path / "net.py")
        texts.append(re.sub(r"[Cc]hains? at [\d, ]+", "", (tmp_path / "net.py").read_text()))
    assert texts[0] == texts[1]


def test_lanes_are_fewer_where_each_has_many_vectors(small, monkeypatch):
    x = {"x": np.random.default_rng(1).normal(size=(5, *residual().sample_shape("x")))}
    want = emulate(small, x)
    monkeypatch.setattr(machine, "_EXTERNAL_VALUES", 1)
    assert all(emulate(small, x)[name].tobytes() == values.tobytes() for name, values in want.items())


def test_layers_in_the_middle():
    """A group that ends within a residual block leaves a tensor for the next one, which reads two."""
    lowered, _ = choices(residual(), EXTERNAL, Unfold.NONE)
    names = [layer.name for layer in lowered.layers]
    first = names.index("b0")
    before, inside = (lowered.layers[k].target.root for k in (first - 1, first))
    whole = {len(span.layers): span for span in layer_spans(lowered, first)}
    assert (whole[1].source, whole[1].others, whole[1].whole, whole[1].passing) == (before, (), (inside,), True)
    assert (whole[2].source, whole[2].others, whole[2].passing) == (before, (), False) and len(whole[2].whole) == 1
    rest = next(layer_spans(lowered, first + 1))
    assert (rest.source, rest.others, rest.passing) == (inside, (before,), False)


def test_times_without_any_tensor_part_copies():
    copies = [Copy(object(), Mem.WIDE, first, last) for first, last in ((0, 2), (1, 4), (6, 7), (5, 5), (7, 9))]
    for copy in copies:
        copy.size = 1
    assert [[(copy.first_use, copy.last_use) for copy in part] for part in at_a_time(copies)] == [
        [(0, 2), (1, 4)], [(5, 5)], [(6, 7), (7, 9)],
    ]  # fmt: skip
