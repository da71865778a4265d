"""The folder of one hostile input, what makes files in it, and the harmless files and commands that are spoilt."""
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import zlib

CONTROL = "\x1b]0;title\x07\x1b[2J\x1b[31mred\r\nvit_hybrid: forged line\n\u009b1m\x7f\b\b"
LONG = "long" * 32000  # Linux takes no word of more than 128 KiB
TEXTS = [
    CONTROL, LONG, "", ",", ",,,,", "%s%n%x%p", "../../..", "u\udcff\udcfe,v,h", "\u202eabc", "\u00e9" * 30000, "a\nb",
    "$(id)`id`", "-1", "nan", "\t", "'\"\\", "&a *a", "{[", "0" * 5000
]
NUMBERS = [
    "", " ", "-1", "-0", "nan", "-nan", "inf", "1e999", "1e-999", "0x10", "1_000", "1,5", "1 2", "+1", "1e3",
    "99999999999999999999", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "\u0663", "\uff11", "1" * 100000
]

# The commands with harmless files; words in braces are places for other ones.
MODEL = "--patch-size 4 --embed-dim 8 --num-heads 2 --depth 1 --steps 2 --global-batch-size 2 --device cpu"
FIELDS = "--image-size 8x16 --in-channels 3 --out-channels 3 " + MODEL
COMMANDS = {
    "train": "--train-data {train} --valid-data {valid} --stats {stats} --run-dir {run} " + FIELDS,
    "train_images": "--task classify --train-data {images} --valid-data {valid_images} --image-size 8 --in-channels 3 "
    "--num-classes 2 --run-dir {run} " + MODEL,
    "config": "--config {config} --print-config --data synthetic",
    "resume": "--resume {checkpoint} --train-data {train} --valid-data {valid} --stats {stats} --run-dir {run} " +
    FIELDS + " --steps=4",
    "init_from": "--init-from {checkpoint} --train-data {train} --valid-data {valid} --stats {stats} --run-dir {run} " +
    FIELDS,
    "evaluate": "evaluate --checkpoint {checkpoint} --data {valid} --stats {stats} --out {out}.json",
    "evaluate_images": "evaluate --checkpoint {image_checkpoint} --data {valid_images} --out {out}.json",
    "forecast": "forecast --checkpoint {checkpoint} --data {valid} --stats {stats} --out {out}.h5 --steps 1",
    "inspect": "data inspect {train}",
    "repack": "data repack {train} --out {out}",
    "repack_images": "data repack {images} --out {out}",
    "stats": "data stats {train} --out {out} --time-means",
    "generate": "data generate --out {out} --train-years 1 --valid-years 1 --steps-per-year 2 --height 8 --width 8",
    "generate_images": "data generate images --out {out} --train-images 2 --valid-images 2 --size 8",
    "describe": "checkpoint inspect {checkpoint}",
    "verify": "checkpoint verify {checkpoint}",
    "diff": "checkpoint diff {checkpoint} {other_checkpoint}",
    "export": "checkpoint export {checkpoint} --out {out}.safetensors",
    "import": "checkpoint import {tensors} --out {out}.h5 --num-heads 2 --image-size 8",
}
COMMANDS["resume"] = COMMANDS["resume"].replace(" --steps 2", "")
OF_CHECKPOINTS = ["evaluate", "resume", "init_from", "describe", "verify", "export", "forecast", "diff"]
OF_WEATHER = ["train", "evaluate", "inspect", "repack", "stats", "forecast"]
OF_IMAGES = ["train_images", "evaluate_images", "inspect", "repack_images"]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    return path


