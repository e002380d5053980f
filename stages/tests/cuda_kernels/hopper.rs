//! The tests of attention again, with its forward by `wgmma`.

use std::env;
use std::process::Command;

use pipewright_stages::devices::probe;

const ATTENTION: &str = "PIPEWRIGHT_ATTENTION";

#[test]
fn bounds_of_attention_hold_where_its_forward_is_by_wgmma() {
    let is_hopper = || probe().gpus.is_ok_and(|gpus| gpus[0].capability == (9, 0));
    if env::var_os(ATTENTION).is_some() || emulator::start().is_none() || !is_hopper() {
        return;
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .arg("half::all::attention")
        .env(ATTENTION, "wgmma")
        .output()
        .expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
