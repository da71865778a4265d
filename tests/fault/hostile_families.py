"""The families of hostile inputs: functions that make one input each, in a folder of its own (hostile_case.py)."""
import json
import os
import re
import struct
import subprocess

from hostile_case import (COMMANDS, CONTROL, LONG, NUMBERS, ODD, OF_CHECKPOINTS, OF_IMAGES, OF_WEATHER, TEXTS, Input,
                          read, write)

# --- configurations


def yaml_bombs(case):
    depth = case.rng.choice([6, 9, 12, 25])

    def nested(first, line):
        return first + "".join(line.format(i=i, b=i - 1) for i in range(1, depth + 1))

    texts = {
        "merges": nested("a0: &a0\n  lr: 1\n",
                         "a{i}: &a{i}\n  <<: [*a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}]\n") +
        f"s:\n  <<: *a{depth}\n", "aliases": nested(
            "a0: &a0 [1, 1]\n",
            "a{i}: &a{i} [*a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}, *a{b}]\n"), "keys": nested(
                "a0: &a0 {{x: 1}}\n".replace("{{", "{").replace("}}", "}"), "a{i}: &a{i} {{x: *a{b}, y: *a{b}}}\n"),
        "self": "s: &a\n  <<: *a\n  lr: 1\n", "sequences": "[" * 200000, "maps": "{a: " * 100000,
        "dashes": "- " * 200000, "comments": "# comment\n" * 8000000, "lines": "\n" * 30000000,
        "one line": "lr: " + "1" * 50000000, "anchors": "".join(f"k{i}: &k{i} 1\n" for i in range(100000)),
        "spaces": " " * 40000000 + "lr: 1", "documents": "---\nlr: 1\n" * 200000, "question marks": "? " * 100000,
        "block": "lr: |\n" + " x\n" * 3000000, "wide merge": "b: &b {lr: 1}\ns:\n  <<: [" + "*b, " * 100000 + "*b]\n",
        "quotes": 'lr: "' + "\\x41" * 2000000 + '"', "indents": "".join(
            " " * i + "a:\n" for i in range(3000)), "tags": "!<" + "a" * 2000000 + "> lr: 1\n"
    }
    kind = case.pick(texts)
    config = case.write("c.yaml", texts[kind])
    return case.input("config",
                      f"{kind}, depth {depth}",
                      config=config + (":s" if kind in ("merges", "self", "wide merge") else ""))


def yaml_keys(case):
    name = case.rng.choice(case.tools.options("train"))
    many = case.rng.choice([1000, 300000])
    texts = {
        "unknown": "".join(
            f"key{i}: 1\n"
            for i in range(many)), "doubled": "lr: 1\n" * many, "control key": json.dumps(CONTROL) + ": 1\n",
        "control value": f"{name}: {json.dumps(CONTROL)}\n", "long key": "k" * 1000 + "e" * 3000000 + ": 1\n",
        "long value": f"{name}: {LONG * 20}\n", "sequence": f"{name}: [1, 2]\n", "map": f"{name}: {{a: 1}}\n",
        "null": f"{name}:\n", "binary": f"{name}: !!binary AAAA\n", "tag": f"{name}: !!python/object:os.system [id]\n",
        "map as key": "? {a: 1}\n: 1\n", "list as key": "? [a, b]\n: 1\n", "top is list": "- lr: 1\n",
        "top is text": "lr\n", "nul": b"lr: 1\0\ndepth: 2\n", "utf-16": "\ufefflr: 1\n".encode("utf-16-le"),
        "no utf-8": b"name: \xff\xfe\xc0\x80\n", "byte order": "\ufefflr: 1\n", "tab": "lr:\t1\n\tdepth: 2\n",
        "tail": "lr: 1\n...\n%YAML 9.9\n---\n", "alias of nothing": "lr: *nothing\n",
        "names itself": "config: c.yaml\n", "near": "".join(
            f"{name}{i}: 1\n" for i in range(2000)), "bad values": "".join(
                f"{option}: {{}}\n" for option in case.tools.options("train")), "sections": "".join(
                    f"s{i}:\n  lr: 1\n" for i in range(100000)), "number": f"{name}: {case.rng.choice(NUMBERS)}\n"
    }
    kind = case.pick(texts)
    section = case.rng.choice(["", "", "", ":" + CONTROL, ":nothing", ":" + "s" * 100000, "::", ":lr"])
    return case.input("config",
                      f"{kind}, {name}, section {section[:20]!r}",
                      config=case.write("c.yaml", texts[kind]) + section)


# --- words and environment