def make_fixtures(tools):
    """Harmless files of every kind, made by the program."""
    place = tools.fixtures
    tools.make("data", "generate", "--out", "w", "--train-years", "1", "--valid-years", "1", "--steps-per-year", "3",
               "--height", "8", "--width", "16", "--channels", "3")
    tools.make("data", "generate", "images", "--out", "i", "--train-images", "8", "--valid-images", "4", "--size", "8",
               "--classes", "2")
    tools.good = {
        "train": f"{place}/w/train", "valid": f"{place}/w/valid", "stats": f"{place}/w/stats",
        "images": f"{place}/i/train.h5", "valid_images": f"{place}/i/valid.h5",
        "tensors": f"{place}/x.safetensors", "config": write(
            f"{place}/c.yaml", "lr: 1e-3\ndepth: 2\n"), "year": f"{place}/w/train/1990.h5",
        "checkpoint": f"{place}/run/checkpoints/step-000000002.h5", "folder": f"{place}/run",
        "other_checkpoint": f"{place}/run/checkpoints/step-000000002.h5",
        "image_checkpoint": f"{place}/irun/checkpoints/step-000000002.h5"
    }
    tools.make(*[word.format(**tools.good, run="run") for word in COMMANDS["train"].split()])
    tools.make(*[word.format(**tools.good, run="irun") for word in COMMANDS["train_images"].split()])
    # What is sealed again must pass for whole: else all that is spoilt within would be refused for its seal alone.
    sealed = f"{place}/sealed.h5"
    shutil.copy(tools.good["checkpoint"], sealed)
    subprocess.run([tools.checkpoint, "set", sealed, "layout", "spoilt"], check=True)
    subprocess.run([tools.checkpoint, "seal", sealed], check=True)
    tools.make("checkpoint", "verify", sealed)
    if "spoilt" not in tools.make("checkpoint", "inspect", sealed):
        sys.exit("hostile_checkpoint does not change a checkpoint")
    tools.make("checkpoint", "export", tools.good["image_checkpoint"], "--out", "x.safetensors")


class Input:
    """The words of a hostile command, and what may come of it."""
    def __init__(self, command, words, note, codes=None, must_refuse=False, env=None):
        self.command, self.words, self.note = command, words, note
        self.codes, self.must_refuse, self.env = codes, must_refuse, env or {}


