"""``i_loss``: the emulator against the reference machine, what breaks its rules, and what programs may do with it."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.golden.softmax import judged
from concord.image import Memories
from concord.image.words import to_bytes, unpack_words
from concord.program import trace
from concord.program.assembler import assemble
from concord.program.integer_loss import IntegerLoss, broken_loss_rules
from concord.program.verify import Span, verify
from concord.spec.integers import JUDGED_WORD
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from support.integer_contents import LOSS_SMALL, LOSS_WHOLE, TRAIN_SMALL
from support.integer_programs import random_loss

PROGRAM = """
    set_shape 2, 1
    set_iters 3, 2
    i_src wide, addr=10, row=2, inner=4, outer=12
    i_opd narrow, addr=5, row=1, inner=2, outer=6
    i_dst wide, addr=10, row=2, inner=4, outer=12
    i_loss 7, 3, 60
    halt
"""


def contents(config=LOSS_SMALL, program=PROGRAM, seed=1):
    """Six samples of two vectors each, one without a label."""
    draw, memories = np.random.default_rng(seed), Memories(config)
    words = assemble(program)
    memories.program[: len(words)] = words
    memories.wide[10:34] = draw.integers(0, 1 << 16, (24, config.native)) & 0x7FFF
    memories.wide[10:34, 1::2] = draw.integers(0, 4, (24, config.native // 2))
    memories.narrow_mant[5:17] = 0
    for sample in range(5):
        label = int(draw.integers(0, config.native + 3))
        memories.narrow_mant[5 + 2 * sample + label // config.native, label % config.native] = 1
    memories.tensor_exp[7] = -16
    return memories


@pytest.mark.slow
@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE], ids=lambda config: config.name)
def test_random_losses_are_those_of_the_reference_machine(config):
    for seed in range(60):
        memories = random_loss(random.Random(seed), config)
        fast, exact = Emulator(memories.copy()), ReferenceMachine(memories.copy())
        run, other = fast.run(), exact.run()
        assert (run.trap, run.cycles) == (other.trap, other.cycles) == (Trap.NONE, run.cycles), seed
        for name in ("narrow_mant", "wide", "tensor_exp", "tensor_top"):
            same = getattr(fast.memories, name) == getattr(exact.memories, name)
            assert same.all(), (seed, name, np.argwhere(~same)[:3])


def test_gradient_judgement_and_register():
    memories = contents()
    config, n = memories.config, memories.config.native
    logits = memories.wide[10:34].reshape(6, -1).astype("<u2").view("<i4")[:, : n + 3].astype(np.int64)
    labels = (memories.narrow_mant[5:17] > 0).reshape(6, -1)[:, : n + 3]
    want = judged(logits, -16, labels)
    machine = Emulator(memories)
    run = machine.run()
    after = machine.memories
    gradient = after.wide[10:34].reshape(6, -1).astype("<u2").view("<i4")
    assert (gradient[:, : n + 3] == want.gradient).all() and not gradient[:, n + 3 :].any()
    assert gradient[:5].any(axis=1).all() and not gradient[5].any()
    assert (after.tensor_exp[7], after.tensor_top[7]) == (-30, np.abs(want.gradient).max())
    words = -(-6 // (n // 2))
    records = after.wide[60 : 60 + words].astype("<u2").view("<u4").ravel().tolist()
    fields = [JUDGED_WORD.unpack(word) for word in records[:6]]
    assert [one["hit"] for one in fields] == want.hit.tolist() and not any(records[6:])
    assert [one["right"] for one in fields] == want.right.tolist()
    assert (run.chains, run.vectors, run.dense_steps) == (1, 12, 0)
    assert config.integer_loss


def loss_of(text, config=LOSS_SMALL) -> IntegerLoss:
    (item,) = trace(assemble(text), config).integers
    assert isinstance(item, IntegerLoss)
    return item


@pytest.mark.parametrize(
    "old, new, rule",
    [
        ("i_src wide", "i_src narrow", "must have a wide source, a narrow operand and a wide destination"),
        ("i_opd narrow", "i_opd wide", "must have a wide source"),
        ("i_dst wide", "i_dst narrow", "must have a wide source"),
        ("i_loss 7, 3", "i_loss 7, 99", "must have at most 8 classes in a vector, not 99"),
        ("narrow, addr=5", "narrow, addr=505", "must stay below word 512 of the narrow memory, not touch 516"),
        ("i_src wide, addr=10", "i_src wide, addr=500", "must stay below word 512 of the wide memory, not touch 523"),
        ("3, 60", "3, 511", "must stay below word 512 of the wide memory, not touch 512"),
        ("i_dst wide, addr=10, row=2", "i_dst wide, addr=10, row=0", "must not write wide 10 twice"),
        ("3, 60", "3, 20", "must not write wide 20 twice"),
        ("i_dst wide, addr=10", "i_dst wide, addr=12", "must not read wide 12, which it writes for something else"),
        ("i_src wide, addr=10", "i_src wide, addr=11", "must not read wide 11, which it writes for something else"),
        ("i_dst wide, addr=10", "i_dst wide, addr=61", "must not write wide 61 twice"),
    ],
)  # fmt: skip
def test_rules(old, new, rule):
    assert not broken_loss_rules(loss_of(PROGRAM), LOSS_SMALL)
    text = PROGRAM.replace(old, new, 1)
    assert text != PROGRAM
    (broken,) = broken_loss_rules(loss_of(text), LOSS_SMALL)
    assert broken.message.startswith(rule)
    with pytest.raises(ValueError, match=r"^a loss at pc 5 must "):
        Emulator(contents(program=text)).run()
    with pytest.raises(ValueError, match=r"^a loss at pc 5 must "):
        ReferenceMachine(contents(program=text)).run()


def test_judgements_may_not_lie_where_logits_are_read():
    text = PROGRAM.replace("i_dst wide, addr=10", "i_dst wide, addr=100").replace("3, 60", "3, 20")
    (broken,) = broken_loss_rules(loss_of(text), LOSS_SMALL)
    assert broken.message == "must not read wide 20, which it writes for something else"


def test_the_verifier_knows_what_it_reads_and_writes():
    words = assemble(PROGRAM)
    logits, labels = Span(RegionId.WIDE, 10, 24), Span(RegionId.NARROW, 5, 12)
    register, results = Span(RegionId.TENSORS, 7, 1), Span(RegionId.WIDE, 60, 1)

    def problems(*loaded, constant=()):
        found = verify(words, LOSS_SMALL, inputs=loaded, constants=constant, outputs=[results])
        return [problem.message for problem in found]

    assert not problems(logits, labels, register)
    assert problems(labels, register) == ["reads wide 10, 11, 12, 13, ... (24 in all) before it is written"]
    assert problems(logits, register) == ["reads narrow 5, 6, 7, 8, ... (12 in all) before it is written"]
    assert problems(logits, labels) == ["reads tensors 7 before it is written"]
    constant = problems(labels, register, constant=[logits])
    assert constant == ["overwrites the constant wide 10, 11, 12, 13, ... (24 in all)"]


def test_other_configurations_refuse_it():
    for machine in (Emulator, ReferenceMachine):
        run = machine(contents(TRAIN_SMALL)).run()
        assert (run.trap, run.pc) == (Trap.BAD_OPCODE, 5)
    assert unpack_words(JUDGED_WORD, to_bytes([(1 << 31) + 5], 4))["right"] == 1
