#!/usr/bin/env python3
"""The measured table of the guide's chapter on choosing a schedule: the model of examples/gpt-text.toml on two ranks.

    python3 benches/schedules.py

Trains a few steps with each schedule and prints the bubble that was predicted from the run's own passes, the measured one, and what
each rank held at most.
"""
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"
ONE, TWO = ["gpipe", "1f1b", "zb-h1", "zb-2p"], ["interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "v-half", "v-min", "dualpipe-v"]
STEPS = 12


def measure(schedule, stages):
    """Predicted and measured bubble in percent, peak bytes of each rank, and the hash of the weights."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [BINARY, "train", "examples/gpt-text.toml", "--run-dir", run, "--steps", str(STEPS), "--weights-hash"]
        for setting in ["train.validate_every=0", "checkpoint.every=0", f"pipeline.schedule={schedule}", f"pipeline.stages={stages}"]:
            command += ["--set", setting]
        printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        predicted, measured = re.search(r"predicted .* bubble ([\d.]+) %; measured .* bubble ([\d.]+) %", printed).groups()
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        return predicted, measured, last["peak_bytes"], re.search(r"[0-9a-f]{64}", printed)[0]


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    print("| schedule | stages | predicted bubble | measured bubble | peak activations, MiB |")
    print("| --- | --- | --- | --- | --- |")
    hashes = set()
    for schedule, stages in [(name, 2) for name in ONE] + [(name, 4) for name in TWO]:
        predicted, measured, peaks, weights = measure(schedule, stages)
        hashes.add(weights)
        peaks = " and ".join(f"{peak / 2**20:.1f}" for peak in peaks)
        print(f"| `{schedule}` | {stages} | {predicted} % | {measured} % | {peaks} |", flush=True)
    print(f"\n{len(hashes)} different hash of the weights")


if __name__ == "__main__":
    main()
