"""Outcome of a network: it runs and is right, it runs and is off, or it is refused, and for what cause."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord_bench.reach.networks import Model, Network

Array = npt.NDArray[Any]
#: Samples that formats are chosen with, others whose results are compared, and those of them with every value inside.
CALIBRATED, COMPARED, PROVED = 32, 8, 2
#: Error of a result relative to its size, and share of labels that differ, up to which a result is right.
MOST_ERROR, MOST_LABELS = 0.05, 0.125
#: Correlation over samples of what differs between them, from which a result is right.
LEAST_CORRELATION = 0.9
#: A result that varies less than this, relative to its size, is not judged by that correlation.
LEAST_VARIATION = 0.05
#: Seconds until a network is given up.
PATIENCE = 900.0
_WORKER = Path(__file__).with_name("worker.py")
RIGHT, OFF, REFUSED, FAILED, MISSING = "runs", "runs, off", "refused", "fails", "not made"
#: Causes of refusals and what their messages have, the first that fits.
CAUSES = (
    ("layout", r"does not fit.*needed \(weight[^ ]*(copy of|/apart)|same lanes|side by side|same place"),
    ("range of numbers", r"must be finite on the samples"),
    ("capacity of the chip", r"does not fit|too large|must have at most .* nodes"),
    ("up-sampling", r"^(Resize|Upsample|ConvTranspose|DepthToSpace|SpaceToDepth)\b"),
    ("ai.onnx.ml", r"ai\.onnx\.ml"),
    ("labels as results", r"^(ArgMax|ArgMin|TopK)\b"),
    ("integers and other types", r"tensor of floats|whole numbers|makes integers|U?INT\d+|BOOL|STRING|DOUBLE"),
    ("control flow", r"^(If|Loop|Scan)\b"),
    ("constants and broadcast", r"^(Expand|Tile|Where|Equal|ConstantOfShape|OneHot)\b|broadcast|constant|infinities"),
    ("operator", r"is not supported"),
)
OTHER = "other"
#: Errors that say what is in the way; others are faults.
_REFUSALS = ("UnsupportedModel", "Unsupported", "CapacityError", "NotFiniteError")


@dataclass
class Outcome:
    """Outcome of a network.

    Parameters
    ----------
    name, family, source : str
        Of the network.
    outcome : str
        One of :data:`RIGHT`, :data:`OFF`, :data:`REFUSED`, :data:`FAILED` and :data:`MISSING`.
    cause : str
        Why, of :data:`CAUSES`; empty if it runs.
    message : str
        What the compiler said.
    preset : str
        The first preset that takes it.
    errors : dict
        By result: the relative error, or the share of labels that differ.
    correlations : dict
        By result: correlation of what differs between samples; absent where next to nothing does.
    compared, different : int
        Values that emulator and derived model both computed, and those that differ.
    flags : list of str
        What the run said of cut-off values.
    seconds : float
        Time to compile.
    share : str
        How much of it the NPU computes, if it does not take the whole.
    on_rtl, different_on_rtl : int
        Results and counters of a sample on the RTL, and those that the emulator has not; 0 if it did not run there.
    in_part : Outcome or None
        Of a network that is refused: what becomes of it where the host may compute anything.
    """

    name: str
    family: str
    source: str
    outcome: str
    cause: str = ""
    message: str = ""
    preset: str = ""
    errors: dict[str, float] = field(default_factory=dict)
    correlations: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    different: int = 0
    flags: list[str] = field(default_factory=list)
    seconds: float = 0.0
    share: str = ""
    on_rtl: int = 0
    different_on_rtl: int = 0
    in_part: Outcome | None = None

    @property
    def error(self) -> float:
        """The greatest of the errors."""
        return max(self.errors.values(), default=0.0)

    def as_json(self) -> dict[str, Any]:
        """Return it for a file; errors have four digits."""
        fields = asdict(replace(self, in_part=None))
        for name in ("errors", "correlations"):
            fields[name] = {key: float(f"{value:.4g}") for key, value in fields[name].items()}
        fields["seconds"] = round(self.seconds, 1)
        fields["in_part"] = None if self.in_part is None else self.in_part.as_json()
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Outcome:
        """Outcome from the fields of :meth:`as_json`, also of an earlier version."""
        part = fields.get("in_part")
        return cls(**{**fields, "in_part": None if part is None else cls.from_json(part)})


def first_reason(message: str) -> str:
    """The first reason in a message, without the line in front of it and what the message suggests."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) > 1 and re.search(r"cannot be compiled( for [^:]*)?:$", lines[0]):
        del lines[0]
    return lines[0] if lines else ""


