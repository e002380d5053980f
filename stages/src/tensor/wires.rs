//! The number formats of wires between processes.
//!
//! What a unit of a model gives the next one is [rounded](Tensor::rounded_for) to the format, wherever the
//! model is cut. So a wire in this format loses nothing, and the numbers are the same for any cut.

use std::fmt;

use super::Tensor;
use super::blocks::{self, BLOCK};
use crate::cpu::parts::{By, cut};
use crate::cpu::real::Real;
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::shape::{Kind, MAX_DIMS, Shape};

/// The number format of activations and their gradients on wires between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WireFormat {
    /// As the ranks compute them.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "f32"))]
    Whole,
    /// 16 bits: the nearest number of `bf16`.
    #[cfg_attr(feature = "serde", serde(rename = "bf16"))]
    Bf16,
    /// 8 bits: blocks of up to 128 numbers of a row, each with a scale of 32 bits. A number is a whole number
    /// from -127 to 127 times the scale.
    #[cfg_attr(feature = "serde", serde(rename = "8bit"))]
    Blocks,
}

impl WireFormat {
    /// The bytes of a wire, as a share of its bytes in `f32`, where rows are long.
    pub fn share(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Bf16 => 0.5,
            Self::Blocks => (BLOCK + SCALE) as f64 / (F32 * BLOCK) as f64,
        }
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "f32",
            Self::Bf16 => "bf16",
            Self::Blocks => "8bit",
        })
    }
}

const F32: usize = size_of::<f32>();
const SCALE: usize = size_of::<u32>();

/// The words before the scales: how many dimensions there are, and the dimensions.
const HEAD: usize = 1 + MAX_DIMS;

/// The words of a tensor in blocks: first the head, then the scales, then the codes, four in a word.
struct Words {
    scales: usize,
    codes: usize,
}

impl Words {
    /// For a tensor of this shape.
    fn of(shape: &Shape) -> Self {
        Self { scales: shape.rows() * shape.last().div_ceil(BLOCK), codes: shape.count() }
    }

    fn count(&self) -> usize {
        HEAD + self.scales + self.codes.div_ceil(size_of::<u32>())
    }
}

impl Tensor {
    /// The same tensor. Its numbers are the nearest ones that a wire of this format can hold. A number that
    /// is not finite makes all of its block NaN.
    ///
    /// # Errors
    /// When it is in `bf16` or on a GPU, and the format is [`WireFormat::Blocks`].
    pub(crate) fn rounded_for(mut self, format: WireFormat) -> Result<Self> {
        if self.shape().kind() == Kind::Ids || self.shape().count() == 0 {
            return Ok(self);
        }
        let place = self.place();
        match (format, place.device) {
            (WireFormat::Whole, _) => {}
            (WireFormat::Bf16, _) if place.dtype == DType::Bf16 => {}
            (WireFormat::Bf16, Device::Cpu) => {
                let numbers = self.f32_mut();
                cut(By(numbers, BLOCK), BLOCK, |_, numbers| round_to_bf16(numbers));
            }
            (WireFormat::Bf16, Device::Cuda(_)) => {
                return self.arrive(Place { dtype: DType::Bf16, ..place })?.arrive(place);
            }
            (WireFormat::Blocks, _) => {
                check_blocks(place)?;
                let width = self.shape().last();
                cut(By(self.f32_mut(), width), width, |_, rows| blocks::round(rows, width));
            }
        }
        Ok(self)
    }

    /// The tensor as a wire of this format.
    ///
    /// # Errors
    /// As for [`Tensor::rounded_for`]. Also for a tensor of ids in blocks.
    pub(crate) fn narrowed(self, format: WireFormat) -> Result<Self> {
        match format {
            WireFormat::Whole => Ok(self),
            WireFormat::Bf16 => {
                let place = Place { dtype: DType::Bf16, ..self.place() };
                self.to(place)
            }
            WireFormat::Blocks if self.shape().kind() == Kind::Ids => {
                Err(Error::new("wires of 8 bits hold numbers, and these are ids: set the format to f32"))
            }
            WireFormat::Blocks => in_blocks(&self),
        }
    }

    /// The tensor in a wire that [`Tensor::narrowed`] made. Where the numbers are in `f32` again is up to
    /// [`Tensor::arrive`], for `bf16`.
    ///
    /// # Errors
    /// When the wire is no such tensor: it comes from another process.
    pub(crate) fn widened(self, format: WireFormat) -> Result<Self> {
        match (format, self.shape().kind()) {
            (WireFormat::Blocks, Kind::Ids) => from_blocks(&self),
            _ => Ok(self),
        }
    }
}

fn round_to_bf16(numbers: &mut [f32]) {
    for number in numbers {
        *number = half::bf16::narrow(*number).wide();
    }
}

/// Refuses numbers that cannot be in blocks.
pub(crate) fn check_blocks(place: Place) -> Result<()> {
    match (place.device, place.dtype) {
        (Device::Cpu, DType::F32) => Ok(()),
        _ => Err(Error::new(
            "wires of 8 bits are for ranks on the CPU that compute in f32: set the format of wires to bf16",
        )),
    }
}

