//! The chat templates that a model's files have.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::{CONFIG, bytes, json};
use crate::error::Result;

/// The template for usual chats.
const USUAL: &str = "default";
/// The template for chats with tools.
const WITH_TOOLS: &str = "tool_use";

/// The chat templates of a tokenizer.
#[derive(Debug)]
pub(super) struct OwnTemplate {
    /// The file that they stand in.
    pub(super) path: PathBuf,
    /// The one for usual chats. None if it has several with names, and none of the name `default`.
    pub(super) usual: Option<String>,
    /// The one for chats with tools, if that is another one.
    pub(super) with_tools: Option<String>,
}

impl OwnTemplate {
    /// Looks in a file of its own, in the settings of the tokenizer, which are `config`, and in an older
    /// file.
    ///
    /// # Errors
    /// When a file cannot be read, or is not JSON.
    pub(super) fn read(folder: &Path, config: &Value) -> Result<Option<Self>> {
        let path = folder.join("chat_template.jinja");
        let text = |path: &Path| -> Result<_> {
            Ok(bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        if let Some(usual) = text(&path)? {
            let with_tools = text(&folder.join("additional_chat_templates").join("tool_use.jinja"))?;
            return Ok(Some(Self { path, usual: Some(usual), with_tools }));
        }
        let older = folder.join("chat_template.json");
        let older_file = json(&older)?;
        let files = [(folder.join(CONFIG), config), (older, &older_file)];
        Ok(files.into_iter().find_map(|(path, file)| Self::of(path, &file["chat_template"])))
    }

    /// A text, or a list of texts with names.
    fn of(path: PathBuf, value: &Value) -> Option<Self> {
        if let Some(usual) = value.as_str() {
            return Some(Self { path, usual: Some(usual.to_owned()), with_tools: None });
        }
        let all = value.as_array().filter(|all| !all.is_empty())?;
        let named = |name: &str| {
            let one = all.iter().find(|one| one["name"] == name)?;
            one["template"].as_str().map(str::to_owned)
        };
        Some(Self { path, usual: named(USUAL), with_tools: named(WITH_TOOLS) })
    }
}
