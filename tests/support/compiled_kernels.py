"""Tests of the compiled kernels of the emulator."""

import pytest

from concord.emulator import fused

needs_numba = pytest.mark.skipif(not fused.installed(), reason="needs Numba, of the extra fast")
