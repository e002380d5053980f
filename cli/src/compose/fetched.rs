//! Data of object stores, as files of this machine.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::config::{Config, Data, DataKind};
use crate::error::{Error, Result};
use pipewright::store::{Fetching, Settings, fetch, is_url};

/// The config with files of this machine in place of the URLs of its data. They are fetched, unless they are
/// here already.
pub(super) fn local<'a>(config: &'a Config, tell: &mut dyn FnMut(Fetching<'_>)) -> Result<Cow<'a, Config>> {
    let all = || std::iter::once(&config.data).chain(&config.data.sources);
    if !all().any(|data| paths(data).any(|path| is_url(path))) {
        return Ok(Cow::Borrowed(config));
    }
    let mut config = config.clone();
    bring(&mut config.data, tell)?;
    config.data.sources.iter_mut().try_for_each(|source| bring(source, tell))?;
    Ok(Cow::Owned(config))
}

/// These paths, with files of this machine in place of URLs.
///
/// # Errors
/// When something cannot be fetched.
pub fn here(paths: &[PathBuf], tell: &mut dyn FnMut(Fetching<'_>)) -> Result<Vec<PathBuf>> {
    let fetched = |path: &PathBuf| match is_url(path) {
        true => one(path, &|_| Vec::new(), tell),
        false => Ok(path.clone()),
    };
    paths.iter().map(fetched).collect()
}

/// What is at a URL. `beside`: the names of the files that belong to one of this name.
fn one(
    path: &Path,
    beside: &dyn Fn(&str) -> Vec<String>,
    tell: &mut dyn FnMut(Fetching<'_>),
) -> Result<PathBuf> {
    let folder = pipewright::stages::devices::cache_folder()
        .ok_or_else(|| Error::refused("no folder to keep what is fetched: set HOME or XDG_CACHE_HOME"))?;
    let place = path.to_string_lossy();
    let name = place.rsplit('/').next().unwrap_or_default();
    Ok(fetch(&place, &Settings::default(), &beside(name), &folder.join("fetched"), tell)?)
}

fn paths(data: &Data) -> impl Iterator<Item = &PathBuf> {
    data.path.0.iter().chain(&data.validation_path.0).chain(&data.labels)
}

fn bring(data: &mut Data, tell: &mut dyn FnMut(Fetching<'_>)) -> Result<()> {
    let kind = data.kind;
    let paths = data.path.0.iter_mut().chain(&mut data.validation_path.0).chain(&mut data.labels);
    for path in paths.filter(|path| is_url(path)) {
        *path = one(path, &|name| beside(kind, name), tell)?;
    }
    Ok(())
}

/// The names of the files that belong to one of this name.
fn beside(kind: DataKind, name: &str) -> Vec<String> {
    match kind {
        DataKind::Tokens => {
            let stem = name.strip_suffix(".bin").or(name.strip_suffix(".idx"));
            let own =
                stem.map(|stem| [format!("{stem}.bin"), format!("{stem}.idx"), format!("{stem}.bin.json")]);
            let mut names = own.map_or_else(|| vec![format!("{name}.json")], Vec::from);
            names.retain(|other| other != name);
            names
        }
        // The labels of images, by MNIST's names.
        DataKind::Idx => vec![name.replace("images", "labels").replace("idx3", "idx1")],
        _ => Vec::new(),
    }
}
