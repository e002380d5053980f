//! Chats as text.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The role whose messages are answers.
const ANSWERS: &str = "assistant";

/// How the messages of a chat are written as text. In configs `chatml` and `llama3`.
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
    /// The text of a question, up to where the answer begins.
    pub(crate) fn question(self, question: &str) -> String {
        let begin = match self {
            Self::ChatMl => "<|im_start|>assistant\n",
            Self::Llama3 => "<|start_header_id|>assistant<|end_header_id|>\n\n",
        };
        self.write(&[("user", question)]).0 + begin
    }

    /// The text of messages, each a role and a content, and the bytes of it that are answers: the contents
    /// of the assistant's messages, with the token that ends each.
    pub(super) fn write(self, messages: &[(&str, &str)]) -> (String, Vec<Range<usize>>) {
        let (begin, before, between, end, after) = match self {
            Self::ChatMl => ("", "<|im_start|>", "\n", "<|im_end|>", "\n"),
            Self::Llama3 => (
                "<|begin_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>\n\n",
                "<|eot_id|>",
                "",
            ),
        };
        let (mut text, mut answers) = (begin.to_owned(), Vec::new());
        for &(role, content) in messages {
            let content = match self {
                Self::ChatMl => content,
                Self::Llama3 => content.trim(),
            };
            for part in [before, role, between] {
                text += part;
            }
            let start = text.len();
            text += content;
            text += end;
            if role == ANSWERS {
                answers.push(start..text.len());
            }
            text += after;
        }
        (text, answers)
    }
}
