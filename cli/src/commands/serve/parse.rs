//! Reads requests for texts.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use serde_json::Value;

use super::fields::Fields;
use super::refusal::Refusal;
use super::request::{Kind, Manner, Prompt, Request};
use super::served::Served;
use super::tools;
use crate::commands::sample::words::{Words, check_prompt};
use pipewright::run::Choice;
use pipewright::tokenizer::Chat;

/// The most prompts in a request, words that end a text, and likely tokens that are told.
const MOST_PROMPTS: usize = 256;
const MOST_STOPS: usize = 16;
const MOST_LIKELY: usize = 20;

/// How many tokens a completion has if nothing is said, as OpenAI's.
const USUAL_TOKENS: usize = 16;

/// Reads a request.
pub(super) fn read(kind: Kind, body: &[u8], served: &Served) -> Result<Request, Refusal> {
    let mut fields = Fields::read(body)?;
    let model = fields.text("model")?.ok_or_else(|| Refusal::of("model", "it is missing"))?;
    if model != served.name {
        return Err(served.no_model(&model));
    }
    let choice = choice(&mut fields)?;
    let seed = fields.take("seed").map(|seed| {
        let number = seed.as_i64().map(i64::cast_unsigned).or(seed.as_u64());
        number.ok_or_else(|| Refusal::of("seed", format!("it is {seed}, and a whole number was expected")))
    });
    // Keys of the standard library are random.
    let seed = seed.transpose()?.unwrap_or_else(|| RandomState::new().hash_one(0));
    let stop = stop(fields.take("stop"))?;
    let stream = fields.switch("stream")?;
    let stream_usage = stream_usage(fields.take("stream_options"), stream)?;
    let most = match kind {
        Kind::Chat => fields.count("max_completion_tokens")?.or(fields.count("max_tokens")?),
        Kind::Completion => Some(fields.count("max_tokens")?.unwrap_or(USUAL_TOKENS)),
    };
    let echo = kind == Kind::Completion && fields.switch("echo")?;
    let likely = likely(kind, &mut fields)?;
    if stream && (likely.is_some() || echo) {
        let name = if echo { "echo" } else { "logprobs" };
        return Err(Refusal::of(name, "it is not told while a text is written: leave out stream"));
    }
    let (prompts, has_tools) = match kind {
        Kind::Chat => {
            let (tokens, has_tools) = chat(body, &mut fields, served)?;
            (vec![(tokens, String::new())], has_tools)
        }
        Kind::Completion => (completions(fields.take("prompt"), served)?, false),
    };
    fields.finish()?;
    if stream && prompts.len() > 1 {
        return Err(Refusal::of("prompt", "one text can be streamed, and there are several"));
    }
    let prompts = prompts.into_iter().map(|(tokens, text)| {
        let field = if kind == Kind::Chat { "messages" } else { "prompt" };
        prompt(tokens, text, most, served).map_err(|refusal| refusal.in_field(field))
    });
    let prompts = prompts.collect::<Result<_, _>>()?;
    let ends = match kind {
        Kind::Chat => served.text.ends_of_answer(),
        Kind::Completion => served.text.ends.clone(),
    };
    Ok(Request {
        kind,
        prompts,
        manner: Manner { choice, seed, stop, ends, echo, likely },
        has_tools,
        stream,
        stream_usage,
    })
}

fn choice(fields: &mut Fields) -> Result<Choice, Refusal> {
    let temperature = fields.number("temperature")?.unwrap_or(1.0) as f32;
    let top_p = fields.number("top_p")?.unwrap_or(1.0) as f32;
    let top_k = fields.count("top_k")?;
    let repetition_penalty = fields.number("repetition_penalty")?.unwrap_or(1.0) as f32;
    if !(0.0..=2.0).contains(&temperature) {
        return Err(Refusal::of("temperature", format!("it is {temperature}, and 0 to 2 was expected")));
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(Refusal::of("top_p", format!("it is {top_p}, and more than 0 up to 1 was expected")));
    }
    if top_k == Some(0) {
        return Err(Refusal::of("top_k", "it is 0, and 1 or more was expected"));
    }
    if !(repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
        let problem = format!("it is {repetition_penalty}, and more than 0 was expected; 1 changes nothing");
        return Err(Refusal::of("repetition_penalty", problem));
    }
    Ok(Choice { temperature, top_k, top_p, repetition_penalty })
}

/// The words that end a text: one, or a list.
fn stop(value: Option<Value>) -> Result<Vec<String>, Refusal> {
    let refuse = || Refusal::of("stop", format!("a text, or up to {MOST_STOPS} of them, was expected"));
    let words: Vec<String> = match value {
        None => Vec::new(),
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) => {
            let words = words.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<_>>().ok_or_else(refuse)?
        }
        Some(_) => return Err(refuse()),
    };
    if words.len() > MOST_STOPS || words.iter().any(String::is_empty) {
        return Err(refuse());
    }
    Ok(words)
}

