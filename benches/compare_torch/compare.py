#!/usr/bin/env python3
"""Compares Pipewright with torch.distributed.pipelining: the same weights, batches and cuts, in turn on the
same machine.

    python3 benches/compare_torch/compare.py --python PYTHON_WITH_TORCH
        [--sizes A B C D] [--random N [--seed S]] [--dtype bf16] [--text FILE] [--images FOLDER]

PYTHON_WITH_TORCH must have torch and safetensors. Needs a machine with nothing else to do; and cargo, or with
--binary a benchmark that was built elsewhere: `cargo bench --bench compare_torch --no-run` says where it is.

Sizes: A is a GPT of 8 layers, dim 256, 8 heads, with 8 micro-batches of 4 x 128 tokens. B has dim 512 and 8
of 2 x 256. C has no layers, dim 8 and 64 of 1 x 8: it shows what the engine costs. D is a perceptron
784-2048-2048-10 with 8 of 64 rows. --random draws GPTs that nobody tuned for; the seed is printed. There are
2 ranks with one thread each. `single` is one rank, or one process of PyTorch, that has both cores. Without
--text the text is the guide; without --images the images are noise.

First, every schedule of both sides runs once, to find the fastest. Then every round runs the fastest of both
sides, 1f1b of both, and the matrix products alone on 2 threads: in f32 by the `gemm` crate, in bf16 by
PyTorch's library. Their rate bounds what is possible: rate * (1 - bubble) / operations per token. The bubble
is the schedule's, computed from the operations of its stages; causal attention counts without its masked
half. Figures are medians over rounds; a ratio compares figures of the same round. Peak resident memory is
summed over processes.

With --dtype bf16, ours trains with `pipeline.dtype = "bf16"`, and PyTorch under torch.autocast. All losses of a
step have to be equal but for rounding. What rounding does is measured first: PyTorch trains twice, and the
second time each starting weight is rounded another way. A loss may differ 16 times as much. A size with a loss
that differs more has no figures; the others run, and the program fails at its end.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

import cpu
import drawn
import processes
import report
from job import ROUNDING, STEPS, Differs, Job, build

OURS = ["single", "1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-2p", "zb-v", "auto", "auto:2"]
THEIRS = ["single", "1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]


def parsed(about, own_arguments):
    """The arguments of a comparison: those that all have, and its own."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("PIPEWRIGHT_PEER_PYTHON", sys.executable),
                        help="a Python with torch and safetensors (or $PIPEWRIGHT_PEER_PYTHON)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="timed steps of every run, instead of a number for each size")
    parser.add_argument("--text", type=pathlib.Path, help="a file of text for A, B and C")
    parser.add_argument("--images", type=pathlib.Path, help="a folder with a pair of IDX files of 28 x 28 for D")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a run counts as failed")
    parser.add_argument("--binary", type=pathlib.Path, help="a benchmark that is built already; without it, cargo builds one")
    parser.add_argument("--json", type=pathlib.Path, help="where all figures are written")
    own_arguments(parser)
    parser.set_defaults(dtype="f32", drawn={})
    options = parser.parse_args()
    refuse(parser, options)
    return options


def refuse(parser, options):
    """Ends with a message if the arguments leave nothing to run, or name what does not exist."""
    drawn_sizes = getattr(options, "random", 0)
    if drawn_sizes < 0:
        parser.error(f"argument --random: {drawn_sizes} is not a number of sizes: give 0 or more")
    if getattr(options, "sizes", None) == [] and drawn_sizes == 0:
        parser.error("nothing to run: name sizes after --sizes, or draw some with --random N")
    for name in ("binary", "text", "images"):
        path = getattr(options, name)
        if path and not path.exists():
            parser.error(f"argument --{name}: there is no {path}")


def own_arguments(parser):
    parser.add_argument("--sizes", nargs="*", choices=list(STEPS), default=list(STEPS), help="none: only what is drawn")
    parser.add_argument("--dtype", choices=list(ROUNDING), default="f32", help="bf16: ours in bf16, PyTorch with autocast")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw N more sizes: " + drawn.in_words())
    parser.add_argument("--seed", type=int, help="draw the same sizes again")
    parser.add_argument("--ours", nargs="+", default=OURS, help="our schedules; auto:2 has two stages a rank")
    parser.add_argument("--theirs", nargs="+", default=THEIRS, choices=THEIRS, help="the peer's schedules")
    parser.add_argument("--many-ranks", type=int, default=8, help="so many ranks against 2 at size A; 0 for none")


