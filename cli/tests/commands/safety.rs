//! What a run that fails leaves behind, and what it prints.

use super::*;

const SAVE_ALL: [&str; 2] = ["checkpoint.every=1", "checkpoint.keep=1"];
const BLOW_UP: &str = "optimizer.learning_rate=1e30";

fn train(place: &Place, args: &[&str], sets: &[&str]) -> Run {
    place.run_with(&[&["train", "my.toml"], args].concat(), sets)
}

/// Resumes a run that must fail after its start. Returns its standard error.
#[track_caller]
fn failed(place: &Place, sets: &[&str]) -> String {
    let run = train(place, &["--resume"], sets);
    assert_eq!(run.0.status.code(), Some(1), "{}{}", run.stdout(), run.stderr());
    run.stderr()
}

#[test]
fn weights_that_have_blown_up_do_not_cost_the_last_good_checkpoint() {
    let place = Place::new();
    train(&place, &["--steps", "2"], &SAVE_ALL).done();
    assert_eq!(
        place.checkpoints("runs/small"),
        ["step-00000001", "step-00000002"],
        "the last one has yet to be proved good"
    );
    let said =
        failed(&place, &[BLOW_UP, "checkpoint.every=1", "checkpoint.keep=1", "train.validate_every=0"]);
    has(&said, &["error: step 3: "]);
    has(
        &said,
        &["the checkpoint whose weights gave these numbers is set aside as \
             runs/small/checkpoints/step-00000003.not-finite"],
    );
    has(&said, &["the newest checkpoint is runs/small/checkpoints/step-00000002: --resume continues"]);
    let aside = "step-00000003.not-finite";
    assert_eq!(place.checkpoints("runs/small"), ["step-00000002", aside]);
    has(&failed(&place, &[BLOW_UP, "checkpoint.every=1", "train.validate_every=0"]), &[aside]);
    train(&place, &["--resume"], &SAVE_ALL).done();
    assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        place.checkpoints("runs/small"),
        [aside, "step-00000005", "step-00000006"],
        "what was set aside is never removed"
    );
    place.run(&["verify", &format!("runs/small/checkpoints/{aside}")]).done();
}

#[test]
fn a_run_whose_first_lines_cannot_be_printed_leaves_nothing_behind() {
    let place = Place::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.command(&["train", "my.toml"]);
    has(&Run(command.stdout(full).output().unwrap()).refused(), &["cannot write to standard output"]);
    assert!(!place.path("runs/small").exists());
    place.run(&["train", "my.toml"]).done();
}

#[test]
fn a_validation_loss_that_is_not_a_number_fails_before_anything_is_saved() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let said = failed(&place, &[BLOW_UP, "checkpoint.every=1", "train.validate_every=1"]);
    has(&said, &["error: step 3: the loss of the validation before it is NaN"]);
    has(&said, &["the newest checkpoint is runs/small/checkpoints/step-00000002"]);
    assert_eq!(place.checkpoints("runs/small"), ["step-00000002"]);
}

#[test]
fn a_full_disk_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let config = place.text("runs/small/config.toml");
    // A limit on the size of files stands in for a full disk.
    let run = limited(&place, 24);
    let said = run.stderr();
    assert_eq!(run.0.status.code(), Some(1), "{said}");
    has(&said, &["error: cannot write ", "model.safetensors: "]);
    assert_eq!(place.checkpoints("runs/small"), ["step-00000002"], "no half of one either");
    let run = limited(&place, 0);
    let said = run.stderr();
    assert_eq!(run.0.status.code(), Some(2), "{said}");
    has(&said, &["config.toml: "]);
    assert_eq!(place.text("runs/small/config.toml"), config);
    place.run(&["train", "--resume", "--run-dir", "runs/small"]).done();
    assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_a_killed_save_left_is_swept_up() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    for name in [".step-00000004.partial", ".step-00000002.old"] {
        let folder = place.path("runs/small/checkpoints").join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("model.safetensors"), "half").unwrap();
    }
    place.run(&["train", "my.toml", "--resume", "--steps", "3"]).done();
    assert_eq!(place.checkpoints("runs/small"), ["step-00000002", "step-00000003"]);
}

