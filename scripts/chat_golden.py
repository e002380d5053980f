#!/usr/bin/env python3
"""Asks transformers what the templates in tests/golden/chats write, and keeps it for the tests.

    python3 scripts/chat_golden.py > tests/golden/chats/written.json

Needs transformers 5 and jinja2. Each NAME.jinja there is ours, and uses what the templates of a family of models use.
A case has a template, a chat, and the text or the refusal. `masks` are the tokens of a chat for the templates that mark
answers, and which of the tokens are of an answer.
"""
import datetime
import json
import pathlib

import transformers
from transformers.utils import chat_template_utils

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
FOLDER = GOLDEN / "chats"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
NOW = datetime.datetime(2026, 3, 7, 9, 5, 4)

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather <now> & later: \"it's\" été 日本. ",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Where"},
        "days": {"type": ["integer", "null"], "default": 3, "minimum": 0.5},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "at": {"type": "array", "items": {"type": "object", "properties": {
            "x": {"type": "number", "default": 0.25}, "a": {"type": "boolean", "default": True}},
            "required": ["x"]}}}, "required": ["place"]}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}, "required": []}}}


def user(content):
    return {"role": "user", "content": content}


def answer(content, **more):
    return {"role": "assistant", "content": content} | more


def call(name, number, **arguments):
    return {"type": "function", "id": number, "function": {"name": name, "arguments": arguments}}


def result(content, number="abcdef123"):
    return {"role": "tool", "tool_call_id": number, "content": content}


RULES = {"role": "system", "content": " Be brief. \n"}
CALLED = [user("How is it in Zürich?"),
          answer(None, tool_calls=[call("weather", "abcdef123", place="Zürich <'&\">", days=None, at=[
              {"x": 1.0, "a": True}, {"x": 1e22}, {"x": 1e-07, "z": [], "y": {}}])]),
          result('{"sky": "grey", "°C": 7}')]
TWO_CALLS = [user("Two?"), answer("Both:", tool_calls=[call("weather", "abcdef123", place="Bern"), call("clock", "a")]),
             result("7\n"), result("noon", "a")]
CHATS = [
    {"messages": [user("  Why is the sky <blue> & \"x\"? é日\n")]},
    {"messages": [RULES, user("Hi")]},
    {"messages": [user("Hi"), answer(" Hello \n"), user("a\r\nb"), answer("<think>\nhm\n</think>\n\nb")]},
    {"messages": [RULES, user("Hi"), answer("Hello", reasoning_content="\nso it is\n"), user("And?"),
                  answer("So.", thinking="thus")]},
    {"messages": [user("a"), user("b")]},
    {"messages": [answer("I begin.")]},
    {"messages": [{"role": "developer", "content": "Rules."}, user("Hi")]},
    {"messages": [user([{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "it? "}])]},
    {"messages": [RULES, *CALLED], "tools": [WEATHER, CLOCK]},
    {"messages": [*CALLED, answer("Grey."), user("Thanks"), answer("You are welcome.")], "tools": [WEATHER]},
    {"messages": TWO_CALLS, "tools": [CLOCK]},
    {"messages": CALLED[:2], "tools": [CLOCK]},
    {"messages": [user("What do they say?")], "documents": [
        {"title": "One", "text": "first <x>", "doc_id": 7}, {"title": "Two", "text": "second", "more": 0.5}]},
    {"messages": [user("Fast?")], "settings": {
        "enable_thinking": False, "reasoning_effort": "low", "date_string": "1 May 2020",
        "controls": {"length": "short", "originality": None}}},
    {"messages": [user("Slow?")], "settings": {"enable_thinking": True}},
    {"messages": [user("Why?"), answer("So.", reasoning_content="thus")]},
]
# Small templates, each for something of Python.
EXPRESSIONS = [
    '{{ "s" is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ [] is sequence }}',
    '{{ "a-b-c".rsplit("-", 1) }} {{ "a-b-c".rsplit("-") }} {{ "a b  c".split() }} {{ "a,b,,c".split(",") }}',
    '{{ "abc".removeprefix("a") }} {{ "abc".removeprefix("b") }} {{ "abc".removesuffix("c") }}',
    '{{ "a=b=c".partition("=") | join("|") }} {{ "a=b=c".rpartition("=") | join("|") }}',
    '{{ "ab".partition("=") | join("|") }} {{ "ab".rpartition("=") | join("|") }}',
    '{{ "  x ".strip() }}|{{ "xxaxx".strip("x") }}|{{ "ab".rstrip("b") }}|{{ "Ab".lower() }}|{{ "a b".title() }}',
    '{{ true }} {{ none }} {{ 1.0 }} {{ [1, "a", none, true] }} {{ {"k": "it\'s"} }} {{ 6 / 2 }} {{ 7 // 2 }}',
    '{{ "a" ~ 1 ~ none ~ true ~ 1.0 ~ [1] }}',
    '{{ [1e22, 1e16, 123456.5, 1e-7, 5e-5, 0.0001, -0.0, 12345678901234567890] | tojson }}',
    '{{ {"b": {"d": 1, "c": [2, {"z": 0, "y": 1}]}, "a": 2} | tojson(sort_keys=true, indent="--") }}',
    '{{ "é\U0001f600\x7f\n" | tojson(ensure_ascii=true) }} {{ "é\U0001f600\x7f\n</a>" | tojson }}',
    '{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ [[], {}] | tojson(indent=0) }}',
    '{{ undefined_thing }}{{ messages[5] is defined }}{{ messages[5] }}',
    '{{ nothing | tojson }}',
    '{% if messages %}\r\nyes\r\n{% endif %}\r\nno',
    '{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}',
    '{% macro f(a, b="x") %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}',
    '{{ "<a href=\'x\'>&\\"" | e }} {{ "<b>" | safe }}',
]

