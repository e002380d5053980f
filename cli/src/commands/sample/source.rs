//! The model that writes: of a run, of a checkpoint, or of a folder in Hugging Face's form.

use std::path::Path;

use crate::commands::key;
use crate::commands::saved::{SavedModel, config_of, in_blocks, newest_or_model};
use crate::compose::{self, Writing};
use crate::config::{Config, DataKind};
use crate::error::{Error, Result};
use pipewright::checkpoint::Checkpoint;
use pipewright::data::Template;
use pipewright::pretrained::{self, Head, Weights, read_config};
use pipewright::tokenizer::{Tokenizer, told_of_tokenizer};

/// How many different bytes there are.
const BYTES: usize = 256;

/// A model, and how it reads and writes text.
pub(in crate::commands) struct Source {
    pub(in crate::commands) model: SavedModel,
    pub(in crate::commands) writing: Writing,
    pub(in crate::commands) text: Text,
}

/// How a model reads and writes text.
pub(in crate::commands) struct Text {
    pub(in crate::commands) tokenizer: Option<Tokenizer>,
    /// Whether a token is a byte, if there is no tokenizer. Otherwise tokens are numbers.
    pub(super) is_bytes: bool,
    /// How a question is written, if a config names a ready template.
    pub(in crate::commands) template: Option<Template>,
    /// The text of the token that ends a document, if a config names it.
    pub(in crate::commands) end_of_text: Option<String>,
    /// The tokens that end a text.
    pub(in crate::commands) ends: Vec<u32>,
    /// Whether a folder from elsewhere names them. As in transformers, no other token ends a text then.
    names_ends: bool,
}

impl Source {
    /// Opens a model. Its weights are read when its stages are built.
    pub(in crate::commands) fn open(path: &Path) -> Result<Self> {
        if path.join(pretrained::CONFIG).is_file() {
            return Self::of_folder(path);
        }
        if pretrained::is_own(path) {
            return Self::of_own(path);
        }
        let folder = newest_or_model(path)?;
        key::enter_for(&folder)?;
        let checkpoint = Checkpoint::open(&folder)?;
        let config = config_of(&folder, &checkpoint, &[])?;
        let model = SavedModel::of_checkpoint(&config, checkpoint)?;
        Self::of_config(&folder, &config, model)
    }

    /// The model of a folder in our own form.
    fn of_own(folder: &Path) -> Result<Self> {
        let name = format!("the config in {}", folder.display());
        let mut config = Config::parse(&name, &pretrained::own_config(folder)?, &[], &[])?;
        let tokenizer = folder.join(pretrained::TOKENIZER);
        if tokenizer.is_file() {
            config.data.tokenizer = Some(tokenizer);
        }
        let model = compose::model(&config)?;
        let weights = pretrained::open_own(folder, &model.contents()?)?;
        Self::of_config(folder, &config, SavedModel::of_folder(model, weights, None))
    }

    fn of_config(folder: &Path, config: &Config, model: SavedModel) -> Result<Self> {
        let writing =
            compose::writing(config).map_err(|why| Error::refused(format!("{}: {why}", folder.display())))?;
        let text = Text::of_config(config)?;
        Ok(Self { model, writing, text })
    }

    fn of_folder(folder: &Path) -> Result<Self> {
        let architecture = read_config(folder)?;
        if architecture.head() == Head::Reward {
            return Err(Error::refused(format!("{}: {}", folder.display(), compose::NO_TEXT)));
        }
        crate::commands::warn(pretrained::told_of_model(folder, false)?);
        crate::commands::warn(pretrained::told_of_choice(folder)?);
        let weights = Weights::open(folder, &architecture)?;
        let has_tokenizer = folder.join(pretrained::TOKENIZER).is_file();
        if has_tokenizer {
            crate::commands::warn(told_of_tokenizer(folder)?);
        }
        let mut text = Text {
            tokenizer: has_tokenizer.then(|| Tokenizer::read(folder)).transpose()?,
            // A vocabulary of all bytes, and nothing that says how else its tokens are text.
            is_bytes: !has_tokenizer && architecture.vocab() == BYTES,
            template: None,
            end_of_text: None,
            ends: Vec::new(),
            names_ends: false,
        };
        text.ends = pretrained::ends(folder)?;
        text.names_ends = !text.ends.is_empty();
        if text.ends.is_empty() {
            text.ends.extend(text.end_of_document());
        }
        let writing = Writing { vocab: architecture.vocab(), context: architecture.context() };
        let model = SavedModel::of_folder(in_blocks(architecture.model()?, &weights), weights, None);
        Ok(Self { model, writing, text })
    }
}

impl Text {
    /// How the model of a config reads and writes text.
    pub(in crate::commands) fn of_config(config: &Config) -> Result<Self> {
        let data = config.written_as();
        let mut text = Self {
            tokenizer: compose::tokenizer(config)?,
            is_bytes: data.kind == DataKind::Text,
            template: data.template,
            end_of_text: data.end_of_text.clone(),
            ends: Vec::new(),
            names_ends: false,
        };
        text.ends.extend(text.end_of_document());
        if let Some(folder) = &config.model.path {
            text.ends.extend(pretrained::ends(folder)?);
        }
        Ok(text)
    }

    /// The tokens that end an answer of a chat. A folder from elsewhere may name all of them itself.
    pub(in crate::commands) fn ends_of_answer(&self) -> Vec<u32> {
        let own = self.tokenizer.as_ref().filter(|_| !self.names_ends);
        let own = own.and_then(|tokenizer| tokenizer.end_of_answer(self.template));
        self.ends.iter().copied().chain(own).collect()
    }

    /// The token that ends a document.
    fn end_of_document(&self) -> Option<u32> {
        let tokenizer = self.tokenizer.as_ref()?;
        tokenizer.end_of_text(self.end_of_text.as_deref()).ok()
    }
}
