//! How weights start.

use std::cell::Cell;

use crate::rng;

/// How a parameter's weights start. Random numbers are keyed by (seed, name).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Uniform on `[-bound, bound)`.
    Uniform(f32),
}

impl Init {
    /// Sets the weights of the parameter with this name.
    pub(crate) fn fill(self, seed: u64, name: &str, weights: &mut [f32]) {
        let key = rng::key(seed, name);
        match self {
            Self::Zeros => weights.fill(0.0),
            Self::Ones => weights.fill(1.0),
            Self::Normal(deviation) => rng::fill_normal(key, deviation, weights),
            Self::Uniform(bound) => rng::fill_uniform(key, bound, weights),
        }
    }
}

thread_local! {
    static AT_ZERO: Cell<bool> = const { Cell::new(false) };
}

/// Runs `build`. Every parameter that it makes on this thread starts at zero, whatever its [`Init`] says: for
/// weights that are read right after. Random numbers for a large model take longer than reading it.
pub fn starting_at_zero<T>(build: impl FnOnce() -> T) -> T {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            AT_ZERO.set(self.0);
        }
    }
    let _reset = Reset(AT_ZERO.replace(true));
    build()
}

/// Whether parameters that are made now on this thread start at zero.
pub(crate) fn starts_at_zero() -> bool {
    AT_ZERO.get()
}
