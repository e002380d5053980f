//! The port with the numbers of a run.

use super::*;

/// What a port answers.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{request}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_numbers_of_the_run_are_read_at_one_path_of_this_machine() {
    let place = Place::new();
    let address = free_address();
    let listen = format!("metrics.listen={address}");
    let running = place.start(&["--set", &listen, "--set", "train.validate_every=1"]);
    let answer = ask(&address, "GET /metrics HTTP/1.1\r\nHost: LOCALHOST:9400");
    let refused = [
        ask(&address, "GET /metrics HTTP/1.1\r\nHost: elsewhere.example"),
        ask(&address, "GET / HTTP/1.1\r\nHost: localhost"),
        ask(&address, "POST /metrics HTTP/1.1\r\nHost: localhost"),
    ];
    running.kill();
    for name in [
        "pipewright_loss ",
        "pipewright_targets_per_second ",
        "pipewright_step_seconds_count ",
        "pipewright_rank_busy_seconds{rank=\"1\"} ",
        "pipewright_metric{name=\"accuracy\"} ",
        "pipewright_metric{name=\"perplexity\"} ",
        "pipewright_validation_loss ",
        "pipewright_validation_metric{name=\"accuracy\"} ",
    ] {
        assert!(answer.contains(name), "{name} in {answer}");
    }
    for (answer, status) in refused.iter().zip(["421", "404", "405"]) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn the_numbers_of_shards_have_a_label_each() {
    let place = Place::new();
    let address = free_address();
    let listen = format!("metrics.listen={address}");
    let sets = [&listen, "pipeline.stages=2", "pipeline.shards=2", "pipeline.shard_groups=2"];
    let running = place.start(&sets.map(|set| ["--set", set]).concat());
    let answer = ask(&address, "GET /metrics HTTP/1.1\r\nHost: localhost");
    running.kill();
    has(
        &answer,
        &[
            "pipewright_rank_busy_seconds{rank=\"0\",shard=\"1\"} ",
            "pipewright_rank_busy_seconds{rank=\"1\",shard=\"0\"} ",
            "pipewright_rank_shard_waiting_seconds{rank=\"1\",shard=\"1\"} ",
        ],
    );
}

#[test]
fn strangers_at_the_port_leave_a_run_with_few_files_alive() {
    let place = Place::new();
    let address = free_address();
    let listen = format!("metrics.listen={address}");
    let limited = |command: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(command.get_program());
        shell.args(command.get_args()).current_dir(place.0.path());
        shell
    };
    let running = place.start_as(&["--set", &listen, "--set", "checkpoint.every=20"], limited);
    for half in ["", "GET /metrics HTTP/1.1\r\n", "GET", "GET /metrics HTTP/1.1\r\nHost: local"] {
        let strangers: Vec<TcpStream> = (0..500)
            .map(|_| {
                let mut stream = TcpStream::connect(&address).unwrap();
                // It may be closed already.
                let _ = stream.write_all(half.as_bytes());
                stream
            })
            .collect();
        has(&ask(&address, "GET /metrics HTTP/1.1\r\nHost: localhost"), &["pipewright_loss "]);
        drop(strangers);
    }
    running.signal("-INT");
    assert_eq!(running.end().0.status.code(), Some(130), "it has saved");
    assert!(!place.checkpoints("runs/small").is_empty());
}
