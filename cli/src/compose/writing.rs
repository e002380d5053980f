//! Whether the model of a config can write text.

use toml::{Table, Value};

use super::model::architecture;
use crate::config::{Config, ModelKind};

/// What writing text needs to know of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// The number of tokens that it knows.
    pub vocab: usize,
    /// The longest text that it is made for, in tokens.
    pub context: usize,
}

/// What is said of a reward model.
pub const NO_TEXT: &str = "a reward model writes no text: it gives a text one number";

/// The ready layers that need a whole text, and cannot go on from what they have had of it.
const OF_WHOLE_TEXTS: [&str; 7] =
    ["conv1d", "conv2d", "max_pool", "global_average", "flatten", "reshape", "group_norm"];

/// What writing text needs to know of the model of a config. A stack writes if it reads tokens and its last
/// layer is `linear`: the scores of all tokens. Layers of one's own are trusted to have
/// [`Layer::forward_next`](pipewright::stages::Layer::forward_next), or to compute every token alone.
///
/// # Errors
/// Why it cannot write.
pub fn writing(config: &Config) -> Result<Writing, String> {
    if config.gives_rewards() {
        return Err(NO_TEXT.to_owned());
    }
    if let Some(architecture) = architecture(config) {
        return Ok(Writing { vocab: architecture.vocab(), context: architecture.context() });
    }
    if config.model.kind != ModelKind::Stack {
        let kind = config.model.kind.name();
        return Err(format!("a model of the kind \"{kind}\" writes no text: it reads images"));
    }
    if !config.reads_tokens() {
        return Err("this stack writes no text: it reads images".to_owned());
    }
    let stack = &config.model.stack;
    if let Some((index, kind)) = stack.iter().enumerate().find_map(|(index, layer)| {
        let kind = of_whole_texts(&Value::Table(layer.clone()))?;
        Some((index, kind))
    }) {
        return Err(format!(
            "this stack writes no text: layer {index} has a `{kind}`, which needs a whole text at a time"
        ));
    }
    let size = |layer: &Table, key: &str| usize::try_from(layer.get(key)?.as_integer()?).ok();
    let is = |layer: &Table, kind: &str| layer.get("kind").and_then(Value::as_str) == Some(kind);
    let head = stack.last().filter(|layer| is(layer, "linear"));
    let vocab = head
        .and_then(|layer| size(layer, "outputs"))
        .ok_or("this stack writes no text: its last layer is not `linear`, with a score for each token")?;
    // Not all stacks say how long a text may be. What they were trained on is right in any case.
    let longest = stack.iter().filter(|layer| is(layer, "embedding"));
    let longest = longest.filter_map(|layer| size(layer, "context")).min();
    Ok(Writing { vocab, context: longest.unwrap_or(config.data.seq).max(1) })
}

/// The kind of the first layer in a layer's settings that needs a whole text.
fn of_whole_texts(settings: &Value) -> Option<&'static str> {
    match settings {
        Value::Table(table) => {
            let own = table.get("kind").and_then(Value::as_str);
            let found = OF_WHOLE_TEXTS.into_iter().find(|kind| own == Some(kind));
            found.or_else(|| table.values().find_map(of_whole_texts))
        }
        Value::Array(values) => values.iter().find_map(of_whole_texts),
        _ => None,
    }
}
