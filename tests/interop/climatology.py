#!/usr/bin/env python3
"""Checks `data stats --climatology` against NumPy: the mean by day of the year and hour of the day.

usage: climatology.py VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

A leap year and one that is not, in all formats, from one and three ranks: values, coordinates as the CF conventions have
them, missing values, and the file as data of its own; xarray opens it where it is there.
"""
import datetime
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy

HEIGHT, WIDTH, DAYS, HOURS = 8, 16, 366, (0, 6, 12, 18)
NAMES = "t2m,z:500:850"
CHANNELS = ["t2m", "z500", "z850"]
YEARS = {1992: 1464, 1993: 1460}
ENDING = {"hdf5": "h5", "netcdf": "nc", "zarr": "zarr"}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def dates_of(years):
    return [datetime.datetime(year, 1, 1) + step * datetime.timedelta(hours=6) for year in years for step in range(YEARS[year])]


def climatology(dates, values, window):
    """By its definition, over the values that are finite: [day, hour, channel, latitude, longitude]."""
    sums = numpy.zeros((DAYS, len(HOURS), *values.shape[1:]))
    counts = numpy.zeros_like(sums)
    for date, row in zip(dates, values.astype("f8")):
        day = date.timetuple().tm_yday
        is_leap = datetime.date(date.year, 12, 31).timetuple().tm_yday == DAYS
        for meant in (365, 366) if day == 365 and not is_leap else (day,):
            sums[meant - 1, HOURS.index(date.hour)] += numpy.where(numpy.isfinite(row), row, 0.0)
            counts[meant - 1, HOURS.index(date.hour)] += numpy.isfinite(row)
    above, below = numpy.zeros_like(sums), numpy.zeros_like(sums)
    half = window // 2
    for offset in range(-half, half + 1):
        weight = 1.0 - abs(offset) / half if half else 1.0
        above += weight * numpy.roll(sums, -offset, axis=0)
        below += weight * numpy.roll(counts, -offset, axis=0)
    return above / below


