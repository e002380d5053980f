//! Answers in JSON, as OpenAI's API has them.

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::calls::{self, Call};
use super::queue::Told;
use super::refusal::Refusal;
use super::request::{Kind, Request};
use super::scored::Scored;
use super::served::{Served, now};

/// What all parts of an answer say.
#[derive(Clone, Debug)]
pub(super) struct Head {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    /// How many tokens were read.
    read: usize,
}

/// A text that was written.
#[derive(Debug, Default)]
struct Choice {
    text: String,
    scored: Vec<Scored>,
    by_itself: bool,
    count: usize,
}

impl Head {
    /// For the answer of this request.
    pub(super) fn new(served: &Served, request: &Request) -> Self {
        let kind = if request.kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            kind: request.kind,
            id: served.id(kind),
            created: now(),
            model: served.name.clone(),
            read: request.prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
        }
    }

    /// An answer, or a part of one. `part` is what its kind is called.
    fn with(&self, part: &str, choices: Value, usage: Option<usize>) -> Value {
        let object = match self.kind {
            Kind::Chat => format!("chat.completion{part}"),
            Kind::Completion => "text_completion".to_owned(),
        };
        let mut all = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
        });
        if let Some(written) = usage {
            let read = self.read;
            all["usage"] = json!({
                "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
            });
        }
        all
    }

    /// The first part of a stream, which says whose answer it is.
    pub(super) fn begin(&self) -> Option<Value> {
        (self.kind == Kind::Chat).then(|| self.part(&json!({"role": "assistant", "content": ""}), None))
    }

    /// A part of a stream with text.
    pub(super) fn text(&self, text: &str) -> Value {
        self.part(&json!({ "content": text }), None)
    }

    /// A part of a stream with calls.
    pub(super) fn calls(&self, calls: &[Call]) -> Value {
        let mut calls = self.all_calls(calls);
        calls.iter_mut().enumerate().for_each(|(index, call)| call["index"] = index.into());
        self.part(&json!({ "tool_calls": calls }), None)
    }

    /// Calls, each with a name that no other one has.
    fn all_calls(&self, calls: &[Call]) -> Vec<Value> {
        let one = |(index, call): (usize, &Call)| {
            json!({
                "id": format!("call-{}-{index}", self.id),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        };
        calls.iter().enumerate().map(one).collect()
    }

    /// The last part of a stream with a text, which says why it ends.
    pub(super) fn end(&self, why: &str) -> Value {
        self.part(&json!({}), Some(why))
    }

    /// The part of a stream that says how many tokens were written.
    pub(super) fn usage(&self, written: usize) -> Value {
        self.with(".chunk", json!([]), Some(written))
    }

    fn part(&self, delta: &Value, finish: Option<&str>) -> Value {
        let mut choice = json!({"index": 0, "finish_reason": finish, "logprobs": null});
        match self.kind {
            Kind::Chat => choice["delta"] = delta.clone(),
            Kind::Completion => choice["text"] = delta.get("content").cloned().unwrap_or_else(|| "".into()),
        }
        self.with(".chunk", json!([choice]), None)
    }
}

/// The whole answer of a request, when it is written.
pub(super) async fn whole(
    served: &Served,
    request: &Request,
    head: &Head,
    mut told: UnboundedReceiver<Told>,
) -> Result<Value, Refusal> {
    let mut choices: Vec<Choice> = request.prompts.iter().map(|_| Choice::default()).collect();
    let mut left = choices.len();
    while left > 0 {
        match told.recv().await {
            Some(Told::Text(index, text)) => choices[index].text += &text,
            Some(Told::Scored(index, scored)) => choices[index].scored.push(scored),
            Some(Told::End(index, by_itself, count)) => {
                (choices[index].by_itself, choices[index].count) = (by_itself, count);
                left -= 1;
            }
            Some(Told::Failed(problem)) => return Err(failed(&problem)),
            None => return Err(ending()),
        }
    }
    let written = choices.iter().map(|choice| choice.count).sum();
    let choices = choices.iter().enumerate().map(|(index, choice)| one(served, request, head, index, choice));
    let choices = choices.collect::<crate::Result<Vec<_>>>();
    let choices = choices.map_err(|error| failed(&error.to_string()))?;
    Ok(head.with("", Value::Array(choices), Some(written)))
}

/// The refusal of what the model could not do.
pub(super) fn failed(problem: &str) -> Refusal {
    Refusal::with(StatusCode::INTERNAL_SERVER_ERROR, format!("the model failed: {problem}"))
}

/// The refusal when the server ends.
pub(super) fn ending() -> Refusal {
    Refusal::with(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")
}

/// Why a text ends.
pub(super) fn why(by_itself: bool, has_calls: bool) -> &'static str {
    match (by_itself, has_calls) {
        (false, _) => "length",
        (true, false) => "stop",
        (true, true) => "tool_calls",
    }
}

fn one(
    served: &Served,
    request: &Request,
    head: &Head,
    index: usize,
    choice: &Choice,
) -> crate::Result<Value> {
    let calls = calls::read(&choice.text).filter(|_| request.has_tools && choice.by_itself);
    let why = why(choice.by_itself, calls.is_some());
    let mut all = json!({"index": index, "finish_reason": why, "logprobs": null});
    let has_scores = request.manner.likely.is_some();
    match request.kind {
        Kind::Chat => {
            all["message"] = json!({"role": "assistant", "content": choice.text, "refusal": null});
            if let Some((text, calls)) = calls {
                all["message"]["content"] = Some(text).filter(|text| !text.is_empty()).into();
                all["message"]["tool_calls"] = head.all_calls(&calls).into();
            }
            if has_scores {
                let content = choice.scored.iter().map(|scored| of_chat(served, scored));
                all["logprobs"] = json!({"content": content.collect::<crate::Result<Vec<_>>>()?});
            }
        }
        Kind::Completion => {
            let before = if request.manner.echo { request.prompts[index].text.as_str() } else { "" };
            all["text"] = json!(format!("{before}{}", choice.text));
            if has_scores {
                all["logprobs"] = of_completion(served, &choice.scored)?;
            }
        }
    }
    Ok(all)
}

/// The probabilities of a token in an answer of a chat.
fn of_chat(served: &Served, scored: &Scored) -> crate::Result<Value> {
    let of = |token: u32, log: Option<f32>| -> crate::Result<Value> {
        let text = served.show(&[token])?;
        Ok(json!({"token": text, "logprob": log, "bytes": text.as_bytes()}))
    };
    let likely = scored.likely.iter().map(|(token, log)| of(*token, Some(*log)));
    let mut all = of(scored.token, scored.log)?;
    all["top_logprobs"] = Value::Array(likely.collect::<crate::Result<_>>()?);
    Ok(all)
}

/// The probabilities of the tokens of a completion. Each place has the token that stands there among its
/// likely ones.
fn of_completion(served: &Served, scored: &[Scored]) -> crate::Result<Value> {
    let (mut tokens, mut logs, mut likely, mut offsets) = (vec![], vec![], vec![], vec![]);
    let mut offset = 0;
    for one in scored {
        let text = served.show(&[one.token])?;
        let mut top = serde_json::Map::new();
        // Several tokens may have one text: the likeliest counts.
        for (token, log) in one.likely.iter().copied().chain(one.log.map(|log| (one.token, log))) {
            top.entry(served.show(&[token])?).or_insert_with(|| json!(log));
        }
        logs.push(json!(one.log));
        likely.push(if one.log.is_some() { Value::Object(top) } else { Value::Null });
        offsets.push(offset);
        offset += text.chars().count();
        tokens.push(text);
    }
    Ok(json!({
        "tokens": tokens, "token_logprobs": logs, "top_logprobs": likely, "text_offset": offsets,
    }))
}
