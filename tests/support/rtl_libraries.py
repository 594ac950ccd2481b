"""Tests that are not marked ``deep`` compile the RTL of few configurations: a plugin refuses others."""

import pytest

from concord.host import rtl
from concord.spec.config import NpuConfig
from support.rtl_configs import NAMED

_KNOWN = {config.fingerprint for config in NAMED}
#: The test that is running.
_running = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Fixtures that a test needs are part of it."""
    global _running
    _running = item


def refuse_others(look_up):
    """A look-up of libraries that takes named configurations alone, if the running test is not marked."""

    def looked_up(config, *options):
        known = NpuConfig.from_dict(config).fingerprint in _KNOWN
        if not known and _running.get_closest_marker("deep") is None:
            raise AssertionError(
                f"{_running.nodeid} must be marked deep, or {config['name']} be one of support.rtl_configs.NAMED"
            )
        return look_up(config, *options)

    return looked_up


@pytest.fixture(scope="session", autouse=True)
def _named_libraries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtl, "SimulationNote", refuse_others(rtl.SimulationNote))
        yield
