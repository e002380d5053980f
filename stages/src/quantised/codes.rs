//! What the bits of a block mean.

use half::f16;

#[cfg(not(target_arch = "x86_64"))]
use self::narrow::WideCode;
use super::kind::Quantisation;
#[cfg(target_arch = "x86_64")]
use super::registers::WideCode;

/// Where there are no registers of AVX-512.
#[cfg(not(target_arch = "x86_64"))]
mod narrow {
    pub(crate) trait WideCode {}

    impl<C> WideCode for C {}
}

/// How many numbers are decoded at a time. Every block has a multiple of them.
pub(crate) const PIECE: usize = 32;

/// A piece in `bf16`, as pairs of numbers.
pub(crate) type Pairs = [u32; PIECE / 2];

/// A kind of blocks.
pub(crate) trait Code: WideCode {
    /// The numbers of a block.
    const NUMBERS: usize;
    /// The bytes of a block.
    const BYTES: usize;

    /// Decodes the piece with this number of a block.
    fn piece(block: &[u8], index: usize) -> [f32; PIECE];
}

/// Evaluates an expression in which a name stands for the type of a kind of blocks.
macro_rules! with_code {
    ($kind:expr, $C:ident => $value:expr) => {
        with_code!($kind, $C => $value; F16 Bf16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Nf4)
    };
    ($kind:expr, $C:ident => $value:expr; $($code:ident)*) => {
        match $kind {
            $(
                $crate::quantised::kind::Quantisation::$code => {
                    type $C = $crate::quantised::codes::$code;
                    $value
                }
            )*
        }
    };
}

pub(crate) use with_code;

/// Makes a type for each kind of blocks.
macro_rules! codes {
    ($($code:ident)*) => {
        $(
            #[allow(non_camel_case_types, reason = "these are the names in ggml")]
            pub(crate) struct $code;
        )*
    };
}

codes!(F16 Bf16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Nf4);

impl Quantisation {
    /// How many numbers a block has, and how many bytes.
    pub fn block(self) -> (usize, usize) {
        with_code!(self, C => (C::NUMBERS, C::BYTES))
    }

    /// Whether rows of this many numbers are whole blocks.
    pub fn fits(self, columns: usize) -> bool {
        columns > 0 && columns.is_multiple_of(self.block().0)
    }

    /// How many bytes this many numbers take, in whole blocks.
    pub fn bytes(self, numbers: usize) -> usize {
        let (count, bytes) = self.block();
        numbers / count * bytes
    }
}

/// The number of binary16 in two bytes.
#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_bits(u16::from_le_bytes([block[at], block[at + 1]])).to_f32()
}

/// This many bytes from a place on.
#[inline(always)]
pub(super) fn bytes<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a whole block")
}

/// The levels of a piece in 4 bits: the low halves of 16 bytes, then their high halves.
#[inline(always)]
fn nibbles(from: &[u8; 16]) -> [u8; PIECE] {
    let mut levels = [0; PIECE];
    for (index, byte) in from.iter().enumerate() {
        levels[index] = byte & 15;
        levels[index + 16] = byte >> 4;
    }
    levels
}

/// The same with a fifth bit, which is elsewhere.
#[inline(always)]
fn of_five(from: &[u8; 16], fifth: &[u8; 4]) -> [u8; PIECE] {
    let (mut levels, fifth) = (nibbles(from), u32::from_le_bytes(*fifth));
    for (index, level) in levels.iter_mut().enumerate() {
        *level |= ((fifth >> index & 1) << 4) as u8;
    }
    levels
}

/// `scale * (level - middle)`.
#[inline(always)]
fn scaled(levels: [u8; PIECE], scale: f32, middle: i32) -> [f32; PIECE] {
    levels.map(|level| scale * (i32::from(level) - middle) as f32)
}

/// `scale * level + least`.
#[inline(always)]
fn from_least(levels: [u8; PIECE], scale: f32, least: f32) -> [f32; PIECE] {
    levels.map(|level| scale * f32::from(level) + least)
}

