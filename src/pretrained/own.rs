//! Models in our own form: a folder with `config.toml`, a whole config, and `model.safetensors` with our
//! names. For models that Hugging Face has no form for.

use std::fs;
use std::path::Path;

use pipewright_stages::Lora;
use pipewright_stages::models::UnitContents;

use super::mapped::Mapped;
use super::weights::{ONE, Weights};
use super::write::{fill, write_tensors};
use crate::error::{Error, Result};

/// The file with the config.
pub const OWN_CONFIG: &str = "config.toml";

/// Whether a folder has a model in our own form.
pub fn is_own(folder: &Path) -> bool {
    folder.join(OWN_CONFIG).is_file() && folder.join(ONE).is_file()
}

/// The config of such a folder.
///
/// # Errors
/// When it cannot be read.
pub fn own_config(folder: &Path) -> Result<String> {
    let path = folder.join(OWN_CONFIG);
    fs::read_to_string(&path).map_err(Error::io("read", &path))
}

/// Writes a config and the parameters of a model, in `f32`, into a folder that does not exist yet. `weights`
/// gives the numbers of a parameter.
///
/// # Errors
/// When there is such a folder already, when a file cannot be written, and what `weights` returns.
pub fn write_own(
    folder: &Path,
    config: &str,
    units: &[UnitContents],
    weights: impl FnMut(&str) -> Result<Vec<f32>>,
) -> Result<()> {
    fill(folder, || {
        let path = folder.join(OWN_CONFIG);
        fs::write(&path, config).map_err(Error::io("write", &path))?;
        write_tensors(&folder.join(ONE), &table(units), weights)
    })
}

/// Opens the file of such a folder, and checks that it has exactly the parameters of the model.
///
/// # Errors
/// As for [`Weights::open`].
pub fn open_own(folder: &Path, units: &[UnitContents]) -> Result<Weights> {
    Weights::of(folder, vec![ONE.to_owned()], table(units), OWN_CONFIG)
}

/// The parameters of a model without adapters, tied ones once.
fn table(units: &[UnitContents]) -> Vec<Mapped> {
    let mut table: Vec<Mapped> = Vec::new();
    for one in units.iter().flat_map(|unit| &unit.parameters) {
        if Lora::is_adapter(&one.name) || table.iter().any(|mapped| mapped.name == one.name) {
            continue;
        }
        table.push(Mapped::one(&one.name, &one.dims, &one.name));
    }
    table
}
