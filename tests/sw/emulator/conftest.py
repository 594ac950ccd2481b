"""Emulators with the kernels of NumPy, and with the compiled ones."""

import pytest

from concord.emulator import fused
from support.compiled_kernels import needs_numba


@pytest.fixture(params=["numpy", pytest.param("compiled", marks=needs_numba)])
def both_kernels(request, monkeypatch):
    """A test that uses this runs twice: emulators that may choose never use the compiled kernels, or always do."""
    if request.param == "compiled":
        monkeypatch.setattr(fused, "_WORTH_LOADING", 0)
    else:
        monkeypatch.setattr(fused, "installed", lambda: False)
