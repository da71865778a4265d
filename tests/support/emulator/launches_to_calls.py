#!/usr/bin/env python3
"""Makes C++ of a .cu file: launches_to_calls.py IN.cu OUT.cpp turns each `kernel<<<grid, block, shared bytes,
stream>>>(words)` into a call of the emulator's launch(); device_words.h has all else that is not C++."""
import sys


def begin_of_callee(text, end):
    """Where the name before `end`, with its template arguments if it has some, begins."""
    at = len(text[:end].rstrip())
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
    while text[at - 1].isalnum() or text[at - 1] in "_:":
        at -= 1
    return at


def end_of_brackets(text, begin):
    """Behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise ValueError("a bracket is not closed")


def split_at_commas(text):
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1, "<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def converted(text, path):
    out, done = f'#line 1 "{path}"\n', 0
    while (begin := text.find("<<<", done)) >= 0:
        end = text.index(">>>", begin)
        grid, block, shared, stream = split_at_commas(text[begin + 3:end])
        callee = begin_of_callee(text, begin)
        after = end_of_brackets(text, text.index("(", end))
        call = text[callee:begin].strip() + text[end + 3:after].strip()
        out += text[done:callee] + f"::vit_hybrid::testing::launch_on({stream}, {grid}, {block}, [&] {{ {call}; }}, {shared})"
        done = after
    return out + text[done:]


if __name__ == "__main__":
    with open(sys.argv[1]) as source:
        result = converted(source.read(), sys.argv[1])
    with open(sys.argv[2], "w") as target:
        target.write(result)