class Trial:
    def __init__(self, program, launcher, folder):
        self.program, self.launcher, self.folder = program, launcher, pathlib.Path(folder)

    def run(self, *words, ranks=1, code=0, expect=""):
        launcher = [*self.launcher, str(ranks)] if self.launcher and ranks > 1 else []
        done = subprocess.run([*launcher, self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == code and expect in said, f"{words} ended with {done.returncode}, not {code} and '{expect}':\n{said}"
        return said

    def generate(self):
        """A folder a format, with a file or store a year."""
        for way, ending in ENDING.items():
            (self.folder / way).mkdir()
            for year, steps in YEARS.items():
                out = self.folder / f"{way}-{year}"
                self.run("data", "generate", "--out", out, "--weather", "waves", "--format", way, "--channels", NAMES, "--first-year", year,
                         "--train-years", 1, "--valid-years", 0, "--steps-per-year", steps, "--sample-interval-hours", 6,
                         "--height", HEIGHT, "--width", WIDTH)
                made = out / "weather.zarr" if way == "zarr" else out / f"train/{year}.{ending}"
                made.rename(self.folder / way / f"{year}.{ending}")

    def values(self):
        years = []
        for year in YEARS:
            with h5py.File(self.folder / f"hdf5/{year}.h5") as file:
                years.append(file["fields"][:])
        return numpy.concatenate(years)

    def stats(self, data, out, *words, ranks=1, **outcome):
        channels = [] if data == "hdf5" else ["--channels", NAMES]
        return self.run("data", "stats", data, "--out", out, "--climatology", *channels, *words, ranks=ranks, **outcome)

    def compare(self, out, expected):
        with h5py.File(self.folder / out / "climatology.nc") as file:
            found = file["fields"][:].reshape(expected.shape)
        scale = numpy.abs(expected).max(axis=(0, 1, 3, 4), keepdims=True)
        worst = (numpy.abs(found - expected) / scale).max()
        assert worst < 1e-6, f"{out}: differs by {worst} of the largest value"

    def check_values(self):
        values = self.values()
        dates = dates_of(YEARS)
        for window in (61, 5):
            expected = climatology(dates, values, window)
            words = [] if window == 61 else ["--climatology-days", window]
            for way in ENDING if window == 61 else ("hdf5",):
                said = self.stats(way, f"{way}-{window}", *words, ranks=3)
                assert f"climatology of 366 days x 4 hours, from {len(dates)} rows of 2 years in a window of {window} day" in said, said
                self.compare(f"{way}-{window}", expected)
        self.stats("zarr", "zarr-one")
        one, three = ((self.folder / out / "climatology.nc").read_bytes() for out in ("zarr-one", "zarr-61"))
        assert one == three, "one rank and three write other bytes"

    def check_year(self):
        """Of a year that is not leap alone."""
        values, dates = self.values()[YEARS[1992]:], dates_of([1993])
        self.stats("zarr", "year", "--dates", 1993, "--climatology-days", 7, ranks=3)
        self.compare("year", climatology(dates, values, 7))

    def check_file(self):
        with h5py.File(self.folder / "netcdf-61/climatology.nc") as file:
            fields = file["fields"]
            assert fields.dtype == "f4" and fields.shape == (DAYS * len(HOURS), len(CHANNELS), HEIGHT, WIDTH)
            assert text(fields.attrs["channels"]).split(",") == CHANNELS and text(fields.attrs["units"]).split(",")[0] == "K"
            assert [dim[0].name for dim in fields.dims] == ["/time", "/channel", "/latitude", "/longitude"]
            assert text(file["time"].attrs["units"]) == "hours since 1900-01-01 00:00:00"
            begin = (datetime.date(2000, 1, 1) - datetime.date(1900, 1, 1)).days * 24
            assert (file["time"][:] == begin + 6.0 * numpy.arange(DAYS * len(HOURS))).all()
            assert (file["latitude"][:] == numpy.linspace(90, -90, HEIGHT)).all()
            assert (file["longitude"][:] == numpy.arange(WIDTH) * 360 / WIDTH).all()
            known = {name: int(file.attrs[name]) for name in ("window_days", "num_years", "num_rows")}
            assert known == {"window_days": 61, "num_years": 2, "num_rows": sum(YEARS.values())}, known
            assert text(file.attrs["Conventions"]).startswith("CF-")
            mean = fields[:].mean(axis=(0, 2, 3), dtype="f8")
        # It is weather like other files.
        self.run("data", "stats", "netcdf-61/climatology.nc", "--out", "again", "--channels", "z500,t2m", ranks=2)
        again = numpy.load(self.folder / "again/global_means.npy").ravel()
        assert numpy.allclose(again, mean[[1, 0]], rtol=1e-6, atol=0), (again, mean)
        try:
            import xarray
            data = xarray.open_dataset(self.folder / "netcdf-61/climatology.nc")
        except (ImportError, ValueError):
            print("xarray, or netCDF4 or h5netcdf beside it, is not there: h5py alone has opened the file")
            return
        assert data.fields.dims == ("time", "channel", "latitude", "longitude")
        assert data.time.values[-1] == numpy.datetime64("2000-12-31T18:00") and (data.time.dt.dayofyear.values[::4] == numpy.arange(1, 367)).all()
        assert data.fields.sel(time="2000-02-29").sizes["time"] == 4
        print("xarray opens it")

    def check_missing(self):
        with h5py.File(self.folder / "hdf5/1993.h5", "r+") as file:
            file["fields"][8:900, 1, 3:5, 2] = numpy.nan
            file["fields"][1459, 2, 0, 0] = numpy.inf
        self.stats("hdf5", "missing", code=65, expect="1993.h5: dataset 'fields' is not finite (nan) at time 8, channel 1")
        assert not (self.folder / "missing").exists()
        self.stats("hdf5", "missing", "--skip-missing", ranks=3)
        self.compare("missing", climatology(dates_of(YEARS), self.values(), 61))

    def check(self):
        self.generate()
        self.check_values()
        self.check_year()
        self.check_file()
        self.check_missing()


def main():
    with tempfile.TemporaryDirectory() as folder:
        Trial(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:], folder).check()


main()
