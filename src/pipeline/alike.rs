//! What must be equal in all processes of a run. It is compared at launch, before anything is built.

use pipewright_stages::Stage;
use sha2::{Digest, Sha256};

use super::parts::Parts;
use super::setup::Setup;
use crate::error::Result;
use crate::id::Rank;
use crate::schedule::Schedule;

/// The parts that must be equal, by name. The first difference in this order is reported.
///
/// # Errors
/// When the data cannot be read.
pub(super) fn parts<S: Stage>(parts: &Parts<S>, setup: &Setup<S::Wire>) -> Result<Vec<(String, String)>> {
    let schedule = &setup.schedule;
    let mut all = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add(
        "the schedule",
        format!(
            "{} of {} micro-batches, placement {}",
            schedule.name(),
            schedule.micro_batches(),
            schedule.placement()
        ),
    );
    for (stage, builder) in parts.stages.iter().enumerate() {
        add(&format!("the layers of stage {stage}"), builder.describe());
    }
    for rank in (0..schedule.ranks()).map(Rank) {
        add(
            &format!("the order of rank {rank}'s actions"),
            order(schedule, rank),
        );
    }
    add("the loss", setup.loss_name.to_owned());
    add("the optimizer", format!("{:?}", parts.optimizer));
    add("the learning rate", format!("{:?}", parts.learning_rate));
    add(
        "the gradient clipping",
        parts
            .clip
            .map_or_else(|| "none".to_owned(), |norm| norm.to_string()),
    );
    let places = setup.mesh.world().map(|rank| {
        let place = setup.mesh.place(rank);
        format!("{} in {}", place.device, place.dtype)
    });
    add("the devices", places.collect::<Vec<_>>().join(", "));
    let (input, target) = setup.data.shapes();
    add(
        "the shapes of the data",
        format!("inputs of {input}, targets of {target}"),
    );
    let data = setup.data.fingerprint()?;
    add("the data", format!("{} ({})", data.contents, data.batches));
    Ok(all)
}

/// A summary of a rank's actions: their number, the first ones, and a hash of all.
fn order(schedule: &Schedule, rank: Rank) -> String {
    const SHOWN: usize = 12;
    let actions = schedule.actions(rank);
    let texts: Vec<String> = actions.iter().map(ToString::to_string).collect();
    let hash = Sha256::digest(texts.join(",").as_bytes());
    let hash: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let shown = texts[..texts.len().min(SHOWN)].join(",");
    format!("{} actions, {shown},... (SHA-256 {hash})", texts.len())
}
