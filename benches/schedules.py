#!/usr/bin/env python3
"""The measured tables of the guide's chapter on choosing a schedule: the model of examples/gpt-text.toml on
two ranks, and a model with twice the layers on four.

    python3 benches/schedules.py

Profiles a model, then trains a few steps with each schedule, made for the measured costs. Prints the
predicted bubble, the measured bubble, and the peak memory of each rank. With fewer cores than ranks the
measured bubble means nothing.
"""
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"
CONFIG = "examples/gpt-text.toml"
SCHEDULES = {
    1: ["gpipe", "1f1b", "zb-h1", "zb-2p"],
    2: ["interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "v-half", "v-min", "dualpipe-v"],
}
STEPS = 12


def pipewright(command, *rest, **settings):
    """The output of a command. In settings, two underscores stand for the dot of a key."""
    settings = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
    done = subprocess.run([BINARY, command, CONFIG, *rest, *settings], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def measure(folder, **settings):
    """Table cells with predicted bubble, measured bubble and peak MiB; and the hash of the weights."""
    run = folder / settings["pipeline__schedule"]
    quiet = dict(train__validate_every=0, checkpoint__every=0, pipeline__costs=folder / "costs.json")
    printed = pipewright("train", "--run-dir", run, "--steps", str(STEPS), "--weights-hash", **quiet, **settings)
    bubbles = re.search(r"predicted step.* bubble ([\d.]+ %); measured step.* bubble ([\d.]+ %)", printed).groups()
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    peaks = ", ".join(f"{peak / 2**20:.1f}" for peak in last["peak_bytes"])
    return [*bubbles, peaks], re.search(r"\b[0-9a-f]{64}\b", printed)[0]


def table(ranks, **settings):
    print(f"\n{ranks} ranks, {settings}\n")
    print("| schedule | predicted bubble | measured bubble | peak activations of each rank, MiB |")
    print("| --- | --- | --- | --- |")
    hashes = set()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        pipewright("profile", "--out", folder / "costs.json", pipeline__stages=ranks, **settings)
        for chunks, schedules in SCHEDULES.items():
            for name in schedules:
                cells, weights = measure(folder, pipeline__schedule=name, pipeline__stages=ranks * chunks, **settings)
                hashes.add(weights)
                print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
    print(f"\nweights after {STEPS} steps: {', '.join(hashes)}")


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    table(2)
    table(4, model__layers=8, pipeline__micro_batches=16, pipeline__micro_batch_size=2)


if __name__ == "__main__":
    main()
