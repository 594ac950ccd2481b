"""Random programs of integer chains, and memories to start them from.

``random_case(rng, config)`` gives the words of a legal program and its memories. Chains are drawn one after the other,
a few of them such as other programs have; one that breaks a rule, or would trap, is drawn again. Contents are weighted
to the ends of their ranges.
"""

from __future__ import annotations

import numpy as np

from concord.emulator import ReferenceMachine
from concord.emulator.integers import IntegerUnit
from concord.golden.integers import IntegerRangeError
from concord.program import Address, Chain, Pad, Trace, VectorPlace, Window, trace
from concord.program.builder import ProgramBuilder
from concord.program.chains import VectorCopy
from concord.program.integers import PLACES, ChainSteps, IntegerChain, Planes, ProductTaps, TensorStep
from concord.program.vector_copies import write_vectors
from concord.program.verify import verify
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTORS, TENSORS
from concord.spec.isa import ADDR_REGS, Mem, Op
from concord.spec.operations import IntegerSource
from support.integer_contents import random_contents
from support.program_gen import chains_of

_MOST_VECTORS = 40
_MOST_TERMS = 24
_TRIES = 60
HALT = isa.encode(Op.HALT)


def _multiplies_data(problem) -> bool:
    """True if an integer chain multiplies rows of an ``m_wr``, whose exponents may be the least one by chance."""
    return problem.message.endswith("of an m_wr")


# Programs --------------------------------------------------------------------------------------


def random_case(rng, config: NpuConfig, size: int = 5, traps: bool = False):
    """Words of a program and the memories it starts from, the program included.

    Parameters
    ----------
    rng : random.Random
        Seeded by the caller.
    config : NpuConfig
        With integer chains.
    size : int
        Pieces of the program, of one or two chains each; loops execute some of them several times.
    traps : bool
        Whether the program may end with the trap ``INTEGER_RANGE``.

    Returns
    -------
    tuple of list of int and Memories
    """
    return _Generator(config, rng, traps).case(size)


