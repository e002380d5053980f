#!/usr/bin/env python3
"""Compares the choice of `pipewright tune` with an exhaustive run over the same grid.

    python3 benches/tune_exhaustive.py --memory 20MiB

Tunes examples/gpt-text.toml and notes the choice. Then lets `tune` run every setting of the grid, in turn,
and compares the choice with the fastest setting. Both speeds are from that run.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"
ROW = re.compile(r"\s*\d+\. +(\d+) +(\S+) +(\d+) +(\d+) +(\d+) +(\S+) +(\S+) +(\S+) % +(\S+) +(\S+) +(\S+)$")
CHOICE = re.compile(r"chosen: (\S+): ranks (\d+), stages each (\d+), micro-batches (\d+), rows (\d+)")


def tune(given, top, *options):
    command = [BINARY, "tune", given.config, "--memory", given.memory, "--top", str(top), *options]
    command += ["--ranks", given.ranks] if given.ranks else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="examples/gpt-text.toml")
    parser.add_argument("--memory", default="20MiB")
    parser.add_argument("--ranks", help="as for tune; default: up to the cores")
    given = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        chosen = tune(given, 6, "--out", f"{folder}/tuned.toml")
    schedule, *numbers = CHOICE.search(chosen).groups()
    choice = (numbers[0], schedule, *numbers[1:])
    whole = tune(given, 1_000_000)
    rows = [match.groups() for match in map(ROW.match, whole.splitlines()) if match]
    rows.sort(key=lambda row: float(row[9]))
    print("| ranks | schedule | chunks | micro-batches | rows | predicted s | bubble | peak MiB | measured s | tokens/s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        mark = " (chosen)" if row[:5] == choice else ""
        ranks, name, chunks, count, size, step, _, bubble, peak, seconds, rate = row
        print(f"| {ranks} | {name}{mark} | {chunks} | {count} | {size} | {step} | {bubble} % | {peak} | {seconds} | {rate} |")
    picked = next(row for row in rows if row[:5] == choice)
    loss = float(picked[9]) / float(rows[0][9]) - 1
    print(f"\n{len(rows)} settings; the chosen one takes {100 * loss:.1f} % longer than the fastest")


if __name__ == "__main__":
    main()
