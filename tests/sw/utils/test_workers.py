"""Counts of overflow, calibration and runs that several workers share: the same to the last bit as in one process."""

import os
import signal
import threading

import numpy as np
import pytest

pytest.importorskip("distributed")

from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.compiler.model import compile_graph
from concord.host import connect
from concord.host.shared import emulator
from concord.networks.calibrated import calibration_of, choose_formats
from concord.overflow import analyse_integers, analyse_machine
from concord.overflow.accumulator import choose_accumulator
from concord.overflow.required import CountedWidths
from concord.spec.memmap import RegionId
from concord.utils import parallel
from concord.utils.parallel import Engine, task_slices
from support.commands import run, two_products
from support.compiled_nets import attention, perceptron, recurrent, residual
from support.expressions import ROOMY

WORKERS = (1, 2, 4)
NETS = {
    "residual": residual,
    "attention": attention,
    "LSTM": lambda: recurrent("LSTM", 5, 3, 3),
    "GRU": lambda: recurrent("GRU", 4, 3, 2),
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def engine():
    with Engine(workers=1) as found:
        yield found


@pytest.fixture(params=WORKERS, scope="module")
def workers(engine, request):
    """An engine with some workers."""
    engine.grow(request.param)
    assert len(engine.processes()) == request.param
    return engine


def samples(graph, count, size=1.0):
    rng = np.random.default_rng(count)
    return {name: rng.normal(0, size, (count, *graph.sample_shape(name))) for name in graph.inputs}


@pytest.fixture(scope="module")
def counted():
    """Networks and samples, and what one process counts."""
    found = {}
    for name, make in NETS.items():
        graph = make()
        package, inputs = compile_graph(graph, ROOMY).package, samples(graph, 13)
        views = {
            "machine": lambda engine, p=package, x=inputs: analyse_machine(p, x, engine=engine),
            "integers": lambda engine, g=graph, x=inputs: analyse_integers(g, x, engine=engine),
        }
        found |= {(name, view): (analyse, analyse(None)) for view, analyse in views.items()}
    return found


def test_samples_are_divided_by_their_number_alone():
    assert [(p.start, p.stop) for p in task_slices(21, 4, 32)] == [
        (0, 4),
        (4, 8),
        (8, 12),
        (12, 16),
        (16, 20),
        (20, 21),
    ]
    assert [p.stop - p.start for p in task_slices(80, 4, 32)] == [10] * 8
    assert [p.stop - p.start for p in task_slices(300, 4, 32)] == [32] * 9 + [12]
    assert [(p.start, p.stop) for p in task_slices(0, 4, 32)] == [(0, 0)]


@pytest.mark.slow
def test_counts_are_those_of_one_process(workers, counted):
    for key, (analyse, want) in counted.items():
        found = analyse(workers)
        assert found == want and found.to_json() == want.to_json(), key
    rounds = [layer.scaling.rounds for layer in counted["residual", "integers"][1].layers]
    assert max(rounds) > 1, "ranges must have grown, or every round but the first one is untested"


def test_several_samples_of_a_run_are_counted_together(engine):
    graph = perceptron(9, 6, 3)
    package = compile_graph(graph, ROOMY, batch=2).package
    inputs = samples(graph, 31)
    want = analyse_machine(package, inputs)
    assert want.samples == 30 and analyse_machine(package, inputs, engine=engine) == want


@pytest.fixture(scope="module")
def calibrated():
    """What one process chooses."""
    graph = residual()
    inputs = samples(graph, 40)
    return graph, inputs, choose_formats(graph, ROOMY, inputs)


def evidence(found):
    return [(one.label, one.error, one.agreement, one.compiled.image) for one in found.candidates]


@pytest.mark.slow
def test_calibration_chooses_what_one_process_chooses(workers, calibrated):
    graph, inputs, want = calibrated
    found = choose_formats(graph, ROOMY, inputs, engine=workers)
    assert evidence(found) == evidence(want) and found.held == want.held
    assert found.chosen.compiled.flag_diagnostics == want.chosen.compiled.flag_diagnostics
    counters = [CountedWidths(inputs, one) for one in (None, workers)]
    narrower = [choose_accumulator(graph, want.chosen.compiled, None, counter, 1) for counter in counters]
    assert narrower[0].lines == narrower[1].lines and narrower[0].samples == 40
    images = [one.compiled.image for one in narrower]
    assert images[0] == images[1] != want.chosen.compiled.image


@pytest.mark.slow
def test_widths_of_mantissas_are_those_of_one_process(engine):
    graph = perceptron(9, 6, 3)
    inputs, budget = samples(graph, 40), Budget("error", 8.0)
    alone, shared = (
        choose_mantissas(calibration_of(graph, inputs, engine=one), ROOMY, budget) for one in (None, engine)
    )
    assert evidence(alone) == evidence(shared) and alone.widths == shared.widths


@pytest.mark.slow
def test_a_worker_that_dies_changes_nothing(engine, counted, calibrated, monkeypatch):
    graph, inputs, want = calibrated
    if len(engine.processes()) == 1:
        engine.grow(2)
    each, killed = engine.map, []

    def deadly(function, calls):
        """Ends a worker when there is something to do."""
        if len(killed) < 2:
            killed.append(next(iter(engine.processes().values())))
            threading.Timer(0.02, os.kill, (killed[-1], signal.SIGKILL)).start()
        return each(function, calls)

    monkeypatch.setattr(engine, "map", deadly)
    analyse, counts = counted["residual", "machine"]
    assert analyse(engine) == counts
    assert len(killed) == 1 and killed[0] not in engine.processes().values()
    assert evidence(choose_formats(graph, ROOMY, inputs, engine=engine)) == evidence(want)
    assert len(killed) == 2 and killed[1] not in engine.processes().values()
    analyse, counts = counted["LSTM", "integers"]
    killed.clear()
    assert analyse(engine) == counts and len(killed) == 2


def test_memories_flags_and_counters_are_those_of_one_emulator(engine):
    graph = residual()
    image = compile_graph(graph, ROOMY).image
    (port,) = image.inputs
    batch = {port.name: np.random.default_rng(2).normal(0, 60, (70, *port.shape))}
    batch[port.name][5] = np.clip(1000.0 * batch[port.name][5], -6e4, 6e4)
    found = []
    for device in (connect("emulator", ROOMY), emulator(ROOMY, engine)):
        with device:
            device.load(image)
            outputs = device.run(batch)
            memories = [device.read(region, 0, 64) for region in (RegionId.WIDE, RegionId.NARROW)]
            found.append((device.flags(), device.counters(), memories))
            found.append({name: values.tobytes() for name, values in outputs.items()})
    assert found[:2] == found[2:] and found[0][0], "flags must have been raised, or they are not compared"


@pytest.mark.slow
def test_commands_share_their_work(engine, tmp_path):
    two_products(tmp_path)
    shared = ("--cluster", engine.address)
    shown = []
    for name, more in (("one", ()), ("many", shared)):
        options = ("--preset", "ecp5-25f", "--calibrate", tmp_path / "x.npz", "--accumulator", "auto")
        code, text = run("compile", tmp_path / "net.onnx", *options, "-o", tmp_path / name, *more)
        assert code == 0, text
        shown.append(text.replace(str(tmp_path / name), ""))
        for model in (tmp_path / "one", tmp_path / "net.onnx"):
            page = tmp_path / f"{name}-{model.name}.html"
            code, text = run("overflow", model, "-i", tmp_path / "x.npz", "--samples", 40, "-o", page, *more)
            assert code == 0, text
            shown.append(text.replace(str(page.with_suffix("")), "") + page.with_suffix(".json").read_text())
    assert shown[:3] == shown[3:]
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "many" / file.name).read_bytes()


