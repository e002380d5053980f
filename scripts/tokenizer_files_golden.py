#!/usr/bin/env python3
"""Asks transformers what the files beside a tokenizer.json change, and writes its tokens for the tests.

    python3 scripts/tokenizer_files_golden.py > tests/golden/tokenizer/files.json

Needs transformers 5. Each case has parts of tests/golden/tokenizer/tokenizer.json that are replaced, the files beside
it, texts and their tokens.
"""
import json
import pathlib
import tempfile

import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = json.loads((ROOT / "tests/golden/tokenizer/tokenizer.json").read_text())
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}


def word(content, **more):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | more


def split(pattern, behavior="Isolated"):
    steps = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False},
             {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


MARKS = ["a<x>b <x> c", "the <y>king<|im_end|>", "<|endoftext|><pad> z<x><z>"]
LINES = ["the end \nof it\r\n\n  the  ", "½ of Straße, STRASSE; naïve\u0301 k\u212a", "a\u200db c\u3000d\te_f1 ١٢",
         "the king 😀 👩‍👩‍👧 \u00a0x", ""]
PATTERNS = [r"\s+$", r"^[a-z]+", r"\w+|\W", r"[[:alpha:]]+", r"[[:space:]]+", r"(?i)ss", r"\X", r"\R", r"\h+",
            r"(?i:k)", r"[^\p{L}]+", r"\p{Lu}\p{Ll}*", r"\bt", r"(?<=t)h", r"\d+", r".+", r"\s+(?!\S)|\s+",
            r"[\p{L}&&[^a-m]]+", r"(?m)^t", r"\p{Han}|\p{Emoji}", r"e$", r"[[:punct:]]", r"\A.", r".\z|.\Z"]


def cases():
    for pattern in PATTERNS:
        yield f"pattern {pattern}", split(pattern), {"tokenizer_config.json": FAST}, LINES
    def settings(**more):
        return {"tokenizer_config.json": FAST | more}
    beside = {
        "an added token": settings(added_tokens_decoder={"512": word("<x>")}),
        "added tokens are put behind each other": settings(
            added_tokens_decoder={"900": word("<y>"), "513": word("<x>", special=False, lstrip=True)}),
        "other flags": settings(added_tokens_decoder={"2": word("<|im_end|>", lstrip=True, rstrip=True)}),
        "named tokens": settings(pad_token="<pad>", eos_token="<x>", bos_token="<|endoftext|>"),
        "a name of its own": settings(image_token="<y>", unk_token=None),
        "a named token of the vocabulary": settings(eos_token="the"),
        "an object for a name": settings(eos_token={"__type": "AddedToken"} | word("<x>", rstrip=True)),
        "additional": settings(additional_special_tokens=["<x>", "<y>"]),
        "extra": settings(extra_special_tokens=["<x>", "<y>"], additional_special_tokens=["<z>"]),
        "extra is empty": settings(extra_special_tokens=[], additional_special_tokens=["<z>"]),
        "extra with names": settings(extra_special_tokens={"x_token": "<x>"}),
        "an older map": settings() | {"special_tokens_map.json": {"pad_token": "<x>"}},
        "the map counts more": settings(pad_token="<y>") | {"special_tokens_map.json": {"pad_token": "<x>"}},
        "no map beside a decoder": settings(added_tokens_decoder={"512": word("<y>")})
        | {"special_tokens_map.json": {"pad_token": "<x>"}},
        "a map of objects": settings() | {"special_tokens_map.json": {"pad_token": {"content": "<x>", "lstrip": True}}},
        "an older list": settings(pad_token="<x>") | {"added_tokens.json": {"<x>": 513, "<y>": 512}},
        "an older list beside a decoder": settings(added_tokens_decoder={"512": word("<z>")})
        | {"added_tokens.json": {"<x>": 513, "<y>": 512}},
        "special tokens are text": settings(split_special_tokens=True),
        "own names in their order": settings(z_token="<z>", image_token="<y>", a_token="<x>"),
        "extra with names in their order": settings(extra_special_tokens={"zz": "<z>", "aa": "<x>"}),
        "older lists in both": settings(additional_special_tokens=["<x>"])
        | {"special_tokens_map.json": {"additional_special_tokens": ["<y>"]}},
        "newer lists in both": settings(extra_special_tokens=["<x>"])
        | {"special_tokens_map.json": {"extra_special_tokens": ["<y>"]}},
        "an empty list beside an older one": settings(extra_special_tokens=[])
        | {"special_tokens_map.json": {"additional_special_tokens": ["<y>"]}},
        "an older list in the map only": settings()
        | {"special_tokens_map.json": {"additional_special_tokens": ["<y>"]}},
        "an object of a list": settings(split_special_tokens=True,
                                        extra_special_tokens=[{"__type": "AddedToken"} | word("<x>", special=False)]),
        "a number that is taken": settings() | {"added_tokens.json": {"<x>": 1}},
        "defaults of a class": settings(tokenizer_class="Qwen2Tokenizer"),
        "a class and an empty name": settings(tokenizer_class="Qwen2Tokenizer", unk_token=None, eos_token="<x>"),
        "only a map": {"special_tokens_map.json": {"pad_token": "<x>", "eos_token": "<|endoftext|>"}},
    }
    for name, files in beside.items():
        yield name, {}, files, MARKS
    padded = {"padding": SMALL["padding"] | {"strategy": "BatchLongest"}}
    for name, more in [("the padding token", {}), ("another padding token", {"pad_token": "<x>"}),
                       ("no padding token", {"pad_token": None})]:
        yield name, padded, settings(**more), ["a[PAD]b <x>"]
    usual = [token | {"special": token["content"] != "<|im_end|>"} for token in SMALL["added_tokens"]]
    yield "a name makes special", {"added_tokens": usual}, settings(split_special_tokens=True,
                                                                   eos_token="<|im_end|>"), MARKS


def tokens(patch, files, texts):
    # transformers changes what it is given.
    files = json.loads(json.dumps(files))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tokenizer.json").write_text(json.dumps(SMALL | {"truncation": None, "padding": None} | patch))
        for name, value in files.items():
            (folder / name).write_text(json.dumps(value))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return [tokenizer(text).input_ids for text in texts]


def main():
    made = []
    for name, patch, files, texts in cases():
        ids = tokens(patch, files, texts)
        made.append(dict(name=name, patch=patch, files={file: json.dumps(value) for file, value in files.items()},
                         texts=[[text, of] for text, of in zip(texts, ids)]))
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in made)
    print(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
