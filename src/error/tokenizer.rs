//! A tokenizer that cannot be used.

/// Why a chat does not become text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatProblem {
    /// The template cannot be read, or refuses the messages.
    #[error("cannot write this chat: {0}; data.template can name a ready template")]
    Template(String),
    /// The template writes messages otherwise if others follow.
    #[error(
        "writes message {} otherwise when others follow it, so answers cannot be told from it: set \
         data.loss_on to \"all\", name a ready template as data.template, or end the chat with this message",
        message + 1
    )]
    NoBorders {
        /// The number of the message, from 0.
        message: usize,
    },
}

/// What is wrong with a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerProblem {
    /// A folder without the file.
    #[error(
        "has no tokenizer.json; if the model has a tokenizer of another form, let Python's transformers \
         write one: AutoTokenizer.from_pretrained(\"MODEL\").save_pretrained(\"FOLDER\")"
    )]
    NotInFolder,
    /// A pipe, a device or a socket.
    #[error("is not a regular file: name a tokenizer.json, or a folder that has one")]
    NotRegular,
    /// A file that is no tokenizer.
    #[error("is no tokenizer in the form of Hugging Face's tokenizer.json: {0}")]
    Broken(String),
    /// The model knows fewer tokens.
    #[error(
        "has {needed} tokens, and model.vocab is {known}: set model.vocab to {needed} or more, or take the \
         tokenizer of this model"
    )]
    Vocabulary {
        /// The tokens that the tokenizer may write.
        needed: usize,
        /// The tokens that the model knows.
        known: usize,
    },
    /// It has no token with this text.
    #[error("has no token `{0}`: name one that it has as data.end_of_text, or with --end-of-text")]
    NoToken(String),
    /// It has none of the tokens that usually end a document.
    #[error(
        "has none of the tokens {}: name the one that ends a document as data.end_of_text, or with \
         --end-of-text", .0.join(", ")
    )]
    NoEndOfText(&'static [&'static str]),
    /// A file beside it that is not JSON.
    #[error("is no JSON: {0}")]
    NoJson(String),
    /// A list of tokens with something else in it.
    #[error("`{key}` has something that is no token: expected texts, or objects with `content`")]
    NoAddedToken {
        /// The key of the list.
        key: String,
    },
    /// It does not have a token of a template for chats.
    #[error(
        "has no token `{mark}`, which the template \"{template}\" writes into a chat: set data.template to \
         the model's own, put the model's chat_template.jinja beside the tokenizer, or take the model's \
         tokenizer"
    )]
    NoMark {
        /// The template's name in configs.
        template: &'static str,
        /// The text of the token.
        mark: &'static str,
    },
    /// Its template for chats cannot be used.
    #[error("has a chat template that {0}")]
    Chat(ChatProblem),
    /// It has no token for a part of a text.
    #[error("cannot encode a text: {0}")]
    Unencodable(String),
    /// Its decoder refuses tokens.
    #[error("cannot decode tokens: {0}")]
    Undecodable(String),
}
