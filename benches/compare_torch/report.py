"""The tables for RESULTS.md."""

# Tokens/s of the same models in other Rust frameworks, with one process on both cores of the same kind of
# machine (2 cores of an AMD EPYC with AVX-512). burn 0.21 (flex) with tanh GELU and with exact GELU, which is
# faster; candle 0.11. These figures were given to us, not measured here.
ELSEWHERE = {
    "A": {"burn": 1114, "burn, exact GELU": 1519, "candle": 789},
    "B": {"burn": 432, "burn, exact GELU": 560, "candle": 348},
}


def print_tables(results):
    print(f"\n{results[0]['peer']}, medians of {len(results[0]['rounds'])} rounds")
    print("\n| size | ours | PyTorch's best | ratio | 1f1b | PyTorch's 1F1B | ratio | memory, MiB | its | share | 1f1b, MiB | 1F1B's | share |")
    print("| --- | " + " | ".join(["---"] * 12) + " |")
    for result in results:
        one = result["medians"]
        print(
            f"| {result['size']} | {one['ours']:,.0f} ({result['best']}) | {one['theirs']:,.0f} ({result['peer best']}) "
            f"| {one['ratio']:.2f} | {one['1f1b']:,.0f} | {one['1F1B']:,.0f} | {one['1f1b ratio']:.2f} "
            f"| {one['MiB']:.0f} | {one['their MiB']:.0f} | {one['MiB'] / one['their MiB']:.1%} "
            f"| {one['1f1b MiB']:.0f} | {one['1F1B MiB']:.0f} | {one['1f1b MiB'] / one['1F1B MiB']:.1%} |"
        )
    print("\n| size | gemm, best shape | all shapes | ours of the bound, best shape | all shapes | 1f1b of its bound | all shapes | us an action | losses within |")
    print("| --- | " + " | ".join(["---"] * 8) + " |")
    for result in results:
        one = result["medians"]
        # Size C has almost no matrix products that could bound it.
        is_engine = result["size"] == "C"
        names = ["of bound", "of mean bound", "1f1b of bound", "1f1b of mean bound"]
        shares = " | ".join("-" if is_engine else f"{one[name]:.3f}" for name in names)
        action = f"{one['us/action']:.2f}" if is_engine else "-"
        print(
            f"| {result['size']} | {one['GFLOP/s']:.0f} GFLOP/s | {one['mean GFLOP/s']:.0f} | {shares} "
            f"| {action} | {result['off']:.0e} |"
        )
    print()
    for result in results:
        one = result["medians"]
        for name, rate in ELSEWHERE.get(result["size"], {}).items():
            print(f"* {result['size']}: {one['ours'] / rate:.2f} x {name} ({rate:,} tokens/s)")
        if "many/2 ranks" in one:
            print(f"* {result['size']}: many ranks on the same cores {one['many/2 ranks']:.3f} x 2 ranks, 1f1b")
