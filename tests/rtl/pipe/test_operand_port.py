"""The queue of an operand port beside a plain queue with a register behind it, in every cycle."""

import random
from collections import deque

import pytest

from concord.spec import timing
from concord.spec.presets import TINY
from concord_rtl.pipe.operands import OperandPort
from support.bench import simulate

EIGHT_LANES = TINY.replace(native=16, lanes=4, mfu_lanes=8, inflight=8)


class Plain:
    """Vectors that wait, the beat in the register and what has been reserved."""

    def __init__(self, config):
        self.config = config
        self.waiting, self.beat, self.register, self.unreserved = deque(), 0, None, 0

    def loads(self, take):
        return bool(self.waiting) and (self.register is None or take)

    def freed(self, take):
        return self.loads(take) and self.beat == self.config.beats - 1

    def cycle(self, vector, take, reserve):
        freed = self.freed(take)
        if self.loads(take):
            lanes = self.config.mfu_lanes
            self.register = self.waiting[0][self.beat * lanes : (self.beat + 1) * lanes]
            self.beat = 0 if freed else self.beat + 1
        elif take:
            self.register = None
        if freed:
            self.waiting.popleft()
        if vector is not None:
            self.waiting.append(vector)
        self.unreserved += (vector is not None) - reserve


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, EIGHT_LANES], ids=["tiny", "eight lanes"])
@pytest.mark.parametrize("pace", [(1.0, 1.0), (0.9, 0.3), (0.2, 0.9), (0.5, 0.5)], ids=str)
def test_the_same_beats_in_the_same_cycles(config, pace):
    dut, model, rng = OperandPort(config), Plain(config), random.Random(4)
    places = timing.operand_places(config)
    beats = []

    async def bench(ctx):
        vector, take, held = None, False, 0
        for _ in range(600):
            ctx.set(dut.vector.as_value(), rng.getrandbits(config.wide_word.width))
            if vector is not None:
                ctx.set(dut.vector.as_value(), sum(word << 16 * k for k, word in enumerate(vector)))
            reserve = model.unreserved > 0 and rng.random() < 0.5
            held -= model.freed(take)
            full = model.loads(take) or (model.register is not None and not take)
            soon = full and rng.random() < pace[1]
            coming = held < places and rng.random() < pace[0]
            held += coming
            ctx.set(dut.coming, coming)
            ctx.set(dut.soon, soon)
            ctx.set(dut.reserve, reserve)
            *_, freed, available, beat = await ctx.tick().sample(dut.freed, dut.available, dut.beat)
            assert (freed, available) == (model.freed(take), model.unreserved > 0)
            if model.register is not None:
                assert list(beat) == model.register
                beats.append(take)
            model.cycle(vector, take, reserve)
            vector = [rng.getrandbits(16) for _ in range(config.native)] if coming else None
            take = soon

    simulate(dut, bench)
    assert sum(beats) > 100
