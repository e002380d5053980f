//! Runs the story of a seed in a virtual world.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright::stages::Sequential;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::{Error, Pipeline, PipelineBuilder, Result};

use crate::bug::Bug;
use crate::end::ends;
use crate::judge::{self, CLIP, End, RATE};
use crate::stages::{Numbers, Updates};
use crate::stalls::Told;
use crate::story::{Deed, Story};
use crate::timeline::Timeline;
use crate::world::World;

/// Why a run shows a bug.
type Why = String;

/// A run in a virtual world.
struct Trial<'a> {
    story: &'a Story,
    world: Arc<World>,
    data: Arc<Numbers>,
    told: Told,
    folder: &'a Path,
    /// The newest checkpoint.
    saved: Option<PathBuf>,
}

/// Runs the story. Returns how it ended, and what happened.
pub(crate) fn run(story: &Story) -> std::result::Result<(End, Timeline), Box<Bug>> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut trial = Trial {
        story,
        world: World::new(story.world(), story.seed, story.weather, story.faults.clone()),
        data: Arc::new(Numbers::failing(&story.faults)),
        told: Told::default(),
        folder: folder.path(),
        saved: None,
    };
    let mut pipeline = builder(story, &trial.world, &trial.data, &trial.told).launch();
    let judged = match &mut pipeline {
        Ok(pipeline) => trial.live(pipeline),
        Err(error) => judge::error(story, &trial.world.timeline(), error),
    };
    trial.world.end();
    drop(pipeline);
    let timeline = trial.world.timeline();
    let judged = judged.and_then(|end| trial.told.judge(story, &timeline).map(|()| end));
    // What ends the world explains everything else.
    let judged = match trial.world.verdict() {
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

/// The pipeline of a story, which tells of its stalls.
pub(crate) fn builder(
    story: &Story,
    world: &Arc<World>,
    data: &Arc<Numbers>,
    told: &Told,
) -> PipelineBuilder<Sequential> {
    let (world, watched) = (Arc::clone(world), Arc::clone(world));
    Pipeline::builder()
        .schedule(story.schedule())
        .stages(story.model.stages())
        .loss(MeanSquaredError::default())
        .data(Arc::clone(data) as _)
        .optimizer(Updates::default())
        .learning_rate(RATE)
        .clip(CLIP)
        .replicas(story.replicas)
        .sharded(story.sharded)
        .restarts(story.restarts, story.snapshots)
        .on_stall(told.listener())
        .stall_limit(None)
        .looked_at_by(move |look| watched.watch_by(look))
        .pin(false)
        .ends(move |mesh, room| ends(&world, mesh.world_size(), room))
}

impl Trial<'_> {
    /// Does all deeds of the story.
    fn live(&mut self, pipeline: &mut Pipeline<Sequential>) -> std::result::Result<End, Why> {
        for (number, deed) in self.story.deeds.iter().enumerate() {
            self.world.say(format!("--- {deed:?}"));
            let path = self.folder.join(number.to_string());
            if let Err(error) = self.act(pipeline, *deed, path)? {
                if pipeline.step().is_ok() {
                    return Err(format!("a step succeeds after this: {error}"));
                }
                return judge::error(self.story, &self.world.timeline(), &error);
            }
        }
        let hash = pipeline.weights_hash();
        let hash = hash.map_err(|error| format!("no hash after all deeds: {error}"))?;
        let expected = judge::expected_hash(self.story, pipeline.next_step());
        match hash == expected {
            true => judge::success(self.story, &self.world.timeline()),
            false => Err(format!("other weights: {hash}, and not {expected}")),
        }
    }

    /// Does one deed. What it should report is no error.
    fn act(
        &mut self,
        pipeline: &mut Pipeline<Sequential>,
        deed: Deed,
        path: PathBuf,
    ) -> std::result::Result<Result<()>, Why> {
        Ok(match deed {
            Deed::Step => pipeline.step().map(drop),
            Deed::Evaluate => pipeline.evaluate(Arc::new(Numbers::default()), 3).map(drop),
            Deed::SaveBeside => pipeline.save_beside(path),
            Deed::Save => pipeline.save(&path).map(|()| self.saved = Some(path)),
            Deed::Load => match &self.saved {
                Some(path) => pipeline.load(path),
                None => Ok(()),
            },
            Deed::SpoiltStep => {
                self.data.spoil(pipeline.next_step());
                match pipeline.step() {
                    Ok(_) => return Err("nobody was told of an infinite loss".to_owned()),
                    Err(Error::NotFinite { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Deed::SaveInVain { rank, panics } => {
                let name = path.file_name().expect("it has a name").to_string_lossy();
                let partial = path.with_file_name(format!(".{name}.partial"));
                self.world.doom(rank, (!panics).then_some(partial));
                match pipeline.save(&path) {
                    Ok(()) => return Err("a checkpoint that was not written counts as saved".to_owned()),
                    Err(Error::Io { .. }) if !panics => Ok(()),
                    Err(error) => Err(error),
                }
            }
        })
    }
}
