#!/usr/bin/env python3
"""launch/convert_images: classes, order and pixels of every kind of picture, bad ones, links, refusals, and that what is
killed leaves nothing that is taken for whole; a training reads the file.

    convert_images.py PROGRAM WORK_DIR SOURCE_DIR

Skipped, with the reason, where no Python has h5py and Pillow.
"""
import importlib.machinery
import importlib.util
import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib

PROGRAM, WORK, SOURCE = sys.argv[1:4]
SCRIPT = f"{SOURCE}/launch/convert_images"
sys.dont_write_bytecode = True
sys.path.insert(0, f"{SOURCE}/launch")
try:
    from python_with import modules
    h5py, numpy, Image = modules("h5py", "numpy", "PIL.Image")
except SystemExit as missing:
    print("[skipped] no Python has h5py and Pillow")
    sys.exit(77 if missing.code == 66 else missing.code)
loader = importlib.machinery.SourceFileLoader("convert_images", SCRIPT)
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("convert_images", loader))
loader.exec_module(script)

shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.chdir(WORK)
random = numpy.random.default_rng(1)
warnings.simplefilter("ignore")  # Pillow's, of what is damaged on purpose


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return path


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(values, bits, color, chunks=b""):
    """Of values [height, width, channels], with further chunks before the pixels."""
    height, width = values.shape[:2]
    rows = values.astype(f">u{max(bits // 8, 1)}").reshape(height, -1)
    if bits < 8:  # the lower bits of each byte, packed
        rows = numpy.packbits(numpy.unpackbits(rows[..., None], axis=2)[..., 8 - bits:].reshape(height, -1), axis=1)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def jpeg(values, mode=None, **how):
    mode = mode or {2: "L", 3: "RGB"}[values.ndim]
    out = io.BytesIO()
    Image.frombytes(mode, values.shape[1::-1], values.tobytes()).save(out, "JPEG", quality=98, **how)
    return out.getvalue()


def flat(height, width, *color):
    return numpy.full((height, width, len(color)), color, numpy.uint8)


def smooth(height, width, channels):
    y, x, c = numpy.mgrid[:height, :width, :channels]
    return (127 + 127 * numpy.sin((3 + c) * y / height + (5 - c) * x / width)).astype(numpy.uint8)


def exif(orientation, order):
    """Data of one tag, little-endian ("<") or big-endian (">")."""
    return b"Exif\0\0" + {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 274, 3, 1, orientation, 0, 0)


def convert(folder, out, *words, code=0, says=()):
    """Runs the script; returns what it prints, or of a refusal its one line."""
    run = subprocess.run([sys.executable, SCRIPT, folder, "--out", out, *words], capture_output=True, text=True)
    assert run.returncode == code, (run.returncode, words, run.stderr)
    text = run.stdout + run.stderr
    for part in (says,) if isinstance(says, str) else says:
        assert part in text, (part, text)
    if code != 0:
        assert run.stderr.startswith("convert_images: ") and run.stderr.count("\n") == 1, run.stderr
        assert not os.path.lexists(out + ".partial")
    return text


def content(path):
    with h5py.File(path, "r") as file:
        return file["images"][:], file["labels"][:]


def one(data, size, **options):
    """The stored image of a picture's bytes."""
    class Options:
        resize, interpolation, orientation = "shorter", "bilinear", "apply"
    vars_of = Options()
    vars_of.size = size
    vars_of.__dict__.update(options)
    return script.image_of(write("one/picture", data), vars_of)


def largest(a, b):
    assert a.shape == b.shape, (a.shape, b.shape)
    return int(numpy.abs(a.astype(int) - b.astype(int)).max())


