#!/usr/bin/env python3
"""Scores of forecasts by lead against the same definitions in NumPy.

usage: scores.py [--long] VIT_HYBRID [LAUNCHER...]   (whose last word takes the number of ranks)

A model with history, forcings of the data and computed ones, and a diagnostic forecasts from every time of data with a gap.
`evaluate --lead-hours` is compared with scores of the fields that `forecast` writes from each start, by both definitions,
against time means and against a climatology by day and hour; it is the same in every layout, and as JSON and NetCDF-4. Where
xarray is installed it opens the forecasts, the climatology and the scores, and computes the field's definition once more, and
so do the packages weatherbenchX and weatherbench2.
"""
import datetime
import importlib.machinery
import importlib.util
import itertools
import json
import math
import pathlib
import sys
import zlib

import h5py
import numpy

from recipe import Trial

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

HEIGHT, WIDTH, STEPS = 13, 24, 22
CHANNELS = ["u10", "z:500", "t2m", "tcwv"]
INPUTS = ["--channels", "u10,z:500", "--forcings", "t2m,cos_zenith", "--diagnostics", "tcwv", "--history", 2]
PREDICTED = ["u10", "z:500", "tcwv"]
LEADS = [6, 18, 24]
LAYOUTS = {2: ["--dp 2", "--tp 2", "--pp 2"], 3: ["--dp 3"], 4: ["--dp 2 --tp 2", "--tp 2 --pp 2"], 8: ["--dp 2 --tp 2 --pp 2"]}
GAP = 12  # the row that the gap is before
SCORES = ["bias", "rmse", "acc", "activity", "climatology_rmse", "persistence_rmse", "persistence_acc"]


