#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard's own package: the same points as metrics.jsonl has, once each, also after the run
was stopped, went on, and did steps again.

    tensorboard_events.py PROGRAM
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = [program, "--embed-dim=32", "--depth=1", "--num-heads=2", "--generated-samples=32", "--generated-valid-samples=8",
                 "--device=cpu", "--threads=1", f"--run-dir={run}"]
        subprocess.run([*model, "--steps=5", "--checkpoint-every=2"], check=True, capture_output=True)
        # As if it had lost the checkpoint of step 5: steps come again after an earlier one's.
        checkpoints = run / "checkpoints"
        check(len(list(checkpoints.glob("step-*.h5"))) == 2, "no earlier checkpoint")
        (checkpoints / "step-000000005.h5").unlink()
        subprocess.run([*model, "--steps=6", "--resume=auto"], check=True, capture_output=True)
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
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
    print(f"{len(tags)} tags, the same points as in metrics.jsonl")


if __name__ == "__main__":
    main()
