//! A pipeline of several processes through the library. Every process gets the results that one process alone
//! would get.

use pipewright::ParameterInfo;
use pipewright::id::Rank;

use super::*;

const RANKS: u32 = 4;

fn schedule() -> Schedule {
    Schedule::named("interleaved-1f1b", RANKS, 4).expect("the sizes fit")
}

fn small() -> Recipe {
    recipe(3, true, 4)
}

/// What each of two processes gets from its pipeline.
fn both<T: Send>(recipe: fn() -> Recipe, call: impl Fn(u32, Pipeline<Sequential>) -> T + Sync) -> Vec<T> {
    in_processes(2, |world| {
        let process = world.process();
        let builder = recipe().builder(schedule());
        call(process, builder.world(world).launch().expect("it starts"))
    })
}

/// All results of a pipeline that do not depend on time.
#[derive(Debug, PartialEq)]
struct Told {
    losses: Vec<[f64; 3]>,
    peaks: Vec<u64>,
    evaluation: [f64; 2],
    parameters: Vec<ParameterInfo>,
    hash: String,
}

fn tell(mut pipeline: Pipeline<Sequential>) -> Told {
    let reports: Vec<_> = (0..3).map(|_| pipeline.step().expect("a step")).collect();
    let evaluated = pipeline.evaluate(small().data, 30).expect("forward only");
    for report in &reports {
        assert_eq!(report.ranks.len(), RANKS as usize);
        assert!(report.ranks.iter().all(|rank| rank.busy > 0.0 && rank.bubble < 1.0));
    }
    Told {
        losses: reports.iter().map(|report| [report.loss, report.grad_norm, report.weight]).collect(),
        peaks: reports.iter().flat_map(|report| &report.ranks).map(|rank| rank.peak_bytes).collect(),
        evaluation: [evaluated.loss, evaluated.weight],
        parameters: pipeline.parameters().to_vec(),
        hash: pipeline.weights_hash().expect("it runs"),
    }
}

#[test]
fn every_process_is_told_what_one_process_is_told() {
    let alone = tell(small().launch(schedule()).expect("it starts"));
    for told in both(small, |_, pipeline| tell(pipeline)) {
        assert_eq!(told, alone);
    }
}

#[test]
fn replicas_in_several_processes_train_as_one_pipeline() {
    let expected = small().hash(1, "1f1b", 3);
    for (processes, ranks) in [(2, 1), (2, 2), (4, 2)] {
        let hashes = in_processes(processes, |world| {
            let mut recipe = small();
            recipe.replicas = 2;
            let builder = recipe.builder(named("1f1b", ranks, 4));
            let mut pipeline = builder.world(world).launch().expect("it starts");
            trained(&mut pipeline, 3)
        });
        assert!(hashes.iter().all(|hash| *hash == expected), "{processes} processes");
    }
}

#[test]
fn a_traced_step_has_the_passes_and_transfers_of_all_processes() {
    let expected = |schedule: &Schedule| {
        let sends = |rank| {
            schedule.actions(Rank(rank)).iter().filter(|action| action.to_string().contains("SEND")).count()
        };
        (0..RANKS).map(sends).sum::<usize>()
    };
    for timeline in both(small, |_, mut pipeline| {
        pipeline.step().expect("a step");
        pipeline.step_traced().expect("a step").1
    }) {
        assert_eq!(timeline.ranks.len(), RANKS as usize);
        assert!(timeline.ranks.iter().all(|passes| !passes.is_empty()));
        assert_eq!(timeline.transfers.len(), expected(&schedule()));
        let backwards = timeline.transfers.iter().filter(|transfer| transfer.end < transfer.start - 0.05);
        assert_eq!(backwards.count(), 0, "clocks that differ");
    }
}

#[test]
fn a_checkpoint_of_two_processes_is_one_checkpoint() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let place = folder.path().join("step-2");
    let after = both(small, |_, mut pipeline| {
        train(&mut pipeline, 2);
        pipeline.save(&place).expect("saved");
        pipeline.step().expect("a step");
        pipeline.weights_hash().expect("it runs")
    });
    let mut one = small().pipeline(1, "1f1b");
    one.load(&place).expect("loaded");
    assert_eq!(one.next_step(), 2);
    one.step().expect("a step");
    let hash = one.weights_hash().expect("it runs");
    assert_eq!(after, [hash.clone(), hash.clone()]);
    let loaded = both(small, |_, mut pipeline| {
        pipeline.load(&place).expect("loaded");
        pipeline.step().expect("a step");
        pipeline.weights_hash().expect("it runs")
    });
    assert_eq!(loaded, [hash.clone(), hash]);
}

/// A recipe whose data have a token that the model does not know, in step 1.
fn broken() -> Recipe {
    let small = small();
    let data = changed(Arc::clone(&small.data), |data, step, at| {
        let (mut input, target) = data.micro_batch(step, at)?;
        if step == 1 {
            input.ids_mut()[0] = 99;
        }
        Ok((input, target))
    });
    Recipe { data, ..small }
}

#[test]
fn the_first_cause_of_a_failure_reaches_every_process_and_stays() {
    let said = both(broken, |_, mut pipeline| {
        pipeline.step().expect("a step");
        [pipeline.step(), pipeline.step()].map(|step| step.expect_err("it fails").to_string())
    });
    let cause = "rank 0, action 0 (0F0): embed: token 99 is outside 0..17";
    let after = "the pipeline has stopped after a failure: ";
    assert_eq!(said[0], [cause.to_owned(), format!("{after}{cause}")]);
    assert_eq!(said[1], [format!("process 0: {cause}"), format!("{after}process 0: {cause}")]);
}

#[test]
fn a_description_that_one_process_gets_wrong_is_told_in_all() {
    let said = in_processes(2, |world| {
        let mut builder = small().builder(named("1f1b", 2, 4));
        if world.process() == 1 {
            builder = builder.stages(Vec::new());
        }
        builder.world(world).launch().expect_err("no stages").to_string()
    });
    let cause = "the schedule has 2 stages, the pipeline was given 0: split the model into as many as the \
        schedule has";
    assert_eq!(said, [format!("process 1: {cause}"), cause.to_owned()]);
}

#[test]
fn a_failure_outside_the_pipeline_stops_the_others() {
    let said = both(small, |process, mut pipeline| {
        pipeline.step().expect("a step");
        if process == 1 {
            pipeline.fail(&pipewright::error::DataError::other("the log cannot be written").into());
        }
        pipeline.step().expect_err("one has left").to_string()
    });
    assert_eq!(said[0], "process 1: the log cannot be written");
}

#[test]
fn any_process_can_say_yes() {
    let said = both(small, |process, mut pipeline| {
        [pipeline.any(false), pipeline.any(process == 1)].map(|answer| answer.expect("all answer"))
    });
    assert_eq!(said, [[false, true]; 2]);
}
