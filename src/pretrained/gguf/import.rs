//! Writes the model of a `.gguf` file in Hugging Face's form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pipewright_stages::Quantisation;
use pipewright_stages::models::Llama;

use super::file::Gguf;
use super::names::{is_permuted, there, unpermute};
use super::scaling::FACTORS;
use super::settings::{Settings, settings};
use super::tokenizer;
use crate::error::{Error, Result};
use crate::pretrained::mapped::{LEFT_OVER, MISSING, other_shape};
use crate::pretrained::quantised::{Stored, write_quantised};
use crate::pretrained::{Architecture, Family, GENERATION, Part, sizes, write};

/// What was imported.
#[derive(Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The model.
    pub architecture: Architecture,
    /// Whether its vocabulary could be written too.
    pub has_tokenizer: bool,
    /// Keys of its architecture that are not known. Nothing is done with them.
    pub unknown: Vec<String>,
}

/// Reads a `.gguf` file and writes its model into a new folder: weights in `f32`, settings, and the
/// vocabulary if it is one of pairs of bytes.
///
/// # Errors
/// When the file is none, or of an architecture or a quantisation that is not known; when it does not have
/// the tensors of its model; when the folder exists.
pub fn import(path: &Path, folder: &Path) -> Result<Imported> {
    import_to(path, folder, false)
}

/// As [`import`], but matrices keep the blocks that they have in the file: `quantised.safetensors`.
///
/// # Errors
/// As for [`import`].
pub fn import_blocks(path: &Path, folder: &Path) -> Result<Imported> {
    import_to(path, folder, true)
}

fn import_to(path: &Path, folder: &Path, keeps_blocks: bool) -> Result<Imported> {
    let file = Gguf::open(path)?;
    let Settings { family, model, unknown } = settings(&file)?;
    let architecture = Architecture::from((family, model));
    sizes::check(path, &architecture)?;
    let table = architecture.table();
    check(&file, table.iter().flat_map(|mapped| &mapped.parts))?;
    let of_tokenizer = tokenizer::files(&file);
    let has_tokenizer = of_tokenizer.is_some();
    let mut files = of_tokenizer.unwrap_or_default();
    files.push((GENERATION, tokenizer::generation(&file)));
    if keeps_blocks {
        let kinds = kinds(&file, table.iter().flat_map(|mapped| &mapped.parts))?;
        write_quantised(folder, &architecture, &files, &kinds, |part| {
            match kinds.contains_key(&part.name) {
                true => Ok(Stored::Blocks(bytes(&file, part, family, &model)?)),
                false => Ok(Stored::Numbers(read(&file, part, family, &model)?)),
            }
        })?;
        return Ok(Imported { architecture, has_tokenizer, unknown });
    }
    let weights = |name: &str| {
        let mapped = table.iter().find(|mapped| mapped.name == name);
        let parts = &mapped.expect("a name of the same table").parts;
        let numbers = parts.iter().map(|part| read(&file, part, family, &model));
        Ok(numbers.collect::<Result<Vec<_>>>()?.concat())
    };
    write(folder, &architecture, &files, weights)?;
    Ok(Imported { architecture, has_tokenizer, unknown })
}

/// Refuses a file that does not have these tensors and no others.
fn check<'a>(file: &Gguf, parts: impl Iterator<Item = &'a Part>) -> Result<()> {
    let mut problems = Vec::new();
    let mut left: BTreeSet<&str> = file.names().filter(|name| *name != FACTORS).collect();
    for part in parts {
        let name = there(&part.name).expect("a tensor of these families");
        left.remove(name.as_str());
        match file.dims(&name) {
            None => problems.push((name, MISSING.to_owned())),
            Some(found) if found != part.dims => problems.push((name, other_shape(found, &part.dims))),
            Some(_) => file.check(&name)?,
        }
    }
    problems.extend(left.into_iter().map(|name| (name.to_owned(), LEFT_OVER.to_owned())));
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::other_tensors(file.path(), "settings", &problems))
}

/// Which matrices are in blocks, by Hugging Face's names.
fn kinds<'a>(file: &Gguf, parts: impl Iterator<Item = &'a Part>) -> Result<BTreeMap<String, Quantisation>> {
    let mut kinds = BTreeMap::new();
    for part in parts.filter(|part| part.dims.len() == 2) {
        let how = file.how(&there(&part.name).expect("a tensor of these families"))?;
        if let Some(kind) = how.filter(|kind| kind.fits(part.dims[1])) {
            kinds.insert(part.name.clone(), kind);
        }
    }
    Ok(kinds)
}

/// The blocks of a matrix.
fn bytes(file: &Gguf, part: &Part, family: Family, model: &Llama) -> Result<Vec<u8>> {
    let bytes = file.bytes(&there(&part.name).expect("a tensor of these families"))?;
    if family == Family::Llama && is_permuted(&part.name) {
        let row = bytes.len() / part.dims[0].max(1);
        return Ok(unpermute(&bytes, model.heads.width, row));
    }
    Ok(bytes)
}

fn read(file: &Gguf, part: &Part, family: Family, model: &Llama) -> Result<Vec<f32>> {
    let name = there(&part.name).expect("a tensor of these families");
    let numbers = file.read(&name)?;
    if family == Family::Llama && is_permuted(&part.name) {
        let row = part.dims[1..].iter().product();
        return Ok(unpermute(&numbers, model.heads.width, row));
    }
    Ok(numbers)
}