def fastest(job, side, schedules):
    """The fastest schedule of a side, and the speed and memory of every schedule in one run."""
    found = {}
    for schedule in schedules:
        if side == "theirs" and schedule not in (*job.size["cuts"], "single"):
            print(f"  {side:<7} {schedule:<22} needs more stages than there are units", flush=True)
            continue
        try:
            done = getattr(job, side)(schedule, job.steps[1])
        except processes.Failed as failure:
            print(f"  {side:<7} {schedule:<22} does not run: {failure}", flush=True)
            continue
        found[schedule] = {"rate": done.rate, "MiB": done.memory}
        print(f"  {side:<7} {schedule:<22} {done.rate:>9.0f} {done.memory:>7.0f} MiB", flush=True)
    if not found:
        sys.exit(f"no schedule of {side} ran")
    return max(found, key=lambda schedule: found[schedule]["rate"]), found


def play_round(job, best, peer_best):
    """Every figure of one round."""
    timed = job.steps[0]
    ours, theirs = job.ours(best, timed), job.theirs(peer_best, timed)
    same = ours if best == "1f1b" else job.ours("1f1b", timed)
    peer_same = theirs if peer_best == "1F1B" else job.theirs("1F1B", timed)
    rates = job.rates()
    runs = [ours, theirs, same, peer_same]
    bound = (1 - ours.said["bubble"]) / job.size["flops"]
    same_bound = (1 - same.said["bubble"]) / job.size["flops"]
    figures = {
        "ours": ours.rate, "theirs": theirs.rate, "ratio": ours.rate / theirs.rate,
        "1f1b": same.rate, "1F1B": peer_same.rate, "1f1b ratio": same.rate / peer_same.rate,
        "of bound": ours.rate / (rates["best"] * bound), "of mean bound": ours.rate / (rates["mean"] * bound),
        "1f1b of bound": same.rate / (rates["best"] * same_bound), "1f1b of mean bound": same.rate / (rates["mean"] * same_bound),
        "GFLOP/s": rates["best"] / 1e9, "mean GFLOP/s": rates["mean"] / 1e9,
        "MiB": ours.memory, "their MiB": theirs.memory, "1f1b MiB": same.memory, "1F1B MiB": peer_same.memory,
        "us/action": 1e6 * job.size["targets"] / same.rate / same.said["actions"],
    }
    if job.given.many_ranks and job.name == "A":
        many = job.ours("1f1b", timed, job.given.many_ranks)
        figures["many/2 ranks"] = many.rate / same.rate
        runs.append(many)
    return figures | {"others": max(run.others for run in runs)}


def measure(job):
    """The medians over the rounds, with the size and the schedules."""
    print(f"\nsize {job.name}: {'rows' if job.name == 'D' else 'tokens'}/s of every schedule, one run each", flush=True)
    best, ours = fastest(job, "ours", job.given.ours)
    peer_best, theirs = fastest(job, "theirs", job.given.theirs)
    print(f"\nsize {job.name}: ours {best}, theirs {peer_best}", flush=True)
    rounds = []
    for number in range(1, job.given.rounds + 1):
        rounds.append(play_round(job, best, peer_best))
        if number == 1:
            print_row("round", rounds[0], rounds[0])
        print_row(number, rounds[-1], rounds[-1].values())
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    print_row("median", medians, medians.values())
    print(f"losses within {job.off:.1e}", flush=True)
    return {
        "size": job.name, "best": best, "peer best": peer_best, "off": job.off, "medians": medians, "rounds": rounds,
        "ours": ours, "theirs": theirs, "peer": job.peer,
    }


def print_row(first, names, cells):
    shown = (cell if isinstance(cell, str) else f"{cell:.{0 if cell >= 1000 else 3}f}" for cell in cells)
    print(f"{first:>6}" + "".join(f"{cell:>{max(len(name), 7) + 2}}" for name, cell in zip(names, shown)), flush=True)


def main():
    given = parsed(__doc__, own_arguments)
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    given.drawn = drawn.sizes(given.random, seed)
    for name, size in given.drawn.items():
        print(f"{name}, --seed {seed}: {size}", flush=True)
    binary, here = build(given), cpu.described()
    print(cpu.long(here), flush=True)
    results, differ = [], []
    for name in [*given.sizes, *given.drawn]:
        try:
            with tempfile.TemporaryDirectory() as folder:
                result = measure(Job(given, binary, name, pathlib.Path(folder)))
        except Differs as difference:
            print(f"size {name} has no figures: {difference}", flush=True)
            differ.append(name)
            continue
        results.append(result | {"cpu": here, "dtype": given.dtype, "drawn": given.drawn.get(name)})
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    if results:
        report.print_tables(results)
    if differ:
        sys.exit(f"losses differ in size {', '.join(differ)}")


if __name__ == "__main__":
    main()
