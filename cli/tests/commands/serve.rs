//! Requests to `pipewright serve`, as programs send them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::talk::trained;
use super::*;

/// A server. It ends with the test.
struct Server {
    child: Child,
    address: String,
}

/// An answer: its status, its head and its body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    #[track_caller]
    fn done(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    /// The message of a refusal with this status.
    #[track_caller]
    fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The events of a stream.
    fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }
}

impl Server {
    fn new(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["serve", "runs/chat", "--listen", "0"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Self { address: address.unwrap_or_else(|| panic!("{said}")).to_owned(), child }
    }

    /// Sends a request and does not wait for the answer.
    fn send(&self, method: &str, path: &str, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = if head.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{head}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> Answer {
        let mut all = String::new();
        // A server that refuses a large body closes early.
        let _ = self.send(method, path, head, body).read_to_string(&mut all);
        let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, JSON, &body.to_string())
    }

    /// The answer in a chat, with these fields of the request too.
    fn chat(&self, messages: &Value, more: &Value) -> Answer {
        let body = json!({"model": "chat", "temperature": 0, "messages": messages});
        self.post("/v1/chat/completions", &with(&body, more))
    }

    fn complete(&self, prompt: &Value, more: &Value) -> Answer {
        let body = json!({"model": "chat", "temperature": 0, "prompt": prompt});
        self.post("/v1/completions", &with(&body, more))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn user(content: &str) -> Value {
    json!([{"role": "user", "content": content}])
}

#[test]
fn a_chat_is_answered_whole_and_as_a_stream() {
    let server = Server::new(&trained(), &[]);
    let answer = server.chat(&user("Colour?"), &json!({})).done();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "chat");
    let choice = json!({"index": 0, "finish_reason": "stop", "logprobs": null,
        "message": {"role": "assistant", "content": "Blue and grün 日.", "refusal": null}});
    assert_eq!(answer["choices"], json!([choice]));
    let usage = &answer["usage"];
    let [read, written, all] =
        ["prompt_tokens", "completion_tokens", "total_tokens"].map(|key| usage[key].as_u64().unwrap());
    assert!(read > 0 && written > 0 && read + written == all, "{usage}");
    // A conversation, parts of text, and a field that is null.
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
        {"role": "assistant", "content": "Hi there!", "tool_calls": null},
        {"role": "user", "content": "Bye"},
    ]);
    let answer = server.chat(&messages, &json!({"user": "me", "n": 1, "stop": null})).done();
    assert_eq!(answer["choices"][0]["message"]["content"], "Good bye.");
    let stream =
        server.chat(&user("Colour?"), &json!({"stream": true, "stream_options": {"include_usage": true}}));
    has(&stream.head, &["HTTP/1.1 200", "text/event-stream"]);
    let (last, events) = stream.events().split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    assert_eq!(last, "[DONE]");
    let events: Vec<Value> = events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Blue and grün 日.");
    assert!(events.len() > 6, "it comes in parts");
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
    );
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        (&events[events.len() - 1]["choices"], &events[events.len() - 1]["usage"]),
        (&json!([]), usage)
    );
}

#[test]
fn texts_are_completed_for_prompts_of_every_form() {
    let place = trained();
    let server = Server::new(&place, &["--name", "chat"]);
    let tokenizer = pipewright::tokenizer::Tokenizer::read(Path::new(TOKENIZER)).unwrap();
    let prompt = "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n";
    let tokens = tokenizer.encode(prompt).unwrap();
    let sampled = place
        .run(&["sample", "runs/chat", "--prompt", prompt, "--temperature", "0", "--tokens", "5"])
        .done()
        .stdout();
    let whole = server.complete(&json!(prompt), &json!({"max_tokens": 5, "echo": true})).done();
    assert_eq!(format!("{}\n", whole["choices"][0]["text"].as_str().unwrap()), sampled);
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["finish_reason"]),
        (&json!("text_completion"), &json!("length"))
    );
    let several = server.complete(&json!([prompt, "Hello"]), &json!({"stop": [" two", "x"]})).done();
    assert_eq!(
        (several["choices"][0]["text"].clone(), several["choices"][1]["index"].clone()),
        (json!("one"), json!(1))
    );
    assert_eq!(several["choices"][0]["finish_reason"], "stop");
    for form in [json!(tokens), json!([tokens])] {
        let answer = server.complete(&form, &json!({"stop": " two"})).done();
        assert_eq!(answer["choices"][0]["text"], "one");
    }
    let stream = server.complete(&json!(prompt), &json!({"stream": true, "stop": " three"}));
    let events = stream.events();
    let text = |event: &&str| {
        let event: Value = serde_json::from_str(event).ok()?;
        event["choices"][0]["text"].as_str().map(str::to_owned)
    };
    assert_eq!(events.iter().filter_map(text).collect::<String>(), "one two");
}

