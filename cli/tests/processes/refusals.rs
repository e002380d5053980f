//! What keeps a run of several processes from starting. All of them exit with status 2 and say what to do.

use super::*;

/// A secret.
const TOKEN: &str = "a secret of these tests";

/// Runs with these variables, and no other variables of a launcher.
fn with(place: &Place, variables: &[(&str, &str)], args: &[&str]) -> String {
    let mut command = place.train(args);
    command.envs(variables.iter().copied());
    Started::new(command).end().failed(2)
}

#[test]
fn numbers_of_processes_that_make_no_sense_are_refused() {
    let place = Place::new();
    let refused = [
        (
            &[("WORLD_SIZE", "2")][..],
            "error: WORLD_SIZE is 2, but RANK is not set: give each process its own, 0 to 1, or unset \
             WORLD_SIZE to run in one process\n",
        ),
        (
            &[("WORLD_SIZE", "2"), ("RANK", "2")],
            "error: RANK is 2, but WORLD_SIZE is 2: processes have the numbers 0 to 1\n",
        ),
        (
            &[("WORLD_SIZE", "1"), ("RANK", "1")],
            "error: RANK is 1, but WORLD_SIZE is 1: processes have the numbers 0 to 0\n",
        ),
        (
            &[("WORLD_SIZE", "two")],
            "error: WORLD_SIZE is `two`, which is no number: give a whole number, 0 or more\n",
        ),
        (&[("WORLD_SIZE", "0")], "error: WORLD_SIZE is 0: a run has 1 process or more\n"),
        (
            &[("WORLD_SIZE", "2"), ("RANK", "1")],
            "process 1: error: WORLD_SIZE is 2, but nobody says where process 0 listens: set MASTER_ADDR and \
             MASTER_PORT, or launch.address = \"host:port\"\n",
        ),
    ];
    for (variables, said) in refused {
        assert_eq!(with(&place, variables, &[]), said);
    }
}

#[test]
fn processes_with_other_keys_of_checkpoints_are_refused() {
    let (place, address) = (Place::new(), worlds::free_address());
    let [first, second] = ["7f", "80"].map(|pair| pair.repeat(32));
    for other in [Some(second), None] {
        let started = [Some(&first), other.as_ref()].into_iter().enumerate().map(|(rank, key)| {
            let mut command = place.member(rank as u32, 2, &address, &[]);
            command.envs(key.map(|key| ("PIPEWRIGHT_KEY", key)));
            Started::new(command)
        });
        for ended in end_all(started.collect()) {
            let said = ended.failed(2);
            has(&said, &["process 1 differs from process 0 in the key of checkpoints (checkpoint.key_file"]);
            assert!(!said.contains("7f7f") && !said.contains("8080"), "no key is shown: {said}");
        }
    }
}

#[test]
fn processes_that_cannot_share_the_ranks_are_refused() {
    let place = Place::new();
    for process in place.several(2, &["--set", "pipeline.stages=3"]) {
        has(
            &process.failed(2),
            &["error: 2 processes cannot share 3 ranks evenly: start 1 or 3 of them, or change the ranks \
                 (replicas x stages / chunks)"],
        );
    }
}

#[test]
fn an_address_without_a_port_is_refused() {
    let said = Place::new().alone(&["--set", "launch.address=a:1, localhost"]).failed(2);
    assert_eq!(
        said,
        "error: --set: launch.address: \"localhost\" is not a host and port: \
         write \"host:port\", such as \"127.0.0.1:29500\"\n"
    );
}

