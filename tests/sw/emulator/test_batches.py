"""Batches of the fast emulator: numbers as inputs, and threads that share a batch."""

import random
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from concord.emulator import Emulator, machine
from concord.emulator.inputs import Inputs
from concord.emulator.outputs import Outputs
from concord.emulator.phases import BatchPhase
from concord.emulator.workers import chunk, share
from concord.golden import binary16, blocks
from concord.host.emulated import EmulatedDevice
from concord.image import Image, Memories, Port
from concord.program import Span
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord.utils import blas
from support.program_gen import random_halves, random_memories, random_program

pytestmark = pytest.mark.usefixtures("both_kernels")

# Numbers -----------------------------------------------------------------------------------------


def corners(rng, shape, wild):
    """binary16 numbers, the middles between two of them, what is next to those, and anything at all."""
    bits = random_halves(rng, shape, wild=False)
    exact, above = binary16.decode(bits), binary16.decode(bits + 1)
    ties = np.where(np.isfinite(above), (exact + above) / 2, exact)
    near = np.nextafter(ties, rng.choice([-np.inf, np.inf], shape))
    scaled = np.ldexp(rng.normal(size=shape), rng.integers(-30, 15, shape))
    fixed = rng.choice([0.0, -0.0, 5e-324, -5e-324, 2.0**-25, 2.0**-24 * 1.5, 65504.0, 65519.999, -65519.999], shape)
    kinds = [exact, ties, near, scaled, fixed]
    if wild:
        kinds.append(rng.choice([np.nan, np.inf, -np.inf, 65520.0, -1e300, 1e300], shape))
    return np.choose(rng.integers(0, len(kinds), shape), kinds)


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("config", [TINY, TINY.replace(act_mant=12, act_exp_min=-24), TINY.replace(act_mant=3)])
def test_numbers_are_rounded_and_converted_as_the_golden_model_does(config, wild):
    rng = np.random.default_rng(config.act_mant)
    memories = random_memories(config, random.Random(1))
    memories.program[:1] = assemble("halt")
    emulator = Emulator(memories, lanes=32)
    spans = [Span(RegionId.WIDE, 3, 8), Span(RegionId.NARROW, 5, 8)]
    for batch in (1, 7, 64, 100):
        x, y = (corners(rng, (batch, 8, 4), wild) for _ in range(2))
        wide, (mant, exp) = emulator.run_batch({}, spans, numbers={(Mem.WIDE, 3): x, (Mem.NARROW, 5): y}).outputs
        want = blocks.quantize(binary16.encode(y), config.act)
        assert np.array_equal(wide, binary16.encode(x))
        assert np.array_equal(mant, want.mant)
        assert np.array_equal(exp, want.exp)


def test_numbers_that_do_not_fit_are_refused():
    memories = random_memories(TINY, random.Random(1))
    memories.program[:1] = assemble("halt")
    for numbers in ({(Mem.NARROW, 63): np.zeros((1, 2, 4))}, {(Mem.WIDE, -1): np.zeros((1, 2, 4))}):
        with pytest.raises(ValueError, match="inputs must lie in 64 words"):
            Emulator(memories).run_batch({}, [], numbers=numbers)
    with pytest.raises(ValueError, match=r"inputs must be arrays \[batch, count, 4\]"):
        Emulator(memories).run_batch({}, [], numbers={(Mem.WIDE, 0): np.zeros((1, 2, 5))})


