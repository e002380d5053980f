//! Which tensors a checkpoint's files hold, and where in the files they are.

use std::collections::HashMap;

use pipewright_stages::Parameter;
use pipewright_stages::optimizer::{self, Optimizer, StateFormat, StateTensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo as Entry};

/// A parameter in a checkpoint: its name and its dimensions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorInfo {
    /// The parameter's name.
    pub name: String,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see
    /// [`Parameter::fuse`](pipewright_stages::Parameter::fuse).
    pub fused: Vec<usize>,
    /// Whether it is trained: the optimizer's file has tensors for it.
    pub is_trained: bool,
    /// Whether the checkpoint has only a checksum of its numbers, because they stay where they came from: see
    /// [`Parameter::quantise`](pipewright_stages::Parameter::quantise).
    pub is_elsewhere: bool,
    /// The number format in the file. Weights have 32 bits.
    pub format: StateFormat,
}

impl TensorInfo {
    /// The number format in a file of safetensors.
    pub(super) fn dtype(&self) -> Dtype {
        match self.format {
            StateFormat::F32 => Dtype::F32,
            StateFormat::Bf16 => Dtype::BF16,
            StateFormat::Blocks => Dtype::U8,
        }
    }

    /// How many bytes its numbers take in the file.
    pub(super) fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype().bitsize() / 8
    }
}

/// A parameter, as a checkpoint has it.
pub(super) fn info(parameter: &Parameter) -> TensorInfo {
    TensorInfo {
        name: parameter.name().to_owned(),
        dims: parameter.whole_dims().to_vec(),
        fused: parameter.whole_fused().to_vec(),
        is_trained: parameter.is_optimized(),
        is_elsewhere: parameter.quantisation().is_some(),
        format: StateFormat::F32,
    }
}

/// The tensors of the model's file, in name order.
pub(super) fn weights(parameters: &[TensorInfo]) -> Vec<TensorInfo> {
    let mut model = parameters.to_vec();
    model.sort();
    model.dedup();
    model
}

/// The tensors of the optimizer's file, for these tensors of the model's file.
pub(super) fn states(model: &[TensorInfo], optimizer: &dyn Optimizer) -> Vec<TensorInfo> {
    let trained = model.iter().filter(|tensor| tensor.is_trained);
    let state = |tensor: &TensorInfo| state_tensors(tensor, optimizer);
    trained.flat_map(state).collect()
}

/// The optimizer's tensors for a parameter, as its file names them.
pub(super) fn state_tensors(of: &TensorInfo, optimizer: &dyn Optimizer) -> Vec<TensorInfo> {
    let TensorInfo { name, dims, fused, .. } = of;
    let states = optimizer::states(optimizer, name, dims, fused).into_iter();
    let tensor = |state: StateTensor| TensorInfo {
        name: format!("{name}.{}", state.name),
        dims: state.dims,
        fused: Vec::new(),
        is_trained: true,
        is_elsewhere: false,
        format: state.format,
    };
    states.map(tensor).collect()
}

/// A safetensors file without its tensors' numbers.
#[derive(Debug)]
pub(super) struct Layout {
    /// The length of the header's text, then the text.
    pub(super) header: Vec<u8>,
    /// Where each tensor begins, in bytes from the start of the file.
    pub(super) offsets: HashMap<String, u64>,
    /// The place and the length of each tensor, in order.
    pub(super) parts: Vec<(u64, u64)>,
    /// The length of the whole file in bytes.
    pub(super) size: u64,
}

impl Layout {
    /// Places the tensors one after the other.
    pub(super) fn of(tensors: &[TensorInfo]) -> Self {
        let mut end = 0;
        let mut entries = Vec::with_capacity(tensors.len());
        let mut begins = Vec::with_capacity(tensors.len());
        let mut lengths = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let begin = end;
            end += tensor.bytes();
            let shape = tensor.dims.clone();
            let entry = Entry { dtype: tensor.dtype(), shape, data_offsets: (begin, end) };
            entries.push((tensor.name.clone(), entry));
            begins.push((tensor.name.clone(), begin as u64));
            lengths.push((begin as u64, tensor.bytes() as u64));
        }
        let metadata = Metadata::new(None, entries).expect("names are unique and offsets follow on");
        let mut json = serde_json::to_vec(&metadata).expect("metadata always serialises");
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.append(&mut json);
        let start = header.len() as u64;
        let offset = |(name, begin)| (name, start + begin);
        let part = |(begin, bytes)| (start + begin, bytes);
        Self {
            header,
            offsets: begins.into_iter().map(offset).collect(),
            parts: lengths.into_iter().map(part).collect(),
            size: start + end as u64,
        }
    }
}
