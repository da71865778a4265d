#!/usr/bin/env python3
"""Bandwidth of h5py in a PyTorch DataLoader on the files of bench_read_bandwidth (optional; needs h5py and torch).

    build/release/bin/bench_read_bandwidth /dev/shm/bench
    tests/bench/compare_h5py.py /dev/shm/bench --workers 0 1 2

Reads the same pairs of states from every layout in the same random order, normalises them, and prints GB/s and the ratio
to plain pread of the same bytes, measured in the same run. Medians of `--rounds` passes, the first not counted.
"""
import argparse
import os
import pathlib
import random
import statistics
import time

import h5py
import numpy
import torch


class Pairs(torch.utils.data.Dataset):
    """The pair (t, t + 1), normalised by channel, as the reference workload reads it."""

    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path, "r") as file:
            self.size, channels = file["fields"].shape[0] - 1, file["fields"].shape[1]
        self.mean = numpy.zeros((channels, 1, 1), numpy.float32)
        self.std = numpy.ones((channels, 1, 1), numpy.float32)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if self.file is None:  # in the worker
            self.file = h5py.File(self.path, "r")["fields"]
        pair = [(self.file[t] - self.mean) / self.std for t in (index, index + 1)]
        return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


def read_plain(path, order):
    with h5py.File(path, "r") as file:
        fields = file["fields"]
        offset, row = fields.id.get_offset(), fields[0].nbytes
    buffer = bytearray(row)
    descriptor = os.open(path, os.O_RDONLY)
    for index in order:
        for time_index in (index, index + 1):
            assert os.preadv(descriptor, [buffer], offset + time_index * row) == row
    os.close(descriptor)
    return 2 * row * len(order)


def read_loader(loader):
    for _ in loader:
        pass


def seconds_of(function, rounds):
    taken = []
    for number in range(rounds + 1):
        begin = time.perf_counter()
        function()
        if number > 0:
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    contiguous = options.folder / "contiguous" / "1990.h5"
    order = list(range(len(Pairs(contiguous))))
    random.Random(1).shuffle(order)
    num_bytes = read_plain(contiguous, order)
    plain = seconds_of(lambda: read_plain(contiguous, order), options.rounds)
    print(f"{'':52s} {'GB/s':>8s} {'of pread':>9s}")
    print(f"{'pread, 1 thread':52s} {num_bytes / plain / 1e9:8.2f} {100:8.0f}%")
    for path in sorted(options.folder.glob("*/1990.h5")):
        for workers in options.workers:
            loader = torch.utils.data.DataLoader(Pairs(path), batch_size=1, sampler=order, num_workers=workers,
                                                 persistent_workers=workers > 0)
            seconds = seconds_of(lambda: read_loader(loader), options.rounds)
            name = f"{path.parent.name} h5py in a DataLoader, {workers} workers"
            print(f"{name:52s} {num_bytes / seconds / 1e9:8.2f} {100 * plain / seconds:8.0f}%", flush=True)


if __name__ == "__main__":
    main()