# Workers -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 37, 70])
def test_results_do_not_depend_on_the_workers(batch, monkeypatch):
    monkeypatch.setattr(machine, "_SHARED_VALUES", 0)
    rng = np.random.default_rng(batch)
    spans = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64)]
    for seed in range(3):
        _, memories = random_program(TINY, random.Random(f"workers {seed}"), 8)
        narrow = {5: (memories.narrow_mant[rng.integers(0, 64, (batch, 2))], rng.integers(-9, -2, (batch, 2)))}
        numbers = {(Mem.WIDE, 3): corners(rng, (batch, 2, 4), wild=True)}
        found = []
        for count in (1, 2, 3):
            emulator = Emulator(memories.copy(), lanes=8, workers=count)
            for _ in range(2):  # the second time in memories that were used
                result = emulator.run_batch({}, spans, 0, narrow, numbers)
                found.append((result.outputs[0], *result.outputs[1], emulator.memories.flags))
            assert [d for d in emulator.memories.differences(memories) if not d.startswith("flags")] == []
        assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_several_threads_work(monkeypatch):
    monkeypatch.setattr(machine, "_SHARED_VALUES", 0)
    seen, both = set(), threading.Barrier(2, timeout=10)

    def put(self, lanes, first, fast, original=machine.Inputs.put):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()
        original(self, lanes, first, fast)

    monkeypatch.setattr(machine.Inputs, "put", put)
    memories = random_memories(TINY, random.Random(1))
    memories.program[:1] = assemble("halt")
    numbers = {(Mem.WIDE, 0): np.arange(400.0).reshape(100, 1, 4)}
    result = Emulator(memories, workers=2).run_batch({}, [Span(RegionId.WIDE, 0)], numbers=numbers)
    assert np.array_equal(binary16.decode(result.outputs[0]), np.arange(400.0).reshape(100, 1, 4))
    assert len(seen) == 2


def test_small_programs_are_not_shared(monkeypatch):
    used = []
    monkeypatch.setattr(machine, "share", lambda work, items, count: used.append(count) or share(work, items, count))
    memories = random_memories(TINY, random.Random(1))
    words = assemble("v_rd wide, 0\nv_relu\nv_wr wide, 0\nhalt")
    memories.program[: len(words)] = words
    Emulator(memories, workers=2).run_batch({0: np.zeros((100, 1, 4), np.uint16)}, [])
    assert used == [1]


@pytest.mark.parametrize("loud", range(4))
def test_flags_of_every_chunk_are_kept(loud, monkeypatch):
    """One sample raises a flag, in a chunk of its own; another instruction raises one in all but that."""
    monkeypatch.setattr(machine, "_SHARED_VALUES", 0)
    memories = Memories(TINY)
    words = assemble("v_rd wide, 0\nvv_add 0\nv_wr wide, 1\nv_rd wide, 2\nvv_add 2\nv_wr wide, 3\nhalt")
    memories.program[: len(words)] = words
    numbers = np.ones((4, 3, 4))
    numbers[loud, 0], numbers[np.arange(4) != loud, 2] = 60000.0, -60000.0
    for count in (1, 2):
        emulator = Emulator(memories.copy(), lanes=1, workers=count)
        emulator.memories.flags[6] = 1 << Flag.NONFINITE  # from before
        emulator.run_batch({}, [], numbers={(Mem.WIDE, 0): numbers})
        assert emulator.memories.flags.nonzero()[0].tolist() == [0, 3, 6]
        assert emulator.memories.flags[[0, 3, 6]].tolist() == [1 << Flag.HALF_OVERFLOW] * 2 + [1 << Flag.NONFINITE]


def test_errors_of_a_worker_are_raised_and_blas_is_free_again():
    before = threadpool_info()

    def work(worker, items):
        for item in items:
            if item == 5:
                raise ValueError(f"item must not be {item}")

    with pytest.raises(ValueError, match="item must not be 5"):
        share(work, range(10), 2)
    assert threadpool_info() == before


def test_every_item_is_worked_on_once_with_one_blas_thread():
    before = threadpool_info()

    def work(worker, items):
        # The BLAS of NumPy: other packages may have brought one of their own since.
        libraries = blas._libraries().info()
        threads = {library["num_threads"] for library in libraries if library["user_api"] == "blas"}
        with blas.SINGLE_THREADED:  # the innermost does not set them free
            pass
        return threads, list(items)

    for count in (1, 2, 5):
        found = share(work, range(20), count)
        assert sorted(item for _, items in found for item in items) == list(range(20))
        assert all(threads == {1} for threads, _ in found)
    assert threadpool_info() == before