#[test]
fn probabilities_are_those_of_the_model_for_what_is_read_and_for_what_is_written() {
    let server = Server::new(&trained(), &[]);
    let prompt = "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\none two";
    let more = json!({"max_tokens": 1, "echo": true, "logprobs": 2});
    let answer = server.complete(&json!([prompt, "Hello"]), &more).done();
    let scored = &answer["choices"][0]["logprobs"];
    let list = |key: &str| scored[key].as_array().unwrap().clone();
    let (logs, tokens, likely) = (list("token_logprobs"), list("tokens"), list("top_logprobs"));
    assert_eq!((logs[0].clone(), likely[0].clone()), (Value::Null, Value::Null));
    let text: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(json!(text), answer["choices"][0]["text"]);
    assert!(text.starts_with(prompt) && text.len() > prompt.len(), "{text}");
    assert!(logs.len() == tokens.len() && logs.len() == likely.len());
    for (log, likely) in logs.iter().zip(&likely).skip(1) {
        let (log, best) = (log.as_f64().unwrap(), likely.as_object().unwrap().values());
        let best = best.map(|log| log.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
        assert!(log <= best && best <= 0.0 && likely.as_object().unwrap().len() <= 3);
    }
    // What the model has learnt is likely, and what comes out of nothing is not.
    assert!(logs[logs.len() - 1].as_f64().unwrap() > -0.5 && logs[1].as_f64().unwrap() < -1.0, "{logs:?}");
    let of_chat = server.chat(&user("Count"), &json!({"logprobs": true, "top_logprobs": 2})).done();
    let content = of_chat["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(
        (content[0]["token"].clone(), content[0]["top_logprobs"].as_array().unwrap().len()),
        (json!("one"), 2)
    );
    // The probability of the same token in the same place, read or written.
    let written = content[1]["logprob"].as_f64().unwrap();
    let read = logs[logs.len() - 2].as_f64().unwrap();
    assert!((written - read).abs() < 1e-3, "{written} {read}");
}

#[test]
fn the_seed_chooses_and_without_one_answers_differ() {
    let server = Server::new(&trained(), &[]);
    let text = |more: Value| {
        let more = with(&json!({"temperature": 2, "max_tokens": 20}), &more);
        server.complete(&json!("a"), &more).done()["choices"][0]["text"].clone()
    };
    assert_eq!(text(json!({"seed": -3})), text(json!({"seed": -3})));
    assert_ne!(text(json!({"seed": 3})), text(json!({"seed": 4})));
    assert_ne!(text(json!({})), text(json!({})));
    let likeliest = text(json!({"temperature": 0}));
    assert_eq!(text(json!({"top_k": 1})), likeliest);
    assert_eq!(text(json!({"top_p": 0.0001})), likeliest);
}

#[test]
fn what_would_change_the_answer_and_is_not_done_is_refused() {
    let server = Server::new(&trained(), &[]);
    let chat = |more: Value| server.chat(&user("Hello"), &more).refused(400);
    for (more, said) in [
        (json!({"tools": 1}), "tools: it is 1, and a list was expected"),
        (
            json!({"tools": [{"type": "function"}]}),
            "tools: number 1 is {\"type\":\"function\"}, and {\"type\": \"function\", \"function\": {\"nam",
        ),
        (json!({"tools": [tool("sky")]}), "tools: this model's template does not write them"),
        (
            json!({"tool_choice": "required"}),
            "tool_choice: it is \"required\", and this server can only do \"auto\" and \"none\": leave",
        ),
        (json!({"n": 2}), "n: it is 2, and this server can only do 1: leave it out"),
        (
            json!({"response_format": {"type": "json_object"}}),
            "response_format: it is {\"type\":\"json_object\"}",
        ),
        (json!({"frequency_penalty": 0.5}), "frequency_penalty: it is 0.5"),
        (json!({"logit_bias": {"5": 1}}), "logit_bias: it is {\"5\":1}"),
        (json!({"reasoning_effort": "low"}), "reasoning_effort: this server does not know it, and it may"),
        (json!({"temperature": 3}), "temperature: it is 3, and 0 to 2 was expected"),
        (json!({"temperature": "hot"}), "temperature: it is \"hot\", and a number was expected"),
        (json!({"top_p": 0}), "top_p: it is 0, and more than 0 up to 1 was expected"),
        (json!({"top_k": 0}), "top_k: it is 0, and 1 or more was expected"),
        (json!({"max_tokens": -1}), "max_tokens: it is -1, and a whole number, 0 or more was expected"),
        (json!({"max_tokens": 4000}), "4000 more are asked for, and the model's context is 2048: ask for 20"),
        (json!({"stop": [""]}), "stop: a text, or up to 16 of them, was expected"),
        (json!({"seed": 0.5}), "seed: it is 0.5, and a whole number was expected"),
        (json!({"stream_options": {}}), "stream_options: it is only for streams"),
        (json!({"stream": true, "logprobs": true}), "logprobs: it is not told while a text is written"),
        (json!({"top_logprobs": 3}), "top_logprobs: it needs logprobs: true"),
        (
            json!({"logprobs": true, "top_logprobs": 99}),
            "top_logprobs: it is 99, and 20 at most was expected",
        ),
        (json!({"messages": []}), "messages: a list of one message or more was expected"),
        (json!({"messages": ["a"]}), "the chat has a message 1 that is no object"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages: the chat has a part that is no text in message 1: only text is read",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages: the chat has no \"content\" in message 1; a message is such as",
        ),
        (json!({"messages": [{"content": "Hi"}]}), "messages: the chat has no \"role\" in message 1"),
        (json!({"model": null}), "model: it is missing"),
    ] {
        has(&chat(more), &[said]);
    }
    let complete = |prompt: Value, more: Value| server.complete(&prompt, &more).refused(400);
    has(
        &complete(json!("a"), json!({"suffix": "b"})),
        &["suffix: it is \"b\", and this server can only do \"\""],
    );
    has(&complete(json!("a"), json!({"best_of": 2})), &["best_of: it is 2"]);
    has(
        &complete(json!({"a": 1}), json!({})),
        &["prompt: a text, a list of texts, a list of tokens, or a list"],
    );
    has(&complete(json!([[1, -2]]), json!({})), &["prompt: a text, a list of texts"]);
    has(&complete(json!([512]), json!({})), &["token 512 is outside the model's vocabulary of 512"]);
    has(&complete(json!(""), json!({})), &["the prompt: it is empty"]);
    let empty = server.complete(&json!(""), &json!({})).json()["error"].clone();
    assert_eq!((&empty["code"], &empty["param"]), (&json!(null), &json!("prompt")));
    has(&complete(json!(["a", "b"]), json!({"stream": true})), &["prompt: one text can be streamed"]);
    has(&complete(json!("a "), json!({"max_tokens": 5000})), &["5000 more are asked for"]);
    let long = server.complete(&json!(vec![3; 3000]), &json!({}));
    has(
        &long.refused(400),
        &["it has 3000 tokens, and the model's context is 2048: shorten it by 952 or more"],
    );
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
    let other = server.post("/v1/completions", &json!({"model": "gpt-9", "prompt": "a"}));
    assert_eq!(other.refused(404), "the model `gpt-9` is not served here, only `chat`");
    assert_eq!(other.json()["error"]["code"], "model_not_found");
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

/// A template in the form of Hermes and Qwen.
const TOOLS: &str = "\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{\"name\": {{ call.function.name | tojson }}, \"arguments\": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}";

/// A question, the call that answers it, with arguments as OpenAI has them or as templates have them, what
/// the tool says, and the answer.
fn talk_of_the_sky(arguments: &Value) -> Vec<Value> {
    let call = json!({"id": "a", "type": "function", "function": {"name": "sky", "arguments": arguments}});
    vec![
        json!({"role": "user", "content": "Sky?"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "a", "content": "grey"}),
        json!({"role": "assistant", "content": "Grey."}),
    ]
}

#[test]
fn a_model_that_is_shown_tools_calls_them() {
    let place = Place::new();
    std::fs::create_dir(place.path("words")).unwrap();
    let tokenizer = std::fs::read_dir(TOKENIZER).unwrap().map(|file| file.unwrap().path());
    for file in tokenizer.filter(|path| path.is_file()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        place.write(&format!("words/{name}"), std::fs::read_to_string(file).unwrap());
    }
    place.write("words/chat_template.jinja", TOOLS);
    let config = super::talk::CHATS.replace("TOKENIZER", "words").replace("seq = 64", "seq = 192");
    place.write("chats.toml", config.replace("steps = 60", "steps = 120"));
    let sky = json!({"tools": [tool("sky")], "messages": talk_of_the_sky(&json!({"at": "Rome"}))});
    let plain = json!({"messages": [
        {"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "I do not know <tool."},
    ]});
    place.write("chats.jsonl", format!("{sky}\n{plain}\n").repeat(8));
    place.run(&["train", "chats.toml"]).done();
    let server = Server::new(&place, &[]);
    let tools = json!({"tools": [tool("sky")]});
    let answer = server.chat(&user("Sky?"), &with(&tools, &json!({"tool_choice": "auto"}))).done();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let function = json!({"name": "sky", "arguments": "{\"at\":\"Rome\"}"});
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]), (&json!("function"), &function));
    assert!(call["id"].as_str().unwrap().starts_with("call-"), "{call}");
    // What is answered to the tool. Its message and the call go back as OpenAI's clients send them.
    let mut talk = talk_of_the_sky(&json!("{\"at\": \"Rome\"}"));
    talk.truncate(3);
    let answer = server.chat(&json!(talk), &tools).done();
    assert_eq!(answer["choices"][0]["message"]["content"], "Grey.");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    // Without tools, and with tools that are not shown.
    for more in [json!({}), with(&tools, &json!({"tool_choice": "none"}))] {
        let answer = server.chat(&user("Sky?"), &more).done();
        assert_eq!(answer["choices"][0]["message"]["content"], "I do not know <tool.", "{more}");
    }
    // A call that is cut off is text.
    let cut = server.chat(&user("Sky?"), &with(&tools, &json!({"max_tokens": 3}))).done();
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert!(cut["choices"][0]["message"]["content"].as_str().unwrap().starts_with('<'), "{cut}");
    let stream = server.chat(&user("Sky?"), &with(&tools, &json!({"stream": true})));
    let events = stream.events();
    let events = events[..events.len() - 1].iter().map(|event| serde_json::from_str::<Value>(event).unwrap());
    let deltas: Vec<Value> = events.map(|event| event["choices"][0].clone()).collect();
    assert_eq!(deltas.len(), 3, "{deltas:?}");
    assert_eq!(deltas[1]["delta"]["tool_calls"][0]["function"], function);
    assert_eq!(deltas[1]["delta"]["tool_calls"][0]["index"], 0);
    assert_eq!(deltas[2]["finish_reason"], "tool_calls");
    let more = with(&tools, &json!({"parallel_tool_calls": false}));
    has(&server.chat(&user("Sky?"), &more).refused(400), &["parallel_tool_calls: it is false, and a model"]);
    talk[1]["tool_calls"][0]["function"]["arguments"] = json!("{");
    has(
        &server.chat(&json!(talk), &tools).refused(400),
        &["messages: the chat has a call in message 2 whose arguments are no JSON"],
    );
}