fn in_blocks(tensor: &Tensor) -> Result<Tensor> {
    check_blocks(tensor.place())?;
    let shape = *tensor.shape();
    let words = Words::of(&shape);
    if words.count() > shape.count() {
        // Such a small tensor stays as it is.
        return Ok(tensor.clone());
    }
    let width = shape.last();
    let mut wire = Tensor::scratch_ids(&[words.count()]);
    let (head, rest) = wire.ids_mut().split_at_mut(HEAD);
    head.fill(0);
    head[0] = shape.dims().len() as u32;
    for (word, dim) in head[1..].iter_mut().zip(shape.dims()) {
        *word = u32::try_from(*dim).map_err(|_| Error::new(format!("{shape} is too large for a wire")))?;
    }
    let (scales, codes) = rest.split_at_mut(words.scales);
    let codes: &mut [u8] = bytemuck::cast_slice_mut(codes);
    codes[words.codes..].fill(0);
    let rows = By(tensor.f32(), width);
    let coded = (By(scales, width.div_ceil(BLOCK)), By(&mut codes[..words.codes], width));
    cut((rows, coded), width, |_, (rows, (scales, codes))| blocks::encode(rows, width, scales, codes));
    Ok(wire)
}

fn from_blocks(wire: &Tensor) -> Result<Tensor> {
    let wrong = || Error::new(format!("a wire of 8 bits came as {}, which has no such tensor", wire.shape()));
    let (head, rest) = wire.ids().split_at_checked(HEAD).ok_or_else(wrong)?;
    let dims: Vec<usize> = head[1..].iter().map(|dim| *dim as usize).collect();
    let dims = dims.get(..head[0] as usize).ok_or_else(wrong)?;
    let count = dims.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim)).ok_or_else(wrong)?;
    // Four codes are in a word, so no more memory is allocated than this.
    if count == 0 || count > size_of_val(rest) {
        return Err(wrong());
    }
    let shape = Shape::f32(dims);
    let words = Words::of(&shape);
    if words.count() != HEAD + rest.len() {
        return Err(wrong());
    }
    let width = shape.last();
    let (scales, codes) = rest.split_at(words.scales);
    let codes: &[u8] = &bytemuck::cast_slice(codes)[..words.codes];
    let mut tensor = Tensor::on_host(dims)?;
    let rows = By(tensor.f32_mut(), width);
    let coded = (By(scales, width.div_ceil(BLOCK)), By(codes, width));
    cut((rows, coded), width, |_, (rows, (scales, codes))| blocks::decode(rows, width, scales, codes));
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    const FORMATS: [WireFormat; 3] = [WireFormat::Whole, WireFormat::Bf16, WireFormat::Blocks];

    fn drawn(dims: &[usize]) -> Tensor {
        let mut tensor = Tensor::zeros(dims);
        rng::fill_normal(rng::key(3, "wires"), 0.2, tensor.f32_mut());
        tensor
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        tensor.f32().iter().map(|number| number.to_bits()).collect()
    }

    #[test]
    fn a_wire_of_rounded_numbers_loses_nothing() {
        for format in FORMATS {
            for dims in [&[1][..], &[3, 1], &[5, 7], &[2, 3, 128], &[4, 300], &[1, 2, 3, 130]] {
                let rounded = drawn(dims).rounded_for(format).expect("on the CPU");
                let wire = rounded.clone().narrowed(format).expect("it has numbers");
                let back = wire.widened(format).expect("as it was sent").arrive(Place::default());
                let back = back.expect("on the CPU");
                assert_eq!(back.dims(), dims);
                assert_eq!(bits(&back), bits(&rounded), "{format} of {dims:?}");
            }
        }
    }

    #[test]
    fn a_wire_has_the_bytes_that_its_format_promises() {
        use crate::tensor::Bytes;
        let whole = drawn(&[64, 768]);
        let bytes = whole.bytes() as f64;
        for format in FORMATS {
            let wire = whole.clone().narrowed(format).expect("it has numbers");
            let share = Bytes::bytes(&wire) as f64 / bytes;
            assert!((share - format.share()).abs() < 1e-3, "{format}: {share}");
        }
    }

    #[test]
    fn a_damaged_wire_is_an_error() {
        let wire = drawn(&[3, 201]).narrowed(WireFormat::Blocks).expect("it has numbers");
        let words = wire.ids().to_vec();
        let came = |words: Vec<u32>| {
            let wire = Tensor::from_ids(&[words.len()], words).expect("as many as there are");
            wire.widened(WireFormat::Blocks)
        };
        came(words.clone()).expect("as it was sent");
        for end in [0, 1, HEAD, words.len() - 1] {
            assert!(came(words[..end].to_vec()).is_err(), "{end} words");
        }
        for place in 0..HEAD {
            for value in [0, 1, 4, 5, 200, 202, u32::MAX] {
                let mut damaged = words.clone();
                damaged[place] = value;
                if let Ok(tensor) = came(damaged.clone()) {
                    // The unused dimensions say nothing.
                    assert!(damaged == words || place > 2, "word {place} is {value}");
                    assert_eq!(tensor.dims(), [3, 201]);
                }
            }
        }
    }

    #[test]
    fn ids_do_not_go_by_8_bits() {
        let ids = Tensor::from_ids(&[2], vec![1, 2]).expect("two");
        let error = ids.narrowed(WireFormat::Blocks).expect_err("they are no numbers");
        assert!(error.to_string().contains("these are ids"), "{error}");
    }
}
