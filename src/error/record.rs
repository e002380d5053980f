//! A line or a file of documents that cannot be used.

use std::path::PathBuf;

use super::ChatProblem;

/// What is wrong with a line of a file, or with a row of a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// It is not text.
    #[error("is not UTF-8: convert the file, as with iconv")]
    NotUtf8,
    /// It is longer than any document.
    #[error("has more than {0} bytes: in a file of JSON lines each line is one document")]
    TooLong(u64),
    /// It is not JSON.
    #[error("is broken JSON, at column {column}: {cause}")]
    Broken {
        /// The parser's message.
        cause: String,
        /// The column, from 1, in bytes.
        column: usize,
    },
    /// It is JSON, but no object.
    #[error(
        "is {0} and not an object such as {{\"text\": \"...\"}}; a file that is one list becomes lines with \
         `jq -c '.[]'`"
    )]
    NoObject(&'static str),
    /// It does not have the field.
    #[error("has no field \"{field}\" (data.field), only {}", listed(has))]
    NoField {
        /// The field.
        field: String,
        /// The fields that it has.
        has: Vec<String>,
    },
    /// The field is neither a text nor a list of messages.
    #[error("has {got} in \"{field}\" (data.field), where a text or a list of messages was expected")]
    NoText {
        /// The field.
        field: String,
        /// What is there.
        got: &'static str,
    },
    /// A message of a chat without its role or content.
    #[error(
        "has no text \"{key}\" in message {} of \"{field}\"; a message is such as {{\"role\": \"user\", \
         \"content\": \"Hello\"}}", index + 1
    )]
    Message {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
        /// Role or content.
        key: &'static str,
    },
    /// A chat that the template does not write.
    #[error("is a chat, and the tokenizer's chat template {0}")]
    Template(#[from] ChatProblem),
    /// A message in ShareGPT's words.
    #[error(
        "has \"from\" in message {} of \"{field}\": write ShareGPT's \"from\" as \"role\", \"value\" as \
         \"content\", \"human\" as \"user\" and \"gpt\" as \"assistant\"", index + 1
    )]
    ShareGpt {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
    },
    /// A message of a role that no template writes.
    #[error(
        "has the role \"{role}\" in message {} of \"{field}\", and templates write \"system\", \"user\" and \
         \"assistant\": {}", index + 1, meant(role)
    )]
    Role {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
        /// The role.
        role: String,
    },
    /// A key of a message that no template writes, though it changes what is learnt.
    #[error("has \"{key}\" in message {} of \"{field}\", which would be left out: {cure}", index + 1)]
    MessageKey {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
        /// The key.
        key: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// The same beside the field that is read.
    #[error("has \"{key}\", which would be left out: {cure}, or remove it")]
    Key {
        /// The key.
        key: String,
        /// What to do.
        cure: &'static str,
    },
    /// A weight that is neither 0 nor 1.
    #[error("has a \"{key}\" in message {} of \"{field}\" that is neither 0 nor 1", index + 1)]
    Weight {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
        /// The key.
        key: &'static str,
    },
    /// A message says otherwise than `data.loss_on` whether it is learnt.
    #[error(
        "has \"{key}\" in message {} of \"{field}\", of the role \"{role}\", and with data.loss_on = \
         {learnt}",
        index + 1
    )]
    NotLearnt {
        /// The field with the messages.
        field: String,
        /// The number of the message, from 0.
        index: usize,
        /// The key.
        key: &'static str,
        /// The role.
        role: String,
        /// The setting, and what is learnt with it.
        learnt: &'static str,
    },
    /// A cell that is no number, or no class.
    #[error("has \"{cell}\" in the column \"{column}\", where {expected} was expected")]
    Cell {
        /// The column.
        column: String,
        /// What is in the cell.
        cell: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A text where there should be a chat.
    #[error(
        "is a text without answers, and data.loss_on is \"answers\": set it to \"all\", or name the field \
         with the messages of a chat as data.field"
    )]
    NoChat,
}

/// What is wrong with the index of a token file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexProblem {
    /// It is no index of version 1.
    #[error("is no index of Megatron (MMIDIDX, version 1)")]
    NoIndex,
    /// Its tokens have a type that is not read.
    #[error(
        "says that tokens have Megatron's type {0}; types 8 (uint16) and 4 (int32) are read: write the \
         tokens again with one of them"
    )]
    Type(u8),
    /// It is shorter than its lists.
    #[error("is truncated: it holds {held} of {expected} bytes")]
    Truncated {
        /// Its length.
        held: u64,
        /// The length that it should have.
        expected: u64,
    },
    /// Its sequences do not follow each other in the token file.
    #[error("has sequences that do not follow each other in its `.bin`: write both files again")]
    Gaps,
    /// The documents in it are not in order, or are of sequences that it does not have.
    #[error("has a list of documents that does not fit its sequences: write both files again")]
    Documents,
    /// It is of another token file.
    #[error(
        "does not fit `{}`, which holds {held} bytes where the index describes {described}: they are not a \
         pair, or one of them is not complete", tokens.display()
    )]
    OtherTokens {
        /// The token file.
        tokens: PathBuf,
        /// The bytes of all sequences.
        described: u64,
        /// The bytes of the token file.
        held: u64,
    },
    /// A document is too long for the form.
    #[error("cannot be written: document {0} has more tokens than Megatron's form allows (2^31 - 1)")]
    LongDocument(usize),
}

/// Names in a row.
fn listed(names: &[String]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => format!("\"{}\"", names.join("\", \"")),
    }
}

/// Which role was probably meant.
fn meant(role: &str) -> &'static str {
    match role {
        "human" => "write \"user\"",
        "gpt" | "chatgpt" | "bot" | "model" | "ai" => "write \"assistant\"",
        "developer" => "write \"system\"",
        "tool" | "function" | "ipython" | "observation" => {
            "write the result into a message of the role \"user\", as the model has to see it"
        }
        _ => "write one of these",
    }
}
