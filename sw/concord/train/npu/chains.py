"""Integer chains as instructions: words that set a state only where it changes, and the least intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from concord.program.builder import ProgramBuilder
from concord.program.chains import MATRIX_MASK, VECTOR_MASK, Address, Pad, Window
from concord.program.integers import IntegerChain, Planes, ProductTaps
from concord.program.trace import trace
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.formats import ExponentMode
from concord.spec.integers import TENSORS
from concord.spec.isa import Mem, Op, Trap
from concord.spec.operations import IntegerSource

#: Fields of the strides of addresses, in the order of :class:`ChainLoops`.
_AXES = ("row", "inner", "outer")
#: Fields with numbers of tensor registers.
_REGISTERS = ("z", "x", "y", "tensor")


@dataclass(frozen=True)
class VectorPlace:
    """Vectors in a vector memory; wide means wide integers."""

    mem: Mem
    address: Address


@dataclass(frozen=True)
class ChainLoops:
    """Turns of the loops of a chain."""

    rows: int = 1
    inner: int = 1
    outer: int = 1


@dataclass(frozen=True)
class ProductSource:
    """Narrow vectors times tiles: words of the matrix memory, columns and digits, and the window of the sum."""

    vectors: Address
    tiles: Address
    cols: int = 1
    taps: ProductTaps = field(default_factory=ProductTaps)
    window: Window = field(default_factory=Window)
    pad: Pad = field(default_factory=Pad)


class ChainWriter:
    """Writes integer chains and tensor steps to a program; every entry begins with the state of the start of a run."""

    def __init__(self) -> None:
        self._builder = ProgramBuilder()
        self._state: dict[Op, dict[str, int]] = {}

    def begin(self) -> int:
        """Begin an entry, and return its address."""
        self._state = {op: dict(values) for op, values in isa.INITIAL.items()}
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
            places = {"source": (Op.I_SRC, source.vectors), "tiles": (Op.I_MAT, source.tiles)}
        else:
            places = {"source": (Op.I_SRC, source.address)}
        for name, op, place in (("operand", Op.I_OPD, operand), ("vectors", Op.I_DST, vectors)):
            if place is not None:
                places[name] = op, place.address
        for name, op, numbers in (("columns", Op.I_COL, columns), ("tile_rows", Op.I_ROW, tile_rows)):
            if numbers is not None:
                places[name] = op, numbers
        pieces = list(_pieces(loops, places))
        if steps.get("update") and len(pieces) > 1:
            raise ValueError(
                "training on the NPU needs smaller layers: their parameters are not within reach of a chain"
            )
        for piece in pieces:
            last = loops.rows == piece.loops.rows or piece.first[0] == loops.rows - 1
            own = steps if last or "valid" not in steps else steps | {"valid": 0}
            self._piece(piece, source, operand, vectors, planes, own)

    def maximum(self, loops: ChainLoops, source: Address, destination: Address, window: Window) -> None:
        """The greatest of narrow integers in windows, a chain as of other networks."""
        places = {"source": (Op.I_SRC, source), "vectors": (Op.I_DST, destination)}
        for piece in _pieces(loops, places):
            self._set(Op.SET_SHAPE, rows=piece.loops.rows, cols=1)
            self._set(Op.SET_ITERS, inner=piece.loops.inner, outer=piece.loops.outer)
            self._set(Op.SET_WINDOW, **vars(window))
            self._set(Op.SET_PAD, **vars(Pad()))
            self._set(Op.SET_QUANT, mode=int(ExponentMode.STATIC), exp=0)
            self._builder.emit(Op.V_RD, mem=int(Mem.NARROW), **_strided(piece.places["source"], "addr", VECTOR_MASK))
            self._builder.emit(Op.V_MAX)
            self._builder.emit(Op.V_WR, mem=int(Mem.NARROW), **_strided(piece.places["vectors"], "addr", VECTOR_MASK))

    def within_reach(self, loops: ChainLoops, *numbers: Address) -> bool:
        """True if columns or rows of tiles can be written by a single chain."""
        places = {str(k): (Op.I_COL, address) for k, address in enumerate(numbers)}
        return len(list(_pieces(loops, places))) == 1

    def _piece(
        self, piece: _Piece, source: VectorPlace | ProductSource, operand: VectorPlace | None,
        vectors: VectorPlace | None, planes: Planes | None, steps: Mapping[str, int],
    ) -> None:  # fmt: skip
        """The words of one chain."""
        loops, places = piece.loops, piece.places
        begin = _strided(places["source"], "addr", VECTOR_MASK)
        if isinstance(source, ProductSource):
            self._set(Op.SET_SHAPE, rows=loops.rows, cols=source.cols)
            self._set(Op.I_SRC, kind=int(IntegerSource.PRODUCT), **begin)
            self._set(Op.I_MAT, **_strided(places["tiles"], "matrix", MATRIX_MASK))
            self._set(Op.I_TAPS, **vars(source.taps))
            self._set(Op.SET_WINDOW, **vars(source.window))
            self._set(Op.SET_PAD, **vars(_moved_pad(source.pad, piece.first)))
        else:
            self._set(Op.SET_SHAPE, rows=loops.rows)
            kind = IntegerSource.WIDE if source.mem is Mem.WIDE else IntegerSource.NARROW
            self._set(Op.I_SRC, kind=int(kind), **begin)
        self._set(Op.SET_ITERS, inner=loops.inner, outer=loops.outer)
        for op, name, place in ((Op.I_OPD, "operand", operand), (Op.I_DST, "vectors", vectors)):
            if place is not None:
                self._set(op, mem=int(place.mem), **_strided(places[name], "addr", VECTOR_MASK))
        for op, name in ((Op.I_COL, "columns"), (Op.I_ROW, "tile_rows")):
            if name in places:
                self._set(op, **_strided(places[name], "first", _NUMBER_MASK))
        written = {"to_vector": "vectors", "to_column": "columns", "to_row": "tile_rows"}
        if any(name in places for name in written.values()):
            self._set(Op.I_PLANES, **vars(planes or Planes()))
        flags = {flag: int(name in places) for flag, name in written.items()}
        own = {name: number % TENSORS if name in _REGISTERS else number for name, number in steps.items()}
        self._builder.emit(Op.I_RUN, interval=1, **flags, **own)

    def words(self, config: NpuConfig, starts: Sequence[int]) -> tuple[int, ...]:
        """The program, every chain with the least interval that it may have.

        Raises
        ------
        ValueError
            If the program is too long or traps, or if a sum has more terms than the NPU adds.
        """
        words = self._builder.words()
        if len(words) > config.program_depth:
            raise ValueError(
                f"training on the NPU needs {len(words)} words of the program memory, not {config.program_depth}"
            )
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

    def _set(self, op: Op, **values: int) -> None:
        state = self._state[op] | values
        if state != self._state[op]:
            _check_reach(op, state)
            self._builder.emit(op, **state)
            self._state[op] = state


def _check_reach(op: Op, state: Mapping[str, int]) -> None:
    form = isa.FORMS[op]
    for name, value in state.items():
        limits = form.fields[name]
        if not limits.low <= value <= limits.high:
            raise ValueError(
                f"training on the NPU needs smaller layers or batches: {name} of {form.mnemonic} must be in "
                f"{limits.low}..{limits.high}, not {value}"
            )


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


_NUMBER_MASK = (1 << isa.FORMS[Op.I_COL].fields["first"].width) - 1


@dataclass(frozen=True)
class _Piece:
    """A chain in the place of a part of the turns of loops.

    Parameters
    ----------
    loops : ChainLoops
        Its turns.
    places : dict
        Its addresses.
    first : tuple of int
        Numbers of its first turn of rows, ``inner`` and ``outer``.
    """

    loops: ChainLoops
    places: dict[str, Address]
    first: tuple[int, int, int]


def _pieces(loops: ChainLoops, places: Mapping[str, tuple[Op, Address]]) -> Iterator[_Piece]:
    """Chains whose strides all fit the fields of the instructions that have them."""
    turns = loops.rows, loops.inner, loops.outer
    wide = [any(not _fits(op, axis, getattr(at, axis)) for op, at in places.values()) for axis in _AXES]
    if not any(wide):
        yield _Piece(loops, {name: at for name, (_, at) in places.items()}, (0, 0, 0))
        return
    number = max(k for k in range(3) if wide[k])
    axis = _AXES[number]
    for turn in range(turns[number]):
        moved = {
            name: (op, replace(at, base=at.base + turn * getattr(at, axis), **{axis: 0}))
            for name, (op, at) in places.items()
        }
        for piece in _pieces(replace(loops, **{("rows", "inner", "outer")[number]: 1}), moved):
            first = list(piece.first)
            first[number] = turn
            yield replace(piece, first=(first[0], first[1], first[2]))


def _fits(op: Op, axis: str, stride: int) -> bool:
    limits = isa.FORMS[op].fields[axis]
    return limits.low <= stride <= limits.high


def _moved_pad(pad: Pad, first: tuple[int, int, int]) -> Pad:
    """The bounds of an image for a chain that begins at some turns of ``inner`` and ``outer``."""
    _, inner, outer = first
    return replace(pad, y0=pad.y0 + outer * pad.step_y, x0=pad.x0 + inner * pad.step_x) if pad.height else pad


def _strided(address: Address, base: str, mask: int) -> dict[str, int]:
    return {base: address.base & mask, "row": address.row, "inner": address.inner, "outer": address.outer}
