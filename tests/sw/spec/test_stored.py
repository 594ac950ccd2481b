"""Configurations of compiled networks that are no preset's any more, and commands that compile such networks again."""

import re

import pytest

from concord.spec.presets import ECP5_85F, PRESETS, TINY, UP5K, with_accumulator, with_mantissas
from concord.spec.stored import IMAGE, MODEL, PROGRAM, TFLITE, compile_again, outdated, remedy

INT8 = ECP5_85F.replace(name="ecp5-85f-int8", act_mant=9, writable_matrix=False, integer_chains=False)


def test_presets_and_configurations_like_them_are_of_today(tmp_path):
    today = [*PRESETS.values(), TINY.replace(name="mine", lanes=4), TINY.replace(clock_hz=1, board="icebreaker")]
    today += [with_mantissas(ECP5_85F, bits) for bits in (3, 5, 12)]
    today.append(with_accumulator(with_mantissas(ECP5_85F, 5), 44, weights=(-9, 0)))
    assert [config.name for config in today if outdated(config) or remedy(config, tmp_path)] == []


def test_what_became_of_a_preset():
    print_ = f"{INT8.fingerprint:016x}"
    removed = f"with fingerprint {print_} is of a preset that was removed: ecp5-85f takes its place"
    assert outdated(INT8) == f"ecp5-85f-int8 {removed}"
    assert "is of a preset that was removed" in outdated(INT8.replace(name="ecp5-85f-int8-m5-a44"))
    deep = TINY.replace(narrow_depth=128)
    text = "is not the preset tiny of today; then / today: narrow_depth: 128 / 64"
    assert outdated(deep) == f"tiny with fingerprint {deep.fingerprint:016x} {text}"
    assert text in outdated(with_mantissas(deep, 5)), "but for its mantissas"


@pytest.mark.parametrize(
    ("config", "files", "command"),
    [
        (INT8, (IMAGE, MODEL), "compile {0}/model.onnx -o {0}"),
        (INT8, (IMAGE, PROGRAM), "compile net.onnx --exact --preset ecp5-85f -o {0}"),
        (INT8, (IMAGE, PROGRAM, TFLITE), "compile {0}/model.tflite --exact --preset ecp5-85f -o {0}"),
        (ECP5_85F, (IMAGE, PROGRAM), "compile net.onnx --exact --preset ecp5-85f -o {0}"),
        (UP5K, (IMAGE, MODEL), "compile {0}/model.onnx --board icebreaker -o {0}"),
        (TINY, (IMAGE, MODEL), "compile {0}/model.onnx --preset tiny -o {0}"),
        (TINY.replace(name="mine"), (IMAGE,), "compile net.onnx -o FOLDER"),
    ],
)
def test_the_command(config, files, command, tmp_path):
    folder = tmp_path / "a net"
    folder.mkdir()
    for file in files:
        (folder / file).touch()
    want = re.sub(r"'(/model\.\w+)", r"\1'", f"concord {command}".format(f"'{folder}'"))
    for place in (folder, folder / IMAGE):
        assert compile_again(place, config.name, config.board, "net.onnx") == want
        assert compile_again(place, config.name, config.board, "graph") == want.replace("net.onnx", "MODEL")


def test_the_remedy_has_both(tmp_path):
    assert remedy(INT8, tmp_path) == (
        f"no ready bitstream fits {outdated(INT8)}. `concord compile MODEL -o FOLDER`, with the options of then, "
        "compiles it again"
    )
