//! Differential privacy of training: how gradients are clipped, how much noise is added, and what that means.
//!
//! Abadi et al., "Deep learning with differential privacy" (CCS 2016).

mod accountant;

pub use accountant::{Accountant, Spent};

use sha2::{Digest, Sha256};

/// How the gradient of each micro-batch is clipped, and how much noise is added to their sum: DP-SGD. A
/// micro-batch is the unit of privacy, so it has to hold what belongs to one person only.
///
/// The gradient is of the mean loss of the micro-batch, and its norm is over all stages and shards. What the
/// optimizer sees is the sum of the clipped gradients and of the noise, divided by the number of
/// micro-batches in the batch.
#[derive(Clone, Copy, PartialEq)]
pub struct Privacy {
    /// The largest norm of a micro-batch's gradient. A larger gradient is scaled down to it.
    pub clip: f64,
    /// The standard deviation of the noise, as a multiple of `clip`. 0: no noise, and no privacy.
    pub noise: f64,
    /// What the noise follows from. It has to be secret: who knows it can take the noise out again.
    pub seed: u64,
}

impl Privacy {
    /// The seed of the noise that follows from a secret text. Spaces and line ends around it do not count.
    pub fn seed_of(secret: &str) -> u64 {
        let hash = Sha256::new().chain_update(b"pipewright noise\0").chain_update(secret.trim()).finalize();
        u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
    }
}

impl std::fmt::Debug for Privacy {
    /// Without the seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Privacy")
            .field("clip", &self.clip)
            .field("noise", &self.noise)
            .finish_non_exhaustive()
    }
}