def test_chunks_are_as_many_as_the_workers_need():
    for batch in range(1, 700, 3):
        for count in (1, 2, 4):
            for most in (1, 3, 64, 512):
                size = chunk(batch, most, count)
                assert 1 <= size <= most
                assert -(-batch // size) * size <= max(1.25 * batch + count, batch + size)
    assert chunk(400, 512, 2) < 256
    assert chunk(4096, 512, 2) == 512


def test_workers_must_be_some():
    with pytest.raises(ValueError, match="workers must be at least 1, not 0"):
        Emulator(TINY, workers=0)


# Runs that depend on each other ------------------------------------------------------------------


def test_what_a_run_may_see_of_the_one_before():
    memories = random_memories(TINY, random.Random(1))
    words = assemble("v_rd wide, 0\nv_relu\nv_wr wide, 1\nhalt\nv_rd wide, 0\nvv_add 1\nv_wr wide, 1\nhalt")
    memories.program[: len(words)] = words
    emulator = Emulator(memories)

    def phase(pc, wide=(), narrow=()):
        numbers = {(Mem.WIDE, at): np.zeros((1, count, 4)) for at, count in wide}
        numbers |= {(Mem.NARROW, at): np.zeros((1, count, 4)) for at, count in narrow}
        return BatchPhase(pc, Inputs(TINY, {}, {}, numbers) if numbers else None, Outputs(TINY, []))

    assert not emulator.dependent([phase(0)])
    assert emulator.dependent([phase(4)])
    assert emulator.dependent([phase(4, [(0, 1)], [(1, 1)])])
    assert not emulator.dependent([phase(4, [(0, 2)])])
    assert not emulator.dependent([phase(0), phase(4)])
    assert emulator.dependent([phase(4), phase(0)])


@pytest.mark.parametrize("first", [0, 4])
def test_batches_go_on_from_the_last_sample_of_the_one_before(first):
    """As one by one, whether or not the program in between can see it."""
    program = assemble("v_rd wide, 0\nv_relu\nv_wr wide, 1\nhalt\nv_rd wide, 0\nvv_add 1\nv_wr wide, 1\nhalt")
    ports = [Port(name, RegionId.WIDE, at, (4,)) for at, name in enumerate("xy")]
    image = Image(TINY, tuple(program), inputs=(ports[0],), outputs=(ports[1],))
    x = np.arange(24.0).reshape(3, 2, 4) - 8
    with EmulatedDevice(TINY) as device:
        device.load(image)
        got = [device.run({"x": values}, pc=pc)["y"] for values, pc in zip(x, (first, 4, 4), strict=True)]
        left = binary16.decode(TINY.wide_word.unpack(device.read("wide", 1)[0])["elem"])
    state = np.zeros(4)
    for values, pc, y in zip(x, (first, 4, 4), got, strict=True):
        want = np.maximum(values, 0) if pc == 0 else state + values  # each sample from the same memories
        assert np.array_equal(y, want)
        state = want[-1]
    assert np.array_equal(left, state)


def test_an_input_may_lie_where_the_program_writes(monkeypatch):
    """The next batch writes it anew, so what the last sample of the one before left need not be made first."""
    program = assemble("v_rd wide, 0\nvv_add 0\nv_wr wide, 0\nv_rd wide, 0\nv_relu\nv_wr wide, 1\nhalt")
    image = Image(
        TINY, tuple(program), inputs=(Port("x", RegionId.WIDE, 0, (4,)),), outputs=(Port("y", RegionId.WIDE, 1, (4,)),)
    )
    runs = []
    single = Emulator.run
    monkeypatch.setattr(Emulator, "run", lambda self, pc=0: runs.append(pc) or single(self, pc))
    x = np.arange(24.0).reshape(3, 2, 4) - 8
    with EmulatedDevice(TINY) as device:
        device.load(image)
        for values in x:
            assert np.array_equal(device.run({"x": values})["y"], np.maximum(2 * values, 0))
        assert runs == []
        left = binary16.decode(TINY.wide_word.unpack(device.read("wide", 0)[0])["elem"])
    assert np.array_equal(left, 2 * x[-1, -1]) and len(runs) == 1


def test_flags_that_were_cleared_behind_a_batch_stay_clear():
    program = assemble("v_rd wide, 0\nvv_add 0\nv_wr wide, 1\nhalt")
    ports = [Port(name, RegionId.WIDE, at, (4,)) for at, name in enumerate("xy")]
    image = Image(TINY, tuple(program), inputs=(ports[0],), outputs=(ports[1],))
    with EmulatedDevice(TINY) as device:
        device.load(image)
        for clear in (False, True):
            device.run({"x": np.full((3, 4), 60000.0)})
            if clear:
                device.clear_flags()
            assert device.flags() == ({} if clear else {0: (Flag.HALF_OVERFLOW,)})
