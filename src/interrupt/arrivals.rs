//! The signals that ask a process to end, as they come.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) signal: i32,
    /// Whether a person has typed it at the terminal of the process, and no program has sent it.
    pub(super) is_typed: bool,
}

/// The signals that come from now on, without those that the process was told to ignore when it was started.
///
/// # Errors
/// When the system refuses.
pub(super) fn arrivals() -> io::Result<impl Iterator<Item = Arrival>> {
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(heeded)?;
    let all = std::iter::from_fn(move || signals.forever().next());
    Ok(all.map(|info| Arrival { signal: info.si_signo, is_typed: is_typed(info.si_code) }))
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
