#!/usr/bin/env python3
"""The measured table of the guide's chapter on choosing a schedule: the model of examples/gpt-text.toml on two ranks.

    python3 benches/schedules.py

Profiles the model, then trains a few steps with each schedule as it is made for the measured costs. Prints the bubble that was
predicted, the measured one, and what each rank held at most.
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
    2: ["gpipe", "1f1b", "zb-h1", "zb-2p"],
    4: ["interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "v-half", "v-min", "dualpipe-v"],
}
STEPS = 12


def measure(schedule, stages, costs):
    """Predicted bubble, measured bubble and peak MiB as cells of a table, and the hash of the weights."""
    run = costs.parent / schedule
    command = [BINARY, "train", CONFIG, "--run-dir", run, "--steps", str(STEPS), "--weights-hash"]
    command += ["--set", "train.validate_every=0", "--set", "checkpoint.every=0", "--set", f"pipeline.costs={costs}"]
    command += ["--set", f"pipeline.schedule={schedule}", "--set", f"pipeline.stages={stages}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    printed = printed.stdout + printed.stderr
    bubbles = re.search(r"predicted step.* bubble ([\d.]+ %); measured step.* bubble ([\d.]+ %)", printed).groups()
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    peaks = " and ".join(f"{peak / 2**20:.1f}" for peak in last["peak_bytes"])
    return [*bubbles, peaks], re.search(r"\b[0-9a-f]{64}\b", printed)[0]


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    print("| schedule | stages | predicted bubble | measured bubble | peak activations, MiB |")
    print("| --- | --- | --- | --- | --- |")
    hashes = set()
    with tempfile.TemporaryDirectory() as folder:
        costs = pathlib.Path(folder) / "costs.json"
        subprocess.run([BINARY, "profile", CONFIG, "--out", costs], cwd=ROOT, check=True, capture_output=True)
        for stages, schedules in SCHEDULES.items():
            for schedule in schedules:
                cells, weights = measure(schedule, stages, costs)
                hashes.add(weights)
                print(f"| `{schedule}` | {stages} | {' | '.join(cells)} |", flush=True)
    print(f"\nweights after {STEPS} steps: {', '.join(hashes)}")


if __name__ == "__main__":
    main()
