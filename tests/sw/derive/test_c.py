"""Networks in C: the bits and flags of the emulator, with every compiler and at every level of optimisation."""

import re
import subprocess
from functools import partial

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive import ir
from concord.derive.c.library import called
from concord.derive.c.program import STRICT, compiler
from concord.derive.c.source import c_files
from concord.derive.model import derive_image, derive_package
from concord.frontend import import_model
from concord.golden import binary16, blocks, table
from concord.golden.accumulate import round_grid
from concord.spec.formats import BLOCK_ROUNDINGS, BlockFormat, ExponentMode, Rounding
from concord.spec.isa import Op
from concord.spec.presets import ECP5_85F
from support import compiled_nets, random_models
from support.c_compilers import IN_32_BITS, cortex_m4, every_level, every_way, links, random_networks, zig
from support.c_models import compare, compare_image, compare_package, compare_program, finite, model_of, program
from support.c_units import ModelUnit, word
from support.derive_models import MODELS, Maker, at_limits, flagged, limits, samples
from support.derived_backends import CONFIGS, emulated_flags, needs_c
from support.derived_modules import emulated, image_of_memories, program_rng, same
from support.expressions import ROOMY
from support.halves import halves, pairs
from support.program_gen import random_program
from support.trained import DATA, needs_data

pytestmark = needs_c


OPERATIONS = ("data_movement", "arithmetic", "quantised", "products", "loops", "zeros")


def image_of(config, seed, count):
    return image_of_memories(*random_program(CONFIGS[config], program_rng(seed), count))


def model_of_image(image):
    return derive_image(image, flags=True)


def lstm():
    return model_of(compile_graph(compiled_nets.recurrent("LSTM", 5, 3, 6), ROOMY).package)


#: What every compiler gets.
EVERYWHERE = ModelUnit(
    limits=lambda: flagged(limits()),
    lstm=lstm,
    **{name: lambda make=MODELS[name]: flagged(make()) for name in OPERATIONS},
    **{word(config): lambda config=config: model_of_image(image_of(config, f"c {config}", 8)) for config in CONFIGS},
)


@every_way
def test_operations(command, options, tmp_path):
    for name in OPERATIONS:
        made = EVERYWHERE.program(name, tmp_path, command, options)
        compare_program(made, finite(samples(made.model, 20, seed=7)))


@every_way
def test_limits(command, options, tmp_path):
    made = EVERYWHERE.program("limits", tmp_path, command, options)
    compare_program(made, at_limits(made.model))


@every_way
@pytest.mark.parametrize("config", CONFIGS)
def test_programs(command, options, config, tmp_path):
    made = EVERYWHERE.program(word(config), tmp_path, command, options)
    compare_image(image_of(config, f"c {config}", 8), made, 2)


@pytest.mark.parametrize(("command", "options"), [zig(*IN_32_BITS, deep=False), cortex_m4("-Os", deep=False)])
def test_processors_of_32_bits(command, options, tmp_path):
    image = image_of("tiny", "c tiny", 8)
    compare_image(image, program(model_of_image(image), tmp_path, command, options), 2)


