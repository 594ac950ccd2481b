"""Operations of the multifunction units: every implementation knows all of them, and takes none for another."""

import numpy as np
import pytest

from concord.derive import chains
from concord.emulator import kernels
from concord.emulator.reference import ReferenceMachine
from concord.golden.operations import BINARY, UNARY
from concord.image import Memories
from concord.overflow import intervals
from concord.program.chains import MfuOp
from concord.spec.isa import INSTRUCTIONS, Op, PipelineStage
from concord.spec.presets import TINY

#: Stages of the multifunction units, and instructions that are one operation there.
MFU = range(PipelineStage.MUL0, PipelineStage.WRITE)
ELEMENTWISE = {one.op for one in INSTRUCTIONS if one.stages and set(one.stages) <= set(MFU)}


def test_every_instruction_has_an_operation():
    assert UNARY.keys() | BINARY.keys() | {Op.V_TBL} == ELEMENTWISE
    assert not UNARY.keys() & BINARY.keys()


def test_implementations_know_the_same_operations():
    assert kernels.UNARY.keys() == chains._UNARY.keys() == intervals._UNARY.keys() == UNARY.keys()
    assert kernels._ARITHMETIC.keys() | kernels._ORDER.keys() == chains._OPERATORS.keys() == BINARY.keys()


def test_an_instruction_that_is_not_known_is_no_relu():
    """It is an error with its name, in the definition and in the fast implementation."""
    machine, x = ReferenceMachine(Memories(TINY)), np.zeros(4, np.float32)
    with pytest.raises(KeyError, match="V_REDMAX"):
        machine._mfu_op(None, MfuOp(Op.V_REDMAX, PipelineStage.ACT0), None, x.view(np.uint32).astype(np.uint16))
    with pytest.raises(KeyError, match="V_REDMAX"):
        kernels.UNARY[Op.V_REDMAX](x, x)
    with pytest.raises(KeyError, match="V_REDMAX"):
        kernels.binary(Op.V_REDMAX, x, x, x.copy(), kernels.Pool())
    bounds = intervals.Bounds.__new__(intervals.Bounds)
    for operand in (None, (x, x)):
        with pytest.raises(KeyError, match="V_REDMAX"):
            bounds._step(Op.V_REDMAX, None, (x, x), operand)
