#!/usr/bin/env python3
"""Makes the small Parquet files of tests/golden/parquet. Needs: pip install pyarrow."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "parquet"
TEXTS = [f"Line {number}: hear me speak, naïve 😀." for number in range(12)]
CHATS = [
    [{"role": "user", "content": f"And {number}?"}, {"role": "assistant", "content": f"{number} it is."}]
    for number in range(12)
]


def main():
    OUT.mkdir(exist_ok=True)
    table = pa.table({
        "id": pa.array(range(12)),
        "text": TEXTS,
        "messages": CHATS,
        "raw": pa.array([text.encode() for text in TEXTS]),
        "holes": ["one", "two", None] + TEXTS[3:],
    })
    for codec in ["snappy", "zstd", "gzip", "lz4", "brotli", "none"]:
        pq.write_table(table, OUT / f"{codec}.parquet", compression=codec, row_group_size=5)
    prompts = pa.table({"prompt": TEXTS, "completion": [f" {number} it is." for number in range(12)]})
    pq.write_table(prompts, OUT / "prompts.parquet")
    tools = pa.table({"messages": CHATS, "tools": [["add"]] * 12})
    pq.write_table(tools, OUT / "tools.parquet")


if __name__ == "__main__":
    main()