class _Generator:
    """Builds a program piece by piece, and executes what it has to know whether the next one is legal."""

    def __init__(self, config: NpuConfig, rng, traps: bool):
        self.config, self.rng, self.traps = config, rng, traps
        self.memories = random_contents(rng, config)
        self.work = self.memories.copy()
        self.unit = IntegerUnit(self.work)
        self.words: list[int] = []  # of the program so far
        self.items = 0  # that it executes
        self.ended = False

    def case(self, size: int):
        for _ in range(size):
            for _ in range(_TRIES):
                if self._piece():
                    break
            if self.ended:
                break
        words = [*self.words, HALT]
        self.memories.program[: len(words)] = words
        return words, self.memories

    def _piece(self) -> bool:
        """Try one piece; whether the program has it now."""
        builder = ProgramBuilder()
        for op, fields in self._drawn():
            builder.emit(op, **fields)
        words = [*self.words, *builder.words()]
        if len(words) >= self.config.program_depth:
            return False
        run = trace([*words, HALT], self.config)
        if any(_multiplies_data(problem) for problem in verify([*words, HALT], self.config)):
            return False
        work, unit = self.work.copy(), self.unit
        self.unit = IntegerUnit(work)
        for name in ("rounding", "moves", "update"):
            value = getattr(unit.registers, name)
            setattr(self.unit.registers, name, list(value) if name == "rounding" else value)
        try:
            self._execute(run, self.items)
        except ValueError:
            self.unit = unit
            return False
        except IntegerRangeError:
            if not self.traps or self.rng.random() > 0.3:
                self.unit = unit
                return False
            self.ended = True
        self.work, self.words, self.items = work, words, len(run.items)
        return True

    def _execute(self, run: Trace, first: int) -> None:
        for item in run.items[first:]:
            match item:
                case Chain():
                    ReferenceMachine(self.unit.memories).chain(item)
                case VectorCopy():
                    write_vectors(item, self.unit.memories)
                case TensorStep():
                    self.unit.step(item)
                case _:
                    self.unit.chain(item)

    # Pieces ------------------------------------------------------------------------------------

    def _drawn(self):
        share = 0.3 if self.config.writable_matrix else 0.12
        return self._plain() if self.rng.random() < share else self._integers()

    def _plain(self):
        """Chains of binary16 numbers, which read and write words that integer chains have or read, too."""
        state, words = chains_of(self.config.replace(stochastic=False), self.rng, self.rng.randint(1, 2))
        pieces = []
        for form, fields in map(isa.decode, words):
            fields.pop("last", None)  # which the builder says
            pieces.append((form.op, fields))
        return [*state, *pieces, *state]

    def _integers(self):
        """An integer chain, or two, with the steps in front of it."""
        rng = self.rng
        chain = self._chain()
        steps = chain.steps
        before = []
        if steps.update:
            before += self._update_steps(chain)
        if steps.add or rng.random() < 0.1:
            before.append(self._sum_step())
        for place in range(2):
            if (steps.round0, steps.round1)[place] or rng.random() < 0.1:
                before.append((Op.T_FIT, self._fit(place)))
        if rng.random() < 0.2:
            before.append((Op.T_MUL, {"z": self._register(), "x": self._register(), "y": self._register()}))
        if steps.scale and rng.random() < 0.5:
            before.append((Op.T_SCALE, {"z": self._register(), "x": self._register(), "factor": steps.factor}))
        if steps.peak and rng.random() < 0.7:
            before.append((Op.T_SET, {"z": steps.tensor, "exp": rng.randint(-40, 20)}))
        again = []
        if steps.peak and not steps.round1 and rng.random() < 0.7:  # what a peak is for: the same once more, rounded
            bits = rng.choice([8, 8, 16, 16, 32, rng.randint(2, 32)])
            fit = {"z": self._register(), "x": steps.tensor, "bits": bits, "place": 1}
            more = {"round1": 1, "peak": rng.randint(0, 1)}
            again = [(Op.T_FIT, fit), (Op.I_RUN, vars(steps) | more)]
        state = self._state(chain)
        body = [*before, *state, (Op.I_RUN, dict(vars(steps))), *again]
        if rng.random() < 0.15:
            register = rng.randint(1, ADDR_REGS - 1)
            moved = (Op.INC_ADDR, {"reg": register, "step": rng.randint(-6, 6)})
            body = [(Op.LOOP, {"count": rng.randint(2, 3)}), *body, moved, (Op.END_LOOP, {})]
        return body

    def _register(self) -> int:
        return self.rng.randrange(TENSORS)

    def _fit(self, place: int) -> dict[str, int]:
        bits = self.rng.choice([8, 8, 16, 16, 32, self.rng.randint(2, 32)])
        return {"z": self._register(), "x": self._register(), "bits": bits, "place": place}

    def _sum_step(self):
        """A step that says how operands of a sum move, mostly by a few bits."""
        rng, exp = self.rng, self.work.tensor_exp
        x = self._register()
        near = [y for y in range(TENSORS) if abs(int(exp[x]) - int(exp[y])) <= 12]
        y = rng.choice(near) if rng.random() < 0.8 else self._register()
        op = rng.choice([Op.T_ADD, Op.T_ADD, Op.T_BIAS])
        return op, {"z": self._register(), "x": x, "y": y}

    def _update_steps(self, chain: IntegerChain):
        """Exponents so that the update matters, and the distance of accumulators."""
        rng, config = self.rng, self.config
        z, x = rng.sample(range(TENSORS), 2)
        exp = rng.choice([126, 127, -20, rng.randint(-100, 120)]) if self.traps else rng.randint(-100, 120)
        coarser = rng.choice([0, 0, rng.randint(0, isa.COARSER_MAX)])
        change = exp - isa.ACCUMULATOR_POINT + coarser - rng.choice([0, 0, rng.randint(-8, 4), rng.randint(0, 40)])
        distance = rng.randrange(config.wide_depth) - min(chain.operand.address.base, config.wide_depth)
        return [
            (Op.T_SET, {"z": z, "exp": exp}),
            (Op.T_SET, {"z": x, "exp": max(-128, min(127, change))}),
            (
                Op.T_UPD,
                {"z": z, "x": x, "accumulators": distance % (1 << isa.VECTOR_ADDR_BITS), "coarser": coarser},
            ),
        ]

    # Chains ------------------------------------------------------------------------------------

    def _chain(self) -> IntegerChain:
        rng, config = self.rng, self.config
        kind = rng.choice([*IntegerSource, IntegerSource.PRODUCT])
        update = kind is IntegerSource.WIDE and rng.random() < 0.35
        limit = rng.choice([1, 4, 12, _MOST_VECTORS])
        counts = [1, 1, 1]
        for k in rng.sample(range(3), 3):
            counts[k] = rng.randint(1, max(1, limit // int(np.prod(counts))))
        outer, inner, rows = counts
        taps, window, pad, cols = self._taps(kind)
        planes = self._planes()
        steps = self._steps(kind, update, planes)
        return IntegerChain(
            pc=0, rows=rows, cols=cols, inner=inner, outer=outer, kind=kind,
            source=self._vectors(counts, config.narrow_depth if kind is not IntegerSource.WIDE else config.wide_depth),
            operand=VectorPlace(
                self._operand_memory(kind, steps), self._vectors(counts, config.narrow_depth, apart=update)
            ),
            destination=VectorPlace(
                Mem.NARROW if planes.count > 1 else Mem(rng.randint(0, 1)),
                self._vectors(counts, config.narrow_depth, apart=True),
            ),
            tiles=self._places(counts, config.matrix_depth, [0, 1, config.steps, rng.randint(-9, 9)]),
            taps=taps, window=window, pad=pad,
            columns=self._places(counts, config.matrix_depth * config.lanes, [1, config.native, rng.randint(-9, 40)]),
            tile_rows=self._places(
                counts, config.matrix_depth // config.steps * config.native, [1, config.native, rng.randint(-9, 40)]
            ),
            planes=planes, steps=steps,
        )  # fmt: skip

    def _operand_memory(self, kind: IntegerSource, steps: ChainSteps) -> Mem:
        narrow = kind is IntegerSource.PRODUCT or steps.mask or steps.update
        return Mem.NARROW if narrow else Mem(self.rng.randint(0, 1))

    def _taps(self, kind: IntegerSource):
        """Digits, columns, window and padding of a product."""
        rng, config = self.rng, self.config
        digits = rng.choice([1, 1, 2, 3, 3, 5])
        window = Window(
            rng.randint(1, 3), rng.randint(1, 3), rng.randint(-3, 9), rng.randint(-2, 4), rng.randint(1, 2),
            rng.randint(1, 2),
        ) if rng.random() < 0.4 else Window()  # fmt: skip
        cols = rng.randint(1, max(1, min(_MOST_TERMS, config.max_terms) // (digits * window.taps)))
        pad = Pad()
        if window.taps > 1 and rng.random() < 0.6:
            pad = Pad(rng.randint(-2, 1), rng.randint(-2, 1), 1, 1, rng.randint(1, 6), rng.randint(1, 6))
        taps = ProductTaps(
            vector=rng.choice([0, 1, 1, -1, rng.randint(-7, 7)]),
            vector_digit=rng.choice([0, 1, rng.randint(-20, 20)]),
            matrix=rng.choice([config.steps, config.steps, 1, rng.randint(-5, 9)]),
            matrix_digit=rng.choice([config.steps * cols, rng.randint(-20, 40)]),
            digits=digits,
            of=rng.randint(0, 1),
        )
        return (taps, window, pad, cols) if kind is IntegerSource.PRODUCT else (taps, window, pad, 1)

    def _planes(self) -> Planes:
        rng = self.rng
        count = rng.choice([1, 1, 2, 3, 3, 5])
        return Planes(count, rng.choice([1, 40, -1, rng.randint(-60, 60)]), rng.choice([1, 64, rng.randint(-9, 200)]))

    def _steps(self, kind: IntegerSource, update: bool, planes: Planes) -> ChainSteps:
        rng, config = self.rng, self.config

        def flag(chance: float) -> int:
            return int(rng.random() < chance)

        operand = "update" if update else rng.choice(["add", "add", "mask", ""])
        fields = {
            "scale": flag(0.3) * (kind is not IntegerSource.PRODUCT),
            "factor": rng.randrange(FACTORS),
            "round0": flag(0.25),
            "add": int(operand == "add"),
            "peak": flag(0.5),
            "tensor": self._register(),
            "round1": flag(0.6),
            "relu": flag(0.25),
            "mask": int(operand == "mask"),
            "valid": rng.choice([0, 0, 1, config.native - 1, config.native, rng.randint(0, config.native)]),
            "update": int(update),
            "to_vector": flag(0.7),
            "to_column": flag(0.35),
            "to_row": flag(0.35) * (planes.count == 1),
        }
        if update:
            fields |= {"peak": 0, "relu": 0, "to_vector": 0, "round1": 1}
            if planes.count > 1:
                fields |= {"to_column": 0}
        return ChainSteps(interval=1, **fields)

    def _vectors(self, counts: list[int], depth: int, apart: bool = False) -> Address:
        """Addresses of vectors; if they are to be ``apart``, most vectors have one of their own."""
        rng = self.rng
        if apart and rng.random() < 0.85:
            step = rng.choice([1, 2, 2])
            _, inner, rows = counts
            return self._based(counts, depth, [step * rows * inner, step * rows, step])
        return self._based(counts, depth, [rng.choice([0, 1, 2, rng.randint(-9, 9)]) for _ in counts])

    def _places(self, counts: list[int], depth: int, strides: list[int]) -> Address:
        rng = self.rng
        if rng.random() < 0.5:
            step = rng.choice(strides) or 1
            return self._based(counts, depth, [step * counts[2] * counts[1], step * counts[2], step])
        return self._based(counts, depth, [rng.choice(strides) for _ in counts])

    def _based(self, counts: list[int], depth: int, strides: list[int]) -> Address:
        """An address whose base keeps all vectors inside a memory, if there is one."""
        ends = [(count - 1) * stride for count, stride in zip(counts, strides, strict=True)]
        low, high = -sum(min(end, 0) for end in ends), depth - 1 - sum(max(end, 0) for end in ends)
        base = self.rng.choice([low, high, self.rng.randint(low, high)]) if low <= high else low % depth
        outer, inner, row = strides
        return Address(base, row, inner, outer)

    # Words -------------------------------------------------------------------------------------

    def _state(self, chain: IntegerChain):
        """Words that set everything up, in any order, with an address register for some of them."""
        rng, config = self.rng, self.config
        interval = min(chain.least_interval(config) + rng.choice([0, 0, 0, 1, rng.randint(0, 9)]), 4095)
        object.__setattr__(chain.steps, "interval", interval)
        state = {
            Op.SET_SHAPE: {"rows": chain.rows, "cols": chain.cols},
            Op.SET_ITERS: {"inner": chain.inner, "outer": chain.outer},
            Op.SET_WINDOW: vars(chain.window),
            Op.SET_PAD: vars(chain.pad),
        }
        words = [[(op, dict(fields))] for op, fields in state.items()]
        with_register = {
            Op.I_SRC: {"kind": int(chain.kind)},
            Op.I_OPD: {"mem": int(chain.operand.mem)},
            Op.I_DST: {"mem": int(chain.destination.mem)},
            Op.I_TAPS: vars(chain.taps),
            Op.I_PLANES: vars(chain.planes),
        }
        for op, fields in with_register.items():
            value = self._register_value(op, chain)
            register = rng.randint(1, ADDR_REGS - 1) if value else 0
            own = fields | {"reg": register}
            for name, (word, _, holder) in PLACES.items():
                if word is op:
                    own |= chain.fields(name, value)
                elif holder is op:
                    words.append([(word, chain.fields(name, value))])
            words.append([*_set(register, value), (op, own)])
        rng.shuffle(words)
        return [word for group in words for word in group]

    def _register_value(self, op: Op, chain: IntegerChain) -> int:
        """Value of the address register of a word; numbers of columns and rows must not become negative by it."""
        rng = self.rng
        if op is Op.I_PLANES:
            below = -rng.randint(0, 5) if rng.random() < 0.3 else 0
            return below or rng.choice([0, min(chain.columns.base, chain.tile_rows.base, 1000)])
        reach = 9 if op is Op.I_TAPS else 300
        return rng.choice([0, 0, rng.randint(-reach, reach)])


def _set(register: int, value: int):
    if not register:
        return []
    return [(Op.SET_ADDR, {"reg": register, "value": value % (1 << isa.MATRIX_ADDR_BITS)})]