#[test]
fn paths_hosts_types_and_sizes_have_limits() {
    let server = Server::new(&trained(), &[]);
    assert_eq!(server.get("/health").done()["status"], "ok");
    let model = server.get("/v1/models").done()["data"][0].clone();
    assert_eq!((&model["id"], &model["context_length"]), (&json!("chat"), &json!(2048)));
    assert_eq!(server.get("/v1/models/chat").done(), model);
    has(&server.get("/v1/models/other").refused(404), &["the model `other` is not served here, only `chat`"]);
    has(&server.get("/v1/completions").refused(404), &["GET /v1/completions is not here: here are POST"]);
    has(&server.get("/").refused(404), &["GET /health"]);
    let to = |head: &str, body: &str| server.ask("POST", "/v1/completions", head, body);
    has(&to("", "{}").refused(415), &["Content-Type has to be application/json"]);
    has(&to("Content-Type: text/plain\r\n", "{}").refused(415), &["application/json"]);
    has(&to(JSON, "{").refused(400), &["the body is no JSON"]);
    has(&to(JSON, "[]").refused(400), &["the body is no object in JSON"]);
    let elsewhere = format!("{JSON}Host: elsewhere.example\r\n");
    has(&to(&elsewhere, "{}").refused(421), &["this port is for this machine only"]);
    let large = format!("{{\"prompt\": \"{}\"}}", "a".repeat(9 << 20));
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {}\r\n\r\n",
        large.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // It closes before it has read all.
    let _ = stream.write_all(large.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(server.get("/health").done()["waiting"], 0);
}

#[test]
fn a_token_is_needed_where_there_is_one() {
    let place = trained();
    let server = Server::new(&place, &["--token", "s3cret"]);
    let models = |head: &str| server.ask("GET", "/v1/models", head, "");
    for head in [
        "",
        "Authorization: Bearer s3cre\r\n",
        "Authorization: s3cret\r\n",
        "Authorization: Bearer s3cret2\r\n",
    ] {
        let answer = models(head);
        has(&answer.refused(401), &["Authorization has to be `Bearer TOKEN`"]);
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    }
    models("Authorization: Bearer s3cret\r\n").done();
    server.get("/health").done();
    let refused = |args: &[&str]| place.run(&[&["serve", "runs/chat"], args].concat()).refused();
    let said = refused(&["--listen", "0.0.0.0:0"]);
    has(&said, &["--listen: others reach 0.0.0.0:0, and anyone could use the model: set --token TOKEN"]);
    has(&refused(&["--token", "a b"]), &["--token: a token has letters, digits and signs of ASCII"]);
    has(&refused(&["--token", ""]), &["--token: a token has"]);
    has(&refused(&["--name", ""]), &["--name: it is empty"]);
    has(&refused(&["--listen", "x"]), &["expected a port such as 6080"]);
    let mut command = place.command(&["serve", "runs/chat", "--listen", "0"]);
    let mut child = command.env("PIPEWRIGHT_TOKEN", "other").stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    let server = Server { child, address };
    server.get("/v1/models").refused(401);
}

/// A request that takes minutes: the probabilities of many tokens.
fn long() -> String {
    let prompt = vec![vec![3; 2000]; 256];
    json!({"model": "chat", "prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 1}).to_string()
}

#[test]
fn requests_wait_in_a_queue_that_has_an_end_and_a_broken_connection_frees_it() {
    let server = Server::new(&trained(), &["--queue", "1"]);
    let waiting = |count: u64| wait_until(|| server.get("/health").done()["waiting"] == count);
    let works = server.send("POST", "/v1/completions", JSON, &long());
    waiting(1);
    let waits = server.send("POST", "/v1/completions", JSON, &long());
    waiting(2);
    let answer = server.chat(&user("Hello"), &json!({}));
    assert_eq!(answer.refused(503), "too many requests wait already: try again later");
    has(&answer.head.to_lowercase(), &["retry-after: 1"]);
    assert_eq!(server.chat(&user("Hello"), &json!({"n": 2})).status, 400, "it is refused without waiting");
    drop(waits);
    waiting(1);
    // Now there is a place: this one waits until the first one goes away.
    let next =
        server.send("POST", "/v1/completions", JSON, &json!({"model": "chat", "prompt": "a"}).to_string());
    waiting(2);
    drop(works);
    let mut answer = String::new();
    (&next).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // A stream that is not read to its end is broken off too.
    let body = json!({"model": "chat", "prompt": "a", "max_tokens": 2000, "temperature": 2, "stream": true});
    let mut stream = server.send("POST", "/v1/completions", JSON, &body.to_string());
    stream.read_exact(&mut [0; 20]).unwrap();
    drop(stream);
    waiting(0);
}

#[test]
fn ctrl_c_ends_it_and_who_waits_is_told() {
    let mut server = Server::new(&trained(), &[]);
    let works = server.send("POST", "/v1/completions", JSON, &long());
    wait_until(|| server.get("/health").done()["waiting"] == 1);
    signal(&server.child, "-INT");
    let mut answer = String::new();
    (&works).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("the server is ending"), "{answer}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_model_of_bytes_completes_and_does_not_chat() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--run-dir", "runs/chat", "--steps", "1"]).done();
    let server = Server::new(&place, &[]);
    let answer = server.complete(&json!("the"), &json!({"max_tokens": 8, "echo": true})).done();
    let sampled = place
        .run(&["sample", "runs/chat", "--prompt", "the", "--temperature", "0", "--tokens", "8"])
        .done()
        .stdout();
    assert_eq!(format!("{}\n", answer["choices"][0]["text"].as_str().unwrap()), sampled);
    has(
        &server.chat(&user("a"), &json!({})).refused(400),
        &["this model does not chat: this model has no tokenizer"],
    );
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let place = trained();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let run = place.run(&["serve", "runs/chat", "--listen", &port]);
    has(
        &run.stderr(),
        &[&format!("cannot serve on 127.0.0.1:{port}"), "choose another port with --listen PORT"],
    );
}
