"""Integer chains as instructions: words that set a state only where it changes, and the least intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from concord.program.builder import ProgramBuilder
from concord.program.chains import ORIGIN, Address, ChainLoops, Pad, VectorPlace, Window
from concord.program.integers import ChainSteps, IntegerChain, Planes, ProductTaps
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

    def step(self, op: Op, z: int, x: int = 0, **fields: int) -> None:
        """A step of the tensor registers; numbers of registers count modulo how many there are."""
        numbers = {"z": z} | ({} if op is Op.T_SET else {"x": x})
        own = {name: number % TENSORS if name in _REGISTERS else number for name, number in (numbers | fields).items()}
        self._builder.emit(op, **own)

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
        for name, place in (("operand", operand), ("destination", vectors)):
            read |= {} if place is None else {name: place}
        written = {"to_vector": vectors, "to_column": columns, "to_row": tile_rows}
        flags = {flag: int(place is not None) for flag, place in written.items()}
        own = {name: number % TENSORS if name in _REGISTERS else number for name, number in steps.items()}
        chain = IntegerChain(
            pc=len(self._builder),
            **vars(loops),
            **read,
            columns=columns or ORIGIN,
            tile_rows=tile_rows or ORIGIN,
            planes=planes or Planes(),
            steps=ChainSteps(1, **flags, **own),
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
        self.step(Op.T_FIT, register, register, bits=WIDE_BITS, place=1)
        self.chain(loops, source, vectors=place, **chain, round1=1)

    def scaled(
        self, loops: ChainLoops, source: VectorPlace, register: int, result: int, factor: int, place: VectorPlace
    ) -> None:
        """A tensor times a factor, an intermediate; ``register`` and ``result`` are those of both."""
        self.step(Op.T_SCALE, result, register, factor=factor)
        self.step(Op.T_FIT, result, result, bits=WIDE_BITS, place=1)
        self.chain(loops, source, vectors=place, scale=1, factor=factor, round1=1)

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
        try:
            self._builder.set(op, **fields)
        except ValueError as error:
            word = isa.FORMS[op].mnemonic
            raise ValueError(f"training on the NPU needs smaller layers or batches: in {word}, {error}") from error

    def words(self, config: NpuConfig, starts: Sequence[int]) -> tuple[int, ...]:
        """The program, every chain with the least interval that it may have.

        Raises
        ------
        ValueError
            If the program traps, or if a sum has more terms than the NPU adds.
        """
        words = self._builder.words()
        for start in starts:
            run = trace(words, config, start)
            if run.trap is not Trap.NONE:
                raise ValueError(f"a program of training must end, not trap with {run.trap.name} at {run.pc}")
            for chain in run.integers:
                if isinstance(chain, IntegerChain):
                    _check_terms(chain, config)
                    form, values = isa.decode(words[chain.pc])
                    words[chain.pc] = isa.encode(form.op, **(values | {"interval": chain.least_interval(config)}))
        return tuple(words)


def _check_terms(chain: IntegerChain, config: NpuConfig) -> None:
    terms = chain.product_steps(config) // config.steps
    if terms > config.max_terms:
        raise ValueError(
            f"training on the NPU needs sums of at most {config.max_terms} native products (max_terms), not {terms}: "
            "smaller layers or batches"
        )
    if (cycles := chain.least_interval(config)) > (most := isa.FORMS[Op.I_RUN].fields["interval"].high):
        raise ValueError(
            f"training on the NPU needs vectors of at most {most} cycles, not {cycles}: smaller layers or batches"
        )