SHORT = {
    "VIT_HYBRID_STEPS": "2", "VIT_HYBRID_DEPTH": "1", "VIT_HYBRID_EMBED_DIM": "8", "VIT_HYBRID_NUM_HEADS": "2",
    "VIT_HYBRID_GLOBAL_BATCH_SIZE": "2", "VIT_HYBRID_GENERATED_SAMPLES": "4", "VIT_HYBRID_GENERATED_VALID_SAMPLES": "2"
}
LASTING = re.compile("steps|epochs|iters|samples|years|images|test|interval-hours|dir$|root$|out$|timeout|time-limit")


def command_line(case):
    command = case.pick(["train", "evaluate", "data generate", "data repack", "checkpoint import"])
    name = case.rng.choice([name for name in case.tools.options(command) if not LASTING.search(name)])
    value = case.rng.choice(NUMBERS + TEXTS)
    harmless = {
        "train": "train", "evaluate": "evaluate", "data generate": "generate", "data repack": "repack",
        "checkpoint import": "import"
    }[command]
    words = [f"--{name}={value}"] if case.rng.random() < 0.5 else [f"--{name}", value]
    given = case.words(harmless)
    if f"--{name}" in given:
        at = given.index(f"--{name}")
        given = given[:at] + given[at + 2:]
    return Input(harmless, given + words, f"--{name} {value[:30]!r}")


def odd_words(case):
    words = {
        "repeated": ["--lr", "1"] * 5000, "strays": ["stray"] * 20000, "unknown": [f"--option{i}" for i in range(5000)],
        "empty": [""], "control option": ["--" + CONTROL,
                                          "1"], "control stray": [CONTROL], "equals": ["--=1"], "dashes": ["---"],
        "two dashes": ["--"], "dash": ["-"], "short": ["-" + "x" * 1000], "no value": ["--lr"], "no equals": ["--lr="],
        "flag with value": ["--help=maybe"], "no number": ["--no-lr"], "long unknown": ["--" + LONG], "long near": [
            "--" + "embed-dim" * 10000
        ], "at": ["@/dev/zero"], "no utf-8": ["--\udcff\udcfe"], "long words": [LONG] * 10, "negative": [
            "--seed", "-9223372036854775809"
        ], "double no": ["--no-no-help"], "config": ["--config",
                                                     ""], "configs": ["--config", case.tools.good["config"]] * 2000,
        "upper": ["--LR", "1"], "spaces": ["-- lr", "1"], "nul-like": ["--lr\\0", "1"]
    }
    kind = case.pick(words)
    first = case.rng.choice([[], [], ["train"], ["evaluate"], ["data", "inspect"], ["checkpoint", "verify"],
                             ["data", CONTROL], [CONTROL], [LONG]])
    # Where the words are valid after all, a training of the built-in data begins.
    return Input("config", first + words[kind], f"{kind} after {' '.join(first)[:30]!r}", env=SHORT)


def variables(case):
    name = "VIT_HYBRID_" + case.rng.choice(
        [option for option in case.tools.options("train") if not LASTING.search(option)]).upper().replace("-", "_")
    value = case.rng.choice(NUMBERS + TEXTS)
    env = case.pick([{name: value}, {name: CONTROL}, {name: LONG}, {
        "VIT_HYBRID_" + CONTROL.replace("=", ""): "1"
    }, {"VIT_HYBRID_" + "X" * 100000: "1"}, {"VIT_HYBRID_": "1"}, {f"VIT_HYBRID_KEY{i}": "1"
                                                                   for i in range(5000)}, {"SLURM_JOB_END_TIME": value},
                     {"SLURM_JOB_END_TIME": "-1"}, {"VIT_HYBRID_TIMEOUT": value}, {"VIT_HYBRID_CONFIG": CONTROL}, {
                         "VIT_HYBRID_HELP": "maybe"
                     }, {"TERM": CONTROL, "COLUMNS": "-1"}, {"COLUMNS": "99999999999", "LINES": "0"}, {
                         "VIT_HYBRID_RESUME": CONTROL
                     }, {"SLURM_JOB_ID": CONTROL, "SLURM_JOB_NAME": LONG}, {"LC_ALL": CONTROL, "LANG": "tr_TR.UTF-8"}])
    return case.input("train", f"{list(env)[0][:40]!r} = {list(env.values())[0][:30]!r}", env=env)


# --- files that are none


