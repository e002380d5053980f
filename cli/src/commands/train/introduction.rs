//! What `train` prints before the first step.

use crate::Result;
use crate::compose::{TrainingData, describe_devices};
use crate::config::{Config, SyncKind};
use pipewright::plan::Prediction;
use pipewright::privacy::Spent;
use pipewright::run::{Forecast, Session};
use pipewright::stages::Stage;
use pipewright::stages::units::counted;

/// What `train` prints about a run that is about to begin.
pub(super) struct Introduction {
    data: String,
    pipeline: String,
    fabric: String,
    threads_per_rank: usize,
    devices: Option<String>,
    prediction: Option<String>,
    memory: String,
    privacy: Option<String>,
    changes: Vec<String>,
}

impl Introduction {
    pub(super) fn new(
        config: &Config,
        data: &TrainingData,
        spent: Option<(Spent, u64)>,
        fabric: String,
        prediction: Option<&Prediction>,
        memory: String,
        changes: Vec<String>,
    ) -> Self {
        let pipeline = &config.pipeline;
        Self {
            data: data.summary.clone(),
            pipeline: format!(
                "{}stages {}, {}schedule {}, micro-batches {} of {} rows",
                replicas(config),
                pipeline.stages,
                if pipeline.shards > 1 { format!("shards {}, ", pipeline.shards) } else { String::new() },
                pipeline.schedule,
                pipeline.micro_batches,
                config.micro_batch_size(),
            ),
            fabric,
            threads_per_rank: pipeline.threads_per_rank,
            devices: describe_devices(config),
            prediction: prediction
                .and_then(|prediction| Forecast::by_costs(prediction).predicted())
                .map(|predicted| format!("predicted {predicted} by the costs of its layers")),
            memory,
            privacy: spent.map(|(spent, steps)| privacy(config, spent, steps)),
            changes,
        }
    }

    /// Prints it, a line each.
    pub(super) fn print<S: Stage>(&self, session: &Session<'_, S>) -> Result<()> {
        let pipeline = session.pipeline();
        let ranks = pipeline.schedule().ranks() * pipeline.replicas();
        let threads = self.threads(ranks as usize);
        let mut lines = vec![
            format!("data      {}", self.data),
            format!("model     {}", parameters(session)),
            format!("pipeline  {}{threads}", self.pipeline),
            format!("fabric    {}", self.fabric),
            format!("run       {}", session.dir().path().display()),
        ];
        lines.extend(self.devices.as_ref().map(|devices| format!("devices   {devices}")));
        lines.extend(self.prediction.clone());
        lines.extend(self.privacy.as_ref().map(|privacy| format!("privacy   {privacy}")));
        if let done @ 1.. = pipeline.next_step() {
            lines.push(format!("resumed after {}", counted(done, "step")));
        }
        if !self.changes.is_empty() {
            lines.push(format!(
                "changed   {}: from here on the weights differ from those that the old settings give",
                self.changes.join(", ")
            ));
        }
        lines.extend(session.notes().iter().map(|odd| format!("note      {odd}")));
        crate::commands::print(&(lines.join("\n") + "\n" + &self.memory))
    }

    /// The part about threads, if ranks have more than one.
    fn threads(&self, ranks: usize) -> String {
        let threads = self.threads_per_rank;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all = threads * ranks;
        match threads {
            1 => String::new(),
            _ if all > cores => {
                format!(", {threads} threads a rank ({all} for {cores} cores: fewer are faster)")
            }
            _ => format!(", {threads} threads a rank"),
        }
    }
}

/// The part about privacy. `spent`: after this many steps.
fn privacy(config: &Config, spent: Spent, steps: u64) -> String {
    let clip = config.privacy.clip.unwrap_or_default();
    format!(
        "gradients of samples clipped to {clip}, noise {}, {spent} after {}",
        config.privacy.noise,
        counted(steps, "step")
    )
}

/// The part about replicas, if there are several.
fn replicas(config: &Config) -> String {
    let replicas = config.pipeline.replicas;
    match (config.pipeline.sync, config.max_staleness()) {
        _ if replicas == 1 => String::new(),
        (SyncKind::Server, 0) => format!("{replicas} replicas with a parameter server, "),
        (SyncKind::Server, most) => {
            format!("{replicas} replicas with a parameter server, weights at most {most} steps old, ")
        }
        _ if config.optimizer.sharded => format!("{replicas} replicas, sharded optimizer, "),
        _ => format!("{replicas} replicas, "),
    }
}

/// The number of a model's parameters, and of those that are trained. Tied ones count once.
fn parameters<S: Stage>(session: &Session<'_, S>) -> String {
    let parameters = session.pipeline().parameters().iter();
    let mut parameters: Vec<_> = parameters.map(|info| (&info.name, info.is_trained, &info.dims)).collect();
    parameters.sort();
    parameters.dedup();
    let sum = |among: &dyn Fn(bool) -> bool| -> usize {
        let counted = parameters.iter().filter(|(_, is_trained, _)| among(*is_trained));
        counted.map(|(.., dims)| dims.iter().product::<usize>()).sum()
    };
    let (all, trained) = (sum(&|_| true), sum(&|is_trained| is_trained));
    match all == trained {
        true => format!("{all} parameters"),
        false => format!("{all} parameters, of which {trained} are trained"),
    }
}
