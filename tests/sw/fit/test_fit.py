"""What configurations take of a device, against builds; and the search."""

import pytest

from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.fit import search, use_of
from concord.fit.resources import BUILDS, CLOCK_ERROR, LUT_ERROR, rams_of
from concord.spec.devices import ECP5_DEVICES
from concord.spec.presets import ECP5_25F, ECP5_85F, ECP5_85F_256, UP5K
from support.commands import run, two_products
from support.compiled_nets import perceptron

#: Multipliers and block RAMs that place and route reported.
BLOCKS = {ECP5_25F: (20, 56), ECP5_85F: (136, 205), ECP5_85F_256: (144, 181)}


@pytest.mark.parametrize("config", BLOCKS, ids=lambda config: config.name)
def test_builds(config):
    """Multipliers and block RAMs exactly, LUTs and clock as near as is said."""
    use, (luts, mhz) = use_of(config), BUILDS[config.name]
    assert (use.multipliers, use.rams) == BLOCKS[config]
    assert use.luts == pytest.approx(luts, rel=LUT_ERROR)
    assert use.clock_mhz == pytest.approx(mhz, rel=CLOCK_ERROR)


def test_a_memory_takes_the_best_shape():
    shapes = {(36, 512): 1, (37, 512): 2, (18, 1024): 1, (68, 2560): 10, (1, 16384): 1}
    assert {shape: rams_of(*shape) for shape in shapes} == shapes


def test_presets_fit_their_devices():
    assert use_of(ECP5_85F).fits(ECP5_DEVICES["ulx3s-85f"]) and use_of(ECP5_25F).fits(ECP5_DEVICES["ulx3s-25f"])
    assert not use_of(ECP5_85F).fits(ECP5_DEVICES["ulx3s-25f"])
    with pytest.raises(ValueError, match="config must not be element-serial"):
        use_of(UP5K)


def test_search(monkeypatch):
    monkeypatch.setattr("concord.fit.candidates.SHAPES", [(8, 2, 2), (8, 2, 4), (16, 16, 8)])
    graph = perceptron(40, 16, 8)
    found = search(graph, "ulx3s-25f")
    assert [(one.config.native, one.config.lanes) for one in found] == [(8, 2)] * len(found) and found
    rates = [one.per_second for one in found]
    assert rates == sorted(rates, reverse=True)
    for one in found:
        assert one.use.fits(ECP5_DEVICES["ulx3s-25f"]) and one.config.act_mant == 8
        assert one.cycles == count(compile_graph(graph, one.config).image.program, one.config).cycles
    with pytest.raises(ValueError, match="board must be one of"):
        search(graph, "icebreaker")


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("concord.fit.candidates.SHAPES", [(8, 2, 2)])
    two_products(tmp_path)
    code, output = run("fit", tmp_path / "net.onnx", "--board", "ulx3s-25f", "--mantissa", "6")
    assert code == 0 and "Fastest configurations for net.onnx on ulx3s-25f" in output
    assert " 6 " in output and "estimates, within 4% and 6% of the 3 builds" in " ".join(output.split())
