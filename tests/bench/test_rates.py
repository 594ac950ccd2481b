"""The table of rates: bytes of the data, and those on the link."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph, expecting
from concord.host.rates import Rates, rates
from concord.image.code_book import Coding
from concord.spec.links import uart
from concord.spec.presets import ECP5_85F, TINY
from concord_bench import Results
from concord_bench import rates as bench
from concord_bench.tasks import TASKS, Task, top_one
from support.compiled_nets import perceptron
from support.trained import needs_data

TASK = Task("net", "data", lambda _, x: x, top_one)


@pytest.mark.parametrize(("values", "coming"), [(256, 30), (257, 30 + 8)])
def test_bytes_of_the_data(values, coming):
    compiled = compile_graph(perceptron(30, 8, 6), TINY)
    x = np.resize(np.arange(values), (9, 30))
    assert bench.raw_bytes(TASK, compiled, x) == (coming, 12)
    double = compile_graph(perceptron(30, 8, 6), TINY.replace(narrow_depth=128), batch=2)
    assert bench.raw_bytes(TASK, double, x) == (coming, 12)


def test_states_have_two_bytes():
    task = Task("net", "data", lambda _, x: x, top_one, state=(("x", "y"),))
    assert bench.raw_bytes(task, compile_graph(perceptron(30, 8, 6), TINY), np.zeros((1, 30))) == (60, 12)


def test_a_row():
    found = Rates(
        900, 100, 5, 500_000, 1_250_000, 1_250_000, 2, 50_000_000, uart(1_000_000),
        reply_seconds=1e-3, call_seconds=5e-3,
        at_default=Rates(
            900, 100, 5, 500_000, 5_000_000, 5_000_000, 2, 50_000_000, uart(1_000_000),
            reply_seconds=16e-3, call_seconds=30e-3,
        ),
    )  # fmt: skip
    assert list(bench.row(found, 350, 50).values()) == [
        "80.0", "33.3", "20.0", "7.7", "link",
        "350", "50", "450", "50", "1.25", "2.50", "5.00", "2.50", "5.000", "25.00", "200",
    ]  # fmt: skip
    assert "1 ms besides its bytes" in bench.note(found) and "and 16 ms as it is installed" in bench.note(found)


def test_without_data_it_is_skipped(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    results = Results("")
    bench.measure_rates(TINY, results, lambda what: None)
    assert results.skipped == {bench.GROUP: "CONCORD_DATA does not name a folder with networks"} and not results.rows


@needs_data
@pytest.mark.slow
def test_rows_of_networks(monkeypatch):
    tasks = [task for task in TASKS if task.model in ("digits_mlp", "mnist_cnn")]
    monkeypatch.setattr(bench, "TASKS", tasks)
    results, said = Results(""), []
    bench.measure_rates(ECP5_85F, results, said.append)
    assert said == ["rates of mnist_cnn", "rates of digits_mlp"]
    rows = results.rows[bench.GROUP]
    assert [rows["digits_mlp"][name] for name in ("raw in", "raw out")] == ["64", "20"]
    assert [rows["mnist_cnn"][name] for name in ("raw in", "raw out")] == ["784", "20"]
    graph, inputs, _ = bench.load(tasks[0], bench.folder())
    compiled = expecting(compile_graph(graph, ECP5_85F), {graph.inputs[0]: inputs[:16]})
    assert compiled.image.feeding.codings == {graph.inputs[0]: Coding()}
    found = rates(compiled.image)
    assert 784 + 20 < found.bytes_in + found.bytes_out < 1.1 * (784 + 20)
    assert rows["mnist_cnn"]["in"] == f"{found.bytes_in:,.0f}" and found.at in results.notes[bench.GROUP]
    results = Results("")
    bench.measure_rates(TINY, results, lambda what: None)
    assert len(results.skipped) == 2 and not results.rows
