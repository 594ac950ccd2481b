"""Integer chains as instructions: words that set a state only where it changes, and the least intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from concord.program.builder import ProgramBuilder
from concord.program.chains import ORIGIN, Address, ChainLoops, Pad, VectorPlace, Window
from concord.program.integers import NOWHERE, ChainSteps, IntegerChain, Planes, ProductTaps, broken_integer_rules
from concord.program.trace import trace
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.formats import ExponentMode
from concord.spec.integers import TENSORS, WIDE_BITS
from concord.spec.isa import Mem, Op, Trap
from concord.spec.operations import IntegerSource

#: Fields with numbers of tensor registers.
_REGISTERS = ("z", "x", "y", "tensor")


@dataclass(frozen=True)
class ProductSource:
    """Narrow vectors times tiles: words of the matrix memory, columns and digits, and the window of the sum."""

    source: Address
    tiles: Address
    cols: int = 1
    taps: ProductTaps = field(default_factory=ProductTaps)
    window: Window = field(default_factory=Window)
    pad: Pad = field(default_factory=Pad)


def _fields(fields: Mapping[str, int]) -> dict[str, int]:
    """Fields of a word; numbers of registers count modulo how many there are."""
    return {name: number % TENSORS if name in _REGISTERS else number for name, number in fields.items()}


@contextmanager
def _within_reach(op: Op) -> Iterator[None]:
    """Say what helps where a number is beyond a field of a word."""
    try:
        yield
    except ValueError as error:
        word = isa.FORMS[op].mnemonic
        raise ValueError(f"training on the NPU needs smaller layers or batches: in {word}, {error}") from error


class ChainWriter:
    """Writes integer chains and tensor steps to a program; every entry begins with the state of the start of a run."""

    def __init__(self) -> None:
        self._builder = ProgramBuilder()

    def __len__(self) -> int:
        return len(self._builder)

    def begin(self) -> int:
        """Begin an entry, and return its address."""
        self._builder.restart()
        return len(self._builder)

    def end(self) -> None:
        """End an entry."""
        self._builder.emit(Op.HALT)

    def step(self, op: Op, *registers: int, **fields: int) -> None:
        """A step of the tensor registers ``z``, ``x`` and ``y``, as many as it has."""
        self._builder.emit(op, **_fields(dict(zip(_REGISTERS, registers, strict=False)) | fields))

    def fit(self, z: int, x: int, bits: int = WIDE_BITS, place: int = 1) -> None:
        """A step: the exponent with which a tensor is rounded to so many bits, within the range of training."""
        self.step(Op.T_FIT, z, x, bits=bits, place=place)

    def chain(
        self,
        loops: ChainLoops,
        source: VectorPlace | ProductSource,
        *,
        operand: VectorPlace | None = None,
        vectors: VectorPlace | None = None,
        columns: Address | None = None,
        tile_rows: Address | None = None,
        planes: Planes | None = None,
        **steps: int,
    ) -> None:
        """A chain that writes to vectors, columns and rows of tiles; its other steps are fields of ``i_run``.

        Where a stride is too wide for its field, several chains take the place of the loop.

        Raises
        ------
        ValueError
            If a chain that updates cannot be a single one, or a distance in a sum or between digits is too wide.
        """
        if isinstance(source, ProductSource):
            read: dict[str, Any] = {"kind": IntegerSource.PRODUCT, **vars(source)}
        else:
            wide = source.mem is Mem.WIDE
            read = {"kind": IntegerSource.WIDE if wide else IntegerSource.NARROW, "source": source.address}
        written = {"to_vector": vectors, "to_column": columns, "to_row": tile_rows}
        chain = IntegerChain(
            pc=len(self._builder),
            **vars(loops),
            **read,
            operand=operand or NOWHERE,
            destination=vectors or NOWHERE,
            columns=columns or ORIGIN,
            tile_rows=tile_rows or ORIGIN,
            planes=planes or Planes(),
            steps=ChainSteps(1, **{flag: int(place is not None) for flag, place in written.items()}, **_fields(steps)),
        )
        pieces = list(chain.pieces())
        if chain.steps.update and len(pieces) > 1:
            raise ValueError(
                "training on the NPU needs smaller layers: their parameters are not within reach of a chain"
            )
        for piece in pieces:
            for op, fields in piece.settings().items():
                self._set(op, fields)
            self._builder.emit(Op.I_RUN, **vars(piece.steps))

    def rounded(self, loops: ChainLoops, source: VectorPlace, register: int, place: VectorPlace, **chain: Any) -> None:
        """Two chains for an intermediate: the first for its greatest magnitude, the second to round and write it."""
        self.chain(loops, source, **chain, peak=1, tensor=register)
        self.fit(register, register)
        self.chain(loops, source, vectors=place, **chain, round1=1)

    def maximum(self, loops: ChainLoops, source: Address, destination: Address, window: Window) -> None:
        """The greatest of narrow integers in windows, a chain as of other networks."""
        copied = IntegerChain(
            pc=len(self._builder),
            **vars(loops),
            kind=IntegerSource.NARROW,
            source=source,
            destination=VectorPlace(Mem.NARROW, destination),
            steps=ChainSteps(1, to_vector=1),
        )
        for piece in copied.pieces():
            self._set(Op.SET_SHAPE, {"rows": piece.rows, "cols": 1})
            self._set(Op.SET_ITERS, {"inner": piece.inner, "outer": piece.outer})
            self._set(Op.SET_WINDOW, vars(window))
            self._set(Op.SET_PAD, vars(Pad()))
            self._set(Op.SET_QUANT, {"mode": int(ExponentMode.STATIC), "exp": 0})
            self._builder.emit(Op.V_RD, mem=int(Mem.NARROW), **piece.fields("source"))
            self._builder.emit(Op.V_MAX)
            self._builder.emit(Op.V_WR, mem=int(Mem.NARROW), **piece.fields("destination"))

    def _set(self, op: Op, fields: Mapping[str, int]) -> None:
        """A word that sets state, unless that is so already."""
        with _within_reach(op):
            self._builder.set(op, **fields)

    def words(self, config: NpuConfig, starts: Sequence[int]) -> tuple[int, ...]:
        """The program, every chain with the least interval that it may have.

        Raises
        ------
        ValueError
            If the program traps, or if a chain breaks a rule: a sum may have more terms than the NPU adds.
        """
        words = self._builder.words()
        for start in starts:
            run = trace(words, config, start)
            if run.trap is not Trap.NONE:
                raise ValueError(f"a program of training must end, not trap with {run.trap.name} at {run.pc}")
            for chain in run.integers:
                if isinstance(chain, IntegerChain):
                    words[chain.pc] = _word(chain, config)
        return tuple(words)


def _word(chain: IntegerChain, config: NpuConfig) -> int:
    """The word that runs a chain, with the least interval."""
    steps = replace(chain.steps, interval=chain.least_interval(config))
    for broken in broken_integer_rules(replace(chain, steps=steps), config):
        raise ValueError(f"training on the NPU needs smaller layers or batches: a chain {broken.message}")
    with _within_reach(Op.I_RUN):
        return isa.encode(Op.I_RUN, **vars(steps))
