//! Runs of several processes that `mpirun` starts and MPI connects.

use super::*;

/// `train` in this many processes.
fn mpirun(place: &Place, size: u32, args: &[&str]) -> Command {
    mpirun_of("train", place, size, args)
}

fn mpirun_of(command_name: &str, place: &Place, size: u32, args: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command
        .current_dir(place.0.path())
        // Two at once may both make the folder that all share otherwise, and one fails.
        .env("OMPI_MCA_orte_tmpdir_base", place.0.path())
        .args(["--allow-run-as-root", "--oversubscribe", "-n", &size.to_string()])
        .arg(cargo_bin("pipewright"))
        .args([command_name, "my.toml"])
        .args(args);
    command
}

/// The process with this number of a run that `mpirun` has started.
fn process(started: &Started, number: u32) -> String {
    let mpirun = started.child.id().to_string();
    let children = Command::new("pgrep").args(["-P", &mpirun]).output().unwrap();
    let variable = format!("OMPI_COMM_WORLD_RANK={number}\0");
    let children = String::from_utf8(children.stdout).unwrap();
    let is_it = |id: &&str| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&variable)
    };
    children.lines().find(is_it).expect("it runs").to_owned()
}

/// Sends a signal to the process with this number.
fn signal(started: &Started, number: u32, name: &str) {
    let id = process(started, number);
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

#[test]
fn processes_that_mpi_connects_train_to_the_same_bits() {
    let place = Place::new();
    let args = ["--weights-hash", "--run-dir", "plain", "--set", "pipeline.shard_groups=2"];
    let plain = place.alone(&[&args[..], &["--set", "pipeline.stages=1"]].concat()).done();
    for (processes, schedule, [replicas, stages, shards], sharded) in [
        (2, "1f1b", [1, 2, 1], false),
        (2, "zb-v", [1, 8, 1], false),
        (4, "1f1b", [1, 4, 1], false),
        (2, "1f1b", [2, 1, 1], false),
        (4, "1f1b", [2, 2, 1], true),
        (4, "1f1b", [1, 2, 2], false),
        (4, "1f1b", [2, 1, 2], true),
    ] {
        let run = format!("{processes}-{schedule}-{replicas}-{shards}");
        let sets = [
            "pipeline.shard_groups=2".to_owned(),
            format!("pipeline.shards={shards}"),
            format!("pipeline.stages={stages}"),
            format!("pipeline.schedule={schedule}"),
            format!("pipeline.replicas={replicas}"),
            format!("optimizer.sharded={sharded}"),
        ];
        let mut args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        args.extend(["--run-dir", &run, "--weights-hash"]);
        let ended = Started::new(mpirun(&place, processes, &args)).end().done();
        assert_eq!(ended.hash(), plain.hash(), "{run}");
        assert_eq!(place.numbers(&run), place.numbers("plain"), "{run}");
        assert_eq!(ended.stderr, "");
        let said = format!(
            "\nfabric    mpi between {processes} processes: OMPI_COMM_WORLD_SIZE is set, so an MPI launcher \
             has started it\n"
        );
        assert!(ended.stdout.contains(&said), "{}", ended.stdout);
        let first = format!("processes {processes}, as mpirun says (Open MPI)\n");
        assert!(ended.stdout.starts_with(&first), "{}", ended.stdout);
    }
}

#[test]
fn profile_measures_a_message_by_mpi() {
    let place = Place::new();
    let said = Started::new(mpirun_of("profile", &place, 2, &[])).end().done().stdout;
    assert!(said.contains("fabric    mpi between 2 processes: "), "{said}");
    assert!(said.contains("a message between two processes of one host: "), "{said}");
    assert!(place.path("costs.json").exists());
}

#[test]
fn a_killed_process_ends_the_job_and_is_named() {
    let place = Place::new();
    let args = [&LONG[..], &["--set", "pipeline.stages=3"]].concat();
    let started = Started::new(mpirun(&place, 3, &args));
    place.await_steps();
    signal(&started, 1, "-KILL");
    let ended = started.end();
    assert_ne!(ended.status, Some(0));
    assert!(ended.stderr.contains("process rank 1"), "{}", ended.stderr);
    assert!(ended.stderr.contains("signal 9"), "{}", ended.stderr);
}

#[test]
fn a_process_that_is_silent_ends_the_job_and_is_named() {
    let place = Place::new();
    let args = [&LONG[..], &["--set", "pipeline.stages=3"]].concat();
    let mut command = mpirun(&place, 3, &args);
    command.env("PIPEWRIGHT_SILENCE", "2");
    let started = Started::new(command);
    place.await_steps();
    signal(&started, 2, "-STOP");
    let said = started.end().failed(1);
    let line = "error: process 2 has stopped without saying why";
    assert!(said.contains(line), "{said}");
}

#[test]
fn numbers_that_are_not_finite_end_the_job_with_their_words() {
    let place = Place::new();
    let args = ["--set", "optimizer.learning_rate=1e30", "--set", "train.validate_every=0"];
    let said = Started::new(mpirun(&place, 2, &args)).end().failed(1);
    let line = ": error: step 1: the loss of micro-batch 0 is not finite; first in stage ";
    assert!(said.contains(line), "{said}");
    assert!(!said.contains("has stopped"), "the first cause alone: {said}");
}

#[test]
fn a_failure_of_one_process_ends_all_with_its_words() {
    let place = Place::new();
    fs::create_dir(place.path("other")).unwrap();
    fs::copy(place.path("my.toml"), place.path("other/my.toml")).unwrap();
    let mut command = mpirun(&place, 1, &[]);
    let program = cargo_bin("pipewright");
    command.args([":", "-wdir", "other", "-n", "1"]).arg(program).args(["train", "my.toml"]);
    let said = Started::new(command).end().failed(2);
    assert!(said.contains("error: "), "{said}");
    assert!(said.contains("text.txt"), "{said}");
}

#[test]
fn numbers_that_contradict_mpirun_are_refused() {
    let place = Place::new();
    let mut command = mpirun(&place, 2, &[]);
    command.envs([("RANK", "0"), ("WORLD_SIZE", "4")]);
    let said = Started::new(command).end().failed(2);
    assert!(said.contains("error: RANK=0 and WORLD_SIZE=4, but OMPI_COMM_WORLD_RANK="), "{said}");
}

#[test]
fn sockets_can_be_asked_for_under_mpirun() {
    let place = Place::new();
    let ended = Started::new(mpirun(&place, 2, &["--set", "launch.fabric=sockets"])).end();
    let stdout = ended.done().stdout;
    let line = "\nfabric    sockets between 2 processes: launch.fabric says so\n";
    assert!(stdout.contains(line), "{stdout}");
}

#[test]
fn a_stall_by_mpi_is_told_once_and_that_it_is_over() {
    let place = Place::new();
    let soon = ["--set", "pipeline.stages=3", "--set", "pipeline.stall_warning=0.5"];
    let mut started = Started::new(mpirun(&place, 3, &[&LONG[..], &soon].concat()));
    place.await_steps();
    signal(&started, 1, "-STOP");
    let said = started.await_said("it is stopped, or its machine or the network has failed");
    assert!(said.contains("process 1 (rank 1) does not answer, and nothing has come from it for "), "{said}");
    signal(&started, 1, "-CONT");
    let said = started.await_said("it moves again, after ");
    assert!(!said.contains("warning: "), "told once: {said}");
    signal(&started, 0, "-INT");
    let ended = started.end();
    assert!(ended.stdout.contains("interrupted: "), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_stall_by_mpi_ends_the_job_after_the_limit() {
    let place = Place::new();
    let limit = ["--set", "pipeline.stages=3", "--set", "pipeline.stall_limit=1"];
    let started = Started::new(mpirun(&place, 3, &[&LONG[..], &limit].concat()));
    place.await_steps();
    signal(&started, 2, "-STOP");
    let said = started.end().failed(1);
    assert!(said.contains("error: a stall of 1 s: process 2 (rank 2) does not answer"), "{said}");
}

#[test]
fn usr1_asks_all_processes_that_mpi_connects() {
    let place = Place::new();
    let mut started = Started::new(mpirun(&place, 2, &[&LONG[..], &["--set", "pipeline.stages=2"]].concat()));
    place.await_steps();
    signal(&started, 1, "-USR1");
    let said = started.await_said("what all ranks do, as process 1 sees it:\n");
    assert!(!said.contains("error"), "{said}");
    for process in 0..2 {
        started.await_said(&format!("process {process}"));
    }
    signal(&started, 0, "-INT");
    started.end();
}

#[test]
fn checkpoints_beside_the_steps_are_the_same_by_mpi() {
    let place = Place::new();
    let all = ["--set", "checkpoint.every=1", "--set", "checkpoint.keep=10"];
    place.alone(&[&all[..], &["--set", "pipeline.stages=1", "--run-dir", "plain"]].concat()).done();
    let mpi = [&all[..], &["--set", "pipeline.stages=3", "--run-dir", "mpi"]].concat();
    Started::new(mpirun(&place, 3, &mpi)).end().done();
    let [plain, mpi] = ["plain", "mpi"].map(|run| place.path(run));
    let names = place.checkpoints("mpi");
    assert_eq!(names.len(), 4);
    assert_eq!(names, place.checkpoints("plain"));
    for name in names {
        for file in ["model.safetensors", "optimizer.safetensors"] {
            let [one, other] =
                [&plain, &mpi].map(|run| fs::read(run.join("checkpoints").join(&name).join(file)));
            assert!(one.unwrap() == other.unwrap(), "{name}/{file} differs");
        }
    }
}
