"""What commands write with ``--json``: one object, with the keys that the page lists."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.examples import softmax
from concord.spec.presets import PRESETS, TINY
from support.commands import two_products
from support.compiled_nets import perceptron
from support.quantised_nets import relu_of_codes

PAGE = Path(__file__).parents[3] / "docs" / "compiler.md"


def written(*words, status=0):
    """The object, and what went to the standard error."""
    result = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout), result.stderr


def documented(command):
    """Keys of a command, those that are there only at times without their brackets."""
    (row,) = re.findall(rf"^\| `{re.escape(command)} --json` \| (.*) \|$", PAGE.read_text(), re.M)
    return [*re.findall(r"`(\w+)`", row)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its samples, and the folder of its network."""
    path = two_products(tmp_path_factory.mktemp("json"))
    facts, _ = written("compile", path / "net.onnx", "--preset", "tiny")
    return path, facts


def test_compile(folder):
    path, facts = folder
    assert list(facts) == documented("compile")
    assert facts["folder"] == str(path / "net") and facts["npu"]["name"] == "tiny"
    assert facts["inputs"] == {"x": [20]} and facts["outputs"] == {"y": [3]}
    assert facts["npu"]["fingerprint"] == f"{TINY.fingerprint:016x}" and facts["npu"]["clock_hz"] == TINY.clock_hz
    assert 0 < facts["expected_error"]["result"] < 0.1
    assert facts["rates"][0]["samples_per_second"] > 0 and isinstance(facts["rates"][0]["cycles"], int)


def test_warnings_go_to_the_standard_error(tmp_path):
    words = "--preset", "tiny", "--mantissa", "first=3", "--mantissa", "second=3"
    facts, errors = written("compile", two_products(tmp_path) / "net.onnx", *words)
    assert facts["warnings"] and errors == "".join(f"warning: {line}\n" for line in facts["warnings"])


def test_tables_and_json_do_not_go_together(folder):
    result = CliRunner().invoke(main, ["compile", str(folder[0] / "net.onnx"), "--json", "--verbose"])
    assert result.exit_code == 1 and "--json must be given without --verbose and --check" in result.output


def test_run(folder):
    path, _ = folder
    facts, _ = written("run", path / "net", "-i", path / "x.npz", "-o", path / "y.npz")
    assert list(facts) == documented("run")
    assert facts["output"] == str(path / "y.npz") and facts["measured"] is None and facts["flags"] == []
    assert facts["results"] == {"y": {"shape": [300, 3], "type": "float32"}}
    np.savez(path / "large.npz", x=np.full((1, 20), 60000.0))
    facts, _ = written("run", path / "net", "-i", path / "large.npz", "-o", path / "z.npz")
    assert {"flag", "layer", "address", "meaning", "advice"} == set(facts["flags"][0])
    strict, errors = written(
        "run", path / "net", "-i", path / "large.npz", "-o", path / "strict.npz", "--strict", status=3
    )
    assert strict["output"] is None and strict["flags"] and "not written" in errors


def test_inspect(folder):
    path, _ = folder
    facts, _ = written("inspect", path / "net")
    assert [*facts, "types"] == documented("inspect")
    assert [layer["name"] for layer in facts["layers"]] == ["first", "second"]
    assert facts["inputs"][0]["shape"] == [5, 4] and facts["outputs"][0]["name"] == "y"
    assert facts["program"][0]["address"] == 0 and {entry["layer"] for entry in facts["program"]} >= {0, 1}
    assert facts["memory"]["program"] == {"words": len(facts["program"]), "of": TINY.program_depth}
    few, _ = written("inspect", path / "net", "--only", "types", "--only", "ports")
    assert "program" not in few and {"types", "inputs"} <= set(few)
    assert all(isinstance(row["bytes_after"], int) for row in few["types"])


def test_inspect_an_image(tmp_path):
    image = softmax(TINY).image()
    image.save(tmp_path / "net.image")
    facts, _ = written("inspect", tmp_path / "net.image")
    assert facts["layers"] == [] and facts["expected_error"] is None and len(facts["program"]) == len(image.program)


def test_presets():
    facts, _ = written("presets")
    assert list(facts) == documented("presets")
    assert [preset["name"] for preset in facts["presets"]] == list(PRESETS)
    assert facts["presets"][0]["macs_per_cycle"] == next(iter(PRESETS.values())).macs


def test_networks_on_codes(tmp_path):
    (tmp_path / "net.onnx").write_bytes(relu_of_codes().SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.float32([[1, -1, 0, 99]]))
    facts, _ = written("compile", tmp_path / "net.onnx", "--exact")
    assert facts["network"]["sites"] == 1
    assert written("inspect", tmp_path / "net")[0]["network"] == facts["network"]
    facts, _ = written("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert facts["results"] == {"y": {"shape": [1, 4], "type": "uint8", "scale": 0.125, "zero": 3}}


@pytest.mark.slow
def test_fit(folder):
    path, _ = folder
    words = "fit", path / "net.onnx", "--board", "ulx3s-85f", "-i", path / "xy.npz", "--samples", 40, "--show", 2
    facts, _ = written(*words, "-o", path / "new" / "best.toml")
    assert list(facts) == documented("fit")
    best = facts["candidates"][facts["best"]]
    assert best["within"] and best["samples_per_second"] > 0 and 0 <= best["accuracy"] <= 1
    assert facts["budget"] == {"measure": "accuracy", "points": 0.5} and (path / "new" / "best.toml").exists()
    facts, errors = written(*words[:4])
    assert facts["budget"] is None and facts["output"] is None and "accuracy was not judged" in errors


def test_numbers_that_are_not_finite_are_null():
    from concord.cli.json_output import _plain

    assert _plain({"a": float("inf"), "b": np.float32(1.5), "c": (np.int64(2), float("nan"))}) == {
        "a": None,
        "b": 1.5,
        "c": [2, None],
    }
    assert compile_graph(perceptron(4, 3), TINY).image.metadata  # plain values, which inspect writes as they are