def write_zarr(store, arrays):
    """A store of version 2 of {name: (dims, values)}; what has days is chunked by hour and half a year."""
    store.mkdir()
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    for name, (dims, values) in arrays.items():
        chunk = [1, 183, *values.shape[2:]] if dims[:2] == ["hour", "dayofyear"] else list(values.shape)
        folder = store / name
        folder.mkdir()
        (folder / ".zarray").write_text(json.dumps(
            {"zarr_format": 2, "shape": list(values.shape), "chunks": chunk, "dtype": values.dtype.str, "order": "C",
             "compressor": {"id": "zlib", "level": 1}, "filters": None, "fill_value": None}))
        (folder / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dims}))
        for index in itertools.product(*(range(size // part) for size, part in zip(values.shape, chunk))):
            part = values[tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, chunk))]
            (folder / ".".join(map(str, index))).write_bytes(zlib.compress(part.tobytes(), 1))


class Scores(Trial):
    def data(self):
        self.run("data", "generate", "--out", "wx", "--weather", "waves", "--format", "netcdf", "--channels", "u10,t2m,tcwv,z:500",
                 "--height", HEIGHT, "--width", WIDTH, "--train-years", 1, "--valid-years", 1, "--steps-per-year", STEPS, "--sample-interval-hours", 6)
        self.valid = next((self.folder / "wx/valid").iterdir())
        with h5py.File(self.valid, "r+") as file:
            file["time"][GAP:] = file["time"][GAP:] + 24
            self.hours = file["time"][:]
            self.latitudes = file["latitude"][:]
        self.run("data", "stats", "wx/train", "--channels", ",".join(CHANNELS), "--out", "stats", "--time-means")
        self.run("train", "--train-data", "wx/train", "--valid-data", "wx/valid", "--stats", "stats", *INPUTS, "--patch-size", "4x6",
                 "--embed-dim", 32, "--num-heads", 4, "--depth", 2, "--precision", "fp64", "--global-batch-size", 6, "--steps", 3,
                 "--lr", "1e-3", "--run-dir", "run")
        self.mean = numpy.load(self.folder / "stats/global_means.npy").ravel().astype("f8")
        self.std = numpy.load(self.folder / "stats/global_stds.npy").ravel().astype("f8")

    def climatology(self):
        """By the day and hour of the valid times, something of its own for each; written as a year file of 2000."""
        begin = datetime.datetime(1900, 1, 1)
        rows = [datetime.datetime(2000, 1, 1) + datetime.timedelta(hours=6 * i) for i in range(4 * 366)]
        numbers = numpy.random.default_rng(5)
        shape = (len(rows), len(CHANNELS), HEIGHT, WIDTH)
        fields = self.mean[:, None, None] + 0.5 * self.std[:, None, None] * numbers.normal(size=shape)
        with h5py.File(self.folder / "days.nc", "w") as file:
            data = file.create_dataset("fields", data=fields.astype("f4"))
            data.attrs["channels"] = ",".join(["t2m", "u10", "z500", "tcwv"])
            data[...] = fields[:, [2, 0, 1, 3]].astype("f4")
            time = file.create_dataset("time", data=[(row - begin).total_seconds() / 3600 for row in rows])
            time.attrs["units"] = "hours since 1900-01-01"
            time.make_scale("time")
            data.dims[0].attach_scale(time)
        self.write_turned(fields[:, [2, 0, 1, 3]].astype("f4"), file_of="days.nc")
        self.write_by_hour(fields.astype("f4").reshape(366, 4, *shape[1:]))
        key = {(row.timetuple().tm_yday, row.hour): i for i, row in enumerate(rows)}
        of_row = lambda hour: begin + datetime.timedelta(hours=float(hour))
        keys = [key[(of_row(hour).timetuple().tm_yday, of_row(hour).hour)] for hour in self.hours]
        return fields.astype("f4").astype("f8")[keys][:, [0, 1, 3]]

    def write_turned(self, fields, file_of):
        """The same, from the south to the north, and from 180 degrees west."""
        with h5py.File(self.folder / file_of) as of, h5py.File(self.folder / "turned.nc", "w") as file:
            of.copy("time", file)
            data = file.create_dataset("fields", data=numpy.roll(fields[:, :, ::-1], WIDTH // 2, -1))
            data.attrs["channels"] = of["fields"].attrs["channels"]
            data.dims[0].attach_scale(file["time"])
            file["latitude"], file["longitude"] = self.latitudes[::-1], numpy.arange(WIDTH) * 360 / WIDTH - 180

    def write_by_hour(self, fields):
        """The same with the dims and names of WeatherBench 2, `fields` (day, hour, channel, latitude, longitude): a Zarr store
        (hour, dayofyear, level, longitude, latitude), one without the hour 18, and NetCDF-4 with days first, turned latitudes and
        longitudes from another one on; of one file they are half a point off."""
        u, z, _, tcwv = numpy.moveaxis(fields.swapaxes(0, 1), 2, 0)
        levels = numpy.stack([0 * z, z], 2)
        points = {"hour": numpy.arange(0, 24, 6), "dayofyear": numpy.arange(1, 367), "level": numpy.array([50, 500]),
                  "longitude": numpy.arange(WIDTH) * 360 / WIDTH, "latitude": self.latitudes}
        dims = ["hour", "dayofyear", "longitude", "latitude"]
        turn = lambda values: values.swapaxes(-1, -2)
        variables = {"10m_u_component_of_wind": (dims, turn(u)), "total_column_water_vapour": (dims, turn(tcwv)),
                     "geopotential": ([*dims[:2], "level", *dims[2:]], turn(levels)), "geopotential_std": (dims[:2], u[:, :, 0, 0])}
        for store, hours in (("by-hour.zarr", 4), ("coarse.zarr", 3)):
            cut = {name: (of, values[:hours] if of[0] == "hour" else values) for name, (of, values) in variables.items()}
            write_zarr(self.folder / store, {**cut, **{name: ([name], values[:hours] if name == "hour" else values)
                                                       for name, values in points.items()}})
        for name, first, off in (("by-hour.nc", 5, 0.0), ("between.nc", 0, 0.5)):
            self.write_days_first(name, {"u_wind" if first else "u10": u, "tcwv": tcwv, "z": levels}, points, first, off * 360 / WIDTH)

    def write_days_first(self, path, variables, points, first, off):
        """Longitudes from that of column `first` on, `off` degrees away."""
        longitudes = (points["longitude"] + points["longitude"][first] + off + 180) % 360 - 180
        longitudes[longitudes < longitudes[0]] += 360
        with h5py.File(self.folder / path, "w") as file:
            for name, values in {**points, "latitude": points["latitude"][::-1], "longitude": longitudes}.items():
                file[name] = values
                file[name].make_scale(name)
            for name, values in variables.items():
                values = numpy.roll(values.swapaxes(0, 1)[..., ::-1, :], -first, -1)
                data = file.create_dataset(name, data=values, chunks=True, compression=1)
                for dim, scale in zip(data.dims, ["dayofyear", "hour", *["level"][:values.ndim - 4], "latitude", "longitude"]):
                    dim.attach_scale(file[scale])

    def forecasts(self):
        """[start, lead] -> fields in the units of the data, of all starts that have a truth."""
        with h5py.File(self.valid) as file:
            z = file["z"] if "z" in file else file["geopotential"]
            truth = numpy.stack([file["u10"][:], z[:].reshape(STEPS, HEIGHT, WIDTH), file["tcwv"][:]], 1).astype("f8")
        pairs = {lead: [] for lead in LEADS}
        for begin, end in ((0, GAP), (GAP, STEPS)):
            for start in range(begin + 1, end - 1):
                steps = min(4, end - 1 - start)
                self.run("forecast", "--checkpoint", "run", "--data", "wx/valid", "--start", start, "--steps", steps, "--out",
                         f"f{start}.nc")
                with h5py.File(self.folder / f"f{start}.nc") as file:
                    fields = file["fields"][:].astype("f8")
                for lead in LEADS:
                    if lead // 6 <= steps:
                        pairs[lead].append((start, start + lead // 6, fields[lead // 6 - 1]))
        return truth, pairs

    def expected(self, rules, truth, pairs, means):
        """By the definitions in docs/weather.md; `means` of each row of the data, what anomalies are against."""
        phi = numpy.radians(self.latitudes)
        if rules == "reference":
            w = numpy.maximum(numpy.cos(phi), 0)
            unit = self.std[[0, 1, 3]]
        else:
            edges = numpy.concatenate([[math.pi / 2], (phi[:-1] + phi[1:]) / 2, [-math.pi / 2]])
            w = numpy.sin(edges[:-1]) - numpy.sin(edges[1:])
            unit = numpy.ones(3)
        w = (w / w.mean())[:, None]
        area = lambda field: (field * w).mean(axis=(-2, -1))
        out = {}
        for lead, of_lead in pairs.items():
            moments, spectra, truth_spectra = [], [], []
            for start, end, f in of_lead:
                y, p, c = truth[end], truth[start], means[end]
                a, b, s = f - c, y - c, p - c
                moments.append([area(x) for x in (f - y, (f - y)**2, a * b, a * a, b * b, (p - y)**2, s * b, s * s)])
                for field, into in ((f, spectra), (y, truth_spectra)):
                    if rules == "reference":
                        field = (field - self.mean[[0, 1, 3], None, None]) / unit[:, None, None]
                    power = numpy.abs(numpy.fft.rfft(field, norm="forward"))**2
                    power[..., 1:WIDTH // 2] *= 2
                    into.append((power * w).mean(axis=1))
            moments = numpy.array(moments)
            if rules == "weatherbench":
                moments = moments.mean(0)[None]
            e, se, ab, aa, bb, pe, sb, ss = moments.transpose(1, 0, 2)
            root = numpy.sqrt
            scores = dict(zip(SCORES, (e / unit, root(se) / unit, ab / root(aa * bb), root(aa) / unit, root(bb) / unit,
                                       root(pe) / unit, sb / root(ss * bb))))
            out[lead] = {name: values.mean(0) for name, values in scores.items()}
            out[lead]["spectrum"], out[lead]["truth_spectrum"] = numpy.mean(spectra, 0), numpy.mean(truth_spectra, 0)
            out[lead]["samples"] = len(of_lead)
        return out

    def scores(self, *words, ranks=1, out="scores.json"):
        self.run("evaluate", "--checkpoint", "run", "--data", "wx/valid", "--out", out, "--overwrite", "--lead-hours",
                 ",".join(map(str, LEADS)), *words, ranks=ranks)
        return json.loads((self.folder / out).read_text()) if out.endswith(".json") else None

    def compare(self, told, expected, what):
        assert len(told["leads"]) == len(LEADS)
        for at_lead in told["leads"]:
            right = expected[at_lead["hours"]]
            assert at_lead["samples"] == right["samples"], f"{what}: {at_lead['samples']} starts, not {right['samples']}"
            for name in (*SCORES, "spectrum", "truth_spectrum"):
                for c, channel in enumerate(at_lead[name]):
                    a, b = numpy.array(at_lead[name][channel]), numpy.array(right[name][c])
                    size = right["rmse"][c] if name == "bias" else numpy.abs(b).max()
                    worst = numpy.abs(a - b).max() / size
                    assert worst < 1e-6, f"{what}: {name} of {channel} at {at_lead['hours']} h is {a}, not {b}: {worst}"

    def check(self):
        truth, pairs = self.forecasts()
        assert {lead: len(of_lead) for lead, of_lead in pairs.items()} == {6: 18, 18: 14, 24: 12}
        mean = numpy.load(self.folder / "stats/time_means.npy")[0].astype("f8")[[0, 1, 3]]
        days = self.climatology()
        for rules in ("reference", "weatherbench"):
            for means, words, against in ((numpy.broadcast_to(mean, (STEPS, *mean.shape)), [], "time means"),
                                          (days, ["--climatology", "days.nc"], "day and hour")):
                told = self.scores("--scores", rules, *words)
                assert told["acc_against"] == against and told["scores"] == rules
                self.compare(told, self.expected(rules, truth, pairs, means), f"{rules} against {against}")
        wrong = self.expected("weatherbench", truth, pairs, numpy.roll(days, 1, 0))
        try:
            self.compare(told, wrong, "the climatology of another hour")
        except AssertionError:
            pass
        else:
            raise AssertionError("the climatology of another hour is not seen")
        self.check_packages(told, pairs)
        self.check_store()
        self.check_others(told)
        self.check_forecast(truth, days, mean)
        self.check_layouts(told)
        self.check_netcdf(told)

    def check_packages(self, told, pairs):
        """The files of the forecasts and of the climatology by other implementations of the field's scores."""
        missing = [name for name in ("xarray", "zarr", "netCDF4") if importlib.util.find_spec(name) is None]
        if missing:
            print(f"scores: {', '.join(missing)} not there: NumPy alone has computed them")
            return
        import weatherbench
        one = self.scores("--scores", "weatherbench", "--climatology", "days.nc", "--limit-nsamples", 1)
        for name, way in weatherbench.WAYS.items():
            if importlib.util.find_spec(name) is None:
                print(f"scores: the package {name} is not there, and nothing is compared with it")
                continue
            worst = 0.0
            for figures, most in ((told, None), (one, 1)):
                for at_lead in figures["leads"]:
                    starts = [start for start, *_ in pairs[at_lead["hours"]]][:most]
                    assert len(starts) == at_lead["samples"]
                    right = way(*self.datasets(starts, at_lead["steps"]))
                    for score, channels in right.items():
                        for channel, value in channels.items():
                            size = right["rmse"][channel] if score == "bias" else numpy.abs(value).max()
                            error = numpy.abs(numpy.array(at_lead[score][channel]) - value).max() / size
                            assert error < 1e-6, f"{score} of {channel} at {at_lead['hours']} h is {at_lead[score][channel]}, by {name} {value}"
                            worst = max(worst, error)
            print(f"scores: {name} has the same {', '.join(right)}, to {worst:.1e}")

    def datasets(self, starts, steps):
        """Forecasts, truth and states at the start by channel, and the climatology."""
        import xarray
        xarray.set_options(arithmetic_join="exact")
        parts = {"forecast": [], "truth": [], "start": []}
        for start in starts:
            with xarray.open_dataset(self.folder / f"f{start}.nc") as file:
                field = file.fields.isel(time=[steps - 1])
                truth = file.truth.rename(truth_time="time")
                values = {"forecast": field, "truth": truth.sel(time=field.time),
                          "start": truth.isel(time=[0]).assign_coords(time=field.time)}
                for name, value in values.items():
                    parts[name].append(value.astype("f8").to_dataset("channel").load())
        with xarray.open_zarr(self.folder / "by-hour.zarr", consolidated=False) as file:
            climatology = xarray.Dataset({"u10": file["10m_u_component_of_wind"], "z500": file.geopotential.sel(level=500, drop=True),
                                          "tcwv": file.total_column_water_vapour}).astype("f8").load()
        return *(xarray.concat(part, "time") for part in parts.values()), climatology

    def check_store(self):
        """A forecast as a Zarr store is that of the NetCDF-4 file; only stores of forecasts are replaced."""
        try:
            from numcodecs import zstd
        except ImportError:
            print("scores: numcodecs is not there: no forecast is looked at as a Zarr store")
            return
        start = GAP + 2
        forecast = ["forecast", "--checkpoint", "run", "--data", "wx/valid", "--start", start, "--steps", 4, "--out"]
        self.run(*forecast, "f.zarr")
        self.run(*forecast, "f.zarr", code=73, expect=["'f.zarr' is there already"])
        (self.folder / "f.zarr/notes.txt").write_text("of the user")
        self.run(*forecast, "f.zarr", "--overwrite", code=73, expect=["the store f.zarr also has notes.txt, which would be lost"])
        (self.folder / "f.zarr/notes.txt").unlink()
        self.run(*forecast, "f.zarr", "--overwrite", "--tp", 2, ranks=2)
        self.run(*forecast, "by-hour.zarr", "--overwrite", code=73, expect=["'by-hour.zarr', which is there and is no store of a forecast"])
        self.run(*forecast, "wx/valid/f.zarr", code=64, expect=["would be one of the data's files in wx/valid"])
        assert [path.name for path in self.folder.iterdir() if path.name.startswith("f.zarr")] == ["f.zarr"]
        assert json.loads((self.folder / "f.json").read_text())["leads"] == json.loads((self.folder / f"f{start}.json").read_text())["leads"]
        root = json.loads((self.folder / "f.zarr/zarr.json").read_text())
        arrays = root["consolidated_metadata"]["metadata"]
        assert root["attributes"]["Conventions"].startswith("CF-") and root["attributes"]["num_true"] == 4

        text = lambda value: value.decode() if isinstance(value, bytes) else value

        def values(name):
            about = arrays[name]
            assert json.loads((self.folder / f"f.zarr/{name}/zarr.json").read_text()) == about
            shape = about["chunk_grid"]["configuration"]["chunk_shape"]
            kind = {"float32": "<f4", "float64": "<f8"}[about["data_type"]]
            chunks = [self.folder / f"f.zarr/{name}/c/{row}{'/0' * (len(shape) - 1)}" for row in range(about["shape"][0] // shape[0])]
            return numpy.concatenate([numpy.frombuffer(zstd.decompress(path.read_bytes()), kind).reshape(shape) for path in chunks])

        with h5py.File(self.folder / f"f{start}.nc") as file:
            for name in ("time", "truth_time", "latitude", "longitude"):
                assert numpy.array_equal(values(name), file[name][:]), name
            assert arrays["time"]["attributes"]["units"] == text(file["time"].attrs["units"])
            for c, channel in enumerate(["u10", "z500", "tcwv"]):
                for variable, dataset, time in ((channel, "fields", "time"), (f"{channel}_truth", "truth", "truth_time")):
                    assert arrays[variable]["dimension_names"] == [time, "latitude", "longitude"]
                    size = numpy.abs(file[dataset][:, c]).max()
                    assert numpy.abs(values(variable) - file[dataset][:, c]).max() <= 1e-6 * size, variable
            assert arrays["z500"]["attributes"]["units"] == text(file["fields"].attrs["units"]).split(",")[1]
        self.open_store(start)
        self.draw_store(start)

    def draw_store(self, start):
        """launch/plot_forecast reads of a store what it reads of a file."""
        if importlib.util.find_spec("matplotlib") is None:
            return
        sys.dont_write_bytecode = True
        script = pathlib.Path(__file__).resolve().parents[2] / "launch/plot_forecast"
        sys.path.insert(0, str(script.parent))
        loader = importlib.machinery.SourceFileLoader("plot_forecast", str(script))
        plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot_forecast", loader))
        loader.exec_module(plot)
        store, file = (plot.read(plot.parsed([str(self.folder / name), "--channel", "u10,z500", "--lead", "3"]))
                       for name in ("f.zarr", f"f{start}.nc"))
        assert (store.times, store.valid, store.lead) == (file.times, file.valid, 3), (store.valid, file.valid)
        assert numpy.array_equal(store.grid.y, file.grid.y) and numpy.array_equal(store.grid.x, file.grid.x)
        for one, two in zip(store.channels, file.channels, strict=True):
            assert (one.name, one.unit) == (two.name, two.unit)
            for a, b in ((one.forecast, two.forecast), (one.truth, two.truth)):
                assert numpy.abs(a - b).max() <= 1e-6 * numpy.abs(b).max(), one.name

    def open_store(self, start):
        try:
            import xarray
            import zarr
        except ImportError:
            return
        if zarr.__version__.startswith("2."):
            return  # stores are of version 3
        with xarray.open_zarr(self.folder / "f.zarr") as store, xarray.open_dataset(self.folder / f"f{start}.nc") as file:
            time = file.time[2]
            assert numpy.allclose(store.z500.sel(time=time), file.fields.sel(channel="z500", time=time), rtol=1e-6)
            assert numpy.array_equal(store.u10_truth.truth_time, file.truth_time) and store.z500.attrs["units"]

    def check_others(self, told):
        """The same climatology stored otherwise."""
        for path, *words in (("days.nc", "--variables", "u10=u10"), ["turned.nc"], ("by-hour.zarr", "--variables", "u10=u10"),
                              ("by-hour.nc", "--variables", "u10=u10,u10=u_wind")):
            other = self.scores("--scores", "weatherbench", "--climatology", path, *words, ranks=2)
            for a, b in zip(told["leads"], other["leads"], strict=True):
                for name in SCORES:
                    one, two = (numpy.array(list(scores[name].values())) for scores in (a, b))
                    assert numpy.allclose(one, two, rtol=1e-12, atol=0), f"{path}: {name}: {one}, {two}"

    def check_forecast(self, truth, days, mean):
        """ACC by lead of one forecast, against each climatology; time means that are damaged do not matter where they do not count."""
        w = numpy.cos(numpy.radians(self.latitudes))[:, None]
        area = lambda field: (field * w).mean(axis=(-2, -1))
        start = GAP + 2
        (self.folder / "bad.npy").write_text("no means")
        for words, against in (([], "time means"), (["--climatology", "by-hour.zarr", "--time-means", "bad.npy", "--tp", 2], "day and hour")):
            self.run("forecast", "--checkpoint", "run", "--data", "wx/valid", "--start", start, "--steps", 4, "--out", "f.h5", "--overwrite",
                     *words, ranks=2 if words else 1, expect=[f"ACC against {against}"])
            told = json.loads((self.folder / "f.json").read_text())
            assert told["acc_against"] == against and len(told["leads"]) == 4, told
            with h5py.File(self.folder / "f.h5") as file:
                fields = file["fields"][:].astype("f8")
            for i, (field, at_lead) in enumerate(zip(fields, told["leads"])):
                means = days[start + i + 1] if words else mean
                a, b = field - means, truth[start + i + 1] - means
                right = area(a * b) / numpy.sqrt(area(a * a) * area(b * b))
                acc = numpy.array(list(at_lead["acc"].values()))
                assert numpy.abs(acc - right).max() < 1e-6, f"lead {i + 1} against {against}: {acc}, not {right}"
        self.scores("--climatology", "days.nc", "--time-means", "bad.npy")

    def check_layouts(self, told):
        at_once = self.scores("--scores", "weatherbench", "--climatology", "days.nc", "--io-threads", 0)
        assert at_once["leads"] == told["leads"], "other figures where nothing is read ahead"
        for ranks, layouts in LAYOUTS.items():
            for layout in layouts:
                other = self.scores("--scores", "weatherbench", "--climatology", "days.nc", "--micro-batch-size", 1 + ranks % 3,
                                    "--valid-batch-size", 16, *layout.split(), ranks=ranks)
                for a, b in zip(told["leads"], other["leads"], strict=True):
                    assert a["samples"] == b["samples"]
                    for name in (*SCORES, "spectrum"):
                        for channel in a[name]:
                            one, two = numpy.array(a[name][channel]), numpy.array(b[name][channel])
                            assert numpy.allclose(one, two, rtol=1e-10, atol=1e-12 * numpy.abs(one).max()), f"{layout}: {name} of {channel}: {one}, {two}"

    def check_netcdf(self, told):
        self.scores("--scores", "weatherbench", "--climatology", "days.nc", out="scores.nc")
        with h5py.File(self.folder / "scores.nc") as file:
            names = [name.decode() for name in file["channel"][:]]
            assert list(file["lead"][:]) == LEADS and names == ["u10", "z500", "tcwv"], names
            assert [[dim[0].name for dim in file[name].dims] for name in ("rmse", "spectrum")] == [
                ["/lead", "/channel"], ["/lead", "/channel", "/wavenumber"]]
            for number, at_lead in enumerate(told["leads"]):
                for name in (*SCORES, "spectrum", "truth_spectrum"):
                    assert numpy.array_equal(file[name][number], [at_lead[name][c] for c in names]), name
        try:
            import xarray
        except ImportError:
            return
        with xarray.open_dataset(self.folder / "scores.nc") as file:
            value = float(file["rmse"].sel(lead=18, channel="z500"))
            assert value == told["leads"][1]["rmse"]["z500"], value

    def check_refusals(self):
        evaluate = ["evaluate", "--checkpoint", "run", "--data", "wx/valid"]
        on_two_ranks = set()  # codes: one case of each
        for words, code, expect in (
            (["--lead-hours", "7"], 64, "multiples of 6"), (["--lead-hours", "6,x"], 64, "has 'x'"),
            (["--lead-hours", "6,6"], 64, "has 6 twice"), (["--lead-hours", "0"], 64, "has '0'"),
            (["--lead-steps", "1.5"], 64, "whole numbers"), (["--lead-hours", "6", "--lead-steps", "1"], 64, "give one of them"),
            (["--lead-hours", "240"], 65, "10 steps ahead at most"), (["--climatology", "days.nc"], 64, "no effect"),
            (["--lead-steps", "1", "--climatology", "nowhere.nc"], 66, "the climatology nowhere.nc is not there"),
            (["--lead-steps", "1", "--climatology", "wx/train"], 65, "hours, not all 366"),
            (["--lead-steps", "1", "--climatology", "coarse.zarr"], 65, "coarse.zarr has no row for day 1 of the year at 18 hours"),
            (["--lead-steps", "1", "--climatology", "between.nc"], 65, "24 longitudes from 7.5 to 352.5, the data (3, 13, 24) of"),
            (["--lead-steps", "1", "--climatology", "stats/time_means.npy"], 65, "the climatology stats/time_means.npy is no"),
            (["--lead-steps", "1", "--predictions", "p.csv"], 64, "--predictions is of classifiers"),
            (["--lead-steps", "1", "--climatology", "days.nc", "--out", "days.nc", "--overwrite"], 64, "days.nc"),
            (["--lead-steps", "1", "--out", "nowhere/a.nc"], 73, "nowhere"),
            (["--out", "run/config.yaml", "--overwrite"], 64, "'run/config.yaml'; allowed: a name that ends with .json;"),
            (["--out", "s.nc"], 64, "ends with .json; figures by lead"), (["--lead-steps", "1", "--out", "s.csv"], 64, "ends with .json or .nc"),
            (["--lead-steps", "1", "--out", "run/summary.json", "--overwrite"], 64, "among the records of a run"),
            (["--out", "run/checkpoints/scores.json"], 64, "among the checkpoints of a run")):
            self.run(*evaluate, *words, code=code, expect=[expect])
            if self.is_long or code not in on_two_ranks:
                self.run(*evaluate, *words, "--dp", 2, ranks=2, code=code, several=True, expect=[expect])
            on_two_ranks.add(code)
        forecast = ["forecast", "--checkpoint", "run", "--data", "wx/valid", "--start", 1, "--steps", 2]
        for words, code, expect in (
            (["--out", "f.h5", "--overwrite", "--climatology", "coarse.zarr"], 65, "at 18 hours"),
            (["--out", "days.nc", "--overwrite", "--climatology", "days.nc"], 64, "which is what is read"),
            (["--out", "run/checkpoints/latest.zarr"], 64, "among the checkpoints of a run"),
            (["--out", "run/summary.h5"], 64, "'run/summary.json', which would be among the records of a run"),
            (["--out", "run/checkpoints/latest.h5", "--overwrite"], 64, "among the checkpoints of a run")):
            self.run(*forecast, *words, code=code, expect=[expect])
        with h5py.File(self.valid, "r+") as file:
            file["u10"].attrs["units"] = "km/h"
        for words in ([*forecast, "--out", "f.h5", "--overwrite"], [*evaluate, "--lead-steps", "1"]):  # the climatology is as the training's data
            self.run(*words, "--climatology", "days.nc", code=65,
                     expect=["(u10) in km/h, the model was trained on it in m s**-1 (data wx/valid, checkpoint run/"])


def main():
    with CheckedFolder() as folder:
        words = [word for word in sys.argv[1:] if word != "--long"]
        trial = Scores(str(pathlib.Path(words[0]).resolve()), words[1:], folder)
        trial.is_long = "--long" in sys.argv
        trial.data()
        trial.check()
        trial.check_refusals()
    print("scores: two definitions, two climatologies, 7 layouts, NetCDF-4 and refusals")


if __name__ == "__main__":
    main()
