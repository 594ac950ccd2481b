"""Several tile engines: the rows of a group read their source together, and everything else one after the other."""

import random

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.emulator import Emulator, ReferenceMachine
from concord.golden import binary16
from concord.host import connect
from concord.program import Span, trace, verify
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.compiled_nets import attention, gru, residual
from support.engine_programs import FEEDBACK, SOURCE_AND_OPERAND, STRIDE, feedback_memories
from support.expressions import ROOMY
from support.program_gen import random_program
from support.reference_runs import assert_machines_agree

pytestmark = pytest.mark.usefixtures("both_kernels")

ENGINES = [TINY.replace(engines=2), TINY.replace(engines=4)]


@pytest.fixture(params=ENGINES, ids=lambda config: f"T={config.engines}")
def config(request):
    return request.param


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_rows_of_a_group_read_their_source_before_any_of_them_writes(machine, config):
    memories = feedback_memories(config, FEEDBACK)
    machine(memories).run()
    # Rows 0 and 1 are 2 and 3 times the vector 1, 2, 3, 4 that was there; row 0 then takes its place.
    assert binary16.decode(memories.wide[4:6]).tolist() == [[2, 4, 6, 8], [3, 6, 9, 12]]
    assert memories.narrow_mant[2, 3] * 2.0 ** memories.narrow_exp[2] == 8


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_operands_of_a_group_have_seen_the_row_before(machine, config):
    memories = feedback_memories(config, SOURCE_AND_OPERAND)
    memories.wide[8] = binary16.encode([100.0] * 4)
    machine(memories).run()
    assert binary16.decode(memories.wide[9:11]).tolist() == [[100 + f * x for x in (1, 2, 3, 4)] for f in (2, 2 + 3)]


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_the_last_row_of_a_group_reads_what_another_group_has_written(machine, config):
    rows = 2 * config.engines
    text = f"set_shape rows={rows}\nv_rd narrow, 2\nmv_mul 0\nvv_add 20, row=1\nv_wr wide, {19 + rows}, row=1\nhalt"
    memories = feedback_memories(config, text)
    machine(memories).run()
    first, last = binary16.decode(memories.wide[[19 + rows, 18 + 2 * rows]]).tolist()
    assert first == [2, 4, 6, 8] and last == [(rows + 1 + 2) * x for x in (1, 2, 3, 4)]


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_a_group_reads_the_source_of_its_first_row(machine, config):
    memories = feedback_memories(config, STRIDE)
    machine(memories).run()
    for row, values in enumerate(binary16.decode(memories.wide[16:24]).tolist()):
        k = row // config.engines * config.engines + 1
        assert values == [(row + 2) * k * x for x in (1, 2, 3, 4)]


def test_the_next_group_reads_what_the_one_before_has_written():
    text = FEEDBACK.replace("rows=2", "rows=4").replace("v_wr narrow, 2", "v_wr narrow, 3")  # row 1 writes the source
    memories = feedback_memories(ENGINES[0], text)
    copy = memories.copy()
    ReferenceMachine(memories).run()
    assert binary16.decode(memories.wide[4:8]).tolist() == [[k * x for x in (1, 2, 3, 4)] for k in (2, 3, 12, 15)]
    Emulator(copy).run()
    assert copy.differences(memories) == []


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
@pytest.mark.parametrize("product", ["", "mv_mul 0, mode=depthwise"], ids=["copy", "depthwise"])
def test_only_dense_products_have_groups(machine, config, product):
    """Every vector reads what the one before has written."""
    text = f"set_shape rows=5\nv_rd narrow, 2, row=1\n{product}\nvv_add 40\nv_wr narrow, 3, row=1\nhalt"
    memories = feedback_memories(config, text)
    memories.narrow_mant[2] = [1, 0, 0, 0]
    memories.matrix_mant[:, :, 0] = 1
    memories.wide[40] = binary16.encode([1.0, 0.0, 0.0, 0.0])
    machine(memories).run()
    exact = memories.narrow_mant[2:8, 0] * 2.0 ** memories.narrow_exp[2:8]
    assert exact.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_batch_is_the_same_as_one_by_one(config):
    batch = 9
    for text in (FEEDBACK, SOURCE_AND_OPERAND, *range(3)):
        rng = random.Random(f"batch {text}")
        made = random_program(config, rng, 8)[1] if isinstance(text, int) else feedback_memories(config, text)
        draw = np.random.default_rng(rng.getrandbits(32))
        mant, exp = draw.integers(-100, 101, (batch, 3, 4)), draw.integers(-6, -2, (batch, 3))
        spans = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64)]
        found = Emulator(made.copy()).run_batch({}, spans, narrow={2: (mant, exp)})
        for k in range(batch):
            single = made.copy()
            single.narrow_mant[2:5], single.narrow_exp[2:5] = mant[k], exp[k]
            ReferenceMachine(single).run()
            assert np.array_equal(found.outputs[0][k], single.wide)
            assert np.array_equal(found.outputs[1][0][k], single.narrow_mant)
            assert np.array_equal(found.outputs[1][1][k], single.narrow_exp)


@pytest.mark.slow
def test_random_programs_agree(config):
    for seed in range(25):
        assert_machines_agree(random_program(config, random.Random(seed), 8)[1])


def feeds_back(chain, config):
    """Whether a row writes what is the source of a later one of its group."""
    target = chain.destination(chain.mem)
    if chain.group(config) == 1 or target is None:
        return False
    source, inside, written = chain.sources(config), chain.inside(), chain.addresses(target)
    for o, i, row in np.ndindex(*chain.shape):
        first = row // config.engines * config.engines
        if np.isin(written[o, i, first:row], source[o, i, row][inside[o, i]]).any():
            return True
    return False


@pytest.mark.slow
def test_random_programs_are_full_of_groups_that_feed_back(config):
    count = 0
    for seed in range(30):
        words, _ = random_program(config, random.Random(seed), 8)
        count += any(feeds_back(chain, config) for chain in trace(words, config).chains)
    assert count >= 8, count


@pytest.mark.parametrize("make", [residual, gru, attention])
def test_compiled_networks_have_the_same_bits_with_any_number_of_engines(make):
    graph = make()
    rng = np.random.default_rng(5)
    x = {name: rng.normal(0, 1, (3, *graph.sample_shape(name))) for name in graph.inputs}
    results = set()
    for engines in (1, 2, 4):
        package = compile_graph(graph, ROOMY.replace(engines=engines)).package
        with connect("emulator", package.config) as device:
            device.load(package.image)
            results.add(b"".join(values.tobytes() for values in package.run(device, x).values()))
    assert len(results) == 1


@pytest.mark.parametrize(("engines", "found"), [(1, "narrow 5, 7, 9"), (2, "narrow 7"), (4, "")])
def test_the_verifier_knows_what_a_group_reads(engines, found):
    """Group g reads 3 + 2 * g * T."""
    words = assemble("set_shape rows=4\nv_rd narrow, 3, row=2\nmv_mul 0\nv_wr narrow, 4, row=1\nhalt")
    spans = {"inputs": [Span(RegionId.NARROW, 3)], "constants": [Span(RegionId.MATRIX, 0, 8)]}
    problems = verify(words, TINY.replace(engines=engines), **spans)
    want = [f"source reads {found} before it is written"] if found else []
    assert [problem.message for problem in problems] == want
