"""Event files for TensorBoard, read by their definition: records of length, checksum, message and checksum; the messages are
Protocol Buffers (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto)."""
import pathlib
import struct


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(message):
    """(number, value) of each field; a value is a whole number, or bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        else:
            size, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else varint(message, at)
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def values(content):
    """(step, tag, {field: value}) of each Summary.Value in a file's content: field 2 is a point, 5 a histogram."""
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at:at + 8], "little")
        event = list(fields(content[at + 12:at + 12 + size]))
        at += size + 16
        step = dict(event).get(2, 0)
        for summary in (value for field, value in event if field == 5):
            for _, value in fields(summary):
                value = dict(fields(value))
                yield step, value[1].decode(), value


def values_of_folder(folder):
    """Those of all files in a folder, in the order of their names."""
    return [value for path in sorted(pathlib.Path(folder).iterdir()) for value in values(path.read_bytes())]


class Histogram:
    """A HistogramProto: min, max, num, sum, sum_squares, and of each bucket its upper end and its count."""

    def __init__(self, message):
        found = dict(fields(message))
        self.least, self.most, self.num, self.sum, self.sum_squares = (struct.unpack("<d", found[i])[0] for i in range(1, 6))
        self.limits, self.counts = (struct.unpack(f"<{len(found[i]) // 8}d", found[i]) for i in (6, 7))
