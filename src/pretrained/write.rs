//! Writes a model in Hugging Face's form.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::architecture::Architecture;
use super::described::{CONFIG, describe};
use super::mapped::{Mapped, Part};
use crate::error::{Error, Result};

/// Writes `config.json`, `model.safetensors`, in `f32`, and further files, each a name and its text, into a
/// folder that does not exist yet. `weights` gives the numbers of a parameter by our name; they are asked for
/// one after the other.
///
/// # Errors
/// When there is such a folder already, when a file cannot be written, and what `weights` returns.
pub fn write(
    folder: &Path,
    architecture: &Architecture,
    files: &[(&str, String)],
    weights: impl FnMut(&str) -> Result<Vec<f32>>,
) -> Result<()> {
    fill(folder, || {
        write_texts(folder, architecture, files)?;
        write_tensors(&folder.join("model.safetensors"), &architecture.table(), weights)
    })
}

/// Writes `config.json` and further files.
pub(super) fn write_texts(
    folder: &Path,
    architecture: &Architecture,
    files: &[(&str, String)],
) -> Result<()> {
    let config = (CONFIG, describe(architecture));
    std::iter::once(&config).chain(files).try_for_each(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))
    })
}

/// Makes a folder that does not exist yet, and lets `work` write its files. If that fails, for example
/// because the disk is full, the folder is removed.
pub(super) fn fill(folder: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    if folder.exists() {
        return Err(Error::folder_exists(folder));
    }
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    work().inspect_err(|_| {
        // What failed is told, and not that something of it is left.
        let _ = fs::remove_dir_all(folder);
    })
}

/// Writes the tensors of a table into a file.
pub(super) fn write_tensors(
    path: &Path,
    table: &[Mapped],
    mut weights: impl FnMut(&str) -> Result<Vec<f32>>,
) -> Result<()> {
    let written = |error| Error::io("write", path)(error);
    let mut file = BufWriter::new(File::create(path).map_err(written)?);
    let parts = table.iter().flat_map(|mapped| &mapped.parts);
    file.write_all(&header(parts)).map_err(written)?;
    for mapped in table {
        let numbers = weights(&mapped.name)?;
        file.write_all(bytemuck::cast_slice(&numbers)).map_err(written)?;
    }
    file.flush().map_err(written)
}

/// The header of a file of `f32`.
fn header<'a>(parts: impl Iterator<Item = &'a Part>) -> Vec<u8> {
    let mut end = 0;
    let entry = |part: &Part| {
        let begin = end;
        end += 4 * part.count();
        let info = TensorInfo { dtype: Dtype::F32, shape: part.dims.clone(), data_offsets: (begin, end) };
        (part.name.clone(), info)
    };
    let entries = parts.map(entry).collect();
    let about = [("format".to_owned(), "pt".to_owned())];
    header_of(&Metadata::new(Some(about.into()), entries).expect("names differ and offsets follow on"))
}

/// The length of a header, then the header.
pub(super) fn header_of(metadata: &Metadata) -> Vec<u8> {
    let mut json = serde_json::to_vec(metadata).expect("metadata always serialises");
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_filled_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("model");
        let full = || -> Result<()> {
            fs::write(folder.join("half"), "of it").expect("it was made");
            Err(Error::io("write", &folder)(std::io::ErrorKind::StorageFull.into()))
        };
        fill(&folder, full).expect_err("the disk is full");
        assert!(!folder.exists());
        fill(&folder, || Ok(())).expect("it is free");
        let error = fill(&folder, || Ok(())).expect_err("it is there");
        assert!(error.to_string().contains("model"), "{error}");
        assert!(folder.exists());
    }
}
