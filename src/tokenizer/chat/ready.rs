//! The ready templates, for models without one.

use serde::{Deserialize, Serialize};

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
    pub(in crate::tokenizer) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::ChatMl => &["<|im_start|>", "<|im_end|>"],
            Self::Llama3 => &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        }
    }
}
