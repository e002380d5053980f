#!/usr/bin/env python3
"""Trains on four hosts with slow links, and compares the step with what `plan` predicts.

    scripts/slow_links.py PIPEWRIGHT            all of it, about three minutes
    scripts/slow_links.py PIPEWRIGHT --equal    only that the weights are equal: a few seconds

The hosts are network namespaces of this machine, each with a link of its own to a switch, a bridge. Both ends of
a link let through a set number of bits a second (`tbf`), in frames of up to 9,000 bytes. A host has one process: 2 replicas
of 2 stages. They are connected by sockets, and by MPI if PIPEWRIGHT was built with it and `mpirun` is there.

First, the weights of one process, of sockets and of MPI have to be the same, for both ways to map ranks, also with
shards in place of replicas or of stages. Then, for
each rate and two models: `profile` measures layers and links, `plan` predicts a step, `train` measures it, for both
maps. Ends with a table, and with 1 if weights differ or a prediction on a slow link is off by more than a tenth. The hosts share the
cores of this machine, and so the kernel's work for every frame. At a fast link that counts for more than the link,
so there the difference is only told.

Needs root for namespaces; without it says so, and ends well. Delay and loss need `netem` in the kernel.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hosts import Hosts

HOSTS = 4
# Replicas, stages, and shards of a rank: one of each on a host.
MESHES = [(2, 2, 1), (2, 1, 2), (1, 2, 2)]
RATES = [20, 50, 100, 200, 1000]  # Mbit/s
# Up to this rate a prediction may be off by no more than this share.
SLOW, CLOSE = 100, 0.1
WARM_UP, STEPS = 3, 20
CONFIG = """
[model]
kind = "gpt"
layers = 2
{model}
[data]
kind = "text"
path = "builtin:shakespeare"
{data}
[pipeline]
stages = 2
{pipeline}
[optimizer]
learning_rate = 1e-3
[train]
validate_every = 0
"""
MAPS = ["pipeline", "replicas"]
# What a step waits for: wires of 64 KiB, 8 each way, or the gradients of 0.46 million weights.
MODELS = {
    "wires": dict(model="dim = 32\nheads = 2", data="seq = 16", pipeline="micro_batches = 16\nmicro_batch_size = 32"),
    "sums": dict(model="dim = 128\nheads = 4", data="seq = 16", pipeline="micro_batches = 8\nmicro_batch_size = 1"),
}
# Open MPI's messages of more than 64 KiB wait for their receiver, and answers wait behind messages. With this, those
# up to 8 MiB do not.
LIMITS = ["btl_tcp_eager_limit", "btl_tcp_rndv_eager_limit", "btl_tcp_max_send_size"]
EAGER = [word for limit in LIMITS for word in ("--mca", limit, str(8 << 20))]
# Started by `mpirun` in place of `ssh`: HOST COMMAND...
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec "{prefix}${{host##*.}}" unshare --uts sh -c "hostname host${{host##*.}}; $*"
"""


