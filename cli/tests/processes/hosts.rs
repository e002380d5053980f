//! Runs on several hosts: network namespaces, which a script makes.

use super::skipped::skipped;
use super::*;

#[test]
fn four_hosts_with_slow_links_train_to_the_same_bits() {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("scripts/slow_links.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(cargo_bin("pipewright")).arg("--equal");
    if cfg!(feature = "mpi") {
        command.arg("--mpi");
    }
    match command.output() {
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{why}");
        }
        Err(error) => {
            skipped(&format!("four hosts with slow links: python3 does not start: {error}"));
        }
    }
}