def test_classes_and_order():
    # Gray levels tell the pictures. Folders are not made in the order of their names.
    for folder, level in (("b", 60), ("a é", 0)):
        for i in range(6):
            picture = flat(9 + i, 15 - i, *[level + 10 * i] * 3)
            name, data = (f"{i}.JPEG", jpeg(picture)) if i % 2 else (f"{i}.png", png(picture, 8, 2))
            write(f"order/{folder}/{'below/' if i > 3 else ''}{name}", data)
    write("order/b/notes.txt", b"no picture")
    write("order/of_no_class.png", png(flat(9, 9, 1, 1, 1), 8, 2))
    # The sorted names are a/0 .. a/3, a/below/4, .., b/below/5.
    orders = {3: [10, 1, 9, 6, 3, 0, 2, 11, 5, 4, 7, 8], 4: [6, 0, 11, 8, 10, 2, 1, 9, 3, 5, 7, 4],
              1311768467463790320: [4, 0, 7, 11, 8, 10, 6, 2, 5, 3, 1, 9]}
    for seed, order in orders.items():
        convert("order", "order.h5", "--size", "8", "--seed", str(seed), "--overwrite",
                says=("wrote order.h5: 12 images in 2 classes, 1 files of other kinds ignored, in",
                      "left out: images beside the classes' folders of order, which are of no class: 1"))
        images, labels = content("order.h5")
        assert images.dtype == numpy.uint8 and images.shape == (12, 8, 8, 3) and labels.dtype == numpy.int64
        assert labels.tolist() == [i // 6 for i in order], labels
        assert largest(images, 10 * numpy.array(order)[:, None, None, None] + 0 * images.astype(int)) <= 1  # JPEG
    with h5py.File("order.h5", "r") as file:
        assert file["labels"].attrs["classes"] in ("a é,b", "a é,b".encode())
        assert file["images"].chunks is None and file["images"].id.get_offset() is not None


def test_any_number_of_processes():
    path = os.path.abspath(write("many/a/0.png", png(random.integers(0, 256, (40, 50, 3)), 8, 2)))
    os.makedirs("many/b")
    for i in range(1, 100):
        os.symlink(path, f"many/{'ab'[i % 2]}/{i}.png")
    for jobs in (1, 2, 7):
        convert("many", f"many{jobs}.h5", "--size", "8", "--jobs", str(jobs))
    files = [open(f"many{jobs}.h5", "rb").read() for jobs in (1, 2, 7)]
    assert files[0] == files[1] == files[2]
    images, _ = content("many7.h5")
    assert (images == images[0]).all() and images.any()


def test_kinds():
    color, gray, levels = smooth(20, 20, 3), smooth(20, 20, 1), random.integers(0, 4, (20, 20, 1))
    wide = random.integers(0, 1 << 16, (20, 20, 4))
    palette = random.integers(0, 256, (256, 3)).astype(numpy.uint8)
    of_palette = chunk(b"PLTE", palette.tobytes())
    with_alpha = lambda values: numpy.concatenate([values, smooth(20, 20, 1)], axis=2)
    # Pillow writes inks as Adobe's programs do, inverted and marked so; without the mark they are not inverted.
    inks = flat(20, 20, 200, 100, 50, 128)
    adobe = jpeg(inks, "CMYK")
    mark = adobe.index(b"\xff\xee")
    unmarked = adobe[:mark] + adobe[mark + 2 + int.from_bytes(adobe[mark + 2:mark + 4], "big"):]
    for name, data, expected, allowed in [
        ("color", png(color, 8, 2), color, 0),
        ("color and alpha", png(with_alpha(color), 8, 6), color, 0),
        ("color, one transparent", png(color, 8, 2, chunk(b"tRNS", bytes(6))), color, 0),
        ("gray", png(gray, 8, 0), gray, 0),
        ("gray and alpha", png(with_alpha(gray), 8, 4), gray, 0),
        ("gray, one transparent", png(gray, 8, 0, chunk(b"tRNS", b"\0\x80")), gray, 0),
        ("1 bit", png(levels // 2, 1, 0), levels // 2 * 255, 0),
        ("2 bits", png(levels, 2, 0), levels * 85, 0),
        ("16-bit color", png(wide[..., :3], 16, 2), wide[..., :3] / 257, 1),
        ("16-bit color and alpha", png(wide, 16, 6), wide[..., :3] / 257, 1),
        ("16-bit gray", png(wide[..., :1], 16, 0), wide[..., :1] / 257, 0.5),
        ("16-bit gray and alpha", png(wide[..., :2], 16, 4), wide[..., :1] / 257, 1),
        ("palette", png(gray, 8, 3, of_palette), palette[gray[..., 0]], 0),
        ("transparent palette", png(gray, 8, 3, of_palette + chunk(b"tRNS", bytes(range(256)))), palette[gray[..., 0]], 0),
        ("2-bit palette", png(levels, 2, 3, chunk(b"PLTE", palette[:4].tobytes())), palette[levels[..., 0]], 0),
        ("JPEG", jpeg(color, subsampling=0), color, 6),
        ("gray JPEG", jpeg(gray[..., 0]), gray, 3),
        ("Adobe's CMYK", adobe, (255.0 - inks[..., :3]) * (255 - 128) / 255, 2),
        ("CMYK", unmarked, inks[..., :3] * 128.0 / 255, 2),
    ]:
        difference = numpy.abs(one(data, 20) - expected.astype(float)).max()
        assert difference <= allowed, (name, difference)


def test_exif():
    upright = {1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
               5: lambda a: a.swapaxes(0, 1), 6: lambda a: numpy.rot90(a, -1), 7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
               8: numpy.rot90, 9: lambda a: a}
    picture = smooth(24, 24, 3)
    for orientation, turned in upright.items():
        for order in "<>":
            data = jpeg(picture, exif=exif(orientation, order))
            ignored = one(data, 24, orientation="ignore")
            assert (one(data, 24) == turned(ignored)).all(), (orientation, order)
    # A turned picture is as wide as its file is high.
    stripes = numpy.concatenate([flat(20, 20, 0, 0, 0), flat(20, 20, 255, 255, 255), flat(20, 20, 0, 0, 0)])
    assert one(jpeg(stripes, exif=exif(6, "<")), 20)[:, 2:18].min() > 200
    for damaged in (b"Exif\0\0", b"Exif\0\0II*\0\xc8\0\0\0", b"Exif\0\0" + b"\xff" * 40):
        assert (one(jpeg(picture, exif=damaged), 24) == one(jpeg(picture), 24)).all()


def weights(side, begin, extent, size, kernel, reach):
    """[size, side]: what the pixels [begin, begin + extent) of a side count in `size` ones, in double precision."""
    scale = extent / size
    wide = max(scale, 1.0)
    centres = begin + (numpy.arange(size) + 0.5) * scale
    distances = (numpy.arange(side) + 0.5 - centres[:, None]) / wide
    inside = (numpy.floor(centres - reach * wide + 0.5)[:, None] <= numpy.arange(side)) & (
        numpy.arange(side) < numpy.floor(centres + reach * wide + 0.5)[:, None])
    values = numpy.where(inside, kernel(numpy.abs(distances)), 0.0)
    return values / values.sum(axis=1, keepdims=True)


def test_resizing():
    bilinear = lambda x: numpy.maximum(1.0 - x, 0.0)
    bicubic = lambda x: numpy.where(x < 1, (1.5 * x - 2.5) * x * x + 1, numpy.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0))
    blocks = 255 * random.integers(0, 2, (40, 40, 3)).repeat(3, 0).repeat(3, 1)  # bicubic weights overshoot at their edges
    for height, width, size in [(33, 57, 8), (57, 33, 16), (24, 24, 24), (7, 5, 16), (120, 91, 50), (31, 120, 31)]:
        for picture in (random.integers(0, 256, (height, width, 3)), blocks[:height, :width]):
            for resize in ("shorter", "both"):
                for interpolation, kernel, reach in (("bilinear", bilinear, 1), ("bicubic", bicubic, 2)):
                    sides = []
                    for side in (height, width):  # resized to `resized`, of which the centre is kept
                        resized = size if resize == "both" else side * size // min(height, width)
                        begin = (resized - size) // 2 * side / resized
                        sides.append(weights(side, begin, size * side / resized, size, kernel, reach))
                    expected = numpy.einsum("yh,xw,hwc->yxc", *sides, picture.astype(float), optimize=True).clip(0, 255)
                    found = one(png(picture, 8, 2), size, resize=resize, interpolation=interpolation)
                    difference = numpy.abs(found - expected).max()
                    assert difference <= (1.1 if interpolation == "bilinear" else 0.51), (height, width, size, difference)
    square = random.integers(0, 256, (32, 32, 3))
    assert all((one(png(square, 8, 2), 32, interpolation=filter) == square).all() for filter in ("bilinear", "bicubic"))


def progressive(scans):
    """A gray JPEG of 8 x 8 pixels and so many scans of a few bytes."""
    segment = lambda marker, body: bytes([0xff, marker, 0, len(body) + 2]) + bytes(body)
    data = b"\xff\xd8" + segment(0xdb, [0] + 64 * [1]) + segment(0xc2, [8, 0, 8, 0, 8, 1, 1, 0x11, 0])
    data += b"".join(segment(0xc4, [table, 1] + 16 * [0]) for table in (0x00, 0x10))  # one code, of one bit: no difference
    for scan in range(scans):
        data += segment(0xda, [1, 1, 0, scan > 0, 63 * (scan > 0), 0]) + b"\x7f"
    return data + b"\xff\xd9"


def test_bad_pictures():
    def refused(data, text):
        try:
            one(data, 8)
        except script.Refused as error:
            assert error.code == 65 and error.text.startswith("one/picture ") and text in error.text, error.text
            return
        raise AssertionError(f"taken: {text}, {len(data)} bytes, {data[:40]}")

    noise = random.integers(0, 256, (64, 64, 3))
    whole_jpeg, whole_png = jpeg(noise.astype(numpy.uint8)), png(noise, 8, 2)
    refused(b"", "of 0 bytes is neither a JPEG nor a PNG file")
    refused(b"GIF89a", "is neither a JPEG nor a PNG file")
    for count in (4, 20, len(whole_jpeg) // 2, len(whole_jpeg) - 20):
        refused(whole_jpeg[:count], "is a damaged or unknown JPEG file: ")
    for count in (9, 30, len(whole_png) // 2, len(whole_png) - 13):
        refused(whole_png[:count], "is a damaged or unknown PNG file: ")
    for at in (20, len(whole_png) // 2, len(whole_png) - 20):
        refused(whole_png[:at] + bytes([whole_png[at] ^ 0x10]) + whole_png[at + 1:], "PNG")
    refused(whole_png[:16] + struct.pack(">II", 8193, 8192) + whole_png[24:29] +
            struct.pack(">I", zlib.crc32(b"IHDR" + struct.pack(">II", 8193, 8192) + whole_png[24:29])) + whole_png[33:],
            "8192 x 8193 pixels are more than 67108864")
    refused(whole_png[:25] + b"\5" + whole_png[26:], "its head cannot be read")
    bomb = zlib.compress(bytes(1 << 27), 9)
    refused(png(noise, 8, 2, chunk(b"zTXt", b"a\0\0" + bomb)), "Decompressed ")
    assert (one(progressive(100), 8) == 128).all()
    refused(progressive(101), "it has more than 100 scans")
    for i in range(400):  # with a byte or two changed anywhere, it is read or it is bad
        data = bytearray(whole_png if i % 2 else whole_jpeg)
        for at in random.integers(0, min(len(data), 700), 2):
            data[at] = random.integers(256)
        try:
            assert one(bytes(data), 8).shape == (8, 8, 3)
        except script.Refused as error:
            assert error.code == 65, error


def test_skipping():
    for i in range(70):
        write(f"bad/{'ab'[i % 2]}/{i}.png", png(flat(9, 9, i, i, i), 8, 2))
    cut = jpeg(random.integers(0, 256, (64, 64, 3)).astype(numpy.uint8))
    write("bad/a/cut.JPEG", cut[:len(cut) // 2])
    write("bad/a/fake.jpg", b"text")
    write("bad/b/by_content.JPEG", png(flat(9, 9, 99, 99, 99), 8, 2))
    os.truncate(write("bad/b/long.png", b""), 1 << 36)
    os.mkfifo("bad/b/pipe.png")
    convert("bad", "bad.h5", "--size", "8", code=65, says="--skip-bad")
    assert not os.path.exists("bad.h5")
    text = convert("bad", "bad.h5", "--size", "8", "--skip-bad", says=(
        "cut.JPEG is a damaged or unknown JPEG file", "fake.jpg of 4 bytes is neither a JPEG nor a PNG file",
        f"long.png has {1 << 36} bytes", "pipe.png is no file", ": 71 images in 2 classes, 4 bad files left out, in"))
    assert text.count("warning: left out: ") == 4, text
    images, labels = content("bad.h5")
    expected = sorted([(i % 2, i) for i in range(70)] + [(1, 99)])
    assert sorted(zip(labels.tolist(), images[:, 4, 4, 0].tolist())) == expected and not os.path.exists("bad.h5.partial")
    write("all_bad/a/fake.jpg", b"text")
    convert("all_bad", "x.h5", "--skip-bad", code=65, says="none of the images of all_bad can be decoded")
    os.symlink("nowhere", "all_bad/a/dangling.png")  # a file that is not there is no bad picture
    convert("all_bad", "x.h5", "--skip-bad", code=66, says="cannot read all_bad/a/dangling.png: No such file")


def test_links():
    """Of folders that several links lead to, each is read once: 2^41 paths along those that lead back, 2^30 along the rest."""
    write("links/a/x.png", png(flat(9, 9, 1, 1, 1), 8, 2))
    os.symlink(".", "links/a/again")
    os.symlink("..", "links/a/up")
    for i in range(30):
        os.makedirs(f"links/b/{i}")
        for name in "xy":
            os.symlink(f"../{i + 1}", f"links/b/{i}/{name}")
    write("links/b/30/deep.png", png(flat(9, 9, 2, 2, 2), 8, 2))
    convert("links", "links.h5", "--size", "8", says="wrote links.h5: 3 images in 2 classes")  # links/a/up has both


def test_refusals():
    def refused(words, code, text):
        try:
            script.convert(script.options_of(words))
        except script.Refused as error:
            assert error.code == code and text in error.text and "\n" not in error.text, (words, error)
            assert not os.path.lexists("x.h5") and not os.path.lexists("x.h5.partial")
            return
        raise AssertionError(f"not refused: {words}")

    picture = png(flat(9, 9, 1, 1, 1), 8, 2)
    write("flat/x.png", picture)
    write("comma/a,b/x.png", picture)
    os.makedirs("empty/a")
    for folder, code, text in (("nowhere", 66, "cannot list the folder nowhere: No such file"), ("flat", 66, "has no subfolders"),
                               ("empty", 65, "empty/a holds no *.jpg"), ("comma", 65, "'a,b' has a comma")):
        refused([folder, "--out", "new/x.h5"], code, text)
        assert not os.path.exists("new")
    write("good/a/x.png", picture)
    os.symlink("good", "same")
    os.mkfifo("fifo")
    for out, code, text in (("good/a/x.png", 64, "which is what is read"), ("same/a/x.png", 64, "which is what is read"),
                            ("fifo", 73, "is no regular file"), ("good", 73, "is no regular file"),
                            ("flat/x.png/y.h5", 73, "cannot create the folder"), ("n" * 300, 73, "File name too long")):
        refused(["good", "--out", out, "--overwrite"], code, text)
    for words, text in ((["--size", "0"], "'0'; allowed: integer, 1 to 4096"), (["--seed", "-1"], "--seed"),
                        (["--skipbad"], "--skipbad"), (["--resize", "longer"], "longer"), (["other"], "other")):
        refused(["good", "--out", "x.h5", *words], 64, text)
    refused(["good"], 64, "--out")
    convert("good", "new/x.h5", "--size", "8")
    convert("good", "new/x.h5", code=73, says="'new/x.h5' is there already; give --overwrite")
    os.symlink("../good/a/x.png", "new/y.h5.partial")  # never written through
    convert("good", "new/y.h5", "--size", "8")
    with open("good/a/x.png", "rb") as file:
        assert file.read() == picture


def test_missing_modules():
    """The script says what to install; before that it tries the distribution's Python."""
    def needs(system_python):
        return subprocess.run([sys.executable, "-c", "import python_with as p, sys; p.SYSTEM_PYTHON = sys.argv.pop(); "
                               "p.modules('h5py', 'PIL.no_such_module')", system_python],
                              capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{SOURCE}/launch"})
    alone = needs("/nonexistent/python3")
    assert alone.returncode == 66 and alone.stderr.count("\n") == 1, alone
    assert "apt-get install python3-h5py python3-pil, or pip install h5py pillow" in alone.stderr, alone.stderr
    write("other/python", b"#!/bin/sh\necho the other Python\n")
    os.chmod("other/python", 0o755)
    assert needs(os.path.abspath("other/python")).stdout == "the other Python\n"


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # one whose end nobody has asked for yet
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_killed():
    path = os.path.abspath(write("slow/a/0.png", png(random.integers(0, 256, (700, 700, 3)), 8, 2)))
    for i in range(1, 2000):
        os.symlink(path, f"slow/a/{i}.png")
    # The first ones of each kind come while the pool is being built, where an exception would be lost or leave it waiting.
    for delay, how in enumerate(6 * (signal.SIGTERM, signal.SIGINT) + 2 * (signal.SIGKILL,)):
        run = subprocess.Popen([SCRIPT, "slow", "--out", "slow.h5", "--jobs", "2", "--overwrite"],
                               stdout=subprocess.DEVNULL)
        while run.poll() is None and not (os.path.exists("slow.h5.partial") and len(children(run.pid)) > delay // 2 % 2):
            time.sleep(0.001)
        time.sleep(0.001 * delay)
        workers = children(run.pid)
        run.send_signal(how)
        assert run.wait(60) in (-how, 128 + how), run.returncode
        deadline = time.monotonic() + 20
        while any(runs(worker) for worker in workers):
            assert time.monotonic() < deadline, "its processes stay"
            time.sleep(0.01)
        assert not os.path.exists("slow.h5") and os.path.exists("slow.h5.partial") == (how == signal.SIGKILL)
    shutil.rmtree("slow")
    write("slow/a/0.png", png(flat(9, 9, 1, 1, 1), 8, 2))
    convert("slow", "slow.h5", "--size", "8")
    assert not os.path.exists("slow.h5.partial")


def test_training():
    for i in range(24):
        write(f"train/{'xyz'[i % 3]}/{i}.png", png(smooth(20 + i, 30, 3) // (1 + i % 3), 8, 2))
    convert("train", "train.h5", "--size", "16")
    run = subprocess.run([PROGRAM, "--task", "classify", "--train-data", "train.h5", "--patch-size", "4", "--embed-dim", "16",
                          "--depth", "1", "--num-heads", "2", "--global-batch-size", "8", "--steps", "3", "--run-dir", "run"],
                         capture_output=True, text=True)
    text = run.stdout + run.stderr
    assert run.returncode == 0 and "image-size 16x16, in-channels 3, num-classes 3" in text, text
    inspected = subprocess.run([PROGRAM, "data", "inspect", "train.h5"], capture_output=True, text=True).stdout
    assert "x, y, z" in inspected or "x,y,z" in inspected, inspected


for name, test in list(globals().items()):
    if name.startswith("test_"):
        begin = time.monotonic()
        test()
        print(f"{name} {time.monotonic() - begin:.1f} s", flush=True)
print("convert_images: passed")
