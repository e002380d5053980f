//! Verifies every byte of a checkpoint.

use pipewright_stages::Parameter;
use pipewright_stages::optimizer::Optimizer;

use std::fmt;

use super::Checkpoint;
use super::layout::{info, state_tensors};
use crate::error::Result;

/// What was verified.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The number of optimizer steps done.
    pub step: u64,
    /// The number of tensors of the model, and of the optimizer.
    pub tensors: [usize; 2],
    /// The bytes of all tensors.
    pub bytes: u64,
    /// Whether there were checksums. Without them only lengths and headers were checked.
    pub checksums: bool,
}

impl Checkpoint {
    /// Reads every tensor and compares it with its checksum. [`Checkpoint::open`] has compared the
    /// description and the headers before.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::error::CheckpointError), which names the first damaged
    /// tensor and its file. [`Error::Io`](crate::Error::Io).
    pub fn verify(&self) -> Result<Verified> {
        let (weights, model_bytes) = self.model.verify()?;
        let (states, optimizer_bytes) = self.optimizer.verify()?;
        Ok(Verified {
            step: self.step(),
            tensors: [weights, states],
            bytes: model_bytes + optimizer_bytes,
            checksums: self.has_checksums(),
        })
    }

    /// As [`Checkpoint::verify`], but reads only the tensors of these parameters, with this optimizer's state
    /// of each that is trained. Call [`Checkpoint::check`] first.
    ///
    /// # Errors
    /// As [`Checkpoint::verify`].
    pub fn verify_parameters(&self, parameters: &[&Parameter], optimizer: &dyn Optimizer) -> Result<()> {
        let is_elsewhere = |parameter: &&&Parameter| parameter.quantisation().is_some();
        let here = parameters.iter().filter(|parameter| !is_elsewhere(parameter));
        self.model.verify_these(here.map(|parameter| parameter.name()))?;
        let mut elsewhere = parameters.iter().filter(is_elsewhere);
        elsewhere.try_for_each(|parameter| self.compare_elsewhere(parameter))?;
        let trained = parameters.iter().filter(|parameter| parameter.is_optimized());
        let of = |parameter: &&Parameter| {
            let tensors = state_tensors(&info(parameter), optimizer);
            tensors.into_iter().map(|tensor| tensor.name)
        };
        self.optimizer.verify_these(trained.flat_map(of))?;
        Ok(())
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([weights, states], bytes) = (self.tensors, self.bytes);
        write!(
            f,
            "step {}, {weights} tensors of the model, {states} of the optimizer, {bytes} bytes: ",
            self.step
        )?;
        f.write_str(if self.checksums {
            "every byte is as it was saved"
        } else {
            "lengths and headers are right; this checkpoint is of format 1, which has no checksums"
        })
    }
}
