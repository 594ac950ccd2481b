"""Which configurations of the RTL tests compile."""

import pytest

from concord.host.rtl import find_library
from concord.spec.presets import TINY
from support.rtl_configs import NAMED
from support.rtl_libraries import refuse_others

OTHER = TINY.replace(name="other", narrow_depth=99)


def test_they_are_few():
    assert len({config.fingerprint for config in NAMED}) == len({config.name for config in NAMED}) == len(NAMED) <= 17


def test_others_are_refused():
    with pytest.raises(AssertionError, match=r"test_others_are_refused must be marked deep, or other be one of"):
        find_library(OTHER)


def test_named_ones_have_any_name_and_clock():
    renamed = TINY.replace(name="renamed", clock_hz=1).to_dict()
    assert refuse_others(lambda config, trace: (config, trace))(renamed, True) == (renamed, True)


@pytest.mark.deep
def test_deep_tests_compile_any():
    other = OTHER.to_dict()
    assert refuse_others(lambda config: config)(other) is other