def odd_paths(case):
    inside = {
        "train": [("train", "1990.h5", 1), ("valid", "x.h5", 0), ("stats", "global_means.npy", 1),
                  ("stats", "time_means.npy", 1)], "evaluate": [("checkpoint", "latest", 1), ("valid", "1991.h5", 1)],
        "stats": [("train", "1990.h5", 1)]
    }
    places = [(command, place, "") for command, text in COMMANDS.items()
              for place in re.findall(r"\{(\w+)\}(?:[ ]|$)", text)]
    places += [(command, place, name) for command, lists in inside.items() for place, name, _ in lists]
    command, place, name = case.pick(places)
    kind = case.rng.choice(ODD)
    path = case.odd_file(kind, f"odd/{name}" if name else "odd")
    given = case.path("odd") if name else path
    more = ["--overwrite"] if place == "out" and case.rng.random() < 0.5 else []
    return case.input(command, f"{kind} as {place} {name} of {command}", more, **{place: given})


def odd_outputs(case):
    """The run's folder or a result's place holds links and pipes at the names that will be written."""
    command, names = case.pick([("train", [
        "metrics.jsonl", "out.log", "config.yaml", "summary.json", "summary.json.part", "metrics.jsonl.part",
        "checkpoints", "checkpoints/latest.partial", "checkpoints/best.partial",
        "checkpoints/step-000000002.h5.partial", "checkpoints/latest", "summary.json.partial", "config.yaml.partial",
        "out.log.partial", "metrics.jsonl.partial", "kernels.txt"
    ]), ("stats", ["global_means.npy.partial", "global_stds.npy.partial", "time_means.npy.partial",
                   "global_means.npy"]), ("repack", ["1990.h5.partial", "1990.h5"]),
                                ("generate", [
                                    "train/1990.h5.partial", "stats/global_means.npy.partial", "train", "stats"
                                ]), ("generate_images", ["train.h5.partial", "valid.h5.partial", "train.h5"]),
                                ("evaluate", ["o.json.partial", "o.json"]),
                                ("forecast", ["o.h5.partial", "o.json.partial", "o.json"]),
                                ("export", ["o.safetensors.partial"]),
                                ("import", ["o.h5.partial"])])
    name = case.rng.choice(names)
    kind = case.rng.choice(["canary", "canary", "canary", "fifo", "dangling", "loop", "full", "folder"])
    folder = {"train": "r/", "stats": "o/", "repack": "o/", "generate": "o/", "generate_images": "o/"}.get(command, "")
    case.odd_file(kind, folder + name)
    more = ["--overwrite"] if command != "train" and name.endswith(".partial") else []
    return case.input(command, f"{kind} at {folder}{name} of {command}", more)


def file_names(case):
    name = case.pick([
        CONTROL.replace("/", ""), "\x1b[2J", "a\nvit_hybrid: forged", "x" * 250, "\udcff\udcfe", "\u009b31m", " ",
        "%s%n", "-rf", "\u202eh", "a,b", ":", "a:b:c", "\\"
    ])
    name = name.encode("utf-8", "surrogateescape")[:240].decode("utf-8", "surrogateescape")
    command, place, end = case.rng.choice([("train", "train", ""), ("stats", "train", "/19" + name + ".h5"),
                                           ("inspect", "train", "/" + name[:200] + ".h5"),
                                           ("evaluate", "checkpoint", "/" + name),
                                           ("describe", "checkpoint", "/" + name),
                                           ("repack", "train", "/" + name[:200] + ".h5"),
                                           ("config", "config", "/" + name),
                                           ("train", "run", "/" + name), ("export", "out", "/" + name[:200]),
                                           ("train", "stats", "/" + name), ("import", "tensors", "/" + name),
                                           ("stats", "out", "/" + name), ("forecast", "out", "/" + name[:200])])
    content = case.rng.choice([b"", b"content", read(case.tools.good["year"])])
    path = case.path("d" + end)
    if place not in ("out", "run") and end:
        write(path, content)
    given = case.path("d") if command == "stats" and place == "train" else path
    return case.input(command, f"{name[:30]!r} as {place} of {command}", **{place: given})


def texts_of_options(case):
    command, option = case.pick([("forecast", "--dataset-name"), ("train", "--dataset-name"), ("evaluate", "--dataset-name"),
                                 ("train_images", "--labels-name"), ("repack", "--dataset"), ("stats", "--dataset"),
                                 ("train", "--mpiio-hints"), ("train", "--name"), ("train", "--preempt-signal"),
                                 ("train", "--resume"), ("train", "--init-from"), ("train", "--stage-dir"),
                                 ("train", "--global-means"), ("train", "--checkpoint-dir"), ("train", "--preset"),
                                 ("import", "--preset"), ("export", "--names"), ("train", "--image-size")])
    value = case.rng.choice(TEXTS + [
        "/", ".", "..", "fields/..", "/fields/./", "fields\0x".replace("\0", "\\0"), "a=b=c", "=,=,=", "USR1,USR1",
        ",USR1", "8x", "x8", "8x16x3", "8X16"
    ])
    if option in ("--checkpoint-dir", "--stage-dir") and value.startswith("../"):
        value = "r/../../in/x"
    more = [option, value] + (["--stage-data", "node"] if option == "--stage-dir" else [])
    more += ["--io", "collective"] if option == "--mpiio-hints" else []
    words = case.words(command)
    if option in words:
        words[words.index(option):words.index(option) + 2] = []
    return Input(command, words + more, f"{option} {value[:30]!r}")


