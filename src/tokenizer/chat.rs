//! Chats as text, by a template in Jinja.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, context};
use serde::{Deserialize, Serialize};

use crate::error::Problem;

/// The role whose messages are answers.
const ANSWERS: &str = "assistant";

/// The role whose messages are questions.
const QUESTIONS: &str = "user";

/// The name of the template within its environment.
const NAME: &str = "chat_template";

/// A ready template, by its name in configs: `chatml`, `llama3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Template {
    /// `<|im_start|>role`, a line break, the content, `<|im_end|>`, a line break: Qwen, SmolLM2.
    #[default]
    ChatMl,
    /// `<|begin_of_text|>` once; then for each message `<|start_header_id|>role<|end_header_id|>`, two line
    /// breaks, the content without white space around it, `<|eot_id|>`: Llama 3.
    Llama3,
}

impl Template {
    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChatMl => "chatml",
            Self::Llama3 => "llama3",
        }
    }

    /// The template in Jinja, as a `chat_template.jinja` has it.
    pub fn source(self) -> &'static str {
        match self {
            Self::ChatMl => {
                "{% for message in messages %}\
                 {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}\
                 {% endfor %}\
                 {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
            }
            Self::Llama3 => {
                "{{ '<|begin_of_text|>' }}{% for message in messages %}\
                 {{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' \
                 + message['content'] | trim + '<|eot_id|>' }}\
                 {% endfor %}\
                 {% if add_generation_prompt %}\
                 {{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
            }
        }
    }

    /// The texts in it that have to be tokens.
    pub(super) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::ChatMl => &["<|im_start|>", "<|im_end|>"],
            Self::Llama3 => &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        }
    }
}

/// How the messages of a chat become text: a template of Hugging Face, in Jinja.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The texts of special tokens that the template may name, such as `bos_token`.
    special: BTreeMap<String, String>,
    /// The texts of tokens with which a message may end.
    ends: Vec<String>,
}

impl ChatTemplate {
    /// A template in Jinja.
    ///
    /// # Errors
    /// When it is not in Jinja, or uses what this program does not know.
    pub(super) fn new(
        source: &str,
        special: BTreeMap<String, String>,
        ends: Vec<String>,
    ) -> Result<Self, Problem> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the usual marks"));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise);
        let read = environment.add_template_owned(NAME, source.to_owned());
        read.map_err(|error| unwritten(&error))?;
        Ok(Self { environment, special, ends })
    }

    /// The text of messages, each a role and a content. With `asks`, the beginning of an answer follows.
    ///
    /// # Errors
    /// When the template refuses them.
    pub fn text(&self, messages: &[(&str, &str)], asks: bool) -> Result<String, Problem> {
        let message = |&(role, content)| context! { role, content };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let nothing = || Value::from(());
        let chat = context! {
            messages, add_generation_prompt => asks, tools => nothing(), documents => nothing(),
            ..Value::from(&self.special)
        };
        let template = self.environment.get_template(NAME);
        let text = template.and_then(|template| template.render(chat));
        text.map_err(|error| unwritten(&error))
    }

    /// The token with which an answer ends, as text, if the template writes one.
    pub(super) fn end_of_answer(&self) -> Option<&str> {
        // No template has this word.
        const ANSWER: &str = "Pipewrights";
        let chat = [(QUESTIONS, "Who?"), (ANSWERS, ANSWER)];
        let text = self.text(&chat, false).ok()?;
        let end = &text[text.rfind(ANSWER)? + ANSWER.len()..];
        let ends = self.ends.iter().filter(|text| end.trim_start().starts_with(text.as_str()));
        ends.max_by_key(|text| text.len()).map(String::as_str)
    }

    /// The text of messages, and the bytes of it that are answers: what the template writes for each message
    /// of the assistant after it has asked for it, up to the token that ends it.
    ///
    /// # Errors
    /// When the template refuses the messages, or writes earlier ones otherwise when others follow.
    pub(crate) fn with_answers(
        &self,
        messages: &[(&str, &str)],
    ) -> Result<(String, Vec<Range<usize>>), Problem> {
        let text = self.text(messages, false)?;
        let mut answers = Vec::new();
        for (index, _) in messages.iter().enumerate().filter(|(_, message)| message.0 == ANSWERS) {
            let before = self.text(&messages[..index], true)?;
            let with = self.text(&messages[..=index], false)?;
            let unlike = || {
                Problem::new(format!(
                    "writes message {} otherwise when others follow it, so answers cannot be told from it: \
                     set data.loss_on to \"all\", name a ready template as data.template, or end the chat \
                     with this message",
                    index + 1
                ))
            };
            let answer = with.strip_prefix(&before).filter(|_| text.starts_with(&with));
            let answer = answer.ok_or_else(unlike)?;
            let trimmed = answer.trim_end();
            let is_ended = self.ends.iter().any(|end| trimmed.ends_with(end.as_str()));
            let answer = if is_ended { trimmed } else { answer };
            answers.push(before.len()..before.len() + answer.len());
        }
        Ok((text, answers))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("special", &self.special).finish_non_exhaustive()
    }
}

/// What templates call to refuse messages.
fn raise(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// What is wrong, in one line.
fn unwritten(error: &minijinja::Error) -> Problem {
    Problem::new(format!("cannot write this chat: {error}; data.template can name a ready template"))
}
