//! Requests for texts, as they are answered.

use pipewright::run::Choice;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The answer in a chat.
    Chat,
    /// What follows a text.
    Completion,
}

/// A text that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) tokens: Vec<u32>,
    /// Its text, if that is told too.
    pub(super) text: String,
    /// The most tokens that follow.
    pub(super) most: usize,
}

/// How texts are written.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) choice: Choice,
    pub(super) seed: u64,
    pub(super) stop: Vec<String>,
    pub(super) ends: Vec<u32>,
    /// Whether the prompt is told too.
    pub(super) echo: bool,
    /// How many of the most likely tokens are told with each token. None, if no probabilities are told.
    pub(super) likely: Option<usize>,
}

/// A request that can be answered.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) prompts: Vec<Prompt>,
    pub(super) manner: Manner,
    /// Whether the model was shown tools, so that its answer may have calls.
    pub(super) has_tools: bool,
    /// Whether the text is told as it is written, and whether its size is told at the end.
    pub(super) stream: bool,
    pub(super) stream_usage: bool,
}
