"""The script that compares images with those of before notices what changes."""

import json

import pytest

import same_images


def run(monkeypatch, *arguments):
    monkeypatch.setattr(
        "sys.argv", ["same_images.py", "--jobs", "1", "--match", "perceptron tiny", *map(str, arguments)]
    )
    return same_images.main()


@pytest.mark.slow
def test_the_same_sources_give_the_same_figures(tmp_path, monkeypatch, capsys):
    path = tmp_path / "before.json"
    assert run(monkeypatch, "--write", path) == 0
    (figures,) = json.loads(path.read_text()).values()
    assert figures["cycles"] > 0 and len({figures["image"], figures["program"], figures["network"]}) == 3
    assert run(monkeypatch, "--compare", path) == 0
    assert "1 cases compared, 0 differences" in capsys.readouterr().out


@pytest.mark.slow
def test_what_differs_and_what_is_missing_is_told(tmp_path, monkeypatch, capsys):
    path = tmp_path / "before.json"
    run(monkeypatch, "--write", path)
    before = json.loads(path.read_text())
    before["nets perceptron tiny"]["image"] = "another"
    before["nets no perceptron tiny"] = {"cycles": 1}
    path.write_text(json.dumps(before))
    assert run(monkeypatch, "--compare", path) == 1
    said = capsys.readouterr().out
    assert "nets perceptron tiny: image was another, is" in said and "nets no perceptron tiny: missing" in said


def test_kinds_that_are_not_there_are_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--compare", "before.json", "--only", "nothing")
    assert "--only must be of nets, examples" in capsys.readouterr().err
