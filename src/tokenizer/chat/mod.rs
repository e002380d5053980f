//! Chats as text, by a template in Jinja.

mod date;
mod given;
mod json;
mod marks;
mod python;
mod ready;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};

use crate::error::Problem;
use words::Words;

pub use date::Date;
pub use given::Chat;
pub use ready::Template;

/// The role whose messages are answers.
const ANSWERS: &str = "assistant";

/// The role whose messages are questions.
const QUESTIONS: &str = "user";

/// The names of the templates within their environment: the usual one, and the one for chats with tools.
const USUAL: &str = "chat_template";
const WITH_TOOLS: &str = "tool_use";

/// How the messages of a chat become text: a template of Hugging Face, in Jinja.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Whether there is another one for chats with tools.
    has_other: bool,
    /// Whether they mark answers.
    has_marks: bool,
    words: Words,
    /// The names of what they ask for.
    asked: BTreeSet<String>,
    /// The texts of special tokens that the template may name, such as `bos_token`.
    special: BTreeMap<String, String>,
    /// The texts of tokens with which a message may end.
    ends: Vec<String>,
}

impl ChatTemplate {
    /// A template in Jinja, and perhaps another one for chats with tools.
    ///
    /// # Errors
    /// When one is not in Jinja, or uses what this program does not know.
    pub(super) fn new(
        usual: &str,
        with_tools: Option<&str>,
        special: BTreeMap<String, String>,
        ends: Vec<String>,
    ) -> Result<Self, Problem> {
        let mut environment = python::environment();
        let (mut has_marks, mut words, mut asked) = (false, Words::default(), BTreeSet::new());
        for (name, source) in [(USUAL, Some(usual)), (WITH_TOOLS, with_tools)] {
            let Some(source) = source else { continue };
            let (source, marks) = marks::without_tags(&source.replace("\r\n", "\n"));
            has_marks |= marks;
            words.add(&source);
            environment.add_template_owned(name, source).map_err(|error| unwritten(&error))?;
            let template = environment.get_template(name).map_err(|error| unwritten(&error))?;
            asked.extend(template.undeclared_variables(false));
        }
        Ok(Self { environment, has_other: with_tools.is_some(), has_marks, words, asked, special, ends })
    }

    /// The text of a chat. With `asks`, the beginning of an answer follows.
    ///
    /// # Errors
    /// When the template refuses the chat, asks for a date that the chat does not have, or computes too long.
    pub fn text(&self, chat: &Chat, asks: bool) -> Result<String, Problem> {
        self.marked(chat, asks).map(|(text, _)| text)
    }

    /// The token with which an answer ends, as text, if the template writes one.
    pub(super) fn end_of_answer(&self) -> Option<&str> {
        // No template has this word.
        const ANSWER: &str = "Pipewrights";
        let chat = Chat::of(&[(QUESTIONS, "Who?"), (ANSWERS, ANSWER)]).dated(Date::now());
        let text = self.text(&chat, false).ok()?;
        let end = &text[text.rfind(ANSWER)? + ANSWER.len()..];
        let ends = self.ends.iter().filter(|text| end.trim_start().starts_with(text.as_str()));
        ends.max_by_key(|text| text.len()).map(String::as_str)
    }

    /// Whether it knows this role of messages: its text has the word between quotes.
    pub(crate) fn knows_role(&self, role: &str) -> bool {
        self.words.quoted.contains(role)
    }

    /// Whether it knows this key of messages: its text has the word between quotes or behind a dot.
    pub(crate) fn knows_key(&self, key: &str) -> bool {
        self.words.quoted.contains(key) || self.words.dotted.contains(key)
    }

    /// Whether it asks for what is given under this name, such as `tools`.
    pub fn asks_for(&self, name: &str) -> bool {
        self.asked.contains(name)
    }

    /// The text of a chat, and the bytes of it that are answers. `counts` says for each message whether it is
    /// an answer that counts. A template may mark its answers. Otherwise an answer is what it writes for a
    /// message of the assistant after it has asked for it, up to the token that ends it.
    ///
    /// # Errors
    /// When the template refuses the messages, or when its answers cannot be told from the rest.
    pub(crate) fn with_answers(
        &self,
        chat: &Chat,
        counts: &[bool],
    ) -> Result<(String, Vec<Range<usize>>), Problem> {
        let (text, marked) = self.marked(chat, false)?;
        let of_assistant = |index: &usize| chat.role(*index).is_some_and(|role| role == ANSWERS);
        let messages: Vec<usize> = (0..chat.count()).filter(of_assistant).collect();
        if self.has_marks {
            return told_apart(marked, &messages, counts).map(|answers| (text, answers));
        }
        let counted = messages.into_iter().filter(|index| counts[*index]);
        let answers = counted.map(|index| self.answer(chat, index, &text));
        let answers = answers.collect::<Result<_, _>>()?;
        Ok((text, answers))
    }

