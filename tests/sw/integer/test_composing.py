"""Tables in a row are one, and those that change nothing are none."""

import numpy as np
import pytest

from concord.frontend.codes import load
from support.onnx_models import model, node


def pair(x, y, scale="s", zero="z"):
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


def network(*nodes, outputs=("y",), **options):
    constants = {"s": np.float32(0.1), "z": np.int8(-7), "t": np.float32(0.03), "w": np.int16(5),
                 "low": np.float32(-99), "high": np.float32(99)}  # fmt: skip
    proto = model([*pair("x", "d"), *nodes], {"x": ["N", 256]}, outputs, constants)
    return load(proto, **options)


ALL = np.arange(-128, 128, dtype=np.int8)[None]
ROW = [node("Tanh", ["d"], ["a"]), *pair("a", "b", "t", "w"), node("LeakyRelu", ["b"], ["c"], alpha=0.3),
       *pair("c", "e"), node("Relu", ["e"], ["f"]), node("Sigmoid", ["f"], ["g"]), *pair("g", "y", "t")]  # fmt: skip


def test_functions_in_a_row_are_one_table():
    """Of four functions two stand between the same codes; the three tables are one, with the entries of all."""
    apart, together = network(*ROW, compose=False), network(*ROW)
    assert (apart.tables.report().sites, together.tables.report().sites) == (3, 1)
    assert np.array_equal(apart.run({"x": ALL})["y"], together.run({"x": ALL})["y"])
    together.tables.check()
    assert len(set(together.run({"x": ALL})["y"].ravel().tolist())) == 8


@pytest.mark.parametrize("outputs", [("y", "b"), ("y", "bq")])
def test_an_output_between_tables_stays(outputs):
    together = network(*ROW, outputs=outputs)
    assert together.tables.report().sites == 2
    apart = network(*ROW, outputs=outputs, compose=False)
    for name, codes in apart.run({"x": ALL}).items():
        assert np.array_equal(together.run({"x": ALL})[name], codes)


def test_equal_tables_are_stored_once():
    nodes = [node("Relu", ["d"], ["a"]), *pair("a", "b"), node("Add", ["b", "d"], ["c"]), *pair("c", "e"),
             node("Relu", ["e"], ["f"]), *pair("f", "y")]  # fmt: skip
    report = network(*nodes).tables.report()
    assert (report.sites, report.tables, report.nbytes) == (2, 1, 256)


@pytest.mark.parametrize("more", [[], [node("Sigmoid", ["b"], ["g"])]], ids=["sum", "table and sum"])
def test_a_table_that_changes_nothing_is_none(more):
    """Its readers read what it reads, and that counts for who else reads it."""
    first = [node("Tanh", ["d"], ["a"]), *pair("a", "e")]
    idle = [node("Clip", ["e", "low", "high"], ["c"], name="idle"), *pair("c", "b")]
    last = [*(more or [node("Relu", ["b"], ["g"])]), *pair("g", "h"), node("Add", ["h", "b"], ["i"]), *pair("i", "y")]
    apart, together = (network(*first, *idle, *last, compose=choice) for choice in (False, True))
    assert (apart.tables.report().sites, together.tables.report().sites) == (3, 2)
    every = together.run({"x": ALL}, every=True)
    for name, codes in apart.run({"x": ALL}, every=True).items():
        assert np.array_equal(every[name], codes)
