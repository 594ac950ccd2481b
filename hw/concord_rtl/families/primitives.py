"""Primitives that components instantiate on a device, or leave to synthesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from amaranth import *
from amaranth.lib import memory

from concord_rtl.families.carry import CarryBit, plain_chain


@dataclass(frozen=True)
class RamPorts:
    """Signals of a block RAM with one read port and one write port.

    Parameters
    ----------
    addr, data : Value
        Address to read, and the word two cycles later.
    w_en, w_addr, w_data : Value
        Write ``w_data`` at the edge.
    depth : int
        Number of words.
    init : list of int
        Initial words; zeros beyond its end.
    """

    addr: Value
    data: Value
    w_en: Value
    w_addr: Value
    w_data: Value
    depth: int
    init: list[int]


class Primitives:
    """The cells of a device, each as a method that builds it in a module.

    This class is the device of which nothing is known: everything is plain logic, which behaves as the cells do. The
    cells of a family are methods of a class derived from this one.

    Attributes
    ----------
    single_port_rams : int
        Single-port memories of 16,384 words of 16 bits in the device (see :meth:`single_port_ram`). They cannot be
        initialised.
    """

    single_port_rams = 0

    def multiplier(self, m: Module, a: Value, b: Value, o: Value) -> None:
        """``o`` is the signed product of ``a`` and ``b`` two cycles before; its registers have no reset."""
        a_register = Signal.like(a, name="a", reset_less=True)
        b_register = Signal.like(b, name="b", reset_less=True)
        product = Signal.like(o, name="o", reset_less=True)
        m.d.sync += [a_register.eq(a), b_register.eq(b), product.eq(a_register * b_register)]
        m.d.comb += o.eq(product)

    def pair_multiplier(self, m: Module, a: Value, b: Sequence[Value], o: Sequence[Value]) -> None:
        """Both ``o`` are the products of ``a`` and ``b`` four cycles before, if these are symmetric codes."""
        shared = Signal.like(a, name="shared", reset_less=True)
        m.d.sync += shared.eq(a)
        for k, (factor, product) in enumerate(zip(b, o, strict=True)):
            b_register = Signal.like(factor, name=f"b{k}", reset_less=True)
            stages = [Signal.like(product, name=f"o{k}_{n}", reset_less=True) for n in range(3)]
            m.d.sync += [b_register.eq(factor), stages[0].eq(shared * b_register)]
            m.d.sync += [later.eq(value) for value, later in pairwise(stages)]
            m.d.comb += product.eq(stages[-1])

    def pair_in_logic(self, m: Module, a: Value, b: Sequence[Value], o: Sequence[Value]) -> None:
        """Builds :meth:`pair_multiplier` without a multiplier of the device."""
        Primitives.pair_multiplier(self, m, a, b, o)

    def dual_multiplier(self, m: Module, a: Sequence[Value], b: Sequence[Value], o: Sequence[Value]) -> None:
        """Each ``o`` is the signed product of its ``a`` and ``b`` two cycles before; the registers have no reset."""
        for k, (first, second, product) in enumerate(zip(a, b, o, strict=True)):
            m.submodules[f"product{k}"] = part = Module()
            self.multiplier(part, first, second, product)

    def left_shift(self, m: Module, i: Value, shift: Value, o: Value) -> None:
        """``o`` is the signed ``i << shift`` of two cycles before; its registers have no reset."""
        value, places = Signal.like(i, name="i", reset_less=True), Signal.like(shift, name="shift", reset_less=True)
        shifted = Signal.like(o, name="o", reset_less=True)
        m.d.sync += [value.eq(i), places.eq(shift), shifted.eq(value << places)]
        m.d.comb += o.eq(shifted)

    def carry_chain(self, m: Module, name: str, bits: list[CarryBit]) -> Value:
        """Sums of a carry chain without a carry into its first bit; ``name`` is that of the cells in ``m``."""
        return plain_chain(bits)

    def sum_of_function(
        self,
        m: Module,
        name: str,
        function: Callable[..., Value],
        terms: Sequence[Value],
        carry: Value,
        first: Value | None = None,
    ) -> Value:
        """``first + function(*terms) + carry`` without its last carry; without ``first`` that is zero.

        The function has ``&``, ``|``, ``^`` and ``~`` of up to three terms, one less with ``first``. They and ``first``
        have the same number of bits, and so has the sum. ``name`` is that of cells in ``m``.
        """
        total = function(*terms) + carry if first is None else first + function(*terms) + carry
        return total[: len(terms[0])]

    def kept_register(self, m: Module, i: Value, o: Value) -> None:
        """``o`` is ``i`` one cycle before."""
        kept = Signal.like(o, name="kept", reset_less=True)
        m.d.sync += kept.eq(i)
        m.d.comb += o.eq(kept)

    def block_ram(self, m: Module, ports: RamPorts) -> None:
        """A memory with a registered output; a read of the word that is being written is undefined."""
        # Collisions need no care: their outcome is undefined.
        m.submodules.store = store = memory.Memory(
            shape=unsigned(len(ports.data)), depth=ports.depth, init=ports.init, attrs={"no_rw_check": 1}
        )
        read = store.read_port()
        write = store.write_port()
        word = Signal(len(ports.data), reset_less=True)
        m.d.comb += [
            read.addr.eq(ports.addr),
            write.addr.eq(ports.w_addr),
            write.data.eq(ports.w_data),
            write.en.eq(ports.w_en),
            ports.data.eq(word),
        ]
        m.d.sync += word.eq(read.data)

    def single_port_ram(self, m: Module, addr: Value, w_en: Value, w_data: Value, word: Value) -> None:
        """``word`` is the word of 16 bits at ``addr`` of the cycle before, undefined after a write."""
        m.submodules.ram = ram = memory.Memory(shape=len(word), depth=1 << len(addr), init=[])
        read = ram.read_port()
        write = ram.write_port()
        m.d.comb += [
            read.addr.eq(addr),
            read.en.eq(~w_en),
            write.addr.eq(addr),
            write.data.eq(w_data),
            write.en.eq(w_en),
            word.eq(read.data),
        ]
