"""``concord compile --output-format``: results as narrow as asked for."""

import re

import numpy as np
import pytest

from concord.networks.folder import load_package
from concord.spec.memmap import RegionId
from support.commands import run, two_products


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "region"),
    [
        ([], RegionId.WIDE),
        (["narrow"], RegionId.NARROW),
        (["y=narrow"], RegionId.NARROW),
        (["narrow", "y=binary16"], RegionId.WIDE),
    ],
)
def test_results_are_as_narrow_as_asked_for(tmp_path, options, region):
    two_products(tmp_path)
    chosen = [word for option in options for word in ("--output-format", option)]
    samples = tmp_path / "x.npz"
    code, output = run(
        "compile", tmp_path / "net.onnx", "--calibrate", samples, "--board", "ulx3s-85f", *chosen,
        "-o", tmp_path / "net",
    )  # fmt: skip
    assert code == 0, output
    package = load_package(tmp_path / "net")
    assert [port.region for port in package.image.outputs] == [region]
    assert package.formats.narrow == (("y",) if region is RegionId.NARROW else ())
    code, output = run("run", tmp_path / "net", "-i", samples, "-o", tmp_path / "y.npz")
    assert code == 0, output
    values = np.load(tmp_path / "y.npz")["y"]
    largest = np.abs(values).max(axis=1, keepdims=True)
    steps = values / 2.0 ** (np.floor(np.log2(largest)) - 6)  # of mantissas of 8 bits
    assert (steps == np.rint(steps)).all() == (region is RegionId.NARROW)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["byte", "z=narrow", "y=", "=narrow=y"])
def test_other_formats_are_refused(tmp_path, option):
    two_products(tmp_path)
    code, output = run("compile", tmp_path / "net.onnx", "--output-format", option, "-o", tmp_path / "net")
    wanted = f"output-format must be binary16, narrow, or one of them for one of y, not '{option}'"
    assert code == 1 and wanted in re.sub(r"\s+", " ", output)
