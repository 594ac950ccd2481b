"""Formats that raise flags on the samples are taken only if they are clearly better than those that raise fewer."""

from dataclasses import replace

import numpy as np
import pytest

from concord.api.network import FlagError, Network
from concord.compiler.calibration import formats
from concord.compiler.calibration.calibration import FormatChoice
from concord.compiler.calibration.formats import static_exponents
from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.compiler.calibration.preference import FLAGGED, TIE, flags_text, preferred, rank, worth_flags
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.networks.calibrated import calibration_of, choose_formats, observe
from concord.program.flags import FlagDiagnostic
from concord.spec.presets import TINY
from support.expressions import network, tensor

TIGHTER = "static exponents, one bit tighter"


def bent(seed=2, scale=1.7):
    """Two products with a tanh between them, many of whose results are nearly 1, and samples."""
    rng = np.random.default_rng(seed)
    one = tensor(1, 8).dense(rng.normal(0, scale, (8, 8)) / 8**0.5)
    y = one.function("tanh", name="bend").dense(rng.normal(0, 0.4, (4, 8)))
    return network(y), {"x": rng.normal(0, 1, (40, 8))}


def test_a_format_that_saturates_and_wins_by_a_hair_is_not_taken():
    graph, x = bent()
    evidence = choose_formats(graph, TINY, x)
    tight = next(one for one in evidence.candidates if one.label == TIGHTER)
    assert tight.flags_by_layer == {("bend", "SATURATED")}
    assert FLAGGED * rank(evidence.chosen) < rank(tight) < TIE * rank(evidence.chosen), "it leaves the least error"
    assert tight.error == min(one.error for one in evidence.candidates)
    assert evidence.chosen.label == "dynamic exponents" and not evidence.chosen.flags
    Network(evidence.chosen.compiled.package, b"", None).run(x, strict=True)
    with pytest.raises(FlagError, match="SATURATED"):
        Network(tight.compiled.package, b"", None).run(x, strict=True)


@pytest.mark.slow
def test_the_table_shows_flags_and_the_margin():
    graph, x = bent()
    table = choose_formats(graph, TINY, x).table()
    assert [column.header for column in table.columns][-1] == "layers with flags"
    assert "1 SATURATED" in table.columns[-1]._cells and "" in table.columns[-1]._cells
    assert f"less than {FLAGGED:.0%} of the error" in table.caption
    quiet = choose_formats(*(bent()[0], TINY), {"x": np.zeros((4, 8))}).table()
    assert "flags" not in quiet.caption and all("flags" not in str(column.header) for column in quiet.columns)


def raised(*layers):
    return tuple(FlagDiagnostic(layer, 0, "", flag, "", "") for layer, flag in layers)


A, B, C = ("a", "SATURATED"), ("b", "SATURATED"), ("a", "TABLE_CLAMPED")


@pytest.mark.parametrize(
    ("share", "more", "fewer", "taken"),
    [
        (0.81, [A], [], False),
        (0.79, [A], [], True),
        (0.81, [A, B], [A], False),
        (0.79, [A, B], [A], True),
        (0.99, [A], [B], True),
        (0.99, [A], [A], True),
        (0.81, [A, B], [C], False),
    ],
)
def test_what_flags_have_to_be_worth(share, more, fewer, taken):
    """What raises as many flags needs no reason."""
    compiled = compile_graph(bent()[0], TINY)
    worse = FormatChoice("worse", compiled, 0.1, 1.0, flags=raised(*fewer))
    better = FormatChoice("better", compiled, 0.1 * share, 1.0, flags=raised(*more))
    assert worth_flags(better, [worse, better]) == taken and worth_flags(worse, [worse, better])
    assert preferred([worse, better]) is (better if taken else worse)
    exact = replace(better, error=0.0), replace(worse, error=0.0)
    assert worth_flags(exact[0], exact) == (len(more) == len(fewer)), "no gain is worth no flag"


def test_flags_in_words():
    candidate = FormatChoice("", compile_graph(bent()[0], TINY), 0.1, 1.0, flags=raised(A, A, B, ("a", "NONFINITE")))
    assert flags_text(candidate) == "1 NONFINITE, 2 SATURATED"
    assert flags_text(replace(candidate, flags=())) == ""


@pytest.mark.parametrize(("share", "static"), [(0.85, False), (0.7, True)])
def test_the_margin_in_a_search(share, static):
    """A runner that says that static exponents saturate."""
    graph, x = bent()

    def run(compiled, given):
        fixed = bool(compiled.package.formats.exponents)
        values = {
            name: values * (1 + 0.1 * (share if fixed else 1.0))
            for name, values in execute.run(graph, given).items()
        }  # fmt: skip
        return values, list(raised(A)) if fixed else []

    chosen = formats.choose_formats(calibration_of(graph, x, run), TINY).chosen
    assert chosen.label.startswith("static" if static else "dynamic")
    assert bool(chosen.compiled.flag_diagnostics) == static


@pytest.mark.slow
def test_narrower_mantissas_with_flags_have_to_save_memory():
    """A runner that says that everything narrower than the NPU saturates, and leaves hardly any error."""
    graph, x = bent()

    def run(compiled, given, noisy):
        outputs, flags = observe(compiled, given)
        narrow = dict(compiled.package.formats.mantissas)
        return outputs, list(raised(A)) if noisy and narrow and min(narrow.values()) > 3 else flags

    def chosen(noisy):
        calibration = calibration_of(graph, x, lambda compiled, given: run(compiled, given, noisy))
        return choose_mantissas(calibration, TINY, Budget("error", 12))

    quiet, noisy = chosen(False), chosen(True)
    assert not quiet.chosen.flags and quiet.chosen.compiled.package.formats.mantissas
    least = min(one.bits for one in noisy.candidates if noisy.fits(one) and not one.flags)
    assert noisy.chosen.bits < FLAGGED * least if noisy.chosen.flags else noisy.chosen.bits == least
    assert any(one.flags and one.bits < least for one in noisy.candidates if noisy.fits(one))
    assert "layers with flags" in [column.header for column in noisy.table().columns]
    assert f"less than {FLAGGED:.0%} of the memory" in noisy.table().caption


def test_static_exponents_that_saturate_do_raise_flags():
    """What the emulator says of a candidate is kept with it."""
    graph, x = bent()
    calibration = calibration_of(graph, x)
    tight = static_exponents(compile_graph(graph, TINY), calibration.values, 4)
    candidate = calibration.measure("tight", TINY, Formats(tight))
    _, flags = observe(candidate.compiled, x)
    assert candidate.flags == tuple(flags) and ("bend", "SATURATED") in candidate.flags_by_layer
