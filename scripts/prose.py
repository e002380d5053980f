#!/usr/bin/env python3
"""Counts phrases after which a reader goes back and reads the sentence again. They are listed in PHRASES.

    scripts/prose.py                     all files of the repository
    scripts/prose.py --since main        only files that differ from a revision of git
    scripts/prose.py README.md src/*.rs  only these files

It reads comments of Rust, C, CUDA, Python, shell scripts, TOML and YAML, and the text of Markdown. Code, strings and
blocks of code are left out. It prints the counts of each folder, and the first places if there are too many. It ends
with 1 if all files together have more than 8 phrases in 10,000 words. Files of fewer than 2,000 words may have 1.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PHRASES = ["that of", "those of", "of which", "of whose", "so many", "whoever", "by so much"]
PATTERN = re.compile(r"\b(?:" + "|".join(PHRASES).replace(" ", r"\s+") + r")\b", re.IGNORECASE)
WORD = re.compile(r"[^\W\d_][\w'’-]*")
ALLOWED = 8 / 10_000
SHOWN = 20

# One alternative matches a string, which hides what looks like a comment inside it; the group is the comment.
SLASHES = re.compile(
    r"""r(?P<hashes>\#+)".*?"(?P=hashes) | "(?:\\.|[^"\\])*" | '(?:\\[^\n']*.|[^'\\\n])'
    | (?P<comment>//[^\n]* | /\*.*?\*/)""",
    re.DOTALL | re.VERBOSE,
)
HASHES = re.compile(
    r"""(?P<comment>^[ ]*\"{3}.*?\"{3}) | \"{3}.*?\"{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | (?:^|(?<=\s))(?P<line>\#[^\n]*)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
COMMENTS = {".rs": SLASHES, ".c": SLASHES, ".h": SLASHES, ".cpp": SLASHES, ".cu": SLASHES, ".js": SLASHES}
COMMENTS |= {".py": HASHES, ".sh": HASHES, ".toml": HASHES, ".yaml": HASHES, ".yml": HASHES, ".md": None}
MARKS = re.compile(r"^\s*(?://[/!]?|\#+|/?\*+(?!\*))", re.MULTILINE)


def blank(text):
    """Spaces in the place of a text, with its line breaks."""
    return re.sub(r"[^\n]", " ", text)


def prose(path):
    """The text of a file, with spaces in the place of everything that is not prose."""
    text = path.read_text(errors="replace")
    pattern = COMMENTS[path.suffix]
    if pattern:
        parts, end = [], 0
        for match in pattern.finditer(text):
            comment = match.group("comment") or match.groupdict().get("line") or ""
            start = match.end() - len(comment)
            parts += [blank(text[end:start]), MARKS.sub(lambda mark: blank(mark[0]), comment)]
            end = match.end()
        text = "".join(parts) + blank(text[end:])
    return re.sub(r"^\s*```.*?^\s*```", lambda block: blank(block[0]), text, flags=re.DOTALL | re.MULTILINE)


def places(path):
    """The number of words of a file, and the line and the part of the sentence of each phrase."""
    words, found, line = 0, [], 1
    # A line without prose ends a block: a phrase does not go on after it.
    for block in re.split(r"(\n[ ]*(?=\n))", prose(path)):
        words += len(WORD.findall(block))
        for match in PATTERN.finditer(block):
            before = re.split(r"[.:;|]\s", block[: match.start()])[-1]
            after = re.split(r"[.:;|]\s", block[match.end() :])[0]
            part = " ".join((before + match[0] + after).split())
            found.append((line + block.count("\n", 0, match.start()), part))
        line += block.count("\n")
    return words, found


def tracked(since):
    """The files of the repository, or those that differ from a revision."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", since, "--"] if since else ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        sys.exit(2)
    return [ROOT / line for line in listed.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="The phrases: " + ", ".join(PHRASES) + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="files to read (default: the repository)")
    parser.add_argument("--since", metavar="REV", help="without files: read only what differs from this git revision")
    parser.add_argument("--list", action="store_true", help="print every place, also when there are few")
    options = parser.parse_args()
    missing = [str(path) for path in options.files if not path.is_file()]
    if missing:
        parser.error("no such file: " + ", ".join(missing))

    words, counts, lines = collections.Counter(), collections.Counter(), []
    for path in options.files or tracked(options.since):
        if path.suffix not in COMMENTS or not path.is_file():
            continue
        path = path.resolve()
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        total, found = places(path)
        words[name.parts[0]] += total
        counts[name.parts[0]] += len(found)
        lines += [f"{name}:{line}: {part}" for line, part in found]

    too_many = len(lines) > max(1, ALLOWED * words.total())
    for line in lines if options.list else lines[: SHOWN if too_many else 0]:
        print(line)
    for folder, count in sorted(counts.items()) + [("all", len(lines))]:
        number = words.total() if folder == "all" else words[folder]
        print(f"{folder:16} {count:5} in {number:7} words, {10_000 * count / max(1, number):5.1f} in 10,000")
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
