"""Tensor registers, factors and counts of updates: their memories, their words, and the device that has them."""

import numpy as np
import pytest

from concord.host.emulated import EmulatedDevice
from concord.host.errors import TrapError
from concord.image import Memories
from concord.image.validation import WordError, check_words
from concord.image.words import to_bytes
from concord.program import trace
from concord.program.assembler import assemble
from concord.spec.integers import FACTOR_WORD, TENSOR_WORD
from concord.spec.isa import Trap
from concord.spec.memmap import CORE_REGIONS, INTEGER_REGIONS, RegionId, regions
from concord.spec.presets import ECP5_25F, TINY
from support.integer_contents import TRAIN_SMALL, filled

N = TRAIN_SMALL.native
LIMIT = (1 << 47) - 1


def test_only_configurations_with_integer_chains_have_their_memories():
    plain = Memories(ECP5_25F)
    assert not {"tensor_top", "tensor_exp", "factor_mant", "factor_exp", "updates"} & set(plain.arrays())
    for region in INTEGER_REGIONS:
        with pytest.raises(KeyError):
            plain.read(region, 0, 1)
        assert region not in CORE_REGIONS
    assert trace(assemble("t_set 1, 2\nhalt"), TINY).trap is Trap.BAD_OPCODE


def test_words_of_registers():
    memories = filled()
    words = [TENSOR_WORD.pack(top=LIMIT, exp=-512), TENSOR_WORD.pack(top=0, exp=511)]
    memories.write(RegionId.TENSORS, 3, words)
    assert memories.tensor_top[3:5].tolist() == [LIMIT, 0] and memories.tensor_exp[3:5].tolist() == [-512, 511]
    assert memories.read(RegionId.TENSORS, 3, 2) == words
    memories.write(RegionId.FACTORS, 7, [FACTOR_WORD.pack(mant=-(1 << 16), exp=-3)])
    assert (memories.factor_mant[7], memories.factor_exp[7]) == (-(1 << 16), -3)
    memories.write(RegionId.UPDATES, 0, [1, 2, (1 << 32) - 1])
    assert memories.read(RegionId.UPDATES, 0, 3) == [1, 2, (1 << 32) - 1]
    region = regions(TRAIN_SMALL)[RegionId.TENSORS]
    with pytest.raises(WordError, match=f"word 4 of TENSORS must have a greatest magnitude of at most {LIMIT}, not"):
        check_words(region, 4, to_bytes([TENSOR_WORD.pack(top=LIMIT + 1, exp=0)], region.nbytes), TRAIN_SMALL)
    other = memories.copy()
    assert not memories.differences(other)
    other.tensor_top[3] = 1
    assert memories.differences(other) == [f"tensor_top[3]: {LIMIT:#x} / 0x1"]


def test_registers_that_the_host_writes_between_runs_are_those_of_the_next_run():
    text = "i_src wide\nt_fit 2, 1, 8, 1\ni_dst wide, 0, 4\ni_run 4, scale=1, round1=1, to_vector=1\nhalt"
    with EmulatedDevice(TRAIN_SMALL) as device:

        def write(region, addr, words):
            device.write(region, addr, words)

        write(RegionId.PROGRAM, 0, assemble(text))
        whole = np.resize(np.array([1000], dtype="<i4"), N).view("<u2").reshape(2, N)
        for k in range(2):
            write(RegionId.WIDE, k, [int.from_bytes(whole[k].tobytes(), "little")])
        for factor, want in ((3, 3000 / 32), (-1, -1000 / 8)):
            top = 1000 * abs(factor)
            write(RegionId.TENSORS, 1, [TENSOR_WORD.pack(top=top, exp=4)])
            write(RegionId.FACTORS, 0, [FACTOR_WORD.pack(mant=factor, exp=0)])
            device.start()
            device.wait()
            (low,) = device.read(RegionId.WIDE, 4, 1)
            got = to_bytes([low], 2 * N).view("<i4")[0, 0]
            assert got == round(want)
            (word,) = device.read(RegionId.TENSORS, 2, 1)
            assert TENSOR_WORD.unpack(word) == {"top": abs(round(want)), "exp": 4 + (5 if factor == 3 else 3)}
        write(RegionId.UPDATES, 0, [0, 0, 0])
        assert device.read(RegionId.UPDATES, 0, 3) == [0, 0, 0]
        write(RegionId.TENSORS, 1, [TENSOR_WORD.pack(top=1, exp=200)])
        device.start()
        with pytest.raises(TrapError, match="INTEGER_RANGE"):
            device.wait()
