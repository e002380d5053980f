#!/usr/bin/env python3
"""Makes the small tokenizer of tests/golden, and what Python's `tokenizers` encodes with it.

A byte-level BPE of 512 tokens, with the pre-tokenizer and the normalizer of Qwen 2.5, trained on the text in
src/data/builtin. Needs: pip install tokenizers. The result is the same every time.

    scripts/make_tokenizer.py
"""

import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import __version__

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "golden" / "tokenizer"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "",
    "First Citizen:\nBefore we proceed any further, hear me speak.",
    "  two spaces,\ttabs\n\n\nand    lines   \n",
    "It's 1234567 o'clock; they'LL see.",
    "naïve café, cafe\u0301, Ünïcödé",
    "日本語のテキスト and русский",
    "😀 👩‍👩‍👧 \u00a0 ends with a space ",
    "one<|endoftext|>two <|im_start|>user\nhi<|im_end|>\n",
    "def f(x):\n    return x ** 2  # {}[]\\\"\r\n",
    "\u0000\u007f",
]
CHATS = [
    [("user", "What is the capital?"), ("assistant", "Rome.")],
    [("system", "Be short."), ("user", "Hi"), ("assistant", "\n\nHello 😀 "), ("user", "Bye"), ("assistant", "")],
]


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(ROOT / "src" / "data" / "builtin" / "shakespeare.txt")], trainer)
    # Both are ignored by Pipewright: a file may have them, and texts must not be cut for it.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=32)
    return tokenizer


def chat(tokenizer, messages):
    """The text of a chat as ChatML, its tokens, and which of them are of an answer."""
    text, answers = "", []
    for role, content in messages:
        text += f"<|im_start|>{role}\n"
        start = len(text)
        text += f"{content}<|im_end|>"
        if role == "assistant":
            answers.append((start, len(text)))
        text += "\n"
    encoded = tokenizer.encode(text, add_special_tokens=False)
    of_answer = [any(start >= a and end <= b for a, b in answers) for start, end in encoded.offsets]
    return {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "text": text,
        "tokens": encoded.ids,
        "of_answer": of_answer,
    }


def main():
    OUT.mkdir(exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(OUT / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    golden = {
        "made_by": f"scripts/make_tokenizer.py, tokenizers {__version__}",
        "vocabulary": tokenizer.get_vocab_size(),
        "texts": [
            {"text": text, "tokens": tokens, "decoded": tokenizer.decode(tokens, skip_special_tokens=False)}
            for text, tokens in zip(TEXTS, encoded)
        ],
        "chats": [chat(tokenizer, messages) for messages in CHATS],
    }
    (OUT / "encoded.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