class Case:
    """The folder of one input: `in` beside `outside`, which nothing may change, and what draws its variant."""
    def __init__(self, tools, folder, rng, family_rng, index):
        self.tools, self.rng, self.family_rng, self.index = tools, rng, family_rng, index
        self.folder, self.cwd, self.outside = folder, folder + "/in", folder + "/outside"
        os.makedirs(self.cwd)
        self.canary = write(self.outside + "/canary", "do not touch\n" * 1000)
        shutil.copy(tools.good["year"], self.outside + "/1990.h5")

    def pick(self, options):
        """One of the options: by turns, in the order of the seed, where it is asked first, else at random."""
        options = list(options)
        if self.family_rng is not None:
            order = self.family_rng.sample(range(len(options)), len(options))
            self.family_rng = None
            return options[order[self.index % len(options)]]
        return self.rng.choice(options)

    def path(self, name):
        return os.path.join(self.cwd, name)

    def write(self, name, content):
        return write(self.path(name), content)

    def copy(self, good, name):
        to = self.path(name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        (shutil.copytree if os.path.isdir(good) else shutil.copy)(good, to)
        return to

    def words(self, command, **places):
        own = {"out": self.path("o"), "run": self.path("r"), **self.tools.good, **places}
        return [word.format(**own) for word in COMMANDS[command].split()]

    def input(self, command, note, more=(), codes=None, must_refuse=False, env=None, **places):
        return Input(command, self.words(command, **places) + list(more), note, codes, must_refuse, env)

    def hdf5(self, kind, name, text="x"):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        text = text.encode("utf-8", "surrogateescape")[:60000].replace(b"\0", b"")
        subprocess.run([self.tools.hdf5, kind, self.path(name), text], check=True)
        return self.path(name)

    def checkpoint(self, *words, good="checkpoint"):
        """A copy of the checkpoint, changed by hostile_checkpoint."""
        path = self.copy(self.tools.good[good], "c.h5")
        subprocess.run([self.tools.checkpoint, words[0], path, *words[1:]], check=True)
        return path

    def snapshot(self):
        """Files with size and contents' checksum, links with their aims."""
        found = {}
        for parent, folders, names in os.walk(self.folder):
            for name in names + folders:
                path = os.path.join(parent, name)
                status = os.lstat(path)
                content = zlib.crc32(read(path)) if stat.S_ISREG(status.st_mode) and status.st_size < 1 << 22 else 0
                found[path] = (stat.S_IFMT(
                    status.st_mode), 0 if stat.S_ISDIR(status.st_mode) else status.st_size, content)
        return found

    def damaged(self, before):
        """What is not as it was outside the input's folder."""
        before = {path: what for path, what in before.items() if path.startswith(self.outside)}
        after = {path: what for path, what in self.snapshot().items() if path.startswith(self.outside)}
        return sorted({path for path, _ in set(before.items()) ^ set(after.items())})

    def left_behind(self, before, has_failed):
        """Temporary files that are new, and results of what has failed."""
        results = tuple(self.path("o") + end for end in ("", ".h5", ".json", ".safetensors"))
        new = {path for path, what in self.snapshot().items() if before.get(path, "-")[0] != what[0]}  # or another kind
        for path in sorted(new):
            is_first = os.path.dirname(path) not in new  # one says all of its folder
            is_remains = path.startswith(self.folder + "/tmp/") and (is_first or "/tmp/ompi" in path)
            is_lock = os.path.basename(path).startswith("run.lock")
            is_temporary = path.endswith((".partial", ".part")) or is_lock or is_remains
            if re.search("/tmp/ompi[^/]*(/[^/]*/.*)?$", path):  # MPI keeps the first folder; one of the next says all
                continue
            is_result = has_failed and path in results and not (os.path.isdir(path) and not os.listdir(path))
            if is_temporary or is_result:
                yield os.path.relpath(path, self.folder)

    def mutated(self, content, lowest=0, most=4):
        """Bytes that are flipped, set, doubled or cut off, from `lowest` on."""
        content = bytearray(content)
        for _ in range(self.rng.randint(1, most)):
            at = self.rng.randrange(lowest, max(len(content), lowest + 1))
            kind = self.rng.randrange(6)
            if kind <= 2 and at < len(content):
                content[at] ^= 1 << self.rng.randrange(8)
            elif kind == 3:
                content[at:at + 8] = self.rng.choice(
                    [b"\xff" * 8, bytes(8), struct.pack("<Q", 1 << self.rng.randrange(64))])
            elif kind == 4:
                content[at:at] = content[at:at + self.rng.randint(1, 64)]
            elif self.rng.random() < 0.3:
                del content[at:]
        return bytes(content)

    def odd_file(self, kind, name):
        """What is no regular file, or not an ordinary one, at a path in the folder."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        devices = {"zero": (1, 5), "random": (1, 9), "full": (1, 7), "null": (1, 3)}
        if kind in devices:
            try:  # a node of its own, for what may be renamed over it
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*devices[kind]))
            except PermissionError:
                os.symlink("/dev/" + kind, path)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            os.mkdir(path)
        elif kind == "dangling":
            os.symlink(self.outside + "/nothing/there", path)
        elif kind == "loop":
            os.symlink(os.path.basename(path), path)
        elif kind == "socket":
            here = os.open(".", os.O_RDONLY)  # a socket's name is short
            os.chdir(os.path.dirname(path))
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(os.path.basename(path))
            os.fchdir(here)
            os.close(here)
        elif kind == "sparse":
            with open(path, "wb") as file:
                file.truncate(1 << 40)
        elif kind == "canary":
            os.symlink(self.canary, path)
        elif kind == "memory":
            os.symlink("/proc/self/mem", path)
        else:
            write(path, b"")
        return path


ODD = [
    "fifo", "zero", "random", "full", "null", "folder", "dangling", "loop", "socket", "sparse", "canary", "memory",
    "empty"
]
