"""Who may know whom: software never sees hardware, hardware sees nothing of the software but the definitions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HARDWARE = {"amaranth", "amaranth_boards", "concord_rtl", "concord_boards"}


def imported(path, package):
    """Absolute names of everything a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = [*above, *([node.module] if node.module else [])]
            yield ".".join(base)
            yield from (".".join([*base, name.name]) for name in node.names)


def sources(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [pytest.param(p, p.relative_to(ROOT / folder).parts[:-1], id=str(p.relative_to(ROOT))) for p in paths]


@pytest.mark.parametrize(("path", "package"), sources("sw"))
def test_software_never_imports_hardware(path, package):
    assert not {name.partition(".")[0] for name in imported(path, package)} & HARDWARE


@pytest.mark.parametrize(("path", "package"), sources("hw") + sources("constraints"))
def test_hardware_imports_only_the_definitions(path, package):
    ours = {name for name in imported(path, package) if name.partition(".")[0] == "concord"} - {"concord"}
    assert not {name for name in ours if not f"{name}.".startswith("concord.spec.")}


@pytest.mark.parametrize(("path", "package"), sources("sw/concord/spec"))
def test_definitions_need_only_the_standard_library(path, package):
    own = ("concord", "spec", *package)
    roots = {name.partition(".")[0] for name in imported(path, own)}
    assert not roots & (HARDWARE | {"numpy"})
    assert all(name.startswith("concord.spec") for name in imported(path, own) if name.startswith("concord"))


def test_the_check_can_fail(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from concord.golden import half\nfrom ..emulator import Emulator\nimport amaranth.hdl\n")
    names = set(imported(bad, ("concord", "spec")))
    assert {"concord.golden.half", "concord.emulator.Emulator", "amaranth.hdl"} <= names
