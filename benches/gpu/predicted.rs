//! What the model behind `plan --device` predicts of the GPU that is here.

use pipewright::plan::{GPUS, Gpu};
use pipewright::stages::devices::probe;
use pipewright::stages::{Device, Recompute};
use pipewright_cli::compose;
use pipewright_cli::config::{Config, RecomputeBy};

use crate::sizes::{Kind, Result, Size};

/// A GPU of this machine, and what is known of its kind.
pub(crate) struct Here {
    pub(crate) name: String,
    /// `None` for a kind that the model does not know.
    pub(crate) kind: Option<&'static Gpu>,
}

impl Here {
    /// The GPU with this name in a config.
    pub(crate) fn of(device: Device) -> Result<Self> {
        let gpus = probe().gpus?;
        let found = gpus.into_iter().find(|gpu| gpu.device == device);
        let found = found.ok_or_else(|| format!("there is no {device}"))?;
        Ok(Self { kind: kind(&found.name, found.capability), name: found.name })
    }

    /// What the table says of it.
    pub(crate) fn heading(&self) -> String {
        match self.kind {
            Some(kind) => {
                format!("predictions are those of `plan --device {}`; here: {}", kind.name, self.name)
            }
            None => format!("nothing is predicted for this kind of GPU: {}", self.name),
        }
    }
}

/// The kind of a GPU, by the manufacturer's name for it, or else by its compute capability.
pub(crate) fn kind(name: &str, capability: (i32, i32)) -> Option<&'static Gpu> {
    let name = name.to_lowercase();
    let by_name = GPUS.iter().find(|gpu| name.contains(&*gpu.name));
    by_name.or_else(|| {
        Gpu::named(match capability {
            (8, 0) => "a100",
            (9, 0) => "h100",
            (10, 0) => "b200",
            _ => return None,
        })
    })
}

/// The seconds of a step of this size in `bf16`, with each stage on a GPU of its own.
pub(crate) fn step(size: &Size, stages: u32, how: Recompute, gpu: &Gpu) -> Result<f64> {
    let Kind::Gpt(gpt) = size.kind else {
        return Err("only a GPT is predicted".into());
    };
    let text = format!(
        "[model]\nkind = \"gpt\"\nvocab = {}\ndim = {}\nlayers = {}\nheads = {}\ntied = {}\n\
         [data]\nkind = \"tokens\"\npath = \"none\"\nseq = {}\n\
         [pipeline]\nstages = {stages}\nmicro_batches = {}\nmicro_batch_size = {}\n\
         schedule = \"1f1b\"\ndtype = \"bf16\"\n",
        gpt.vocab, gpt.dim, gpt.layers, gpt.heads, gpt.tied, gpt.context, size.micro_batches, size.rows,
    );
    let mut config = Config::parse("the bench", &text, &[], &[])?;
    config.pipeline.recompute = RecomputeBy::All(how);
    let (config, _) = compose::with_gpus(config, gpu)?;
    let prediction = compose::plan_for(&config, gpu)?.prediction;
    Ok(prediction.expect("costs are known").step)
}