/// The same with a scale and a least value for each half of a piece.
#[inline(always)]
fn halves_from_least(levels: [u8; PIECE], scales: [f32; 2], least: [f32; 2]) -> [f32; PIECE] {
    let mut numbers = [0.0; PIECE];
    for (index, (number, level)) in numbers.iter_mut().zip(levels).enumerate() {
        *number = scales[index / 16] * f32::from(level) + least[index / 16];
    }
    numbers
}

/// `scale * (level - middle)` with a scale for each half of a piece.
#[inline(always)]
fn halves_scaled(levels: [u8; PIECE], scales: [f32; 2], middle: i32) -> [f32; PIECE] {
    let mut numbers = [0.0; PIECE];
    for (index, (number, level)) in numbers.iter_mut().zip(levels).enumerate() {
        *number = scales[index / 16] * (i32::from(level) - middle) as f32;
    }
    numbers
}

impl Code for F16 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 2 * PIECE;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        std::array::from_fn(|index| half(block, 2 * index))
    }
}

impl Code for Bf16 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 2 * PIECE;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        let block = bytes::<{ Self::BYTES }>(block, 0);
        std::array::from_fn(|index| {
            let bits = u16::from_le_bytes([block[2 * index], block[2 * index + 1]]);
            f32::from_bits(u32::from(bits) << 16)
        })
    }
}

impl Code for Q4_0 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 18;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        scaled(nibbles(bytes(block, 2)), half(block, 0), 8)
    }
}

impl Code for Q4_1 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 20;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        from_least(nibbles(bytes(block, 4)), half(block, 0), half(block, 2))
    }
}

impl Code for Q5_0 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 22;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        scaled(of_five(bytes(block, 6), bytes(block, 2)), half(block, 0), 16)
    }
}

impl Code for Q5_1 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 24;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        from_least(of_five(bytes(block, 8), bytes(block, 4)), half(block, 0), half(block, 2))
    }
}

impl Code for Q8_0 {
    const NUMBERS: usize = PIECE;
    const BYTES: usize = 34;

    #[inline(always)]
    fn piece(block: &[u8], _index: usize) -> [f32; PIECE] {
        let scale = half(block, 0);
        bytes::<PIECE>(block, 2).map(|level| scale * f32::from(level as i8))
    }
}

/// The numbers of a large block of `ggml`.
const LARGE: usize = 256;

/// Two bits of each of 32 bytes.
#[inline(always)]
fn pairs(from: &[u8; PIECE], shift: usize) -> [u8; PIECE] {
    from.map(|byte| byte >> shift & 3)
}

/// Four bits of each of 32 bytes: the low or the high half.
#[inline(always)]
fn halves(from: &[u8; PIECE], is_high: bool) -> [u8; PIECE] {
    match is_high {
        false => from.map(|byte| byte & 15),
        true => from.map(|byte| byte >> 4),
    }
}

/// Bytes: 16 scales with their least values, 64 of levels, and two scales of these.
impl Code for Q2_K {
    const NUMBERS: usize = LARGE;
    const BYTES: usize = 84;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let levels = pairs(bytes(block, 16 + PIECE * (index / 4)), 2 * (index % 4));
        let (scale, least) = (half(block, 80), half(block, 82));
        let own = *bytes::<2>(block, 2 * index);
        let scales = own.map(|byte| scale * f32::from(byte & 15));
        let least = own.map(|byte| -(least * f32::from(byte >> 4)));
        halves_from_least(levels, scales, least)
    }
}

/// Bytes: 32 of third bits, 64 of levels, 12 of scales, and the scale of these.
impl Code for Q3_K {
    const NUMBERS: usize = LARGE;
    const BYTES: usize = 110;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let mut levels = pairs(bytes(block, 32 + PIECE * (index / 4)), 2 * (index % 4));
        for (level, third) in levels.iter_mut().zip(bytes::<PIECE>(block, 0)) {
            *level |= (third >> index & 1) << 2;
        }
        let scale = half(block, 108);
        halves_scaled(levels, [0, 1].map(|at| scale * of_third(block, 2 * index + at)), 4)
    }
}

