"""Operators of TensorFlow Lite that are executed on codes."""

from __future__ import annotations

from concord.integer.tflite.lowering import LOWERED
from concord.integer.tflite.moving import MOVEMENTS
from concord.integer.tflite.operators import OPERATORS as OPERATIONS
from concord.integer.tflite.operators import Operator

#: By the name of the operator in the schema.
OPERATORS: dict[str, Operator] = {**OPERATIONS, **MOVEMENTS, **LOWERED}