@every_way
def test_networks(command, options, tmp_path):
    """Convolutions with padding, sums of maps, tables, compiled alone; a recurrence."""
    residual = model_of(compile_graph(compiled_nets.residual(), ROOMY).package)
    for made in (
        program(residual, tmp_path, command, options),
        EVERYWHERE.program("lstm", tmp_path, command, options),
    ):
        rng = np.random.default_rng(3)
        compare_program(made, {key: rng.normal(size=(3, *shape)) for key, shape in made.model.sources.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["magnitudes", "gru", "large_windows", "normalised", "group_normalised", "joined_maps", "exchanged_axes"]
)
def test_small_networks(name, tmp_path):
    package = compile_graph(getattr(compiled_nets, name)(), ROOMY).package
    compare_package(package, program(model_of(package), tmp_path))


def random_package(seed):
    return compile_graph(import_model(random_models.network(seed)), ROOMY).package


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_networks(seed, tmp_path):
    package = random_package(seed)
    compare_package(package, program(model_of(package), tmp_path))


@random_networks(8, 27)
def test_more_random_networks(options, count, tmp_path):
    packages = {f"seed{seed}": random_package(seed) for seed in range(3, 3 + count)}
    unit = ModelUnit(**{name: partial(model_of, package) for name, package in packages.items()})
    unit.all(lambda name, made: compare_package(packages[name], made), tmp_path, options)


@random_networks(6, 20)
@pytest.mark.parametrize("config", CONFIGS)
def test_more_programs(config, options, count, tmp_path):
    images = {f"seed{seed}": image_of(config, f"c {config} {seed}", 12) for seed in range(count)}
    unit = ModelUnit(**{name: partial(model_of_image, image) for name, image in images.items()})
    seeds = {name: seed for seed, name in enumerate(images)}
    unit.all(lambda name, made: compare_image(images[name], made, seeds[name]), tmp_path, options)


@needs_data
@every_level
@pytest.mark.parametrize(
    "name",
    ["ic_resnet8", "kws_dscnn", "ad_fc_autoencoder", "digits_cnn", "digits_lstm64", "digits_gru64",
     "digits_transformer", "kws_crnn", "silero_vad_16k", "vww_mobilenetv1_025"],
)  # fmt: skip
def test_trained_networks(name, command, options, tmp_path):
    config = ECP5_85F.replace(matrix_depth=2560, writable_matrix=False)
    package = compile_graph(import_model(DATA / "models" / f"{name}.onnx"), config).package
    model = derive_package(package, flags=True).npu_part
    rng = np.random.default_rng(8)
    recorded = {key: rng.normal(size=(2, *shape)) for key, shape in package.input_shapes.items()}
    inputs = {key: np.asarray(x) for key, x in package.npu_inputs(recorded).items()}
    ports = package.arrangement.pack(inputs)
    want = package.arrangement.unpack(emulated(package.image, ports), 2)
    outputs, flags = program(model, tmp_path, command, options).run_with_flags(inputs)
    same(outputs, {key: want[key] for key in outputs})
    assert flags == emulated_flags(package.image, ports)


# Numbers ------------------------------------------------------------------------------------------------

_MAIN = """
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
{functions}
int main(void)
{{
    static {kind} x[1 << 23];
    const size_t count = fread(x, sizeof *x * {width}, sizeof x / sizeof *x / {width}, stdin);
    for (size_t k = 0; k < count; ++k) {{
        const {result} y = {call};
        fwrite(&y, sizeof y, 1, stdout);
    }}
    return 0;
}}
"""


def computed(folder, call, operands, kind="uint16_t", result="uint16_t", options=()):
    """What an expression of the library gives for operands ``@0``, ``@1``."""
    rows = np.ascontiguousarray(np.stack([np.asarray(x).astype(kind.removesuffix("_t")) for x in operands], axis=-1))
    width = rows.shape[-1]
    text = re.sub(r"@(\d)", rf"x[{width} * k + \1]", call)
    functions = "\n\n".join(called(text))
    (folder / "some.c").write_text(_MAIN.format(functions=functions, kind=kind, width=width, result=result, call=text))
    undefined = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    undefined = undefined if links(compiler(), *undefined) else []
    command = [compiler(), *STRICT, "-O0", *undefined, *options, "some.c", "-o", "some"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    made = subprocess.run([folder / "some"], input=rows.tobytes(), capture_output=True, check=True).stdout
    return np.frombuffer(made, result.removesuffix("_t"))


EVERY = np.arange(1 << 16).astype(np.uint16)


@pytest.mark.parametrize("options", [(), ("-DCONCORD_PORTABLE",)], ids=["builtin", "portable"])
def test_the_highest_bit(options, tmp_path):
    """The only function with one text for GCC and Clang, and another one for other compilers."""
    ends = [(1 << bit) + less for bit in range(64) for less in (-1, 0, 1) if bit or less > -1]
    numbers = np.array([*ends, (1 << 64) - 1], np.uint64)
    results = computed(tmp_path, "top_bit(@0)", [numbers], "uint64_t", "int32_t", options)
    assert results.tolist() == [int(number).bit_length() - 1 for number in numbers]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "max", "min"])
def test_pairs(name, tmp_path):
    rng = np.random.default_rng(6)
    a, b = pairs(rng, 200_000)
    golden = {"max": binary16.maximum, "min": binary16.minimum}.get(name) or getattr(binary16, name)
    results = computed(tmp_path, f"half_{name}(@0, @1)", [a, b])
    assert np.array_equal(results, golden(a, b))


