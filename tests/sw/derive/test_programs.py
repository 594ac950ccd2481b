"""Models that are derived from programs by hand and random ones compute what the emulator does."""

import pytest

from concord.derive import evaluate
from concord.derive.model import derive_image
from support.derived_backends import CONFIGS
from support.derived_modules import emulated, image_of_memories, load_derived, program_rng, random_inputs, same
from support.program_gen import random_program
from support.small_examples import SMALL


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_examples(name, tmp_path):
    image = SMALL[name]().image()
    model = derive_image(image)
    inputs = random_inputs(image, 3, 1)
    want = emulated(image, inputs)
    same(load_derived(model, tmp_path).run(inputs), want)
    same(evaluate.run(model, inputs), want)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(2))
def test_random_programs(config, seed, tmp_path):
    words, memories = random_program(CONFIGS[config], program_rng(f"{config} {seed}"), 8)
    image = image_of_memories(words, memories)
    model = derive_image(image)
    inputs = random_inputs(image, 2, seed)
    same(load_derived(model, tmp_path).run(inputs), emulated(image, inputs))
