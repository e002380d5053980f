//! The life of the processes of a story.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::hub::Hub;
use super::judge;
use super::story::Story;
use crate::*;

/// Runs the story of a seed. Returns what happened.
pub(crate) fn run(story: &Story) -> std::result::Result<(judge::End, Timeline), Box<Bug>> {
    let hub = Hub::new(story);
    let ends: Vec<judge::Ended> = thread::scope(|scope| {
        let hub = &hub;
        let start = |process| scope.spawn(move || live(story, hub, process));
        let threads: Vec<_> = (0..story.processes()).map(start).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|ended| ended.expect("its panics are caught")).collect()
    });
    let (timeline, verdict) = hub.end();
    let judged = verdict.map_or_else(|| judge::all(story, &timeline, &ends), Err);
    match judged {
        Ok(end) => Ok((end, timeline)),
        Err(why) => Err(Box::new(Bug {
            variable: "PIPEWRIGHT_PROCESSES",
            seed: story.seed,
            story: format!("{story:#?}"),
            why,
            timeline,
        })),
    }
}

/// A process, and after its death the one that takes its place.
fn live(story: &Story, hub: &Arc<Hub>, process: usize) -> judge::Ended {
    loop {
        let deaths = hub.deaths(process);
        let ended = catch_unwind(AssertUnwindSafe(|| train(story, hub, process)));
        let has_died = hub.deaths(process) != deaths;
        // Nobody takes the place of process 0, to which all connect.
        if has_died && process != 0 {
            continue;
        }
        hub.leave(process);
        return match ended {
            _ if has_died => Err("it has died".to_owned()),
            Ok(ended) => ended.map_err(|error| error.to_string()),
            Err(_) => Err("a panic".to_owned()),
        };
    }
}

/// Does all steps, and returns the hash of the weights then.
fn train(story: &Story, hub: &Arc<Hub>, process: usize) -> Result<String> {
    let mut pipeline = builder(story).world(hub.join(process)?).launch()?;
    hub.launched(process);
    loop {
        let failure = match act(story, hub, process, &mut pipeline) {
            Ok(None) => continue,
            Ok(Some(hash)) => {
                hub.done();
                return Ok(hash);
            }
            Err(failure) => failure,
        };
        hub.is_told(process, &failure.to_string());
        rejoin(hub, process, &mut pipeline, failure)?;
    }
}

/// The next step, or the hash after all of them.
fn act(
    story: &Story,
    hub: &Hub,
    process: usize,
    pipeline: &mut Pipeline<Sequential>,
) -> Result<Option<String>> {
    if pipeline.next_step() == story.steps {
        return pipeline.weights_hash().map(Some);
    }
    hub.begins_step(process, pipeline.next_step());
    pipeline.step().map(|_| None)
}

/// Joins the run again after this failure, and again if others are lost meanwhile.
fn rejoin(hub: &Hub, process: usize, pipeline: &mut Pipeline<Sequential>, mut failure: Error) -> Result<()> {
    while pipeline.may_rejoin(&failure) {
        match pipeline.rejoin() {
            Ok(rejoined) => {
                hub.returns(process, rejoined.step);
                return Ok(());
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn builder(story: &Story) -> PipelineBuilder<Sequential> {
    let builder = story.model.builder(Arc::default(), story.shards);
    builder
        .schedule(story.schedule())
        .optimizer(Updates::default())
        .learning_rate(RATE)
        .clip(CLIP)
        .replicas(story.replicas)
        .gradient_groups(8)
        .sharded(story.sharded)
        .restarts(1, story.snapshots)
        .stall_limit(None)
        .looked_at_by(drop)
        .pin(false)
}
