//! Processes that are lost and replaced while the others go on: the weights are the same as in an undisturbed
//! run.

use super::throttled::{LONGER, MANY, Throttled};
use super::*;

#[test]
fn a_process_that_is_started_again_takes_its_place_with_the_same_bits() {
    for (size, victim) in [(2, 1), (3, 1), (3, 2)] {
        let stages = format!("pipeline.stages={size}");
        let mut run = Throttled::start(size, &[&stages]);
        run.await_step(12);
        run.kill(victim);
        run.begin(victim);
        let said = run.ends_as_if_nothing_had_happened();
        has(&said, &[&format!("process {victim} has stopped without saying why")]);
        has(&said, &["from what the processes kept in memory"]);
    }
}

#[test]
fn moments_in_few_bits_come_back_with_a_process() {
    for state in ["optimizer.state=bf16", "optimizer.state=8bit"] {
        for layout in [&["pipeline.stages=2"][..], &["pipeline.replicas=2", "optimizer.sharded=true"]] {
            let mut run = Throttled::start(2, &[&[state], layout].concat());
            run.await_step(12);
            run.kill(1);
            run.begin(1);
            run.ends_as_if_nothing_had_happened();
        }
    }
}

/// The settings of a run that learns from pairs of answers.
fn pairs() -> Vec<String> {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden");
    let sets =
        ["data.kind=jsonl", "data.cache=cache", "data.seq=64", "data.validation=0", "train.objective=dpo"];
    let paths = [
        format!("data.path={golden}/preferences/pairs.jsonl"),
        format!("data.tokenizer={golden}/tokenizer"),
        "model.vocab=512".to_owned(),
    ];
    sets.map(str::to_owned).into_iter().chain(paths).collect()
}