@pytest.mark.parametrize("scale, low, high", [(4, -64, 63), (-3, 0, 200), (9, -2000, 2000), (-20, -4, 3)])
def test_table_codes(scale, low, high, tmp_path):
    codes = table.index(EVERY, low, high, scale)
    text = f"table_code(@0, {scale})"
    results = computed(tmp_path, text, [EVERY], result="int32_t")
    assert np.array_equal(np.clip(results, low, high), codes.code)
    assert np.array_equal(results < low, codes.under) and np.array_equal(results > high, codes.over)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
def test_static_codes(rounding, tmp_path):
    """Of every pattern, for narrow and wide mantissas and exponents of every size."""
    noise = np.random.default_rng(3).integers(0, 1 << 16, EVERY.shape)
    columns, codes, saturated = [], [], []
    for mant in (3, 8, 12, 16):
        form = BlockFormat(mant, 1, -30, 30)
        for exponent in (-24, -15, -6, 0, 3, 9):
            want = blocks.quantize(EVERY[:, None], form, ExponentMode.STATIC, exponent, rounding, noise[:, None])
            columns.append([EVERY, np.full_like(noise, exponent), np.full_like(noise, form.q_max), noise])
            codes.append(want.mant[:, 0])
            saturated.append(want.saturated)
    operands = [np.concatenate(column) for column in zip(*columns, strict=True)]
    word = {Rounding.NEAREST_EVEN: "even", Rounding.NEAREST_AWAY: "away", Rounding.STOCHASTIC: "noise"}[rounding]
    last = ", (uint16_t)@3" if rounding is Rounding.STOCHASTIC else ""
    text = f"code_{word}((uint16_t)@0, @1, @2{last})"
    assert np.array_equal(computed(tmp_path, text, operands, "int32_t", "int32_t"), np.concatenate(codes))
    text = f"saturated_{word}((uint16_t)@0, @1, (uint32_t)@2{last})"
    assert np.array_equal(computed(tmp_path, text, operands, "int32_t", "bool"), np.concatenate(saturated))


@pytest.mark.parametrize("mant, least", [(3, -15), (8, -15), (8, -30), (12, -20)])
def test_dynamic_exponents(mant, least, tmp_path):
    form = BlockFormat(mant, 1, least, 15 - (mant - 2))
    text = f"block_exponent(finite(@0) & 0x7FFFu, {form.headroom}, {least}, {form.exp_max})"
    results = computed(tmp_path, text, [EVERY], result="int32_t")
    assert np.array_equal(results, blocks.quantize(EVERY[:, None], form).exp)


def doubles(rng, count):
    """Of all sizes, ties of grids, zeros of both signs."""
    x = rng.normal(size=count) * np.exp2(rng.integers(-30, 16, count))
    whole = rng.integers(-300, 300, count) / 4
    x = np.where(rng.random(count) < 0.4, whole, x)
    return np.where(rng.random(count) < 0.1, rng.choice([0.0, -0.0, 65504.0, -65504.0, 5e-324, 1e-310], count), x)


@pytest.mark.parametrize(
    "prepare",
    [{}, {"grid": (0, 0, 255)}, {"grid": (-7, -128, 127), "offset": 0.375}, {"offset": -1e-3},
     {"middles": np.array([0.4914, -3.0, 1e4]), "factors": np.array([4.0, 0.25, 2.0**-9])},
     {"grid": (-2, -9, -3), "middles": np.array([0.1, 0.2, 0.3]), "factors": np.array([0.5, 1.0, 2.0]), "offset": 7.7}],
)  # fmt: skip
def test_inputs(prepare, tmp_path):
    m = Maker()
    x = np.clip(doubles(np.random.default_rng(1), 6000), -65504.0, 65504.0).reshape(2000, 3)
    compare(m.model(m.input((3,), **prepare)), {"input:0": x}, tmp_path)


def test_numbers_that_no_device_takes(tmp_path):
    model = MODELS["groups"]()
    made = program(model, tmp_path)
    for bad in (np.nan, np.inf, 65520.0, -65520.0):
        with pytest.raises(ValueError, match="must hold finite numbers within 65504"):
            made.run({"input:0": np.full((3, 4), bad)})
    made.run({"input:0": np.full((3, 4), np.nextafter(65520.0, 0))})


