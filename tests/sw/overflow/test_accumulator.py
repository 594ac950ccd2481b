"""Accumulators as wide as a network needs: chosen from evidence, compared, refused, and what the predictor says."""

import re

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.ir import Node
from concord.host import connect
from concord.image import Memories
from concord.networks.folder import load_package
from concord.overflow import analyse_machine
from concord.overflow.accumulator import AccumulatorError, choose_accumulator
from concord.overflow.required import CountedWidths, RequiredWidth, same_bits
from concord.program import trace
from concord.spec.formats import Flag
from concord.spec.isa import decode
from concord.spec.operations import Op
from concord.spec.presets import TINY, UP5K, with_accumulator
from support.commands import run, two_products
from support.compiled_nets import attention, perceptron, residual
from support.expressions import ROOMY, graph_of
from support.rtl_configs import COPYING


def samples(graph, count=6):
    """Random samples, the first one large and the last one small."""
    rng = np.random.default_rng(3)
    found = {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}
    for k, values in enumerate(zip(*found.values(), strict=True)):
        for array in values:
            array *= 2.0 ** (3 - 2 * k)
    return found


def results(compiled, inputs):
    """Outputs on the emulator, and the layers that raise ACC_OVERFLOW."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        found = compiled.run(device, inputs)
        return found, {
            one.layer for one in compiled.package.flags(device.flags()) if one.flag == Flag.ACC_OVERFLOW.name
        }


@pytest.mark.parametrize("large", [0, 1])
def test_weights_that_are_copied_count(large):
    """Their exponents are those of any block, and samples run with copies in both configurations."""
    graph = perceptron(24, 70, 40, 3)
    graph.nodes[2 * large].attrs["weight"] *= 8
    inputs, compiled = samples(graph), compile_graph(graph, COPYING)
    assert trace(compiled.image.program, COPYING).copies
    found = choose_accumulator(graph, compiled, None, CountedWidths(inputs))
    config = found.compiled.image.config
    assert trace(found.compiled.image.program, config).copies and config.acc_register < COPYING.full_bits
    want, got = results(compiled, inputs), results(found.compiled, inputs)
    assert all(np.array_equal(want[0][name], got[0][name]) for name in want[0]) and not got[1]


@pytest.mark.slow
@pytest.mark.parametrize("guard", [0, 3])
def test_what_samples_need_and_a_guard(guard):
    graph = residual()
    inputs, compiled = samples(graph), compile_graph(graph, ROOMY)
    found = choose_accumulator(graph, compiled, None, CountedWidths(inputs), guard)
    config = found.compiled.image.config
    observed = max(need.observed for need in found.needs)
    assert config.acc_register == config.acc_width == observed + guard < ROOMY.full_bits
    assert config.name == f"tiny-a{observed + guard}" and config.fingerprint != ROOMY.fingerprint
    assert analyse_machine(found.compiled.package, inputs).needed("intermediate") == observed
    want, got = results(compiled, inputs), results(found.compiled, inputs)
    assert all(np.array_equal(want[0][name], got[0][name]) for name in want[0]) and not got[1]
    # Exponents of weights are those that there are, and the weights the same numbers.
    numbers = []
    for memories in (Memories.of(compiled.image), Memories.of(found.compiled.image)):
        numbers.append(np.ldexp(memories.matrix_mant, memories.matrix_exp[..., None]))
        used = memories.matrix_exp[memories.matrix_mant.any(axis=-1)]
    assert np.array_equal(*numbers)
    assert (
        (config.wgt_exp_min, config.wgt_exp_max) == (used.min(), used.max()) != (ROOMY.wgt_exp_min, ROOMY.wgt_exp_max)
    )


@pytest.mark.slow
@pytest.mark.parametrize("net", [perceptron, residual])
def test_the_predictor_and_the_flags_agree(net):
    """For every width of the register: layers with terms or sums beyond it are those that raise the flag."""
    graph = net(9, 6, 3) if net is perceptron else net()
    inputs, exact = samples(graph), compile_graph(graph, ROOMY)
    needed = analyse_machine(exact.package, inputs).needed("intermediate")
    flagged = set()
    for bits in range(needed - 7, needed + 2):
        config = with_accumulator(ROOMY, bits, weights=(ROOMY.wgt_exp_min, ROOMY.wgt_exp_max))
        compiled = compile_graph(graph, config)
        analysis = analyse_machine(compiled.package, inputs)
        assert analysis.width == analysis.output_width == bits
        beyond = {layer.name for layer in analysis.layers if layer.overflows(bits, bits)}
        assert results(compiled, inputs)[1] == beyond
        assert bool(beyond) == (bits < needed)
        flagged.add(len(beyond))
    assert len(flagged) > 1
    wider = compile_graph(graph, ROOMY.replace(acc_width=30, acc_register=50))
    analysis = analyse_machine(wider.package, inputs)
    assert (analysis.width, analysis.output_width) == (50, 30)


#: Whole multiples of the least static exponent of a test.
TINY_INPUTS = {"x": np.array([[64.0, 3.0, -64.0, 1.0], [1.0, 0.0, 1.0, -1.0]]) * 2.0 ** (ROOMY.act_exp_min + 3)}


def whole_numbers():
    """A product of whole numbers, and samples whose exponents are far above the least."""
    weight = np.array([[64.0, -2.0, 5.0, 1.0], [1.0, 1.0, -1.0, 3.0]])
    graph = graph_of([Node("Dense", "fc", ("x",), ("y",), {"weight": weight, "bias": np.zeros(2)})], x=(1, 4))
    return graph, {"x": np.array([[64.0, 3.0, -64.0, 1.0], [1.0, 0.0, 1.0, -1.0]])}


def test_exponents_of_activations_follow_where_bits_are_too_few():
    graph, inputs = whole_numbers()
    compiled = compile_graph(graph, ROOMY)
    needed = max(need.observed for need in choose_accumulator(graph, compiled, None, CountedWidths(inputs)).needs)
    same = choose_accumulator(graph, compiled, needed, CountedWidths(inputs)).compiled.image.config
    assert same.act_exp_min == ROOMY.act_exp_min
    found = choose_accumulator(graph, compiled, needed - 5, CountedWidths(inputs))
    assert found.compiled.image.config.act_exp_min == ROOMY.act_exp_min + 5
    assert any("vectors of smaller numbers lose low bits" in line for line in found.lines)
    want, got = results(compiled, inputs), results(found.compiled, inputs)
    assert np.array_equal(want[0]["y"], got[0]["y"]) and not got[1]


def test_the_least_exponent_reaches_a_static_one_and_no_further():
    """With as many bits fewer as the exponents may rise, and with one fewer than that."""
    graph, _ = whole_numbers()
    compiled = compile_graph(graph, ROOMY, Formats(exponents={"x": ROOMY.act_exp_min + 3}))
    needed = max(need.observed for need in choose_accumulator(graph, compiled, None, CountedWidths(TINY_INPUTS)).needs)
    found = choose_accumulator(graph, compiled, needed - 3, CountedWidths(TINY_INPUTS))
    assert found.compiled.image.config.act_exp_min == ROOMY.act_exp_min + 3
    with pytest.raises(AccumulatorError, match=f"^accumulator must have at least {needed} bits for the samples, not"):
        choose_accumulator(graph, compiled, needed - 4, CountedWidths(TINY_INPUTS))


def test_zeros_of_either_sign_are_different_results():
    zeros, nan = np.array([0.0, -0.0, 1.0]), np.array([np.nan, 1.0])
    assert same_bits(zeros, zeros.copy()) and same_bits(nan, nan.copy())
    assert not same_bits(zeros, np.array([0.0, 0.0, 1.0])) and not same_bits(zeros, np.array([-0.0, -0.0, 1.0]))
    assert not same_bits(nan, np.array([np.nan, 2.0])) and not same_bits(nan, np.array([1.0, 1.0]))


@pytest.mark.slow
def test_too_few_bits_are_refused():
    graph = residual()
    inputs, compiled = samples(graph), compile_graph(graph, ROOMY)
    needs = choose_accumulator(graph, compiled, None, CountedWidths(inputs)).needs
    most = max(needs, key=lambda need: need.observed)
    wanted = f"accumulator must have at least {most.observed} bits for the samples, not 20: {most.layer} needs them"
    with pytest.raises(AccumulatorError, match=f"^{wanted}"):
        choose_accumulator(graph, compiled, 20, CountedWidths(inputs))


def test_results_that_change_are_refused():
    """The comparison sees what the count has missed."""
    graph = residual()

    class Blind(CountedWidths):
        def required(self, graph, compiled):
            needs, ranges = super().required(graph, compiled)
            return tuple(RequiredWidth(need.layer, 20, need.bound) for need in needs), ranges

    with pytest.raises(
        AccumulatorError, match=r"must leave the samples as they are, not with 20 bits: layers that raise"
    ):
        choose_accumulator(graph, compile_graph(graph, ROOMY), 20, Blind(samples(graph)))


def test_without_samples_the_bound_decides():
    graph, _ = whole_numbers()
    found = choose_accumulator(graph, compile_graph(graph, ROOMY), None, CountedWidths())
    (need,) = found.needs
    assert found.compiled.image.config.register_bits == need.bound and need.observed == 0
    assert any(
        line.startswith(f"no input needs more: at most {need.bound} bits (fc) with x in -8 to 8")
        for line in found.lines
    )


def test_as_many_bits_as_every_sum_needs_are_no_register():
    config = with_accumulator(TINY, 99, weights=(-9, -3))
    assert (config.acc_register, config.wgt_exp_min, config.acc_frac, config.acc_width) == (0, -9, 24, 42)
    with pytest.raises(ValueError, match=r"^weights must be a range within -15\.\.0, not -16\.\.0$"):
        with_accumulator(TINY, 44, weights=(-16, 0))
    graph = perceptron(4, 3)
    small = UP5K.replace(narrow_depth=2048, wide_depth=2048)
    with pytest.raises(ValueError, match="accumulator must be full for up5k: an element-serial configuration"):
        choose_accumulator(graph, compile_graph(graph, small), None, CountedWidths())


def test_matrices_that_programs_write_are_left_to_the_units(monkeypatch):
    monkeypatch.setattr("concord.compiler.lowering.tensor_products.cycles", lambda lowering, node: 0)
    graph = attention()
    written = compile_graph(graph, ROOMY.replace(writable_matrix=True))
    x = {name: np.random.default_rng(3).normal(0, 1, (8, *graph.shapes[name][1:])) for name in graph.inputs}
    assert any(form.op is Op.M_WR for form, _ in map(decode, written.image.program))
    found = choose_accumulator(graph, written, None, CountedWidths(x)).compiled
    config = found.image.config
    assert not config.writable_matrix and config.acc_register < ROOMY.full_bits
    plain = compile_graph(graph, ROOMY)
    want, got = results(plain, x), results(found, x)
    assert all(np.array_equal(want[0][name], got[0][name]) for name in want[0]) and not got[1]


@pytest.mark.slow
def test_the_command_line(tmp_path):
    folder = two_products(tmp_path)
    options = ("--preset", "tiny", "-o", folder / "net")
    code, output = run(
        "compile", folder / "net.onnx", "--calibrate", folder / "x.npz", "--accumulator", "auto", "--guard", 2, *options
    )
    assert code == 0, output
    config = load_package(folder / "net").config
    assert f"accumulator: {config.name}: {config.acc_register} bits" in output
    needed = int(re.search(r"300 samples need (\d+) bits", output)[1])
    assert config.acc_register == needed + 2 and "raises ACC_OVERFLOW" in output
    code, shown = run("inspect", folder / "net")
    assert code == 0 and f"accumulator: {config.name}: {config.acc_register} bits" in shown
    code, shown = run("overflow", folder / "net", "-i", folder / "x.npz")
    assert code == 0 and f"accumulator of {config.name}: {config.acc_register} bits in hardware" in shown
    code, shown = run("report", folder / "net", "-i", folder / "x.npz")
    page = (folder / "net" / "report.html").read_text()
    assert code == 0 and f"Accumulator of {config.name}: {config.acc_register} bits" in page and "300 samples" in page
    code, output = run(
        "compile", folder / "net.onnx", "--calibrate", folder / "x.npz", "--accumulator", 20, "--preset", "tiny", "-o",
        folder / "other",
    )  # fmt: skip
    assert code != 0 and f"accumulator must have at least {needed} bits for the samples, not 20" in output
    assert not (folder / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--accumulator", "few"), "accumulator must be full, auto or a number of bits, not 'few'"),
        (("--accumulator", "44", "--guard", "3"), "--guard must be given with --accumulator auto"),
        (("--accumulator", "10"), "acc_register must be 0, which is"),
    ],
)
def test_what_is_not_possible(tmp_path, options, message):
    folder = two_products(tmp_path)
    code, output = run("compile", folder / "net.onnx", "--preset", "tiny", *options)
    assert code != 0 and message in " ".join(output.split())
