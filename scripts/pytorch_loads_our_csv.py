#!/usr/bin/env python3
"""Whether PyTorch takes our schedules: it loads each as CSV, its own lowering puts transfers in, and we check those.

    python scripts/pytorch_loads_our_csv.py --binary target/release/pipewright interleaved-1f1b zb-v mine.csv

Prints a line a schedule. Exit status 1 when any is refused. Needs PyTorch 2.15.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

SIZES = [(1, 2), (2, 4), (2, 5), (4, 8), (4, 11), (8, 16)]


def pipewright(binary, *arguments):
    run = subprocess.run([binary, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    return run.stdout


def sizes_of(text):
    """Ranks, stages and micro-batches of a schedule in CSV."""
    rows = [row for row in csv.reader(text.splitlines()) if row]
    cells = [(int(stage), int(batch)) for stage, batch in re.findall(r"(\d+)[FBIW](\d+)", text)]
    return len(rows), max(stage for stage, _ in cells) + 1, max(batch for _, batch in cells) + 1


def load(binary, text, folder):
    """What PyTorch made of a schedule: how many actions, and whether we hold its transfers to be right."""
    ranks, stages, micro_batches = sizes_of(text)
    ours, theirs = folder / "ours.csv", folder / "theirs.csv"
    ours.write_text(text)
    stage = SimpleNamespace(group_size=ranks, group_rank=0, num_stages=stages, stage_index=0)
    runtime = _PipelineScheduleRuntime([stage], micro_batches, loss_fn=torch.nn.functional.mse_loss)
    runtime._load_csv(str(ours), format="compute_only")
    runtime._dump_csv(str(theirs), format="compute_comms")
    pipewright(binary, "check", str(theirs))
    return sum(len(row) for row in runtime.pipeline_order_with_comms.values())


def schedules(binary, name):
    """A schedule at several sizes, or the one in a file; each with what to call it."""
    if name.endswith(".csv"):
        yield name, Path(name).read_text()
        return
    for ranks, micro_batches in SIZES:
        sizes = [f"--ranks={ranks}", f"--micro-batches={micro_batches}"]
        text = pipewright(binary, "plan", f"--schedule={name}", *sizes, "--format=csv")
        yield f"{name} of {ranks} ranks, {micro_batches} micro-batches", text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/pipewright")
    parser.add_argument("schedules", nargs="*", default=["interleaved-1f1b", "zb-v", "dualpipe-v"])
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.schedules:
            try:
                done = [
                    (size, load(arguments.binary, text, Path(folder)))
                    for size, text in schedules(arguments.binary, name)
                ]
                last, actions = done[-1]
                print(f"{name}: accepted at {len(done)} sizes; {last}: {actions} actions once lowered")
            except Exception as refusal:
                failed = True
                print(f"{name}: refused: {type(refusal).__name__}: {refusal}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
