"""Functions by several tables, each with a step of its own."""

import numpy as np
import pytest

from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.compiler.ir.activations import activation_table
from concord.compiler.ir.table_segments import divided, sample, table_error
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.functions import evaluate
from concord.functions.segmented import TableSegment
from concord.functions.tables import standard_range
from concord.golden import binary16
from concord.graph.execute import run
from concord.host import connect
from concord.networks.calibrated import calibration_of, choose_formats
from concord.networks.folder import load_package
from concord.report import NetworkFacts
from concord.spec.presets import ECP5_85F, TINY
from support.commands import run as command
from support.expressions import network, tensor
from support.onnx_models import model as proto
from support.onnx_models import node
from support.reference_runs import run_reference

SQRT, RSQRT, RECIPROCAL, LOG = ((((name, ()),)) for name in ("sqrt", "rsqrt", "reciprocal", "log"))
NAMES = {"sqrt": SQRT, "rsqrt": RSQRT, "reciprocal": RECIPROCAL, "log": LOG}


def powers(shape=(40, 8), low=-16, high=7):
    """Numbers of very different sizes."""
    return np.exp2(np.random.default_rng(3).uniform(low, high, shape))


def wide(name="sqrt", more=()):
    """A function of eight inputs, and more of the result."""
    y = a = tensor(1, 8).function(name, name="wide")
    for other in more:
        y = y + a.function(other)
    return network(y)