#[test]
fn fewer_processes_without_restarts_are_refused() {
    let said = Place::new().alone(&["--set", "launch.fewest=1"]).failed(2);
    assert_eq!(
        said,
        "error: --set: launch.fewest: without train.restarts a lost process ends the run: set train.restarts \
         to how often that may happen\n"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = Started::new(place.member(0, 2, &address, &[])).end().failed(2);
    let expected =
        format!("process 0: error: cannot listen at {address}: the port is in use; end the run that has it");
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn an_address_of_another_machine_is_named() {
    let place = Place::new();
    let mut command = place.member(0, 2, "192.0.2.1:29500", &[]);
    command.env("PIPEWRIGHT_TOKEN", TOKEN);
    let said = Started::new(command).end().failed(2);
    has(&said, &["cannot listen at 192.0.2.1:29500: this machine has no such address"]);
}

#[test]
fn a_process_that_never_comes_is_named_to_all() {
    let place = Place::new();
    let address = worlds::free_address();
    let member = |rank, deadline| {
        let args = ["--set", "pipeline.stages=4", "--set", deadline];
        Started::new(place.member(rank, 4, &address, &args))
    };
    // Long enough for the others to join, even on a busy machine.
    for process in end_all([0, 1, 3].map(|rank| member(rank, "launch.deadline=8")).into()) {
        let said = process.failed(2);
        let expected = format!(
            "error: process 2 of 4 did not come to {address} within 8 s: start it, or give more time"
        );
        has(&said, &[&expected]);
    }
    let said = member(1, "launch.deadline=1").end().failed(2);
    has(&said, &[&format!("error: cannot reach process 0 at {address} within 1 s")]);
}

/// The messages of two processes whose arguments differ.
#[track_caller]
fn differ(first: &[&str], second: &[&str]) -> [String; 2] {
    let place = Place::new();
    let address = worlds::free_address();
    let first = Started::new(place.member(0, 2, &address, first));
    let second = Started::new(place.member(1, 2, &address, second));
    [first, second].map(|process| process.end().failed(2))
}

#[test]
fn mixed_configs_are_refused_and_told_apart() {
    let said = differ(&[], &["--set", "model.dim=32"]);
    let expected = "error: process 1 was started with another config: it has `[model] dim = 32`, process 0 \
        `[model] dim = 16`; start all with the same config and options\n";
    assert_eq!(said, [0, 1].map(|process| format!("process {process}: {expected}")));
    let said = differ(&["--steps", "3"], &[]);
    let expected = "it has `[options] --steps no`, process 0 `[options] --steps 3`";
    assert!(said.iter().all(|said| said.contains(expected)), "{said:?}");
}

#[test]
fn mixed_numbers_of_processes_are_refused() {
    let place = Place::new();
    let address = worlds::free_address();
    let stages = ["--set", "pipeline.stages=6"];
    let first = Started::new(place.member(0, 2, &address, &stages));
    let second = Started::new(place.member(1, 3, &address, &stages));
    for process in [first, second] {
        let said = process.end().failed(2);
        has(&said, &["process 1 was started with WORLD_SIZE 3, process 0 with 2: give all the same"]);
    }
}

#[test]
fn one_number_for_two_processes_is_refused() {
    let place = Place::new();
    let address = worlds::free_address();
    let member = |rank| Started::new(place.member(rank, 3, &address, &["--set", "pipeline.stages=3"]));
    for process in end_all([0, 1, 1].map(member).into()) {
        has(&process.failed(2), &["two processes came with RANK 1: give each its own"]);
    }
}

#[test]
fn another_build_of_the_program_is_refused() {
    let place = Place::new();
    let other = place.path("other");
    let mut program = fs::read(cargo_bin("pipewright")).unwrap();
    program.push(0);
    fs::write(&other, program).unwrap();
    fs::set_permissions(&other, fs::metadata(cargo_bin("pipewright")).unwrap().permissions()).unwrap();
    let address = worlds::free_address();
    // It may be a stranger, so process 0 goes on waiting for process 1.
    let first = Started::new(place.member(0, 2, &address, &["--set", "launch.deadline=3"]));
    let mut command = Command::new(&other);
    command.current_dir(place.path(".")).args(["train", "my.toml"]);
    for (name, value) in place.member(1, 2, &address, &[]).get_envs() {
        command.env(name, value.unwrap());
    }
    let said = Started::new(command).end().failed(2);
    let expected = "does not let this process in: it runs another build of the program, or it has a secret";
    has(&said, &[expected]);
    let said = first.end().failed(2);
    has(&said, &["process 1 runs another build of the program: start the same file everywhere"]);
}

#[test]
fn a_port_of_another_protocol_is_told() {
    let place = Place::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Waits until the other side has gone.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let said = Started::new(place.member(1, 2, &address, &[])).end().failed(2);
    let expected = format!(
        "process 1: error: what listens at {address} is no process 0 of this program: it answers in another \
         protocol"
    );
    assert!(said.starts_with(&expected), "{said}");
    answering.join().unwrap();
}

#[test]
fn strangers_at_the_port_do_no_harm() {
    let place = Place::new();
    let address = worlds::free_address();
    let first = Started::new(place.member(0, 2, &address, &[]));
    let since = Instant::now();
    let mut silent = TcpStream::connect(&address);
    while silent.is_err() && since.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
        silent = TcpStream::connect(&address);
    }
    let mut curious = TcpStream::connect(&address).unwrap();
    curious.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(b"PIPEWRT4\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    let second = Started::new(place.member(1, 2, &address, &[]));
    all_done(end_all(vec![first, second]));
}

#[test]
fn what_is_wrong_in_one_process_is_told_in_all() {
    let place = Place::new();
    let elsewhere = Place::new();
    fs::remove_file(elsewhere.path("text.txt")).unwrap();
    let both = || {
        let address = worlds::free_address();
        let first = Started::new(place.member(0, 2, &address, &[]));
        let second = Started::new(elsewhere.member(1, 2, &address, &[]));
        [first, second].map(|process| process.end().failed(2))
    };
    let [first, second] = both();
    assert!(first.starts_with("process 0: error: process 1: "), "{first}");
    assert!(second.starts_with("process 1: error: ") && second.contains("text.txt"), "{second}");
    // The last but one byte. No step reads it, and the text is as long as before.
    let mut text = fs::read(place.path("text.txt")).unwrap();
    let late = text.len() - 2;
    text[late] ^= 1;
    fs::write(elsewhere.path("text.txt"), text).unwrap();
    let [first, second] = both();
    let expected = "process 1 differs from process 0 in the data: it has ";
    assert!(first.contains(expected) && second.contains(expected), "{first}{second}");
    fs::create_dir_all(place.path("runs/small/old")).unwrap();
    let [first, second] = both();
    assert!(first.starts_with("process 0: error: the folder runs/small is not empty"), "{first}");
    assert!(
        second.starts_with("process 1: error: process 0: the folder runs/small is not empty"),
        "{second}"
    );
}

#[test]
fn a_folder_that_processes_do_not_share_is_refused_before_the_first_step() {
    let [place, elsewhere] = [Place::new(), Place::new()];
    let address = worlds::free_address();
    let first = Started::new(place.member(0, 2, &address, &[]));
    let second = Started::new(elsewhere.member(1, 2, &address, &[]));
    let [first, second] = [first, second].map(|process| process.end().failed(2));
    let cause = "runs/small/run.json is not there, although process 0 has written it: the processes of a run \
        need one file system for its directory\n";
    assert_eq!(first, format!("process 0: error: process 1: {cause}"));
    assert_eq!(second, format!("process 1: error: {cause}"));
    assert!(!place.path("runs/small").exists());
}

#[test]
fn a_run_that_was_there_stays_when_its_folder_is_not_shared() {
    let [place, elsewhere] = [Place::new(), Place::new()];
    place.alone(&["--run-dir", "run"]).done();
    fs::create_dir_all(elsewhere.path("run")).unwrap();
    fs::write(elsewhere.path("run/other"), "").unwrap();
    let metrics = fs::read(place.path("run/metrics.jsonl")).unwrap();
    let address = worlds::free_address();
    let args = ["--resume", "--run-dir", "run"];
    let first = Started::new(place.member(0, 2, &address, &args));
    let second = Started::new(elsewhere.member(1, 2, &address, &args));
    for process in [first, second] {
        has(&process.end().failed(2), &["the processes of a run need one file system"]);
    }
    assert_eq!(fs::read(place.path("run/metrics.jsonl")).unwrap(), metrics);
    assert!(elsewhere.path("run/other").exists());
}

#[test]
fn copies_of_the_run_folder_on_each_machine_are_refused_before_the_first_step() {
    let [place, elsewhere] = [Place::new(), Place::new()];
    place.alone(&["--run-dir", "run"]).done();
    for folder in ["run", "run/checkpoints", "run/checkpoints/step-00000004"] {
        fs::create_dir_all(elsewhere.path(folder)).unwrap();
        for entry in fs::read_dir(place.path(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, elsewhere.path(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    let address = worlds::free_address();
    let args = ["--resume", "--run-dir", "run", "--set", "train.steps=8"];
    let first = Started::new(place.member(0, 2, &address, &args));
    let second = Started::new(elsewhere.member(1, 2, &address, &args));
    for process in [first, second] {
        has(
            &process.end().failed(2),
            &["run/lock is not the file that process 0 has just written: the processes of a run need one \
                 file system for its directory, and copies of it do not do"],
        );
    }
    assert_eq!(place.numbers("run").len(), 4);
}

#[test]
fn commands_of_one_process_are_refused() {
    let place = Place::new();
    for command in [&["sample", "runs/small"][..], &["tune", "my.toml"]] {
        let mut run = Command::new(cargo_bin("pipewright"));
        run.current_dir(place.path(".")).args(command).env("WORLD_SIZE", "2").env("RANK", "0");
        let said = Started::new(run).end().failed(2);
        let expected =
            format!("process 0: error: `{}` runs in one process, but WORLD_SIZE is 2: unset it", command[0]);
        assert!(said.starts_with(&expected), "{said}");
    }
}
