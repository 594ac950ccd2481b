"""Configurations in files: written, read, and refused with what is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.spec.config import NpuConfig
from concord.spec.config_file import config_text, read_config
from concord.spec.presets import ECP5_85F, ECP5_85F_256, PRESETS, TINY, with_accumulator, with_mantissas
from support.property_tests import examples


def written(folder, text):
    path = folder / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("base", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_what_is_written_is_read(tmp_path, preset, base):
    config = preset.replace(name="other", clock_hz=12_345_678)
    assert read_config(written(tmp_path, config_text(config, base))) == config
    assert read_config(written(tmp_path, config_text(preset, base))) == preset


@examples(30)
@given(st.integers(3, 12), st.sampled_from(sorted(PRESETS)), st.integers(16, 400), st.booleans())
def test_any_configuration(tmp_path_factory, mantissa, name, depth, stochastic):
    try:
        config = with_mantissas(PRESETS[name], mantissa).replace(narrow_depth=depth, stochastic=stochastic, name="any")
    except ValueError:
        return
    path = written(tmp_path_factory.mktemp("config"), config_text(config, PRESETS[name]))
    assert read_config(path) == config


def test_a_file_by_hand(tmp_path):
    path = written(tmp_path, '# more vectors\npreset = "ecp5-85f"\nnarrow_depth = 4096\n')
    assert read_config(path) == ECP5_85F.replace(name="mine", narrow_depth=4096), "named after the file"
    same = written(tmp_path, 'preset = "tiny"\nname = "tiny"\n')
    assert read_config(same) == TINY
    values = {k: v for k, v in TINY.to_dict().items() if k not in ("name", "board")}
    text = "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
    assert read_config(written(tmp_path, text)) == TINY.replace(name="mine"), "without a preset"


def test_names_after_a_preset(tmp_path):
    """Other mantissas and accumulators have the name of their preset, and are placed like it."""
    narrow = with_mantissas(ECP5_85F_256, 5)
    short = with_accumulator(narrow, 44, weights=(-12, 0))
    without = with_accumulator(ECP5_85F, 44, weights=(-12, 0))
    assert ECP5_85F.writable_matrix and not without.writable_matrix
    for config in (narrow, short, without):
        assert read_config(written(tmp_path, config_text(config, ECP5_85F_256))) == config


REFUSED = {
    "no TOML": ("preset = ", "must be a configuration in TOML: "),
    "a parameter that was removed": ('preset = "tiny"\ninteger_loss = false', "integer_loss must be left out: it was"),
    "a parameter that is none": ('preset = "tiny"\nnarow_depth = 32', "narow_depth'; did you mean narrow_depth?"),
    "a preset that is none": ('preset = "tinny"', "not 'tinny'; did you mean tiny?"),
    "a preset that was removed": (
        'preset = "ecp5-85f-int8"', "preset 'ecp5-85f-int8' was removed: ecp5-85f takes its place"
    ),
    "a board that is none": ('preset = "tiny"\nboard = "icebraker"', "did you mean icebreaker?"),
    "no preset": ("native = 8", "there must be a preset, or else lanes, mfu_lanes, matrix_depth, "),
    "a text": ('preset = "tiny"\nlanes = "2"', "lanes must be an integer, not '2'"),
    "true": ('preset = "tiny"\nlanes = true', "lanes must be an integer, not True"),
    "a number": ('preset = "tiny"\nserial = 1', "serial must be true or false, not 1"),
    "a table": ('preset = "tiny"\n[name]\nx = 1', "name must be a text, not {'x': 1}"),
    "a fraction": ('preset = "tiny"\nnarrow_depth = 32.5', "narrow_depth must be an integer, not 32.5"),
    "no such NPU": ('preset = "tiny"\nnarrow_depth = 1', "narrow_depth must be in 16..16384, not 1"),
    "a path": ('preset = "tiny"\nname = "../x"', "name must be up to 100 letters, digits, "),
    "the name of another NPU": (
        'preset = "tiny"\nname = "ecp5-85f"\n', "name must not be 'ecp5-85f': the preset ecp5-85f has another native"
    ),
    "named after another NPU": (
        'preset = "ecp5-85f-256"\nname = "ecp5-85f-256-m8"\nlanes = 8\nwindow_taps = 0', "has another lanes"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=r"mine\.toml") as caught:
        read_config(path)
    assert message in str(caught.value)


def test_what_is_no_text(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="must be a configuration in TOML"):
        read_config(path)


def test_an_image_of_before_has_the_board_of_its_preset():
    for preset in PRESETS.values():
        values = {k: v for k, v in preset.to_dict().items() if k != "board"}
        assert NpuConfig.from_dict(values) == preset
    with pytest.raises(TypeError, match="board must be a text, not 3"):
        NpuConfig.from_dict({**TINY.to_dict(), "board": 3})
