//! Wires as bytes: what a wire needs so that it can be sent to another process.

use std::io::{self, Read, Write};

use pipewright_stages::{Bytes, DType, Device, Kind, MAX_DIMS, Place, Shape, Tensor};

use crate::error::Result;

/// A wire that can be sent to another process: as a description, for which the receiver makes room, and as
/// its numbers.
///
/// If a wire's own code returns an error or panics, the callers on both sides get
/// [`FabricError::Failed`](crate::error::FabricError::Failed), with the ranks and the tag.
pub trait WireFrame: Send + Sized + 'static {
    /// The conversions, if the wire is a tensor and nothing else, and has a tensor's description. Then a
    /// carrier of tensors can move it.
    fn as_tensor() -> Option<TensorForm<Self>> {
        None
    }

    /// The same wire on the host, so that its numbers can be written. Waits for the wire's device.
    ///
    /// # Errors
    /// When the wire's device fails.
    fn to_host(self) -> Result<Self> {
        Ok(self)
    }

    /// Appends the description, of at most 4,096 bytes. For a tensor these are its kind and dimensions.
    fn describe(&self, description: &mut Vec<u8>);

    /// How many bytes [`WireFrame::write`] writes.
    fn bytes(&self) -> u64;

    /// Writes the numbers of a wire on the host, little endian.
    ///
    /// # Errors
    /// Whatever `to` reports. Also when the wire cannot be written.
    fn write(&self, to: &mut dyn Write) -> io::Result<()>;

    /// Makes a wire from this description, and reads its `bytes` bytes of numbers. Both come from another
    /// process. So a description that needs another number of bytes must be an error, before memory is
    /// allocated for it.
    ///
    /// # Errors
    /// Whatever `from` reports. Also when this is not a wire.
    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self>;
}

/// The conversions between a wire and a tensor.
#[derive(Debug)]
pub struct TensorForm<W> {
    /// The tensor in a wire.
    pub tensor: fn(&W) -> &Tensor,
    /// A wire with this tensor.
    pub wire: fn(Tensor) -> W,
}

impl WireFrame for Tensor {
    fn as_tensor() -> Option<TensorForm<Self>> {
        Some(TensorForm { tensor: |wire| wire, wire: |tensor| tensor })
    }

    fn to_host(self) -> Result<Self> {
        let dtype = self.place().dtype;
        let device = Device::Cpu;
        Ok(self.to(Place { device, dtype })?)
    }

    fn describe(&self, description: &mut Vec<u8>) {
        let kind = description.len();
        describe(self.shape(), description);
        if self.place().dtype == DType::Bf16 {
            description[kind] = BF16;
        }
    }

    fn bytes(&self) -> u64 {
        Bytes::bytes(self)
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.as_bytes())
    }

    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        let (shape, dtype) = described_tensor(description)
            .ok_or_else(|| io::Error::other("its description is of no tensor"))?;
        let needed = (dtype.bytes() * shape.dims().iter().product::<usize>()) as u64;
        if needed != bytes {
            return Err(io::Error::other(format!("{shape} has {needed} bytes, and {bytes} came")));
        }
        let mut tensor = room_for(&shape, dtype);
        from.read_exact(tensor.as_bytes_mut())?;
        Ok(tensor)
    }
}

/// A tensor of this shape, for numbers to come.
pub(super) fn room_for(shape: &Shape, dtype: DType) -> Tensor {
    match (shape.kind(), dtype) {
        (Kind::Ids, _) => Tensor::scratch_ids(shape.dims()),
        (Kind::F32, DType::F32) => Tensor::scratch(shape.dims()),
        (Kind::F32, DType::Bf16) => Tensor::scratch_bf16(shape.dims()),
    }
}

/// The kind of 16-bit numbers.
const BF16: u8 = 2;

/// Appends a shape: the kind, then each dimension in eight bytes.
pub(crate) fn describe(shape: &Shape, description: &mut Vec<u8>) {
    description.push(match shape.kind() {
        Kind::F32 => 0,
        Kind::Ids => 1,
    });
    for &dim in shape.dims() {
        description.extend((dim as u64).to_le_bytes());
    }
}

/// The shape and the type of numbers of a tensor that [`WireFrame::describe`] described. `None` for ids.
pub(super) fn described_numbers(description: &[u8]) -> Option<(Shape, DType)> {
    let (shape, dtype) = described_tensor(description)?;
    (shape.kind() == Kind::F32).then_some((shape, dtype))
}

/// The shape and the type of numbers of a tensor that [`WireFrame::describe`] described. Ids have no type of
/// their own: they are as wide as `f32`.
pub(super) fn described_tensor(description: &[u8]) -> Option<(Shape, DType)> {
    match description.split_first()? {
        (&BF16, dims) => Some((described_as(Kind::F32, dims)?, DType::Bf16)),
        _ => Some((described(description)?, DType::F32)),
    }
}

/// Reads the shape that [`describe`] wrote.
pub(crate) fn described(description: &[u8]) -> Option<Shape> {
    let (kind, dims) = description.split_first()?;
    let kind = match kind {
        0 => Kind::F32,
        1 => Kind::Ids,
        _ => return None,
    };
    described_as(kind, dims)
}

/// The shape of this kind with these dimensions.
fn described_as(kind: Kind, dims: &[u8]) -> Option<Shape> {
    let (dims, rest) = dims.as_chunks::<8>();
    if dims.len() > MAX_DIMS || !rest.is_empty() {
        return None;
    }
    let mut all = [0; MAX_DIMS];
    for (place, dim) in all.iter_mut().zip(dims) {
        *place = usize::try_from(u64::from_le_bytes(*dim)).ok()?;
    }
    all[..dims.len()].iter().try_fold(4_usize, |bytes, dim| bytes.checked_mul(*dim))?;
    Some(Shape::new(kind, &all[..dims.len()]))
}
