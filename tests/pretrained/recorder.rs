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
            let mean: Vec<f32> = parameter.grad.iter().map(|sum| sum * update.scale as f32).collect();
            let mut all = self.gradients.lock().expect("no panic");
            let whole = all.entry(parameter.name().to_owned());
            let whole = whole.or_insert_with(|| vec![0.0; parameter.whole_dims().iter().product()]);
            parameter.put_in_whole(parameter.shard().index, &mean, whole);
        }
        Self::adamw().update(parameter, update, together)
    }

    fn updates_parts(&self) -> bool {
        true
    }
}
