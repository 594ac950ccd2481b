"""Who may know whom: software never sees hardware, hardware of the software the definitions and the cache alone.

The stages of the compiler import in one direction, without a circle between files; imports for type checkers count.
"""

import re

import numpy as np
import pytest

import concord
from concord.api import targets
from concord.pipeline.manager import unobserved
from concord.spec.operations import NEEDS
from concord_bench.pictures.sources import PACKAGES, ROOMS, ROOT, imported, imports, layers, modules, packages
from support import quantised_nets
from support.commands import two_products
from support.host_stage_nets import too_large
from support.upward_calls import upward_calls

#: Functions that call a later package when a network is compiled, each with one such package, at most. Imports go down
#: alone; passes, rules and observers are handed down, and called.
UPWARD_CALLS = 8

#: Files of software and hardware that may name a parameter without which there are no such operations.
NAMING_FILES = 8

#: Rooms of the compiler, each of which may import from those in front of it alone.
STAGES = ("ir", "lowering", "memory", "emission", "pipeline", "model", "calibration", "codes")
#: Packages that may not import the emulator, though it is below them: they say the same of a program in another way.
WITHOUT_EMULATOR = ("derive", "overflow")
#: What hardware may import of the software: the definitions, and the cache in which both find what was compiled.
SHARED = ("concord.spec.", "concord.utils.cache.", "concord.utils.simulations.")
HARDWARE = {"amaranth", "amaranth_boards", "concord_rtl", "concord_boards"}


