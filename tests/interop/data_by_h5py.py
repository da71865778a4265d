#!/usr/bin/env python3
"""Checks that files which h5py wrote are used as they say: shapes, coordinates in dimension scales, the order of dims,
and names of classes.

usage: data_by_h5py.py VIT_HYBRID

Scores of persistence are computed with NumPy from the files' own latitudes; what a checkpoint knows of the data of its
training is read with h5py.
"""
import json
import pathlib
import subprocess
import sys

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

CHANNELS, HEIGHT, WIDTH, TIMES = "u,v,t850", 12, 20, 9
GRIDS = {
    "globe": numpy.linspace(90, -90, HEIGHT),
    "from the south": numpy.linspace(-90, 60, HEIGHT),
    "a region": numpy.linspace(75, 35, HEIGHT),
}
NAMES = {"globe": ("lat", "lon"), "from the south": ("latitude", "longitude"), "a region": ("y", "x")}  # y by its units
COLOURS = {"circle": 40, "square": 120, "stripe cat": 220}


def write_weather(path, latitudes, names):
    random = numpy.random.default_rng(7)
    by_row = numpy.linspace(0.2, 2, HEIGHT)[:, None]
    fields = (random.standard_normal((TIMES, 3, HEIGHT, WIDTH)) * by_row * 3 + 10).astype("f4")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("fields", data=fields)
        dataset.attrs["channels"] = CHANNELS
        for dim, (name, values, units) in {
            2: (names[0], latitudes.astype("f4"), "degrees_north"),
            3: (names[1], numpy.arange(WIDTH) * 18.0, "degrees_east"),
        }.items():
            file[name] = values
            file[name].attrs["units"] = units
            file[name].make_scale(name)
            dataset.dims[dim].attach_scale(file[name])
    return fields.astype("f8")


def persistence(fields, latitudes, mean, std):
    weights = numpy.cos(numpy.radians(latitudes))
    weights = (weights / weights.mean())[:, None]
    x = (fields - mean[:, None, None]) / std[:, None, None]
    before, after = x[:-1], x[1:]
    rmse = numpy.sqrt((weights * (before - after) ** 2).mean((2, 3))).mean(0)
    scale = numpy.sqrt((weights * before**2).sum((2, 3)) * (weights * after**2).sum((2, 3)))
    return rmse, ((weights * before * after).sum((2, 3)) / scale).mean(0)


def write_images(path, names):
    labels = numpy.arange(30) % len(names)
    with h5py.File(path, "w") as file:
        file["images"] = numpy.stack([numpy.full((16, 16, 3), COLOURS[names[label]], "u1") for label in labels])
        file["labels"] = labels
        file["labels"].attrs["classes"] = ",".join(names)


