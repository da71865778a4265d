#!/usr/bin/env python3
"""Checks leads of several rows (--dt, --dt-hours) and gaps in the times of the data: in training, evaluation, forecast.

usage: leads_by_h5py.py VIT_HYBRID

What persistence scores is computed with NumPy over the pairs that the times allow; the times of a forecast are those of
its steps, whatever the rows of the file are.
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

HEIGHT, WIDTH = 7, 11  # cut by patches of 4
SIX_HOURLY = [0, 6, 12, 18, 24, 30, 42, 48, 54, 60, 66, 72]  # hour 36 is missing
HOURLY = list(range(40))


def write(path, hours, seed, units="hours since 2001-01-01"):
    """States that change smoothly, so that a wrong row is seen in every score."""
    random = numpy.random.default_rng(seed)
    base, slope = random.standard_normal((2, 2, HEIGHT, WIDTH))
    fields = (base + slope * numpy.array(hours)[:, None, None, None] / 10).astype("f4")
    with h5py.File(path, "w") as file:
        file["fields"] = fields
        if units:
            file["time"] = numpy.array(hours, "f8")
            file["time"].attrs["units"] = units
            file["time"].make_scale("time")
            file["fields"].dims[0].attach_scale(file["time"])
    return fields.astype("f8")


def rmse_of(before, after, std):
    """By channel, in standard deviations, the rows weighted by their latitudes."""
    weights = numpy.cos(numpy.radians(numpy.linspace(90, -90, HEIGHT)))
    weights = (weights / weights.mean())[:, None]
    return numpy.sqrt((weights * ((after - before) / std[:, None, None]) ** 2).mean((1, 2)))


def persistence(fields, hours, lead, std):
    pairs = [(i, hours.index(hour + lead)) for i, hour in enumerate(hours) if hour + lead in hours and not any(
        missing not in hours for missing in range(hour, hour + lead, hours[1] - hours[0]))]
    return len(pairs), numpy.mean([rmse_of(fields[i], fields[j], std) for i, j in pairs], 0)


class Trial:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, *words, code=0):
        done = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{words} ended with {done.returncode}:\n{text}"
        return text

    def data(self):
        for name, hours, seed, units in (("six", SIX_HOURLY, 1, "hours since 2001-01-01"), ("one", HOURLY, 2, "hours since 2001-01-01"),
                                         ("untold", SIX_HOURLY, 3, "")):
            (self.folder / name).mkdir()
            fields = write(self.folder / name / "2001.h5", hours, seed, units)
            setattr(self, name, fields)
        (self.folder / "stats").mkdir()
        self.std = self.six.std((0, 2, 3))
        for name, values in (("global_means", self.six.mean((0, 2, 3))), ("global_stds", self.std)):
            numpy.save(self.folder / "stats" / f"{name}.npy", values.reshape(1, 2, 1, 1).astype("f4"))

    def expect(self, name, hours, lead, folder, text):
        """The persistence of an evaluation of checkpoint `name` on `folder`."""
        pairs, rmse = persistence(getattr(self, folder), hours, lead, self.std)
        assert f"{pairs} pairs" in text, f"{name} on {folder}: not {pairs} pairs:\n{text}"
        rows = [line.split() for line in text.splitlines() if line.startswith(("c00 ", "c01 "))]
        told = numpy.array([float(row[2]) for row in rows])
        assert told.shape == rmse.shape and abs(told - rmse).max() < 2e-6, f"{name} on {folder}: {told}, not {rmse}"

    def trained(self, name, *words):
        small = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --steps 2 --global-batch-size 2 --device cpu".split()
        return self.run(*small, "--train-data", "six", "--stats", "stats", "--run-dir", name, *words)

    def evaluated(self, name, folder):
        return self.run("evaluate", "--checkpoint", name, "--data", folder, "--device", "cpu")

    def check(self):
        self.data()
        text = self.trained("next")
        assert "10 pairs (none crosses the 1 gap in their times)" in text, text
        text = self.trained("rows", "--dt", "3")
        assert "pairs 3 rows (18 hours) apart" in text, text
        (self.folder / "makani.yaml").write_text("dt: 3\n")
        text = self.trained("yaml", "--config", "makani.yaml")
        assert "pairs 3 rows (18 hours) apart" in text and "unused" not in text, text
        self.trained("hours", "--dt-hours", "18")
        for name in ("rows", "hours"):
            self.expect(name, SIX_HOURLY, 18, "six", self.evaluated(name, "six"))
            self.expect(name, HOURLY, 18, "one", self.evaluated(name, "one"))  # the same lead in other rows
            text = self.evaluated(name, "untold")
            assert "the data do not name their times: the model predicts 3 rows (18 hours) ahead" in text, text
            assert "lead        3 rows (18 hours)" in self.run("checkpoint", "inspect", f"{name}/checkpoints"), "inspect"
        self.expect("next", SIX_HOURLY, 6, "six", self.evaluated("next", "six"))
        self.expect("next", HOURLY, 6, "one", self.evaluated("next", "one"))
        self.bad_input()
        self.forecast()
        self.two_forecasts()

    def two_forecasts(self):
        """A file that comes to its place while a forecast is made is not replaced."""
        words = "forecast --checkpoint next --data six --steps 3000 --out slow.nc --device cpu".split()
        slow = subprocess.Popen([self.program, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not list(self.folder.glob("slow.nc*.partial")) and slow.poll() is None:
            time.sleep(0.001)
        slow.send_signal(signal.SIGSTOP)
        assert slow.poll() is None, f"the slow forecast ended with {slow.returncode}"
        (self.folder / "slow.nc").write_text("another's")
        slow.send_signal(signal.SIGCONT)
        error = slow.communicate()[1]
        assert slow.returncode == 73 and "'slow.nc' is there already" in error, error
        assert [(path.name, path.read_text()) for path in self.folder.glob("slow*")] == [("slow.nc", "another's")]

    def bad_input(self):
        small = "--patch-size 4 --embed-dim 16 --depth 1 --num-heads 2 --steps 4 --global-batch-size 2 --device cpu --stats stats".split()
        odd = "the lead of 9 hours is no multiple of the 6 hours"
        assert odd in self.run(*small, "--train-data", "six", "--dt-hours", "9", code=64), "odd hours"
        untold = "--dt-hours is 18, and the data do not say which hours"
        assert untold in self.run(*small, "--train-data", "untold", "--dt-hours", "18", code=64), "no times"
        other = "the data's pairs are 1 row (6 hours) apart, those of the model's training 3 rows (18 hours)"
        text = self.run(*small, "--train-data", "six", "--limit-nsamples", "5", "--resume", "rows/checkpoints", "--run-dir", "on", code=64)
        assert other in text, text

    def forecast(self):
        """From hour 18 in steps of 18: 36 is missing, so there is no truth; its times go on all the same."""
        for start, known in ((3, 0), (2, 1)):
            text = self.run("forecast", "--checkpoint", "rows", "--data", "six", "--start", str(start), "--steps", "3", "--out", "f.h5",
                            "--overwrite", "--device", "cpu")
            says = "2 rows behind this time: none of the lead times has truth" if known == 0 else "with lead time 1: those from 2 to 3 have no truth"
            assert says in text, f"not '{says}':\n{text}"
            with h5py.File(self.folder / "f.h5") as file:
                hours = file["time"][:]
            first = SIX_HOURLY[start]
            assert list(hours) == [first + 18, first + 36, first + 54], f"from hour {first}: times {hours}"
            figures = json.loads((self.folder / "f.json").read_text())
            assert (figures["dt"], figures["dt_hours"], len(figures["leads"])) == (3, 18, known), figures
            if known:
                told = [figures["leads"][0]["persistence_rmse"][c] for c in ("c00", "c01")]
                rmse = rmse_of(self.six[start], self.six[start + 3], self.std)
                assert abs(numpy.array(told) - rmse).max() < 2e-6, f"{told}, not {rmse}"


def main():
    with CheckedFolder() as folder:
        Trial(str(pathlib.Path(sys.argv[1]).resolve()), folder).check()


if __name__ == "__main__":
    main()
