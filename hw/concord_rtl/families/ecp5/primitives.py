"""Cells of ECP5 that components instantiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amaranth import *

from concord.spec.devices import ECP5_RAM_SHAPES
from concord_rtl.families.carry import CarryBit, summed
from concord_rtl.families.logic_product import logic_product
from concord_rtl.families.primitives import Primitives, RamPorts
from concord_rtl.families.shared_product import shared_product

#: Operand bits of a MULT18X18D.
MULTIPLIER_BITS = 18
#: Least words for which a DP16KD is worth it; smaller memories are left to synthesis.
LEAST_WORDS = 128
#: Bits of an address in a DP16KD, counted in bits of data.
ADDR_BITS = 14
#: Bits of a port, of which wide words take both.
PORT_BITS = 18


class Ecp5Primitives(Primitives):
    """``MULT18X18D``, ``CCU2C``, ``DP16KD`` and ``TRELLIS_FF``.

    Synthesis infers neither the registers of multipliers nor the output registers of block RAMs, without which a
    DP16KD answers 5.8 ns after the edge instead of 1 ns.
    """

    def multiplier(self, m: Module, a: Value, b: Value, o: Value) -> None:
        wide_a = Signal(signed(MULTIPLIER_BITS), name="a")
        wide_b = Signal(signed(MULTIPLIER_BITS), name="b")
        product = Signal(2 * MULTIPLIER_BITS)
        m.d.comb += [wide_a.eq(a), wide_b.eq(b), o.eq(product[: len(o)])]
        ports: dict[str, Value] = {}
        for k in range(MULTIPLIER_BITS):
            ports |= {f"i_A{k}": wide_a[k], f"i_B{k}": wide_b[k]}
        for k in range(2 * MULTIPLIER_BITS):
            ports[f"o_P{k}"] = product[k]
        m.submodules.mult = Instance(
            "MULT18X18D",
            p_REG_INPUTA_CLK="CLK0",
            p_REG_INPUTA_CE="CE0",
            p_REG_INPUTA_RST="RST0",
            p_REG_INPUTB_CLK="CLK0",
            p_REG_INPUTB_CE="CE0",
            p_REG_INPUTB_RST="RST0",
            p_REG_PIPELINE_CLK="NONE",
            p_REG_OUTPUT_CLK="CLK0",
            p_REG_OUTPUT_CE="CE0",
            p_REG_OUTPUT_RST="RST0",
            p_GSR="DISABLED",
            p_RESETMODE="SYNC",
            i_CLK0=ClockSignal(),
            i_CE0=Const(1),
            i_RST0=Const(0),
            i_SIGNEDA=Const(1),
            i_SIGNEDB=Const(1),
            i_SOURCEA=Const(0),
            i_SOURCEB=Const(0),
            **ports,
        )

    def pair_multiplier(self, m: Module, a: Value, b: Sequence[Value], o: Sequence[Value]) -> None:
        shared_product(m, a, b, o, self)

    def pair_in_logic(self, m: Module, a: Value, b: Sequence[Value], o: Sequence[Value]) -> None:
        for k, (factor, product) in enumerate(zip(b, o, strict=True)):
            logic_product(m, a, factor, product, f"product{k}", self)

    def carry_chain(self, m: Module, name: str, bits: list[CarryBit]) -> Value:
        sums = Signal(len(bits), name=name)
        carry: Value = Const(0, 1)
        idle = CarryBit(lambda *_: 0, ())
        for k in range(0, len(bits), 2):
            pins: dict[str, Value | int | str] = {}
            for half, bit in enumerate((*bits[k : k + 2], idle)[:2]):
                pins |= {f"i_{port}{half}": pin for port, pin in zip("ABCD", bit.pins, strict=True)}
                pins |= {f"p_INIT{half}": Const(bit.table, 16), f"p_INJECT1_{half}": "NO"}
                if k + half < len(bits):
                    pins[f"o_S{half}"] = sums[k + half]
            after = Signal(name=f"{name}_carry{k}")
            m.submodules[f"{name}{k}"] = Instance("CCU2C", i_CIN=carry, o_COUT=after, **pins)
            carry = after
        return sums

    def sum_of_function(
        self,
        m: Module,
        name: str,
        function: Callable[..., Value],
        terms: Sequence[Value],
        carry: Value,
        first: Value | None = None,
    ) -> Value:
        return self.carry_chain(m, name, summed(function, first, terms, carry))[1:]

    def kept_register(self, m: Module, i: Value, o: Value) -> None:
        for k in range(len(i)):
            m.submodules[f"bit{k}"] = Instance(
                "TRELLIS_FF",
                p_GSR="AUTO",
                p_CEMUX="1",
                p_CLKMUX="CLK",
                p_LSRMUX="LSR",
                p_REGSET="RESET",
                i_CLK=ClockSignal(),
                i_LSR=Const(0),
                i_DI=i[k],
                o_Q=o[k],
            )

    def block_ram(self, m: Module, ports: RamPorts) -> None:
        if ports.depth < LEAST_WORDS:
            super().block_ram(m, ports)
            return
        size = next(width for depth, width in ECP5_RAM_SHAPES if depth >= ports.depth)
        for k, start in enumerate(range(0, len(ports.data), size)):
            m.submodules[f"column{k}"] = _column(m, ports, size, start)


def _column(m: Module, ports: RamPorts, size: int, start: int) -> Instance:
    """One DP16KD for ``size`` bits from ``start``; port A writes, port B reads."""
    drop = (size - size // 9).bit_length() - 1  # address bits below a word; ninth bits do not count
    low = Const(0, drop)
    w_addr = Cat(low, ports.w_addr, Const(0, ADDR_BITS))[:ADDR_BITS]
    addr = Cat(low, ports.addr, Const(0, ADDR_BITS))[:ADDR_BITS]
    # In wide shapes the lowest bits of the address enable the bytes.
    enables = size // 9 if size > 9 else 0
    w_addr = Cat(Const((1 << enables) - 1, enables), w_addr[enables:])
    piece = Cat(ports.w_data[start : start + size], Const(0, 2 * PORT_BITS))
    out = Signal(2 * PORT_BITS, name=f"out{start}")
    m.d.comb += ports.data[start : start + size].eq(out)
    pins: dict[str, Value | int | str] = {}
    for k in range(ADDR_BITS):
        pins |= {f"i_ADA{k}": w_addr[k], f"i_ADB{k}": addr[k]}
    for k in range(PORT_BITS):
        pins |= {f"i_DIA{k}": piece[k], f"i_DIB{k}": piece[PORT_BITS + k]}
        if size > PORT_BITS:
            pins |= {f"o_DOA{k}": out[k], f"o_DOB{k}": out[PORT_BITS + k]}
        else:
            pins[f"o_DOB{k}"] = out[k]
    for port in "AB":
        pins |= {f"i_CE{port}": Const(1), f"i_OCE{port}": Const(1), f"i_RST{port}": Const(0)}
        pins |= {f"i_CLK{port}": ClockSignal()} | {f"i_CS{port}{k}": Const(0) for k in range(3)}
        pins |= {f"p_DATA_WIDTH_{port}": size, f"p_REGMODE_{port}": "OUTREG", f"p_CSDECODE_{port}": "0b000"}
        pins |= {f"p_CLK{port}MUX": f"CLK{port}", f"p_WRITEMODE_{port}": "NORMAL"}
    return Instance(
        "DP16KD",
        p_RESETMODE="SYNC",
        p_ASYNC_RESET_RELEASE="SYNC",
        p_GSR="DISABLED",
        i_WEA=ports.w_en,
        i_WEB=Const(0),
        **pins,
        **_initial(ports, size, start),
    )


def _initial(ports: RamPorts, size: int, start: int) -> dict[str, Const]:
    """Contents as parameters: nine bits per byte, of which shapes below 9 leave the highest unused."""
    here = min(size, len(ports.data) - start)
    bits: list[int] = []
    for word in ports.init:
        bits += [word >> start + k & 1 for k in range(here)]
        bits += [0] * (size - here)
    used = 9 if size >= 9 else 8
    numbers = []  # 18 bits in every 20 of a parameter
    for at in range(0, len(bits), 2 * used):
        chunk = bits[at : at + 2 * used]
        low, high = (sum(bit << k for k, bit in enumerate(half)) for half in (chunk[:used], chunk[used:]))
        numbers.append(low | high << 9)
    return {
        f"p_INITVAL_{k:02X}": Const(sum(n << 20 * i for i, n in enumerate(numbers[16 * k : 16 * k + 16])), 320)
        for k in range(64)
    }
