#!/usr/bin/env python3
"""Trains a size of the comparison in f32 and in bf16, on the same batches, and draws both losses.

    cargo bench --bench compare_torch --no-run
    python3 benches/bf16_losses.py --data TEXT [--size A] [--steps 200] [--out book/src/img/bf16-losses.svg]

It prints the largest relative difference of a step's loss, and the mean loss of the last 20 steps of each.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 260, 44, 34, 12
COLOURS = {"f32": "#4269d0", "bf16": "#ff725c"}


def losses(given, dtype):
    command = ["cargo", "bench", "--quiet", "--bench", "compare_torch", "--", "--size", given.size, "train", "--data", given.data,
               "--steps", str(given.steps), "--schedule", given.schedule, "--dtype", dtype]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["losses"]


def curve(numbers, highest, lowest):
    """The points of a curve."""
    across = (WIDTH - LEFT - 10) / (len(numbers) - 1)
    up = (HEIGHT - TOP - BOTTOM) / (highest - lowest)
    return " ".join(f"{LEFT + at * across:.1f},{TOP + (highest - number) * up:.1f}" for at, number in enumerate(numbers))


def picture(both):
    highest, lowest = (extreme(number for numbers in both.values() for number in numbers) for extreme in (max, min))
    steps, base = len(both["f32"]), HEIGHT - BOTTOM
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             "<title>Losses in f32 and in bf16</title>",
             f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - 10}" fill="none" stroke="#888"/>',
             f'<text x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{highest:.1f}</text>',
             f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">{lowest:.1f}</text>',
             f'<text x="{WIDTH - 10}" y="{base + 18}" text-anchor="end">step {steps}</text>']
    for index, (dtype, numbers) in enumerate(both.items()):
        dashes = ' stroke-dasharray="4 4"' if index else ""
        lines.append(f'<polyline points="{curve(numbers, highest, lowest)}" fill="none" stroke="{COLOURS[dtype]}" '
                     f'stroke-width="1.5"{dashes}/>')
        lines.append(f'<text x="{WIDTH - 60}" y="{TOP + 20 + 18 * index}" fill="{COLOURS[dtype]}">{dtype}</text>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=lambda path: str(pathlib.Path(path).resolve()), help="a file of text")
    parser.add_argument("--size", default="A")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--schedule", default="auto:2")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    both = {dtype: losses(given, dtype) for dtype in COLOURS}
    off = max(abs(half / whole - 1) for whole, half in zip(*both.values()))
    ends = ", ".join(f"{dtype} {statistics.mean(numbers[-20:]):.4f}" for dtype, numbers in both.items())
    print(f"largest difference of a step {100 * off:.2f} %; mean of the last 20 steps: {ends}")
    if given.out:
        given.out.write_text(picture(both))


if __name__ == "__main__":
    main()
