//! A run of several processes equals the run of one: the same weights, figures and files.

use super::*;

/// The weights hash of a run of one process with one stage. All runs must have it.
fn plain(place: &Place) -> String {
    let sets = ["--set", "pipeline.stages=1", "--run-dir", "plain", "--weights-hash"];
    place.alone(&sets).done().hash()
}

#[track_caller]
fn same_weights(settings: &[(u32, &str, u32)]) {
    let place = Place::new();
    let plain = plain(&place);
    for (index, (processes, schedule, stages)) in settings.iter().enumerate() {
        let (stages, schedule) =
            (format!("pipeline.stages={stages}"), format!("pipeline.schedule={schedule}"));
        let run = format!("run-{index}");
        let args = ["--set", &stages, "--set", &schedule, "--run-dir", &run, "--weights-hash"];
        let first = all_done(place.several(*processes, &args));
        assert_eq!(first.hash(), plain, "{processes} processes, {schedule}, {stages}");
        assert_eq!(place.numbers(&run), place.numbers("plain"), "{schedule}");
        assert_eq!(place.checkpoints(&run), ["step-00000002", "step-00000004"]);
    }
}

#[test]
fn two_processes_of_a_rank_each_train_to_the_same_bits() {
    same_weights(&[(2, "1f1b", 2), (2, "gpipe", 2), (2, "zb-h1", 2)]);
}

#[test]
fn two_processes_in_bf16_train_to_the_bits_of_one() {
    let place = Place::new();
    let half = ["--set", "pipeline.dtype=bf16", "--weights-hash"];
    let one = ["--set", "pipeline.stages=1", "--run-dir", "one"];
    let two = ["--set", "pipeline.stages=2", "--run-dir", "two"];
    let alone = place.alone(&[&half[..], &one].concat()).done();
    let both = all_done(place.several(2, &[&half[..], &two].concat()));
    assert_eq!(both.hash(), alone.hash());
    assert_ne!(alone.hash(), plain(&place), "it computed in f32");
    assert_eq!(place.numbers("two"), place.numbers("one"));
}

#[test]
fn several_ranks_and_stages_a_process_train_to_the_same_bits() {
    same_weights(&[(2, "1f1b", 4), (2, "interleaved-1f1b", 8), (2, "zb-v", 8)]);
}

#[test]
fn four_processes_train_to_the_same_bits() {
    same_weights(&[(4, "1f1b", 4), (4, "interleaved-1f1b", 8), (4, "dualpipe-v", 8)]);
}

#[test]
fn replicas_over_processes_train_to_the_same_bits() {
    let place = Place::new();
    let plain = plain(&place);
    for (processes, replicas, stages, map, sharded) in [
        (2, 2, 1, "pipeline", false),
        (2, 2, 2, "pipeline", true),
        (2, 2, 2, "replicas", false),
        (4, 2, 2, "replicas", true),
        (2, 4, 1, "pipeline", true),
    ] {
        let sets = [
            format!("pipeline.stages={stages}"),
            format!("pipeline.replicas={replicas}"),
            format!("launch.map={map}"),
            format!("optimizer.sharded={sharded}"),
        ];
        let run = format!("run-{processes}-{replicas}-{stages}-{map}");
        let mut args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        args.extend(["--run-dir", &run, "--weights-hash"]);
        let first = all_done(place.several(processes, &args));
        assert_eq!(first.hash(), plain, "{run}");
        assert_eq!(place.numbers(&run), place.numbers("plain"), "{run}");
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_replicas() {
    let place = Place::new();
    let plain = plain(&place);
    let replicas = ["--set", "pipeline.replicas=2", "--set", "optimizer.sharded=true"];
    all_done(place.several(2, &[&replicas[..], &["--steps", "1"]].concat()));
    place.alone(&["--resume", "--steps", "2"]).done();
    let four = ["--set", "pipeline.replicas=4", "--set", "pipeline.stages=1"];
    place.alone(&[&four[..], &["--resume", "--steps", "3"]].concat()).done();
    let last = place.alone(&[&replicas[..], &["--resume", "--weights-hash"]].concat()).done();
    assert_eq!(last.hash(), plain);
    assert_eq!(place.numbers("runs/small").len(), 4);
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let place = Place::new();
    let plain = plain(&place);
    let stages = ["--set", "pipeline.stages=4"];
    all_done(place.several(2, &[&stages[..], &["--steps", "1"]].concat()));
    place.alone(&["--resume", "--steps", "2"]).done();
    let four = all_done(place.several(4, &[&stages[..], &["--resume", "--steps", "3"]].concat()));
    has(&four.stdout, &["resumed after 2 steps"]);
    let two = all_done(place.several(2, &["--resume", "--weights-hash"]));
    assert_eq!(two.hash(), plain);
    assert_eq!(place.numbers("runs/small").len(), 4);
}

#[test]
fn several_processes_copy_their_checkpoints_once_and_go_on_from_them() {
    let place = Place::new();
    let plain = plain(&place);
    let copy = ["--set", "checkpoint.copy_to=copies", "--steps", "3"];
    let first = all_done(place.several(2, &copy));
    has(&first.stdout, &["copied the checkpoint after 2 steps", "copied the checkpoint after 3 steps"]);
    let url = format!("file://{}", place.path("copies").display());
    let resume = ["--resume", &url, "--run-dir", "other", "--weights-hash"];
    let second = all_done(place.several(2, &resume));
    has(&second.stdout, &["fetched   file://", "resumed after 3 steps"]);
    assert_eq!(second.hash(), plain);
}

#[test]
fn the_address_can_stand_in_the_config() {
    let place = Place::new();
    let address = format!("launch.address={}", worlds::free_address());
    // The config overrides the environment.
    let member = |rank| Started::new(place.member(rank, 2, "192.0.2.1:1", &["--set", &address]));
    all_done(end_all((0..2).map(member).collect()));
}

#[test]
fn a_machine_can_be_named_by_a_name_that_leads_to_itself_alone() {
    let place = Place::new();
    let name = Command::new("hostname").output().map_or(Vec::new(), |output| output.stdout);
    let name = String::from_utf8(name).unwrap().trim().to_owned();
    let port = worlds::free_address().rsplit_once(':').unwrap().1.to_owned();
    let address = format!("{name}:{port}");
    // On some machines the host name is unknown, or it is an address that others can use. Then there is
    // nothing to test.
    let found = std::net::ToSocketAddrs::to_socket_addrs(&address);
    if !found.is_ok_and(|mut found| found.any(|address| address.ip().is_loopback())) {
        return;
    }
    let member = |rank| Started::new(place.member(rank, 2, &address, &["--set", "launch.deadline=30"]));
    all_done(end_all((0..2).map(member).collect()));
}

#[test]
fn a_world_of_one_process_is_no_world() {
    let place = Place::new();
    let mut command = place.train(&[]);
    command.env("WORLD_SIZE", "1");
    Started::new(command).end().done();
}

#[test]
fn a_trace_shows_the_ranks_of_all_processes_on_one_clock() {
    let place = Place::new();
    let args = ["--trace=2", "--set", "pipeline.stages=2"];
    let first = all_done(place.several(2, &args));
    has(&first.stdout, &["traced    step "]);
    let trace = place.text("runs/small/trace.json");
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let text = trace.to_string();
    for pass in ["0F0", "1F0", "1B3", "0B3"] {
        assert!(text.contains(pass), "{pass} is missing: {text}");
    }
    for picture in ["trace.svg", "plan-and-trace.svg"] {
        assert!(place.path("runs/small").join(picture).is_file());
    }
}
