# amaranth: UnusedElaboratable=no
"""The check of single words: random ones with several faults trap as those of the reference do."""

import random

import pytest

from concord.program.trace import check_fields, check_operation
from concord.spec import isa
from concord.spec.operations import WRITE_OPS, Trap
from concord_rtl.sequencer.decode import Decoder
from support.bench import simulate
from support.integer_contents import TRAIN_WHOLE
from support.rtl_configs import COPYING, EIGHT, SCALING, TINY, WRITABLE


def expected(word, config):
    """The trap of a word that stands where its operation may."""
    try:
        check_operation(word, config)
        form, values = isa.decode(word)
        check_fields(form.op, values, config)
    except isa.IllegalInstruction as error:
        return error.trap
    early = form.is_chain and values["last"] and form.op not in WRITE_OPS
    return Trap.CHAIN_ORDER if early else Trap.NONE


def word_of(rng):
    """A word of some operation, each field as it is, at an end, or of random bits."""
    form = rng.choice(isa.INSTRUCTIONS)
    word, low = int(form.op), isa.OPCODE_BITS
    for field in form.layout.fields:
        if field.name != "op":
            ones = (1 << field.width) - 1
            bits = rng.choice([0, 0, 0, 0, 0, 1 & ones, ones, ones - 1 & ones, rng.getrandbits(field.width)])
            word |= bits << low
            low += field.width
    return word ^ (rng.random() < 0.05) << rng.randrange(64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [TINY, EIGHT, SCALING, WRITABLE, TRAIN_WHOLE, COPYING], ids=lambda config: config.name + "-words"
)
def test_words_with_several_faults(config):
    rng = random.Random(config.name)
    words = [word_of(rng) for _ in range(1500)]
    wanted = [expected(word, config) for word in words]
    assert {*wanted} >= {Trap.NONE, Trap.BAD_OPCODE, Trap.BAD_FIELD, Trap.CHAIN_ORDER}
    dut = Decoder(config)

    async def bench(ctx):
        for k in range(len(words) + dut.LATENCY):
            if k < len(words):
                ctx.set(dut.word, words[k])
            if k >= dut.LATENCY:
                assert ctx.get(dut.o.trap) == wanted[k - dut.LATENCY], f"{words[k - dut.LATENCY]:#018x}"
            await ctx.tick()

    simulate(dut, bench)