@pytest.mark.slow
def test_floats(tmp_path):
    """Patterns of binary32 are the same numbers."""
    rng = np.random.default_rng(2)
    x = np.concatenate([doubles(rng, 3000), [1e-45, -1e-40, np.inf, np.nan]]).astype(np.float32)
    results = computed(tmp_path, "real_of_single(@0)", [x.view(np.uint32)], "uint32_t", "uint64_t")
    assert np.array_equal(results.view(np.float64), x.astype(np.float64), equal_nan=True)
    results = computed(tmp_path, "single_of_half(@0)", [EVERY], "uint16_t", "uint32_t").view(np.float32)
    assert np.array_equal(results, EVERY.view(np.float16), equal_nan=True)
    assert np.array_equal(np.signbit(results)[results == 0], [False, True])


def test_differences_of_doubles(tmp_path):
    rng = np.random.default_rng(5)
    a, b = doubles(rng, 50_000), doubles(rng, 50_000)
    b = np.where(rng.random(len(a)) < 0.3, a * (1 + rng.integers(-3, 4, len(a)) * 2.0**-52), b)
    a, b = np.where(np.abs(a) < 1e-300, 0.0, a), np.where(np.abs(b) < 1e-300, 0.0, b)
    results = computed(tmp_path, "real_sub(@0, @1)", [a.view(np.uint64), b.view(np.uint64)], "uint64_t", "uint64_t")
    assert np.array_equal(results, (a - b).view(np.uint64))


@pytest.mark.slow
def test_wide_sums(tmp_path):
    """Sums of two words are rounded like Python's integers: at ties, and where only the lowest bit decides."""
    rng = np.random.default_rng(4)
    high = rng.integers(-(1 << 10), 1 << 10, 4000) * (1 << 40) + rng.integers(-2, 3, 4000)
    high = np.where(rng.random(4000) < 0.3, rng.integers(-3, 4, 4000), high)
    low = rng.choice([0, 1, -1, 1 << 62, 3], 4000)
    text = "half_of_wide_sum(wide_add(wide_scaled(@0, 50), wide_scaled(@1, 0)), -80)"
    results = computed(tmp_path, text, [high, low], "int64_t")
    exact = [int(h) * (1 << 50) + int(e) for h, e in zip(high, low, strict=True)]
    assert np.array_equal(results, round_grid(np.array(exact, dtype=object), 80))
    for bits in (63, 64, 70, 100):
        text = f"wide_beyond(wide_add(wide_scaled(@0, 50), wide_scaled(@1, 0)), {bits})"
        over = computed(tmp_path, text, [high, low], "int64_t", "uint8_t")
        assert over.astype(bool).tolist() == [not -(1 << bits) <= x < 1 << bits for x in exact]


def test_halves_of_a_block(tmp_path):
    """Numbers of a block are read as binary16 numbers, too."""
    m = Maker()
    rng = np.random.default_rng(2)
    x = m.input((16,))
    block = m.quantise(x, (10, 6))
    model = m.model(block, m.product(ir.MatMul, block, rng.integers(-9, 9, (3, 16)), (3,)))
    values = binary16.decode(halves(rng, 16 * 200)).reshape(200, 16)
    compare(model, {"input:0": np.clip(np.nan_to_num(values), -65504, 65504)}, tmp_path)


@pytest.mark.parametrize(
    "index",
    [[[0, -1, 4, 5], [0, 1, 2, 3]], [[0, 4, 1, 5], [7, 3, 6, 2]], [[-1, -1, -1, -1], [-1, 6, -1, 1]], [[3, 2, 1, 0]]],
)
def test_divided_blocks(index, tmp_path):
    """Elements of several blocks side by side, and zeros between them."""
    m = Maker()
    index, weight = np.array(index), m.rng.integers(-127, 128, (5, 4))
    block = m.quantise(m.input((8,)), (4, 4))
    picked = m.add(ir.Gather, index.shape, xs=(block,), index=index, fill=np.zeros(1, np.uint16))
    m.layer = "second"
    product = m.product(ir.MatMul, picked, weight, (len(index), 5))
    channels = m.product(ir.Depthwise, picked, weight[: len(index)], (4,))
    model = flagged(m.model(product, channels, picked))
    x = np.random.default_rng(2).normal(size=(50, 8)) * np.exp2(np.random.default_rng(3).integers(-9, 9, (50, 8)))
    compare(model, {"input:0": x}, tmp_path)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_channels_of_different_sizes(sign, tmp_path):
    """The greatest codes, of which one tap is by a growing power of two less than all others."""
    m = Maker()
    block = m.quantise(m.input((16, 3)), (3,))
    weight = np.full((16, 3), 127.0)
    model = flagged(m.model(m.product(ir.Depthwise, block, weight, (3,), exponent=-12, width=60)))
    x = np.full((24, 16, 3), 127.0 * sign)
    x[:, 3] = 127.0 * np.exp2(-np.arange(24.0))[:, None]
    x[:, 3, 1] *= -1
    compare(model, {"input:0": np.clip(x * 2.0**5, -65504, 65504)}, tmp_path)