#[test]
fn a_process_that_takes_a_place_learns_the_reference_of_pairs_from_the_others() {
    let sets = pairs();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let mut run = Throttled::start(2, &sets);
    run.await_step(12);
    run.kill(1);
    // Neither the tokens nor the reference are there any more.
    fs::remove_dir_all(run.place.path("cache")).unwrap();
    run.begin(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn it_is_enough_if_one_process_has_kept_the_reference_of_pairs() {
    let place = Place::new();
    let sets = pairs();
    let sets: Vec<&str> =
        sets.iter().filter(|set| !set.contains("cache")).flat_map(|set| ["--set", set]).collect();
    let train = |name: &str, caches: [&str; 2]| {
        let address = worlds::free_address();
        let folder = format!("runs/{name}");
        let args = [&["--weights-hash", "--run-dir", &folder], &sets[..]].concat();
        let member = |rank: u32| {
            let mut command = place.member(rank, 2, &address, &args);
            command.env("XDG_CACHE_HOME", place.path(caches[rank as usize]));
            Started::new(command)
        };
        all_done(end_all((0..2).map(member).collect()))
    };
    let first = train("first", ["a", "a"]);
    has(&first.stdout, &["the model before the training is the reference for 6 pairs"]);
    for (name, caches) in [("of-first", ["a", "b"]), ("of-second", ["c", "a"])] {
        let said = train(name, caches);
        assert!(!said.stdout.contains("is the reference for"), "{name}: {}", said.stdout);
        assert_eq!(said.hash(), first.hash(), "{name}");
    }
}

#[test]
fn processes_that_are_not_neighbours_are_replaced_at_once() {
    let mut run = Throttled::start(4, &["pipeline.stages=4"]);
    run.await_step(12);
    run.kill(1);
    run.kill(3);
    run.begin(3);
    run.begin(1);
    has(&run.ends_as_if_nothing_had_happened(), &["from what the processes kept in memory"]);
}

#[test]
fn replicas_with_a_sharded_optimizer_are_replaced() {
    let sets = ["pipeline.stages=2", "pipeline.replicas=2", "optimizer.sharded=true"];
    for victim in [1, 3] {
        let mut run = Throttled::start(4, &sets);
        run.await_step(12);
        run.kill(victim);
        run.begin(victim);
        run.ends_as_if_nothing_had_happened();
    }
}

#[test]
fn a_run_loses_several_processes_one_after_the_other() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", MANY]);
    for (step, victim) in [(8, 1), (16, 2), (24, 1)] {
        run.await_step(step);
        run.kill(victim);
        run.begin(victim);
        run.await_return();
    }
    let said = run.ends_as_if_nothing_had_happened();
    assert!(!said.contains("the run goes on with step"), "there is no fourth: {said}");
}

#[test]
fn processes_may_be_lost_at_any_moment_of_a_step_with_all_that_belongs_to_it() {
    let evaluates = ["train.validate_every=1", "train.validation_micro_batches=16"];
    for sets in [
        &evaluates[..],
        &["checkpoint.every=1"],
        &["checkpoint.every=1", "checkpoint.beside=false"],
        &["train.snapshot_every=1"],
    ] {
        for (step, victim) in [(3, 1), (10, 1), (3, 0), (10, 0)] {
            let mut run = Throttled::start(2, sets);
            run.await_step(step);
            run.kill(victim);
            run.begin(victim);
            run.ends_as_if_nothing_had_happened();
        }
    }
}

#[test]
fn a_process_is_lost_while_all_join_again() {
    let mut run = Throttled::start(4, &["pipeline.stages=4"]);
    run.await_step(12);
    run.kill(1);
    run.await_said("the run waits");
    // One that would join again, and one that takes a place.
    run.kill(3);
    run.begin(1);
    run.kill(1);
    run.begin(3);
    run.begin(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn neighbours_that_are_lost_together_are_replaced_from_the_last_checkpoint() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
    run.await_step(12);
    run.kill(1);
    run.kill(2);
    run.begin(1);
    run.begin(2);
    has(&run.ends_as_if_nothing_had_happened(), &["from runs/small/checkpoints/step-000000"]);
}

#[test]
fn neighbours_that_are_lost_together_before_the_first_checkpoint_begin_again_with_all() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    run.await_step(12);
    run.kill(1);
    run.kill(2);
    run.begin(1);
    run.begin(2);
    let said = run.ends_as_if_nothing_had_happened();
    has(&said, &["the run goes on with step 0, from its first weights, since there is no checkpoint yet"]);
}

#[test]
fn a_process_that_is_lost_at_any_moment_before_the_first_step_is_replaced() {
    for (moment, victim) in (0..6).flat_map(|moment| [(moment, 1), (moment, 0)]) {
        let mut run = Throttled::start(2, &[]);
        // Whatever it does then, the run ends well.
        std::thread::sleep(Duration::from_millis(30 * moment));
        run.kill(victim);
        run.begin(victim);
        run.ends_as_if_nothing_had_happened();
    }
}

#[test]
fn process_0_is_replaced_as_any_other() {
    for size in [2, 3] {
        let stages = format!("pipeline.stages={size}");
        let mut run = Throttled::start(size, &[&stages, "checkpoint.every=4"]);
        run.await_step(12);
        run.kill(0);
        run.begin(0);
        for said in &run.all_end_as_if_nothing_had_happened()[1..] {
            has(said, &["warning: step ", "process 0 has stopped without saying why", "start it again"]);
        }
    }
}

#[test]
fn process_0_and_its_neighbour_are_lost_together() {
    for (sets, expected) in [
        (&["checkpoint.every=4"][..], "resumed after"),
        (&[][..], "this process takes the place of process 0"),
    ] {
        let mut run = Throttled::start(3, &[&["pipeline.stages=3"], sets].concat());
        run.await_step(12);
        run.kill(0);
        run.kill(1);
        run.begin(1);
        run.begin(0);
        let args = run.args.clone();
        let (place, ended) = run.end();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let whole = place.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
        let first = ended.into_iter().map(Ended::done).next().unwrap();
        has(&first.stdout, &[expected]);
        assert_eq!(first.hash(), whole.hash());
        assert_eq!(place.numbers("runs/small"), place.numbers("whole"));
    }
}

#[test]
fn process_0_is_lost_again_and_again() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
    for (step, victim) in [(8, 0), (16, 2), (24, 0)] {
        run.await_step(step);
        run.kill(victim);
        run.begin(victim);
    }
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn process_0_is_lost_while_all_join_again() {
    let mut run = Throttled::start(4, &["pipeline.stages=4"]);
    run.await_step(12);
    run.kill(2);
    run.await_said("the run waits");
    run.kill(0);
    run.begin(2);
    run.begin(0);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn without_another_process_0_the_others_say_from_where_the_run_continues() {
    let sets = ["pipeline.stages=3", "checkpoint.every=4", "launch.deadline=3"];
    let mut run = Throttled::start(3, &sets);
    run.await_step(12);
    run.kill(0);
    for process in [1, 2] {
        let said = run.running[process].take().unwrap().end().failed(1);
        has(&said, &["cannot reach process 0 at ", "within 3 s"]);
        has(&said, &["--resume continues from runs/small/checkpoints/step-0000"]);
    }
}

#[test]
fn processes_that_wait_for_process_0_make_way_when_all_are_started_again() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
    run.await_step(12);
    run.kill(0);
    let left: Vec<Started> = (1..3).map(|process| run.running[process].take().expect("it runs")).collect();
    run.args.push("--resume".to_owned());
    (0..3).for_each(|process| run.begin(process));
    for process in left {
        // Before the others have come, or after that.
        let said = process.end().failed(1);
        let expected = ["was started with another config", "was in another run, which has ended"];
        assert!(expected.iter().any(|expected| said.contains(expected)), "{said}");
    }
    run.args.retain(|arg| arg != "--resume");
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn processes_are_replaced_as_often_as_the_config_says() {
    let mut run = Throttled::start(2, &["train.restarts=1", MANY]);
    run.await_step(8);
    run.kill(1);
    run.begin(1);
    run.await_return();
    run.kill(1);
    let said = run.running[0].take().unwrap().end().failed(1);
    has(&said, &["error: process 1 has stopped without saying why"]);
    has(&said, &["processes were replaced 1 times before"]);
}

#[test]
fn without_restarts_a_lost_process_ends_the_run() {
    let mut run = Throttled::start(2, &["train.restarts=0"]);
    run.await_step(8);
    run.kill(1);
    let said = run.running[0].take().unwrap().end().failed(1);
    assert!(!said.contains("waits"), "{said}");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_process_at_once() {
    // Process 0 itself, and one that waits with it.
    for asked in [0, 2] {
        let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
        run.await_step(12);
        run.kill(1);
        let mut said = run.await_said("the run waits");
        run.running[asked].as_ref().expect("it runs").signal("-INT");
        run.running.remove(1);
        let (_, ended) = run.end();
        let ends = format!("process {asked} was asked to end while the run waited");
        for process in ended {
            said += &process.failed(1);
            has(&said, &[&ends]);
            said.clear();
        }
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_a_process_that_is_stopped() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    run.await_step(12);
    let first = run.running[0].take().expect("it runs");
    first.signal("-STOP");
    run.kill(1);
    // It knocks at process 0, which does not answer.
    let last = run.running[2].take().expect("it runs");
    last.signal("-INT");
    has(&last.end().failed(1), &["process 2 was asked to end while the run waited"]);
}

/// The one that takes the place gets the layers that the lost one had, and not those of its config.
#[test]
fn a_process_is_lost_after_the_model_is_cut_elsewhere() {
    for sets in [
        &["pipeline.stages=2", "checkpoint.every=0"][..],
        &["pipeline.stages=2", "pipeline.replicas=2", "optimizer.sharded=true", "checkpoint.every=2"],
    ] {
        let size = if sets.len() > 2 { 4 } else { 2 };
        let mut run = Throttled::start(size, &[sets, &[LONGER]].concat());
        run.await_step(4);
        let dir = pipewright::run::RunDir::at(run.place.path("runs/small"));
        for (times, layers, noted) in
            [(1, [1, 7], "have 1, 7 layers instead of "), (2, [6, 2], "6, 2 layers instead of 1, 7")]
        {
            dir.ask_for_cut(pipewright::run::Change::layers(layers.to_vec())).unwrap();
            run.await_noted(noted);
            // Then all have a snapshot of the new stages.
            let done =
                fs::read_to_string(run.place.path("runs/small/metrics.jsonl")).unwrap().lines().count();
            run.let_go();
            run.await_step(done + 4);
            run.kill(1);
            run.begin(1);
            run.await_return();
            // The screen is told before the history.
            run.await_noted_often("from what the processes kept in memory", times);
        }
        let history = fs::read_to_string(dir.history()).unwrap();
        assert!(!history.contains("with the cut at launch"), "{sets:?}: {history}");
        run.ends_as_if_nothing_had_happened();
    }
}

/// Then not all have snapshots of the new stages, or all have them: the run goes on from a checkpoint, from
/// the start or from memory.
#[test]
fn a_process_is_lost_right_after_the_model_is_cut_elsewhere() {
    for every in ["checkpoint.every=2", "checkpoint.every=0"] {
        let mut run = Throttled::start(2, &["pipeline.stages=2", every, MANY, "train.print_every=3"]);
        run.await_step(4);
        let dir = pipewright::run::RunDir::at(run.place.path("runs/small"));
        dir.ask_for_cut(pipewright::run::Change::layers(vec![1, 7])).unwrap();
        let cuts =
            || fs::read_to_string(dir.history()).unwrap_or_default().matches("cut anew after ").count();
        let since = Instant::now();
        while cuts() == 0 {
            let history = fs::read_to_string(dir.history()).unwrap();
            assert!(since.elapsed() < PATIENCE, "{every}: it is not cut, {history}");
            std::thread::sleep(Duration::from_millis(2));
        }
        run.kill(1);
        run.begin(1);
        run.await_return();
        run.ends_as_if_nothing_had_happened();
    }
}

/// The layers are where they were at launch, so what the processes keep in memory is of use.
#[test]
fn a_process_is_lost_after_the_run_has_gone_on_by_another_schedule() {
    let sets = ["pipeline.stages=2", "checkpoint.every=0", MANY, "train.print_every=3"];
    let mut run = Throttled::start(2, &sets);
    run.await_step(4);
    let dir = pipewright::run::RunDir::at(run.place.path("runs/small"));
    let schedule = Some("zb-h1".to_owned());
    let recompute = Some(pipewright::stages::Recompute::None);
    dir.ask_for_cut(pipewright::run::Change { schedule, recompute, ..Default::default() }).unwrap();
    run.await_noted("the schedule is zb-h1 instead of 1f1b");
    run.kill(1);
    run.begin(1);
    run.await_return();
    let said = run.ends_as_if_nothing_had_happened();
    has(&said, &["from what the processes kept in memory"]);
}
