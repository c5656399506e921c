"""
A console for WASM-4's cartridges: the functions that they import, their gamepad, their picture.

    python wasm4_console.py CART PICTURE.png [FRAMES [BUTTONS]]

BUTTONS are held in every other second, as "x", "left" or "x+left". There is no sound, and text is
in Pillow's own font. What a cartridge may import is described at https://wasm4.org/docs.
"""

# ruff: noqa: ANN001, ANN201, ANN202, N802  methods are named as what cartridges import
from __future__ import annotations

import re
import struct
import sys
from contextlib import AbstractContextManager
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import arkml
from arkml import Memory

PALETTE, COLORS, GAMEPAD, FLAGS, SCREEN = 0x04, 0x14, 0x16, 0x1F, 0xA0
SIDE, ROW = 160, 40
AT_FIRST = struct.pack("<4IH4xhh", 0xE0F8CF, 0x86C06C, 0x306850, 0x071821, 0x1203, 0x7FFF, 0x7FFF)
BUTTONS = {"x": 1, "z": 2, "left": 16, "right": 32, "up": 64, "down": 128}
SHIFTS = np.arange(0, 8, 2, dtype=np.uint8)
PIXELS = np.arange(256, dtype=np.uint8)[:, None] >> SHIFTS & 3  # the four of each byte
EDGE, NOTHING = 1, 4  # numbers of draw colors: 0 fills, and the fifth is never drawn
FORMATS = {"c": "<i", "d": "<i", "x": "<I", "s": "<I", "f": "<d"}


class Functions:
    """The imports of a cartridge, a method for each."""

    def __init__(self) -> None:
        self._disk = b""

    def blit(self, memory: Memory, sprite, x, y, width, height, flags=0):
        self.blitSub(memory, sprite, x, y, width, height, 0, 0, width, flags)

    def blitSub(self, memory: Memory, sprite, x, y, width, height, left, top, stride, flags):
        bits, flip_x, flip_y, is_turned = 1 + (flags & 1), flags & 2, flags & 4, flags & 8
        columns = on_screen(x, height if is_turned else width) - x
        rows = on_screen(y, width if is_turned else height)[:, None] - y
        across, down = (rows, columns) if is_turned else (columns, rows)
        across = width - 1 - across if bool(flip_x) != bool(is_turned) else across
        down = height - 1 - down if flip_y else down
        at = ((top + down) * stride + left + across) * bits
        if at.size:
            first, last = int(at.min()) >> 3, int(at.max()) >> 3
            content = np.frombuffer(memory.read(sprite + first, last - first + 1), np.uint8)
            numbers = content[(at >> 3) - first] >> (8 - bits - (at & 7)) & (2 * bits - 1)
            draw(memory, max(0, x), max(0, y), numbers)

    def text(self, memory: Memory, text, x, y):
        write(memory, memory.read_c_string(text), x, y)

    def textUtf8(self, memory: Memory, text, size, x, y):
        write(memory, memory.read(text, size), x, y)

    def textUtf16(self, memory: Memory, text, size, x, y):
        characters = memory.read(text, size).decode("utf-16-le", "replace")
        write(memory, characters.encode("latin-1", "replace"), x, y)

    def rect(self, memory: Memory, x, y, width, height):
        columns, rows = on_screen(x, width), on_screen(y, height)[:, None]
        is_edge = (columns == x) | (columns == x + width - 1)
        is_edge = is_edge | (rows == y) | (rows == y + height - 1)
        draw(memory, max(0, x), max(0, y), np.where(is_edge, EDGE, 0))

    def oval(self, memory: Memory, x, y, width, height):
        def is_inside(columns, rows):
            across, down = 2 * (columns - x) + 1 - width, 2 * (rows - y) + 1 - height
            return (across / width) ** 2 + (down / height) ** 2 <= 1

        columns, rows = on_screen(x, width), on_screen(y, height)[:, None]
        is_inner = is_inside(columns - 1, rows) & is_inside(columns + 1, rows)
        is_inner &= is_inside(columns, rows - 1) & is_inside(columns, rows + 1)
        outer = np.where(is_inside(columns, rows), EDGE, NOTHING)
        draw(memory, max(0, x), max(0, y), np.where(is_inner, 0, outer))

    def line(self, memory: Memory, x1, y1, x2, y2):
        if y1 == y2:
            self.hline(memory, min(x1, x2), y1, abs(x2 - x1) + 1)
            return
        is_steep = abs(y2 - y1) > abs(x2 - x1)
        if is_steep:
            x1, y1, x2, y2 = y1, x1, y2, x2
        along = on_screen(min(x1, x2), abs(x2 - x1) + 1)
        beside = y1 + np.rint((along - x1) * ((y2 - y1) / (x2 - x1 or 1))).astype(int)
        is_seen = (beside >= 0) & (beside < SIDE)
        along, beside = along[is_seen], beside[is_seen]
        if len(along):
            left, top = int(along[0]), int(beside.min())
            numbers = np.full((int(beside.max()) + 1 - top, len(along)), NOTHING)
            numbers[beside - top, along - left] = 0
            draw(memory, *((top, left, numbers.T) if is_steep else (left, top, numbers)))

    def hline(self, memory: Memory, x, y, length):
        left, right = max(0, x), min(SIDE, x + length)
        color = memory.read(COLORS, 1)[0] & 15
        if color and left < right and 0 <= y < SIDE:  # on one number: some cartridges draw dots
            at, size = SCREEN + ROW * y + left // 4, right // 4 - left // 4 + 1
            mask = (1 << 2 * (right - left)) - 1 << 2 * (left % 4)
            row = int.from_bytes(memory.read(at, size), "little") & ~mask
            row |= mask // 3 * (color - 1 & 3)
            memory.write(at, row.to_bytes(size, "little"))

    def vline(self, memory: Memory, x, y, length):
        draw(memory, x, max(0, y), np.zeros((len(on_screen(y, length)), 1), int))

    def tone(self, frequency, duration, volume, flags):
        pass

    def diskr(self, memory: Memory, target, size):
        content = self._disk[: size & 0xFFFF_FFFF]
        memory.write(target, content)
        return len(content)

    def diskw(self, memory: Memory, source, size):
        self._disk = memory.read(source, min(size & 0xFFFF_FFFF, 1024))
        return len(self._disk)

    def trace(self, memory: Memory, text):
        print(memory.read_c_string(text).decode(errors="replace"))

    def traceUtf8(self, memory: Memory, text, size):
        print(memory.read(text, size).decode(errors="replace"))

    def traceUtf16(self, memory: Memory, text, size):
        print(memory.read(text, size).decode("utf-16-le", errors="replace"))

    def tracef(self, memory: Memory, text, stack):
        def value(match):
            nonlocal stack
            kind = match[1]
            if kind not in FORMATS:
                return "%" if kind == "%" else match[0]
            size = struct.calcsize(FORMATS[kind])
            (number,) = struct.unpack(FORMATS[kind], memory.read(stack, size))
            stack += size
            if kind == "s":
                return memory.read_c_string(number).decode(errors="replace")
            return chr(number & 0xFF) if kind == "c" else format(number, "x" if kind == "x" else "")

        print(re.sub("%(.)", value, memory.read_c_string(text).decode(errors="replace")))