def absurd_sizes(case):
    many, most = str(10**6), "16777216"
    words = case.pick([["--depth", most], ["--depth", "1000000"], ["--embed-dim", most], ["--embed-dim",
                                                                                          str(2**40)],
                       ["--image-size", "1000000x1000000", "--patch-size", "1"], ["--image-size", most + "x" + most],
                       ["--image-size", most + "x" + most, "--patch-size", "1"], ["--in-channels", most],
                       ["--out-channels", most], ["--mlp-hidden", most, "--embed-dim", "1048576"],
                       ["--num-heads", most, "--embed-dim", most], ["--global-batch-size",
                                                                    str(2**62)], ["--micro-batch-size",
                                                                                  str(2**62)],
                       ["--valid-batch-size", str(2**62)], ["--local-batch-size", str(2**62)], ["--bucket-mb", "1e300"],
                       ["--bucket-mb", "1e-300"], ["--bucket-mb", "1e12"], ["--time-limit", "1e300"],
                       ["--time-limit", "1e-300"], ["--timeout", "1e300"], ["--timeout", "1e-300"], ["--lr", "1e300"],
                       ["--warmup", str(2**62)], ["--eps", "1e-300"], ["--clip-norm", "1e-300"],
                       ["--clip-norm", "1e300"], ["--prefetch-depth", "4096"], ["--io-threads", "4096"],
                       ["--threads", "4096"], ["--log-interval", str(2**62)], ["--checkpoint-every",
                                                                               str(2**62)],
                       ["--keep-checkpoints", str(2**62)], ["--pp", "1048576", "--print-schedule"],
                       ["--dp", "1048576", "--print-schedule"],
                       ["--global-batch-size", many, "--micro-batch-size", "1", "--print-schedule"],
                       ["--dp", "1048576", "--tp", "1048576", "--pp", "1048576"], ["--depth", many, "--print-schedule"],
                       ["--limit-nsamples", str(2**62)], ["--generated-samples",
                                                          str(2**62), "--data", "synthetic"],
                       ["--generated-valid-samples", str(2**62), "--data", "synthetic"],
                       ["--generated-samples", str(2**40), "--data", "builtin"],
                       ["--warmup", "1", "--lr-batch-size",
                        str(2**62), "--lr-scaling", "sqrt"], ["--embed-dim", "1048576", "--num-heads", "1048576"],
                       ["--norm-eps", "1e-320"], ["--loss-scale", "1e12", "--precision", "fp16"],
                       ["--seed", str(2**63 - 1)],
                       ["--num-classes", most, "--embed-dim", "1048576", "--task", "classify"],
                       ["--valid-resize", most, "--task", "classify"], ["--ranks-per-gpu", "4096"],
                       ["--weight-decay", "1e300"], ["--import", "--depth", most], ["--import", "--embed-dim", most],
                       ["--import", "--image-size", most], ["--forecast", "--steps",
                                                            str(2**62)], ["--forecast", "--start",
                                                                          str(2**62)],
                       ["--forecast", "--start", str(2**63 - 1)],
                       ["--repack", "--align", "1073741824"],
                       ["--inspect", "--bands", "100000"], ["--inspect", "--sample", "1000000000"]])
    own = {
        "--import": "import", "--forecast": "forecast", "--repack": "repack", "--inspect": "inspect"
    }
    command = own.get(words[0]) or ("train_images" if "classify" in words else "train")
    words = words[1:] if words[0] in own else words
    given = case.words(command)
    for option in words[::2]:
        if option in given:
            given[given.index(option):given.index(option) + 2] = []
    if "--data" in words:
        given = [
            word for at, word in enumerate(given)
            if not {word, given[at - 1]} & {"--train-data", "--valid-data", "--stats"}
        ]
    return Input(command, given + words, " ".join(words))


# --- arrays, weights, data


