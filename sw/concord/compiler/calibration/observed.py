"""A network that was compiled with samples and run on them: does it raise flags, are its results numbers?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from concord.compiler.calibration.calibration import Calibration, FormatChoice
from concord.program.flags import FlagDiagnostic
from concord.spec.formats import Flag
from concord.utils.arrays import FloatArray

#: Flags that decide between formats, with the message about samples that raise them.
_WEIGHED = (Flag.SATURATED.name, Flag.TABLE_CLAMPED.name)
CHOSEN = "other formats that were tried raise as many flags, or leave clearly more error"


#: Infinities on the way are what a result loses its meaning by, if it errs by more than this, relative to its size.
_OVERFLOW = {Flag.ACC_OVERFLOW.name, Flag.HALF_OVERFLOW.name, Flag.NONFINITE.name}
_SPOILT = 0.1
#: An error of the result from which on it is told with the flags.
_USELESS = 0.5


class NotFiniteError(ValueError):
    """A network that overflows on samples on which it does not in floating point, and whose results show it."""


def observed(candidate: FormatChoice, calibration: Calibration, advice: str = CHOSEN) -> FormatChoice:
    """The candidate, what it is compiled to with the flags that the samples raise.

    Parameters
    ----------
    candidate : FormatChoice
        What is taken.
    calibration : Calibration
        The samples.
    advice : str
        What there is to say of values that are cut off, as samples that cover them are of no use.

    Raises
    ------
    NotFiniteError
        If a result is not finite where it is in floating point, or errs by more than 10 % and a layer has overflowed.
    """
    compiled = candidate.compiled
    outputs, records = calibration.complete(candidate)
    wrong = _not_finite(outputs, calibration.values)
    overflowed = [record.text for record in records if record.flag in _OVERFLOW]
    if overflowed and candidate.error > _SPOILT:
        wrong = wrong or [f"the error of the result is {100 * candidate.error:.0f} %, and layers overflow"]
    if wrong:
        lines = [*wrong, *overflowed]
        raise NotFiniteError(
            "numbers must be finite on the samples, as they are in floating point:" + "".join(f"\n  {x}" for x in lines)
        )
    if candidate.error > _USELESS:
        meaning = f"differs from floating point by {100 * candidate.error:.0f} % on the samples"
        records.append(
            FlagDiagnostic("result", None, "", "ERROR", meaning, "wider mantissas: --mantissa M, or another --preset")
        )
    records = [replace(record, advice=advice) if record.flag in _WEIGHED else record for record in records]
    return replace(candidate, compiled=replace(compiled, flag_diagnostics=tuple(records)))


def _not_finite(outputs: Mapping[str, FloatArray], wanted: Mapping[str, FloatArray]) -> list[str]:
    lines = []
    for name, values in outputs.items():
        reference = wanted[name].reshape(values.shape)
        bad = (~np.isfinite(values) & np.isfinite(reference)).reshape(len(values), -1).any(axis=1)
        if bad.any():
            lines.append(f"{name}: an infinity or NaN for {bad.sum()} of {len(values)} samples")
    return lines
