#!/usr/bin/env python3
"""The table of the guide's chapter on micro-batches: one batch of 32 rows, cut into more and more
micro-batches.

    python3 benches/micro_batches.py

Trains examples/gpt-text.toml for a few steps with each setting, in turn, for several rounds. Prints medians
over all steps.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"


def measure(stages, schedule, micro_batches, steps):
    """The lines of metrics.jsonl of a run, without its first two steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        settings = dict(stages=stages, schedule=schedule, micro_batches=micro_batches, micro_batch_size=32 // micro_batches)
        command = [BINARY, "train", "examples/gpt-text.toml", "--run-dir", run, "--steps", str(steps)]
        command += ["--set", "train.validate_every=0", "--set", "checkpoint.every=0"]
        for key, value in settings.items():
            command += ["--set", f"pipeline.{key}={value}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    settings = [(2, schedule, count) for schedule in ("gpipe", "1f1b") for count in (1, 2, 4, 8, 16, 32)]
    lines = {setting: [] for setting in settings}
    for _ in range(given.rounds):
        for setting in settings:
            lines[setting] += measure(*setting, given.steps)
    print("| schedule | micro-batches | rows in each | planned bubble | measured bubble | tokens/s | peak activations, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (stages, schedule, count), steps in lines.items():
        planned = (stages - 1) / (count + stages - 1)
        median = lambda key: statistics.median(step[key] for step in steps)
        peak = " and ".join(f"{peak / 2**20:.1f}" for peak in steps[-1]["peak_bytes"])
        print(
            f"| {schedule} | {count} | {32 // count} | {100 * planned:.0f} % | {100 * median('bubble'):.0f} % "
            f"| {median('tokens_per_second'):,.0f} | {peak} |"
        )


if __name__ == "__main__":
    main()
