"""Cells of iCE40 UP devices that components instantiate."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth import *

from concord_rtl.families.primitives import Primitives

#: Operand bits of an SB_MAC16, and of each half of it.
MULTIPLIER_BITS = 16
HALF_BITS = 8


class UpPrimitives(Primitives):
    """``SB_MAC16``, whose registers synthesis does not infer, and ``SB_SPRAM256KA``."""

    single_port_rams = 4

    def multiplier(self, m: Module, a: Value, b: Value, o: Value) -> None:
        if max(len(a), len(b)) > MULTIPLIER_BITS:
            super().multiplier(m, a, b, o)
            return
        wide_a = Signal(signed(MULTIPLIER_BITS), name="a")
        wide_b = Signal(signed(MULTIPLIER_BITS), name="b")
        product = Signal(2 * MULTIPLIER_BITS)
        m.d.comb += [wide_a.eq(a), wide_b.eq(b), o.eq(product[: len(o)])]
        m.submodules.mac = _whole(wide_a, wide_b, product)

    def dual_multiplier(self, m: Module, a: Sequence[Value], b: Sequence[Value], o: Sequence[Value]) -> None:
        if max(map(len, (*a, *b))) > HALF_BITS:
            super().dual_multiplier(m, a, b, o)
            return
        factors = []
        for name, operands in (("a", a), ("b", b)):
            halves = [Signal(signed(HALF_BITS), name=f"{name}{k}") for k in range(2)]
            m.d.comb += [half.eq(operand) for half, operand in zip(halves, operands, strict=True)]
            factors.append(Cat(halves))
        products = Signal(2 * MULTIPLIER_BITS)
        m.d.comb += [out.eq(products.word_select(k, MULTIPLIER_BITS)[: len(out)]) for k, out in enumerate(o)]
        m.submodules.mac = _mac16(
            factors[0],
            factors[1],
            products,
            p_B_SIGNED=Const(1, 1),
            p_MODE_8x8=Const(1, 1),
            p_TOP_8x8_MULT_REG=Const(1, 1),
            p_BOT_8x8_MULT_REG=Const(1, 1),
            p_TOPOUTPUT_SELECT=Const(2, 2),  # products of the upper and of the lower halves
            p_BOTOUTPUT_SELECT=Const(2, 2),
        )

    def left_shift(self, m: Module, i: Value, shift: Value, o: Value) -> None:
        if len(i) > MULTIPLIER_BITS or 1 << len(shift) > MULTIPLIER_BITS:
            super().left_shift(m, i, shift, o)
            return
        wide = Signal(signed(MULTIPLIER_BITS), name="i")
        power = Signal(MULTIPLIER_BITS)
        product = Signal(2 * MULTIPLIER_BITS)
        m.d.comb += [wide.eq(i), power.eq(1 << shift), o.eq(product[: len(o)])]
        m.submodules.mac = _whole(wide, power, product)

    def single_port_ram(self, m: Module, addr: Value, w_en: Value, w_data: Value, word: Value) -> None:
        m.submodules.ram = Instance(
            "SB_SPRAM256KA",
            i_CLOCK=ClockSignal(),
            i_ADDRESS=addr,
            i_DATAIN=w_data,
            i_MASKWREN=Const(0b1111, 4),
            i_WREN=w_en,
            i_CHIPSELECT=Const(1),
            i_STANDBY=Const(0),
            i_SLEEP=Const(0),
            i_POWEROFF=Const(1),  # active low
            o_DATAOUT=word,
        )


def _whole(a: Signal, b: Signal, o: Value) -> Instance:
    """``o`` is the product of 16 by 16 bits two cycles before; ``a`` is signed, ``b`` may be."""
    return _mac16(
        a,
        b,
        o,
        p_B_SIGNED=Const(b.shape().signed, 1),
        p_PIPELINE_16x16_MULT_REG2=Const(1, 1),
        p_TOPOUTPUT_SELECT=Const(3, 2),  # the 16x16 product
        p_BOTOUTPUT_SELECT=Const(3, 2),
    )


def _mac16(a: Value, b: Value, o: Value, **parameters: Value) -> Instance:
    """A multiplier whose operands are registered, the first one signed."""
    return Instance(
        "SB_MAC16",
        p_A_REG=Const(1, 1),
        p_B_REG=Const(1, 1),
        p_A_SIGNED=Const(1, 1),
        **parameters,
        i_CLK=ClockSignal(),
        i_CE=Const(1),
        i_A=a,
        i_B=b,
        i_C=Const(0, MULTIPLIER_BITS),
        i_D=Const(0, MULTIPLIER_BITS),
        o_O=o,
        **{
            f"i_{name}": Const(0)
            for name in (
                *("AHOLD", "BHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "OLOADTOP"),
                *("OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT", "CI", "ACCUMCI", "SIGNEXTIN"),
            )
        },
    )
