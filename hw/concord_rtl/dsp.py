"""Registered multiplier: the vendor's DSP block where the family is known, plain logic elsewhere."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Target:
    """Stand-in for a platform: lets a unit be converted to Verilog for a device without a board.

    Parameters
    ----------
    family, device : str
        As in Amaranth's platform classes.
    """

    def __init__(self, family, device):
        self.family = family
        self.device = device


#: Devices with block resources that are instantiated.
ECP5 = Target("ecp5", "LFE5U-85F")
UP5K = Target("iCE40", "iCE40UP5K")


def primitives_of(platform) -> str | None:
    """Return whose primitives to instantiate: "ecp5", "up5k", or ``None`` for plain logic."""
    family = getattr(platform, "family", None)
    if family == "ecp5":
        return "ecp5"
    if family == "iCE40" and platform.device.startswith("iCE40UP"):
        return "up5k"
    return None


class Multiplier(wiring.Component):
    """Signed product with registered inputs and a registered output.

    Does not stall, and its registers have no reset: the product of a cycle is only worth as much as its operands.
    One product per cycle, ``LATENCY`` cycles later. On ECP5 a ``MULT18X18D`` and on iCE40 UP an ``SB_MAC16`` is
    instantiated, because synthesis does not infer their registers; the registers of plain logic behave the same.

    Parameters
    ----------
    a_width, b_width : int
        Widths of the operands, 1 to 18; above 16 no DSP block is used on iCE40 UP.

    Members
    -------
    a : In(signed(a_width))
        First operand.
    b : In(signed(b_width))
        Second operand.
    o : Out(signed(a_width + b_width))
        Product.
    """

    LATENCY = 2
    #: Operand bits of the DSP blocks.
    ECP5_BITS = 18
    UP5K_BITS = 16

    def __init__(self, a_width, b_width):
        for name, width in [("a_width", a_width), ("b_width", b_width)]:
            if not isinstance(width, int) or not 1 <= width <= self.ECP5_BITS:
                raise ValueError(f"{name} must be in 1..{self.ECP5_BITS}, not {width!r}")
        super().__init__({"a": In(signed(a_width)), "b": In(signed(b_width)), "o": Out(signed(a_width + b_width))})

    def elaborate(self, platform):
        m = Module()
        primitives = primitives_of(platform)
        if primitives == "ecp5":
            self._ecp5(m)
        elif primitives == "up5k" and max(len(self.a), len(self.b)) <= self.UP5K_BITS:
            self._up5k(m)
        else:
            a = Signal.like(self.a, reset_less=True)
            b = Signal.like(self.b, reset_less=True)
            o = Signal.like(self.o, reset_less=True)
            m.d.sync += [a.eq(self.a), b.eq(self.b), o.eq(a * b)]
            m.d.comb += self.o.eq(o)
        return m

    def _operands(self, m, width):
        a = Signal(signed(width))
        b = Signal(signed(width))
        product = Signal(2 * width)
        m.d.comb += [a.eq(self.a), b.eq(self.b), self.o.eq(product[: len(self.o)])]
        return a, b, product

    def _ecp5(self, m):
        a, b, product = self._operands(m, self.ECP5_BITS)
        ports = {}
        for k in range(self.ECP5_BITS):
            ports |= {f"i_A{k}": a[k], f"i_B{k}": b[k]}
        for k in range(2 * self.ECP5_BITS):
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

    def _up5k(self, m):
        a, b, product = self._operands(m, self.UP5K_BITS)
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
            i_A=a,
            i_B=b,
            i_C=Const(0, self.UP5K_BITS),
            i_D=Const(0, self.UP5K_BITS),
            o_O=product,
            **{
                f"i_{name}": Const(0)
                for name in (
                    *("AHOLD", "BHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT", "OLOADTOP"),
                    *("OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT", "CI", "ACCUMCI", "SIGNEXTIN"),
                )
            },
        )