def on_screen(first: int, count: int) -> np.ndarray:
    """Return the numbers of pixels, from `first` on, that are within the screen."""
    return np.arange(max(0, first), min(SIDE, first + count))


def draw(memory: Memory, x: int, y: int, numbers: np.ndarray) -> None:
    """Draw a picture of numbers of draw colors, [height, width], as far as it is on the screen."""
    numbers = numbers[max(0, -y) : max(0, SIDE - y), max(0, -x) : max(0, SIDE - x)]
    if numbers.size:
        x, y = max(0, x), max(0, y)
        low, high = memory.read(COLORS, 2)
        colors = np.array([low & 15, low >> 4, high & 15, high >> 4, 0], np.uint8)[numbers]
        at, size = SCREEN + ROW * y, ROW * len(numbers)
        pixels = unpacked(memory.read(at, size))
        np.copyto(pixels[:, x : x + colors.shape[1]], colors - 1 & 3, where=colors > 0)
        memory.write(at, (pixels.reshape(-1, 4) << SHIFTS).sum(1, dtype=np.uint8).tobytes())


def unpacked(rows: bytes) -> np.ndarray:
    """Return the pixels of rows of the screen, uint8, [rows, 160]."""
    return PIXELS[np.frombuffer(rows, np.uint8)].reshape(-1, SIDE)


def write(memory: Memory, text: bytes, x: int, y: int) -> None:
    for number, line in enumerate(text.split(b"\0")[0].split(b"\n")):
        if line:
            draw(memory, x, y + 8 * number, np.hstack([letter(code) for code in line]))


@cache
def letter(code: int) -> np.ndarray:
    """Return the picture of a character, [8, 8], 0 where there is ink and 1 where there is none."""
    picture = Image.new("1", (8, 11), 1)
    if 32 <= code < 127 or code >= 160:
        font = ImageFont.load_default_imagefont()
        ImageDraw.Draw(picture).text((1, 0), chr(code), font=font, fill=0)
    return np.asarray(picture, np.uint8)[2:10]


class Console(AbstractContextManager["Console"]):
    """A console with a cartridge in it, a file or bytes. To be closed, as by `with`."""

    def __init__(self, cart: str | bytes) -> None:
        self._host = arkml.Host(imports={"env": Functions()}, limits=arkml.Limits(run_seconds=10))
        try:
            self.guest = self._host.load(cart)
            self.guest.write_memory(PALETTE, AT_FIRST)
            functions = self.guest.module.functions
            if "_start" in functions and functions["_start"].results:  # not WASI's, which has run
                self.guest.call("_start")
            if "start" in functions:
                self.guest.call("start")
        except BaseException:
            self._host.close()
            raise

    def __exit__(self, *error: object) -> None:
        self._host.close()

    def frame(self, buttons: int = 0) -> None:
        """Run a frame while some buttons are held."""
        self.guest.write_memory(GAMEPAD, bytes([buttons]))
        if not self.guest.read_memory(FLAGS, 1)[0] & 1:
            self.guest.write_memory(SCREEN, bytes(ROW * SIDE))
        self.guest.call("update")

    def picture(self) -> Image.Image:
        picture = Image.fromarray(unpacked(self.guest.read_memory(SCREEN, ROW * SIDE)), "P")
        palette = struct.unpack("<4I", self.guest.read_memory(PALETTE, 16))
        picture.putpalette(b"".join(color.to_bytes(4, "big")[1:] for color in palette))
        return picture


def main(cart: str, picture: str, frames: str = "600", buttons: str = "") -> None:
    held = sum(BUTTONS[name] for name in buttons.split("+") if name)
    with Console(cart) as console:
        for frame in range(int(frames)):
            console.frame(held if frame // 60 % 2 else 0)
        console.picture().save(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
