//! Folders with models that cannot be used.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A folder with a model, or a file of one, that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// There is no `config.json`.
    #[error(
        "`{}` is no model's folder: it has no config.json; a folder of Hugging Face has one, and \
         `pipewright import` makes one from a .gguf file{}",
        folder.display(),
        download(folder)
    )]
    NoConfig {
        /// The folder.
        folder: PathBuf,
    },
    /// There are no adapters.
    #[error(
        "`{}` has no adapters: PEFT's folders have adapter_config.json and adapter_model.safetensors (files \
         of PyTorch, adapter_model.bin, are not read)",
        folder.display()
    )]
    NoAdapters {
        /// The folder.
        folder: PathBuf,
    },
    /// A module that adapters are for, but that the model does not have.
    #[error(
        "`{}`: target_modules names `{module}`; this model has {}",
        path.display(),
        known.join(", ")
    )]
    Module {
        /// The file.
        path: PathBuf,
        /// The module.
        module: String,
        /// The modules of a block.
        known: Vec<&'static str>,
    },
    /// There are no weights.
    #[error(
        "`{}` has no weights: neither model.safetensors nor model.safetensors.index.json is there (files of \
         PyTorch, pytorch_model.bin, are not read)",
        folder.display()
    )]
    NoWeights {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is no JSON of the expected form.
    #[error("`{}`: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A model that this program does not know.
    #[error(
        "`{}`: {}; known are {}",
        path.display(),
        found.as_ref().map_or("it names no architecture".to_owned(), |name| format!("`{name}` is not known")),
        known.join(", ")
    )]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The architecture.
        found: Option<String>,
        /// Those that are known.
        known: Vec<&'static str>,
    },
    /// A key that is missing, or a value for which there is no layer.
    #[error(
        "`{}`: {key} {}, it must be {expected}",
        path.display(),
        found.as_ref().map_or("is missing".to_owned(), |value| format!("is {value}"))
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: Option<String>,
    },
    /// Settings that make no model.
    #[error("`{}`: no model has these settings: {source}", path.display())]
    Impossible {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: pipewright_stages::Error,
    },
    /// A file that is missing, or may not be read.
    #[error("cannot open `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder, a pipe or a device where a file should be.
    #[error("`{}` is not a regular file", path.display())]
    NotRegular {
        /// What it is called.
        path: PathBuf,
    },
    /// A file of an index that is not in its folder.
    #[error("`{}` names `{name}`, which is not in its folder: fetch all files again", path.display())]
    NotInFolder {
        /// The index.
        path: PathBuf,
        /// The file that it names.
        name: String,
    },
    /// A file that is not whole.
    #[error("`{}` is damaged: {why}; fetch it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Other tensors than the model has.
    #[error("`{}` does not have the tensors of its {described_in}:{}", folder.display(), listed(problems))]
    Tensors {
        /// The folder.
        folder: PathBuf,
        /// The file that says which tensors there must be.
        described_in: &'static str,
        /// The tensors, by their names there, and what is wrong with each.
        problems: Vec<(String, TensorProblem)>,
    },
    /// A parameter for which the folder has no tensor, because its model is another one.
    #[error("`{}` has no tensor for {parameter}: it is a folder for another model", folder.display())]
    NoSource {
        /// The folder.
        folder: PathBuf,
        /// The parameter.
        parameter: String,
    },
    /// A file that is no `.gguf` file.
    #[error("`{}` is no .gguf file: {why}", path.display())]
    NoGguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A tensor whose numbers are quantised in a way that is not known.
    #[error(
        "`{}`: {tensor} is quantised in a way that this program does not read (type {kind} of ggml); it \
         reads {}",
        path.display(),
        known.join(", ")
    )]
    Quantised {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The number of the way.
        kind: u32,
        /// Those that are known.
        known: Vec<&'static str>,
    },
    /// There is something already where a folder should be written.
    #[error("`{}` is there already: name another folder, or remove it", folder.display())]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
}

/// What is wrong with a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorProblem {
    /// It is not there.
    Missing,
    /// It belongs to no parameter.
    LeftOver,
    /// It is a head of other numbers than the token embedding, in a model that is described as tied.
    OtherHead,
    /// It has another shape.
    Shape {
        /// Its shape.
        found: Vec<usize>,
        /// The shape of the model.
        expected: Vec<usize>,
    },
    /// Its numbers have a format that is not read.
    Numbers {
        /// The format.
        found: String,
    },
}

impl fmt::Display for TensorProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "is missing"),
            Self::LeftOver => write!(f, "is no part of this model"),
            Self::OtherHead => write!(
                f,
                "is not the token embedding, although tie_word_embeddings is true: set that to false in \
                 config.json to have both, as transformers does"
            ),
            Self::Shape { found, expected } => write!(f, "is {found:?}, the model has {expected:?}"),
            Self::Numbers { found } => write!(f, "is in {found}; only F32, BF16 and F16 are read"),
        }
    }
}

/// A line for each, and not more than a screen of them.
fn listed(problems: &[(String, TensorProblem)]) -> String {
    const SHOWN: usize = 20;
    let line = |(name, problem): &(String, TensorProblem)| format!("\n  {name} {problem}");
    let mut text: String = problems.iter().take(SHOWN).map(line).collect();
    if problems.len() > SHOWN {
        text += &format!("\n  and {} more", problems.len() - SHOWN);
    }
    text
}

/// What to do about a name of Hugging Face's hub, such as `ORG/NAME`, where there is no such folder.
pub fn download(folder: &Path) -> String {
    let parts: Vec<_> = folder.components().collect();
    let [Component::Normal(_), Component::Normal(name)] = parts[..] else {
        return String::new();
    };
    if folder.exists() || parts[0].as_os_str() == "runs" {
        return String::new();
    }
    let (folder, name) = (folder.display(), name.display());
    if parts[0].as_os_str() == "models" {
        return format!(
            "; nothing is downloaded by itself: a model of the hub comes by `hf download OWNER/NAME \
             --local-dir {folder}`"
        );
    }
    format!(
        "; nothing is downloaded by itself: if it is a name of the hub, `hf download {folder} --local-dir \
         models/{name}`, and name that folder"
    )
}
