#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard's own package: the same points as metrics.jsonl has, once each, also after the run
was stopped, went on, and did steps again; and histograms, those of parameters with the counts that numpy.histogram finds in
the checkpoint.

    tensorboard_events.py PROGRAM
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def bucket_limits():
    """TensorFlow's rule, tensorflow/core/lib/histogram/histogram.cc."""
    positive = [1e-12]
    while positive[-1] * 1.1 < 1e20:
        positive.append(positive[-1] * 1.1)
    return numpy.array([-numpy.inf, *(-limit for limit in reversed(positive)), 0.0, *positive, numpy.inf])


def weights_of(program, run):
    """{name: values} of the run's last checkpoint."""
    path = run / "weights.safetensors"
    subprocess.run([program, "checkpoint", "export", run / "checkpoints", f"--out={path}", "--dtype=fp64"], check=True,
                   capture_output=True)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return {name: numpy.frombuffer(content[8 + size:], numpy.float64)[slice(*(offset // 8 for offset in head["data_offsets"]))]
            for name, head in json.loads(content[8:8 + size]).items() if name != "__metadata__"}


def check_histograms(events, weights, steps):
    """Of each tensor one at each of the steps, which come once though they were done twice; the last ones are of `weights`."""
    tags = {f"{kind}/{name}" for kind in ("Parameters", "Gradients") for name in weights}
    check(set(events.Tags()["histograms"]) == tags, f"histograms {events.Tags()['histograms']}")
    for tag in tags:
        found = [event.step for event in events.Histograms(tag)]
        check(found == steps, f"{tag}: histograms of the steps {found}, not {steps}")
    limits = bucket_limits()
    for name, values in weights.items():
        found = events.Histograms(f"Parameters/{name}")[-1].histogram_value
        counts = numpy.zeros(len(limits) - 1)
        counts[numpy.searchsorted(limits[1:-1], found.bucket_limit)] = found.bucket
        check((counts == numpy.histogram(values, limits)[0]).all(), f"{name}: other counts than numpy's")
        check((found.min, found.max, found.num) == (values.min(), values.max(), values.size), f"{name}: min, max, or number")
        check(numpy.isclose(found.sum, values.sum(), 1e-9, 1e-9) and numpy.isclose(found.sum_squares, (values**2).sum(), 1e-9),
              f"{name}: sum, or sum of squares")


def main():
    program = sys.argv[1]
    with CheckedFolder() as folder:
        run = Path(folder) / "run"
        model = [program, "--embed-dim=32", "--depth=1", "--num-heads=2", "--generated-samples=32", "--generated-valid-samples=8",
                 "--device=cpu", "--threads=1", "--histogram-every=1", f"--run-dir={run}"]
        subprocess.run([*model, "--steps=5", "--checkpoint-every=2"], check=True, capture_output=True)
        # As if it had lost the checkpoint of step 5: steps come again after an earlier one's.
        checkpoints = run / "checkpoints"
        check(len(list(checkpoints.glob("step-*.h5"))) == 2, "no earlier checkpoint")
        (checkpoints / "step-000000005.h5").unlink()
        subprocess.run([*model, "--steps=6", "--resume=auto"], check=True, capture_output=True)
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
        events.Reload()
        tags = set(events.Tags()["scalars"])
        check(len(list((run / "tensorboard").iterdir())) == 2, "not a file of each part of the run")

        def compare(tag, kind, value_of):
            wanted = [(r["step"], value_of(r)) for r in records if r["kind"] == kind]
            points = [(p.step, p.value) for p in events.Scalars(tag)]
            check([s for s, _ in wanted] == [s for s, _ in points], f"{tag}: steps {points}, in metrics.jsonl {wanted}")
            check(all(abs(a - b) <= 1e-6 * abs(a) for (_, a), (_, b) in zip(wanted, points)), f"{tag}: {points} {wanted}")

        compare("Loss/step", "step", lambda r: r["loss"])
        compare("Learning Rate", "step", lambda r: r["lr"])
        compare("Loss/train", "epoch", lambda r: r["loss"])
        compare("Avg samples per sec", "epoch", lambda r: r["samples_per_s"])
        compare("Loss/valid", "valid", lambda r: r["loss"])
        channels = next(r for r in records if r["kind"] == "valid")["rmse"]
        for channel in channels:
            compare(f"RMSE({channel})/valid", "valid", lambda r, c=channel: r["rmse"][c])
            check(f"ACC({channel})/valid" in tags, f"no ACC of {channel}")
        check("Avg iters per sec" in tags, "no Avg iters per sec")
        check_histograms(events, weights_of(program, run), [1, 2, 3, 4, 5, 6])
    print(f"{len(tags)} tags, the same points as in metrics.jsonl; histograms with numpy's counts")


if __name__ == "__main__":
    main()