def npy_files(case):
    def npy(header, body=bytes(12), version=b"\x01\x00"):
        length = struct.pack("<H" if version[0] == 1 else "<I",
                             len(header) & (0xffff if version[0] == 1 else 0xffffffff))
        return b"\x93NUMPY" + version + length + header.encode() + body

    def head(shape, descr="'<f4'", order="False", tail="\n"):
        return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}{tail}"

    good = read(case.tools.good["stats"] + "/global_means.npy")
    contents = {
        "overflow": npy(head("(1, 4611686018427387904, 4, 4)")), "overflow to 3": npy(
            head("(1, 3, 4294967296, 4294967296)")), "huge": npy(head("(1, 1099511627776, 1, 1)")), "negative": npy(
                head("(1, -3, 1, 1)")), "two negatives": npy(head("(-1, -3, 1, 1)")), "zero": npy(
                    head("(1, 0, 1, 1)")), "fortran": npy(head("(1, 3, 1, 1)", order="True")), "object": npy(
                        head("(1, 3, 1, 1)", "'|O'")), "text": npy(head("(1, 3, 1, 1)", "'<U4'")), "record": npy(
                            head("(3,)", "[('a', '<f4')]")),
        "complex": npy(head("(3,)", "'<c8'"), bytes(24)), "digits": npy(head("(" + "9" * 30000 + ",)")), "dims": npy(
            head("(" + "1, " * 15000 + ")")), "no end": npy("{'descr'"), "empty header": npy(""), "long header": npy(
                head("(1, 3, 1, 1)", tail=" " * 60000 + "\n")), "version 2 huge": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
        "version 3": npy(head("(3,)"), version=b"\x03\x00"), "version 9": npy(
            head("(3,)"), version=b"\x09\x09"), "control": npy(head("(3,)", repr(CONTROL))), "control raw": npy(
                head("(3,)", "'" + CONTROL + "'")), "truncated": good[:-5], "nan": npy(
                    head("(1, 3, 1, 1)"), struct.pack(
                        "<3f", 1, float("nan"), 1)), "zeros": npy(head("(1, 3, 1, 1)")), "infinite": npy(
                            head("(1, 3, 1, 1)"), struct.pack(
                                "<3f", 1, float("inf"),
                                -1)), "pickle": b"\x80\x04cos\nsystem\n", "nothing": b"", "longer": good + bytes(1000),
        "nested": npy("{'shape': " + "(" * 30000), "mutated": case.mutated(good), "mutated too": case.mutated(
            good, 10, 2), "scalar": npy(head("()")),
        "shape twice": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'shape': (1, 3, 1, 1)}\n")
    }
    kind = case.pick(contents)
    name = case.rng.choice(["global_means.npy", "global_stds.npy", "time_means.npy"])
    stats = case.copy(case.tools.good["stats"], "s")
    write(f"{stats}/{name}", contents[kind])
    refuse = not kind.startswith(("mutated", "long header", "zeros", "version 3", "longer", "shape twice"))
    return case.input(case.rng.choice(["train", "evaluate"]), f"{kind} as {name}", stats=stats, must_refuse=refuse)


def safetensors_files(case):
    good = read(case.tools.good["tensors"])
    length = struct.unpack("<Q", good[:8])[0]
    header, body = json.loads(good[8:8 + length]), good[8 + length:]
    name = case.rng.choice([key for key in header if key != "__metadata__"])

    def file(changed, body=body):
        text = (changed if isinstance(changed, str) else json.dumps(changed)).encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(text)) + text + body

    def with_entry(**fields):
        return file({**header, name: {**header[name], **fields}})

    text = json.dumps(header)
    contents = {
        "length 2^63": struct.pack("<Q", 1 << 63) + good[8:], "length all": struct.pack("<Q", 2**64 - 1) + good[8:],
        "length long": struct.pack("<Q", 99999999) + good[8:], "length 0": struct.pack("<Q", 0) + good[8:],
        "deep": file('{"a":' + "[" * 1000000), "deep map": file(
            '{"a":' * 200000), "twice": file(text[:-1] + "," + text[1:]),
        "overlap": with_entry(data_offsets=header[[key for key in header
                                                   if key != name and key != "__metadata__"][0]]["data_offsets"]),
        "negative": with_entry(data_offsets=[-8, 0]), "beyond": with_entry(data_offsets=[0, 1 << 62]),
        "backwards": with_entry(data_offsets=[8, 0]), "float offsets": with_entry(data_offsets=[0.5, 1e300]),
        "overflow": with_entry(shape=[1 << 62, 4, 4]), "negative shape": with_entry(shape=[-1, -8]),
        "no shape": with_entry(shape=[]), "many dims": with_entry(shape=[1] * 100000), "zero dim": with_entry(
            shape=[0]), "odd type": with_entry(dtype="F7"), "control type": with_entry(dtype=CONTROL),
        "type is number": with_entry(dtype=4), "shape is text": with_entry(shape="8"), "no fields": file(
            {**header, name: {}}), "control name": file({**header, CONTROL: header[name]}), "long name": file(
                {**header, LONG: header[name]}), "metadata control": file(
                    {**header, "__metadata__": {"format": CONTROL, CONTROL: "1"}}), "metadata model": file(
                        {**header, "__metadata__": {"vit_hybrid": "[" * 100000,
                                                    "model": CONTROL}}), "metadata list": file(
                                                        {**header, "__metadata__": [1]}), "list": file("[1]"),
        "nothing": b"", "short": good[:5], "truncated": good[:-9], "longer": good + bytes(100), "many": file(
            {**header, **{f"x{i}": header[name]
                          for i in range(100000)}
             }), "no utf-8": struct.pack("<Q", 4) + b'"\xff"' + b" ", "lone": file('{"\\ud800": {}}'), "less": file(
                 {key: value
                  for key, value in header.items()
                  if key != name}), "number": file('{"a": 1e99999, "b": ' + "9" * 100000 + "}"),
        "mutated": case.mutated(good), "mutated head": case.mutated(good[:8 + length]) + body
    }
    kind = case.pick(contents)
    refuse = not kind.startswith(("mutated", "metadata"))
    return case.input("import",
                      f"{kind}, {name}",
                      tensors=case.write("x.safetensors", contents[kind]),
                      must_refuse=refuse)