@pytest.mark.parametrize("kind", [ir.MatMul, ir.Depthwise])
def test_offsets_of_more_than_64_bits(kind, tmp_path):
    """In the unit of a sum."""
    m = Maker()
    block = m.quantise(m.input((4, 3)), (3,))
    weight = m.rng.integers(-127, 128, (4, 3))
    offset = np.array([1024.0, -1024.0 + 2.0**-40, 3.0])
    how = {"offset": offset, "exponent": -45, "width": 100, "frac": 60, "unit": -60, "bound": 2.0**12}
    if kind is ir.MatMul:
        model = m.model(m.product(kind, block, weight[:3], (4, 3), **how))
    else:
        model = m.model(m.product(kind, block, weight, (3,), **how))
    compare(model, finite(samples(model, 20, seed=7)), tmp_path)


def test_offsets_that_are_too_far_apart_are_refused():
    m = Maker()
    offset = np.array([2.0**21, 2.0**-42])
    block = m.quantise(m.input((3,)), (3,))
    model = m.model(m.product(ir.MatMul, block, np.ones((2, 3)), (2,), offset, width=80, frac=50, bound=2.0**22))
    with pytest.raises(ValueError, match="offsets of first must be within 63 bits of each other in C"):
        c_files(model, "net")


RESULTS = {
    "dynamic": {"form": BlockFormat(8, 4, -4, 9)},
    "wide": {"form": BlockFormat(12, 4, -15, 9)},
    "static": {"form": BlockFormat(8, 4, -15, 9), "mode": ExponentMode.STATIC, "exp": -6},
}


@pytest.mark.parametrize("start", ["zeros", "constant", "blocks"])
@pytest.mark.parametrize("result", RESULTS)
def test_recurrences_that_begin_with_other_blocks(result, start, tmp_path):
    """The first iteration reads other exponents than the others."""
    m = Maker()
    x, state, entry, final = m.input((3, 4)), m.value((4,)), m.value((4,)), m.value((4,))
    if start == "blocks":
        form = BlockFormat(8, 4, -24, 9)
        first = m.add(ir.Quantise, (4,), x=m.input((4,)), form=form, blocks=(4,), peaks=(0.0,))
    else:
        data = binary16.encode(np.zeros(4) if start == "zeros" else np.array([1.0, -3.0, 0.0, 0.5]))
        first = m.add(ir.Constant, (4,), batched=False, data=data)
    before, m.nodes = m.nodes, []
    weight = m.rng.integers(-127, 128, (4, 4))
    total = m.apply(Op.VV_ADD, m.product(ir.MatMul, state, weight, (4,), frac=40, width=58), entry)
    blocks_of = m.add(ir.Quantise, (4,), x=total, blocks=(4,), peaks=(0.0,), **RESULTS[result])
    body, m.nodes = ir.Body(tuple(m.nodes)), before
    carried = (ir.Carried(first, state, blocks_of, final),)
    m.nodes.append(ir.Loop(output=final, count=3, body=body, carried=carried, scanned=(ir.Scanned(x, entry),)))
    model = m.model(final)
    rng = np.random.default_rng(1)
    sizes = np.exp2(rng.integers(-24, 2, (40, 1)))
    inputs = {model.names[value.name]: rng.normal(size=(40, *value.shape)) for value in model.inputs}
    compare(model, {name: x * (sizes if x.ndim == 2 else sizes[..., None]) for name, x in inputs.items()}, tmp_path)
    as_blocks = start == "zeros" or (start == "constant" and result != "static")
    assert ("_initial[]" in (tmp_path / "net.c").read_text()) == as_blocks
