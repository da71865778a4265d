#!/usr/bin/env python3
"""Checks what launch/plot_forecast draws of forecasts with known values, what it refuses, and a forecast of the program.

usage: test_plot_forecast.py VIT_HYBRID [--long]

Maps are looked at through matplotlib's own objects and through the colours of the drawn pixels.
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py
import matplotlib
import numpy

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "launch"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import check_runs  # noqa: E402
SCRIPT = str(pathlib.Path(__file__).resolve().parents[2] / "launch/plot_forecast")
loader = importlib.machinery.SourceFileLoader("plot_forecast", SCRIPT)
plot = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot_forecast", loader))
loader.exec_module(plot)

PROGRAM = None
IS_LONG = "--long" in sys.argv
long_test = unittest.skipUnless(IS_LONG, "with --long")
START, STEPS, TIMES = 2, 4, 5  # of five times the one at 2 is the start, so that two lead times of four have truth
GREY = (191, 191, 191)
NAMES = {"channels": "z500,t2m", "units": "m2/s2,K"}


def cells(latitudes, longitudes):
    """A field that says of each point where it is."""
    return numpy.add.outer(10.0 * numpy.asarray(latitudes), numpy.asarray(longitudes))


def region(height=6, width=8):
    return numpy.linspace(70, 20, height), numpy.linspace(-10, 25, width)


def write(folder, truth, forecast, latitudes=None, longitudes=None, time=None, scales=True, attributes=NAMES,
          coordinates_in="both"):
    """A data file and a forecast of it. `truth` and `forecast` are of one state; the states of lead L are L times theirs."""
    os.makedirs(f"{folder}/data", exist_ok=True)
    for path, is_forecast in ((f"{folder}/data/1994.h5", False), (f"{folder}/forecast.h5", True)):
        with numpy.errstate(invalid="ignore"):
            rows = [lead * forecast for lead in range(1, STEPS + 1)]
            rows = rows if is_forecast else [(t - START) * truth for t in range(TIMES)]
        with h5py.File(path, "w") as file:
            fields = file.create_dataset("fields", data=numpy.stack(rows).astype("f4"))
            fields.attrs.update(attributes)
            for dim, name, points, units in ((2, "lat", latitudes, "degrees_north"), (3, "lon", longitudes, "degrees_east")):
                if points is None or coordinates_in not in ("both", "forecast" if is_forecast else "data"):
                    continue
                file[name] = points
                file[name].attrs["units"] = units
                if scales:
                    file[name].make_scale(name)
                    fields.dims[dim].attach_scale(file[name])
            if time is not None:
                name, units, calendar, begin, step = time
                first, count = (START + 1, STEPS) if is_forecast else (0, TIMES)
                file[name] = begin + step * (first + numpy.arange(count))
                file[name].attrs.update({key: value for key, value in (("units", units), ("calendar", calendar)) if value})
                file[name].make_scale(name)
                fields.dims[0].attach_scale(file[name])
            if is_forecast:
                file.attrs.update({"start": START, "source_file": "elsewhere/1994.h5", "source_time": START,
                                   "checkpoint": "gone.h5"})
    leads = [{"lead": lead, "loss": 0.1, "samples": 1, "rmse": {"z500": 0.1 * lead, "t2m": 0.2 * lead},
              "acc": {"z500": 1 - 0.1 * lead, "t2m": None}, "persistence_rmse": {"z500": 0.3 * lead, "t2m": 0.4 * lead},
              "persistence_acc": {"z500": 1 - 0.3 * lead, "t2m": 0.5}, "climatology_rmse": {"z500": 1.0, "t2m": 1.0}}
             for lead in (1, 2)]
    with open(f"{folder}/forecast.json", "w", encoding="utf-8") as file:
        channels = [{"name": "z500", "unit": "m2/s2", "standard_deviation": 300.0},
                    {"name": "t2m", "unit": "K", "standard_deviation": 20.0}]
        json.dump({"acc_against": "time means", "leads": leads, "channels": channels}, file)


class Drawn:
    """A picture and its parts."""

    def __init__(self, folder, *words):
        matplotlib.rcdefaults()
        self.figure = plot.drawn(plot.read(plot.parsed([f"{folder}/forecast.h5", "--data", f"{folder}/data", *words])))
        self.figure.canvas.draw()
        self.pixels = numpy.asarray(self.figure.canvas.buffer_rgba())[..., :3]
        self.maps = [axes for axes in self.figure.axes if not hasattr(axes, "_colorbar") and
                     any(isinstance(c, matplotlib.collections.QuadMesh) for c in axes.collections)]
        self.bars = [axes for axes in self.figure.axes if hasattr(axes, "_colorbar")]
        self.curves = [axes for axes in self.figure.axes if axes.get_ylabel().startswith(("RMSE", "ACC"))]
        self.titles = [part.subfigs[0].texts[0].get_text() for part in self.figure.subfigs]

    def mesh(self, i):
        return self.maps[i].collections[0]

    def color(self, i, x, y):
        """Of the pixel where a map shows (x, y)."""
        right, up = self.maps[i].transData.transform((x, y))
        return tuple(int(value) for value in self.pixels[len(self.pixels) - 1 - int(up), int(right)])

    def expected(self, i, value):
        mesh = self.mesh(i)
        return tuple(int(round(255 * part)) for part in mesh.cmap(mesh.norm(value))[:3])

    def ticks(self, i, axis):
        return [label.get_text() for label in getattr(self.maps[i], f"get_{axis}ticklabels")()]

    def line(self, i, label):
        return next(line.get_data() for line in self.curves[i].lines if line.get_label() == label)


class PlotForecast(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="vit_hybrid-plot-")
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def assert_near(self, color, expected):
        self.assertLessEqual(max(abs(a - b) for a, b in zip(color, expected)), 2, (color, expected))

    def assert_shows(self, drawn, i, latitudes, longitudes, values):
        """Every cell's centre has the colour of its value."""
        for row, y in enumerate(latitudes):
            for column, x in enumerate(longitudes):
                self.assert_near(drawn.color(i, x, y), drawn.expected(i, values[row, column]))

    def states(self, latitudes, longitudes):
        truth = cells(latitudes, longitudes)
        return numpy.stack([truth, 250 + 0.1 * truth]), numpy.stack([1.25 * truth, 251 + 0.1 * truth])

    def test_values_lie_at_their_coordinates(self):
        latitudes, longitudes = region()
        for order in (1, -1):  # from the north, from the south
            truth, forecast = self.states(latitudes[::order], longitudes)
            write(self.folder, truth, forecast, latitudes[::order], longitudes)
            drawn = Drawn(self.folder, "--lead", "2")
            self.assertEqual(len(drawn.maps), 3)
            self.assert_shows(drawn, 0, latitudes[::order], longitudes, 2 * truth[0])
            self.assert_shows(drawn, 2, latitudes[::order], longitudes, 2 * (forecast - truth)[0])
            bottom, top = drawn.maps[0].get_ylim()
            self.assertEqual((bottom, top), (15, 75))  # cells reach half way beyond the last points
            self.assertEqual(drawn.maps[1].get_xlim(), (-12.5, 27.5))
            self.assertIn("60°N", drawn.ticks(0, "y"))
            self.assertTrue({"10°W", "0°", "20°E"} <= set(drawn.ticks(0, "x")), drawn.ticks(0, "x"))

    def test_colors(self):
        latitudes, longitudes = region()
        truth, forecast = self.states(latitudes, longitudes)
        write(self.folder, truth, forecast, latitudes, longitudes)
        drawn = Drawn(self.folder, "--lead", "1")
        low, high = truth[0].min(), truth[0].max()
        self.assertEqual(drawn.mesh(0).get_clim(), (low, high))
        self.assertEqual(drawn.mesh(1).get_clim(), (low, high))
        most = numpy.abs(forecast - truth)[0].max()
        numpy.testing.assert_allclose(drawn.mesh(2).get_clim(), (-most, most))
        self.assert_near(drawn.expected(2, 0.0), (247, 247, 247))
        self.assertGreater(drawn.expected(2, most)[0], drawn.expected(2, most)[2])  # too high is red
        self.assertEqual([bar.get_xlabel() for bar in drawn.bars], ["z500 [m²/s²]", "error of z500 [m²/s²]"])
        self.assertEqual(drawn.bars[0]._colorbar.extend, "max")
        self.assertEqual(drawn.maps[0].get_title(), f"truth: {low:.0f} to {high:.0f}")
        weights = numpy.cos(numpy.radians(latitudes))[:, None] * numpy.ones(len(longitudes))
        error = (forecast - truth)[0]
        self.assertEqual(drawn.maps[2].get_title(), "forecast − truth: RMSE {:.0f}, bias {:.0f}".format(
            numpy.average(error**2, weights=weights)**0.5, numpy.average(error, weights=weights)))

    def test_constant_fields_have_a_scale(self):
        same = numpy.full((2, 4, 4), 5.0)
        write(self.folder, same, same)
        drawn = Drawn(self.folder, "--lead", "1")
        self.assertLess(*drawn.mesh(0).get_clim())
        self.assertEqual(drawn.maps[2].get_title(), "forecast − truth: RMSE 0.00, bias 0.00")
        self.assert_near(drawn.color(2, 1, 1), (247, 247, 247))

    def test_missing_values_are_grey(self):
        latitudes, longitudes = region()
        truth, forecast = self.states(latitudes, longitudes)
        forecast[0, 1, 2], truth[0, 4, 5] = numpy.nan, numpy.inf
        fill = {"_FillValue": numpy.float32(forecast[0, 0, 0])}
        write(self.folder, truth, forecast, latitudes, longitudes, attributes=NAMES | fill)
        drawn = Drawn(self.folder, "--lead", "1")
        for i, holes in ((0, {(4, 5)}), (1, {(1, 2), (0, 0)}), (2, {(4, 5), (1, 2), (0, 0)})):
            found = {(row, column) for row, y in enumerate(latitudes) for column, x in enumerate(longitudes)
                     if drawn.color(i, x, y) == GREY}
            self.assertEqual(found, holes)
            self.assertEqual(drawn.maps[i].get_title().endswith(", missing: grey"), i < 2)
        write(self.folder, truth, numpy.full_like(truth, numpy.nan), latitudes, longitudes)
        drawn = Drawn(self.folder, "--lead", "1")
        self.assertEqual([axes.get_title().partition(",")[0] for axes in drawn.maps[1:]],
                         ["forecast: no values", "no point with truth and forecast"])

    def test_longitudes_may_wrap(self):
        latitudes, longitudes = numpy.array([-80.0, -85.0, -90.0]), numpy.array([170.0, 175.0, 180.0, -175.0])
        truth, forecast = self.states(latitudes, [170, 175, 180, 185])
        write(self.folder, truth, forecast, latitudes, longitudes)
        drawn = Drawn(self.folder, "--lead", "1")
        self.assertEqual(drawn.maps[0].get_xlim(), (167.5, 187.5))
        self.assertEqual(drawn.maps[0].get_ylim(), (-90, -77.5))  # no cell reaches beyond the pole
        self.assert_shows(drawn, 0, latitudes + [0, 0, 1], [170, 175, 180, 185], truth[0])
        self.assertTrue({"180°", "175°W"} <= set(drawn.ticks(0, "x")), drawn.ticks(0, "x"))

    def test_curvilinear_grid(self):
        rows, columns = numpy.mgrid[0:5, 0:7]
        latitudes, longitudes = 50 - 3.0 * rows + 0.5 * columns, 355 + 3.0 * columns + 0.5 * rows
        truth = numpy.stack([rows * 7.0 + columns] * 2)
        write(self.folder, truth, truth + 1, latitudes, longitudes % 360, scales=False)
        drawn = Drawn(self.folder, "--lead", "1")
        for row in range(5):
            for column in range(7):
                self.assert_near(drawn.color(0, longitudes[row, column], latitudes[row, column]),
                                 drawn.expected(0, truth[0, row, column]))
        self.assertIn("10°E", drawn.ticks(0, "x"))
        # About the pole the cells would be torn: numbers of rows and columns.
        around = numpy.degrees(numpy.arctan2(rows - 2.2, columns - 3.2))
        write(self.folder, truth, truth + 1, 90 - numpy.hypot(rows - 2.2, columns - 3.2), around, scales=False)
        self.assertEqual(Drawn(self.folder, "--lead", "1").maps[0].get_xlabel(), "column")

    def test_without_coordinates_the_first_row_is_on_top(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        drawn = Drawn(self.folder, "--lead", "1")
        self.assert_shows(drawn, 0, range(4), range(8), truth[0])
        self.assertGreater(*drawn.maps[0].get_ylim())
        self.assertEqual((drawn.maps[0].get_xlabel(), drawn.maps[0].get_ylabel()), ("column", "row"))

    @long_test
    def test_where_coordinates_come_from(self):
        latitudes, longitudes = region()
        truth, forecast = self.states(latitudes, longitudes)
        for place in ("forecast", "data"):
            write(self.folder, truth, forecast, latitudes, longitudes, coordinates_in=place, scales=False)
            self.assert_shows(Drawn(self.folder, "--lead", "1"), 0, latitudes, longitudes, truth[0])
        write(self.folder, truth, forecast)
        with h5py.File(f"{self.folder}/checkpoint.h5", "w") as file:
            file.attrs.update({"latitudes": latitudes, "longitudes": longitudes})
        with h5py.File(f"{self.folder}/forecast.h5", "a") as file:
            file.attrs["checkpoint"] = f"{self.folder}/checkpoint.h5"
        self.assert_shows(Drawn(self.folder, "--lead", "1"), 0, latitudes, longitudes, truth[0])

    @long_test
    def test_times(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        for time, expected, hours in (
                (("timestamp", None, None, 1514764800.0, 21600.0),
                 "valid 2018-01-01 18:00 UTC, 6 h after 2018-01-01 12:00 UTC", [6, 12]),
                (("time", "hours since 1900-01-01 00:00:0.0", None, 24, 12),
                 "valid 1900-01-03 12:00 UTC, 12 h after 1900-01-03 00:00 UTC", [12, 24]),
                (("time", "days since 2000-02-28T06:00:00Z", "noleap", 0.0, 0.5),
                 "valid 2000-03-01 18:00 UTC, 12 h after 2000-03-01 06:00 UTC", [12, 24]),
                (("time", "days since 2000-02-28", "360_day", 0, 1),
                 "valid 2000-03-01 00:00 UTC, 24 h after 2000-02-30 00:00 UTC", [24, 48]),
                (("time", "days since 2000-02-28", "standard", 0, 1),
                 "valid 2000-03-02 00:00 UTC, 24 h after 2000-03-01 00:00 UTC", [24, 48]),
                (("time", "fortnights since 2000-02-28", None, 0, 1), "lead time 1 from 1994.h5, time 2", [1, 2]),
                (("time", None, None, 0, 1), "lead time 1 from 1994.h5, time 2", [1, 2])):
            write(self.folder, truth, truth + 1, time=time)
            drawn = Drawn(self.folder, "--lead", "1")
            self.assertEqual(drawn.titles, [f"geopotential at 500 hPa (z500) [m²/s²]\n{expected}"])
            self.assertEqual(list(drawn.line(0, "forecast")[0]), hours)

    def test_skill(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        drawn = Drawn(self.folder, "--channel", "z500,1")
        self.assertEqual([axes.get_ylabel() for axes in drawn.curves],
                         ["RMSE [m²/s²]", "ACC against time means", "RMSE [K]", "ACC against time means"])
        for i, label, expected in ((0, "forecast", [30, 60]), (0, "persistence", [90, 180]), (0, "climatology", [300, 300]),
                                   (1, "forecast", [0.9, 0.8]), (1, "persistence", [0.7, 0.4]), (2, "forecast", [4, 8]),
                                   (3, "forecast", [numpy.nan, numpy.nan]), (3, "persistence", [0.5, 0.5])):
            numpy.testing.assert_allclose(drawn.line(i, label)[1], expected)
        self.assertEqual(list(drawn.line(0, "maps above")[0]), [2, 2])  # the last one with truth
        self.assertEqual(drawn.titles, ["geopotential at 500 hPa (z500) [m²/s²]\nlead time 2 from 1994.h5, time 2",
                                        "2 m temperature (t2m) [K]\nlead time 2 from 1994.h5, time 2"])

    def test_a_lead_time_without_truth_is_a_forecast_alone(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        drawn = Drawn(self.folder, "--lead", "3")
        self.assertEqual([axes.get_title() for axes in drawn.maps], ["forecast: 3.00 to 96.0"])
        self.assert_shows(drawn, 0, range(4), range(8), 3 * (truth[0] + 1))

    def test_lead_times_of_several_rows(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        with h5py.File(f"{self.folder}/forecast.h5", "a") as file:
            file.attrs["dt"] = 2  # the next state but one is the truth of the first lead time, and that of others is not there
        drawn = Drawn(self.folder, "--lead", "1")
        self.assert_shows(drawn, 0, range(4), range(8), 2 * truth[0])
        self.assertEqual([axes.get_title().split(":")[0] for axes in Drawn(self.folder, "--lead", "2").maps], ["forecast"])
        with h5py.File(f"{self.folder}/forecast.h5", "a") as file:
            file.attrs["num_true"] = 0  # the times have a gap
        self.assertEqual([axes.get_title().split(":")[0] for axes in Drawn(self.folder, "--lead", "1").maps], ["forecast"])

    @long_test
    def test_coastlines(self):
        latitudes, longitudes = numpy.linspace(-60, 60, 13), 10.0 * numpy.arange(36)
        same = numpy.stack([cells(latitudes, longitudes)] * 2)
        write(self.folder, same, same, latitudes, longitudes)
        line = [[-100.0, 33.0], [-80.0, 33.0]]  # the map begins at 0, so it lies at 270
        def black(drawn):
            """Whether a dark line goes through (270, 33) in each map."""
            near = numpy.arange(-1, 1.1, 0.25)
            return [min(sum(drawn.color(i, 270, 33 + up)) for up in near) < 0.6 * sum(drawn.color(i, 270, 38))
                    for i in range(3)]
        os.environ.update({"XDG_DATA_HOME": self.folder, "CARTOPY_DATA_DIR": self.folder})
        self.assertEqual(black(Drawn(self.folder)), [False] * 3)
        for name, geometry in (("line", {"type": "LineString", "coordinates": line}),
                               ("area", {"type": "MultiPolygon", "coordinates": [[[*line, [-90.0, 50.0], line[0]]]]})):
            path = f"{self.folder}/{name}.geojson"
            with open(path, "w", encoding="utf-8") as file:
                feature = {"type": "Feature", "properties": {"no line": [[-100, 38], [-80, 38]]}, "geometry": geometry}
                json.dump({"type": "FeatureCollection", "features": [feature]}, file)
            self.assertEqual(black(Drawn(self.folder, "--coastlines", path)), [True] * 3)
        natural_earth = f"{self.folder}/shapefiles/natural_earth/physical"
        os.makedirs(natural_earth)
        parts = [[(-100.0, 33.0), (-80.0, 33.0)], [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]]
        record = struct.pack("<i4d2i2i", 3, -100, 0, 2, 33, 2, 5, 0, 2)
        record += b"".join(struct.pack("<2d", *p) for part in parts for p in part)
        with open(f"{natural_earth}/ne_110m_coastline.shp", "wb") as file:
            header = struct.pack(">i5xii", 9994, 0, 0).ljust(100, b"\0")
            null = struct.pack(">2i", 1, 2) + struct.pack("<i", 0)
            file.write(header + null + struct.pack(">2i", 2, len(record) // 2) + record)
        self.assertEqual(black(Drawn(self.folder)), [True] * 3)
        self.assertEqual([line.tolist() for line in plot.coastlines(f"{natural_earth}/ne_110m_coastline.shp")[1::3]],
                         [[list(p) for p in part] for part in parts])
        write(self.folder, same, same)
        self.assertEqual(len(Drawn(self.folder).maps[0].collections), 1)  # rows and columns have no coast

    # ---- the command ---------------------------------------------------------------------------------------------------

    def run_script(self, *words):
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # the Python of this test
        return subprocess.run([SCRIPT, *words], capture_output=True, text=True, cwd=self.folder, check=False,
                              env=os.environ | {"PATH": path})

    def assert_refused(self, code, text, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            sys.argv[1:] = words  # in this process: it is many
            plot.main()
        self.assertEqual(ended.exception.code, code, said.getvalue())
        self.assertRegex(said.getvalue(), r"\Aplot_forecast: [^\n]*\n\Z")
        self.assertIn(text, said.getvalue())
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".part")], [])

    def test_files(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        done = self.run_script("forecast.h5", "--data", "data")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "wrote forecast.png\n", ""))
        self.assertEqual(self.run_script("forecast.h5", "--data", "data/1994.h5", "--out", "a.pdf").returncode, 0)
        self.assertEqual(self.run_script("forecast.h5", "--data", "data", "--out", "a.SVG").returncode, 0)
        with open(f"{self.folder}/forecast.png", "rb") as file:
            head = file.read(24)
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">2i", head[16:])[0], 1950)
        with open(f"{self.folder}/a.pdf", "rb") as file:
            self.assertEqual(file.read(5), b"%PDF-")
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["a.SVG", "a.pdf", "data", "forecast.h5", "forecast.json", "forecast.png"])
        os.remove(f"{self.folder}/forecast.json")
        done = self.run_script("forecast.h5", "--data", "data")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "plot_forecast: without 'forecast.json' there is no skill to draw\n"))
        with open(f"{self.folder}/forecast.png", "rb") as file:
            self.assertLess(struct.unpack(">2i", file.read(24)[16:])[1], struct.unpack(">2i", head[16:])[1])
        self.assertIn("usage:", self.run_script("--help").stdout)

    def test_refusals(self):
        truth = numpy.stack([numpy.arange(32.0).reshape(4, 8)] * 2)
        write(self.folder, truth, truth + 1)
        given = ("forecast.h5", "--data", "data")
        with open(f"{self.folder}/text.h5", "w", encoding="utf-8") as file:
            file.write("no HDF5")
        done = self.run_script("none.h5")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (66, "", "plot_forecast: there is no file 'none.h5'\n"))
        self.assert_refused(65, "'text.h5' is no HDF5 file", "text.h5")
        self.assert_refused(65, "'data/1994.h5' is no forecast", "data/1994.h5")
        self.assert_refused(66, "there is no file 'elsewhere/1994.h5', which the forecast started from", "forecast.h5")
        self.assert_refused(66, "there is no file 'nowhere'", "forecast.h5", "--data", "nowhere")
        self.assert_refused(64, "unknown channel 'z50'; the forecast has z500, t2m, numbered from 0 to 1; did you mean 'z500'?",
                            *given, "--channel", "z50")
        self.assert_refused(64, "unknown channel '2'", *given, "--channel", "0,2")
        self.assert_refused(64, "--lead is 5; allowed: 1 to 4", *given, "--lead", "5")
        self.assert_refused(64, "--lead: invalid int value", *given, "--lead", "x")
        self.assert_refused(64, "unrecognized arguments: --color", *given, "--color", "red")
        self.assert_refused(64, "allowed: a name that ends with .png, .pdf or .svg", *given, "--out", "forecast.h5")
        self.assert_refused(73, "'nowhere/a.png' cannot be written: No such file", *given, "--out", "nowhere/a.png")
        self.assert_refused(66, "--coastlines 'none.shp': No such file", *given, "--coastlines", "none.shp")
        self.assert_refused(65, "--coastlines 'text.h5' is no GeoJSON file and no shapefile", *given, "--coastlines", "text.h5")
        with h5py.File(f"{self.folder}/data/1994.h5", "a") as file:
            file["fields"].attrs["channels"] = "t2m,z500"
        self.assert_refused(65, "has the channels t2m,z500, the forecast z500,t2m", *given)
        with h5py.File(f"{self.folder}/data/1994.h5", "w") as file:
            file["fields"] = numpy.zeros((1, 2, 4, 8))
        self.assert_refused(65, "has 1 times, the forecast started from time 2", *given)
        with h5py.File(f"{self.folder}/data/1994.h5", "w") as file:
            file["fields"] = numpy.zeros((5, 2, 4, 9))
        self.assert_refused(65, "has no /fields with states of 2x4x8", *given)
        write(self.folder, truth, truth + 1)
        with open(f"{self.folder}/forecast.json", "w", encoding="utf-8") as file:
            file.write('{"leads": [')
        with open(f"{self.folder}/forecast.png", "w", encoding="utf-8") as file:
            file.write("as it was")
        self.assert_refused(65, "'forecast.json' has no scores that can be read", *given)
        with open(f"{self.folder}/forecast.png", encoding="utf-8") as file:
            self.assertEqual(file.read(), "as it was")

    def test_forecast_of_the_program(self):
        def program(*words):
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=self.folder, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        program("data", "generate", "--out", "made", "--train-years", "1", "--valid-years", "1", "--steps-per-year", "12",
                "--height", "16", "--width", "32")
        program("data", "repack", "made/valid/1991.h5", "--out", "data", "--dtype", "bf16")
        latitudes, longitudes = numpy.linspace(-75, 75, 16), numpy.arange(32) * 11.25
        with h5py.File(f"{self.folder}/data/1991.h5", "a") as file:
            times = 1514764800.0 + 21600 * numpy.arange(12)
            for dim, name, points in ((0, "timestamp", times), (2, "lat", latitudes), (3, "lon", longitudes)):
                file[name] = points
                file[name].make_scale(name)
                file["fields"].dims[dim].attach_scale(file[name])
        program("--task", "forecast", "--train-data", "made/train", "--stats", "made/stats", "--patch-size", "4",
                "--embed-dim", "32",
                "--depth", "1", "--num-heads", "4", "--global-batch-size", "4", "--steps", "3", "--run-dir", "run")
        check_runs(self.folder)
        program("forecast", "--checkpoint", "run/checkpoints", "--data", "data", "--start", "5", "--steps", "8",
                "--out", "forecast.h5")
        drawn = Drawn(self.folder, "--channel", "height", "--lead", "4")
        with h5py.File(f"{self.folder}/made/valid/1991.h5") as made, h5py.File(f"{self.folder}/forecast.h5") as forecast:
            truth, field = made["fields"][9, 2], forecast["fields"][3, 2]
        numpy.testing.assert_allclose(drawn.mesh(0).get_array().reshape(16, 32), truth, rtol=2**-8)  # bf16 has 8 bits
        numpy.testing.assert_allclose(drawn.mesh(1).get_array().reshape(16, 32), field)
        self.assert_shows(drawn, 1, latitudes[[0, 15]], longitudes[[0, 31]], field[numpy.ix_([0, 15], [0, 31])])
        with open(f"{self.folder}/forecast.json", encoding="utf-8") as file:
            record = json.load(file)
        counted = record["leads"][3]["rmse"]["height"] * record["channels"][2]["standard_deviation"]
        shown = float(re.search(r"RMSE ([0-9.]+)", drawn.maps[2].get_title())[1])
        self.assertAlmostEqual(shown, counted, delta=0.005 * counted)
        self.assertEqual(len(drawn.line(0, "forecast")[0]), 6)  # the file ends with lead time 6
        self.assertAlmostEqual(drawn.line(0, "forecast")[1][3], counted)
        self.assertEqual(drawn.titles, ["height [m]\nvalid 2018-01-03 06:00 UTC, 24 h after 2018-01-02 06:00 UTC"])
        self.assertEqual(self.run_script("forecast.h5", "--data", "data").returncode, 0)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if IS_LONG:
        sys.argv.remove("--long")
    unittest.main()
