"""What holds for all tests: random numbers do not depend on the tests before, and passes are checked."""

import gc
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