def test_nobody_to_work_is_told(monkeypatch):
    import distributed

    monkeypatch.setattr(parallel, "_PATIENCE", 1)
    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as empty:
        with pytest.raises(OSError, match="must have a worker, and has none: dask worker tcp"):
            Engine(cluster=empty.scheduler_address)


@pytest.mark.slow
def test_a_task_that_ends_its_workers_is_told(engine):
    def deadly():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(OSError, match="four have died of the same one"):
        engine.map(deadly, [()])


def test_options_that_do_not_fit(tmp_path):
    two_products(tmp_path)
    code, text = run("compile", tmp_path / "net.onnx", "--workers", 2)
    assert code and "--workers and --cluster must be given with --calibrate" in text
    both = ("--workers", 2, "--cluster", "tcp://127.0.0.1:1")
    for command in ("overflow", "compile"):
        data = ("-i", tmp_path / "x.npz") if command == "overflow" else ("--calibrate", tmp_path / "x.npz")
        code, text = run(command, tmp_path / "net.onnx", *data, *both)
        assert code and "--workers must be given without --cluster" in text


@pytest.mark.parametrize(
    "address", ["inproc://x", "x", "tcp://", "", "tcp://host:70000", "tcp://host:0", "ucx://a:1", "a b:1"]
)
def test_addresses_that_no_cluster_has(address):
    with pytest.raises(
        ValueError, match="cluster must be the address of a Dask scheduler such as tcp://HOST:8786, not"
    ):
        Engine(cluster=address)


def test_a_cluster_without_certificates_is_one_message():
    with pytest.raises(OSError, match=r"cluster at tls://127\.0\.0\.1:1 cannot be reached: "):
        Engine(cluster="tls://127.0.0.1:1")


@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "127.0.0.1:1"])
def test_a_connection_that_fails_is_closed(address, monkeypatch):
    """At once: the collector would do it at any time, and wait for ever where Dask holds the lock that this takes."""
    import distributed

    made, begin = [], distributed.Client.__init__

    def recorded(client, *args, **options):
        made.append(client)
        begin(client, *args, **options)

    monkeypatch.setattr(parallel, "_PATIENCE", 0.3)
    monkeypatch.setattr(distributed.Client, "__init__", recorded)
    with pytest.raises(OSError, match=r"cluster at|Timed out trying to connect"):
        Engine(cluster=address)
    assert [client.status for client in made] == ["closed"]


@pytest.mark.slow
@pytest.mark.parametrize(("deaths", "starts"), [(3, 4), (4, 4)])
def test_a_process_that_dies_while_it_starts(deaths, starts, monkeypatch):
    """All start once more, four times at most."""
    import distributed

    made, real = [], distributed.LocalCluster

    def cluster(**options):
        made.append(options["n_workers"])
        if len(made) <= deaths:
            raise RuntimeError("Nanny failed to start.")
        return real(**options)

    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    if deaths < starts:
        with Engine(workers=1) as engine:
            assert engine.map(int, [("7",)]) == [7]
    else:
        with pytest.raises(OSError, match=r"workers must start, and 4 times one has died while it did: Nanny failed"):
            Engine(workers=1)
    assert len(made) == min(deaths + 1, starts)
