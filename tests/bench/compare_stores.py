#!/usr/bin/env python3
"""Reading of Zarr stores and NetCDF-4 files beside pread, the codecs' libraries, and zarr-python with a PyTorch DataLoader.

    tests/bench/compare_stores.py build/release/bin/bench_stores stores [--times 24] [--rounds 5]

(optional; needs zarr 3, numcodecs, netCDF4, numpy and torch). Makes stores of a variable of four levels on 721 x 1440, a chunk
a time, in the folder `stores`, and reads all of each, in the page cache, by one and two threads: GB/s of values, medians of
rounds in which bench_stores (what `roof`, `rows` and `samples` are) and the DataLoader of as many persistent workers take
turns. `roof` is pread of raw data, else what the codec's library makes of chunks in memory; `zarr` is zarr-python in the
DataLoader, normalising. The ratios are medians of those of the rounds, by the clock and (cpu) by the processor's time, of the
DataLoader its workers'.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import time

try:
    import netCDF4
    import numcodecs
    import numpy
    import torch
    import zarr
except ImportError as error:
    raise SystemExit(f"compare_stores: Python has no {error.name}; needed are zarr 3, numcodecs, netCDF4, numpy and torch")

HEIGHT, WIDTH, LEVELS = 721, 1440, [50, 500, 850, 1000]
CODECS = {"raw": None, "blosc-lz4": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
          "blosc-zstd": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.SHUFFLE), "zstd": numcodecs.Zstd(3), "gzip": numcodecs.GZip(4)}
CHANNELS = ",".join(f"z{level}" for level in LEVELS)


def fields(times):
    """Smooth, with noise in the lower bits, as measured ones have it."""
    random = numpy.random.default_rng(1)
    x, y = numpy.linspace(0, 2 * numpy.pi, WIDTH), numpy.linspace(0, numpy.pi, HEIGHT)[:, None]
    for time_index in range(times):
        yield numpy.stack([(5e4 + 1e3 * k + 2e3 * numpy.sin(3 * x + 0.1 * time_index + k) * numpy.sin(y) ** 2 +
                            random.standard_normal((HEIGHT, WIDTH))).astype("f4") for k in range(len(LEVELS))])


def make(folder, name, times):
    coordinates = {"time": (numpy.arange(times) * 6, "hours since 2000-01-01"), "level": (numpy.array(LEVELS), "hPa"),
                   "latitude": (numpy.linspace(90, -90, HEIGHT), "degrees_north"), "longitude": (numpy.arange(WIDTH) * 0.25, "degrees_east")}
    if name == "netcdf":
        folder.mkdir(exist_ok=True)
        with netCDF4.Dataset(folder / "2000.nc", "w") as file:
            for coordinate, (values, units) in coordinates.items():
                file.createDimension(coordinate, len(values))
                file.createVariable(coordinate, "f8", (coordinate,)).units = units
                file[coordinate][:] = values
            array = file.createVariable("geopotential", "f4", tuple(coordinates))
            for i, values in enumerate(fields(times)):
                array[i] = values
        return
    group = zarr.open_group(folder, mode="w", zarr_format=2)
    for coordinate, (values, units) in coordinates.items():
        made = group.create_array(coordinate, data=values, compressors=None)
        made.attrs.update(units=units, _ARRAY_DIMENSIONS=[coordinate])
    array = group.create_array("geopotential", shape=(times, len(LEVELS), HEIGHT, WIDTH), dtype="f4",
                               chunks=(1, len(LEVELS), HEIGHT, WIDTH), compressors=CODECS[name], fill_value=numpy.nan)
    array.attrs["_ARRAY_DIMENSIONS"] = list(coordinates)
    for i, values in enumerate(fields(times)):
        array[i] = values


class Fields(torch.utils.data.Dataset):
    def __init__(self, path):
        self.path, self.array = path, None
        self.size = zarr.open_array(path, mode="r").shape[0]
        self.mean, self.std = numpy.zeros((len(LEVELS), 1, 1), "f4"), numpy.ones((len(LEVELS), 1, 1), "f4")

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if self.array is None:
            self.array = zarr.open_array(self.path, mode="r")
        return torch.from_numpy((self.array[index] - self.mean) / self.std)


def worker_seconds(loader):
    seconds = 0.0
    for worker in loader._iterator._workers:
        fields = pathlib.Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def one_round(program, store, loaders, size):
    done = subprocess.run([program, store, CHANNELS, "1"], capture_output=True, text=True, check=True)
    figures = {line[:40].strip().replace("library", "roof").replace("pread", "roof"): float(line[40:]) for line in done.stdout.splitlines()}
    for label, loader in loaders.items():
        processor, begin = worker_seconds(loader), time.perf_counter()
        for _ in loader:
            pass
        figures[f"zarr, {label}"] = size / (time.perf_counter() - begin) / 1e9
        figures[f"zarr, processor, {label}"] = size / (worker_seconds(loader) - processor) / 1e9
        for by in ("", "processor, "):
            figures[f"samples/zarr, {by}{label}"] = figures[f"samples, {by}{label}"] / figures[f"zarr, {by}{label}"]
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    size = len(LEVELS) * HEIGHT * WIDTH * 4 * options.times
    columns = ("roof", "rows", "samples", "zarr", "rows/roof", "rows/roof, processor", "samples/roof", "samples/roof, processor",
               "samples/zarr", "samples/zarr, processor")
    print(f"{'GB/s of values':<14} {'threads':>7} {'stored':>7}", *(f"{column.replace(', processor', ' cpu'):>16}" for column in columns))
    for name in (*CODECS, "netcdf"):
        make(options.folder / name, name, options.times)  # files just written are read fastest
        variable = options.folder / name / "geopotential"
        loaders = {} if name == "netcdf" else {
            label: torch.utils.data.DataLoader(Fields(variable), batch_size=None, num_workers=workers, prefetch_factor=2, persistent_workers=True)
            for workers, label in ((1, "1 thread"), (2, "2 threads"))}
        for loader in loaders.values():  # its workers start
            for _ in loader:
                pass
        rounds = [one_round(options.program, options.folder / name, loaders, size) for _ in range(options.rounds)]
        stored = sum(path.stat().st_size for path in (variable.glob("[0-9]*") if loaders else (options.folder / "netcdf").glob("*")))
        for label in ("1 thread", "2 threads"):
            medians = (statistics.median(figures.get(f"{column}, {label}", float("nan")) for figures in rounds) for column in columns)
            print(f"{name:<14} {label[0]:>7} {stored / size:>7.2f}", *(f"{value:>16.2f}" for value in medians), flush=True)


main()