def weather_place(case, path):
    """A command that reads the year file `path`, which lies alone in its folder."""
    command = case.rng.choice(OF_WEATHER)
    place = {"evaluate": "valid", "forecast": "valid", "train": case.rng.choice(["train", "train", "valid"])}.get(
        command, "train")
    more = []
    if command in ("train", "evaluate") and case.rng.random() < 0.5:
        more = ["--io", case.rng.choice(["direct", "independent", "collective"])]
    return command, {place: path if command == "inspect" and case.rng.random() < 0.5 else os.path.dirname(path)}, more


STORAGE = [
    "external", "external_many", "virtual", "virtual_self", "virtual_many", "virtual_name", "external_link",
    "soft_nowhere"
]
TEXTUAL = [
    "channels_text", "channels_number", "channels_long", "channels_list", "channels_null_list", "channels_many",
    "channels_empty", "units_text", "named_dataset"
]


def hdf5_kinds(case):
    kind = case.pick([kind for kind in case.tools.kinds["weather"] if kind not in STORAGE + TEXTUAL])
    command, places, more = weather_place(case, case.hdf5(kind, "d/1990.h5", "/nowhere/x"))
    return case.input(command, f"{kind} for {command}", more, **places)


def hdf5_links(case):
    kind = case.pick(STORAGE)
    aim = case.rng.choice(
        ["passwd", "canary", "year", "odd", "itself", "relative", "nothing", "folder", "long", "control"])
    odd = case.rng.choice(ODD)
    target = {
        "passwd": "/etc/passwd", "canary": case.canary, "year": case.outside + "/1990.h5", "itself": "1990.h5",
        "relative": "../../outside/1990.h5", "nothing": "/nowhere/x.h5", "folder": "/etc", "long": "x" * 50000,
        "control": CONTROL
    }.get(aim) or case.odd_file(odd, "odd.h5")
    path = case.hdf5(kind, "d/1990.h5", target)
    command, places, more = weather_place(case, path)
    refuse = kind.startswith("external") and kind != "external_link" and aim in ("passwd", "canary", "year", "relative",
                                                                                 "folder")
    return case.input(command,
                      f"{kind} to {aim} {odd if aim == 'odd' else ''} for {command}",
                      more,
                      must_refuse=refuse,
                      **places)


def hdf5_texts(case):
    kind = case.pick(TEXTUAL)
    text = case.rng.choice(TEXTS)
    command, places, more = weather_place(case, case.hdf5(kind, "d/1990.h5", text))
    return case.input(command, f"{kind} {text[:30]!r} for {command}", more, **places)


def hdf5_bytes(case):
    good = read(case.tools.good["year"])
    content = {
        "structure": lambda: case.mutated(good[:2048]) + good[2048:],
        "head": lambda: case.mutated(good[:200], 8) + good[200:],
        "tail": lambda: good[:1500] + case.mutated(good[1500:]), "cut": lambda: good[:case.rng.randrange(len(good))],
        "longer": lambda: good + bytes(case.rng.randrange(5000)), "any": lambda: case.mutated(good, 0, 12)
    }
    kind = case.pick(content)
    command, places, more = weather_place(case, case.write("d/1990.h5", content[kind]()))
    return case.input(command, f"{kind} for {command}", more, **places)


