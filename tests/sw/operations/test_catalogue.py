"""Operations of the multifunction units: every instruction has a record, and none is taken for another."""

import numpy as np
import pytest

from concord.emulator import kernels
from concord.emulator.reference import ReferenceMachine
from concord.image import Memories
from concord.operations import OPERATIONS
from concord.operations.float32 import Pool
from concord.overflow import intervals
from concord.program.chains import MfuOp
from concord.spec.isa import INSTRUCTIONS, Op, PipelineStage
from concord.spec.presets import TINY

#: Stages of the multifunction units, and instructions that are one operation there.
MFU = range(PipelineStage.MUL0, PipelineStage.WRITE)
ELEMENTWISE = {form.op for form in INSTRUCTIONS if form.stages and set(form.stages) <= set(MFU)}


def test_every_instruction_has_a_record():
    assert OPERATIONS.keys() | {Op.V_TBL, Op.VV_SCALE} == ELEMENTWISE
    assert all(op is operation.op for op, operation in OPERATIONS.items())


def test_an_operation_with_operands_exchanged_is_the_other_one():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << 16, (2, 1000)).astype(np.uint16)
    exchanged = [operation for operation in OPERATIONS.values() if operation.exchanged is not None]
    assert exchanged
    for operation in exchanged:
        assert np.array_equal(operation.golden(a, b), OPERATIONS[operation.exchanged].golden(b, a))


def test_an_instruction_that_is_not_known_is_no_relu():
    """It is an error with its name, in the definition and in the fast implementation."""
    machine, x = ReferenceMachine(Memories(TINY)), np.zeros(4, np.float32)
    with pytest.raises(KeyError, match="V_REDMAX"):
        machine._mfu_op(None, MfuOp(Op.V_REDMAX, PipelineStage.ACT0), None, x.view(np.uint32).astype(np.uint16))
    for operands in ([x], [x, x]):
        with pytest.raises(KeyError, match="V_REDMAX"):
            kernels.elementwise(Op.V_REDMAX, operands, x.copy(), Pool())
    bounds = intervals.Bounds.__new__(intervals.Bounds)
    for operand in (None, (x, x)):
        with pytest.raises(KeyError, match="V_REDMAX"):
            bounds._step(Op.V_REDMAX, None, (x, x), operand)
