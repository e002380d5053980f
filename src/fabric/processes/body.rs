//! The large end of a frame, where it is sent from the memory of a wire, and received into memory of its own.

use pipewright_stages::Tensor;

use super::line::Numbers;
use crate::fabric::wire::{TensorForm, WireFrame, described_tensor, room_for};

/// What a reader has given room for.
pub(super) enum Body<W> {
    Block(Vec<u8>),
    Wire(Tensor, TensorForm<W>),
}

impl<W: WireFrame> Body<W> {
    /// Room for a wire with this description and `length` bytes. `None` if it is not a tensor, or a tensor
    /// with another number of bytes.
    pub(super) fn wire(description: &[u8], length: usize) -> Option<Self> {
        let form = W::as_tensor()?;
        let (shape, dtype) = described_tensor(description)?;
        let needed = dtype.bytes() * shape.dims().iter().product::<usize>();
        (needed == length).then(|| Self::Wire(room_for(&shape, dtype), form))
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Block(block) => block,
            Self::Wire(tensor, _) => tensor.as_bytes_mut(),
        }
    }
}

/// A wire that is a tensor on the host.
pub(super) struct TensorWire<W> {
    pub(super) wire: W,
    pub(super) form: TensorForm<W>,
}

impl<W: WireFrame> Numbers for TensorWire<W> {
    fn bytes(&self) -> &[u8] {
        (self.form.tensor)(&self.wire).as_bytes()
    }
}
