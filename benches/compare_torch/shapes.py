#!/usr/bin/env python3
"""Other ways to train the same model and batch on the same cores: the second table of the guide's chapter on
speed.

    python3 benches/compare_torch/shapes.py [--sizes A B D] [--text FILE] [--images FOLDER]

The ways are: two ranks; one rank with two threads; one rank with two threads and the whole batch at once; two
processes of one rank with half the batch each. The two processes exchange nothing, so they show what data
parallelism would reach if its exchange of gradients were free. The sizes are as in compare.py. All ways
run in turn in every round. Prints medians of targets per second (tokens; rows for D), and of peak resident
memory summed over processes.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import processes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = ROOT / "target/release/pipewright"
WARM_UP = 2
# For each size: config, settings, micro-batches and their rows, timed steps.
SIZES = {
    "A": ("gpt-text", ["model.dim=256", "model.layers=8", "model.heads=8", "data.seq=128"], 8, 4, 8),
    "B": ("gpt-text", ["model.dim=512", "model.layers=8", "model.heads=8", "data.seq=256"], 8, 2, 5),
    "D": ("mnist", ["model.sizes=784,2048,2048,10"], 8, 64, 10),
}
TWO_RANKS = ["pipeline.stages=2"]
TWO_THREADS = ["pipeline.stages=1", "pipeline.threads_per_rank=2"]
# For each shape: settings, a function from the size's micro-batches and rows to its own, number of processes.
SHAPES = {
    "2 ranks, 1f1b": (TWO_RANKS, lambda count, rows: (count, rows), 1),
    "2 ranks, zb-2p": ([*TWO_RANKS, "pipeline.schedule=zb-2p"], lambda count, rows: (count, rows), 1),
    "1 rank, 2 threads": (TWO_THREADS, lambda count, rows: (count, rows), 1),
    "1 rank, 2 threads, one batch": (TWO_THREADS, lambda count, rows: (1, count * rows), 1),
    "2 processes, half the batch each": (["pipeline.stages=1"], lambda count, rows: (count // 2, rows), 2),
}


def measure(size, data, shape):
    """Targets per second and MiB, each for all processes together."""
    config, model, count, rows, steps = SIZES[size]
    pipeline, divide, copies = SHAPES[shape]
    count, rows = divide(count, rows)
    settings = [*model, *pipeline, f"data.path={data}", f"pipeline.micro_batches={count}", f"pipeline.micro_batch_size={rows}"]
    settings += ["train.validate_every=0", "checkpoint.every=0"]
    with tempfile.TemporaryDirectory() as folder:
        runs = [pathlib.Path(folder) / str(index) for index in range(copies)]
        command = [BINARY, "train", ROOT / f"examples/{config}.toml", "--steps", str(WARM_UP + steps)]
        command += [word for setting in settings for word in ("--set", setting)]
        _, memory, _ = processes.run([[*command, "--run-dir", run] for run in runs], [{}] * copies, 600)
        lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
        return sum(statistics.median(step["tokens_per_second"] for step in run[WARM_UP:]) for run in lines), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["A", "B"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "README.md", help="a file of text for A and B")
    parser.add_argument("--images", type=pathlib.Path, help="a folder with a pair of IDX files of 28 x 28, which D needs")
    given = parser.parse_args()
    if "D" in given.sizes and not given.images:
        parser.error("size D needs --images")
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    data = {size: (given.images if size == "D" else given.text) for size in given.sizes}
    runs = {shape: {size: [] for size in data} for shape in SHAPES}
    for _ in range(given.rounds):
        for size, path in data.items():
            for shape, done in runs.items():
                done[size].append(measure(size, path.resolve(), shape))
    print("| shape | " + " | ".join(f"{size} | MiB" for size in data) + " |")
    print("| --- |" + " --- | --- |" * len(data))
    for shape, done in runs.items():
        medians = ([statistics.median(column) for column in zip(*done[size])] for size in data)
        print(f"| {shape} | " + " | ".join(f"{rate:,.0f} | {memory:.0f}" for rate, memory in medians) + " |")


if __name__ == "__main__":
    main()