def image_files(case):
    kind = case.pick([*case.tools.kinds["images"], "mutated", "mutated", "mutated", "cut"])
    text = case.rng.choice(TEXTS)
    good = read(case.tools.good["images"])
    if kind == "mutated":
        path = case.write("i.h5", case.mutated(good[:2048]) + case.mutated(good[2048:], 1500))
    elif kind == "cut":
        path = case.write("i.h5", good[:case.rng.randrange(len(good))])
    else:
        path = case.hdf5(kind, "i.h5", text)
    command = case.rng.choice(OF_IMAGES)
    place = {
        "train_images": case.rng.choice(["images", "valid_images"]), "evaluate_images": "valid_images",
        "inspect": "train", "repack_images": "images"
    }[command]
    return case.input(command, f"{kind} {text[:20] if 'classes' in kind else ''!r} as {place} of {command}",
                      **{place: path})


# --- checkpoints


def checkpoint_bytes(case):
    good = read(case.tools.good["checkpoint"])
    kind = case.pick(["flip", "flip", "cut", "longer", "mutated", "block", "foreign"])
    flipped = bytearray(good)
    flipped[case.rng.randrange(len(good))] ^= 1 << case.rng.randrange(8)
    content = {
        "flip": bytes(flipped), "cut": good[:case.rng.randrange(len(good))], "longer": good + bytes(100),
        "mutated": case.mutated(good, 0, 8), "block": case.mutated(good[:600]) + good[600:], "foreign": read(
            case.tools.good["year"])
    }[kind]
    command = case.rng.choice(OF_CHECKPOINTS)
    refuse = content != good and (command in ("verify", "resume") or kind in ("cut", "longer", "foreign"))
    return case.input(command,
                      f"{kind} for {command}",
                      checkpoint=case.write("c.h5", content),
                      codes={65, 64} if command == "init_from" else {65},
                      must_refuse=refuse)


def checkpoint_numbers(case):
    name = case.pick([
        "step", "epoch", "optimizer_steps", "samples_of_epoch", "num_samples", "good_steps", "skipped_steps", "seed",
        "format", "loss_scale", "metric_value"
    ])
    value = case.rng.choice([str(-2**63), "-1", str(2**62), str(2**63 - 1), "1000000007"])
    if name in ("loss_scale", "metric_value"):
        value = case.rng.choice(["nan", "inf", "-1", "1e308", "-0.0"])
    command = case.rng.choice(["resume", "resume", "resume", *OF_CHECKPOINTS])
    refuse = command == "resume" and (value.startswith("-9") or value in ("-1", str(
        2**62), str(2**63 - 1))) and name not in ("metric_value", "loss_scale")
    return case.input(command,
                      f"{name} {value} for {command}",
                      checkpoint=case.checkpoint("set", name, value),
                      must_refuse=refuse)


def checkpoint_texts(case):
    model = json.loads(re.search(rb'\{"task".*?\}', read(case.tools.good["checkpoint"])).group())
    bomb = "a0: &a0\n  lr: 1\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 8)}]\n"
                                          for i in range(1, 13)) + "<<: *a12\n"
    values = {
        "config": [
            bomb, "[" * 100000, "depth: " + json.dumps(CONTROL), "\x1b[2J: 1\n", "", "lr: 1\n" * 100000, "unknown: 1\n",
            "config: c.yaml\n", "&a [*a]", "x: " + LONG, "seed: -1\nsteps: 0\n", "stats: /dev/zero\n", "\0"
        ], "model": [
            json.dumps({**model, key: value})
            for key, value in [("depth", 16777216), ("depth", -1), ("depth", 1e300), ("embed-dim", 1 << 40),
                               ("embed-dim", 16777216), ("image-size", "1000000x1000000"), ("image-size", CONTROL),
                               ("patch-size", 0), ("num-heads", 0), ("task", CONTROL), ("task", "classify"),
                               ("dropout", "x"), ("unknown", 1), ("in-channels", 16777216), ("num-classes", 16777216)]
        ] + ["{", "[" * 500000, "", "null", "[]", "{}", LONG, CONTROL, '{"depth":' * 100000], "kernels": [
            CONTROL, LONG * 8, "a b c\n" * 100000, "\n\n", "product 1 2 3 " + CONTROL, "attention x"
        ], "channels": [CONTROL, LONG, ",,", "u", ",".join(
            ["u"] * 30000), "u,v,\x1b[2Jheight"], "optimizer": [CONTROL, LONG, "adamx", "sgd", "lamb"],
        "version": [CONTROL, LONG], "layout": [CONTROL, LONG], "metric": [CONTROL, LONG, "loss\n"]
    }
    name, value = case.pick([(name, value) for name, texts in values.items() for value in texts])
    case.write("value", value.replace("\0", "\\0"))
    command = case.rng.choice(["resume", "evaluate", "describe", "diff", "forecast", "init_from", "export"])
    note = f"{name} {value[:40]!r} for {command}"
    more = ["--print-config"] if command == "describe" and case.rng.random() < 0.3 else []
    return case.input(command, note, more, checkpoint=case.checkpoint("set", name, "@" + case.path("value")))


