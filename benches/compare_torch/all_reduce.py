#!/usr/bin/env python3
"""The peer of `benches/reduce`: gloo's all_reduce, one process a rank.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python all_reduce.py 4:60 1024:60

Each argument is a size in KB, and how many reductions are measured. Each begins after a barrier. Prints, for
each size, the median of the slowest rank's seconds.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 5


def seconds(kilobytes, ranks):
    numbers = torch.ones(kilobytes * 256)
    dist.barrier()
    started = time.perf_counter()
    dist.all_reduce(numbers)
    took = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
    assert bool((numbers == ranks).all()), "a sum is wrong"
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in sys.argv[1:]:
        kilobytes, count = map(int, size.split(":"))
        took = [seconds(kilobytes, dist.get_world_size()) for _ in range(WARM_UP + count)]
        print(statistics.median(took[WARM_UP:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