LEARNT = [RULES, user("Hi"), answer(" Hello, you. "), user("the end?"), answer("It is the end.")]


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def case(source, chat):
    asks = chat["messages"][-1]["role"] != "assistant"
    messages = chat_template_utils._normalize_chat_messages(json.loads(json.dumps(chat["messages"])))
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, tools=chat.get("tools"), documents=chat.get("documents"),
            add_generation_prompt=asks, **SPECIAL | chat.get("settings", {}))
    except Exception as error:
        return {"refused": str(error)}
    return {"text": texts[0]}


def mask(tokenizer, path):
    encoded = tokenizer.apply_chat_template(LEARNT, chat_template=path.read_text(encoding="utf-8"), return_dict=True,
                                            return_assistant_tokens_mask=True)
    return {"template": path.name, "ids": encoded["input_ids"], "answers": encoded["assistant_masks"]}


def main():
    chat_template_utils.datetime = Fixed
    lines = []
    for path in sorted(FOLDER.glob("*.jinja")):
        # As transformers reads it: line breaks of Windows become "\n".
        source = path.read_text(encoding="utf-8")
        for number, chat in enumerate(CHATS):
            lines.append(json.dumps({"template": path.name, "chat": number} | case(source, chat), ensure_ascii=False))
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / "tokenizer")
    marking = [path for path in sorted(FOLDER.glob("*.jinja")) if "endgeneration" in path.read_text(encoding="utf-8")]
    masks = ",\n".join(json.dumps(mask(tokenizer, path)) for path in marking)
    chats = ",\n".join(json.dumps(chat, ensure_ascii=False) for chat in CHATS)
    expressions = ",\n".join(
        json.dumps([source, case(source, CHATS[0]).get("text")], ensure_ascii=False) for source in EXPRESSIONS)
    print(f'{{"transformers": "{transformers.__version__}", "now": "{NOW.isoformat()}", '
          f'"special": {json.dumps(SPECIAL)},\n"chats": [\n{chats}\n],\n"cases": [\n' + ",\n".join(lines)
          + f'\n],\n"learnt": {json.dumps(LEARNT)},\n"masks": [\n{masks}\n],'
          + f'\n"expressions": [\n{expressions}\n]}}')


if __name__ == "__main__":
    main()
