#!/usr/bin/env python3
"""Trains adapters of a small Llama in 4 bits by PEFT and bitsandbytes, and keeps it in tests/golden/qlora.

    python3 scripts/qlora_golden.py

Needs torch, transformers, peft and bitsandbytes (0.46 or later, which computes on CPUs). Writes model/ (the weights in
bf16, before they are rounded), start/ and trained/ (the adapters before and after the training) and golden.safetensors
(batches x, y, and the loss of each step). The base is NF4 without double quantisation, products are in f32, and AdamW
trains adapters of all linear layers but the head. One token in two is the usual one after the token before it, so
there is something to learn. Prints the losses of the same training without rounding too.
"""
import json
import pathlib
import shutil

import peft
import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/qlora"
STEPS, ROWS, TIME, VOCAB, RATE = 50, 4, 16, 32, 1e-2
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tokens():
    """Rows of a chain: after each token there are three, one of them half of the time."""
    following = torch.randint(VOCAB, (VOCAB, 3))
    ids = torch.randint(VOCAB, (STEPS, ROWS, TIME + 1))
    which = torch.tensor([0, 0, 1, 2])[torch.randint(4, ids.shape)]
    for place in range(TIME):
        ids[..., place + 1] = following[ids[..., place], which[..., place]]
    return ids[..., :-1].contiguous(), ids[..., 1:].contiguous()


def base(**settings):
    return transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER / "model", dtype=torch.float32, attn_implementation="eager", device_map="cpu", **settings)


def adapted(model):
    return peft.PeftModel.from_pretrained(model, FOLDER / "start", is_trainable=True).train()


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    described = folder / "adapter_config.json"
    about = json.loads(described.read_text()) | {"base_model_name_or_path": None, "target_modules": LAYERS}
    described.write_text(json.dumps(about, indent=2) + "\n")


def trained(model, x, y):
    weights = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.01)
    losses = []
    for x, y in zip(x, y):
        logits = model(x, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(11)
    shutil.rmtree(FOLDER, ignore_errors=True)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.1,
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(FOLDER / "model")
    (FOLDER / "model/generation_config.json").unlink(missing_ok=True)
    settings = peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", target_modules=LAYERS)
    save(peft.get_peft_model(base(), settings), FOLDER / "start")
    x, y = tokens()
    wide = trained(adapted(base()), x, y)
    rounded = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=False,
        bnb_4bit_compute_dtype=torch.float32)
    model = adapted(base(quantization_config=rounded))
    kinds = {type(part).__name__ for name, part in model.named_modules() if name.endswith("base_layer")}
    assert kinds == {"Linear4bit"}, kinds
    losses = trained(model, x, y)
    save(model, FOLDER / "trained")
    save_file({"x": x, "y": y, "losses": torch.tensor(losses)}, FOLDER / "golden.safetensors")
    for file in FOLDER.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    for step in [*range(0, STEPS, 10), STEPS - 1]:
        print(f"step {step}: {losses[step]:.5f}, without rounding {wide[step]:.5f}")


main()
