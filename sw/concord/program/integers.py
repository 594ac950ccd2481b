"""Integer chains and tensor steps that a program executes, all state resolved (:mod:`concord.spec.integers`).

Vectors of a chain are numbered in the order of execution: axes ``[outer, inner, rows]`` in C order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from concord.program.chains import MATRIX_MASK, ORIGIN, VECTOR_MASK, Address, VectorChain, VectorPlace
from concord.program.rules import Broken, Check, broken_of
from concord.spec import integers
from concord.spec.config import NpuConfig
from concord.spec.isa import FORMS, Mem, Op
from concord.spec.operations import IntegerSource
from concord.spec.rules import ProgramRule
from concord.utils.arrays import Ids


@dataclass(frozen=True)
class TensorStep:
    """A step of the tensor registers.

    Parameters
    ----------
    pc : int
        Address of its word.
    op : Op
        One of :data:`concord.spec.operations.TENSOR_OPS`.
    z : int
        Register of the result, if there is one.
    x, y : int
        Registers that are read.
    exp, bits, place, factor, accumulators, coarser : int
        As in the instruction.
    """

    pc: int
    op: Op
    z: int = 0
    x: int = 0
    y: int = 0
    exp: int = 0
    bits: int = 0
    place: int = 0
    factor: int = 0
    accumulators: int = 0
    coarser: int = 0

    @property
    def fields(self) -> dict[str, int]:
        """Everything that the word says beside its operation, by name."""
        return {name: value for name, value in vars(self).items() if name not in ("pc", "op")}


@dataclass(frozen=True)
class ProductTaps:
    """Columns and digits of a product: distances from one to the next, and which operand has digits."""

    vector: int = 0
    vector_digit: int = 0
    matrix: int = 0
    matrix_digit: int = 0
    digits: int = 1
    of: int = 0


@dataclass(frozen=True)
class Planes:
    """Words of a narrow result, and distances from one to the next at the destinations."""

    count: int = 1
    dst: int = 0
    col: int = 0


@dataclass(frozen=True)
class ChainSteps:
    """Steps that ``i_run`` asks for; names as there."""

    interval: int
    scale: int = 0
    factor: int = 0
    round0: int = 0
    add: int = 0
    peak: int = 0
    tensor: int = 0
    round1: int = 0
    relu: int = 0
    mask: int = 0
    valid: int = 0
    update: int = 0
    to_vector: int = 0
    to_column: int = 0
    to_row: int = 0


#: Addresses of an integer chain: the word of each, the field of its base, and the word with its address register.
PLACES = {
    "source": (Op.I_SRC, "addr", Op.I_SRC),
    "tiles": (Op.I_MAT, "matrix", Op.I_TAPS),
    "operand": (Op.I_OPD, "addr", Op.I_OPD),
    "destination": (Op.I_DST, "addr", Op.I_DST),
    "columns": (Op.I_COL, "first", Op.I_PLANES),
    "tile_rows": (Op.I_ROW, "first", Op.I_PLANES),
}
#: The place of vectors that a chain does not use.
NOWHERE = VectorPlace(Mem.WIDE, ORIGIN)
#: Strides of an address, each with the loop that it belongs to.
_STRIDES = {"row": "rows", "inner": "inner", "outer": "outer"}


def wide_strides(name: str, address: Address) -> list[str]:
    """Strides of an address, one of :data:`PLACES`, that are beyond the range of its word."""
    limits = FORMS[PLACES[name][0]].fields
    return [axis for axis in _STRIDES if not limits[axis].low <= getattr(address, axis) <= limits[axis].high]


@dataclass(frozen=True, kw_only=True)
class IntegerChain(VectorChain):
    """One integer chain; ``pc`` is that of its ``i_run``.

    Parameters
    ----------
    kind : IntegerSource
        Of the source.
    operand, destination : VectorPlace
        Vectors of narrow or wide integers.
    tiles : Address
        Words of the matrix memory.
    taps : ProductTaps
        Of a product.
    columns, tile_rows : Address
        Numbers of columns and rows of tiles that are written.
    planes : Planes
        Of narrow results.
    steps : ChainSteps
        What is done.
    """

    kind: IntegerSource
    operand: VectorPlace = NOWHERE
    destination: VectorPlace = NOWHERE
    tiles: Address = ORIGIN
    taps: ProductTaps = ProductTaps()
    columns: Address = ORIGIN
    tile_rows: Address = ORIGIN
    planes: Planes = Planes()
    steps: ChainSteps

    @property
    def with_operand(self) -> bool:
        """True if an operand is read."""
        return bool(self.steps.add or self.steps.mask or self.steps.update)

    @property
    def places(self) -> dict[str, Address]:
        """Addresses that are read or written, by their names in :data:`PLACES`."""
        steps = self.steps
        used = {
            "source": True,
            "tiles": self.kind is IntegerSource.PRODUCT,
            "operand": self.with_operand,
            "destination": steps.to_vector,
            "columns": steps.to_column,
            "tile_rows": steps.to_row,
        }
        return {name: self.address(name) for name, use in used.items() if use}

    def address(self, name: str) -> Address:
        """One of :data:`PLACES`, be it read or written or not."""
        place: Address | VectorPlace = getattr(self, name)
        return place.address if isinstance(place, VectorPlace) else place

    def fields(self, name: str, register: int = 0) -> dict[str, int]:
        """Base, less the value of an address register, and strides of one of :data:`PLACES`, as fields of its word."""
        (op, base, _), address = PLACES[name], self.address(name)
        strides = {axis: getattr(address, axis) for axis in _STRIDES}
        return {base: (address.base - register) % (1 << FORMS[op].fields[base].width)} | strides

    def settings(self) -> dict[Op, dict[str, int]]:
        """Words that set the chain up, in the order of a program, with the fields that it needs."""
        product, steps = self.kind is IntegerSource.PRODUCT, self.steps
        words: dict[Op, dict[str, int]] = {Op.SET_SHAPE: {"rows": self.rows}, Op.I_SRC: {"kind": int(self.kind)}}
        if product:
            words[Op.SET_SHAPE]["cols"] = self.cols
            words |= {Op.I_MAT: {}, Op.I_TAPS: vars(self.taps)}
            words |= {Op.SET_WINDOW: vars(self.window), Op.SET_PAD: vars(self.pad)}
        words[Op.SET_ITERS] = {"inner": self.inner, "outer": self.outer}
        words |= {Op.I_OPD: {"mem": int(self.operand.mem)}} if self.with_operand else {}
        words |= {Op.I_DST: {"mem": int(self.destination.mem)}} if steps.to_vector else {}
        for name in self.places:
            op = PLACES[name][0]
            words[op] = words.get(op, {}) | self.fields(name)
        if steps.to_vector or steps.to_column or steps.to_row:
            words[Op.I_PLANES] = vars(self.planes)
        return words

    def pieces(self) -> Iterator[IntegerChain]:
        """Yields the chain or, where a stride is beyond the range of its word, chains for the turns of its loop."""
        places = self.places
        wide = {axis for name, address in places.items() for axis in wide_strides(name, address)}
        if not wide:
            yield self
            return
        axis = max(wide, key=list(_STRIDES).index)
        loop, pad = _STRIDES[axis], self.pad
        for turn in range(turns := getattr(self, loop)):
            moved: dict[str, Any] = {loop: 1}
            for name, at in places.items():
                address, place = replace(at, base=at.base + turn * getattr(at, axis), **{axis: 0}), getattr(self, name)
                moved[name] = replace(place, address=address) if isinstance(place, VectorPlace) else address
            if pad.height and axis == "outer":
                moved["pad"] = replace(pad, y0=pad.y0 + turn * pad.step_y)
            elif pad.height and axis == "inner":
                moved["pad"] = replace(pad, x0=pad.x0 + turn * pad.step_x)
            elif axis == "row" and turn < turns - 1:
                moved["steps"] = replace(self.steps, valid=0)
            yield from replace(self, **moved).pieces()

    def product_steps(self, config: NpuConfig) -> int:
        """Tile steps of a vector; 0 if there is no product."""
        return (
            self.taps.digits * self.window.taps * self.cols * config.steps if self.kind is IntegerSource.PRODUCT else 0
        )

    def least_interval(self, config: NpuConfig) -> int:
        """Cycles from vector to vector that the ports of the memories need."""
        steps, count = self.steps, self.planes.count
        narrow_operand = self.with_operand and self.operand.mem is Mem.NARROW
        reads = self.product_steps(config) or self.kind is IntegerSource.NARROW
        narrow_result = steps.to_vector and self.destination.mem is Mem.NARROW
        return integers.interval(
            beats=config.beats,
            narrow_reads=reads + narrow_operand,
            narrow_writes=1 if steps.update else count * narrow_result,
            matrix_writes=count * steps.to_column + config.steps * steps.to_row,
        )

    def source_taps(self) -> Ids:
        """Addresses of the vectors of a product ``[outer, inner, rows, digits, taps, cols]``."""
        window, taps = self.window, self.taps
        p, t, c = np.ogrid[: taps.digits, : window.taps, : self.cols]
        more = t // window.kw * window.stride_y + t % window.kw * window.stride_x + c * taps.vector
        more = more + p * (0 if taps.of else taps.vector_digit)
        return np.asarray((self.numbers(self.source)[..., None, None, None] + more) & VECTOR_MASK)

    def tile_words(self, config: NpuConfig) -> Ids:
        """Words of its tiles ``[outer, inner, rows, digits, taps, cols, N/L]``."""
        p, t, c, h = np.ogrid[: self.taps.digits, : self.window.taps, : self.cols, : config.steps]
        more = (t * self.cols + c) * self.taps.matrix + p * (self.taps.matrix_digit if self.taps.of else 0) + h
        return np.asarray((self.numbers(self.tiles)[..., None, None, None, None] + more) & MATRIX_MASK)

    def written_columns(self) -> Ids:
        """Numbers of the columns that are written ``[outer, inner, rows, planes]``."""
        return np.asarray(self.numbers(self.columns)[..., None] + np.arange(self.planes.count) * self.planes.col)

    def written_tile_rows(self) -> Ids:
        """Numbers of the rows of tiles that are written ``[outer, inner, rows]``."""
        return self.numbers(self.tile_rows)

    def narrow_targets(self) -> Ids:
        """Addresses of narrow results ``[outer, inner, rows, planes]``."""
        more = np.arange(self.planes.count) * self.planes.dst
        return (self.numbers(self.destination.address)[..., None] + more) & VECTOR_MASK


def broken_integer_rules(chain: IntegerChain, config: NpuConfig) -> list[Broken]:
    """Rules that an integer chain breaks, but for those about the words that it reads and writes."""
    return broken_of((*_operand_rules(chain), *_result_rules(chain, config)))


def _operand_rules(chain: IntegerChain) -> Iterator[Check]:
    """Rules of sources and operands."""
    steps, kind = chain.steps, chain.kind
    product, narrow = kind is IntegerSource.PRODUCT, chain.operand.mem is Mem.NARROW
    kept = steps.add + steps.mask + steps.update <= 1
    message = "must have one operand: to add, to mask, or the weights of an update"
    yield ProgramRule.ONE_OPERAND, kept, message
    kept = not (steps.mask or steps.update) or narrow
    yield ProgramRule.NARROW_OPERAND, kept, "must have a narrow operand to mask or to update"
    yield ProgramRule.SCALED_PRODUCT, not (product and steps.scale), "must not scale a product"
    kept = not (product and steps.add) or narrow
    yield ProgramRule.PRODUCT_OPERAND, kept, "must have a narrow operand with a product"
    kept = kind is IntegerSource.WIDE and bool(steps.round1) and not (steps.peak or steps.relu or steps.to_vector)
    message = "must have a wide source and round1, and neither peak, relu nor to_vector, with an update"
    yield ProgramRule.UPDATE, not steps.update or kept, message


def _result_rules(chain: IntegerChain, config: NpuConfig) -> Iterator[Check]:
    """Rules of the cycles that a chain takes, and of what it writes."""
    steps, whole, least = chain.steps, chain.planes.count == 1, chain.least_interval(config)
    message = f"must have an interval of at least {least} cycles, not {steps.interval}"
    yield ProgramRule.INTERVAL, steps.interval >= least, message
    kept = not (steps.update and (steps.to_column or steps.to_row)) or whole
    yield ProgramRule.UPDATE_DIGITS, kept, "must write one word of new weights, not digits"
    kept = any((steps.to_vector, steps.to_column, steps.to_row, steps.update, steps.peak))
    yield ProgramRule.RESULT, kept, "must write something, or have a peak"
    message = f"must keep at most {config.native} elements, not {steps.valid}"
    yield ProgramRule.VALID, steps.valid <= config.native, message
    yield ProgramRule.ROW_DIGITS, not steps.to_row or whole, "must write rows of tiles as a whole, not in digits"
    kept = not (steps.to_vector and chain.destination.mem is Mem.WIDE) or whole
    yield ProgramRule.WIDE_DIGITS, kept, "must write wide integers as a whole, not in digits"
    terms = chain.product_steps(config) // config.steps
    message = f"must add up at most {config.max_terms} native products, not {terms}"
    yield ProgramRule.INTEGER_TERMS, terms <= config.max_terms, message
