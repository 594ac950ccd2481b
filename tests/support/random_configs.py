"""Random configurations that ``concord.spec.config.check`` accepts: small ones, with corners of every parameter."""

from concord.spec.presets import TINY


def random_config(rng):
    """A configuration of few products and short memories, without integer chains.

    Parameters
    ----------
    rng : random.Random
        Seeded by the caller.
    """
    while True:
        native = rng.choice([4, 4, 8, 8, 16])
        divisors = [1 << k for k in range(7) if native % (1 << k) == 0]
        serial = rng.random() < 0.1
        scaling, writable = (not serial and rng.random() < share for share in (0.3, 0.2))
        mantissa = rng.choice([2, 3, 4, 7, 8, 8, 9, 11, 12])
        exponent = rng.choice([-28, -20, -15, -15, -12, -9, -4, 0])
        values = {
            "native": native, "lanes": rng.choice(divisors), "serial": serial, "act_mant": mantissa,
            "mfu_lanes": 1 if serial else rng.choice(divisors), "stochastic": not serial and rng.random() < 0.7,
            "engines": 1 if serial else rng.choice([1, 1, 2, 4]),
            "wgt_mant": mantissa if writable else rng.choice([2, 3, 7, 8, 8, 9, 12, 16]),
            "act_exp_min": exponent, "wgt_exp_min": rng.choice([-31, -24, -15, -15, -9, -3, 0, 2]),
            "wgt_exp_max": rng.choice([-9, -4, 0, 0, 3, 8]), "max_terms": 1 << rng.randrange(3, 13),
            "code_scaling": scaling, "writable_matrix": writable,
            "window_taps": 0 if serial else rng.choice([0, 0, 2, 3, 4]),
            "matrix_depth": rng.choice([64, 100, 128]), "narrow_depth": rng.choice([64, 77, 128]),
            "wide_depth": rng.choice([64, 67, 128]), "program_depth": rng.choice([128, 200, 256]),
            "table_depth": rng.choice([16, 64, 256]), "table_slots": rng.choice([1, 3, 8, 16]),
            "inflight": rng.choice([4, 8, 16, 32]), "loop_levels": rng.randint(1, 4), "max_payload": 256,
        }  # fmt: skip
        try:
            wide = TINY.replace(name="random", acc_width=24, acc_register=0, **values)
            bits = wide.full_bits
            width = rng.choice([24, min(bits, rng.randint(24, 60)), bits])
            register = rng.choice([0, 0, max(width, wide.lane_dot_bits), rng.randint(24, max(24, bits - 1))])
            return wide.replace(acc_width=width, acc_register=register)
        except ValueError:
            continue
