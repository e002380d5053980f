//! A program leaves candle's operations to the threads of its ranks.

use std::env;
use std::process::Command;

use pipewright_candle::one_thread_a_rank;

/// Set in the process that this test starts.
const STARTED: &str = "PIPEWRIGHT_TEST_STARTED";

#[test]
#[cfg(unix)]
fn a_program_starts_again_once_and_with_its_arguments() {
    let name = "a_program_starts_again_once_and_with_its_arguments";
    if env::var_os(STARTED).is_some() {
        let before = env::var("CANDLE_NUM_THREADS");
        one_thread_a_rank();
        let arguments: Vec<String> = env::args().skip(1).collect();
        println!("now {before:?} {arguments:?}");
        return;
    }
    let said = |threads: Option<&str>| {
        let mut again = Command::new(env::current_exe().expect("this test"));
        again.args([name, "--exact", "--nocapture"]).env(STARTED, "1");
        match threads {
            Some(threads) => again.env("CANDLE_NUM_THREADS", threads),
            None => again.env_remove("CANDLE_NUM_THREADS"),
        };
        let ended = again.output().expect("started");
        assert!(ended.status.success());
        String::from_utf8(ended.stdout).expect("text")
    };
    let arguments = format!("{:?}", [name, "--exact", "--nocapture"]);
    let told = said(None);
    assert!(told.contains(&format!("now Ok(\"1\") {arguments}")), "{told}");
    assert!(!told.contains("now Err"), "{told}");
    let told = said(Some("3"));
    assert!(told.contains(&format!("now Ok(\"3\") {arguments}")), "what is set stays: {told}");
}
