"""Networks that overflow on the samples that formats are chosen with."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from concord.compiler.calibration.observed import NotFiniteError, observed
from concord.program.flags import FlagDiagnostic


@dataclass(frozen=True)
class Made:
    flag_diagnostics: tuple = ()


@dataclass(frozen=True)
class Choice:
    error: float
    compiled: Made = Made()


def calibration(flag):
    record = FlagDiagnostic("layer", None, "", flag, "so it is", "this helps")
    return SimpleNamespace(values={}, complete=lambda candidate: ({}, [record]))


@pytest.mark.parametrize("error", [0.101, 0.15, 0.4])
def test_an_overflow_with_an_error_above_ten_percent_is_refused(error):
    with pytest.raises(NotFiniteError, match=f"the error of the result is {100 * error:.0f} %, and layers overflow"):
        observed(Choice(error), calibration("HALF_OVERFLOW"))


@pytest.mark.parametrize(("error", "flag"), [(0.099, "HALF_OVERFLOW"), (0.4, "TABLE_CLAMPED")])
def test_other_errors_are_told(error, flag):
    chosen = observed(Choice(error), calibration(flag))
    assert [record.flag for record in chosen.compiled.flag_diagnostics] == [flag]
