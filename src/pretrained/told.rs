//! What a folder's files say and this program does not do: for a warning, because no number here is wrong.

use std::path::Path;

use serde_json::Value;

use super::architecture::Family;
use super::described::{CONFIG, Described};
use super::generation::{OF_CHOICE, choice};
use super::key::{Table, all_told, unknown};
use super::rope::Flat;
use crate::error::Result;

/// Lines about a folder's `config.json`: its keys that nobody reads, and, for a program that trains, what
/// transformers would train with. None about a folder without that file.
///
/// # Errors
/// As for [`super::read_config`].
pub fn told_of_model(folder: &Path, trains: bool) -> Result<Vec<String>> {
    if !folder.join(CONFIG).is_file() {
        return Ok(Vec::new());
    }
    let described = Described::read(folder)?;
    let (path, found) = (described.path.display(), &described.found);
    let flat = Flat::of(&described.path, found)?;
    let mut names = unknown(found, &described.tables());
    names.extend(unknown(&flat.keys, &[flat.table()]));
    let mut lines = Vec::new();
    if !names.is_empty() {
        lines.push(format!(
            "{path}: {} changes nothing: neither transformers nor this program reads it for this model",
            names.join(", ")
        ));
    }
    let values = listed(found, &described.tables());
    if trains && !values.is_empty() {
        let cure = match described.family {
            None => "model.dropout sets dropout of embeddings and blocks, none is of attention",
            Some(Family::Mixtral) => "model.auxiliary sets the loss of the router, none is dropout",
            Some(_) => "there is no such setting here",
        };
        lines.push(format!("{path}: {values}: transformers trains with it, this program does not; {cure}"));
    }
    Ok(lines)
}

/// Lines about the keys by which transformers chooses tokens and this program does not.
///
/// # Errors
/// When the file cannot be read.
pub fn told_of_choice(folder: &Path) -> Result<Vec<String>> {
    let Some((path, found)) = choice(folder)? else {
        return Ok(Vec::new());
    };
    let keys = Table { prefix: "", keys: OF_CHOICE };
    let values = listed(&found, &[keys]);
    if values.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "{}: {values}: transformers computes with it, this program does not; the options of the command say \
         how tokens are chosen",
        path.display()
    )])
}

/// The keys with which transformers computes and this program does not.
fn listed(found: &Value, tables: &[Table<'_>]) -> String {
    let one = |(name, value)| format!("{name} is {value}");
    let all: Vec<String> = all_told(found, tables).into_iter().map(one).collect();
    all.join(", ")
}
