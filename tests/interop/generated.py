#!/usr/bin/env python3
"""Checks what `data generate` writes in its formats, as other programs see it: h5py, and zarr and xarray where they are.

usage: generated.py VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

Files must be valid NetCDF-4 and Zarr with coordinates of the CF conventions, all formats hold the same weather, and
statistics and training do not tell them apart.
"""
import datetime
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

HEIGHT, WIDTH, STEPS = 13, 24, 12
NAMES = "u10,t2m,z:500:850,q700,t:850:500"
CHANNELS = ["u10", "t2m", "z500", "z850", "q700", "t850", "t500"]
LEVELS = {"z": [500, 850], "q": [700], "t": [850, 500]}
STATICS = {"geopotential_at_surface": "surface_geopotential", "land_sea_mask": "land_area_fraction"}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def plane(variables, name):
    """Of what `variables` is indexed with: the channel's values in time."""
    for variable, levels in LEVELS.items():
        if name.startswith(variable) and name[len(variable):].isdigit() and int(name[len(variable):]) in levels:
            return variables[variable][:, levels.index(int(name[len(variable):]))]
    return variables[name][:]


def hours_of(year):
    return (datetime.date(year, 1, 1) - datetime.date(1900, 1, 1)).days * 24 + 6.0 * numpy.arange(STEPS)