fn stream_usage(options: Option<Value>, stream: bool) -> Result<bool, Refusal> {
    let Some(options) = options else { return Ok(false) };
    let problem = match options.as_object() {
        None => "an object was expected",
        Some(_) if !stream => "it is only for streams: leave it out, or set stream",
        Some(map) => match map
            .iter()
            .find(|(name, _)| !["include_usage", "include_obfuscation"].contains(&name.as_str()))
        {
            Some(_) => "only include_usage and include_obfuscation are known in it",
            None => return Ok(map.get("include_usage").and_then(Value::as_bool).unwrap_or(false)),
        },
    };
    Err(Refusal::of("stream_options", problem))
}

/// How many likely tokens are told.
fn likely(kind: Kind, fields: &mut Fields) -> Result<Option<usize>, Refusal> {
    let (name, count) = match kind {
        Kind::Completion => ("logprobs", fields.count("logprobs")?),
        Kind::Chat => {
            let wanted = fields.switch("logprobs")?;
            let top = fields.count("top_logprobs")?;
            if top.is_some() && !wanted {
                return Err(Refusal::of("top_logprobs", "it needs logprobs: true"));
            }
            ("top_logprobs", wanted.then(|| top.unwrap_or(0)))
        }
    };
    match count {
        Some(count) if count > MOST_LIKELY => {
            Err(Refusal::of(name, format!("it is {count}, and {MOST_LIKELY} at most was expected")))
        }
        count => Ok(count),
    }
}

/// The tokens of a chat, and whether they show tools.
fn chat(body: &[u8], fields: &mut Fields, served: &Served) -> Result<(Vec<u32>, bool), Refusal> {
    // They are read from the text of the request, which has the keys of objects in order.
    let of = |problem: &dyn std::fmt::Display| Refusal::of("messages", problem);
    let messages = fields.take("messages").ok_or_else(|| of(&"it is missing"))?;
    if messages.as_array().is_none_or(Vec::is_empty) {
        return Err(of(&"a list of one message or more was expected"));
    }
    fields.take("documents");
    fields.take("chat_template_kwargs");
    let text = std::str::from_utf8(body).map_err(|error| of(&error))?;
    let mut chat = Chat::read(text).map_err(|problem| Refusal::new(format!("the chat {problem}")))?;
    chat.check().map_err(|problem| of(&format!("the chat {problem}")))?;
    chat.join_parts().map_err(|problem| of(&format!("the chat {problem}")))?;
    chat.read_arguments().map_err(|problem| of(&format!("the chat {problem}")))?;
    let chats = served.chats()?;
    let has_tools = tools::read(fields, &chats)?;
    let chat = if has_tools { chat } else { chat.without_tools() };
    let tokens = chats.tokens(&chat).map_err(|error| of(&error))?;
    Ok((tokens, has_tools))
}

/// The tokens and the texts of prompts: a text, a list of texts, tokens, or a list of lists of tokens.
fn completions(value: Option<Value>, served: &Served) -> Result<Vec<(Vec<u32>, String)>, Refusal> {
    let refuse = || {
        let expected = "a text, a list of texts, a list of tokens, or a list of such lists was expected";
        Refusal::of("prompt", expected)
    };
    let words = Words::of(&served.text);
    let of_text = |text: &str| {
        let prompt = words.prompt(Some(text), crate::Error::refused);
        let tokens = prompt.map(|prompt| prompt.tokens).map_err(|error| Refusal::of("prompt", error))?;
        Ok((tokens, text.to_owned()))
    };
    let of_tokens = |tokens: &[Value]| {
        let token = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
        let tokens = tokens.iter().map(token).collect::<Option<Vec<_>>>().ok_or_else(refuse)?;
        let text = served.show(&tokens).map_err(|error| Refusal::of("prompt", error))?;
        Ok((tokens, text))
    };
    let all = match value.ok_or_else(|| Refusal::of("prompt", "it is missing"))? {
        Value::String(text) => vec![of_text(&text)?],
        Value::Array(all) if all.iter().all(Value::is_u64) => vec![of_tokens(&all)?],
        Value::Array(all) => all
            .iter()
            .map(|one| match one {
                Value::String(text) => of_text(text),
                Value::Array(tokens) => of_tokens(tokens),
                _ => Err(refuse()),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(refuse()),
    };
    match all.len() {
        1..=MOST_PROMPTS => Ok(all),
        count => {
            Err(Refusal::of("prompt", format!("{count} texts, and {MOST_PROMPTS} at most are answered")))
        }
    }
}

/// A prompt that the model can read, with room for what follows.
fn prompt(tokens: Vec<u32>, text: String, most: Option<usize>, served: &Served) -> Result<Prompt, Refusal> {
    let (has, context) = (tokens.len(), served.writing.context);
    check_prompt(&tokens, served.writing).map_err(|problem| {
        let refusal = Refusal::new(format!("the prompt: {problem}"));
        if has > context { refusal.coded("context_length_exceeded") } else { refusal }
    })?;
    // The last token is not read.
    let room = context + 1 - has;
    if let Some(most) = most.filter(|most| *most > room) {
        let problem = format!(
            "the prompt has {has} tokens, {most} more are asked for, and the model's context is {context}: \
             ask for {room} at most"
        );
        return Err(Refusal { field: Some("max_tokens".to_owned()), ..Refusal::new(problem) }
            .coded("context_length_exceeded"));
    }
    Ok(Prompt { tokens, text, most: most.unwrap_or(room) })
}
