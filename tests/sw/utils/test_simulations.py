"""Which compiled simulation belongs to a configuration is known without the hardware's packages being imported."""

import shutil
import subprocess
import sys

import pytest

from concord.utils.simulations import LIBRARY, SimulationNote, simulation_entry


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("CONCORD_BUILD", raising=False)
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path))


def builder(key, built):
    """What makes the library of a design, and counts that it did."""

    def build():
        built.append(key)
        return simulation_entry(key).made(lambda folder: (folder / LIBRARY).touch()) / LIBRARY

    return build


def test_it_is_built_once_and_found():
    built = []
    note = SimulationNote({"native": 4}, False, "uart")
    assert note.find() is None
    path = note.made(builder("key", built))
    assert note.made(builder("key", built)) == note.find() == path and path.name == LIBRARY
    assert built == ["key"]


def test_all_that_decides_makes_another():
    built = []
    for config, trace, link in [({}, False, "uart"), ({"a": 1}, False, "uart"), ({}, True, "uart"), ({}, False, "spi")]:
        note = SimulationNote(config, trace, link)
        assert note.find() is None
        note.made(builder("key", built))
    assert len(built) == 4


def test_a_library_that_has_gone_is_built_again():
    """The note is written again, as another compiler makes another library."""
    built = []
    note = SimulationNote({}, False, "uart")
    shutil.rmtree(note.made(builder("first", built)).parent)
    assert note.find() is None
    path = note.made(builder("second", built))
    assert note.find() == path == simulation_entry("second").find() / LIBRARY
    assert built == ["first", "second"]


def test_nothing_of_the_hardware_is_imported():
    code = """
import sys
from concord.utils.simulations import SimulationNote
SimulationNote({}, False, "uart").find()
assert not {"amaranth", "concord_rtl", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