def emulated(compiled, x):
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        results = compiled.run(device, {"x": x})
        assert device.flags() == {}
    return next(iter(results.values()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_parts_are_the_function_together(name, count):
    x = sample(powers((2000,), -18, 9))
    segments = divided(NAMES[name], x, count, 100 * count)
    assert len(segments) == count and all(segment.entries <= 100 for segment in segments)
    assert [segment.scale for segment in segments] == sorted((segment.scale for segment in segments), reverse=True)
    together = np.max([segment.evaluate(((name, {}),), x) for segment in segments], axis=0)
    np.testing.assert_array_equal(together, evaluate(((name, {}),), x))


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_entry_is_that_of_the_right_table(name):
    """For every binary16 number the tables cover: no input is off by more than half a step of the table behind it."""
    every = binary16.decode(np.arange(0x7C00, dtype=np.uint16))
    x = sample(powers((2000,), -18, 9))
    segments = divided(NAMES[name], x, 4, 512)
    stops = [segment.stop for segment in segments[:-1]]
    x = every[(every > 0) & (every >= (segments[0].low - 0.5) * 2.0 ** -segments[0].scale) & (every <= x[-1])]
    for segment in segments[:-1]:  # half a step of the finer table around a border may be of either
        x = x[np.abs(x - segment.stop) > 2.0**-segment.scale / 2]
    looked_up = [binary16.decode(activation_table((NAMES[name], segment), ECP5_85F, 2).apply(binary16.encode(x))[0])
                 for segment in segments]  # fmt: skip
    which = np.searchsorted(stops, x)
    nearest = np.choose(which, [segment.nearest(x) for segment in segments])
    with np.errstate(all="ignore"):
        want = binary16.decode(binary16.encode(np.clip(evaluate(((name, {}),), nearest), -65504, 65504)))
    np.testing.assert_array_equal(np.max(looked_up, axis=0), want)
    step = 2.0 ** -np.array([segment.scale for segment in segments])
    assert (np.abs(nearest - x) <= step[which] / 2).all()
    behind = which > 0  # a square root: within a quarter of a step over the border, relatively, and rounding
    first = np.array([(segment.start or 0) for segment in segments])[which[behind]]
    if name == "sqrt":
        error = np.abs(np.max(looked_up, axis=0) / np.sqrt(x) - 1)[behind]
        assert (error <= 0.26 * step[which[behind]] / first + 2.0**-10).all() and error.max() > 0.01


def test_errors_become_less_with_every_table():
    """Where one table is far off, as nearly all inputs are within its first step."""
    x = sample(powers((4000,), -18, 9))
    plain = TableSegment(*standard_range("sqrt", ECP5_85F, 512, (0, 1.125 * x[-1])))
    errors = [table_error(SQRT, [plain], x)]
    errors += [table_error(SQRT, divided(SQRT, x, count, 512), x) for count in (2, 3, 4, 5)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.8 and errors[4] < 0.03


def test_what_cannot_be_divided():
    x = sample(powers((100,)))
    gelu, silu_of = ((("gelu", ()),)), (("leaky_relu", (("alpha", -1.0),)),)
    assert divided(gelu, sample(np.linspace(-3, 3, 100)), 2, 512) is None, "below zero"
    assert divided((("sigmoid", ()), ("log", ())), x, 2, 512) is not None, "rises all the way"
    assert divided((("log", ()), *silu_of), x, 2, 512) is None, "falls and rises"
    assert divided(SQRT, x, 5, 19) is None, "few entries"
    assert divided(SQRT, np.zeros(3), 2, 512) is None, "zeros only"


def test_a_part_is_checked():
    with pytest.raises(ValueError, match="low must be less than high=3, not 3"):
        TableSegment(3, 3, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sqrt", "rsqrt"])
def test_calibration_divides_where_it_helps(name):
    graph, x = wide(name), powers()
    evidence = choose_formats(graph, TINY, {"x": x})
    formats = evidence.chosen.compiled.package.formats
    tables = len(formats.table_segments["wide"])
    assert evidence.chosen.label.endswith(f"wide by {tables} tables") and 2 <= tables <= TINY.table_slots
    others = [
        candidate.error for candidate in evidence.candidates if not candidate.compiled.package.formats.table_segments
    ]
    assert evidence.chosen.error < min(others) / 2
    assert Formats.from_dict(formats.to_dict()) == formats
    (want,) = run(evidence.chosen.compiled.graph, {"x": x}).values()
    np.testing.assert_array_equal(want, run(graph, {"x": x})["y"], "the graph with the segments is the same function")


@pytest.mark.slow
def test_the_emulator_is_the_reference_machine():
    graph, x = wide(), powers()
    compiled = choose_formats(graph, TINY, {"x": x}).chosen.compiled
    assert compiled.package.formats.table_segments
    ports = compiled.package.arrangement.pack({"x": x[:3]})
    want, _ = run_reference(compiled.image, next(iter(ports.values())))
    assert want and np.array_equal(emulated(compiled, x[:3]), compiled.package.finish({"x": x[:3]}, want)["y"])


@pytest.mark.slow
def test_other_tables_stay_as_they_are():
    """What is left by them is divided, entries and tables."""
    graph = wide(more=("sigmoid", "tanh"))
    x = powers()
    compiled = choose_formats(graph, TINY, {"x": x}).chosen.compiled
    assert len(compiled.package.formats.table_segments["wide"]) == 2, "two tables of four are taken"
    assert compiled.package.formats.table_segments["wide"][-1].entries < TINY.table_depth
    sizes = [
        item.doc for name, item in compile_graph(graph, TINY).allocations.items() if "sigmoid" in name or "tanh" in name
    ]
    now = [item.doc for name, item in compiled.allocations.items() if "sigmoid" in name or "tanh" in name]
    assert [doc.split()[1] for doc in now] == [doc.split()[1] for doc in sizes] == ["64", "64"]


@pytest.mark.parametrize(
    ("graph", "x"),
    [
        (wide(), np.random.default_rng(1).uniform(100, 140, (40, 8))),
        (wide("softplus"), np.random.default_rng(1).uniform(-3, 3, (40, 8))),
        (wide(more=("sigmoid", "tanh", "erf")), powers()),
        (wide("sigmoid"), powers()),
    ],
    ids=["narrow range", "below zero", "no table left", "settling"],
)
def test_nothing_is_divided_without_reason(graph, x):
    evidence = choose_formats(graph, TINY, {"x": x})
    assert not any(candidate.compiled.package.formats.table_segments for candidate in evidence.candidates)


@pytest.mark.slow
def test_what_the_host_computes_has_no_tables():
    graph = network(tensor(1, 8).function("sqrt", name="wide").softmax(1).function("log"))
    evidence = choose_formats(graph, TINY, {"x": powers()})
    assert [node.op for node in evidence.chosen.compiled.host_graph.nodes] == ["Softmax", "Function"]
    assert {name for c in evidence.candidates for name in c.compiled.package.formats.table_segments} == {"wide"}


@pytest.mark.slow
def test_what_is_chosen_stays_with_other_mantissas():
    calibration = calibration_of(wide(), {"x": powers()})
    choice = choose_mantissas(calibration, TINY, Budget("error", 20), free=True)
    assert len(choice.candidates) > 2
    assert all(candidate.compiled.package.formats.table_segments for candidate in choice.candidates)


@pytest.mark.slow
def test_from_file_to_report(tmp_path):
    """The folder keeps the segments: the report compiles the same program once more."""
    model, x = proto([node("Sqrt", ["x"], ["y"])], {"x": (1, 8)}), tmp_path / "x.npz"
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    np.savez(x, x=powers().astype(np.float32))
    folder = tmp_path / "net"
    code, said = command("compile", tmp_path / "net.onnx", "--preset", "tiny", "--calibrate", x, "-o", folder)
    assert code == 0, said
    (segments,) = load_package(folder).formats.table_segments.values()
    code, said = command("report", folder, "-i", x)
    assert code == 0, said
    assert len(NetworkFacts.from_json((folder / "report.json").read_text()).layers) == len(segments) > 1


@pytest.mark.slow
def test_no_more_tables_than_the_program_has_room_for():
    """A segment more would be better, but its chain does not fit behind the others."""
    graph, inputs = wide(more=("sigmoid",) * 3), {"x": powers()}
    free = choose_formats(graph, TINY, inputs).chosen.compiled
    count = len(free.package.formats.table_segments["wide"])
    assert count > 2
    tight = TINY.replace(program_depth=len(free.image.program) - 1)
    chosen = choose_formats(graph, tight, inputs).chosen.compiled
    assert len(chosen.package.formats.table_segments["wide"]) == count - 1
    assert len(chosen.image.program) <= tight.program_depth


def test_a_function_of_one_number():
    """Shares add up to 1 in all samples, and a table of the reciprocal has more than one entry."""
    rng = np.random.default_rng(2)
    s = tensor(1, 4).dense(rng.normal(size=(3, 4))).softmax(1)
    shares = s * s.reduce("Sum", 1).function("reciprocal")
    graph = network(shares.dense(rng.normal(size=(2, 3))))
    x = {"x": rng.normal(size=(20, 4))}
    evidence = choose_formats(graph, ECP5_85F, x, quick=True)
    assert evidence.chosen.error < 0.02
