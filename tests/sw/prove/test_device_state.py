"""Pieces of a comparison: what is the same, which words stay, chains alone."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.emulator import Emulator
from concord.image import Image, Memories, Port
from concord.program import trace
from concord.prove import Subject, prove, runtimes
from concord.prove.device_state import count_words, show
from concord.prove.difference_search import single_chain_program
from concord.prove.observed import _last, different
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY
from support import compiled_nets
from support.derived_modules import program_rng
from support.expressions import ROOMY
from support.program_gen import random_program
from support.rtl_configs import SCALING, SLIDING


def test_different():
    one = np.array([0.0, -0.0, np.nan, np.inf, 1.0, 0.0])
    other = np.array([0.0, 0.0, np.nan, -np.inf, 1.0 + 2.0**-52, np.nan])
    assert different(one, other).tolist() == [False, True, False, True, True, True]


def test_words_that_stay():
    assert _last(np.array([5, 3, 5, 4, 3])).tolist() == [2, 3, 4]


def test_an_exponent_counts():
    word = regions(TINY)[RegionId.NARROW].word
    zero, other = (word.pack(mant=[0] * TINY.native, exp=exp) for exp in (-3, -4))
    assert count_words(TINY, Mem.NARROW, zero, zero) == count_words(TINY, Mem.NARROW, other, other)
    assert count_words(TINY, Mem.NARROW, zero, other).different == 1
    assert count_words(TINY, Mem.WIDE, 0x3C00, 0x3C01).different == 1


def test_numbers_for_people():
    assert show(np.uint16(0x3C01)) == "1.00098 (0x3c01)"
    assert show(np.uint16(0x4200), -2) == "3 (12 * 2**-2)"


def test_overwritten_words():
    """Of vectors that a chain writes to one word the last one is compared."""
    from concord.program.assembler import assemble

    lines = "set_shape rows=3", "set_iters inner=2", "v_rd wide, 0, row=1, inner=3", "vv_add 0, row=1"
    text = "\n".join([*lines, "v_wr wide, 8, row=1, inner=2", "halt"])
    ports = (Port("x", RegionId.WIDE, 0, (6, 4)),), (Port("y", RegionId.WIDE, 8, (5, 4)),)
    subject = Subject("last", Image(TINY, tuple(assemble(text)), (), *ports))
    ((one,),) = subject.chains
    assert one.keep.tolist() == [0, 1, 3, 4, 5] and one.store.address.tolist() == [8, 9, 10, 10, 11, 12]
    proof = prove(subject, samples=8, only=["numpy"])
    assert proof.count.different == 0 and proof.count.values == 8 * 2 * 5 * 4


def test_the_sample_of_a_run_of_several(monkeypatch):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    load = runtimes.Runtime.load

    def broken(kind, model, folder, name):
        step = load(kind, model, folder, name)

        def changed(inputs):
            found = dict(step(inputs))
            if name == "observed":
                found = {key: np.array(x) for key, x in found.items()}
                for x in found.values():
                    x[2] += 1.0
            return found

        return changed

    monkeypatch.setattr(runtimes.Runtime, "load", broken)
    (one,) = prove(Subject("perceptron", package.image, package), samples=12, only=["numpy"]).comparisons
    assert one.first.sample == 8


@pytest.mark.slow
@pytest.mark.parametrize("base", [TINY, replace(TINY, engines=2), SLIDING, SCALING], ids=lambda config: config.name)
def test_chains_alone_are_the_program(base):
    """Executed one after the other, with programs of their own, they leave what the program leaves."""
    config = replace(base, stochastic=False)
    for seed in range(6):
        _, memories = random_program(config, program_rng(f"alone {seed}"), 8)
        program = memories.program.tolist()
        whole, apart = memories.copy(), memories.copy()
        Emulator(whole).run()
        for chain in trace(program, config).chains:
            words = single_chain_program(chain)
            apart.program[: len(words)] = words
            Emulator(apart).run()
        assert np.array_equal(whole.wide, apart.wide) and np.array_equal(whole.narrow_mant, apart.narrow_mant)


def test_memories_of_an_image_have_the_program():
    image = Image(TINY, (7, 9))
    assert Memories.of(image).program[:3].tolist() == [7, 9, 0]
