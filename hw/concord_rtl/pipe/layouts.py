"""Payloads that pass between the units of the chain pipe; every width follows from the configuration."""

from amaranth import Shape, unsigned
from amaranth.lib import data, enum

from concord.spec import isa
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import SCALE_SHIFT_BITS
from concord.spec.operations import OPERANDS, Op
from concord_rtl.parts.control import MFU_CTRL, QUANT_CTRL


class Reduction(enum.Enum, shape=2):
    """Operation between the source and the first multifunction unit."""

    NONE = 0
    PRODUCT = 1
    MAX = 2
    MAX_ALL = 3


def vector_addr_bits(config: NpuConfig) -> int:
    """Bits of an address in either vector memory; addresses and steps are kept modulo this."""
    return clog2(max(config.narrow_depth, config.wide_depth))


def matrix_addr_bits(config: NpuConfig) -> int:
    """Bits of a word address in the matrix memory."""
    return clog2(config.matrix_depth)


def block_addr_bits(config: NpuConfig) -> int:
    """Bits of where a block goes: a narrow address, or with ``m_wr`` the number of a row, too."""
    return max(vector_addr_bits(config), config.matrix_row_bits if config.has(Op.M_WR) else 0)


def program_addr_bits(config: NpuConfig) -> int:
    """Bits of an instruction address."""
    return clog2(config.program_depth)


def _with_windows(config: NpuConfig, *names: str) -> dict[str, int]:
    """Bits that are there only for sliding products."""
    return dict.fromkeys(names, 1) if config.window_taps else {}


def scale_layout(config: NpuConfig) -> dict[str, int]:
    """Fields for accumulators that become codes, and places that products move down: only with ``vv_scale``."""
    return {"scale": 1, "shift": SCALE_SHIFT_BITS} if config.has(Op.VV_SCALE) else {}


def _into_matrix(config: NpuConfig) -> dict[str, int]:
    """Field of blocks that go to the matrix memory instead of the narrow one: only with ``m_wr``."""
    return {"to_matrix": 1} if config.has(Op.M_WR) else {}


def address_layout(bits: int) -> data.StructLayout:
    """Start address and steps per loop level, all of so many bits."""
    return data.StructLayout({"addr": bits, "row": bits, "inner": bits, "outer": bits})


def _fields(op: isa.Op, *names: str) -> dict[str, Shape]:
    layout = isa.FORMS[op].fields
    return {name: Shape(layout[name].width, layout[name].signed) for name in names}


def window_layout(config: NpuConfig) -> data.StructLayout:
    """Everything the tap walker needs that is constant during a chain."""
    bits = vector_addr_bits(config)
    return data.StructLayout(
        {
            **_fields(isa.Op.SET_SHAPE, "cols"),
            **_fields(isa.Op.SET_WINDOW, "kh", "kw"),
            "stride_y": bits,
            "stride_x": bits,
            **_fields(isa.Op.SET_WINDOW, "dil_y", "dil_x"),
            **_fields(isa.Op.SET_PAD, "height", "width"),
        }
    )


def position_shape() -> Shape:
    """A row or column of an image, with room for every reachable position outside of it."""
    return Shape(20, signed=True)


def chain_layout(config: NpuConfig) -> data.StructLayout:
    """Descriptor of a chain, ready to run: all addresses resolved."""
    address = address_layout(vector_addr_bits(config))
    return data.StructLayout(
        {
            "pc": program_addr_bits(config),
            "wide_source": 1,
            "source": address,
            "reduction": Reduction,
            "depthwise": 1,
            **_with_windows(config, "sliding"),
            "matrix": matrix_addr_bits(config),
            "unit0": MFU_CTRL,
            "unit1": MFU_CTRL,
            **scale_layout(config),
            **dict.fromkeys(OPERANDS, address),
            "to_wide": 1,
            "wide": address,
            "to_narrow": 1,
            **_into_matrix(config),
            "narrow": address_layout(block_addr_bits(config)),
            "quant": QUANT_CTRL,
            **_fields(isa.Op.SET_SHAPE, "rows"),
            **_fields(isa.Op.SET_ITERS, "inner", "outer"),
            "window": window_layout(config),
            **_fields(isa.Op.SET_PAD, "y0", "x0", "step_y", "step_x"),
        }
    )


def count_shape(config: NpuConfig) -> Shape:
    """A running count of tracker entries: twice the entries, so that a difference of two counts is never ambiguous."""
    return unsigned(clog2(config.inflight) + 1)


def job_layout(config: NpuConfig) -> data.StructLayout:
    """One walk over the window: the source of one vector (of up to T vectors for a dense product).

    ``starts``: the first one of its chain; ``begins``: of an inner loop; ``columns``: of a sliding product, the columns
    of its window to read.
    """
    return data.StructLayout(
        {
            "wide_source": 1,
            "addr": vector_addr_bits(config),
            "reduction": Reduction,
            "depthwise": 1,
            **_with_windows(config, "sliding", "starts", "begins"),
            **({"columns": _fields(isa.Op.SET_WINDOW, "kw")["kw"]} if config.window_taps else {}),
            "matrix": matrix_addr_bits(config),
            "first_row": 1,
            "vectors": clog2(config.engines),
            "y": position_shape(),
            "x": position_shape(),
            "window": window_layout(config),
            "before_wide": count_shape(config),
            "before_narrow": count_shape(config),
        }
    )


def launch_layout(config: NpuConfig) -> data.StructLayout:
    """Fields of a vector that the launcher needs.

    ``early``: it needs neither a table nor the second multifunction unit.
    """
    units = {"unit0": MFU_CTRL, "unit1": MFU_CTRL}
    return data.StructLayout({"reduction": Reduction, **units, "early": 1, **scale_layout(config)})


def retire_layout(config: NpuConfig) -> data.StructLayout:
    """Fields of a vector that the writeback needs."""
    bits = vector_addr_bits(config)
    return data.StructLayout(
        {
            "pc": program_addr_bits(config),
            "to_wide": 1,
            "wide": bits,
            "to_narrow": 1,
            **_into_matrix(config),
            "narrow": block_addr_bits(config),
            "quant": QUANT_CTRL,
        }
    )


def fetch_layout(config: NpuConfig) -> data.StructLayout:
    """Operand reads of one vector, in the order of :data:`OPERANDS`."""
    return data.StructLayout(
        {
            "enable": len(OPERANDS),
            "addr": data.ArrayLayout(vector_addr_bits(config), len(OPERANDS)),
            "before": count_shape(config),
        }
    )
