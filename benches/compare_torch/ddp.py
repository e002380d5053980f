#!/usr/bin/env python3
"""Compares replicas and shards of Pipewright with PyTorch's DistributedDataParallel and parallelize_module: the same
weights and batches, in turn on the same machine.

    python3 benches/compare_torch/ddp.py --python PYTHON_WITH_TORCH
        [--cases A B D B-zero A-2x2 A-shards B-shards S-shards] [--text FILE] [--images FOLDER]

The sizes are as in compare.py, and S is as large as SmolLM2-135M. Two replicas have one rank each with one thread; `2x2` has two pipelines of
two ranks. Ours are threads of one process. PyTorch has a process for each rank, and gloo. It sums gradients
once a step (`no_sync` before), beside the last backward pass. `zero`: the optimizer is sharded over the
replicas, ZeroRedundancyOptimizer there. `2x2`: torch.distributed.pipelining with stages in
DistributedDataParallel, 1F1B on both sides. `shards`: each layer is divided in two, with sequence parallelism and a
loss over divided scores on both sides.

Every round runs both sides. Figures are medians over rounds; a ratio compares runs of one round. Peak resident
memory is summed over processes. `reducing` is the share of a step in which a rank of ours only adds up
gradients over replicas (with zero, or exchanges new weights). If losses differ by more than rounding explains,
the program stops: compare.py says how that is measured.
"""
import json
import pathlib
import statistics
import tempfile

import compare
from job import WARM_UP, Job, build, free_port

HERE = pathlib.Path(__file__).resolve().parent
REPLICAS = 2
SHARDS = 2
# For each case: the size, the ranks of a replica, and whether the optimizer is sharded.
CASES = {"A": ("A", 1, False), "B": ("B", 1, False), "D": ("D", 1, False), "B-zero": ("B", 1, True), "A-2x2": ("A", 2, False)}
# Cases with one replica of shards.
CASES |= {"A-shards": ("A", 1, False), "B-shards": ("B", 1, False), "S-shards": ("S", 1, False)}


class Case(Job):
    """One case with its data. Runs either side on it."""

    def __init__(self, given, binary, case, folder):
        name, self.ranks, self.sharded = CASES[case]
        self.replicas, self.shards = (1, SHARDS) if "shards" in case else (REPLICAS, 1)
        super().__init__(given, binary, name, folder)

    def ours(self, timed):
        command = self.ours_base + ["train", "--data", self.data, "--steps", str(WARM_UP + timed)]
        command += ["--schedule", "1f1b", "--ranks", str(self.ranks), "--replicas", str(self.replicas)]
        command += ["--shards", str(self.shards)]
        return self.run([command + ["--sharded"] * self.sharded], [{}])

    def theirs(self, timed):
        command = [self.given.python, HERE / "peer.py", "--folder", self.folder, "--replicas", str(self.replicas)]
        command += ["--schedule", "single" if self.ranks == 1 else "1F1B", "--threads", "1"]
        command += ["--shards", str(self.shards), "--steps", str(WARM_UP + timed)] + ["--zero"] * self.sharded
        ranks = self.replicas * self.ranks * self.shards
        meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = self.run([command] * ranks, [{**meeting, "RANK": str(rank)} for rank in range(ranks)])
        self.peer = done.said["peer"]
        return done

    def round(self):
        timed = self.steps[0]
        ours, theirs = self.ours(timed), self.theirs(timed)
        return {
            "ours": ours.rate, "theirs": theirs.rate, "ratio": ours.rate / theirs.rate,
            "MiB": ours.memory, "their MiB": theirs.memory, "share": ours.memory / theirs.memory,
            "reducing": statistics.median(ours.said["reducing"][WARM_UP:]), "others": max(ours.others, theirs.others),
        }


def measure(job, case):
    """The medians over the rounds."""
    rounds = []
    for number in range(1, job.given.rounds + 1):
        rounds.append(job.round())
        if number == 1:
            compare.print_row(case, rounds[0], rounds[0])
        compare.print_row(number, rounds[-1], rounds[-1].values())
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    return {"case": case, "off": job.off, "medians": medians, "rounds": rounds, "peer": job.peer}


def print_table(results):
    print(f"\n{results[0]['peer']}, medians of {len(results[0]['rounds'])} rounds")
    print("\n| case | ours | PyTorch | ratio | memory, MiB | its | share | reducing | losses within |")
    print("| --- | " + " | ".join(["---"] * 8) + " |")
    for result in results:
        one = result["medians"]
        print(
            f"| {result['case']} | {one['ours']:,.0f} | {one['theirs']:,.0f} | {one['ratio']:.2f} | {one['MiB']:.0f} "
            f"| {one['their MiB']:.0f} | {one['share']:.1%} | {one['reducing']:.1%} | {result['off']:.0e} |"
        )


def own_arguments(parser):
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))


def main():
    given = compare.parsed(__doc__, own_arguments)
    binary = build(given)
    results = []
    for case in given.cases:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(Case(given, binary, case, pathlib.Path(folder)), case))
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    print_table(results)


if __name__ == "__main__":
    main()
