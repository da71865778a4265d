#!/usr/bin/env python3
"""Trains recipes with all that a model of weather may take and give beside the state, in many layouts.

usage: recipe.py VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

History, computed forcings and those of the data, diagnostics, static fields, increments, weighted losses and cut patches:
weights and losses are the same in every layout, evaluate and forecast agree with the training, what is of another hour or
planet changes the figures, and what does not fit is refused in one line.
"""
import json
import pathlib
import subprocess
import sys

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

HEIGHT, WIDTH, STEPS = 12, 24, 24
STATS = ["u10", "z:500:850", "t2m", "tcwv"]
MODEL = ["--patch-size", "5x7", "--embed-dim", 32, "--num-heads", 4, "--depth", 4, "--precision", "fp64"]
INPUTS = ["--channels", "u10,z:500:850", "--forcings", "cos_zenith,t2m,sin_julian_day", "--diagnostics", "tcwv",
          "--static", "orography,land_sea_mask,cos_latitude", "--history", 3, "--dt-hours", 12]
LOSS = ["--target", "increment", "--loss", "l1", "--loss-latitude-weights", "--loss-channel-weights", "increments"]
LAYOUTS = {
    2: ["--dp 2", "--tp 2", "--pp 2 --micro-batch-size 2", "--dp 2 --zero 0 --io-threads 0"],
    3: ["--dp 3 --micro-batch-size 1"],
    4: ["--dp 2 --tp 2", "--dp 2 --pp 2 --schedule gpipe --micro-batch-size 1", "--tp 2 --pp 2 --micro-batch-size 3",
        "--tp 4 --tp-overlap", "--pp 4 --micro-batch-size 1", "--dp 4 --order dp-tp-pp"],
    8: ["--dp 2 --tp 2 --pp 2 --micro-batch-size 1 --order pp-tp-dp"],
}


