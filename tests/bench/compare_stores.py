#!/usr/bin/env python3
"""Reading of Zarr stores and NetCDF-4 files beside pread, the codecs' libraries, and zarr-python with a DataLoader.

    tests/bench/compare_stores.py build/release/bin/bench_stores /dev/shm/stores [--times 24] [--rounds 5]

(optional; needs zarr 3, numcodecs, netCDF4 and torch). Makes stores of a variable of four levels on 721 x 1440, a chunk a
time, and reads all of each, in the page cache: GB/s of values. `files` is open, pread and close of each chunk's file (of
NetCDF pread of the variable's bytes); `codec` is numcodecs' decoding of all chunks that are in memory, in as many threads,
`library` that of the library which the program is linked with; `zarr` is zarr-python in a DataLoader of as many workers,
normalising. Medians of `--rounds` passes. `rows/lib` and `samples/lib` are by processor time, measured in turns (bench_stores).
"""
import argparse
import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import time

import netCDF4
import numcodecs
import numpy
import torch
import zarr

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


def make(folder, times):
    coordinates = {"time": (numpy.arange(times) * 6, "hours since 2000-01-01"), "level": (numpy.array(LEVELS), "hPa"),
                   "latitude": (numpy.linspace(90, -90, HEIGHT), "degrees_north"), "longitude": (numpy.arange(WIDTH) * 0.25, "degrees_east")}
    arrays = {}
    for name, codec in CODECS.items():
        group = zarr.open_group(folder / name, mode="w", zarr_format=2)
        for coordinate, (values, units) in coordinates.items():
            made = group.create_array(coordinate, data=values, compressors=None)
            made.attrs.update(units=units, _ARRAY_DIMENSIONS=[coordinate])
        arrays[name] = group.create_array("geopotential", shape=(times, len(LEVELS), HEIGHT, WIDTH), dtype="f4",
                                          chunks=(1, len(LEVELS), HEIGHT, WIDTH), compressors=codec, fill_value=numpy.nan)
        arrays[name].attrs["_ARRAY_DIMENSIONS"] = list(coordinates)
    (folder / "netcdf").mkdir(exist_ok=True)
    with netCDF4.Dataset(folder / "netcdf/2000.nc", "w") as file:
        for coordinate, (values, units) in coordinates.items():
            file.createDimension(coordinate, len(values))
            file.createVariable(coordinate, "f8", (coordinate,)).units = units
            file[coordinate][:] = values
        netcdf = file.createVariable("geopotential", "f4", tuple(coordinates))
        for i, values in enumerate(fields(times)):
            netcdf[i] = values
            for array in arrays.values():
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


def rate(size, rounds, function):
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return size / statistics.median(seconds[1:]) / 1e9


def read_file(path, buffer):
    descriptor = os.open(path, os.O_RDONLY)
    os.preadv(descriptor, [buffer], 0)
    os.close(descriptor)


def shared(threads, function, items):
    if threads == 1:
        for item in items:
            function(item)
    else:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(function, items))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    make(options.folder, options.times)
    numcodecs.blosc.use_threads = False
    row = len(LEVELS) * HEIGHT * WIDTH * 4
    size = row * options.times
    print(f"{'GB/s of values':<12} {'threads':>7} {'stored':>7} {'files':>8} {'codec':>8} {'library':>8} {'zarr':>8} {'rows':>8} {'samples':>8} "
          f"{'rows/lib':>8} {'samples/lib':>11}")
    for name in (*CODECS, "netcdf"):
        done = subprocess.run([options.program, options.folder / name, CHANNELS, str(options.rounds)], capture_output=True, text=True, check=True)
        ours = {line[:40].strip(): float(line[40:]) for line in done.stdout.splitlines()}
        is_netcdf = name == "netcdf"
        chunks = [options.folder / "netcdf/2000.nc"] if is_netcdf else sorted((options.folder / name / "geopotential").glob("[0-9]*"))
        stored = sum(path.stat().st_size for path in chunks)
        buffers = {}
        in_memory = [path.read_bytes() for path in chunks] if CODECS.get(name) else []
        out = {}

        def read_one(path):
            import threading
            buffer = buffers.setdefault(threading.get_ident(), bytearray(row))
            if not is_netcdf:
                return read_file(path, buffer)
            descriptor = os.open(path, os.O_RDONLY)
            for i in range(options.times):
                os.preadv(descriptor, [buffer], i * row)
            os.close(descriptor)

        def decode_one(data):
            import threading
            CODECS[name].decode(data, out.setdefault(threading.get_ident(), numpy.empty(row, "u1")))

        for threads in (1, 2):
            files = rate(size, options.rounds, lambda: shared(threads, read_one, chunks)) if not (is_netcdf and threads > 1) else float("nan")
            codec = rate(size, options.rounds, lambda: shared(threads, decode_one, in_memory)) if in_memory else float("nan")
            theirs = float("nan")
            if not is_netcdf:
                loader = torch.utils.data.DataLoader(Fields(options.folder / name / "geopotential"), batch_size=None, num_workers=threads,
                                                     prefetch_factor=2, persistent_workers=True)
                theirs = rate(size, options.rounds, lambda: [None for _ in loader])
                del loader
            label = f"{threads} thread{'s' if threads > 1 else ''}"
            print(f"{name:<12} {threads:>7} {stored / size:>7.2f} {files:>8.2f} {codec:>8.2f} "
                  f"{ours.get('library, ' + label, float('nan')):>8.2f} {theirs:>8.2f} "
                  f"{ours['rows, ' + label]:>8.2f} {ours['samples, ' + label]:>8.2f} "
                  f"{ours.get('rows/library, processor, ' + label, float('nan')):>8.2f} "
                  f"{ours.get('samples/library, processor, ' + label, float('nan')):>11.2f}", flush=True)


main()