#[test]
fn a_resume_says_what_makes_it_another_run() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let harmless = [
        "pipeline.stages=3",
        "pipeline.batch_size=6",
        "pipeline.pin=false",
        "train.steps=3",
        "train.print_every=2",
        "checkpoint.keep=9",
    ];
    let said = train(&place, &["--resume"], &harmless).done().stdout();
    assert!(said.contains("resumed after 2 steps") && !said.contains("changed"), "{said}");
    let other = ["optimizer.learning_rate=0.002", "pipeline.micro_batch_size=4", "train.steps=4"];
    has(
        &train(&place, &["--resume"], &other).done().stdout(),
        &["changed   pipeline.micro_batch_size: 2 -> 4, optimizer.learning_rate: 0.001 -> 0.002: from here \
             on the weights differ from those that the old settings give"],
    );
}

#[test]
fn a_damaged_newest_checkpoint_says_how_to_continue_from_the_one_before() {
    let place = Place::new();
    let sets = ["train.validate_every=0"];
    train(&place, &["--steps", "4"], &sets).done();
    let newest = place.path("runs/small/checkpoints/step-00000004");
    fs::write(newest.join("optimizer.safetensors"), "half").unwrap();
    has(
        &place.run(&["train", "my.toml", "--resume"]).refused(),
        &["move the folder runs/small/checkpoints/step-00000004 out of the run directory to continue from \
             runs/small/checkpoints/step-00000002"],
    );
    fs::remove_dir_all(newest).unwrap();
    train(&place, &["--resume"], &sets).done();
    assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
    let folder = place.path("runs/small/checkpoints");
    fs::remove_dir_all(folder.join("step-00000002")).unwrap();
    fs::remove_dir_all(folder.join("step-00000004")).unwrap();
    fs::remove_file(folder.join("step-00000006/state.json")).unwrap();
    let said = place.run(&["train", "my.toml", "--resume"]).refused();
    has(&said, &["state.json", "there is no earlier one: begin another run"]);
}

#[test]
fn signals_that_come_again_change_nothing() {
    let place = Place::new();
    let running = place.start(&["--set", "checkpoint.every=0"]);
    for name in ["-TERM", "-TERM", "-HUP"] {
        running.signal(name);
    }
    assert_eq!(running.end().0.status.code(), Some(130));
    assert_eq!(place.checkpoints("runs/small").len(), 1);
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_again_with_the_same_bits() {
    for again in
        [&["train", "my.toml", "--steps", "6"][..], &["train", "my.toml", "--steps", "6", "--resume"]]
    {
        let place = Place::new();
        let running = place.start(&["--set", "checkpoint.every=0"]);
        running.kill();
        let hash = |args: &[&str]| {
            let args = [args, &["--weights-hash"]].concat();
            let said = place.run(&args).done().stdout();
            said.lines().find(|line| line.starts_with("weights ")).expect("it is asked for").to_owned()
        };
        let anew = hash(again);
        assert_eq!(anew, hash(&["train", "my.toml", "--steps", "6", "--run-dir", "whole"]));
        assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
        let history = place.text("runs/small/history.jsonl");
        has(&history, &["a run was lost here before its first checkpoint: it begins again"]);
    }
}

#[test]
fn a_finished_run_that_is_resumed_says_what_gives_more() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let said = place.run(&["train", "my.toml", "--steps", "2", "--resume"]).done().stdout();
    let expected = "done before: 2 steps; with more (train.steps or --steps) the run goes on";
    has(&said, &[expected]);
}

#[test]
fn a_resumed_run_whose_weights_do_not_fit_names_the_key() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let said = place.run(&["train", "my.toml", "--resume", "--set", "model.dim=64"]).refused();
    let keys = "since that checkpoint was saved, these settings have changed: model.dim: ";
    has(&said, &[keys, "-> 64"]);
}

#[test]
fn an_export_that_fails_leaves_nothing_and_what_a_killed_one_left_is_removed() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let script = "ulimit -f 1; exec \"$0\" export runs/small mine";
    let mut command = Command::new("sh");
    command.current_dir(place.path(".")).args(["-c", script]);
    let run = Run(command.arg(cargo_bin("pipewright")).output().unwrap());
    assert!(!run.0.status.success());
    let left = || {
        let entries = fs::read_dir(place.path(".")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("mine")).collect::<Vec<_>>()
    };
    assert_eq!(left(), [""; 0]);
    fs::create_dir(place.path(".mine.partial")).unwrap();
    place.write(".mine.partial/model.safetensors", "half");
    place.run(&["export", "runs/small", "mine"]).done();
    assert_eq!(left(), ["mine"]);
}

