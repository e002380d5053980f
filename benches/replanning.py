#!/usr/bin/env python3
"""A rank whose core has a busy neighbour: what a new cut while the run goes on brings.

    cargo build --release && python3 benches/replanning.py
    cargo build --release && python3 benches/replanning.py --schedule gpipe
    cargo build --release && python3 benches/replanning.py --schedule gpipe --groups 2

A GPT in two ranks, each pinned to a core of its own. From the 30th step on, other programs are busy on the core of
rank 1. One run keeps its cut, one has pipeline.replan = "auto". Then each possible cut is tried under the same load:
the best of them is what could be reached. Prints the cut and the median step of each, and how far "auto" is from the
best. Weights are compared.

With --schedule there is no neighbour. A run begins by this schedule and knows the costs of its layers: "auto" may go on
by another one. It is compared with runs by each schedule. With --groups 2 it may also become two replicas, or one rank of
two shards, and is compared with these too.
"""
import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/pipewright"
BUSY = "import os\nos.sched_setaffinity(0, {1})\nwhile True: pass"
LAYERS, MEASURED = 6, 30
CONFIG = f"""
[model]
dim = 128
layers = {LAYERS}
heads = 4
[data]
seq = 128
path = "{ROOT}/book/src"
[pipeline]
stages = 2
micro_batches = 8
micro_batch_size = 2
[train]
validate_every = 0
[checkpoint]
every = 0
"""


@contextlib.contextmanager
def neighbours(count):
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def seconds(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    return [json.loads(line)["seconds"] for line in lines if line.endswith("}")]


def run(place, name, steps, count, *sets, from_step=0):
    """The median of the last steps, the hash of the weights, and what the history says of cuts."""
    folder = place / name
    command = [BINARY, "train", place / "my.toml", "--run-dir", folder, "--weights-hash"]
    for one in [f"train.steps={steps}", *sets]:
        command += ["--set", one]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while len(seconds(folder)) < from_step and program.poll() is None:
        time.sleep(0.02)
    with neighbours(count):
        said = program.communicate()[0]
    if program.returncode:
        sys.exit(said)
    history = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    cuts = [entry["event"] for entry in history if entry.get("of_cut")]
    return statistics.median(seconds(folder)[-MEASURED:]), re.search("weights (.*)", said)[1], cuts


def partition(first):
    units = ["embed", *(f"h.{layer}.{part}" for layer in range(LAYERS) for part in ("attn", "mlp")), "head"]
    return f"pipeline.partition={json.dumps([units[:first], units[first:]])}"


SCHEDULES = {
    "gpipe": 2, "1f1b": 2, "zb-h1": 2, "zb-2p": 2, "interleaved-1f1b": 4, "looped-bfs": 4, "interleaved-zb": 4,
    "zb-v": 4, "v-half": 4, "dualpipe-v": 4,
}


SHAPES = {"two replicas": "pipeline.replicas=2", "two shards": "pipeline.shards=2"}


def schedules(place, first, steps, groups):
    """Prints the step of a run that may change its schedule, and the step by each schedule."""
    usual = [f"pipeline.gradient_groups={groups}", f"pipeline.shard_groups={groups}"]
    profile = [BINARY, "profile", "my.toml", *(part for one in usual for part in ("--set", one))]
    subprocess.run(profile, cwd=place, check=True, capture_output=True)
    usual.append(f"pipeline.costs={place}/costs.json")
    by = lambda name: [f"pipeline.schedule={name}", f"pipeline.stages={SCHEDULES[name]}", *usual]
    kept, kept_hash, _ = run(place, "kept", steps, 0, *by(first))
    auto, auto_hash, changes = run(place, "auto", steps, 0, *by(first), "pipeline.replan=auto")
    tried = {name: run(place, f"by-{name}", 50, 0, *by(name))[0] for name in SCHEDULES}
    for name, shape in SHAPES.items() if groups > 1 else ():
        alone = ["pipeline.schedule=1f1b", "pipeline.stages=1", shape]
        tried[name] = run(place, name, 50, 0, *usual, *alone)[0]
    again = run(place, "again", steps, 0, *by(first))[0]
    best = min(tried, key=tried.get)
    print(f"by {first} all the time       {1e3 * kept:8.1f} ms, and after the others {1e3 * again:8.1f} ms")
    print(f"replan = auto, from {first:6} {1e3 * auto:8.1f} ms")
    for name, median in tried.items():
        print(f"  {name:22} {1e3 * median:8.1f} ms{'  (best)' * (name == best)}")
    print(f"auto takes {auto / tried[best]:.2f} times the best; weights are "
          f"{'the same' if kept_hash == auto_hash else 'DIFFERENT'}")
    print("\n".join(changes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=1, help="busy programs on the core of rank 1")
    parser.add_argument("--schedule", choices=SCHEDULES, help="compare schedules, from this one on")
    parser.add_argument("--groups", type=int, default=1, help="gradient groups and shard groups, with --schedule")
    parser.add_argument("--steps", type=int, default=160, help="steps of the runs that are compared")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        (place / "my.toml").write_text(CONFIG)
        if args.schedule:
            return schedules(place, args.schedule, args.steps, args.groups)
        free, _, _ = run(place, "free", 60, 0)
        kept, kept_hash, _ = run(place, "kept", args.steps, args.neighbours, from_step=30)
        auto, auto_hash, cuts = run(
            place, "auto", args.steps, args.neighbours, "pipeline.replan=auto", from_step=30)
        units = 2 * LAYERS + 2
        tried = {first: run(place, f"cut-{first}", 50, args.neighbours, partition(first))[0]
                 for first in range(units // 2 - 1, units)}
    best = min(tried, key=tried.get)
    print(f"a step without neighbours: {1e3 * free:.1f} ms; with {args.neighbours}:")
    print(f"  the cut stays             {1e3 * kept:8.1f} ms")
    print(f"  replan = auto             {1e3 * auto:8.1f} ms")
    for first, median in tried.items():
        print(f"  {first:2} and {units - first:2} layers          {1e3 * median:8.1f} ms{'  (best)' * (first == best)}")
    print(f"auto takes {auto / tried[best]:.2f} times the best, and {kept / auto:.2f} times fewer than without it")
    print(f"weights are {'the same' if kept_hash == auto_hash else 'DIFFERENT'}")
    print("\n".join(cuts))


main()
