//! Folders with models that cannot be used.

use std::fmt::Display;
use std::path::{Component, Path};

use super::{Error, Problem};

impl Error {
    /// A folder with a model, or a file of one, that cannot be used.
    pub(crate) fn pretrained(text: impl Into<String>) -> Self {
        Self::Pretrained(Problem::new(text))
    }

    /// A file of a model that is no JSON of the expected form.
    pub fn no_json(path: &Path, source: serde_json::Error) -> Self {
        Self::Pretrained(Problem::because(format!("`{}`: {source}", path.display()), source))
    }

    /// A file of a model that is not whole.
    pub fn damaged(path: &Path, why: impl Display) -> Self {
        let path = path.display();
        Self::pretrained(format!("`{path}` is damaged: {why}; fetch it again"))
    }

    /// There is something already where the folder of a model should be written.
    pub fn folder_exists(folder: &Path) -> Self {
        let folder = folder.display();
        Self::pretrained(format!("`{folder}` is there already: name another folder, or remove it"))
    }

    /// A key of a model that is missing, or whose value has no layer.
    pub(crate) fn wrong_key(path: &Path, key: &str, expected: &str, found: Option<impl Display>) -> Self {
        let found = found.map_or("is missing".to_owned(), |value| format!("is {value}"));
        let path = path.display();
        Self::pretrained(format!("`{path}`: {key} {found}, it must be {expected}"))
    }

    /// A model that this program does not know.
    pub(crate) fn unknown_model(path: &Path, name: Option<&str>, known: &[&str]) -> Self {
        let found =
            name.map_or("it names no architecture".to_owned(), |name| format!("`{name}` is not known"));
        let (path, known) = (path.display(), known.join(", "));
        Self::pretrained(format!("`{path}`: {found}; known are {known}"))
    }

    /// A folder with a reward model where a model of texts is expected.
    pub(crate) fn a_reward_model(folder: &Path) -> Self {
        Self::pretrained(format!(
            "`{}` has a reward model: it gives a text one number (score.weight), and no scores of tokens; it \
             is for train.objective = \"reward\"",
            folder.display()
        ))
    }

    /// A folder whose tensors differ from its model: their names, and what is wrong with each. The message
    /// lists a screen of them.
    pub(crate) fn other_tensors(folder: &Path, described_in: &str, problems: &[(String, String)]) -> Self {
        const SHOWN: usize = 20;
        let folder = folder.display();
        let mut text = format!("`{folder}` does not have the tensors of its {described_in}:");
        for (name, problem) in problems.iter().take(SHOWN) {
            text += &format!("\n  {name} {problem}");
        }
        if problems.len() > SHOWN {
            text += &format!("\n  and {} more", problems.len() - SHOWN);
        }
        Self::pretrained(text)
    }
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
