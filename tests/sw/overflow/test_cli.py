"""``concord overflow``: tables, plots, page, picture and facts, and messages for what is not possible."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

from support.commands import run, two_products

#: Elements of HTML without an end.
_VOID = {"meta", "br", "img", "link", "input"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network, samples for it, and the network compiled."""
    place = two_products(tmp_path_factory.mktemp("overflow"))
    code, output = run("compile", place / "net.onnx", "--preset", "tiny", "-o", place / "net")
    assert code == 0, output
    return place


class Nesting(HTMLParser):
    """Notes what is not closed, and keeps the text of the paths."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.paths = [], [], []

    def handle_starttag(self, tag, attrs):
        self.paths += [value for name, value in attrs if name == "d"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.paths += [value for name, value in attrs if name == "d"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["machine", "integers"])
def test_terminal_page_picture_and_facts(folder, tmp_path, view):
    model = folder / ("net" if view == "machine" else "net.onnx")
    code, output = run("overflow", model, "-i", folder / "x.npz", "--samples", 7, "-o", tmp_path / "page.html")
    assert code == 0, output
    facts = json.loads((tmp_path / "page.json").read_text())
    assert (facts["view"], facts["samples"], facts["name"]) == (view, 7, "net")
    first, second = facts["layers"]
    for layer, (outputs, terms) in zip((first, second), ((8, 20), (3, 8)), strict=True):
        stages = {stage["name"]: stage for stage in layer["stages"]}
        products = sum(stages["product"]["counts"])
        if view == "integers":
            assert products == 7 * outputs * terms and sum(stages["output"]["counts"]) == 7 * outputs
            assert sum(stages["sum"]["counts"]) == 7 * outputs * (terms - 1)
        else:  # native vectors of four elements, two lanes
            rows = -(-outputs // 4) * 4
            assert products == 7 * rows * terms
            assert sum(stages["lane sum"]["counts"]) == sum(stages["sum"]["counts"]) == products // 2
        curve = list(layer["intermediate_overflows"].values())
        assert len(curve) == 64 and curve == sorted(curve, reverse=True)
        bits = layer["intermediate_bits"]
        assert curve[bits["observed"] - 1] == 0 < curve[bits["observed"] - 2] and bits["observed"] <= bits["bound"]
        assert re.search(rf"{products:,} .*{bits['observed']}\.\.", output)
    assert "free on the samples" in output and output.splitlines()[-1].endswith("every input")
    assert (tmp_path / "page.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = (tmp_path / "page.html").read_text()
    parser = Nesting()
    parser.feed(page)
    assert not parser.wrong and not parser.open and "<title>Overflow of net</title>" in page
    assert sum(path.startswith("M 0.0 ") or path.startswith("M 0 ") for path in parser.paths) >= 6
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)


def test_without_a_page_nothing_is_written(folder):
    before = sorted(folder.rglob("*"))
    assert run("overflow", folder / "net", "-i", folder / "x.npz", "--samples", 2)[0] == 0
    assert sorted(folder.rglob("*")) == before


@pytest.mark.slow
def test_layers_beyond_the_threshold_are_named(folder):
    options = ("-i", folder / "x.npz", "--samples", 5)
    code, output = run("overflow", folder / "net", *options, "--width", 20, "--output-width", 20)
    assert code == 0 and re.search(r"first: [\d,]+ values leave storages of 20 and 20 bits", output)
    code, output = run("overflow", folder / "net", *options, "--width", 20, "--output-width", 20, "--threshold", 10**9)
    assert code == 0 and "values leave storages" not in output


@pytest.mark.slow
def test_ranges_and_widths_are_taken(folder, tmp_path):
    options = ("--width", 12, "--output-width", 11, "--input-width", 6, "--weight-width", 5, "--rounding", "nearest")
    more = ("--kind", "lstm", "--threshold", 3, "--input-range", "-40,50", "-o", tmp_path / "a.html")
    code, output = run("overflow", folder / "net.onnx", "-i", folder / "x.npz", *options, *more)
    assert code == 0, output
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["ranges"] == {"x": [-40.0, 50.0]} and facts["threshold"] == 3 and facts["samples"] == 100
    assert (facts["width"], facts["output_width"]) == (12, 11)
    assert "lstm network: inputs 6 bits, weights 5" in facts["storage"]
    for layer in facts["layers"]:
        assert layer["intermediate_overflows"]["12"] + layer["output_overflows"]["11"] <= 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.onnx", "--view", "machine"), "MODEL must be a compiled network for --view machine"),
        (("net", "--kind", "cnn", "--clip"), "--kind, --clip must be given with --view integers"),
        (("net", "--width", "65"), "65 is not in the range 1<=x<=64"),
        (("net.onnx", "--input-width", "0"), "0 is not in the range 1<=x<=32"),
        (("net", "--input-range", "0,0.001"), "range of x must hold the samples"),
        (("net", "--input-range", "z=0,1"), "input-range must be LOW,HIGH of the only input"),
        (("x.npz",), "x.npz"),
    ],
)
def test_messages(folder, arguments, message):
    model, *options = arguments
    code, output = run("overflow", folder / model, "-i", folder / "x.npz", *options)
    assert code != 0 and message in " ".join(output.split()) and "Traceback" not in output


def test_the_compiled_network_can_be_looked_at_as_integers(folder):
    code, output = run("overflow", folder / "net", "--view", "integers", "-i", folder / "x.npz", "--samples", 3)
    assert code == 0 and "integers of a dense network" in output


def test_samples_of_other_shapes_are_refused(folder, tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.zeros((3, 7)))
    for model in ("net", "net.onnx"):
        code, output = run("overflow", folder / model, "-i", tmp_path / "bad.npz")
        assert code == 1 and "must have the shape" in output