class Check:
    def __init__(self, program, folder):
        self.program, self.folder, self.failures = program, folder, 0

    def say(self, what, right, detail=""):
        self.failures += not right
        print(f"{'right' if right else 'WRONG'}  {what}{': ' if detail else ''}{detail}", flush=True)

    def run(self, *words, code=0):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != code:
            sys.exit(f"{words} ended with {done.returncode}, not {code}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout + done.stderr

    def evaluate(self, run, data, *words):
        self.run("evaluate", "--checkpoint", f"{run}/checkpoints", "--data", data, "--out", "e.json", "--overwrite", *words)
        return json.loads((self.folder / "e.json").read_text())

    def coordinates(self):
        model = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --steps 1 --global-batch-size 4".split()
        mean, std = numpy.full(3, 10.0), numpy.array([2.0, 3.0, 4.0])
        for name, latitudes in GRIDS.items():
            folder = self.folder / name.replace(" ", "-")
            for part in ("data", "stats"):
                (folder / part).mkdir(parents=True)
            fields = write_weather(folder / "data" / "2001.h5", latitudes, NAMES[name])
            numpy.save(folder / "stats" / "global_means.npy", mean)
            numpy.save(folder / "stats" / "global_stds.npy", std)
            started = self.run("train", *model, "--train-data", folder / "data", "--stats", folder / "stats", "--run-dir",
                               folder / "run")
            (folder / "stats").rename(folder / "elsewhere")
            figures = self.evaluate(folder / "run", folder / "data")
            rmse, acc = persistence(fields, latitudes, mean, std)
            told = [numpy.array([figures[f"persistence_{kind}"][c] for c in CHANNELS.split(",")]) for kind in ("rmse", "acc")]
            self.say(f"persistence on {name}", numpy.allclose(told, [rmse, acc], rtol=1e-5, atol=1e-6), f"RMSE {told[0][0]:.6f}")
            with h5py.File(next((folder / "run" / "checkpoints").glob("step-*.h5"))) as file:
                attributes = dict(file.attrs)
            wanted = {"latitudes": latitudes, "longitudes": numpy.arange(WIDTH) * 18.0, "means": mean, "stds": std}
            self.say(f"h5py reads what the checkpoint of {name} knows",
                     all(numpy.allclose(attributes[key], value, atol=1e-5) for key, value in wanted.items())
                     and attributes["channels"].decode() == CHANNELS)
        self.say("a run without shapes has those of the file",
                 f"image-size {HEIGHT}x{WIDTH}, in-channels 3, out-channels 3" in started)
        text = self.run("evaluate", "--checkpoint", "globe/run/checkpoints", "--data", "a-region/data", code=65)
        self.say("another grid is refused", "12 latitudes from 75 to 35" in text and "from 90 to -90" in text)

    def order(self):
        """Channels last, with names of the dims and without, and turned as the message and docs/data.md say."""
        folder = self.folder / "last"
        for part in ("named", "bare", "turned"):
            (folder / part).mkdir(parents=True)
        fields = numpy.random.default_rng(1).standard_normal((TIMES, HEIGHT, WIDTH, 3)).astype("f4")
        for part in ("named", "bare"):
            with h5py.File(folder / part / "2001.h5", "w") as file:
                file["fields"] = fields
                for dim, name in enumerate(["time", "lat", "lon", "channel"] if part == "named" else []):
                    file["fields"].dims[dim].label = name
        train = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --steps 1 --global-batch-size 4".split()
        for part, sign in (("named", "dim 1 is a latitude"), ("bare", "dim 3 is small beside dims 1 and 2")):
            text = self.run("train", *train, "--train-data", folder / part, "--stats", "globe/elsewhere", code=65)
            self.say(f"channels last are known, {part}", f"({TIMES}, {HEIGHT}, {WIDTH}, 3) has its channels last" in text
                     and sign in text)
        line = text[text.index("import h5py"):].split('"')[0]
        line = line.replace("OLD.h5", str(folder / "bare" / "2001.h5")).replace("NEW.h5", str(folder / "turned" / "2001.h5"))
        subprocess.run([sys.executable, "-c", line], check=True)
        text = self.run("train", *train, "--train-data", folder / "turned", "--stats", "globe/elsewhere", "--run-dir",
                        folder / "run")
        self.say("turned by the message's line they are trained on", "in-channels 3" in text)

    def damage(self):
        """A chunk that cannot be decoded is bad data whoever reads it: this program or HDF5."""
        (self.folder / "damaged").mkdir()
        path = self.folder / "damaged/2001.h5"
        with h5py.File(path, "w") as file:
            values = numpy.random.default_rng(2).standard_normal((TIMES, 3, HEIGHT, WIDTH)).astype("f4")
            fields = file.create_dataset("fields", data=values, chunks=(1, 3, HEIGHT, WIDTH), compression="gzip")
            chunk = fields.id.get_chunk_info(TIMES // 2)
        data = bytearray(path.read_bytes())
        data[chunk.byte_offset + chunk.size // 2:chunk.byte_offset + chunk.size] = bytes(chunk.size - chunk.size // 2)
        path.write_bytes(data)
        train = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --epochs 1 --global-batch-size 2".split()
        for mode in ("direct", "independent", "collective"):
            text = self.run("train", *train, "--train-data", "damaged", "--stats", "globe/elsewhere", "--io", mode, "--run-dir", f"run-{mode}", code=65)
            self.say(f"a damaged chunk by --io {mode}", "2001.h5" in text and "damaged" in text)

    def classes(self):
        names = list(COLOURS)
        write_images(self.folder / "all.h5", names)
        write_images(self.folder / "some.h5", [names[2], names[0]])
        self.run(*("train --task classify --patch-size 4 --embed-dim 32 --depth 1 --num-heads 2 --steps 60 --lr 3e-3 "
                   "--global-batch-size 10").split(),
                 "--train-data", "all.h5", "--run-dir", "classifier")
        with h5py.File(next((self.folder / "classifier" / "checkpoints").glob("step-*60.h5"))) as file:
            self.say("h5py reads the names of the classes", file.attrs["class_names"].decode() == ",".join(names))
        self.say("the colours are learnt", self.evaluate("classifier", "all.h5")["top1"] == 1.0)
        self.say("two of them, numbered otherwise, are matched by name",
                 self.evaluate("classifier", "some.h5")["top1"] == 1.0)


def main():
    with CheckedFolder() as folder:
        check = Check(pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(folder))
        check.coordinates()
        check.order()
        check.damage()
        check.classes()
    print(f"{check.failures} wrong")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
