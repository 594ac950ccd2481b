"""The record of options of compiling: what it refuses, and what stands for texts of the command line."""

import re
from dataclasses import fields

import pytest

from concord.spec import docs
from concord.spec.compile_options import DEFAULTS, OPTIONS, CompileOptions, MantissaWidths


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition": "all"}, "partition must be one of none, ends, any, not 'all'"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"batch": True}, "batch must be at least 1, not True"),
        ({"batch": 1.5}, "batch must be at least 1, not 1.5"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"accumulator": "auto", "guard": 33}, "guard must be in 0..32, not 33"),
        ({"accumulator": "auto", "guard": -1}, "guard must be in 0..32, not -1"),
        ({"guard": 1}, "--guard must be given with --accumulator auto"),
        ({"accumulator": "wide"}, "accumulator must be full, auto or a number of bits, not 'wide'"),
        ({"accumulator": True}, "accumulator must be full, auto or a number of bits, not True"),
        ({"mantissa": "narrow"}, "mantissa must be auto, one width, and one layer=width per layer, not 'narrow'"),
        ({"mantissa": ["5", "6"]}, "mantissa must be auto, one width, and one layer=width per layer, not '6'"),
    ],
)
def test_values_that_an_option_cannot_have(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CompileOptions(**given)


def test_values_at_the_ends_are_taken():
    options = CompileOptions(accumulator="auto", guard=32, workers=1)
    assert (options.guard, options.accumulator_bits()) == (32, 0)
    assert CompileOptions(accumulator="auto", guard=0).guard == 0
    assert [CompileOptions(accumulator=value).accumulator_bits() for value in (None, "full", "40", 40)] == [
        None, None, 40, 40,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "samples", "message"),
    [
        ({"mantissa": "auto"}, False, "--mantissa auto needs --calibrate, and --budget both of them"),
        ({"budget": "5%"}, True, "--mantissa auto needs --calibrate, and --budget both of them"),
        ({"input_range": (0, 1)}, True, "--input-range is for networks without --calibrate, whose samples say it"),
        ({"quick": True}, False, "--quick must be given with --calibrate, and without --mantissa auto"),
        ({"quick": True, "mantissa": "auto"}, True, "--quick must be given with --calibrate, and without --mantissa"),
    ],
)
def test_options_that_do_not_go_together(given, samples, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        CompileOptions(**given).check(samples)


def test_values_of_python_mean_what_texts_mean():
    widths = MantissaWidths(auto=True, npu=5, layers={"a=b": 4})
    assert CompileOptions(mantissa=("auto", "5", "a=b=4")).widths == widths
    assert CompileOptions(mantissa={"a": 4}).widths == MantissaWidths(layers={"a": 4})
    assert CompileOptions(mantissa=5).widths == CompileOptions(mantissa="5").widths == MantissaWidths(npu=5)
    for given in ((0, 1.5), ["0,1.5"], "0,1.5"):
        assert CompileOptions(input_range=given).ranges == ["0,1.5"]
    assert CompileOptions(input_range={"x": (0, 1.5)}).ranges == ["x=0,1.5"]
    assert CompileOptions(output_format="narrow").output_formats == ["narrow"]
    assert CompileOptions(output_format={"y": "narrow"}).output_formats == ["y=narrow"]
    assert CompileOptions(output_format=("y=narrow",)).output_formats == ["y=narrow"]
    assert (CompileOptions().ranges, CompileOptions().output_formats) == ([], [])


def test_another_npu_is_one_that_was_not_named():
    assert CompileOptions(preset="tiny").other_npu
    assert not CompileOptions(board="ulx3s-85f").other_npu and not CompileOptions(config="mine.toml").other_npu


def test_every_field_is_described_once():
    names = [item.name for item in fields(CompileOptions)]
    described = re.findall(r"^    (\w[\w, ]*) : ", CompileOptions.__doc__, re.MULTILINE)
    assert [name for line in described for name in line.split(", ")] == names == list(OPTIONS) == list(DEFAULTS)
    spellings = [known.spelling for known in OPTIONS.values() if known.spelling]
    assert len(set(spellings)) == len(spellings) and all(known.help.endswith(".") for known in OPTIONS.values())


def test_the_table_of_the_page_has_every_option():
    table = docs.TABLES["compile-options"]()
    for name, known in OPTIONS.items():
        assert f"| {f'`{known.spelling}`' if known.spelling else ''} | `{name}` |" in table
    assert "| `--partition` | `partition` | `ends` | " in table and "adds to what the samples need" in table