def sources(*folders):
    """Files of folders, each with the packages that it is in below its folder."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.relative_to(ROOT / folder).parts[:-1]


def offenders(files, forbidden):
    """What is imported and must not be, by file: ``forbidden`` takes the full name of an import."""
    names = {str(path): sorted(filter(forbidden, imported(path, package))) for path, package in files}
    return {path: imports for path, imports in names.items() if imports}


def root(name):
    return name.partition(".")[0]


def beside_the_definitions(name):
    return root(name) == "concord" and name != "concord" and not f"{name}.".startswith(SHARED)


def beside_the_standard_library(name):
    """What definitions may not import: of the software only themselves."""
    own = root(name) == "concord" and not name.startswith("concord.spec")
    return own or root(name) in HARDWARE | {"numpy"}


@pytest.mark.slow
def test_software_never_imports_hardware():
    assert not offenders(sources("sw"), lambda name: root(name) in HARDWARE)


@pytest.mark.slow
def test_the_product_never_imports_its_measurements():
    assert not offenders(sources("sw", "hw", "constraints"), lambda name: root(name) == "concord_bench")


def test_hardware_imports_only_the_definitions():
    assert not offenders(sources("hw", "constraints"), beside_the_definitions)


def test_definitions_need_only_the_standard_library():
    own = [(path, ("concord", "spec", *package)) for path, package in sources("sw/concord/spec")]
    assert not offenders(own, beside_the_standard_library)


def circle(graph):
    """Modules of which each imports the next one, the last one the first; empty if there are none."""
    done = set()

    def follow(name, way):
        if name in way:
            return way[way.index(name) :]
        if name in done:
            return []
        found = next((found for one in sorted(graph[name]) if (found := follow(one, [*way, name]))), [])
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := follow(name, []))), [])


def upwards(graph):
    """Pairs of modules of the compiler of which the first is of an earlier stage than the second, which it imports."""

    def stage(name):
        parts = name.split(".")[2:3]
        return STAGES.index(parts[0]) if parts else len(STAGES)

    return [(name, one) for name in graph for one in sorted(graph[name]) if stage(one) > stage(name)]


def compiler():
    """What modules of the compiler import of each other; the package itself holds nothing."""
    found = modules(ROOT / "sw" / "concord" / "compiler")
    named = {f"concord.{name}": path for name, path in found.items() if path.name != "__init__.py"}
    return imports(named)


def test_stages_of_the_compiler_import_in_one_direction():
    graph = compiler()
    assert {name.split(".")[2] for name in graph} == set(STAGES)
    assert upwards(graph) == []


def test_the_compiler_has_no_circle():
    assert circle(compiler()) == []


def up_the_list(graph, order):
    """Pairs of packages of which the first stands in front of the second, which it imports."""
    return [(name, other) for name in graph for other in graph[name] if order.index(other) > order.index(name)]


@pytest.mark.parametrize("folder", ["sw/concord", "hw/concord_rtl", "constraints/concord_boards"])
def test_no_module_imports_itself_by_way_of_others(folder):
    """Packages themselves are left out: to import a module of one is no need of what else it exports."""
    files = modules(ROOT / folder)
    assert circle(imports({name: path for name, path in files.items() if path.name != "__init__.py"})) == []


def test_packages_import_in_one_direction():
    for folder, order in (("sw/concord", PACKAGES), ("hw/concord_rtl", ROOMS)):
        graph = packages(modules(ROOT / folder))
        assert set(graph) == set(order)
        assert up_the_list(graph, order) == []


def test_layers_are_as_low_as_possible():
    graph = {"a": set(), "b": {"a"}, "c": set(), "d": {"a", "b"}, "e": {"a"}}
    assert layers(graph, "abcde") == [["a", "c"], ["b", "e"], ["d"]]
    with pytest.raises(ValueError, match=r"order must have the packages \['a', .*'e'\], not \['a', 'b'\]"):
        layers(graph, "ab")
    with pytest.raises(ValueError, match="b must stand behind what it imports, a"):
        layers(graph, "bacde")


def test_an_import_up_the_list_is_noticed(tmp_path):
    files = {"concord_rtl.parts.shapes": "from concord_rtl.core.top import Top\n", "concord_rtl.core.top": ""}
    paths = {name: tmp_path / f"{name}.py" for name in files}
    for name, text in files.items():
        paths[name].write_text(text)
    assert up_the_list(packages(paths), ROOMS) == [("parts", "core")]


def emulating(files):
    """Modules of packages that go without the emulator which import it all the same, with what they import of it."""
    return [
        (name, one)
        for name, ones in imports(files).items()
        for one in sorted(ones)
        if {*name.split(".")[1:2]} & {*WITHOUT_EMULATOR} and one.split(".")[1:2] == ["emulator"]
    ]


def test_what_needs_programs_alone_goes_without_the_emulator():
    assert set(WITHOUT_EMULATOR) < set(PACKAGES)
    assert emulating(modules(ROOT / "sw" / "concord")) == []


def test_an_import_of_the_emulator_is_found(tmp_path):
    paths = {
        name: tmp_path / f"{name}.py" for name in ("concord.emulator.lanes", "concord.derive.flow", "concord.host")
    }
    paths["concord.emulator.lanes"].write_text("")
    for name in ("concord.derive.flow", "concord.host"):
        paths[name].write_text("def late():\n    from concord.emulator.lanes import Lanes\n")
    assert emulating(paths) == [("concord.derive.flow", "concord.emulator.lanes")]


def test_circles_and_wrong_directions_are_found(tmp_path):
    files = {
        "concord.compiler.ir.one": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n"
        "    from concord.compiler.lowering.two import Two\n",
        "concord.compiler.lowering.two": "from concord.compiler.ir import one\n",
        "concord.compiler.memory.three": "from concord.compiler.lowering.two import Two\n",
    }
    paths = {name: tmp_path / f"{name}.py" for name in files}
    for name, text in files.items():
        paths[name].write_text(text)
    graph = imports(paths)
    assert upwards(graph) == [("concord.compiler.ir.one", "concord.compiler.lowering.two")]
    assert circle(graph) == ["concord.compiler.ir.one", "concord.compiler.lowering.two"]
    graph["concord.compiler.ir.one"] = set()
    assert (upwards(graph), circle(graph)) == ([], [])


def test_the_check_can_fail(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from concord.golden import binary16\nfrom ..emulator import Emulator\nimport amaranth.hdl\n")
    files = [(bad, ("concord", "spec"))]
    names = ["amaranth.hdl", "concord.emulator.Emulator", "concord.golden.binary16"]
    assert set(names) <= set(offenders(files, beside_the_standard_library)[str(bad)])
    assert set(names[1:]) <= set(offenders(files, beside_the_definitions)[str(bad)])
    assert offenders(files, lambda name: root(name) in HARDWARE) == {str(bad): names[:1]}
    assert not offenders(files, lambda name: root(name) == "concord_bench")


@pytest.mark.slow
def test_compiling_calls_few_functions_of_later_packages(tmp_path, monkeypatch):
    found, compile_for = {}, targets.compile_for

    def watched(*arguments):
        with unobserved(), upward_calls() as calls:
            compilation = compile_for(*arguments)
        for place, functions in calls.items():
            found.setdefault(place, set()).update(functions)
        return compilation

    monkeypatch.setattr("concord.api.compile_for", watched)
    samples = {"x": np.load(two_products(tmp_path) / "x.npz")["x"][:8]}
    concord.compile(tmp_path / "net.onnx", board="ulx3s-85f")
    concord.compile(tmp_path / "net.onnx", preset="tiny", calibrate=samples, accumulator="auto")
    concord.compile(quantised_nets.network(), preset="ecp5-25f")
    concord.compile(too_large(), preset="ecp5-25f", partition="any")
    assert ("pipeline.manager._run", "compiler") in found, "the count sees nothing"
    offenders = [f"{caller} calls {', '.join(sorted(ones))}" for (caller, _), ones in sorted(found.items())]
    assert len(offenders) <= UPWARD_CALLS, "\n".join(offenders)


def test_the_page_lists_the_packages_in_order():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Packages")[2]
    software, _, hardware = text.partition("| room |")
    assert [*_named(software), "__main__"] == list(PACKAGES)
    assert _named(hardware) == list(ROOMS)


def _named(text):
    return [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("parameter", sorted(set(NEEDS.values())))
def test_parameters_of_operations_are_named_in_few_files(parameter):
    """All others ask whether a configuration has an operation."""
    word = re.compile(rf"\bconfig\.{parameter}\b" if parameter in ROOMS else rf"\b{parameter}\b")
    naming = [path for path, _ in sources("sw", "hw") if word.search(path.read_text())]
    assert 0 < len(naming) <= NAMING_FILES, naming
