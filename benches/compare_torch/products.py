#!/usr/bin/env python3
"""The rate of a size's matrix products in bf16, with PyTorch's library (oneDNN), on all cores at once.

    python products.py --folder FOLDER --threads 2

FOLDER is what our side prepared. Each thread multiplies its own operands, again and again, so they lie in the
caches; the fastest of some trials counts. A small product is one of a batch, so that the call costs little.
Prints one line of JSON: `best`, the operations a second of the fastest shape, and `mean`, the same of all
products of a step one after the other, each at its own rate.
"""
import argparse
import json
import threading
import time

import torch

REPEATS = 8
LONG_ENOUGH = 0.008
# A batch has at least this number of operations.
BATCH = 2**25


def operand(copies, rows, columns, is_transposed):
    made = torch.rand(copies, *((columns, rows) if is_transposed else (rows, columns)), dtype=torch.float32).bfloat16()
    return made.transpose(1, 2) if is_transposed else made


def on_one_thread(shape, transposed, barrier, rates):
    m, k, n = shape
    copies = max(1, BATCH // (2 * m * k * n))
    left, right = operand(copies, m, k, transposed[0]), operand(copies, k, n, transposed[1])
    out = torch.empty(copies, m, n, dtype=torch.bfloat16)
    multiply = torch.bmm if copies > 1 else torch.mm
    if copies == 1:
        left, right, out = left[0], right[0], out[0]
    for _ in range(REPEATS):
        barrier.wait()
        started, calls = time.perf_counter(), 0
        while calls == 0 or time.perf_counter() - started < LONG_ENOUGH:
            multiply(left, right, out=out)
            calls += 1
        rates.append(2 * m * k * n * copies * calls / (time.perf_counter() - started))


def rate(shape, transposed, threads):
    """Operations a second of all threads together."""
    barrier, rates = threading.Barrier(threads), [[] for _ in range(threads)]
    running = [threading.Thread(target=on_one_thread, args=(shape, transposed, barrier, own)) for own in rates]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return max(map(sum, zip(*rates)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with open(f"{given.folder}/size.json") as file:
        products = json.load(file)["products"]
    work = {}
    for one in products:
        key = (*one["shape"], *one["transposed"])
        work[key] = work.get(key, 0) + one["flops"]
    rates = {key: rate(key[:3], key[3:], given.threads) for key in work}
    seconds = sum(flops / rates[key] for key, flops in work.items())
    print(json.dumps({"best": max(rates.values()), "mean": sum(work.values()) / seconds}))


if __name__ == "__main__":
    main()
