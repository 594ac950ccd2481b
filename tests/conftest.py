"""What holds for all tests: random numbers do not depend on the tests before, and passes are checked."""

import gc
import random
import secrets
import sys

import numpy as np
import pytest

from concord.pipeline.instruments import Checks
from concord.pipeline.manager import instrumented

pytest_plugins = [
    "support.depth",
    "support.slowness",
    "support.computing_limit",
    "support.property_tests",
    "support.rtl_libraries",
    "support.frameworks",
    "support.chosen_tests",
]

#: Generators of test files as they were before the first test.
_STATES = {}


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays until the end: to look for garbage in it takes a third of the time of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _rewind_models():
    if "support.onnx_models" in sys.modules:
        sys.modules["support.onnx_models"].rewind()


def pytest_collectstart(collector):
    """A file may take numbers when it is imported."""
    if isinstance(collector, pytest.Module):
        _rewind_models()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test may take numbers, and so may its fixtures; a link draws its first sequence number."""
    _rewind_models()
    secrets.randbelow = random.Random(item.nodeid).randrange
    for name, value in vars(item.module).items():
        if isinstance(value, np.random.Generator):
            key = item.module.__name__, name
            value.bit_generator.state = _STATES.setdefault(key, value.bit_generator.state)


@pytest.fixture(scope="session", autouse=True)
def _checked_passes():
    """Whatever a test imports or compiles, the invariants of every level hold behind every pass."""
    with instrumented(Checks()):
        yield
