//! Runs the story of a seed in a virtual world, and judges how it ends.

use std::path::Path;
use std::sync::Arc;

use pipewright::error::RestartError;
use pipewright::plan::Costs;
use pipewright::schedule::Schedule;
use pipewright::stages::Sequential;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::optimizer::LearningRate;
use pipewright::{Error, Pipeline, PipelineBuilder, Result, StallWarning};

use crate::bug::Bug;
use crate::common::Plain;
use crate::end::ends;
use crate::faults::Fault;
use crate::stages::{Numbers, Updates};
use crate::story::{Deed, Story};
use crate::timeline::Timeline;
use crate::world::World;

const RATE: LearningRate = LearningRate::Constant(0.02);

const CLIP: f64 = 0.5;

/// How a run has ended that has no bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With the bits of a run without faults.
    SameBits,
    /// With the error that belongs to a fault.
    RightError,
}

/// Runs the story. Returns how it ended, and what happened.
pub(crate) fn run(story: &Story) -> std::result::Result<(End, Timeline), Box<Bug>> {
    let world = World::new(story.world(), story.seed, story.weather, story.faults.clone());
    let folder = tempfile::tempdir().expect("a folder");
    let mut pipeline = builder(story, &world).launch();
    let judged = match &mut pipeline {
        Ok(pipeline) => live(story, pipeline, &world, folder.path()),
        Err(error) => judge(story, &world, &error.to_string(), error),
    };
    world.end();
    drop(pipeline);
    let timeline = world.timeline();
    // What ends the world explains everything else.
    let judged = match world.verdict() {
        Some(verdict) => Err(verdict),
        None => judged,
    };
    match judged {
        Ok(end) => Ok((end, timeline)),
        Err(why) => Err(Box::new(Bug {
            variable: "PIPEWRIGHT_SEED",
            seed: story.seed,
            story: format!("{story:#?}"),
            why,
            timeline,
        })),
    }
}

fn builder(story: &Story, world: &Arc<World>) -> PipelineBuilder<Sequential> {
    let &Story { ranks, chunks, .. } = story;
    let costs = Costs::default();
    let schedule = Schedule::make(story.schedule, ranks, Some(chunks), story.micro_batches, &costs);
    let of = Arc::clone(world);
    let builder = Pipeline::builder()
        .schedule(schedule.expect("the sizes fit"))
        .stages(story.model.stages())
        .loss(MeanSquaredError::default())
        .data(Arc::new(Numbers::failing(&story.faults)))
        .optimizer(Updates::default())
        .learning_rate(RATE)
        .clip(CLIP)
        .replicas(story.replicas)
        .sharded(story.sharded)
        .stall_warning(StallWarning::Never)
        .stall_limit(None)
        .pin(false)
        .ends(move |mesh, room| ends(&of, mesh.world_size(), room));
    builder.restarts(story.restarts, story.snapshots.try_into().expect("not 0"))
}

/// Does all deeds of the story.
fn live(
    story: &Story,
    pipeline: &mut Pipeline<Sequential>,
    world: &Arc<World>,
    folder: &Path,
) -> std::result::Result<End, String> {
    let mut saved = None;
    for (number, deed) in story.deeds.iter().enumerate() {
        world.say(format!("--- {deed:?}"));
        let path = folder.join(number.to_string());
        let done = match deed {
            Deed::Step => pipeline.step().map(drop),
            Deed::Evaluate => pipeline.evaluate(Arc::new(Numbers::default()), 3).map(drop),
            Deed::Load => saved.as_ref().map_or(Ok(()), |path| pipeline.load(path)),
            Deed::Save => pipeline.save(&path).map(|()| saved = Some(path)),
            Deed::SaveInVain { rank } => save_in_vain(pipeline, world, *rank, &path)?,
        };
        if let Err(error) = done {
            if pipeline.step().is_ok() {
                return Err(format!("after {error}, a step succeeds"));
            }
            return judge(story, world, &format!("{deed:?}: {error}"), &error);
        }
    }
    let hash = pipeline.weights_hash();
    let hash = hash.map_err(|error| format!("after all deeds: {error}"))?;
    let expected = expected_hash(story, pipeline.next_step());
    if hash != expected {
        return Err(format!("other weights: {hash}, and not {expected}"));
    }
    let ends_all = |fault: &&Fault| !matches!(fault, Fault::Cut { .. }) && !fault.is_survived(story.restarts);
    match world.timeline().faults().find(ends_all) {
        Some(fault) => Err(format!("nobody was told of this: {fault}")),
        None => Ok(End::SameBits),
    }
}

/// Saves a checkpoint of which a rank cannot write its part. That must be told, and must harm nothing.
fn save_in_vain(
    pipeline: &mut Pipeline<Sequential>,
    world: &Arc<World>,
    rank: usize,
    path: &Path,
) -> std::result::Result<Result<()>, String> {
    let is_told = |error: &Error| matches!(error, Error::Io { .. });
    let name = path.file_name().expect("it has a name").to_string_lossy();
    world.doom(rank, path.with_file_name(format!(".{name}.partial")));
    match pipeline.save(path) {
        Ok(()) => Err("a checkpoint that was not written was told as saved".to_owned()),
        Err(error) if is_told(&error) => Ok(Ok(())),
        Err(error) => Ok(Err(error)),
    }
}

/// Whether an error is the right one for a fault that came true.
fn judge(story: &Story, world: &Arc<World>, what: &str, error: &Error) -> std::result::Result<End, String> {
    let planned = story.faults.iter();
    let planned = planned.filter(|fault| matches!(fault, Fault::NoData { .. }));
    let happened: Vec<Fault> = world.timeline().faults().chain(planned).cloned().collect();
    let is_right = match error {
        Error::Restart(error) if matches!(**error, RestartError::KeepsFailing { .. }) => {
            story.restarts > 0 && happened.iter().map(Fault::failures).sum::<u32>() > story.restarts
        }
        _ => happened.iter().any(|fault| is_of(story, error, fault)),
    };
    match is_right {
        true => Ok(End::RightError),
        false => Err(format!("no fault explains this error: {what}")),
    }
}

/// Whether an error is that of a fault.
fn is_of(story: &Story, error: &Error, fault: &Fault) -> bool {
    let text = error.to_string();
    match fault {
        _ if fault.is_survived(story.restarts) => false,
        Fault::Fails { rank: of, panics, .. } => {
            let words = ["the disk is on fire", "panicked: a bug"][usize::from(*panics)];
            let of = *of as u32 % story.ranks;
            text.contains(words) && matches!(error, Error::Action { rank, .. } if rank.0 == of)
        }
        Fault::AlwaysFails { .. } => text.contains("the disk is on fire"),
        Fault::Cut { .. } => text.contains("has stopped"),
        Fault::NoData { .. } => text.contains("the data is away"),
        _ => false,
    }
}

/// The hash of the weights after so many steps of a plain loop.
fn expected_hash(story: &Story, steps: u64) -> String {
    let mut plain = Plain::new(
        story.model.whole(),
        Arc::new(Updates::default()),
        RATE,
        Some(CLIP),
    );
    for step in 0..steps {
        let loss = &mut MeanSquaredError::default();
        plain.step(&Numbers::default(), step, story.micro_batches, loss);
    }
    plain.hash()
}
