//! What each system does in its own way: files, folders, signals, programs, connections. Other code is the
//! same for all systems; `tests/layers` lists what is not.
//!
//! Every function is there on every system. Where a system lacks something, the function says so, by an error
//! or by `None`, or does what comes next to it. Only Linux is tested. For the others it is only checked that
//! the code compiles (`scripts/other_systems.sh`).

mod arrival;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
#[path = "not_linux.rs"]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
#[path = "windows.rs"]
mod unix;

pub(crate) use arrival::{Arrival, Signal};
pub(crate) use linux::{Map, end_when_silent, is_taken, read_ahead, silent_for};
pub(crate) use unix::{arrivals, can_open, is_at, kind_name, open_folder, questions, read_at, sync_folder};
pub use unix::{become_program, heed_file_limit, link, make_own_folder, mode, others_may_write};

/// Ends the process at once, without what it has left to do at its end.
pub(crate) use signal_hook::low_level::exit;