def checkpoint_parts(case):
    """Sealed files without a tensor, or with a structure that is damaged: HDF5 itself meets the bytes."""
    good = read(case.tools.good["checkpoint"])
    command = case.rng.choice(["resume", "evaluate", "describe", "verify", "diff", "export", "init_from"])
    kind = case.pick(["remove", "seal", "seal", "seal", "seal"])
    if kind == "remove":
        name = case.rng.choice(["head.weight", "norm.bias", "pos_embed", "blocks.0.attn.qkv.weight"])
        group = case.rng.choice(["parameters/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"])
        return case.input(command,
                          f"no {group}{name} for {command}",
                          checkpoint=case.checkpoint("remove", group + name),
                          must_refuse=command == "resume"
                          or (group == "parameters/" and command in ("evaluate", "init_from", "export")))
    ranges = [tuple(map(int, line.split()[:2])) for line in good[:4096].split(b"\0")[0].decode().splitlines()[3:]]
    content = bytearray(good)
    for _ in range(case.rng.randint(1, 6)):
        begin, end = case.rng.choice(ranges)
        at = case.rng.randrange(begin, end)
        content[at] = case.rng.choice([0, 255, content[at] ^ (1 << case.rng.randrange(8))])
    path = case.write("c.h5", bytes(content))
    subprocess.run([case.tools.checkpoint, "seal", path], check=True)
    return case.input(command, f"sealed again for {command}", checkpoint=path)


def latest_files(case):
    texts = {
        "up": "../../outside/canary", "absolute": "/etc/passwd", "itself": "latest", "dot": ".", "dots": "..",
        "empty": "", "spaces": "   ", "control": CONTROL, "long": "x" * 1000000, "lines": "\n" * 1000000,
        "nul": b"step-000000002.h5\0x", "no utf-8": b"\xff\xfe", "folder": "sub", "pipe": "pipe", "zero": "zero",
        "missing": "step-000000009.h5", "best": "best", "wide": "x" * 255, "no end": "step-000000002.h5", "link": None,
        "link loop": None, "link out": None, "as pipe": None, "as zero": None, "as folder": None, "as random": None,
        "as sparse": None
    }
    kind = case.pick(texts)
    name = case.rng.choice(["latest", "latest", "latest", "best"])
    run = case.copy(case.tools.good["folder"], "r")
    place = f"r/checkpoints/{name}"
    os.unlink(case.path(place))
    os.mkdir(case.path("r/checkpoints/sub"))
    case.odd_file("fifo", "r/checkpoints/pipe")
    case.odd_file("zero", "r/checkpoints/zero")
    if texts[kind] is not None:
        case.write(place, texts[kind])
    elif kind.startswith("link"):
        os.symlink({"link": "step-000000002.h5", "link loop": name, "link out": case.canary}[kind], case.path(place))
    else:
        case.odd_file({"as pipe": "fifo"}.get(kind, kind[3:]), place)
    command = case.rng.choice(["evaluate", "describe", "export", "latest", "auto", "resume", "verify"])
    note = f"{name} {kind} for {command}"
    if command in ("latest", "auto"):
        return case.input("resume", note, checkpoint=command)
    given = case.rng.choice([run, run + "/checkpoints", f"{run}/checkpoints/{name}"])
    return case.input(command, note, checkpoint=given, run=case.path("r2"))


FAMILIES = {
    function.__name__: function
    for function in (yaml_bombs, yaml_keys, command_line, odd_words, variables, odd_paths, odd_outputs, file_names,
                     texts_of_options, absurd_sizes, npy_files, safetensors_files, hdf5_kinds, hdf5_links, hdf5_texts,
                     hdf5_bytes, image_files, checkpoint_bytes, checkpoint_numbers, checkpoint_texts, checkpoint_parts,
                     latest_files)
}
# Those of many variants come twice.
WHEEL = [
    *FAMILIES, "odd_paths", "hdf5_bytes", "absurd_sizes", "hdf5_links", "checkpoint_texts", "odd_outputs"
]
