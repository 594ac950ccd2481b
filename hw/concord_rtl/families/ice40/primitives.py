"""Cells of iCE40 UP devices that components instantiate."""

from __future__ import annotations

from amaranth import *

from concord_rtl.families.primitives import Primitives

#: Operand bits of an SB_MAC16.
MULTIPLIER_BITS = 16


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
        m.submodules.mac = Instance(
            "SB_MAC16",
            p_A_REG=Const(1, 1),
            p_B_REG=Const(1, 1),
            p_PIPELINE_16x16_MULT_REG2=Const(1, 1),
            p_TOPOUTPUT_SELECT=Const(3, 2),  # the 16x16 product
            p_BOTOUTPUT_SELECT=Const(3, 2),
            p_A_SIGNED=Const(1, 1),
            p_B_SIGNED=Const(1, 1),
            i_CLK=ClockSignal(),
            i_CE=Const(1),
            i_A=wide_a,
            i_B=wide_b,
            i_C=Const(0, MULTIPLIER_BITS),
            i_D=Const(0, MULTIPLIER_BITS),
            o_O=product,
            **{
                f"i_{name}": Const(0)
                for name in (
                    *("AHOLD", "BHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "OLOADTOP"),
                    *("OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT", "CI", "ACCUMCI", "SIGNEXTIN"),
                )
            },
        )

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
