//! An optimizer that records gradients.

use pipewright::stages::optimizer::{AdamW, Decay};

use super::*;

/// AdamW as transformers' trainer uses it, which also records the mean gradients of the first step.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) gradients: Arc<Mutex<BTreeMap<String, Vec<f32>>>>,
}

impl Recorder {
    fn adamw() -> AdamW {
        AdamW { decay: Decay::All, ..AdamW::default() }
    }
}

impl Optimizer for Recorder {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        Self::adamw().states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()> {
        if update.step == 1 {
            let mean = parameter.grad.iter().map(|sum| sum * update.scale as f32).collect();
            let name = parameter.name().to_owned();
            self.gradients.lock().expect("no panic").insert(name, mean);
        }
        Self::adamw().update(parameter, update, together)
    }
}
