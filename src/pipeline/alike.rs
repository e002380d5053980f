//! What must be equal in all processes of a run. It is compared when a pipeline is launched, before anything
//! is built. If the fingerprint of the data covers only a sample, each batch is compared too.

use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::devices::ATTENTION;
use pipewright_stages::rng;
use pipewright_stages::units::counted;
use pipewright_stages::{BuildStage, Device, Stage};

use super::spec::{Spec, SyncMode};
use crate::actor::Ranks;
use crate::data::{DataSource, Summed};
use crate::error::{FabricError, Result};
use crate::id::Rank;
use crate::schedule::Schedule;
use crate::worker::Plan;

/// The parts that must be equal, by name. The first difference in this order is reported.
///
/// # Errors
/// When the data cannot be read.
pub(super) fn parts<S: Stage>(spec: &Spec<S>, plan: &Plan) -> Result<Vec<(String, String)>> {
    let schedule = &plan.schedules[0];
    let mut all = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add(
        "the schedule",
        format!(
            "{} of {} micro-batches, placement {}",
            schedule.name(),
            plan.groups.micro_batches(),
            schedule.placement()
        ),
    );
    add(
        "the replicas",
        format!(
            "{}, {}, optimizer {}, {}",
            match spec.shards {
                1 => counted(spec.replicas.into(), "replica"),
                shards => format!("{} of {shards} shards", counted(spec.replicas.into(), "replica")),
            },
            counted(plan.groups.count() as u64, "gradient group"),
            if spec.sharded { "sharded" } else { "not sharded" },
            match spec.sync {
                SyncMode::Reduce => "gradients reduced".to_owned(),
                SyncMode::Server { max_staleness } =>
                    format!("a server with staleness up to {max_staleness}"),
            }
        ),
    );
    add("the sums of gradients", spec.sums.to_string());
    add("the barrier between steps", spec.barrier.to_string());
    for (stage, builder) in spec.stages.iter().enumerate() {
        let described = builder.describe();
        let (layers, files) = described.split_once('\n').unwrap_or((&described, ""));
        add(&format!("the layers of stage {stage}"), layers.to_owned());
        for file in files.lines() {
            add(&format!("what stage {stage} starts from"), file.to_owned());
        }
    }
    orders(plan).for_each(|(name, order)| add(&name, order));
    let loss = spec.loss.as_ref().map(|loss| loss()());
    add("the loss", loss.map_or_else(String::new, |loss| format!("{loss:?}")));
    add("the optimizer", format!("{:?}", spec.optimizer));
    add("the learning rate", format!("{:?}", spec.learning_rate));
    add("the gradient clipping", spec.clip.map_or_else(|| "none".to_owned(), |norm| norm.to_string()));
    // Of the secret, a number that does not show it.
    let private = spec.privacy.map(|privacy| {
        let [sum, _] = rng::key(privacy.seed, "the same in all processes");
        format!("{privacy:?}, secret with checksum {sum:08x}")
    });
    add("the privacy", private.unwrap_or_else(|| "none".to_owned()));
    let places = plan.mesh.world().map(|rank| {
        let place = plan.mesh.place(rank);
        format!("{} in {}", place.device, place.dtype)
    });
    add("the devices", places.collect::<Vec<_>>().join(", "));
    if plan.mesh.world().any(|rank| plan.mesh.place(rank).device != Device::Cpu) {
        let way = env::var_os(ATTENTION).unwrap_or_default();
        add(&format!("the environment variable {ATTENTION}"), way.display().to_string());
    }
    let (input, target) = plan.data.shapes();
    add("the shapes of the data", format!("inputs of {input}, targets of {target}"));
    let data = plan.data.fingerprint()?;
    add("the data", format!("{} ({})", data.contents, data.batches));
    Ok(all)
}

/// The fingerprint of an evaluation's data, as text that the call's name contains. If the fingerprint covers
/// only a sample, also the data with checksums, so that processes can compare each batch. A run of one
/// process compares nothing.
pub(super) fn known(processes: u32, data: &Arc<dyn DataSource>) -> (String, Option<Arc<Summed>>) {
    if processes == 1 {
        return (String::new(), None);
    }
    match data.fingerprint() {
        Ok(known) => {
            let summed = known.is_sample.then(|| Arc::new(Summed::new(Arc::clone(data))));
            (format!(", fingerprint {} ({})", known.contents, known.batches), summed)
        }
        Err(error) => (format!(", which cannot be read: {error}"), None),
    }
}

/// Refuses batches that differ between processes. Only processes that have read them are compared. `call`
/// names what they were read for.
///
/// # Errors
/// [`FabricError::Refused`] on every process.
pub(super) fn same_batches<S: Stage>(
    ranks: &Ranks<S>,
    call: &str,
    data: &Summed,
    steps: Range<u64>,
) -> Result<()> {
    let all = ranks.spread("comparing the data", Ok(vec![data.take(steps)]))?;
    // Each micro-batch was read by the processes with a replica's first and last stage.
    let mut first_read = BTreeMap::new();
    for (process, sums) in (0..).zip(&all) {
        for (at, sum) in sums {
            let (first, expected) = *first_read.entry(*at).or_insert((process, sum));
            if sum != expected {
                return Err(FabricError::refused(format!(
                    "the data of {call} differ: process {process} has read another micro-batch {} than \
                     process {first}. All processes need the same data, and a source has to give the same \
                     numbers whenever it is asked for a step and a micro-batch",
                    at.1
                ))
                .into());
            }
        }
    }
    Ok(())
}

/// A summary of the actions of each rank of the world, with its name.
pub(super) fn orders(plan: &Plan) -> impl Iterator<Item = (String, String)> + '_ {
    plan.mesh.world().map(|rank| {
        let at = plan.mesh.coordinate(rank);
        let order = order(&plan.schedules[at.replica as usize], at.rank);
        (format!("the order of rank {rank}'s actions"), order)
    })
}

/// A summary of a rank's actions: their number, the first ones, and a hash of all.
fn order(schedule: &Schedule, rank: Rank) -> String {
    const SHOWN: usize = 12;
    let actions = schedule.actions(rank);
    let shown: Vec<String> = actions.iter().take(SHOWN).map(ToString::to_string).collect();
    format!("{} actions, {},... (checksum {})", actions.len(), shown.join(","), schedule.checksum(rank))
}
