//! A signal that has come.

/// A signal that asks a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT: Ctrl-C, or sent by a program.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal has gone.
    #[cfg_attr(windows, allow(dead_code, reason = "this system has no such signal"))]
    HangUp,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) signal: Signal,
    /// Whether a person has typed it at the terminal of the process, and no program has sent it.
    pub(crate) is_typed: bool,
}