/// The scale of half a piece of [`Q3_K`], before it is scaled itself: 6 bits, in 12 bytes.
#[inline(always)]
pub(super) fn of_third(block: &[u8], at: usize) -> f32 {
    let own = bytes::<12>(block, 96);
    let low = if at < 8 { own[at] & 15 } else { own[at - 8] >> 4 };
    let high = own[8 + at % 4] >> (2 * (at / 4)) & 3;
    f32::from((low | high << 4) as i8 - 32)
}

/// The scale and the least value of a piece of [`Q4_K`] and [`Q5_K`], before they are scaled themselves: 6
/// bits each, in 12 bytes.
#[inline(always)]
pub(super) fn of_six(block: &[u8], index: usize) -> [f32; 2] {
    let own = bytes::<12>(block, 4);
    let [level, of_least] = match index {
        0..4 => [own[index] & 63, own[index + 4] & 63],
        _ => [own[index + 4] & 15 | own[index - 4] >> 6 << 4, own[index + 4] >> 4 | own[index] >> 6 << 4],
    };
    [f32::from(level), f32::from(of_least)]
}

/// The scale and the least value of such a piece.
#[inline(always)]
fn six(block: &[u8], index: usize) -> [f32; 2] {
    let [scale, least] = of_six(block, index);
    [half(block, 0) * scale, -(half(block, 2) * least)]
}

/// Bytes: two scales, 12 of scales and least values, and 128 of levels.
impl Code for Q4_K {
    const NUMBERS: usize = LARGE;
    const BYTES: usize = 144;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let levels = halves(bytes(block, 16 + PIECE * (index / 2)), index % 2 == 1);
        let [scale, least] = six(block, index);
        from_least(levels, scale, least)
    }
}

/// Bytes: as [`Q4_K`], with 32 of fifth bits before the levels.
impl Code for Q5_K {
    const NUMBERS: usize = LARGE;
    const BYTES: usize = 176;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let mut levels = halves(bytes(block, 48 + PIECE * (index / 2)), index % 2 == 1);
        for (level, fifth) in levels.iter_mut().zip(bytes::<PIECE>(block, 16)) {
            *level |= (fifth >> index & 1) << 4;
        }
        let [scale, least] = six(block, index);
        from_least(levels, scale, least)
    }
}

/// Bytes: 128 of low bits, 64 of high bits, 16 scales, and the scale of these.
impl Code for Q6_K {
    const NUMBERS: usize = LARGE;
    const BYTES: usize = 210;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let (half_block, place) = (index / 4, index % 4);
        let mut levels = halves(bytes(block, 64 * half_block + PIECE * (place % 2)), place >= 2);
        let high = pairs(bytes(block, 128 + PIECE * half_block), 2 * place);
        for (level, high) in levels.iter_mut().zip(high) {
            *level |= high << 4;
        }
        let scale = half(block, 208);
        let own = *bytes::<2>(block, 192 + 2 * index);
        halves_scaled(levels, own.map(|level| scale * f32::from(level as i8)), 32)
    }
}

/// The levels of 4-bit NormalFloat: appendix E of the paper, with the digits of its authors' program.
pub(super) const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Bytes: the largest size as an `f32`, and for each piece the indices of its levels in 4 bits: the low
/// halves of 16 bytes, then their high halves.
impl Code for Nf4 {
    const NUMBERS: usize = 2 * PIECE;
    const BYTES: usize = 36;

    #[inline(always)]
    fn piece(block: &[u8], index: usize) -> [f32; PIECE] {
        let largest = f32::from_le_bytes(*bytes(block, 0));
        nibbles(bytes(block, 4 + 16 * index)).map(|level| LEVELS[usize::from(level)] * largest)
    }
}
