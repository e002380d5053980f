//! The ways to multiply `bf16`, and which of them this CPU has.

use std::fmt;
use std::sync::OnceLock;

use half::bf16;

use super::left::Left;
use super::panels::{TILE, Tile};
use super::widen;

/// How this CPU multiplies numbers of `bf16`. A closed set, in order of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the instruction that multiplies tiles, `tdpbf16ps`.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// By the instruction that adds up pairs of products, `vdpbf16ps`.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// In `f32`.
    Widened,
}

impl Way {
    /// All ways, the fastest first.
    pub(crate) const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Amx,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        Self::Widened,
    ];

    /// The way of this CPU: the fastest that it has. Chosen once a process.
    pub(crate) fn here() -> Self {
        static HERE: OnceLock<Way> = OnceLock::new();
        *HERE.get_or_init(|| {
            let mut ways = Self::ALL.iter().copied();
            ways.find(|way| way.is_here()).unwrap_or(Self::Widened)
        })
    }

    /// Whether this CPU has it.
    pub(crate) fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::amx::is_here(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => super::avx512::is_here(),
            Self::Widened => true,
        }
    }

    /// Whether the left operand must lie row by row.
    pub(crate) fn needs_rows(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => false,
            Self::Widened => false,
        }
    }

    /// Computes the product of a group of rows with a panel of the same depth.
    pub(crate) fn set(self, sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::amx::set(sums, left, panel),
            _ => {
                sums.as_flattened_mut().fill(0.0);
                self.add(sums, left, panel);
            }
        }
    }

    /// Adds the product of a group of rows with a panel of the same depth to the sums, from first to last.
    pub(crate) fn add(self, sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::amx::add(sums, left, panel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => in_parts(left, panel, |left, panel| super::avx512::add(sums, left, panel)),
            Self::Widened => in_parts(left, panel, |left, panel| widen::add(sums, left, panel)),
        }
    }
}

/// Takes the depth in parts, so that a panel's part stays in the first-level cache.
fn in_parts(left: Left<'_>, panel: &[bf16], mut add: impl FnMut(Left<'_>, &[bf16])) {
    const PART: usize = 512;
    for start in (0..left.depth).step_by(PART) {
        let part = start..left.depth.min(start + PART);
        add(left.part(part.clone()), &panel[TILE * part.start..TILE * part.end]);
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => "AMX",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "AVX-512-BF16",
            Self::Widened => "f32",
        })
    }
}
