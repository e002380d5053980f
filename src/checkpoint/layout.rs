//! Which tensors a checkpoint's files hold, and where in the files they are.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo as Entry};

/// A parameter in a checkpoint: its name and its dimensions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorInfo {
    /// The parameter's name.
    pub name: String,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Whether it is trained: the optimizer's file has tensors for it.
    pub is_trained: bool,
}

/// The tensors of a checkpoint's two files for these parameters, in name order in each file.
pub(super) fn tensors(parameters: &[TensorInfo], states: &[&str]) -> (Vec<TensorInfo>, Vec<TensorInfo>) {
    let mut model = parameters.to_vec();
    model.sort();
    model.dedup();
    let state = |tensor: &TensorInfo| {
        let TensorInfo { name, dims, .. } = tensor.clone();
        let of = move |state: &&str| TensorInfo {
            name: state_name(&name, state),
            dims: dims.clone(),
            is_trained: true,
        };
        states.iter().map(of).collect::<Vec<_>>()
    };
    let optimizer = model
        .iter()
        .filter(|tensor| tensor.is_trained)
        .flat_map(state)
        .collect();
    (model, optimizer)
}

/// The name of an optimizer's tensor.
pub(super) fn state_name(parameter: &str, state: &str) -> String {
    format!("{parameter}.{state}")
}

/// A safetensors file without its tensors' numbers.
#[derive(Debug)]
pub(super) struct Layout {
    /// The length of the header's text, then the text.
    pub(super) header: Vec<u8>,
    /// Where each tensor begins, in bytes from the start of the file.
    pub(super) offsets: HashMap<String, u64>,
    /// The length of the whole file in bytes.
    pub(super) size: u64,
}

impl Layout {
    /// Places the tensors one after the other.
    pub(super) fn of(tensors: &[TensorInfo]) -> Self {
        let mut end = 0;
        let mut entries = Vec::with_capacity(tensors.len());
        let mut begins = Vec::with_capacity(tensors.len());
        for TensorInfo { name, dims, .. } in tensors {
            let begin = end;
            end += 4 * dims.iter().product::<usize>();
            let entry = Entry {
                dtype: Dtype::F32,
                shape: dims.clone(),
                data_offsets: (begin, end),
            };
            entries.push((name.clone(), entry));
            begins.push((name.clone(), begin as u64));
        }
        let metadata = Metadata::new(None, entries).expect("names are unique and offsets follow on");
        let mut json = serde_json::to_vec(&metadata).expect("metadata always serialises");
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.append(&mut json);
        let start = header.len() as u64;
        let offset = |(name, begin)| (name, start + begin);
        Self {
            header,
            offsets: begins.into_iter().map(offset).collect(),
            size: start + end as u64,
        }
    }
}
