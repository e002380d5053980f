//! Runs the story of a seed in a virtual world.

use super::*;
use crate::judge::{self, End};

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
    /// The first step since a checkpoint was loaded.
    first: u64,
    /// The step with an infinite loss, which is not an update.
    spoilt: Option<u64>,
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
        first: 0,
        spoilt: None,
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
    let mut builder = story.model.builder(Arc::clone(data), story.shards);
    if let Some(clip) = story.clip() {
        builder = builder.clip(clip);
    }
    builder
        .schedule(story.schedule())
        .optimizer(Updates::default())
        .learning_rate(RATE)
        .barrier(story.barrier)
        .replicas(story.replicas)
        .gradient_groups(8)
        .sharded(story.sharded)
        .sync(story.sync)
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
            // Where a step has begun, ranks do something meanwhile.
            if !pipeline.next_has_begun() {
                self.world.say(format!("--- {deed:?}"));
            }
            self.world.settled.weights_change();
            let path = self.folder.join(number.to_string());
            if !self.story.barrier && !pipeline.next_has_begun() {
                self.say_which_follow(pipeline, &self.story.deeds[number..]);
            }
            if let Err(error) = self.act(pipeline, *deed, path)? {
                if pipeline.step().is_ok() {
                    return Err(format!("a step succeeds after this: {error}"));
                }
                return judge::error(self.story, &self.world.timeline(), &error);
            }
        }
        let hash = match pipeline.weights_hash() {
            // No plain loop has these weights. But a seed always has the same ones, as its timeline says.
            Ok(hash) if self.story.staleness() > 0 => {
                self.world.say(format!("weights {hash}"));
                return self.judge_stale(pipeline);
            }
            Ok(hash) => hash,
            // The replicas come together, and a rank makes an update that fails.
            Err(error) if self.story.staleness() > 0 => {
                return judge::error(self.story, &self.world.timeline(), &error);
            }
            Err(error) => return Err(format!("no hash after all deeds: {error}")),
        };
        let (clip, steps) = (self.story.clip(), pipeline.next_step());
        let expected = judge::expected_hash(self.story.model, clip, self.story.micro_batches, steps);
        match hash == expected {
            true => judge::success(self.story, &self.world.timeline()),
            false => Err(format!("other weights: {hash}, and not {expected}")),
        }
    }

    /// Without a barrier: says which of the next deeds are steps that follow each other. A step that will be
    /// spoilt would be followed by another one.
    fn say_which_follow(&mut self, pipeline: &mut Pipeline<Sequential>, deeds: &[Deed]) {
        let steps = deeds.iter().take_while(|deed| **deed == Deed::Step).count() as u64;
        let then = deeds.get(steps as usize);
        let next = pipeline.next_step();
        let follow = match then {
            Some(Deed::SpoiltStep) => {
                self.data.spoil(next + steps);
                steps + 2
            }
            _ => steps,
        };
        pipeline.steps_until(next + follow);
        self.world.expect_back(follow.saturating_sub(1));
    }

    /// Judges a run whose weights may have been stale.
    fn judge_stale(&mut self, pipeline: &mut Pipeline<Sequential>) -> std::result::Result<End, Why> {
        let most = self.story.staleness();
        let seen = pipeline.staleness().ok_or("nobody says how stale the weights were")?;
        if seen.largest > most {
            return Err(format!("{seen}, and {most} is the most"));
        }
        self.world.settled.weights_change();
        // Each replica evaluates at least two.
        if let Err(error) = pipeline.evaluate(Arc::new(Numbers::default()), 2 * self.story.replicas) {
            return judge::error(self.story, &self.world.timeline(), &error);
        }
        let last = self.spoilt.unwrap_or_else(|| pipeline.next_step());
        self.world.settled.judge(self.story.model.layers, self.first..last)?;
        match seen.largest {
            0 => judge::success(self.story, &self.world.timeline()),
            _ => judge::success(self.story, &self.world.timeline()).map(|_| End::Settled),
        }
    }

    /// Runs a step. Its weights must not be staler than they may be.
    fn step(&self, pipeline: &mut Pipeline<Sequential>) -> std::result::Result<Result<()>, Why> {
        let most = self.story.staleness();
        Ok(match pipeline.step() {
            Ok(report) if report.staleness() > most => {
                return Err(format!("weights {} steps old, and {most} is the most", report.staleness()));
            }
            Ok(report) if report.loss_step + u64::from(most) < report.step => {
                return Err(format!("after step {}, the loss of step {}", report.step, report.loss_step));
            }
            report => report.map(drop),
        })
    }

    /// Runs a step whose loss is infinite. All must be told, at the latest when the replicas come together.
    fn spoil(&mut self, pipeline: &mut Pipeline<Sequential>) -> std::result::Result<Result<()>, Why> {
        let step = pipeline.next_step();
        self.data.spoil(step);
        self.spoilt = Some(step);
        let told = match pipeline.step() {
            Ok(_) if self.story.staleness() > 0 => pipeline.weights_hash().map(drop),
            report => report.map(drop),
        };
        Ok(match told {
            Ok(()) => return Err("nobody was told of an infinite loss".to_owned()),
            Err(Error::NotFinite { step: of, .. }) if of != step => {
                return Err(format!("an infinite loss in step {of}, and not in step {step}"));
            }
            Err(Error::NotFinite { .. }) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Does one deed. What it should report is no error.
    fn act(
        &mut self,
        pipeline: &mut Pipeline<Sequential>,
        deed: Deed,
        path: PathBuf,
    ) -> std::result::Result<Result<()>, Why> {
        Ok(match deed {
            Deed::Step => self.step(pipeline)?,
            Deed::Evaluate => pipeline.evaluate(self.story.model.data(Arc::default()), 3).map(drop),
            Deed::SaveBeside => pipeline.save_beside(path),
            Deed::Save => pipeline.save(&path).map(|()| self.saved = Some(path)),
            Deed::Load => match &self.saved {
                Some(path) => {
                    let loaded = pipeline.load(path);
                    self.first = pipeline.next_step();
                    self.world.settled.forget_updates();
                    loaded
                }
                None => Ok(()),
            },
            Deed::SpoiltStep => self.spoil(pipeline)?,
            Deed::Recut { long, schedule: None } => pipeline.recut(self.story.model.cut(long)).map(drop),
            Deed::Recut { long, schedule: Some(name) } => {
                let Story { ranks, micro_batches, replicas, model, .. } = self.story;
                let chunks = Some(model.stages as u32 / ranks);
                let whole = Schedule::make(name, *ranks, chunks, *micro_batches, &Costs::default());
                let whole = whole.expect("the sizes fit");
                let part = |share| Ok::<_, Error>(whole.part(0..share));
                let replicas = Replicas::new(pipeline.groups(), *replicas, part).expect("as at launch");
                pipeline.reschedule(&replicas, model.cut(long)).map(drop)
            }
            Deed::Reshape { sizes: [replicas, ranks, shards], long, schedule } => {
                let make = |share| Schedule::named(schedule, ranks, share);
                let of_share = Replicas::new(pipeline.groups(), replicas, make).expect("the sizes fit");
                let model = Model { stages: ranks as usize, ..self.story.model };
                pipeline.reshape(&of_share, shards, model.cut(long)).map(drop)
            }
            Deed::SaveInVain { rank, panics } => {
                let name = path.file_name().expect("it has a name").to_string_lossy();
                let partial = path.with_file_name(format!(".{name}.partial"));
                // The replicas come together before they write, and use their parameters for that.
                if let Err(error) = pipeline.weights_hash() {
                    return Ok(Err(error));
                }
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
