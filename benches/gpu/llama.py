#!/usr/bin/env python3
"""Training of Llama-3.2-1B's and Qwen3-0.6B's sizes, all weights and adapters: ours, and transformers with PEFT.

    benches/gpu/llama.py PIPEWRIGHT [--models llama qwen3] [--ways all lora] [--tokens 2048 8192] [--rounds 2]
    benches/gpu/llama.py PIPEWRIGHT --models tiny --device cpu --tokens 64 --batch 256

Needs torch (2.5 or newer) and transformers (4.56 or newer), and PEFT for adapters, in the Python that runs this. PIPEWRIGHT
is the program, compiled with optimisation. Weights are random, and so are the tokens of transformers; ours are bytes of a
text; all tokens are below 256. A step is `--batch` tokens in two micro-batches, with AdamW; products are in bf16, and weights
that are trained in f32 (for transformers by autocast). Adapters have rank 8, at all seven matrices of a layer. All run in
turn, each in a process of its own. If a micro-batch is too large for transformers, it takes more, smaller ones, and the
table says so. Attention is PyTorch's (`sdpa`), and the table names its kernels. Prints tokens a second, the median of the
steps after the first two; the largest memory of the GPU as PyTorch counts it; and the clock and power at the moment of most
power. Our process is ended when it has done its steps, so it saves nothing.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 2
MODELS = {
    "llama": dict(kind="llama", vocab=128256, dim=2048, layers=16, heads=32, kv_heads=8, head_width=64, ffn=8192),
    "qwen3": dict(kind="qwen3", vocab=151936, dim=1024, layers=28, heads=16, kv_heads=8, head_width=128, ffn=3072),
    "tiny": dict(kind="llama", vocab=256, dim=64, layers=2, heads=2, kv_heads=1, head_width=32, ffn=128),
}
NAMES = {"llama": "Llama-3.2-1B", "qwen3": "Qwen3-0.6B", "tiny": "tiny"}
CONFIG = """
[model]
{model}
tied = true
context = {tokens}
[data]
kind = "text"
path = "builtin:shakespeare"
seq = {tokens}
[pipeline]
stages = 1
micro_batches = 2
micro_batch_size = {rows}
dtype = "bf16"
devices = "{device}"
recompute = "{recompute}"
[optimizer]
learning_rate = 1e-5
[train]
steps = 1000000
validate_every = 0
[checkpoint]
every = 0
beside = false
{lora}
"""
LORA = """[lora]
rank = 8
targets = ["*.attn.*", "*.mlp.*"]
"""


def theirs(given):
    """What a worker prints: seconds of each step, rows of a micro-batch, and the GPU's memory in MiB."""
    import torch
    import transformers

    size, device = MODELS[given.model], torch.device(given.device.split(":")[0])
    config = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[size["kind"]](
        vocab_size=size["vocab"], hidden_size=size["dim"], num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"], head_dim=size["head_width"], intermediate_size=size["ffn"],
        max_position_embeddings=given.tokens, tie_word_embeddings=True, attn_implementation="sdpa", use_cache=False)
    torch.manual_seed(1)
    is_lora = given.way == "lora"
    # What is not trained need not be in f32.
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if is_lora else torch.float32)
    if is_lora:
        import peft

        names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=names))
    model.train()
    loss_of = torch.compile(model) if given.compile else model
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=device.type == "cuda")
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def step(ids, parts):
        optimizer.zero_grad(set_to_none=True)
        for rows in ids.chunk(parts):
            with torch.autocast(device.type, torch.bfloat16):
                loss = loss_of(input_ids=rows, labels=rows).loss
            (loss / parts).backward()
        optimizer.step()

    ids = torch.randint(256, (given.batch // given.tokens, given.tokens), device=device)
    parts, seconds = min(2, len(ids)), []
    while len(seconds) < WARM_UP + given.steps:
        wait()
        since = time.perf_counter()
        try:
            step(ids, parts)
        except torch.OutOfMemoryError:
            if parts == len(ids):
                raise
            parts, seconds = min(2 * parts, len(ids)), []
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            continue
        wait()
        seconds.append(time.perf_counter() - since)
    said = {"seconds": seconds, "rows": len(ids) // parts, "about": f"torch {torch.__version__}, transformers {transformers.__version__}"}
    if device.type == "cuda":
        said["peak"] = torch.cuda.max_memory_allocated() >> 20
        said["kernels"] = attention_kernels(lambda: step(ids, parts))
    print(json.dumps(said))


def attention_kernels(run):
    """The names of the kernels of attention in a step."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    return sorted(name[:60] for name in names if any(part in name.lower() for part in ("flash", "fmha", "sdpa", "cudnn")))


def power_and_clock():
    """The power of the GPU in watts and the clock of its multiprocessors in MHz, as nvidia-smi tells them now."""
    query = ["nvidia-smi", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[0]
        return tuple(float(number) for number in told.split(","))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return (0.0, 0.0)


def watched(command, limit, is_done=lambda: False, **more):
    """Runs a command until it ends, until `is_done`, or for `limit` seconds. Returns its exit status, 0 if it was done, what it
    printed, its errors, and power and clock at the moment of most power."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=printed, stderr=errors, **more)
        since, most, status = time.monotonic(), (0.0, 0.0), None
        while status is None:
            time.sleep(0.5)
            most = max(most, power_and_clock())
            status = 0 if is_done() else child.poll()
            if status is None and time.monotonic() - since > limit:
                status = "no time was left"
        child.kill()
        child.wait()
        printed.seek(0)
        errors.seek(0)
        return status, printed.read(), errors.read(), "{:.0f} W, {:.0f} MHz".format(*most)


def run_ours(options, limit, model, way, tokens, folder):
    """Tokens a second, and a note."""
    written = {name: f'"{value}"' if isinstance(value, str) else value for name, value in MODELS[model].items()}
    text = CONFIG.format(model="\n".join(f"{name} = {value}" for name, value in written.items()), tokens=tokens,
                         rows=options.batch // tokens // 2, device=options.device, recompute=options.recompute,
                         lora=LORA if way == "lora" else "")
    config, run = pathlib.Path(folder) / "config.toml", pathlib.Path(folder) / "run"
    config.write_text(text)
    wanted = WARM_UP + options.steps

    def rates():
        metrics = run / "metrics.jsonl"
        lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
        return [line["tokens_per_second"] for line in map(json.loads, lines) if "tokens_per_second" in line]

    command = [options.pipewright, "train", config, "--run-dir", run]
    status, _, errors, power = watched(command, limit, lambda: len(rates()) >= wanted)
    if status:
        return None, status if isinstance(status, str) else (errors.strip().splitlines() or ["failed"])[-1]
    measured = rates()[WARM_UP:wanted]
    shutil.rmtree(run)
    return statistics.median(measured), power


def run_theirs(options, limit, model, way, tokens, _):
    command = [sys.executable, __file__, "--worker", "--model", model, "--way", way, "--tokens", str(tokens), "--batch", str(options.batch),
               "--steps", str(options.steps), "--device", options.device] + (["--compile"] if options.compile else [])
    environment = os.environ | {"LD_LIBRARY_PATH": options.peer_library_path}
    status, printed, errors, power = watched(command, limit, env=environment)
    if status:
        return None, status if isinstance(status, str) else (errors.strip().splitlines() or ["failed"])[-1][:120]
    said = json.loads(printed.splitlines()[-1])
    note = f"{power}, {said['about']}, rows {said['rows']}, peak {said.get('peak', '?')} MiB, {', '.join(said.get('kernels', []))}"
    return options.batch // tokens * tokens / statistics.median(said["seconds"][WARM_UP:]), note


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipewright", nargs="?")
    parser.add_argument("--models", nargs="+", default=["llama", "qwen3"], choices=list(MODELS))
    parser.add_argument("--ways", nargs="+", default=["all", "lora"], choices=["all", "lora"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[2048, 8192])
    parser.add_argument("--batch", type=int, default=32768, help="tokens of a step")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--recompute", default="cheap", help="ours")
    parser.add_argument("--compile", action="store_true", help="the peer by torch.compile")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end what runs after these, and leave out the rest")
    parser.add_argument("--peer-library-path", default=os.environ.get("LD_LIBRARY_PATH", ""),
                        help="PyTorch's LD_LIBRARY_PATH, when it is not to have our libraries of CUDA")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        options.tokens = options.tokens[0]
        return theirs(options)
    if options.batch < 2 * max(options.tokens):
        parser.error(f"a step has two micro-batches of {max(options.tokens)} tokens at least: raise --batch")
    since, failed = time.monotonic(), False
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            for tokens in options.tokens:
                for way in options.ways:
                    rates, notes = {"ours": [], "transformers": []}, {}
                    for _ in range(options.rounds):
                        for who, run in [("ours", run_ours), ("transformers", run_theirs)]:
                            left = options.seconds - (time.monotonic() - since)
                            if left < 10:
                                continue
                            shutil.rmtree(pathlib.Path(folder) / "run", ignore_errors=True)
                            rate, notes[who] = run(options, left, model, way, tokens, folder)
                            failed |= rate is None and who == "ours" and time.monotonic() - since < options.seconds
                            rates[who] += [rate] if rate else []
                    medians = {who: statistics.median(each) for who, each in rates.items() if each}
                    for who, note in notes.items():
                        rate = f"{medians[who]:9.0f} tokens/s" if who in medians else "        -"
                        print(f"{NAMES[model]}, {way}, {tokens} tokens, {who:12} {rate}  {note}", flush=True)
                    if len(medians) == 2:
                        print(f"{NAMES[model]}, {way}, {tokens} tokens: {medians['ours'] / medians['transformers']:.2f} times transformers",
                              flush=True)
    sys.exit(failed)


main()
