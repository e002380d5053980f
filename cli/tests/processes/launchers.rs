//! Runs of processes that find their places by what launchers set.

use std::collections::BTreeSet;

use pipewright_cli::config::launched;

use super::*;

type Variables = Vec<(String, String)>;

/// The variables of each process, for a job whose derived port is free.
fn of_free_job(processes: u32, variables: impl Fn(u32, u32) -> Variables) -> Vec<Variables> {
    let is_free = |job: &u32| {
        let found = launched(&variables(0, *job)).expect("a place").expect("several");
        // Nobody listens there.
        TcpStream::connect(found.address().expect("an address")).is_err()
    };
    // Another test that runs now begins somewhere else.
    let first = std::process::id() * 10;
    let job = (first..).find(is_free).expect("a free port");
    (0..processes).map(|process| variables(process, job)).collect()
}

fn set(variables: &[(&str, u32)]) -> Variables {
    let pair = |(name, value): &(&str, u32)| ((*name).to_owned(), value.to_string());
    variables.iter().map(pair).collect()
}

/// The same training under a launcher that sets `each`, which `found` says in the first line, and alone.
#[track_caller]
fn trains_the_same(found: &str, each: Vec<Variables>) {
    let place = Place::new();
    let stages = ["--set", "pipeline.stages=2", "--weights-hash"];
    let start = |variables: Variables| {
        let mut command =
            place.train(&[&stages[..], &["--run-dir", "several", "--set", "launch.fabric=sockets"]].concat());
        Started::new({
            command.envs(variables);
            command
        })
    };
    let several = all_done(end_all(each.into_iter().map(start).collect()));
    let first = several.stdout.lines().next().expect("it speaks");
    assert!(first.starts_with(&format!("processes 2, {found}; process 0 at 127.0.0.1:2")), "{first}");
    let alone = place.alone(&stages).done();
    assert!(!alone.stdout.contains("processes"), "{}", alone.stdout);
    assert_eq!(several.hash(), alone.hash());
}

#[test]
fn a_run_under_slurm_needs_no_settings() {
    let variables = |process, job| {
        let mut all = set(&[
            ("SLURM_JOB_ID", job),
            ("SLURM_STEP_ID", 0),
            ("SLURM_PROCID", process),
            ("SLURM_STEP_NUM_TASKS", 2),
            ("SLURM_STEP_NUM_NODES", 1),
        ]);
        all.push(("SLURM_STEP_NODELIST".to_owned(), "node[01]".to_owned()));
        all
    };
    let each = of_free_job(2, variables);
    let step = format!("{}.{}", each[0][0].1, each[0][1].1);
    trains_the_same(&format!("as Slurm says (step {step})"), each);
}

#[test]
fn a_run_under_open_mpi_needs_no_settings() {
    let variables = |process, job| {
        set(&[
            ("PMIX_NAMESPACE", job),
            ("OMPI_COMM_WORLD_RANK", process),
            ("OMPI_COMM_WORLD_SIZE", 2),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", 2),
        ])
    };
    trains_the_same("as mpirun says (Open MPI)", of_free_job(2, variables));
}

#[test]
fn what_contradicts_itself_does_not_train() {
    let place = Place::new();
    let mut command = place.train(&[]);
    command.envs(set(&[("RANK", 1), ("OMPI_COMM_WORLD_RANK", 2), ("OMPI_COMM_WORLD_SIZE", 4)]));
    let said = Started::new(command).end().failed(2);
    assert_eq!(
        said,
        "error: RANK=1, but OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=4: the launchers of this process \
         contradict each other; start it with one of them, or unset the variables of the other\n"
    );
}

#[test]
fn a_command_of_one_process_names_the_launcher_that_started_several() {
    let mut command = Command::new(cargo_bin("pipewright"));
    command.args(["tune", "my.toml"]).envs(set(&[("PMI_RANK", 1), ("PMI_SIZE", 2)]));
    let said = Started::new(command).end().failed(2);
    assert_eq!(
        said,
        "process 1: error: `tune` runs in one process, but PMI_SIZE is 2: unset it, or start one process \
         (only `train` and `profile` run in several)\n"
    );
}

/// Process 0 listens at an address of its own, so it is alone on its host. The others are together on theirs.
#[cfg(target_os = "linux")]
#[test]
fn hosts_may_have_different_numbers_of_processes() {
    let place = Place::new();
    let port = worlds::free_address().rsplit_once(':').expect("a port").1.to_owned();
    let address = format!("127.0.0.2:{port}");
    let stages = ["--set", "pipeline.stages=3"];
    let hash = [&stages[..], &["--weights-hash"]].concat();
    let member = |rank, args: &[&str]| Started::new(place.member(rank, 3, &address, args));
    let short = (0..3).map(|rank| member(rank, &[&hash[..], &["--run-dir", "short"]].concat()));
    let several = all_done(end_all(short.collect()));
    assert_eq!(several.hash(), place.alone(&[&hash[..], &["--run-dir", "alone"]].concat()).done().hash());

    let long: Vec<_> = (0..3).map(|rank| member(rank, &[&stages[..], &LONG].concat())).collect();
    place.await_steps();
    let cores: Vec<_> = long.iter().map(|process| pinned(process.child.id())).collect();
    // One thread by itself is not pinned. With fewer cores than threads, none is.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2) {
        assert_eq!([0, 1, 2].map(|process: usize| cores[process].len()), [0, 1, 1], "{cores:?}");
        assert!(cores[1].is_disjoint(&cores[2]), "{cores:?}");
    }
}

/// The cores to which single threads of a process are pinned.
#[cfg(target_os = "linux")]
fn pinned(process: u32) -> BTreeSet<u32> {
    let mut cores = BTreeSet::new();
    for thread in fs::read_dir(format!("/proc/{process}/task")).expect("it runs") {
        // A thread may end meanwhile.
        let status = fs::read_to_string(thread.expect("a thread").path().join("status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cores.extend(allowed.and_then(|list| list.trim().parse::<u32>().ok()));
    }
    cores
}
