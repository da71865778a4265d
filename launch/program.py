"""Where the program is, and what it answers without training: the plan of a run, its configuration, its options.

    from program import Refused, find_program, plan, resolved_options
    for layout in plan(find_program(), ["--config", "c.yaml"], ranks=8): ...     # raises Refused with the program's line
"""
import itertools
import json
import os
import re
import shutil
import subprocess

from messages import BAD_DATA, MISSING_INPUT, USAGE, fail, nearest, shown
from run_folder import options_of


class Refused(Exception):
    """The program's own line, without its name; `code`: its exit code."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def find_program():
    """$VIT_HYBRID, else build/release/bin/vit_hybrid of this checkout, else vit_hybrid in PATH."""
    given = os.environ.get("VIT_HYBRID")
    built = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build/release/bin/vit_hybrid")
    found = given or (built if os.path.exists(built) else shutil.which("vit_hybrid"))
    path = shutil.which(found or "")
    if not path:
        fail(f"there is no program {shown(found or 'vit_hybrid')}: build it (launch/quickstart does), or name it in VIT_HYBRID",
             MISSING_INPUT)
    return os.path.abspath(path)


NAME, WARNING = "vit_hybrid: ", "vit_hybrid: warning: "  # how the program's lines begin


STOPPED = "stopped by SIG"  # how its line begins as a signal tells it to end, which a launcher does too when another rank was killed


def error_line(text, besides=()):
    """What the program said as it ended: its last line that is an error, without its name, and the lines of a list below it; None
    where there is none. `besides`: how errors begin that do not count."""
    lines = text.splitlines()
    errors = [i for i, line in enumerate(lines) if line.startswith(NAME) and not line.startswith(WARNING.rstrip(": ")) and
              not line[len(NAME):].startswith(besides)]
    if not errors:
        return None
    first = lines[errors[-1]][len(NAME):]
    below = list(itertools.takewhile(lambda line: line.startswith("  "), lines[errors[-1] + 1:])) if first.endswith(":") else []
    return shown(" ".join([first, "; ".join(line.strip() for line in below)]).strip())


# What a crash says of itself: an exception that nobody caught, the signal as Open MPI names it, a launcher's or a shell's error.
TELLING = [r"\bwhat\(\): ", r"\bSignal: ", r"\b(error|fatal|failed|fault|could not|cannot|not found|denied|killed)\b"]


def telling_line(text, is_last_telling=True):
    """Of an output without an error of the program: of the lines with the first of TELLING that it has the last one (of crashes the
    first, which the others followed), else, where `is_last_telling`, its last line; empty where there is none. Frames that Open MPI
    draws about its advice are left out, and so is what the program itself says, such as a warning."""
    outside = "".join(text.split("-" * 74)[::2]).splitlines()
    lines = [line.strip() for line in outside if line.strip() and not line.startswith(NAME)]
    for pattern in TELLING:
        found = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        if found:
            return shown(found[-1 if pattern == TELLING[-1] else 0])
    return shown(lines[-1]) if lines and is_last_telling else ""


def answer(program, words, say=lambda line: None):
    """Standard output of the program in one process; `say` is given each of its warnings. Raises Refused."""
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              check=False)
    except OSError as error:
        raise Refused(f"{shown(program)} cannot be run: {error.strerror}", MISSING_INPUT) from error
    if done.returncode != 0:
        raise Refused(error_line(done.stderr) or f"{shown(program)} ended with {done.returncode}", done.returncode)
    for line in done.stderr.splitlines():
        if line.startswith(WARNING):
            say(shown(line[len(WARNING):]))
    return done.stdout


def plan(program, options, say=lambda line: None, **words):
    """What `vit_hybrid plan --json` says: a list of layouts, or of one with --dp, --tp or --pp an object. `words` are options of
    plan itself, without those that are None; `say` is given each warning. Raises Refused."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in words.items() if value is not None]
    text = answer(program, ["plan", *options, *words, "--json"], say)
    lines = text.splitlines()
    try:  # before it stand notes, such as on options that have no effect
        return json.loads("\n".join(lines[next(i for i, line in enumerate(lines) if line[:1] in ("{", "[")):]))
    except StopIteration:
        raise Refused(f"'plan --json' of {shown(program)} wrote no JSON", BAD_DATA) from None
    except ValueError as error:
        raise Refused(f"'plan --json' of {shown(program)} wrote no JSON: {shown(error)}", BAD_DATA) from error


def resolved_options(program, options):
    """{name_with_underscores: text} of --print-config. Raises Refused."""
    return options_of(answer(program, [*options, "--print-config"]))


class OptionTable:
    """The options of `train`, as `vit_hybrid options --json` lists them. Raises Refused."""

    def __init__(self, program):
        try:
            listed = next(each["options"] for each in json.loads(answer(program, ["options", "--json"])) if each["command"] == "train")
            self.flags = {option["name"] for option in listed if option["type"] == "flag"}
            self.names = {option["name"]: option["name"] for option in listed}
            for option in listed:
                self.names.update(dict.fromkeys(option["aliases"], option["name"]))
                for other in option["megatron"]:
                    self.names.setdefault(other["name"], option["name"])
                    if "is" in other:  # a flag that is a value here
                        self.flags.add(other["name"])
        except (ValueError, KeyError, TypeError, StopIteration):
            raise Refused(f"'options --json' of {shown(program)} lists no options of train", BAD_DATA) from None

    def split(self, words):
        """{option: its words as one, --name=value or the flag} of words of a command line, the last of each option. Raises Refused."""
        found, left = {}, list(words)
        while left:
            word = left.pop(0)
            given, has_value, _ = word.partition("=")
            name = given[2:].replace("_", "-")
            is_flag = name in self.flags
            if name.startswith("no-") and name[3:] in self.flags:
                name, is_flag = name[3:], True
            if not word.startswith("--") or name not in self.names:
                raise Refused(f"'{shown(given if given.startswith('--') else word)}' is no option of vit_hybrid train" +
                              nearest(given.replace("_", "-"), self.names, "`vit_hybrid options` lists them"), USAGE)
            if not is_flag and not has_value:
                if not left:
                    raise Refused(f"{shown(word)} has no value; give --{name}=VALUE", USAGE)
                word += f"={left.pop(0)}"
            found[self.names[name]] = word
        return found


def version_text(program):
    """Version and commit, in one line."""
    return ", ".join(line.strip() for line in answer(program, ["--version"]).splitlines()[:2])