#[test]
fn a_second_resume_beside_a_living_run_is_refused_and_costs_no_line() {
    let place = Place::new();
    let running = place.start(&["--set", "checkpoint.every=2"]);
    wait_until(|| !place.checkpoints("runs/small").is_empty());
    let said = place.run(&["train", "my.toml", "--resume"]).refused();
    let holder = format!("is in use by process {} on host ", running.child.0.id());
    has(&said, &[&holder, "wait until that run ends"]);
    running.signal("-INT");
    assert_eq!(running.end().0.status.code(), Some(130));
    let steps = place.steps("runs/small");
    assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_resume_among_files_of_ones_own_changes_none_of_them() {
    let place = Place::new();
    let metrics = place.path("metrics.jsonl");
    fs::write(&metrics, "my numbers\n").unwrap();
    let config = format!("# my notes\n{CONFIG}");
    place.write("config.toml", &config);
    let said = place.run(&["train", "config.toml", "--run-dir", "."]).refused();
    assert!(said.contains("is not a run") && !said.contains("--resume"), "{said}");
    let resume = ["train", "config.toml", "--run-dir", ".", "--resume"];
    has(&place.run(&resume).refused(), &["there is no run in . to resume", "nothing was changed"]);
    assert_eq!(fs::read_to_string(metrics).unwrap(), "my numbers\n");
    assert_eq!(place.text("config.toml"), config);
}

/// Continues training with a limit on the size of files, in blocks of 512 bytes. The system ends a process
/// that writes more.
fn limited(place: &Place, blocks: u32) -> Run {
    let script = format!("ulimit -f {blocks}; exec \"$0\" train my.toml --resume");
    let mut command = Command::new("sh");
    command.current_dir(place.path(".")).args(["-c", &script]);
    Run(command.arg(cargo_bin("pipewright")).output().unwrap())
}

#[test]
fn numbers_that_cannot_be_written_are_told_once_and_end_no_run() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let metrics = place.path("runs/small/metrics.jsonl");
    let mut text = fs::read_to_string(&metrics).unwrap();
    text += &"no JSON\n".repeat(64 * 1024);
    fs::write(&metrics, &text).unwrap();
    let run = limited(&place, 1024).done();
    let told = run.stderr().matches("warning: could not write the numbers of a step").count();
    assert_eq!(told, 1, "{}", run.stderr());
    assert_eq!(fs::read_to_string(&metrics).unwrap(), text, "no half of a line");
    assert!(place.checkpoints("runs/small").contains(&"step-00000006".to_owned()));
}

#[test]
fn sigterm_and_sighup_end_a_run_in_good_order() {
    for name in ["-TERM", "-HUP"] {
        let place = Place::new();
        let running = place.start(&[]);
        running.signal(name);
        assert_eq!(running.end().0.status.code(), Some(130), "{name}");
        let steps = place.steps("runs/small").len();
        assert_eq!(place.checkpoints("runs/small").pop(), Some(format!("step-{steps:08}")));
    }
}

#[test]
fn other_data_is_refused_on_resume_unless_it_is_allowed_and_the_history_says_so() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let text = place.text("text.txt");
    place.write("text.txt", text.replacen("dog", "cat", 1));
    let resume = ["train", "my.toml", "--resume"];
    let said = place.run(&resume).refused();
    let saved = "runs/small/checkpoints/step-00000002 was trained on `text.txt`";
    for part in [saved, "and the data is now `text.txt`", "--allow-other-data"] {
        has(&said, &[part]);
    }
    assert_eq!(place.steps("runs/small").len(), 2);
    place.run(&[&resume[..], &["--allow-other-data"]].concat()).done();
    assert_eq!(place.steps("runs/small").len(), 6);
    let history = place.text("runs/small/history.jsonl");
    has(&history, &["continues with other data: "]);
}
