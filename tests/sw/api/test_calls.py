"""A network called like a module: one sample or a batch, one output or several."""

import re
import warnings

import numpy as np
import pytest

import concord
from concord.api.summary import Summary
from support.onnx_models import model, node

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def network():
    weights = {"w": RNG.normal(size=(20, 5)).astype(np.float32)}
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 20)}, constants=weights)
    return concord.compile(proto, preset="tiny")


@pytest.fixture(scope="module")
def pair():
    """Two inputs, two outputs."""
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])]
    return concord.compile(model(nodes, {"a": ("n", 4), "b": ("n", 4)}, outputs=["sum", "difference"]), preset="tiny")


class Tensor:
    """As PyTorch has them: NumPy cannot read one that belongs to a gradient, or is on a device."""

    def __init__(self, values, ready=False):
        self.values, self.ready = values, ready

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self.values, True)

    def numpy(self):
        assert self.ready
        return self.values

    def __array__(self, *_, **__):
        raise RuntimeError("call detach and cpu first")


def test_a_sample_and_a_batch_are_the_same(network):
    x = RNG.normal(size=(3, 20))
    batch = network(x)
    assert batch.shape == (3, 5) and np.array_equal(batch, network.run(x)["y"])
    assert network(x[1]).shape == (5,) and np.array_equal(network(x[1]), batch[1])
    assert np.array_equal(network({"x": x[1]}), batch[1]) and np.array_equal(network(list(x[1])), batch[1])


def test_tensors_are_taken(network):
    x = RNG.normal(size=(3, 20))
    for call in (network, network.run):
        (first, second) = (call(values) for values in (Tensor(x), x))
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_several_outputs_are_by_name(pair):
    a, b = RNG.normal(size=(2, 3, 4))
    results = pair({"a": a, "b": b})
    assert {name: values.shape for name, values in results.items()} == {"sum": (3, 4), "difference": (3, 4)}
    one = pair({"a": a[2], "b": b[2]})
    assert all(np.array_equal(one[name], values[2]) for name, values in results.items())


def test_inputs_that_do_not_go_together(pair, network):
    with pytest.raises(ValueError, match=r"must all be one sample or all be batches, not \['a'\] and \['b'\]"):
        pair({"a": np.zeros(4), "b": np.zeros((1, 4))})
    with pytest.raises(ValueError, match=r"inputs must be 2 arrays, one each, for \['a', 'b'\], or a mapping, not 1"):
        pair(np.zeros(4))
    with pytest.raises(ValueError, match="x"):
        network(np.zeros(19))


def test_flags_of_a_call_are_about_the_line_of_the_user(network):
    with pytest.warns(concord.FlagWarning) as caught:
        network(np.full(20, 60000.0))
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(concord.FlagWarning) as caught:
        network.run(np.full((1, 20), 60000.0))
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.raises(concord.FlagError):
        network(np.full(20, 60000.0), strict=True)


def test_a_report_has_what_there_is_to_know(network, tmp_path):
    text = network.report()
    rates = network.rates
    for words in ("Network for tiny", "x 20", "y 5", "1 layer, ", f"{rates.cycles:,} per run", "samples/s in a batch",
                  "copies", "none", "ONNX"):  # fmt: skip
        assert words in text, words
    network.save(tmp_path / "net")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = concord.load(tmp_path / "net").report()
    assert [line for line in text.splitlines() if "copies" not in line] == loaded.splitlines()


def test_notebooks_show_the_same(network):
    page = network._repr_html_()
    assert page.startswith("<div") and page.count("<table") == 1 and "<style" not in page
    texts = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert len(texts) == page.count("<th ") and all(text in network.report() for text in texts)


def test_texts_of_a_summary_are_escaped():
    shown = Summary("<b>", {"<i>": "[red]x[/red]\x1b"}, ["a & b\x07"])
    assert "&lt;b&gt;" in shown.html and "&lt;i&gt;" in shown.html and "a &amp; b" in shown.html
    assert "[red]x[/red]\\x1b" in shown.text and "warning: a & b\\x07" in shown.text
