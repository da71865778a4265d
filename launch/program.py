"""Where the program is, and what it answers without training: the plan of a run and its configuration.

    from program import Refused, find_program, plan, resolved_options
    for layout in plan(find_program(), ["--config", "c.yaml"], ranks=8): ...     # raises Refused with the program's line
"""
import json
import os
import shutil
import subprocess

from messages import MISSING_INPUT, fail, shown
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


def error_line(text):
    """What the program said as it ended: its last line that is an error, without its name; None where there is none."""
    lines = [line for line in text.splitlines() if line.startswith("vit_hybrid: ") and not line.startswith("vit_hybrid: warning")]
    return shown(lines[-1][len("vit_hybrid: "):]) if lines else None


def answer(program, words):
    """Standard output of the program in one process; raises Refused."""
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              check=False)
    except OSError as error:
        raise Refused(f"{shown(program)} cannot be run: {error.strerror}", MISSING_INPUT) from error
    if done.returncode != 0:
        raise Refused(error_line(done.stderr) or f"{shown(program)} ended with {done.returncode}", done.returncode)
    return done.stdout


def plan(program, options, **words):
    """What `vit_hybrid plan --json` says: a list of layouts, or of one with --dp, --tp or --pp an object. `words` are options of
    plan itself, without those that are None. Raises Refused."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in words.items() if value is not None]
    text = answer(program, ["plan", *options, *words, "--json"])
    lines = text.splitlines()
    try:  # before it stand notes, such as on options that have no effect
        return json.loads("\n".join(lines[next(i for i, line in enumerate(lines) if line[:1] in ("{", "[")):]))
    except StopIteration:
        raise Refused(f"'plan --json' of {shown(program)} wrote no JSON", 65) from None
    except ValueError as error:
        raise Refused(f"'plan --json' of {shown(program)} wrote no JSON: {shown(error)}", 65) from error


def resolved_options(program, options):
    """{name_with_underscores: text} of --print-config. Raises Refused."""
    return options_of(answer(program, [*options, "--print-config"]))


def version_text(program):
    """Version and commit, in one line."""
    return ", ".join(line.strip() for line in answer(program, ["--version"]).splitlines()[:2])