    /// The bytes of a chat's text that are the answer in this message.
    fn answer(&self, chat: &Chat, index: usize, text: &str) -> Result<Range<usize>, Problem> {
        let before = self.text(&chat.first(index), true)?;
        let with = self.text(&chat.first(index + 1), false)?;
        let unlike = || {
            Problem::new(format!(
                "writes message {} otherwise when others follow it, so answers cannot be told from it: set \
                 data.loss_on to \"all\", name a ready template as data.template, or end the chat with this \
                 message",
                index + 1
            ))
        };
        let answer = with.strip_prefix(&before).filter(|_| text.starts_with(&with)).ok_or_else(unlike)?;
        let trimmed = answer.trim_end();
        let is_ended = self.ends.iter().any(|end| trimmed.ends_with(end.as_str()));
        let answer = if is_ended { trimmed } else { answer };
        Ok(before.len()..before.len() + answer.len())
    }

    /// The text of a chat, and what the template marks as answers.
    fn marked(&self, chat: &Chat, asks: bool) -> Result<(String, Vec<Range<usize>>), Problem> {
        if self.has_marks
            && let Some(letter) = marks::letters().into_iter().find(|letter| chat.has(*letter))
        {
            let code = u32::from(letter);
            return Err(Problem::new(format!(
                "marks answers, and this chat has the letter U+{code:X}, which no text may have: remove it"
            )));
        }
        let name = if self.has_other && chat.tools.is_some() { WITH_TOOLS } else { USUAL };
        let template = self.environment.get_template(name);
        let text = template.and_then(|template| template.render(self.given(chat, asks)));
        Ok(marks::taken_out(&text.map_err(|error| unwritten(&error))?))
    }

    /// All that the template can name.
    fn given(&self, chat: &Chat, asks: bool) -> Value {
        let none = || Value::from(());
        let usual = given::GIVEN.into_iter().zip([
            chat.messages.clone().into(),
            chat.tools.clone().unwrap_or_else(none),
            chat.documents.clone().unwrap_or_else(none),
            asks.into(),
        ]);
        let special = self.special.iter().map(|(name, text)| (name.as_str(), text.as_str().into()));
        let settings = chat.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let mut given: BTreeMap<_, _> = special.chain(settings).chain(usual).collect();
        if let Some(date) = chat.date {
            let strftime_now = move |form: String| {
                let unknown = || {
                    let problem = format!("strftime_now has no form {form:?}");
                    minijinja::Error::new(ErrorKind::InvalidOperation, problem)
                };
                date.written(&form).ok_or_else(unknown)
            };
            given.insert("strftime_now", Value::from_function(strftime_now));
        }
        Value::from(given)
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

/// The marked answers that count. `messages` lists the messages of the assistant.
fn told_apart(
    marked: Vec<Range<usize>>,
    messages: &[usize],
    counts: &[bool],
) -> Result<Vec<Range<usize>>, Problem> {
    if marked.len() == messages.len() {
        let counted = marked.into_iter().zip(messages).filter(|(_, index)| counts[**index]);
        return Ok(counted.map(|(answer, _)| answer).collect());
    }
    if marked.len() > messages.len() && messages.iter().all(|index| counts[*index]) {
        return Ok(marked);
    }
    Err(Problem::new(format!(
        "marks {} answers ({{% generation %}}) in a chat with {} messages of the assistant, so answers \
         cannot be told from it: set data.loss_on to \"all\", or name a ready template as data.template",
        marked.len(),
        messages.len()
    )))
}

/// What is wrong, in one line.
fn unwritten(error: &minijinja::Error) -> Problem {
    let cure = match error.kind() {
        ErrorKind::UnknownFunction if error.to_string().contains("strftime_now") => {
            "; a chat to learn has no date, because it must be the same on each day: set data.date, such as \
             \"2026-03-07\""
        }
        ErrorKind::OutOfFuel => "; it computes too long for one chat",
        _ => "",
    };
    Problem::new(format!(
        "cannot write this chat: {error}{cure}; for training, data.template can name a ready template"
    ))
}
