//! Folders with quantised matrices: `quantised.safetensors`. A matrix there is a tensor of bytes, and the
//! file's header says by its name of which kind its blocks are.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use pipewright_stages::Quantisation;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::architecture::Architecture;
use super::mapped::Part;
use super::write::{fill, header_of, write_texts};
use crate::error::{Error, Result};

/// The file with the weights.
pub(super) const QUANTISED: &str = "quantised.safetensors";

/// The key of the header that says what the file is.
pub(super) const FORMAT: (&str, &str) = ("format", "pipewright-quantised");

/// A tensor to be written: numbers, or rows of blocks.
pub(super) enum Stored {
    Numbers(Vec<f32>),
    Blocks(Vec<u8>),
}

/// The kind and the dimensions of a tensor of bytes. `None` if it is no matrix of such blocks.
pub(super) fn described(kind: &str, info: &TensorInfo) -> Option<(Quantisation, Vec<usize>)> {
    let kind = Quantisation::ALL.into_iter().find(|known| format!("{known:?}") == kind)?;
    let &[rows, row_bytes] = &info.shape[..] else { return None };
    let (numbers, bytes) = kind.block();
    let is_whole = info.dtype == Dtype::U8 && row_bytes > 0 && row_bytes.is_multiple_of(bytes);
    is_whole.then(|| (kind, vec![rows, row_bytes / bytes * numbers]))
}

/// As [`write`](super::write::write), with the matrices in blocks of which `kinds` says so, by Hugging Face's
/// names. Each tensor is asked for when its turn comes.
pub(super) fn write_quantised(
    folder: &Path,
    architecture: &Architecture,
    files: &[(&str, String)],
    kinds: &BTreeMap<String, Quantisation>,
    tensor: impl FnMut(&Part) -> Result<Stored>,
) -> Result<()> {
    fill(folder, || {
        write_texts(folder, architecture, files)?;
        let table = architecture.table();
        let parts = table.iter().flat_map(|mapped| &mapped.parts);
        write_tensors(&folder.join(QUANTISED), parts, kinds, tensor)
    })
}

fn write_tensors<'a>(
    path: &Path,
    parts: impl Iterator<Item = &'a Part> + Clone,
    kinds: &BTreeMap<String, Quantisation>,
    mut tensor: impl FnMut(&Part) -> Result<Stored>,
) -> Result<()> {
    let mut end = 0;
    let entry = |part: &Part| {
        let begin = end;
        let (dtype, shape) = match kinds.get(&part.name) {
            Some(kind) => (Dtype::U8, vec![part.dims[0], kind.bytes(part.dims[1])]),
            None => (Dtype::F32, part.dims.clone()),
        };
        end += shape.iter().product::<usize>() * if dtype == Dtype::U8 { 1 } else { size_of::<f32>() };
        (part.name.clone(), TensorInfo { dtype, shape, data_offsets: (begin, end) })
    };
    let entries = parts.clone().map(entry).collect();
    let mut about: HashMap<String, String> =
        kinds.iter().map(|(name, kind)| (name.clone(), format!("{kind:?}"))).collect();
    about.insert(FORMAT.0.to_owned(), FORMAT.1.to_owned());
    let metadata = Metadata::new(Some(about), entries).expect("names differ and offsets follow on");
    let written = |error| Error::io("write", path)(error);
    let mut file = BufWriter::new(File::create(path).map_err(written)?);
    file.write_all(&header_of(&metadata)).map_err(written)?;
    for part in parts {
        match tensor(part)? {
            Stored::Numbers(numbers) => file.write_all(bytemuck::cast_slice(&numbers)),
            Stored::Blocks(bytes) => file.write_all(&bytes),
        }
        .map_err(written)?;
    }
    file.flush().map_err(written)
}
