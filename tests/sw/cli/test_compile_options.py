"""Command line and Python have the same options of compiling, those of the record."""

import inspect
from dataclasses import fields

import click
import numpy as np
import pytest

import concord
from concord.cli.compile import compile_model
from concord.cli.main import SECTIONS
from concord.cli.selection import SELECTED
from concord.spec.compile_options import DEFAULTS, OPTIONS, CompileOptions
from support.commands import run, two_products

#: Options of ``concord compile`` that are about the command.
OWN = {"--output", "--json", "--verbose", "--dump", "--check"}
#: Options that several commands share.
SHARED = ("link", "workers", "cluster", *SELECTED)


def options_of(name):
    """Options of a command by their long name."""
    (lazy,) = (section[name] for section in SECTIONS.values() if name in section)
    return {max(item.opts, key=len): item for item in lazy.load().params if isinstance(item, click.Option)}


def test_options_that_are_not_given_have_the_defaults_of_the_record(tmp_path):
    (tmp_path / "net.onnx").touch()
    given = compile_model.make_context("compile", [str(tmp_path / "net.onnx")]).params
    for name, known in OPTIONS.items():
        if known.spelling:
            assert (given[SELECTED.get(name, name)] or None) == (DEFAULTS[name] or None), name


def test_the_command_has_every_option_and_its_own():
    found = options_of("compile")
    spelled = {known.spelling: name for name, known in OPTIONS.items() if known.spelling}
    assert set(found) == {*spelled, *OWN}
    for spelling, name in spelled.items():
        option, known = found[spelling], OPTIONS[name]
        assert option.help == known.help and option.multiple == known.repeated
        assert not known.choices or list(option.type.choices) == list(known.choices)
        assert known.least is None or (option.type.min, option.type.max) == (known.least, known.most)


@pytest.mark.parametrize("command", ["fit", "overflow", "types", "run", "report", "inspect", "live", "train"])
def test_other_commands_take_options_from_the_record(command):
    found = options_of(command)
    shared = [known for known in (OPTIONS[name] for name in SHARED) if known.spelling in found]
    assert shared and all(found[known.spelling].help == known.help for known in shared)


def test_python_has_every_option_as_a_keyword():
    model, *keywords = inspect.signature(concord.compile).parameters.values()
    assert model.name == "model" and {one.kind for one in keywords} == {inspect.Parameter.KEYWORD_ONLY}
    assert {one.name: one.default for one in keywords} == DEFAULTS
    for item in fields(CompileOptions):
        assert item.name in concord.compile.__doc__
    assert "CompileOptions" not in concord.compile.__doc__
    with pytest.raises(TypeError, match="bord"):
        concord.compile("net.onnx", bord="ulx3s-85f")


def test_both_compile_the_same(tmp_path):
    two_products(tmp_path)
    options = ("--preset", "tiny", "--batch", 2, "--mantissa", 7, "--input-range", "-4,4", "--output-format", "narrow",
               "--accumulator", "auto", "--shape", "x=1,20")  # fmt: skip
    code, output = run("compile", tmp_path / "net.onnx", *options, "-o", tmp_path / "net")
    assert code == 0, output
    network = concord.compile(
        model=tmp_path / "net.onnx", preset="tiny", batch=2, mantissa=7, input_range=(-4, 4), output_format="narrow",
        accumulator="auto", shape={"x": (1, 20)},
    )  # fmt: skip
    loaded = concord.load(tmp_path / "net")
    assert loaded.image.program == network.image.program and loaded.config == network.config
    x = np.ones((2, 20))
    assert np.array_equal(loaded.run(x)["y"], network.run(x)["y"])
