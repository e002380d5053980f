//! Places in object stores: whether this program can use them. No store is asked.

use std::path::Path;

use crate::config::Config;
use crate::error::Result;
use pipewright::store;

/// Refuses URLs of data that no store of this program can have.
pub(super) fn of_data(config: &Config) -> Result<()> {
    let data = &config.data;
    let paths = data.path.0.iter().map(|path| ("data.path", path));
    let validation = data.validation_path.0.iter().map(|path| ("data.validation_path", path));
    let labels = data.labels.iter().map(|path| ("data.labels", path));
    let mut urls = paths.chain(validation).chain(labels).filter(|(_, path)| store::is_url(path));
    urls.try_for_each(|(key, path)| check(config, key, path))
}

/// Refuses a place of copies that no store of this program can have.
pub(super) fn of_copies(config: &Config) -> Result<()> {
    let place = config.checkpoint.copy_to.as_deref();
    place.map_or(Ok(()), |place| check(config, "checkpoint.copy_to", Path::new(place)))
}

fn check(config: &Config, key: &str, place: &Path) -> Result<()> {
    store::check(&place.to_string_lossy()).map_err(|error| config.refuse(key, error.to_string()))
}
