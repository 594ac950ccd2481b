"""Programs on the page about models of other frameworks: they run as they stand there, and print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.frameworks import EXTRAS, needs

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
#: Extra, program, and what it prints.
PROGRAMS = re.findall(r"^```python\n# needs: (\w+)\n(.*?)^```\n\n```\n(.*?)^```", PAGE, re.M | re.S)


def test_every_program_is_run():
    assert len(PROGRAMS) == PAGE.count("```python") and {extra for extra, *_ in PROGRAMS} == set(EXTRAS)
    assert all(f"| `{extra}` |" in PAGE for extra in EXTRAS if extra != "onnx")


def small_tflite():
    """A convolution, as a file of TensorFlow Lite."""
    import numpy as np

    from support.tflite_models import Net

    net, rng = Net(), np.random.default_rng(2)
    image, scores = net.tensor((1, 8, 8, 3), name="image"), net.tensor((1, 8, 8, 4), name="scores")
    constants = [net.constant(rng.normal(size=shape).astype(np.float32)) for shape in ((4, 3, 3, 3), (4,))]
    net.op("CONV_2D", [image, *constants], scores, "Conv2DOptions", padding=0, strideH=1, strideW=1,
           dilationHFactor=1, dilationWFactor=1)  # fmt: skip
    return net.bytes([image], [scores])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "program", "printed"), [pytest.param(*p, marks=needs(p[0]), id=p[0]) for p in PROGRAMS]
)
def test_a_program_prints_what_the_page_shows(extra, program, printed, tmp_path):
    if extra == "tflite":
        (tmp_path / "net.tflite").write_bytes(small_tflite())
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
