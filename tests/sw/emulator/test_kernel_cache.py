"""Compiled kernels are kept for all checkouts, and compiled again where their sources differ."""

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from concord.utils.cache import CacheError
from support.compiled_kernels import needs_numba

pytestmark = [pytest.mark.slow, needs_numba]

SOURCE = """
from numba import njit
from concord.emulator.kernel_cache import kept

@kept
@njit
def double(x):
    return 2 * x
"""


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("CONCORD_BUILD", raising=False)
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path / "cache"))


def kernel(folder, text=SOURCE):
    """The function of such a file."""
    folder.mkdir()
    (folder / "kernels.py").write_text(text)
    spec = spec_from_file_location("kernels", folder / "kernels.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


def compiled(function):
    """How often it was compiled for a call, and its place."""
    assert function(21) == 42
    assert sum(function.stats.cache_hits.values()) + sum(function.stats.cache_misses.values()) == 1
    return sum(function.stats.cache_misses.values()), function.stats.cache_path


def test_another_checkout_finds_them(tmp_path):
    times, place = compiled(kernel(tmp_path / "one"))
    assert times == 1 and place.startswith(str(tmp_path / "cache" / "kernels"))
    assert compiled(kernel(tmp_path / "other")) == (0, place)
    times, changed = compiled(kernel(tmp_path / "changed", SOURCE.replace("2 * x", "x + x")))
    assert times == 1 and changed != place


def test_other_definitions_are_compiled_in(tmp_path, monkeypatch):
    """Constants of ``concord.spec`` are in the machine code."""
    from concord.emulator import kernel_cache

    _, place = compiled(kernel(tmp_path / "one"))
    monkeypatch.setattr(kernel_cache, "source_digest", lambda packages: f"other {packages}")
    times, other = compiled(kernel(tmp_path / "other"))
    assert times == 1 and other != place


def test_without_a_place_numba_has_its_own(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path / "file"))
    assert compiled(kernel(tmp_path / "one")) == (1, str(tmp_path / "one" / "__pycache__"))
    monkeypatch.setenv("CONCORD_BUILD", "there")
    with pytest.raises(CacheError, match="CONCORD_BUILD must not be set"):
        kernel(tmp_path / "other")
