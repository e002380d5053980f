"""The tables for RESULTS.md."""
import cpu

# Tokens/s of the same models in other Rust frameworks, with one process on both cores of the same kind of
# machine (2 cores of an AMD EPYC with AVX-512). burn 0.21 (flex) with tanh GELU and with exact GELU, which is
# faster; candle 0.11. These figures were given to us, not measured here.
ELSEWHERE = {
    "A": {"burn": 1114, "burn, exact GELU": 1519, "candle": 789},
    "B": {"burn": 432, "burn, exact GELU": 560, "candle": 348},
}


SPEED = ["size", "CPU", "numbers", "ours", "PyTorch's best", "ratio", "1f1b", "PyTorch's 1F1B", "ratio", "memory, MiB", "its",
         "share", "1f1b, MiB", "1F1B's", "share"]
BOUND = ["size", "CPU", "numbers", "products, best shape", "all shapes", "ours of the bound, best shape", "all shapes",
         "1f1b of its bound", "all shapes", "us an action", "losses within"]


def print_tables(results):
    first = results[0]
    print(f"\n{cpu.long(first['cpu'])}; {first['peer']}; medians of {len(first['rounds'])} rounds")
    print_table(SPEED, map(speed, results))
    print_table(BOUND, map(bound, results))
    print()
    for result in results:
        print_notes(result)


def print_table(head, rows):
    print("\n| " + " | ".join(head) + " |")
    print("| " + " | ".join(["---"] * len(head)) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def what(result):
    return [result["size"], cpu.short(result["cpu"]), result["dtype"]]


def speed(result):
    one = result["medians"]
    return what(result) + [
        f"{one['ours']:,.0f} ({result['best']})", f"{one['theirs']:,.0f} ({result['peer best']})", f"{one['ratio']:.2f}",
        f"{one['1f1b']:,.0f}", f"{one['1F1B']:,.0f}", f"{one['1f1b ratio']:.2f}",
        f"{one['MiB']:.0f}", f"{one['their MiB']:.0f}", f"{one['MiB'] / one['their MiB']:.1%}",
        f"{one['1f1b MiB']:.0f}", f"{one['1F1B MiB']:.0f}", f"{one['1f1b MiB'] / one['1F1B MiB']:.1%}",
    ]


def bound(result):
    one = result["medians"]
    # Size C has almost no matrix products that could bound it.
    is_engine = result["size"] == "C"
    names = ["of bound", "of mean bound", "1f1b of bound", "1f1b of mean bound"]
    shares = ["-" if is_engine else f"{one[name]:.3f}" for name in names]
    action = f"{one['us/action']:.2f}" if is_engine else "-"
    rates = [f"{one['GFLOP/s']:.0f} GFLOP/s", f"{one['mean GFLOP/s']:.0f}"]
    return what(result) + rates + shares + [action, f"{result['off']:.0e}"]


def print_notes(result):
    """The drawn sizes in numbers, and what else was measured."""
    one, size = result["medians"], result["size"]
    if result["drawn"]:
        print(f"* {size}: {result['drawn']}")
    if result["dtype"] == "f32":
        for name, rate in ELSEWHERE.get(size, {}).items():
            print(f"* {size}: {one['ours'] / rate:.2f} x {name} ({rate:,} tokens/s)")
    if "many/2 ranks" in one:
        print(f"* {size}: many ranks on the same cores {one['many/2 ranks']:.3f} x 2 ranks, 1f1b")
