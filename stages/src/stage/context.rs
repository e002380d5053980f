//! Where a pass stands: its step, its micro-batch and its mode.

/// Whether a forward pass belongs to training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout on; what backward needs is kept.
    Train,
    /// Dropout off; nothing follows the forward pass.
    Evaluate,
    /// Like [`Mode::Train`], but the stage fails at its first layer with a number that is not finite.
    Probe,
}

/// The context of a forward pass: step, micro-batch and mode. Random numbers are keyed by the seed, a layer's
/// name, the step and the micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardContext {
    /// The optimizer step, from 0.
    pub step: u64,
    /// The micro-batch in the step, from 0.
    pub micro_batch: u32,
    /// Training, evaluation or a probe.
    pub mode: Mode,
}

/// The context in which text is written.
pub(crate) const WRITING: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Evaluate };
