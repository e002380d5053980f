//! The key of encrypted checkpoints, before a command opens one.

use std::path::{Path, PathBuf};

use crate::config::{Config, checkpoint_key};
use crate::error::Result;
use pipewright::checkpoint::Key;

/// Uses the key that this config names, or the environment.
pub(super) fn enter(config: &Config) -> Result<()> {
    use_key(config.checkpoint.key_file.as_deref())
}

/// Uses the key that the config of a run names, or the environment. `path` is the run's folder, or the folder
/// of one of its checkpoints. A checkpoint's own config is encrypted with it.
pub(super) fn enter_for(path: &Path) -> Result<()> {
    use_key(named_by_run(path).as_deref())
}

fn use_key(file: Option<&Path>) -> Result<()> {
    Key::set(checkpoint_key(file)?);
    Ok(())
}

/// The file that the config of a run names.
fn named_by_run(path: &Path) -> Option<PathBuf> {
    let folders = [Some(path), path.parent().and_then(Path::parent)];
    let mut configs = folders.into_iter().flatten().map(|folder| folder.join("config.toml"));
    let text = configs.find_map(|config| std::fs::read_to_string(config).ok())?;
    let config: toml::Table = text.parse().ok()?;
    config.get("checkpoint")?.get("key_file")?.as_str().map(PathBuf::from)
}
