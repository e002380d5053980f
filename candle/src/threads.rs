//! candle's own threads.

use std::env;
use std::process::Command;

/// The variable by which candle says how many threads its operations on single numbers have.
const VARIABLE: &str = "CANDLE_NUM_THREADS";

/// Leaves all of candle's operations to the threads of the ranks. Call it first in `main`.
///
/// candle has a pool of threads for operations on single numbers, one for the whole process, in which ranks
/// would wait for each other. Only the environment says how large it is, so this starts the program again, in
/// the same process, with `CANDLE_NUM_THREADS=1`. If the variable is set already, it does nothing. Where a
/// process cannot become another program (Windows), it prints a warning.
pub fn one_thread_a_rank() {
    if env::var_os(VARIABLE).is_some() {
        return;
    }
    let again = env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(VARIABLE, "1");
        start(&mut command)
    });
    if let Err(error) = again {
        eprintln!("warning: start this program with {VARIABLE}=1, or its ranks wait for each other: {error}");
    }
}

/// Returns only if it fails.
#[cfg(unix)]
fn start(command: &mut Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;

    if let Some(name) = env::args_os().next() {
        command.arg0(name);
    }
    Err(command.exec())
}

#[cfg(not(unix))]
fn start(_: &mut Command) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
