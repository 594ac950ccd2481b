"""Which tests a change reaches, in a small project in which every way to use a module occurs once."""

from pathlib import PurePath

import pytest

from concord_bench.pictures.sources import modules
from support import families
from support.imports import LOADERS, PACKAGES, ROOT, Sources

FILES = {
    "sw/concord/__init__.py": "VERSION = '1'\ndef __getattr__(name):\n    from concord import front\n",
    "sw/concord/front.py": "from concord.parts.machine import Machine\n",
    "sw/concord/parts/__init__.py": "from .numbers import add\nfrom concord.parts.machine import Machine as Device\n",
    "sw/concord/parts/numbers.py": "def add(): pass\n",
    "sw/concord/parts/machine.py": '"""concord.parts.words"""\n'
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from concord.parts.numbers import add\n",
    "sw/concord/parts/words.py": "",
    "sw/concord/parts/table.txt": "",
    "sw/concord/tool/__main__.py": "from concord.parts import words\n",
    "sw/concord/host/rtl.py": "import sys\nCOMMAND = [sys.executable, '-m', 'concord_rtl.build', 'tiny']\n",
    "sw/concord/host/text.py": "",
    "sw/concord/machine.py": "from concord.host import rtl\n",
    "hw/concord_rtl/__init__.py": "",
    "hw/concord_rtl/build.py": "from concord_rtl import adder\n",
    "hw/concord_rtl/adder.py": "",
    "docs/page.md": "",
    "docs/other.md": "",
    "tests/conftest.py": "import sys\nsys.modules['support.nets']\npytest_plugins = ['support.plugin']\n",
    "tests/script.py": "from concord.parts import numbers\n",
    "tests/support/__init__.py": "",
    "tests/support/plugin.py": "from support import seconds\n",
    "tests/support/seconds.py": "",
    "tests/support/nets.py": "from concord.front import x\n",
    "tests/docs/test_pages.py": "",
    "tests/sw/conftest.py": "",
    "tests/sw/test_add.py": "def test():\n    from concord.parts import add\n",
    "tests/sw/test_device.py": "from concord.parts import Device\n",
    "tests/sw/test_everything.py": "import concord\n",
    "tests/sw/test_version.py": "from concord import VERSION\n",
    "tests/sw/test_tool.py": "import sys\nWORDS = [sys.executable, '-m', 'concord.tool']\n",
    "tests/sw/test_replaced.py": "def test(monkeypatch):\n    monkeypatch.setattr('concord.parts.words.x', 1)\n",
    "tests/sw/test_host.py": "from concord.host import rtl\n",
    "tests/sw/test_machine.py": "from concord import machine\n",
    "tests/sw/test_command.py": "from support.commands import run\nrun('--on rtl')\n",
    "tests/sw/test_nets.py": "from support import nets\n",
    "tests/sw/test_page.py": "from pathlib import Path\nPAGE = Path(__file__).parents[2] / 'docs' / 'page.md'\n",
    "tests/sw/test_table.py": "FILE = 'table.txt'\n",
    "tests/test_script.py": "import script\n",
    "tests/test_seconds.py": "from support.seconds import x\n",
    "sim/conftest.py": "pytest_plugins = ['support.plugin']\n",
    "sim/cases.py": "CASES = ['sw.test_add']\n",
    "sim/test_units.py": "import cases\n",
    "sim/replay_tb.py": "",
}  # fmt: skip
TESTS = {name for name in FILES if "/test_" in name}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Sources(root)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("sw/concord/parts/numbers.py", "add units script"),  # by the name in its package; not for type checkers
        ("sw/concord/parts/machine.py", "device everything nets"),  # nor by a docstring
        ("sw/concord/front.py", "everything nets"),
        ("sw/concord/parts/words.py", "tool replaced"),
        ("sw/concord/parts/__init__.py",
         "add device everything nets replaced tool units script"),
        ("sw/concord/host/rtl.py", "host machine"),
        ("hw/concord_rtl/adder.py", "pages command host"),  # not what uses it by way of others
        ("tests/support/nets.py", "nets"),
        ("tests/support/seconds.py", "seconds"),
        ("tests/script.py", "script"),
        ("tests/sw/test_add.py", "add units"),
        ("sim/replay_tb.py", "units"),
        ("tests/sw/test_new.py", ""),
        ("docs/page.md", "pages page"),
        ("docs/other.md", "pages"),
        ("sw/concord/parts/table.txt", "table"),
        ("tests/deep.toml", ""),
        ("Makefile", ""),
    ],
)  # fmt: skip
def test_what_a_change_reaches(project, changed, tests):
    assert {PurePath(file).stem.removeprefix("test_") for file in project.reached([changed])} == {*tests.split()}


@pytest.mark.parametrize("changed", ["sw/concord/host/page.html", "sw/concord/host/text.py"])
def test_a_file_that_nothing_names_reaches_what_uses_the_modules_beside_it(project, changed):
    assert set(project.reached([changed])) == {"tests/sw/test_host.py", "tests/sw/test_machine.py"}


@pytest.mark.parametrize("changed", ["pyproject.toml", "tests/support/plugin.py"])
def test_what_reaches_all(project, changed):
    assert set(project.reached([changed])) == set(project.test_files()) == TESTS


@pytest.mark.parametrize("folder", ["tests/", "tests/sw/", "sim/"])
def test_a_file_for_all_tests_of_a_folder(project, folder):
    """Those of ``sim`` use a test of each other folder here."""
    users = {name for name in TESTS if name.startswith(folder)} | {"sim/test_units.py"}
    assert set(project.reached([f"{folder}conftest.py"])) == users


def test_the_nearest_change_counts(project):
    reached = project.reached(["tests/support/nets.py", "sw/concord/parts/machine.py", "tests/sw/test_add.py"])
    assert reached == {
        "sim/test_units.py": 2,
        "tests/sw/test_add.py": 0,
        "tests/sw/test_device.py": 1,
        "tests/sw/test_everything.py": 3,
        "tests/sw/test_nets.py": 1,
    }


def test_modules_that_are_loaded_by_names_are_known():
    software = modules(ROOT / "sw" / "concord")
    loaders = {name for name, path in software.items() if "import_module(" in path.read_text()}
    assert loaders == {name for name in LOADERS if name.startswith("concord.")}


@pytest.mark.slow
def test_what_changes_of_the_project_reach():
    sources = Sources()
    assert "tests/sw/cli/test_cli.py" in sources.reached(["sw/concord/cli/derive.py"])
    assert "tests/sw/networks/test_records.py" in sources.reached(["sw/concord/integer/float32.py"])
    of_the_rtl = sources.reached(["hw/concord_rtl/core/top.py"])
    assert {"tests/rtl/test_programs.py", "tests/rtl/test_training_rtl.py"} <= set(of_the_rtl)
    assert "tests/sw/spec/test_isa.py" not in of_the_rtl
    assert set(sources.reached(["tests/support/slowness.py"])) == set(sources.test_files()) == {*families.test_files()}
    paths = (path for folder in PACKAGES for path in modules(ROOT / folder).values())
    assert [path for path in paths if not sources.reached([path.relative_to(ROOT).as_posix()])] == []
