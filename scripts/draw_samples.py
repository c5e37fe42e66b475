"""Draws the sample images: pages, and lines of text for the recognizer.

Needs Pillow (`pip install pillow`), which nothing else here does; its built-in font draws the
text. The images are committed, so this runs only when they should change: arrays for Python in
`rlx_edge/data`, pictures for the page in `web/samples`.

usage: python scripts/draw_samples.py [--output DIR] [--pictures DIR]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "rlx_edge" / "data"
DEFAULT_PICTURES = ROOT / "web" / "samples"

PAGE_SIZE = (620, 877)  # width, height: an A4 page at 75 dots per inch
NETWORK_SIDE = 224
RESIZED_SHORT_SIDE = 256
LINE_TEXT = "Hello ONNX compiler"
LINE_SIZE = (320, 48)  # width, height
PICTURE_LINES = {"line-hello": LINE_TEXT, "line-sum": "Total 1,284.50 EUR"}

TITLE = "Notes on portable kernels"
BODY = """
A model that runs in a page, on a gateway and on a server should give the same answer in all
three places. The compiler keeps one description of every operator, and each device receives code
printed from that description. Sizes are not baked into the code: a small program computes them
when the input arrives, and the same module serves every batch.

The order in which numbers are added is part of the definition. Sums of many products start from
zero and grow one term at a time, so that no choice of tile, thread or vector width can move the
last bit. What looks like a restriction is a convenience: a test can compare bytes.

Memory is laid out before anything is loaded. Buffers that are never alive together share one
place, and the plan says how much is needed. A device that cannot hold it is told so at once, in
one line, with the number.
"""


INVOICE = (
    ("Portable kernels, one year", "940.00"),
    ("Linear memory, 64 KiB pages", "12.80"),
    ("Vector lanes, four of a kind", "88.20"),
    ("Plan programs, symbolic", "143.50"),
    ("Support by letter", "100.00"),
)


def draw_notes() -> Image.Image:
    page = Image.new("L", PAGE_SIZE, 255)
    draw = ImageDraw.Draw(page)
    draw.text((50, 40), TITLE, fill=0, font=ImageFont.load_default(28))
    font = ImageFont.load_default(18)
    y = 100
    for paragraph in BODY.strip().split("\n\n"):
        line = ""
        for word in paragraph.split():
            if draw.textlength(f"{line} {word}", font=font) > PAGE_SIZE[0] - 100:
                draw.text((50, y), line, fill=20, font=font)
                y, line = y + 26, word
            else:
                line = f"{line} {word}".strip()
        draw.text((50, y), line, fill=20, font=font)
        y += 46
    return page


def draw_invoice() -> Image.Image:
    page = Image.new("L", PAGE_SIZE, 250)
    draw = ImageDraw.Draw(page)
    draw.text((50, 60), "Invoice 2026-117", fill=0, font=ImageFont.load_default(30))
    font = ImageFont.load_default(17)
    for number, line in enumerate(("Edge Gateways Ltd", "4 Harbour Street", "Port Lane")):
        draw.text((50, 130 + 24 * number), line, fill=30, font=font)
    y = 250
    draw.line((50, y - 10, PAGE_SIZE[0] - 50, y - 10), fill=60, width=2)
    for title, price in INVOICE:
        draw.text((50, y), title, fill=10, font=font)
        draw.text((PAGE_SIZE[0] - 50, y), price, fill=10, font=font, anchor="ra")
        y += 40
    draw.line((50, y, PAGE_SIZE[0] - 50, y), fill=60, width=2)
    draw.text((50, y + 16), "Total in EUR", fill=0, font=ImageFont.load_default(22))
    right = (PAGE_SIZE[0] - 50, y + 16)
    draw.text(right, "1,284.50", fill=0, font=ImageFont.load_default(22), anchor="ra")
    for number, line in enumerate(
        ("Payable within thirty days of the date above.", "Thank you for reading to the end.")
    ):
        draw.text((50, y + 110 + 26 * number), line, fill=30, font=font)
    return page


def draw_page() -> Image.Image:
    page = draw_notes()
    scale = RESIZED_SHORT_SIDE / min(PAGE_SIZE)
    size = (round(PAGE_SIZE[0] * scale), round(PAGE_SIZE[1] * scale))
    resized = page.resize(size, Image.Resampling.LANCZOS)
    left, top = (size[0] - NETWORK_SIDE) // 2, (size[1] - NETWORK_SIDE) // 2
    return resized.crop((left, top, left + NETWORK_SIDE, top + NETWORK_SIDE))


def draw_line(text: str = LINE_TEXT) -> Image.Image:
    line = Image.new("L", LINE_SIZE, 255)
    draw = ImageDraw.Draw(line)
    draw.text((8, 6), text, fill=0, font=ImageFont.load_default(30))
    return line


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--pictures", type=Path, default=DEFAULT_PICTURES)
    options = parser.parse_args(arguments)
    pictures: Path = options.pictures
    pictures.mkdir(parents=True, exist_ok=True)
    for name, picture in (
        ("page-notes", draw_notes()),
        ("page-invoice", draw_invoice()),
        *((name, draw_line(text)) for name, text in PICTURE_LINES.items()),
    ):
        picture.save(pictures / f"{name}.png", optimize=True)
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output / "page_sample.npz", page=np.asarray(draw_page()))
    np.savez_compressed(
        output / "line_sample.npz", line=np.asarray(draw_line()), text=np.array(LINE_TEXT)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
