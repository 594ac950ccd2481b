"""How many cycles a program takes, estimated from its instructions: values do not decide about them.

The model follows the vectors of all chains through the queues of the pipe (``docs/architecture.md``) without looking at
single state machines. In an element-serial configuration nothing overlaps, and every vector costs the sum of its parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from concord.program.chains import Chain
from concord.program.trace import Trace, trace
from concord.spec.config import NpuConfig, clog2
from concord.spec.isa import Mem, Op

#: From the start of a run to its first word, and from its last write or word to its end.
_START, _END = 4, 0
#: Of a jump back to the beginning of a loop.
_JUMP = 7
#: From the decoded chain to the first read of its first vector.
_READ = 10
#: From the last step of a product, or the read of another source, to the launch of the vector.
_PRODUCT, _SOURCE, _TREE = 18, 3, 2
#: From the launch of a vector to the first cycle in which it can be read, beside its beats.
_PIPE = 44
#: A place for a product is free so long before the launch of the vector that had it.
_FREED = 3

#: In an element-serial configuration: of a word; of an element, beside what follows; of its sum, its read, a stage that
#: it needs, its conversion to narrow; stages that there are, a cycle each; of a vector.
_WORD, _ELEMENT, _SUM, _TAKEN, _STAGE, _NARROW, _STAGES, _VECTOR = 3, 5, 13, 9, 13, 6, 6, 15


def cycles(words: Sequence[int], config: NpuConfig, pc: int = 0) -> int:
    """Cycles of one run, as the register CYCLES would count them.

    Parameters
    ----------
    words : sequence of int
        The program.
    config : NpuConfig
        What executes it.
    pc : int
        First instruction.
    """
    found = trace(words, config, pc)
    return _serial(found, config) if config.serial else _Pipe(found, config).run()


class _Pipe:
    """Times at which vectors pass the stages of the pipe, all chains in order."""

    def __init__(self, found: Trace, config: NpuConfig):
        self.trace, self.config = found, config
        self.written: dict[Mem, dict[int, int]] = {mem: {} for mem in Mem}
        self.inflight: deque[int] = deque([0] * config.inflight, maxlen=config.inflight)
        places = 2 if config.native == 4 else 8  # for products that wait for their launch
        self.places: deque[int] = deque([0] * places, maxlen=places)
        self.walked = self.read = self.launched = self.done = 0

    def run(self) -> int:
        spent = [count + _JUMP * jumps for count, jumps in zip(self.trace.words, self.trace.jumps, strict=True)]
        decoded, before = _START, 0
        for chain, now in zip(self.trace.chains, spent[:-1], strict=True):
            decoded = max(decoded + now - before, self.walked)
            self._chain(chain, decoded)
            before = now
        return max(self.done, decoded + spent[-1] - before) + _END

    def _chain(self, chain: Chain, begin: int) -> None:
        config = self.config
        sources = chain.sources(config).reshape(chain.vectors, -1).tolist()
        inside = chain.inside().reshape(chain.outer * chain.inner, -1).repeat(chain.cols, axis=1).tolist()
        operands = [chain.addresses(s.operand).reshape(-1).tolist() for s in chain.mfu_ops if s.operand is not None]
        targets = [(self.written[d.mem], chain.addresses(d.address).reshape(-1).tolist()) for d in chain.destinations]
        source, wide = self.written[chain.mem], self.written[Mem.WIDE]
        product = chain.reduce is Op.MV_MUL
        spacing = max(config.beats, 2)
        if chain.reduce in (Op.V_MAX, Op.V_REDMAX):
            spacing *= chain.window.taps + (chain.reduce is Op.V_REDMAX)
        group = config.engines if chain.dense else 1
        steps = config.steps if chain.dense else 1
        latency = _PRODUCT + _TREE * clog2(config.lanes) if product else _SOURCE
        walked, read, launched = max(self.walked, begin), self.read, self.launched
        for n in range(chain.vectors):
            walked = max(walked + 1, self.inflight[0])
            row = n % chain.rows
            if row % group == 0:
                read = max(read, walked + _READ)
                if product:
                    read = max(read, self.places[0] - _FREED)
                for address, there in zip(sources[n], inside[n // chain.rows], strict=True):
                    if there:
                        read = max(read, source.get(address, 0))
                    read += steps
            launched = max(launched + spacing, read + latency)
            for addresses in operands:
                launched = max(launched, wide.get(addresses[n], 0) + _SOURCE)
            if product and row % group == 0:
                self.places.append(launched)
            end = launched + _PIPE + spacing
            for memory, addresses in targets:
                memory[addresses[n]] = end
            self.inflight.append(end)
            self.done = end
        self.walked, self.read, self.launched = walked, read, launched


def _serial(found: Trace, config: NpuConfig) -> int:
    """Cycles where one element goes all the way before the next one begins: the sum of its states."""
    total = _START + _WORD * found.words[-1]
    for chain in found.chains:
        inside = int(chain.inside().sum()) * chain.rows
        outside = chain.vectors * chain.window.taps - inside
        if chain.reduce is Op.MV_MUL:
            source = chain.vectors * (chain.window.taps * chain.cols * (config.steps if chain.dense else 1) + _SUM)
        else:
            source = (inside * _TAKEN + outside) * (config.native if chain.reduce is Op.V_REDMAX else 1)
        written = _NARROW if any(d.mem is Mem.NARROW for d in chain.destinations) else 1
        stages = _STAGE * len(chain.mfu_ops) + _STAGES - len(chain.mfu_ops)
        total += 1 + config.native * (source + chain.vectors * (_ELEMENT + stages + written)) + chain.vectors * _VECTOR
    return total + _END
