"""``concord inspect``: formats of layers, memory map and program."""

import re
from dataclasses import replace

import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.examples import softmax
from concord.program.assembler import assemble, disassemble
from concord.report.prefixes import layer_at
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.commands import run
from support.compiled_nets import attention, gru, residual
from support.onnx_models import floats, model, node
from support.row_tiled_nets import separable


@pytest.fixture
def file(tmp_path):
    """Writes the image of a network."""

    def write(graph, formats=None):
        compiled = compile_graph(graph, TINY, *([formats] if formats else []))
        compiled.image.save(tmp_path / "net.image")
        return compiled, tmp_path / "net.image"

    return write


@pytest.mark.slow
def test_layers_with_their_formats(file):
    tensor = compile_graph(residual(), TINY).lowered.layers[0].tensor
    compiled, path = file(residual(), Formats({tensor: 2}, mantissas={"first": 5}))
    code, output = run("inspect", path, "--only", "layers")
    assert code == 0 and "Program" not in output and "Memory map" not in output
    for index, layer in enumerate(compiled.lowered.layers):
        (line,) = re.findall(rf"^ +{index} +{layer.name} .*$", output, re.M)
        wide = compiled.package.formats.mantissa(layer, TINY) if layer.weights else None
        assert (f" {wide} bits (" in line) == bool(layer.weights)
        assert ("static exponent 2" in line) == (layer.tensor in compiled.package.formats.exponents)
    assert "static exponent 2" in output and " 5 bits (" in output


def words(allocations, region):
    return [
        k
        for one in allocations
        if one["memory"] == region.name.lower()
        for k in range(one["address"], one["address"] + one["words"])
    ]


@pytest.mark.parametrize("make", [residual, gru, attention, lambda: separable(24)])
def test_the_map_has_what_is_loaded(file, make):
    """Every word once, by the address that the program uses."""
    compiled, _ = file(make())
    constants = [one for one in compiled.image.metadata["map"] if "layers" not in one]
    for region, unit in ((RegionId.MATRIX, TINY.rows), (RegionId.WIDE, 1), (RegionId.SLOTS, 1)):
        held = words(constants, region)
        parts = [part for part in compiled.image.segments if part.region is region]
        loaded = {k // unit for part in parts for k in range(part.start, part.start + part.count)}
        assert len(set(held)) == len(held) and set(held) == loaded


@pytest.mark.parametrize("make", [residual, gru, attention])
def test_the_map_has_the_ports(file, make):
    compiled, path = file(make())
    lines = [line.split()[:3] for line in run("inspect", path, "--only", "memory")[1].splitlines()]
    for port in (*compiled.image.inputs, *compiled.image.outputs):
        first, last = port.address, port.address + port.vectors(TINY) - 1
        assert [port.region.name.lower(), str(first), str(last)] in lines


@pytest.mark.parametrize("make", [residual, gru, lambda: separable(24)])
def test_the_program_names_layers(file, make):
    """The listing assembles to the program; what stands above an instruction is the layer that it belongs to."""
    compiled, path = file(make())
    listing = run("inspect", path, "--only", "program")[1].split("\nProgram\n")[1].splitlines()
    layer, texts = None, []
    for line in listing:
        if found := re.search(r"# .*layer (\d+): (\S+)$", line):
            layer = int(found[1])
            assert compiled.lowered.layers[layer].name == found[2]
        elif found := re.match(r" *(\d+)  (.+)$", line):
            assert int(found[1]) == len(texts)
            if layer is not None and found[2] != "halt":
                assert layer_at(compiled, len(texts)) == layer
            texts.append(found[2])
    assert tuple(assemble("\n".join(texts))) == compiled.image.program
    assert sum("phase" in line for line in listing) == len(compiled.image.phases)


def test_programs_written_by_hand(tmp_path):
    example = softmax(TINY)
    example.image().save(tmp_path / "softmax.image")
    output = run("inspect", tmp_path / "softmax.image")[1]
    assert "reciprocal of their sum in every element" in output
    listing = [line[6:] for line in output.split("\nProgram\n")[1].splitlines()]
    assert listing == disassemble(example.image().program).splitlines()
    assert all(part in output for part in ("Inputs and outputs", "What is loaded", "Memory map"))
    assert "Layers" not in output


def test_names_with_brackets_are_shown_as_they_are(tmp_path):
    """They mean nothing to the terminal."""
    nodes = [node("MatMul", ["x", "w"], ["a"], name="[/b]"), node("Relu", ["a"], ["y"], name="[red]")]
    proto = model(nodes, {"x": (1, 6)}, constants={"w": floats(6, 3)})
    (tmp_path / "[bold].onnx").write_bytes(proto.SerializeToString())
    assert run("compile", tmp_path / "[bold].onnx", "--preset", "tiny")[0] == 0
    code, output = run("inspect", tmp_path / "[bold]")
    assert code == 0 and "[/b]" in output and "[bold]: for tiny" in output


@pytest.mark.parametrize("key, value", [("layers", [1]), ("layers", [{"name": 3}]), ("map", 5), ("program", [5])])
def test_metadata_of_another_kind_are_one_message(tmp_path, key, value):
    image = softmax(TINY).image()
    replace(image, metadata={**image.metadata, key: value}).save(tmp_path / "a.image")
    code, output = run("inspect", tmp_path / "a.image")
    assert code == 1 and output.endswith(
        "a.image must have metadata as a compilation writes them; compile the network again\n"
    )


def test_multiplications_are_told_as_such(tmp_path):
    """Those of 10 x 3 weights, with native vectors of four elements: two are zeros."""
    proto = model([node("Gemm", ["x", "w"], ["y"])], {"x": (1, 10)}, constants={"w": floats(10, 3)})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert run("compile", tmp_path / "net.onnx", "--preset", "tiny", "-o", tmp_path / "net")[0] == 0
    output = run("inspect", tmp_path / "net")[1]
    assert "  multiply-accumulates, inputs padded to whole vectors: 36\n" in output and "slots:" not in output
