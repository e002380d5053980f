#!/usr/bin/env python3
"""What a failure costs: `torchrun` starts all processes again from a checkpoint, we build one rank again.

    python3 benches/compare_torch/restart.py RESTARTS [--rounds 3]

RESTARTS is our bench (`cargo bench --bench restarts --no-run` tells its path). Both train size A on two ranks under
1F1B, and the last rank raises an error in the middle of a step, 0, 4 and 9 steps after a checkpoint (theirs, on disk)
or a snapshot (ours, in memory). Theirs is `torch.distributed.pipelining` on gloo, one thread a rank, with
`torchrun --max-restarts 5`: a restart of theirs may fail on its own (gloo does not connect, or hangs: it gets 20 s),
and then the next one is counted too. Prints the seconds from the error until that step is done.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

EVERY = 10
AGES = [0, 4, 9]
MICRO_BATCHES = 8


def work(folder, fails_at):
    """One rank under torchrun."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    import peer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    units, _ = peer.gpt(256, 256, 8, 8, 128, False)
    half = len(units) // 2
    module = torch.nn.Sequential(*(units[:half] if rank == 0 else units[half:]))
    fails = {"at": None}

    def loss_of(output, target):
        if fails["at"] == 0:
            (folder / "failed").write_text(repr(time.time()))
            raise RuntimeError("the disk is on fire")
        if fails["at"] is not None:
            fails["at"] -= 1
        return peer.loss_of(output, target)

    schedule = Schedule1F1B(PipelineStage(module, rank, 2, torch.device("cpu")), MICRO_BATCHES, loss_fn=loss_of)
    update = torch.optim.AdamW(module.parameters(), lr=3e-4, fused=True)
    saved = folder / f"rank{rank}.pt"
    step = 0
    if saved.exists():
        state = torch.load(saved)
        module.load_state_dict(state["module"])
        update.load_state_dict(state["update"])
        step = state["step"]
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    while step <= fails_at:
        if step % EVERY == 0:
            state = {"module": module.state_dict(), "update": update.state_dict(), "step": step}
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").rename(saved)
        batch = torch.Generator().manual_seed(step)
        x = torch.randint(256, (4 * MICRO_BATCHES, 128), generator=batch)
        fails["at"] = MICRO_BATCHES // 2 if is_first and step == fails_at and rank == 1 else None
        update.zero_grad(set_to_none=True)
        schedule.step(x) if rank == 0 else schedule.step(target=x)
        update.step()
        dist.barrier()
        step += 1
    if rank == 0:
        (folder / "done").write_text(repr(time.time()))
        (folder / "restarts").write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])


def theirs(age):
    """Seconds from the error until the step is done, and how many restarts that took."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=5"]
        command += ["--standalone", __file__, "--work", folder, "--fails-at", str(EVERY + age)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            sys.exit(done.stderr)
        wrote = lambda name: float((Path(folder) / name).read_text())
        return wrote("done") - wrote("failed"), int(wrote("restarts"))


def ours(program):
    """By steps since the snapshot: seconds from the error until the rank had repeated them."""
    said = subprocess.run([program, "recovery"], capture_output=True, text=True, check=True).stdout
    line = re.compile(r"size A, 2 ranks, .* had repeated (\d+) steps after ([0-9.]+) ms")
    return {int(steps) - 1: float(ms) / 1e3 for steps, ms in line.findall(said)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fails-at", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.fails_at)
        return
    if not given.program:
        parser.error("name our bench: `cargo bench --bench restarts --no-run` tells its path")
    rounds = [(ours(given.program), {age: theirs(age) for age in AGES}) for _ in range(given.rounds)]
    print("steps since the state was kept, seconds until the failed step is done (torchrun), or repeated (ours)")
    for age in AGES:
        seconds, restarts = zip(*(peer[age] for _, peer in rounds))
        own = [repeated[age] for repeated, _ in rounds]
        print(f"{age:>3}  torchrun {statistics.median(seconds):.2f} (worst {max(seconds):.2f}; "
              f"restarts it took: {', '.join(map(str, restarts))})  "
              f"ours {statistics.median(own):.3f} (worst {max(own):.3f})")


if __name__ == "__main__":
    main()
