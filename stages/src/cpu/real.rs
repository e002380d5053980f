//! The number formats of activations: `f32` and `bf16`. All arithmetic is in `f32`.

use half::bf16;
use multiversion::multiversion;

use crate::device::DType;
use crate::pool::Number;

/// A number format of activations.
pub(crate) trait Real: Number + bytemuck::Pod + Send + Sync {
    /// Its name.
    const DTYPE: DType;

    /// The number in `f32`.
    fn wide(self) -> f32;

    /// The nearest number of this format. Of two that are equally near, the even one.
    fn narrow(number: f32) -> Self;

    /// The number in `bf16`.
    #[inline(always)]
    fn half(self) -> bf16 {
        bf16::narrow(self.wide())
    }

    /// Works on a row in `f32`. There is room for it, if it must be copied.
    fn widened<T>(row: &mut [Self], room: &mut [f32], work: impl FnOnce(&mut [f32]) -> T) -> T;
}

impl Real for f32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        number
    }

    fn widened<T>(row: &mut [Self], _room: &mut [f32], work: impl FnOnce(&mut [f32]) -> T) -> T {
        work(row)
    }
}

// The conversions of `half` have branches, so loops over them do not vectorise.
impl Real for bf16 {
    const DTYPE: DType = DType::Bf16;

    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        let bits = number.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // The bits of a NaN may not be rounded: they could become the bits of infinity.
        let quiet = bits | 0x0040_0000;
        let bits = if number.is_nan() { quiet } else { rounded };
        Self::from_bits((bits >> 16) as u16)
    }

    #[inline(always)]
    fn half(self) -> bf16 {
        self
    }

    fn widened<T>(row: &mut [Self], room: &mut [f32], work: impl FnOnce(&mut [f32]) -> T) -> T {
        convert(room, row);
        let result = work(room);
        convert(row, room);
        result
    }
}

/// The same numbers in another format.
#[multiversion(targets = "simd")]
pub(crate) fn convert<N: Real, M: Real>(to: &mut [N], from: &[M]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = N::narrow(from.wide());
    }
}

/// Evaluates an expression in which a name stands for the type of this format's numbers.
macro_rules! in_format {
    ($dtype:expr, $N:ident => $value:expr) => {
        match $dtype {
            $crate::device::DType::F32 => {
                type $N = f32;
                $value
            }
            $crate::device::DType::Bf16 => {
                type $N = half::bf16;
                $value
            }
        }
    };
}

pub(crate) use in_format;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of `bf16`, and numbers at and beside the middle between it and the next.
    #[test]
    fn rounding_is_that_of_the_standard() {
        for high in 0..=u32::from(u16::MAX) {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let number = f32::from_bits(high << 16 | low);
                let [got, expected] = [bf16::narrow(number), bf16::from_f32(number)];
                assert_eq!(got.to_bits(), expected.to_bits(), "{number:e}");
                assert!(got.wide() == got.to_f32() || got.is_nan());
            }
        }
    }
}