def cause_of(message: str) -> str:
    """The cause of a refusal, by its first reason."""
    reason = first_reason(message)
    return next((cause for cause, pattern in CAUSES if re.search(pattern, reason)), OTHER)


def reference(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Results of ONNX Runtime by name, ``[samples, *shape]``, sample by sample; maps become columns."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), options)
    names = [item.name for item in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    runs = [session.run(None, {name: values[k] for name, values in inputs.items()}) for k in range(count)]
    return {name: np.stack([_array(run[n]) for run in runs]) for n, name in enumerate(names)}


def _array(value: Any) -> Array:
    """A result; of a sequence of maps the values in the order of their keys."""
    if isinstance(value, list):
        return np.array([[row[key] for key in sorted(row)] for row in value])
    return np.asarray(value)


def _of_samples(model: Model, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs as Concord takes them: without an axis of the batch."""
    return {
        name: values[:, 0] if values.ndim > 1 and values.shape[1] == 1 else values for name, values in arrays.items()
    }


def difference(computed: Array, want: Array) -> tuple[float, float | None]:
    """Relative error of a result, or the share of labels that differ; and the correlation of what differs by sample."""
    if computed.size != want.size:
        return float("inf"), None
    computed = computed.reshape(want.shape)
    if want.dtype.kind not in "f":
        return float(np.mean(computed.astype(want.dtype) != want)), None
    a, w = computed.astype(np.float64), want.astype(np.float64)
    if not np.isfinite(a).all():
        return float("inf"), None
    error = float(np.linalg.norm(a - w) / max(float(np.linalg.norm(w)), 1e-9))
    a, w = a - a.mean(0), w - w.mean(0)
    if np.linalg.norm(w) < LEAST_VARIATION * np.linalg.norm(want):
        return error, None
    return error, float((a * w).sum() / max(float(np.linalg.norm(a) * np.linalg.norm(w)), 1e-9))


def survey(
    network: Network, python: str, presets: Sequence[str], folder: Path, *, partition: str | None = None,
    quick: bool = True, prove: Sequence[str] = ("numpy",), rtl: bool = False, any_part: bool = False,
) -> Outcome:  # fmt: skip
    """Compile and run a network with the Concord of an interpreter.

    Parameters
    ----------
    network : Network
        What to try.
    python : str
        The interpreter.
    presets : sequence of str
        NPUs; the first that takes the network counts.
    folder : Path
        For files.
    partition : str, optional
        Of :func:`concord.compile`.
    quick : bool
        Whether formats are chosen without a search.
    prove : sequence of str
        Implementations to compare the emulator with.
    rtl : bool
        Whether a sample runs on the compiled RTL, too.
    any_part : bool
        Whether a network that is refused is compiled once more where the host may compute anything.
    """
    outcome = _surveyed(network, python, presets, folder, partition, quick, prove, rtl)
    if any_part and outcome.outcome == REFUSED:
        outcome.in_part = _surveyed(network, python, presets, folder, "any", quick, prove, rtl)
    return outcome


def _surveyed(
    network: Network, python: str, presets: Sequence[str], folder: Path, partition: str | None, quick: bool,
    prove: Sequence[str], rtl: bool,
) -> Outcome:  # fmt: skip
    outcome = Outcome(network.name, network.family, network.source, MISSING)
    if network.missing:
        outcome.message = network.missing
        return outcome
    model = network.build()
    path = folder / f"{network.name}.onnx"
    path.write_bytes(model.proto.SerializeToString())
    calibrate, inputs = model.samples(CALIBRATED, 1), model.samples(COMPARED, 2)
    arrays = folder / f"{network.name}.in.npz"
    named = {"calibrate": _of_samples(model, calibrate), "run": _of_samples(model, inputs)}
    np.savez(arrays, **{f"{kind}/{name}": array for kind, part in named.items() for name, array in part.items()})  # type: ignore[arg-type]
    request, answer_file = folder / f"{network.name}.request.json", folder / f"{network.name}.answer.json"
    request.write_text(
        json.dumps(
            {"model": str(path), "arrays": str(arrays), "presets": list(presets), "partition": partition,
             "quick": quick, "prove": list(prove), "proved": PROVED, "rtl": rtl}
        )
    )  # fmt: skip
    command = [python, "-I", str(_WORKER), str(request), str(answer_file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        outcome.outcome, outcome.cause, outcome.message = FAILED, "time", f"more than {PATIENCE:g} s"
        return outcome
    if done.returncode:
        outcome.outcome, outcome.cause, outcome.message = FAILED, "error", done.stderr[-600:]
        return outcome
    answer = json.loads(answer_file.read_text())
    outcome.preset, outcome.seconds, outcome.message = answer["preset"], answer["seconds"], answer["message"]
    outcome.share = answer.get("share", "")
    if answer["error"]:
        refused = answer["error"] in (
            "UnsupportedModel",
            "Unsupported",
            "CapacityError",
            "ValueError",
            "NotFiniteError",
        )
        outcome.outcome = REFUSED if refused else FAILED
        outcome.cause = cause_of(outcome.message) if refused else answer["error"]
        return outcome
    judge(outcome, answer, reference(model, inputs), answer_file.with_suffix(".npz"))
    return outcome


def judge(outcome: Outcome, answer: Mapping[str, Any], wanted: Mapping[str, Array], file: Path) -> None:
    """Compare results with those of ONNX Runtime, and say whether they are right."""
    outcome.flags, outcome.compared, outcome.different = answer["flags"], answer["compared"], answer["different"]
    with np.load(file, allow_pickle=False) as results:
        right = set(results.files) == set(wanted)
        for name in sorted(set(results.files) & set(wanted)):
            error, correlation = difference(results[name], wanted[name])
            outcome.errors[name] = error
            right &= error <= (MOST_ERROR if wanted[name].dtype.kind == "f" else MOST_LABELS)
            if correlation is not None:
                outcome.correlations[name] = correlation
                right &= correlation >= LEAST_CORRELATION
        lacking = sorted(set(wanted) - set(results.files))
    simulated = answer.get("rtl", {})
    outcome.on_rtl, outcome.different_on_rtl = simulated.get("values", 0), simulated.get("different", 0)
    right &= not outcome.different_on_rtl and "error" not in simulated
    outcome.outcome = RIGHT if right and not outcome.different else OFF
    if "error" in simulated:
        outcome.message = f"RTL: {simulated['error']}"
    elif outcome.different_on_rtl:
        outcome.message = f"{outcome.different_on_rtl} results or counters of the RTL differ from the emulator"
    elif lacking:
        outcome.message = f"results that are not there: {', '.join(lacking)}"
    elif outcome.different:
        outcome.message = f"{outcome.different} values of the derived model differ from the emulator"
    elif not outcome.compared:
        outcome.message = f"nothing was compared with the emulator: {answer.get('prove', '')}"
    elif not right:
        outcome.message = outcome.flags[0] if outcome.flags else "results differ, and no flag was raised"