class Run:
    """How to run the program."""

    def __init__(self, program, hosts, scratch):
        self.program, self.hosts, self.scratch = program, hosts, scratch
        self.port = 20000
        self.token = secrets.token_hex(32)
        agent = scratch / "agent"
        agent.write_text(AGENT.format(prefix=hosts.prefix))
        agent.chmod(0o755)

    def alone(self, *arguments):
        return self.finish([subprocess.Popen([self.program, *arguments], **self.how())])

    def sockets(self, *arguments):
        self.port += 1
        place = {"WORLD_SIZE": str(HOSTS), "MASTER_ADDR": self.hosts.address(1), "MASTER_PORT": str(self.port)}
        place["PIPEWRIGHT_TOKEN"] = self.token
        processes = []
        for number in range(1, HOSTS + 1):
            command = ["ip", "netns", "exec", self.hosts.name(number), self.program, *arguments]
            processes.append(subprocess.Popen(command, **self.how(RANK=str(number - 1), **place)))
        return self.finish(processes)

    def mpi(self, *arguments):
        network = ["--mca", "oob_tcp_if_include", "10.78.0.0/24", "--mca", "btl_tcp_if_include", "10.78.0.0/24"]
        by_tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", *network, *EAGER]
        agent = ["--mca", "plm_rsh_agent", str(self.scratch / "agent"), "--mca", "plm_rsh_no_tree_spawn", "1"]
        hosts = ",".join(self.hosts.address(number) for number in range(1, HOSTS + 1))
        mpirun = ["mpirun", *agent, *by_tcp, "--host", hosts, "-n", str(HOSTS), self.program, *arguments]
        command = [str(self.scratch / "agent"), self.hosts.address(1), *mpirun]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return self.finish([subprocess.Popen(command, **self.how(**root))])

    def how(self, **variables):
        launchers = ("RANK", "WORLD_SIZE", "MASTER_", "OMPI_", "PMI", "SLURM_")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
        return dict(env=rest | variables, cwd=self.scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @staticmethod
    def finish(processes):
        """What the first process has printed. Two minutes are more than any run takes."""
        try:
            said = [process.communicate(timeout=120)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(process.returncode for process in processes):
            sys.exit("".join(said))
        return said[0]


def weights(said):
    return next(line.split()[1] for line in said.splitlines() if line.startswith("weights "))


def equal(run, ways, model):
    """Whether all ways give the same weights."""
    groups = ["--set", "pipeline.gradient_groups=2", "--set", "pipeline.shard_groups=2"]
    one = ["train", f"{model}.toml", *groups, "--steps", "5", "--weights-hash"]
    expected = weights(run.alone(*one, "--run-dir", "alone"))
    print(f"{model:6} one process, one replica   {expected[:16]}")
    same = True
    for way, start in ways.items():
        for replicas, stages, shards in MESHES:
            mesh = ["--set", f"pipeline.replicas={replicas}", "--set", f"pipeline.stages={stages}"]
            mesh += ["--set", f"pipeline.shards={shards}"]
            for layout in MAPS if shards == 1 else MAPS[:1]:
                where = ["--set", f"launch.map={layout}", "--run-dir", f"{way}-{layout}"]
                found = weights(start(*one, *mesh, *where))
                same &= found == expected
                print(f"{model:6} {way:7} {replicas} x {stages} x {shards} map {layout:10}    {found[:16]}")
                shutil.rmtree(run.scratch / f"{way}-{layout}")
    shutil.rmtree(run.scratch / "alone")
    return same


def compare(run, ways, model, link):
    """Predicts and measures a step. Returns by how much the worst prediction is off."""
    costs = ["--set", "pipeline.replicas=2", "--set", "pipeline.costs=costs.json"]
    profiled = run.sockets("profile", f"{model}.toml", "--out", "costs.json")
    between = next(line for line in profiled.splitlines() if line.startswith("a message between"))
    worst = 0.0
    for layout in MAPS:
        mapped = [*costs, "--set", f"launch.map={layout}"]
        planned = run.alone("plan", f"{model}.toml", *mapped, "--hosts", str(HOSTS), "--format", "json")
        plan = json.loads(planned[planned.index("{"):])
        predicted, line = plan["step_with_barrier"], ""
        for start in ways.values():
            start("train", f"{model}.toml", *mapped, "--steps", str(WARM_UP + STEPS), "--run-dir", "timed")
            metrics = (run.scratch / "timed/metrics.jsonl").read_text().splitlines()
            shutil.rmtree(run.scratch / "timed")
            measured = statistics.median(json.loads(step)["seconds"] for step in metrics[WARM_UP:])
            off = predicted / measured - 1
            line += f"{1e3 * measured:9.1f} {100 * off:+6.1f} % "
            worst = max(worst, abs(off))
        told = f"{1e3 * predicted:9.1f}  {line}  ({between.split(': ')[1]})"
        print(f"{model:6} {layout:9} {link:12} {told}", flush=True)
    (run.scratch / "costs.json").unlink()
    return worst


def skipped(what):
    """Says that something is not tested. Returns the exit status: tests may refuse that."""
    refused = os.environ.get("PIPEWRIGHT_SKIPS") == "refused"
    print(f"not tested: {what}" if refused else f"skipped: {what}", file=sys.stderr if refused else sys.stdout)
    return int(refused)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--equal", action="store_true", help="only compare weights")
    parser.add_argument("--mpi", action="store_true", help="PIPEWRIGHT was built with MPI")
    given = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return skipped("four hosts with slow links, because network namespaces need root, `ip` and `tc`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with Hosts(HOSTS) as hosts, tempfile.TemporaryDirectory() as scratch:
        run = Run(str(given.program.resolve()), hosts, Path(scratch))
        ways = {"sockets": run.sockets}
        if given.mpi and shutil.which("mpirun"):
            ways["mpi"] = run.mpi
        else:
            if skipped("MPI, because there is no `mpirun`, or --mpi is not given"):
                return 1
        far = ["delay", "5ms", "loss", "0.1%"] if hosts.has_netem() else []
        if not far:
            print("skipped: delay and loss, because this kernel has no `netem`")
        for model, keys in MODELS.items():
            Path(scratch, f"{model}.toml").write_text(CONFIG.format(**keys))
        hosts.links(200)
        good = all([equal(run, ways, model) for model in MODELS])
        if far:
            hosts.links(200, far)
            good &= equal(run, ways, "wires")
        if not given.equal:
            print("model  map       link         predicted  " + "  ".join(f"{way:>8}    off" for way in ways) + "   (ms)")
            for rate in RATES:
                hosts.links(rate)
                offs = [compare(run, ways, model, f"{rate} Mbit/s") for model in MODELS]
                good &= rate > SLOW or max(offs) <= CLOSE
    print("all of it holds" if good else "weights differ, or a prediction is off")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