class Trial:
    def __init__(self, program, launcher, folder):
        self.program, self.launcher, self.folder = program, launcher, pathlib.Path(folder)

    def run(self, *words, code=0, expect=(), ranks=1, several=False):
        launcher = [*self.launcher, str(ranks)] if self.launcher and ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{text}"
        errors = [line for line in done.stderr.splitlines() if "warning:" not in line and " so far" not in line]
        assert code == 0 or several or len(errors) == 1, f"{words} ends with {len(errors)} lines:\n{text}"
        for part in expect:
            assert part in text, f"{words} does not say '{part}':\n{text}"
        return text

    def data(self):
        for out, seed in (("wx", 1), ("other", 2)):
            self.run("data", "generate", "--out", out, "--weather", "waves", "--format", "netcdf", "--channels", "u10,t2m,tcwv,z:500:850",
                     "--height", HEIGHT, "--width", WIDTH, "--train-years", 1, "--valid-years", 1, "--steps-per-year", STEPS,
                     "--seed", seed, ranks=2)
        self.run("data", "stats", "wx/train", "--channels", ",".join(STATS), "--out", "stats", "--increments", "--dt-hours", 12,
                 "--time-means")

    def train(self, folder, *words, ranks=1, **outcome):
        data = ["--train-data", "wx/train", "--valid-data", "wx/valid", "--stats", "stats"]
        return self.run("train", *data, *MODEL, "--global-batch-size", 7, "--steps", 4, "--lr", "1e-3", "--run-dir", folder,
                        *words, ranks=ranks, **outcome)

    def validations(self, folder):
        records = map(json.loads, (self.folder / folder / "metrics.jsonl").read_text().splitlines())
        return [record["loss"] for record in records if record.get("kind") == "valid"]

    def weights(self, folder):
        with h5py.File(self.folder / folder / "checkpoints/step-000000004.h5") as file:
            return {name: values[:] for name, values in file["parameters"].items()}

    def check_layouts(self):
        self.train("one", *INPUTS, *LOSS)
        expected, losses = self.weights("one"), self.validations("one")
        assert losses and expected, "nothing to compare with"
        for ranks, layouts in LAYOUTS.items():
            for number, layout in enumerate(layouts):
                folder = f"run-{ranks}-{number}"
                self.train(folder, *INPUTS, *LOSS, *layout.split(), ranks=ranks)
                for name, values in self.weights(folder).items():
                    worst = numpy.abs(values - expected[name]).max() / max(numpy.abs(expected[name]).max(), 1e-30)
                    assert worst < 1e-11, f"{layout}: {name} differs by {worst}"
                assert numpy.allclose(self.validations(folder), losses, rtol=1e-12, atol=0), f"{layout}: {self.validations(folder)}, {losses}"

    def evaluate(self, run, *words, data="wx/valid", ranks=1, **outcome):
        self.run("evaluate", "--checkpoint", run, "--data", data, "--out", "figures.json", "--overwrite", *words, ranks=ranks, **outcome)
        return json.loads((self.folder / "figures.json").read_text()) if not outcome.get("code") else None

    def check_use(self):
        last = self.validations("one")[-1]
        for ranks in (1, 2):
            loss = self.evaluate("one", ranks=ranks)["loss"]
            assert abs(loss - last) < 1e-12, f"{loss} at {ranks} ranks, the training's {last}"
        use = ["forecast", "--checkpoint", "one", "--data", "wx/valid", "--start", 4, "--steps", 5]
        self.run(*use, "--out", "a.h5")
        self.run(*use, "--out", "b.h5", "--tp", 2, "--pp", 2, ranks=4)
        with h5py.File(self.folder / "a.h5") as a, h5py.File(self.folder / "b.h5") as b:
            fields, truth = a["fields"][:].astype("f8"), a["truth"][:].astype("f8")
            assert numpy.allclose(fields, b["fields"][:], rtol=1e-6, atol=1e-6)
            latitudes = a["latitude"][:]
        weights = numpy.maximum(numpy.cos(numpy.radians(latitudes)), 0)
        weights /= weights.mean()
        figures = json.loads((self.folder / "a.json").read_text())
        for lead in range(5):
            for c, channel in enumerate(figures["channels"]):
                error = (fields[lead, c] - truth[lead + 1, c]) / channel["standard_deviation"]
                rmse = numpy.sqrt((error**2 * weights[:, None]).mean())
                told = figures["leads"][lead]["rmse"][channel["name"]]
                assert abs(rmse - told) < 1e-5 * max(rmse, 1), f"{channel['name']} at lead {lead + 1}: {told}, not {rmse}"

    def check_planted(self):
        """A forcing of the wrong hour, and a field of another planet, are seen; a model without them does not mind."""
        self.train("plain", "--channels", "u10,z:500:850")
        self.train("sun", "--channels", "u10,z:500:850", "--forcings", "cos_zenith", "--history", 2)
        self.check_makani("sun")
        (self.folder / "late").mkdir()
        for source in (self.folder / "wx/valid").iterdir():
            (self.folder / "late" / source.name).write_bytes(source.read_bytes())
            with h5py.File(self.folder / "late" / source.name, "r+") as file:
                file["time"][:] = file["time"][:] + 6
        for run, changes in (("one", True), ("sun", True), ("plain", False)):
            loss = self.evaluate(run)["loss"]
            assert (self.evaluate(run, data="late")["loss"] != loss) == changes, f"times of {run}"
        loss = self.evaluate("one")["loss"]
        other = next((self.folder / "other/valid").iterdir())
        assert self.evaluate("one", "--static-data", other)["loss"] != loss, "statics of another planet"

    def check_makani(self, same):
        """In the names of makani's configurations the same training, recorded in those of here."""
        (self.folder / "makani.yaml").write_text("dt: 1\nn_history: 1\nadd_zenith: true\n")
        self.train("makani", "--channels", "u10,z:500:850", "--config", "makani.yaml")
        expected, weights = self.weights(same), self.weights("makani")
        assert weights.keys() == expected.keys()
        assert all(numpy.allclose(weights[name], values, rtol=1e-11, atol=1e-13) for name, values in expected.items())
        recorded = (self.folder / "makani/config.yaml").read_text()
        assert "\nhistory: 2 " in recorded and "\nforcings: cos_zenith " in recorded, recorded
        assert "n_history" not in recorded and "add_zenith" not in recorded, recorded
        (self.folder / "both.yaml").write_text("history: 2\nn_history: 2\n")
        self.train("refused", "--channels", "u10,z:500:850", "--config", "both.yaml", code=64,
                   expect=["both.yaml:2: 'n_history' (history) is given twice, as '2' and '2' (history 3); keep one"])

    def check_refusals(self):
        train = lambda *words, **outcome: self.train("refused", *words, **outcome)
        channels = ["--channels", "u10,z:500:850"]
        train("--forcings", "t2m", code=64, expect=["--forcings has t2m, of the data, without --channels"])
        train(*channels, "--forcings", "cos_zenit", code=65, expect=["has no channel 'cos_zenit'", "nearest is 'cos_zenith'"])
        train(*channels, "--static", "orografy", code=65, expect=["'orografy'"])
        train(*channels, "--static", "cos_latitud", code=65, expect=["nearest is 'cos_latitude'"])
        train(*channels, "--static", "cos_zenith", code=64, expect=["changes with time"])
        train(*channels, "--diagnostics", "u10", code=64, expect=["names 'u10' twice"])
        train(*channels, "--static", "orography", "--static-data", "nowhere.nc", code=66, expect=["nowhere.nc"])
        self.run("data", "stats", "wx/train", "--channels", ",".join(STATS), "--out", "plain-stats")
        train(*channels, "--target", "increment", "--stats", "plain-stats", code=66, several=True,
              expect=["time_diff_means.npy", "time_diff_stds.npy"])
        (self.folder / "bare").mkdir()
        with h5py.File(self.folder / "bare/1990.h5", "w") as file:
            file["fields"] = numpy.random.default_rng(1).normal(size=(9, 2, HEIGHT, WIDTH)).astype("f4")
        for name, value in (("means", 0), ("stds", 1)):
            numpy.save(self.folder / f"{name}.npy", numpy.full(2, value, "f4"))
        bare = ["--train-data", "bare", "--valid-data", "bare", "--global-means", "means.npy", "--global-stds", "stds.npy"]
        self.run("train", *bare, *MODEL, "--forcings", "cos_zenith", code=65, expect=["on which cos_zenith depends"])
        with h5py.File(self.folder / "bare/1990.h5", "r+") as file:
            file["latitude"], file["longitude"] = numpy.linspace(80, -80, HEIGHT), numpy.arange(WIDTH) * 360 / WIDTH
        self.run("train", *bare, *MODEL, "--forcings", "cos_latitude,cos_zenith", code=65,
                 expect=["has no dates, on which the forcing cos_zenith depends"])
        self.run("forecast", "--checkpoint", "one", "--data", "wx/valid", "--start", 0, "--out", "c.h5", code=64, expect=["give --start 2"])
        self.run("forecast", "--checkpoint", "one", "--data", "wx/valid", "--start", 4, "--steps", 40, "--out", "c.h5", code=64,
                 expect=["takes t2m from the data"])
        resumed = [*INPUTS, *LOSS, "--resume", "latest"]
        self.train("one", *resumed, "--history", 2, "--steps", 6, code=64, expect=["cannot go on from"])
        self.train("one", *resumed, "--target", "state", "--steps", 6, code=64, expect=["increments for a target"])


def main():
    with CheckedFolder() as folder:
        trial = Trial(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:], folder)
        trial.data()
        trial.check_layouts()
        trial.check_use()
        trial.check_planted()
        trial.check_refusals()
    print("recipes: 12 layouts, evaluate, forecast, planted faults and refusals")


if __name__ == "__main__":
    main()
