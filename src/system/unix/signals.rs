//! The signals of Unix.

use std::io;
use std::iter;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Signals, SignalsInfo};

use crate::system::{Arrival, Signal};

/// The signals to end that come from now on, without those that the process was told to ignore when it was
/// started.
///
/// # Errors
/// When the system refuses.
pub(crate) fn arrivals() -> io::Result<impl Iterator<Item = Arrival>> {
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(heeded)?;
    let all = iter::from_fn(move || signals.forever().next());
    Ok(all.map(|info| Arrival { signal: named(info.si_signo), is_typed: is_typed(info.si_code) }))
}

fn named(signal: i32) -> Signal {
    match signal {
        SIGINT => Signal::Interrupt,
        SIGTERM => Signal::Terminate,
        _ => Signal::HangUp,
    }
}

/// The questions that come from now on: SIGUSR1.
///
/// # Errors
/// When the system refuses.
pub(crate) fn questions() -> io::Result<impl Iterator<Item = ()>> {
    let mut signals = Signals::new([SIGUSR1])?;
    Ok(iter::from_fn(move || signals.forever().next().map(drop)))
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, where it would end the
/// process.
///
/// # Errors
/// When the system refuses.
pub fn heed_file_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// What is typed at a terminal comes from the kernel.
#[cfg(target_os = "linux")]
fn is_typed(code: i32) -> bool {
    code == libc::SI_KERNEL
}

#[cfg(not(target_os = "linux"))]
fn is_typed(_: i32) -> bool {
    use std::io::IsTerminal;
    io::stdin().is_terminal()
}

/// Whether the process ignores a signal.
#[cfg(target_os = "linux")]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    (mask.unwrap_or(0) >> (signal - 1)) & 1 == 1
}

#[cfg(not(target_os = "linux"))]
fn is_ignored(_: i32) -> bool {
    false
}