class Trial:
    def __init__(self, program, launcher, folder):
        self.program, self.launcher, self.folder = program, launcher, pathlib.Path(folder)

    def run(self, *words, ranks=1):
        launcher = [*self.launcher, str(ranks)] if self.launcher and ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def generate(self, out, *words, ranks=2):
        return self.run("data", "generate", "--out", out, "--train-years", 2, "--valid-years", 1, "--steps-per-year", STEPS,
                        "--height", HEIGHT, "--width", WIDTH, *words, ranks=ranks)

    def check_netcdf(self):
        for part, year in (("train", 1990), ("train", 1991), ("valid", 1992)):
            with h5py.File(self.folder / f"netcdf/{part}/{year}.nc") as file, h5py.File(self.folder / f"hdf5/{part}/{year}.h5") as joined:
                assert text(file.attrs["Conventions"]).startswith("CF-")
                fields = joined["fields"]
                assert text(fields.attrs["channels"]).split(",") == CHANNELS
                for number, name in enumerate(CHANNELS):
                    assert (plane(file, name) == fields[:, number]).all(), (year, name)
                units = dict(zip(CHANNELS, text(fields.attrs["units"]).split(",")))
                assert units["t2m"] == text(file["t2m"].attrs["units"]) == "K"
                for name in ("u10", "t2m", *LEVELS):
                    dims = [dim[0] for dim in file[name].dims]
                    assert all(h5py.h5ds.is_scale(dim.id) for dim in dims), name
                    time, latitude, longitude = dims[0], dims[-2], dims[-1]
                    assert text(time.attrs["units"]) == "hours since 1900-01-01 00:00:00"
                    assert (time[:] == hours_of(year)).all(), (year, time[:])
                    assert (latitude[:] == numpy.linspace(90, -90, HEIGHT)).all() and text(latitude.attrs["units"]) == "degrees_north"
                    assert (longitude[:] == numpy.arange(WIDTH) * 15.0).all() and text(longitude.attrs["units"]) == "degrees_east"
                    if name in LEVELS:
                        assert dims[1][:].tolist() == LEVELS[name] and text(dims[1].attrs["units"]) == "hPa"
                for name, standard in STATICS.items():
                    assert file[name].shape == (HEIGHT, WIDTH) and text(file[name].attrs["standard_name"]) == standard
                    assert (file[name][:] == joined[name][:]).all()
                assert [dim[0].name for dim in joined["fields"].dims] == ["/time", "/channel", "/latitude", "/longitude"]

    def check_zarr(self):
        store = self.folder / "zarr/weather.zarr"
        root = json.loads((store / "zarr.json").read_text())
        arrays = root["consolidated_metadata"]["metadata"]
        assert root["zarr_format"] == 3 and root["node_type"] == "group"
        for name, array in arrays.items():
            assert json.loads((store / name / "zarr.json").read_text()) == array, name
            chunks = [-(-size // chunk) for size, chunk in zip(array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"])]
            assert len([path for path in (store / name / "c").rglob("*") if path.is_file()]) == numpy.prod(chunks), name
        assert arrays["z"]["shape"] == [3 * STEPS, 2, HEIGHT, WIDTH] and arrays["z"]["dimension_names"][0] == "time"
        assert arrays["z"]["chunk_grid"]["configuration"]["chunk_shape"] == [1, 2, HEIGHT, WIDTH]
        try:
            import xarray
            import zarr
        except ImportError:
            print("values of the Zarr store are not looked at: zarr or xarray is not there")
            return
        if zarr.__version__.startswith("2."):
            print(f"values of the Zarr store are not looked at: zarr {zarr.__version__} reads none of version 3")
            return
        group = zarr.open_group(store, mode="r")
        for number, year in enumerate((1990, 1991, 1992)):
            with h5py.File(self.folder / f"hdf5/{'valid' if number == 2 else 'train'}/{year}.h5") as joined:
                rows = slice(number * STEPS, (number + 1) * STEPS)
                assert (group["time"][rows] == hours_of(year)).all()
                for channel, name in enumerate(CHANNELS):
                    assert (plane(group, name)[rows] == joined["fields"][:, channel]).all(), (year, name)
        data = xarray.open_zarr(store)
        assert data.time.values[STEPS] == numpy.datetime64("1991-01-01") and data.z.dims == ("time", "level", "latitude", "longitude")
        assert data.sizes["time"] == 3 * STEPS and data.attrs["Conventions"].startswith("CF-")
        again = xarray.open_dataset(self.folder / "netcdf/train/1991.nc")
        assert again.t.equals(data.t.sel(time="1991"))
        print("zarr and xarray read the same")

    def check_use(self):
        """Statistics to the last bit, and the same losses of a training on two ranks."""
        names = ("global_means.npy", "global_stds.npy", "time_means.npy", "channels.txt")
        losses = {}
        for way in ("hdf5", "netcdf", "zarr"):
            train = ["--train-data", f"{way}/weather.zarr", "--train-dates", "1990/1991"] if way == "zarr" else ["--train-data", f"{way}/train"]
            valid = ["--valid-data", f"{way}/weather.zarr", "--valid-dates", "1992"] if way == "zarr" else ["--valid-data", f"{way}/valid"]
            channels = [] if way == "hdf5" else ["--channels", NAMES]
            dates = ["--dates", "1990/1991"] if way == "zarr" else []
            self.run("data", "stats", train[1], "--out", f"{way}/again", "--time-means", *channels, *dates, ranks=2)
            for name in names:
                expected = (self.folder / "hdf5/stats" / name).read_bytes()
                for folder in ("stats", "again"):
                    assert (self.folder / way / folder / name).read_bytes() == expected, (way, folder, name)
            out = self.run(*train, *valid, "--stats", f"{way}/stats", *channels, *(["--dp", 2] if self.launcher else []), "--patch-size", 4,
                           "--embed-dim", 32, "--depth", 1, "--num-heads", 2, "--global-batch-size", 4, "--epochs", 2, "--device", "cpu",
                           "--deterministic", "--run-dir", f"run-{way}", ranks=2)
            assert "rows at the data's latitudes 90 to -90" in out, out
            losses[way] = [line for line in out.splitlines() if " loss=" in line and "step" not in line]
        assert losses["hdf5"] and losses["hdf5"] == losses["netcdf"] == losses["zarr"], losses

    def refused(self, code, says, *words):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        told = done.stdout + done.stderr
        assert done.returncode == code and says in told, f"{words} ended with {done.returncode}:\n{told}"

    def check_units(self):
        """Statistics know the units that they are in, of channels in any order."""
        stats = self.folder / "hdf5/stats/channels.txt"
        names, units = (line.split(",") for line in stats.read_text().splitlines())
        assert names == CHANNELS and units == ["m s**-1", "K", "m**2 s**-2", "m**2 s**-2", "kg kg**-1", "K", "K"], units
        train = ["--train-data", "netcdf/train", "--channels", "t850,u10", "--stats", "celsius", "--patch-size", 4, "--embed-dim", 16, "--depth", 1,
                 "--num-heads", 2, "--global-batch-size", 4, "--steps", 1, "--device", "cpu"]
        (self.folder / "celsius").mkdir()
        for file in (self.folder / "hdf5/stats").glob("global_*.npy"):
            (self.folder / "celsius" / file.name).write_bytes(file.read_bytes())
        for unit, is_other in (("degC", True), ("kelvin", False), ("", False)):
            told = ",".join([*units[:5], unit, "K"])
            (self.folder / "celsius/channels.txt").write_text(",".join(names) + "\n" + told + "\n")
            if is_other:
                self.refused(65, "celsius/global_means.npy is of channel 't850' in degC (channels.txt beside it), but the data have it in K", *train)
            else:
                self.run(*train, "--run-dir", f"units-{unit}")

    def check_leads(self):
        """Statistics of increments know their lead, for what predicts increments and what is weighed by them."""
        self.run("data", "stats", "hdf5/train", "--out", "half-days", "--increments", "--dt-hours", 12)
        assert (self.folder / "half-days/time_diff_lead.txt").read_text() == "12 hours\n"
        train = ["--train-data", "hdf5/train", "--stats", "half-days", "--patch-size", 4, "--embed-dim", 16, "--depth", 1, "--num-heads", 2,
                 "--global-batch-size", 4, "--steps", 1, "--device", "cpu"]
        for number, words in enumerate((["--target", "increment"], ["--loss-channel-weights", "increments"])):
            self.refused(65, "in half-days are over 12 hours (time_diff_lead.txt), the pairs of the data are 1 row (6 hours) apart", *train, *words)
            self.run(*train, *words, "--dt", 2, "--run-dir", f"leads-{number}")
        (self.folder / "half-days/time_diff_lead.txt").unlink()
        done = subprocess.run([self.program, *map(str, train), "--target", "increment", "--loss-channel-weights", "increments", "--dt", "2", "--run-dir",
                               "leads"], cwd=self.folder, capture_output=True, text=True)
        warnings = [line for line in done.stderr.splitlines() if "not known over which lead the increments of half-days are" in line]
        assert done.returncode == 0 and len(warnings) == 1 and "`echo '12 hours' >half-days/time_diff_lead.txt`" in warnings[0], done.stderr

    def check_two_jobs(self):
        """While one job writes a data set, another one is refused; nothing of the lock is left."""
        words = ["data", "generate", "--out", "twice", "--weather", "waves", "--format", "zarr", "--train-years", 1, "--valid-years", 0,
                 "--steps-per-year", 20000, "--height", 8, "--width", 16, "--channels", 2]
        first = subprocess.Popen([self.program, *map(str, words)], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (self.folder / "twice/run.lock").exists() and first.poll() is None:
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        assert first.poll() is None, f"the first of two jobs ended with {first.returncode}"
        self.refused(73, "the data folder twice is in use by process", *words)
        first.send_signal(signal.SIGCONT)
        assert first.wait() == 0, f"the first of two jobs ended with {first.returncode}"
        assert sorted(path.name for path in (self.folder / "twice").iterdir()) == ["stats", "weather.zarr"]
        self.refused(73, "the folder twice is not empty", *words)

    def check_water(self):
        """Shallow water by variable: the same values as in one dataset, on a plane that has no coordinates."""
        for way in ("hdf5", "netcdf", "zarr"):
            self.generate(f"water-{way}", "--channels", 9, "--format", way)
        with h5py.File(self.folder / "water-hdf5/train/1991.h5") as joined, h5py.File(self.folder / "water-netcdf/train/1991.nc") as file:
            assert list(joined) == ["fields"]
            for number, name in enumerate(text(joined["fields"].attrs["channels"]).split(",")):
                assert (file[name][:] == joined["fields"][:, number]).all(), name
            assert text(file["latitude"].attrs["NAME"]).startswith("This is a netCDF dimension but not a netCDF variable")
        for part, years in (("train", (1990, 1991)), ("valid", (1992,))):
            assert sorted(path.name for path in (self.folder / "water-zarr" / part).iterdir()) == [f"{year}.zarr" for year in years]
        for way in ("netcdf", "zarr"):
            self.run("data", "stats", f"water-{way}/train", "--out", f"water-{way}/again", "--channels", "height,u,tracer_2")
            assert (self.folder / f"water-{way}/stats/channels.txt").read_text() == (self.folder / "water-hdf5/stats/channels.txt").read_text()
            for name in ("global_means.npy", "time_means.npy"):
                assert (self.folder / f"water-{way}/stats" / name).read_bytes() == (self.folder / "water-hdf5/stats" / name).read_bytes()

    def check(self):
        for way in ("hdf5", "netcdf", "zarr"):
            self.generate(way, "--weather", "waves", "--channels", NAMES, "--sample-interval-hours", 6, "--format", way)
        self.check_netcdf()
        self.check_zarr()
        self.check_use()
        self.check_units()
        self.check_leads()
        self.check_two_jobs()
        self.check_water()


def main():
    with CheckedFolder() as folder:
        Trial(sys.argv[1], sys.argv[2:], folder).check()


main()
