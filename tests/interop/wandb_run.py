#!/usr/bin/env python3
"""Reads what `launch/export --wandb` writes with the messages of Weights & Biases' own package: the points, times,
configuration and summary of a run of the program that was stopped and went on.

    wandb_run.py PROGRAM
"""
import json
import struct
import subprocess
import sys
from pathlib import Path

from wandb.proto import wandb_internal_pb2

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

EXPORT = Path(__file__).resolve().parents[2] / "launch/export"
BLOCK, HEADER = 32768, 7  # of the file: LevelDB's log format, after seven bytes of wandb's own
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def records_of(path):
    """The messages wandb_internal.Record of a .wandb file."""
    content = path.read_bytes()
    check(content[:4] == b":W&B", f"{path} is no file of wandb")
    place, data = HEADER, b""
    while place < len(content):
        rest = BLOCK - place % BLOCK
        if rest < HEADER:
            place += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        data += content[place + HEADER:place + HEADER + length]
        place += HEADER + length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            yield record
            data = b""
        else:
            check(kind in (FIRST, MIDDLE), f"a record of kind {kind}")


def export(run, folder, *words):
    done = subprocess.run([sys.executable, EXPORT, run, "--wandb", *words], cwd=folder, capture_output=True, text=True,
                          check=False)
    check(done.returncode == 0, f"export ended with {done.returncode}: {done.stderr}")
    check(done.stderr == "", f"export complains: {done.stderr}")
    return Path(folder) / done.stdout.removeprefix("wrote ").split(":")[0]


def main():
    with CheckedFolder() as folder:
        run = Path(folder) / "run"
        model = [sys.argv[1], "--embed-dim=32", "--depth=1", "--num-heads=2", "--generated-samples=32",
                 "--generated-valid-samples=8", "--device=cpu", "--threads=1", f"--run-dir={run}"]
        subprocess.run([*model, "--steps=3"], check=True, capture_output=True)
        subprocess.run([*model, "--steps=6", "--resume=auto"], check=True, capture_output=True)
        written = export(run, folder, "--project=weather")
        records = list(records_of(next(written.glob("*.wandb"))))
        by_kind = {}
        for record in records:
            by_kind.setdefault(record.WhichOneof("record_type"), []).append(record)

        wanted = {}
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            points = {"step": {"Loss/step": "loss", "Learning Rate": "lr"}, "epoch": {"Loss/train": "loss"},
                      "valid": {"Loss/valid": "loss"}}.get(record["kind"], {})
            if points:
                wanted.setdefault(record["step"], {}).update({tag: record[key] for tag, key in points.items()})
                wanted[record["step"]]["_timestamp"] = record["time"]
        history = {}
        for record in by_kind["history"]:
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            history[values["_step"]] = values
        check(sorted(history) == sorted(wanted), f"steps {sorted(history)}, not {sorted(wanted)}")
        for step, values in wanted.items():
            for tag, value in values.items():
                found = history[step].get(tag, 1e300)
                check(abs(found - value) <= 1e-9 * abs(value), f"{tag} of step {step} is {found}, not {value}")
        check(any(tag.startswith("RMSE(") for tag in history[0]), "no RMSE of the untrained network")

        first = by_kind["run"][0].run
        config = {item.key: json.loads(item.value_json) for item in first.config.update}
        check((first.project, first.display_name) == ("weather", "run"), f"project {first.project}, name {first.display_name}")
        check((config["embed_dim"], config["optimizer"], config["model"]["depth"]) == (32, "adam", 1), f"configuration {config}")
        summary = {}
        for record in by_kind["summary"]:
            summary.update({item.key: json.loads(item.value_json) for item in record.summary.update if item.key})
        check(summary["steps"] == 6, f"summary {summary}")
        check("ranks" not in summary, "the ranks are in the summary")

        again = export(run, folder, "--out", f"{folder}/other")
        check(again.parent == Path(folder) / "other/wandb", f"not in --out, but in {again}")
        check(again.name.endswith(f"-{first.run_id}"), f"another id than {first.run_id}: {again.name}")
    print(f"{len(history)} steps, the same points as in metrics.jsonl")


if __name__ == "__main__":
    main()
