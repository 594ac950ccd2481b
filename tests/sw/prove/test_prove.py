"""All implementations beside the emulator: everything is compared, nothing differs, and one bit is found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.derive import ir
from concord.emulator import ReferenceMachine, fused, kernels
from concord.golden import binary16
from concord.graph.ir import Node
from concord.host import connect
from concord.image import Memories
from concord.operations import OPERATIONS
from concord.program import trace
from concord.program.builder import ProgramBuilder
from concord.prove import Subject, machines, prove, runtimes
from concord.prove.page import render
from concord.spec.formats import BINARY16_MAX
from concord.spec.isa import Mem, Op
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support import compiled_nets, expressions
from support.derived_backends import needs_c
from support.derived_modules import image_of_memories, program_rng
from support.expressions import ROOMY, tensor
from support.frameworks import needs
from support.program_gen import random_program
from support.rtl_configs import COPYING
from support.small_examples import SMALL

HERE = ("numpy", "onnx")
WITH_C = (*HERE, pytest.param("c", marks=needs_c))


def network(name="residual", config=ROOMY, batch=1):
    package = compile_graph(getattr(compiled_nets, name)(), config, batch=batch).package
    return Subject(name, package.image, package)


def of_layers(one):
    return {name: count for name, count in one.layers.items() if name != "results"}


@pytest.fixture(scope="module")
def residual():
    return network()


# Nothing differs, and nothing is left out -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "gru", "attention", "large_windows"])
def test_networks(name):
    subject = network(name)
    proof = prove(subject, samples=9, only=[*HERE, "reference"])
    assert [one.name for one in proof.comparisons] == [*HERE, "reference"]
    assert proof.count.different == 0
    everything = sum(len(one.keep) for chain in subject.chains for one in chain) * subject.image.config.native
    for one in proof.comparisons[:2]:
        found = sum(count.values for count in of_layers(one).values())
        assert found == 9 * sum(len(w.place) for chain in subject.chains for w in chain)
        assert found > 0.99 * 9 * everything  # lanes that nothing depends on are not derived
        assert set(of_layers(one)) == set(proof.layers) - {"results"}


def test_several_samples_in_a_run():
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4).package
    proof = prove(Subject("perceptron", package.image, package), samples=6, only=[*HERE, "reference"])
    assert proof.count.different == 0
    assert {one.samples for one in proof.comparisons} == {6, 4}


def test_a_network_whose_weights_are_copied():
    package = compile_graph(compiled_nets.perceptron(24, 70, 40, 3), COPYING).package
    assert trace(package.image.program, COPYING).copies
    proof = prove(Subject("perceptron", package.image, package), samples=3, only=["numpy", "reference"])
    assert [one.name for one in proof.comparisons] == ["numpy", "reference"] and proof.count.different == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_examples(name):
    proof = prove(Subject(name, SMALL[name]().image()), samples=5, only=[*HERE, "reference"])
    assert proof.count.different == 0
    assert all(one.count.values for one in proof.comparisons)


@pytest.mark.slow
def test_the_rtl():
    subject = Subject("gru", SMALL["gru"]().image())
    (one,) = prove(subject, samples=2, machine_samples=2, only=["rtl"]).comparisons
    assert one.count.different == 0 and one.count.values > 200


@needs("torch")
def test_torch():
    proof = prove(network("gru"), samples=9, only=["torch"])
    assert proof.count.different == 0 and proof.comparisons[0].samples == 9


@pytest.mark.slow
@needs_c
def test_c():
    """It has no part of the host, which is said; and is run only for who asks for it."""
    graph = compiled_nets.perceptron(6, 9, 3)
    (end,) = graph.outputs
    graph.nodes.append(Node("Softmax", "shares", (end,), ("shares",), {"axis": 1}))
    graph.outputs[:], graph.shapes["shares"] = ["shares"], graph.shapes[end]
    graph.batched.add("shares")
    package = compile_graph(graph, ROOMY).package
    assert package.host_graph is not None
    subject = Subject("softmax", package.image, package)
    (comparison,) = prove(subject, samples=5, only=["c"]).comparisons
    assert comparison.count.different == 0 and comparison.count.values > 50
    assert comparison.notes == ["what the host computes is left out"]
    proof = prove(subject, samples=2, machine_samples=0)
    assert proof.left_out["c"] == "not asked for; --with c does it"


# One bit ----------------------------------------------------------------------------------------------


def flip_a_weight(monkeypatch, name, layer):
    """One bit of one weight of derived software of one kind; returns the row of the matrix."""
    backend = runtimes.BACKENDS[name]

    def changed(node):
        if isinstance(node, ir.MatMul) and node.layer == layer:
            weight = node.weight.copy()
            row, column = np.argwhere(weight)[-1]
            weight[row, column] += 2.0 ** (np.frexp(weight[row, column])[1] - 8)
            return replace(node, weight=weight)
        return node

    def write(model, path):
        body = ir.Body(tuple(changed(node) for node in model.body))
        backend.write(replace(model, body=body), path)

    monkeypatch.setitem(runtimes.BACKENDS, name, replace(backend, write=write))


def weight_is_noticed(monkeypatch, subject, name):
    layer = next(n.layer for n in subject.observed.model.body if isinstance(n, ir.MatMul))
    flip_a_weight(monkeypatch, name, layer)
    (one,) = prove(subject, samples=9, only=[name]).comparisons
    assert one.count.different > 0
    assert one.first.layer == layer
    assert any("mv_mul" in line for line in one.first.instructions)
    assert one.first.instructions[0].startswith("v_rd narrow")
    before = list(of_layers(one)).index(layer)
    assert all(not count.different for count in list(of_layers(one).values())[:before])


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_C)
def test_a_bit_of_a_weight(name, residual, monkeypatch):
    weight_is_noticed(monkeypatch, residual, name)


@needs("torch")
def test_a_bit_of_a_weight_torch(residual, monkeypatch):
    weight_is_noticed(monkeypatch, residual, "torch")


def test_a_bit_of_one_element_has_its_place(residual, monkeypatch):
    """The word, the lane and the sample are those of the value that is changed."""
    load, output = runtimes.Runtime.load, residual.observed.model.outputs[3].name

    def broken(kind, model, folder, name):
        step = load(kind, model, folder, name)

        def changed(inputs):
            found = dict(step(inputs))
            if name == "observed":
                first = found[output] = np.array(found[output])
                first.reshape(len(first), -1)[4, 5] += 2.0**-24
            return found

        return changed

    monkeypatch.setattr(runtimes.Runtime, "load", broken)
    (one,) = prove(residual, samples=9, only=["numpy"]).comparisons
    assert one.count.different >= 1 and one.first.sample == 4
    sizes = np.cumsum([0, *(value.size for value in residual.observed.model.outputs)])
    at = int(sizes[3]) + 5
    entries = [w for chain in residual.chains for w in chain if (w.place == at).any()]
    vector, lane = entries[0].inside[np.flatnonzero(entries[0].place == at)[0]]
    kept = entries[0].keep[vector]
    store = entries[0].store
    assert one.first.place == f"{store.mem.name.lower()}[{store.address[kept]}]"
    assert (one.first.element, one.first.pc, one.first.execution) == ((lane,), store.pc, store.chain)
    assert float(one.first.other) == float(one.first.emulator) + 2.0**-24


@pytest.mark.slow
def test_a_bit_of_the_emulator(residual, monkeypatch):
    relu = OPERATIONS[Op.V_RELU]

    def broken(x, out, pool):
        relu.kernel(x, out, pool)
        bits = kernels.encode(out[0, 0, 0])
        out[0, 0, 0] = kernels.decode(bits ^ np.uint16(0x4000))  # a lower bit may be gone in a block

    monkeypatch.setitem(OPERATIONS, Op.V_RELU, replace(relu, kernel=broken))
    monkeypatch.setattr(fused, "installed", lambda: False)  # no compiled kernels, which have a ReLU of their own
    proof = prove(residual, samples=3, only=[*HERE, "reference"])
    for one in proof.comparisons:
        assert one.count.different > 0
        assert any("v_relu" in line for line in one.first.instructions)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_C)
def test_a_flag_that_is_missing(name, monkeypatch):
    """Random programs raise flags; a kind of derived software that leaves one out differs."""
    words, memories = random_program(TINY, program_rng("flags"), 12)
    subject = Subject("flags", image_of_memories(words, memories))
    (right,) = prove(subject, samples=4, only=[name]).comparisons
    assert right.count.different == 0
    load = runtimes.Runtime.load_flagged

    def broken(kind, model, folder, stem):
        step = load(kind, model, folder, stem)

        def changed(inputs):
            outputs, raised = step(inputs)
            return outputs, dict(list(raised.items())[1:])

        return changed

    monkeypatch.setattr(runtimes.Runtime, "load_flagged", broken)
    (one,) = prove(subject, samples=4, only=[name]).comparisons
    assert one.count.different > 0 and one.first.place.startswith("flag ")
    assert (one.first.emulator, one.first.other) == ("raised", "not raised")


def test_nans_that_signal_are_compared_without_a_warning():
    builder = ProgramBuilder()
    builder.v_rd(Mem.WIDE, 20)
    builder.v_wr(Mem.WIDE, 40)
    builder.halt()
    memories = Memories(TINY)
    memories.wide[20] = 0x7C01
    memories.program[: len(builder.words())] = builder.words()
    proof = prove(Subject("copy", image_of_memories(builder.words(), memories)), samples=2, only=["numpy", "reference"])
    assert all(one.count.values and not one.count.different for one in proof.comparisons)


def test_a_bit_of_the_reference_machine(residual, monkeypatch):
    right = ReferenceMachine._mfu_op

    def broken(self, chain, mfu_op, operand, x):
        found = right(self, chain, mfu_op, operand, x)
        return found ^ np.uint16(0x4000 * (mfu_op.op is Op.V_RELU))

    monkeypatch.setattr(ReferenceMachine, "_mfu_op", broken)
    (one,) = prove(residual, samples=2, only=["reference"]).comparisons
    assert one.count.different > 0
    assert any("v_relu" in line for line in one.first.instructions)
    assert one.first.layer in proof_layers(residual) and one.first.pc is not None


def proof_layers(subject):
    return [layer["name"] for layer in subject.image.metadata["layers"]]


def test_a_bit_of_the_host_s_conversion(residual, monkeypatch):
    """Conversions of the golden model are part of every other implementation."""
    decode = binary16.decode
    monkeypatch.setattr(binary16, "decode", lambda bits: decode(np.asarray(bits) ^ np.uint16(1)))
    assert prove(residual, samples=3, only=["numpy"]).count.different > 0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["emulator", "rtl"])
def test_a_bit_on_a_device(target, monkeypatch):
    """A weight that a device has not stored as it was told is found at the chain that reads it."""
    image = SMALL["conv3x3"]().image()

    def broken(config):
        device = connect(target, config)
        load = device.load

        def loaded(image):
            load(image)
            part = next(p for p in image.segments if p.region is RegionId.MATRIX)
            word = part.words()[0]
            device.write(RegionId.MATRIX, part.start, [word ^ 1])

        device.load = loaded
        return device

    monkeypatch.setitem(machines.MACHINES, "rtl", machines.Machine("broken", broken))
    (one,) = prove(Subject("conv", image), samples=3, machine_samples=3, only=["rtl"]).comparisons
    assert one.count.different > 0
    assert any("mv_mul" in line for line in one.first.instructions)
    assert one.first.element[0] == 0 and one.first.note == ""  # the first row of the matrix


@pytest.mark.slow
def test_a_difference_that_single_chains_do_not_have(monkeypatch):
    """A device that goes wrong when chains follow each other: the chain is found by programs that stop earlier."""
    words, memories = random_program(TINY, program_rng("cut"), 8)
    image = image_of_memories(words, memories)

    def broken(config):
        device = connect("emulator", config)
        start = device._start

        def started(pc, adds):
            start(pc, adds)
            if device.counters()["CHAINS"] > 4:
                (word,) = device.read(RegionId.WIDE, 7)
                device.write(RegionId.WIDE, 7, [word ^ 1])

        device._start = started
        return device

    monkeypatch.setitem(machines.MACHINES, "rtl", machines.Machine("broken", broken))
    (one,) = prove(Subject("cut", image), samples=1, only=["rtl"]).comparisons
    assert one.count.different > 0
    assert "follow each other" in one.first.note and one.first.place == "wide[7]"


# The command ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    image = SMALL["gru"]().image()
    image.save(tmp_path / "gru.image")
    command = ["prove", str(tmp_path / "gru.image"), "--samples", "3", "--with", "numpy,reference"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert " 0 different" in done.output and "PyTorch: not run, not asked for" in done.output
    facts = json.loads((tmp_path / "gru.prove.json").read_text())
    assert facts["different"] == 0 and facts["values"] == sum(one["values"] for one in facts["comparisons"])
    page = (tmp_path / "gru.prove.html").read_text()
    assert "identical" in page and "NumPy" in page

    samples = {port.name: np.zeros((2, *port.shape)) for port in image.inputs}
    np.savez(tmp_path / "x.npz", **samples)
    done = CliRunner().invoke(main, [*command, "-i", str(tmp_path / "x.npz")])
    assert done.exit_code == 0 and "2 samples (given)" in done.output

    monkeypatch.setitem(runtimes.RUNTIMES, "numpy", replace(runtimes.RUNTIMES["numpy"], module="no_such_module"))
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1 and "cannot be run" in done.output
    done = CliRunner().invoke(main, [*command[:4], "--rtl-samples", "0"])
    assert done.exit_code == 0 and "is not installed; pip install" in done.output
    assert "0 samples asked for" in done.output


@pytest.mark.slow
def test_a_difference_is_an_exit_status(tmp_path, monkeypatch):
    SMALL["gru"]().image().save(tmp_path / "gru.image")
    load = runtimes.Runtime.load

    def broken(kind, model, folder, name):
        step = load(kind, model, folder, name)
        return lambda inputs: {key: np.asarray(x) + 1.0 for key, x in step(inputs).items()}

    monkeypatch.setattr(runtimes.Runtime, "load", broken)
    done = CliRunner().invoke(main, ["prove", str(tmp_path / "gru.image"), "--samples", "2", "--with", "numpy"])
    assert done.exit_code == 1 and "NumPy differs first in" in done.output
    assert "First differences" in (tmp_path / "gru.prove.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--with", "tensorflow"], "must be of numpy, onnx, torch, c, reference, rtl, not 'tensorflow'"),
        (["-o", f"{__file__}/page.html"], "test_prove.py must be a folder, to write"),
        (
            ["--with", ""],
            "at least one implementation must be compared with the emulator, not none: NumPy (not asked for)",
        ),
        (["--with", "reference", "--rtl-samples", "0"], "reference machine (0 samples asked for)"),
    ],
)
def test_refused(words, message, tmp_path):
    SMALL["gru"]().image().save(tmp_path / "gru.image")
    done = CliRunner().invoke(main, ["prove", str(tmp_path / "gru.image"), *words])
    assert done.exit_code == 1 and message in " ".join(done.output.split())
    assert not (tmp_path / "gru.prove.html").exists()


def test_no_samples_are_no_proof():
    subject = Subject("gru", SMALL["gru"]().image())
    inputs = {name: np.zeros((0, *shape)) for name, shape in subject.shapes.items()}
    with pytest.raises(ValueError, match=r"^inputs must have at least one sample, not none$"):
        prove(subject, inputs, only=["numpy", "reference"])


def test_the_page_escapes_names(residual):
    proof = prove(replace(residual, name="<b>"), samples=1, only=["numpy"])
    assert "<b></h1>" not in render(proof).replace("<h1><b>", "") and "&lt;b&gt;" in render(proof)


def test_the_facts_say_where_samples_come_from(residual):
    proof = prove(residual, samples=1, only=["numpy"], seed=5)
    facts = json.loads(proof.to_json())
    assert facts["given"] == "random, seed 5" and "source" not in facts
    assert (facts["values"], facts["different"]) == (proof.count.values, 0)


def test_random_samples_are_within_what_a_device_takes():
    """An offset that the host takes off moves the greatest numbers out of the range of ports."""
    weight = np.random.default_rng(3).choice([-0.5, 0.25, 0.0, 1.0], (3, 1, 2, 2))
    graph = expressions.network(tensor(1, 1, 5, 5).conv(weight, np.array([1.0, -2.0, 0.5]), pads=(0, 0, 1, 1)))
    package = compile_graph(graph, TINY, Formats(input_offsets={"x": 127.0})).package
    assert package.arrangement.input_offsets == {"x": 127.0}
    subject = Subject("centred", package.image, package)
    assert prove(subject, samples=16, only=["numpy"]).count.different == 0
    most = max(np.abs(port).max() for port in subject.ports(subject.random_samples(16, 0)).values())
    assert most == BINARY16_MAX
