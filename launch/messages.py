"""What a script says to its user: one line a message, exit codes, texts that do nothing to a terminal.

    from messages import USAGE, Parser, fail, shown, warn
    fail(f"'{shown(path)}' is no run", MISSING_INPUT)

Lines begin with the script's name and go to standard error.
"""
import argparse
import errno
import os
import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a script quietly, also while it loads modules; studies then do better

USAGE, BAD_DATA, MISSING_INPUT, CANNOT_CREATE, IO = 64, 65, 66, 73, 74  # exit codes, those of the program


def shown(value):
    """A text of a file or a command line as it does nothing to a terminal, and as every terminal can show it."""
    text = os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text, longest):
    """Its begin and its end, where it has more characters."""
    return text if len(text) <= longest else text[:(longest - 1) // 2] + "\u2026" + text[-(longest // 2):]


def warn(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)


def fail(text, code):
    warn(text)
    sys.exit(code)


def distance(one, other):
    """How many letters must be put in, taken out or changed to make one word of the other."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, row = row, [i]
        for j, its in enumerate(other, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != its)))
    return row[-1]


def nearest(name, names, otherwise):
    """The end of a refusal: the option that was meant, or `otherwise` where none is near: within a third of the longer word's
    letters, rounded up. Names are those without dashes."""
    given = name.lstrip("-")
    far, near = min((distance(given, each), each) for each in names)
    return f"; did you mean --{near}?" if far <= -(-max(len(given), len(near)) // 3) else f"; {otherwise}"


def run_script(main, unread=0):
    """Calls a script's main() and ends the script. A standard output that nobody reads any more ends it quietly (within main() with
    exit code `unread`), one that cannot be written (a full disk behind > FILE) with one line, and so does a file that main() has no
    words for."""
    try:
        try:
            code = unread
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()  # what cannot be written is told now
    except OSError as error:
        if error.filename is not None:
            fail(f"{shown(error.filename)}: {error.strerror}", IO)
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        if error.errno != errno.EPIPE:
            fail(f"standard output cannot be written: {error.strerror}", IO)
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """One that shows the script's docstring as it is written, and refuses in one line with exit code 64."""

    def __init__(self, **keywords):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **keywords)

    def parse_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else args
        found, left = self.parse_known_args(words, namespace)
        if left:  # the first alone: what it was meant to be decides what the others are
            word = left[0]
            if word == "--":
                self.error("a word before -- belongs to no option")
            given = word.partition("=")[0] if word.startswith("-") else word
            names = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            fail(f"unknown argument '{shown(given)}'{nearest(given, names, '--help lists the options')}", USAGE)
        return found

    def error(self, message):
        fail(f"{shown(message)}; --help lists the options", USAGE)
