//! Errors of a run's secret, and of what needs one.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A secret that cannot be used, is missing, or is not the run's.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// A secret that is too short or too long.
    #[error(
        "{from} has {bytes} bytes, and a secret has {} to {}: make one by `openssl rand -hex 32`, and \
         give it to all processes",
        allowed[0], allowed[1]
    )]
    Length {
        /// Where it comes from.
        from: SecretOf,
        /// Its bytes.
        bytes: usize,
        /// The fewest and the most bytes.
        allowed: [usize; 2],
    },
    /// The file with the secret cannot be read.
    #[error(
        "launch.token_file: cannot read `{}`: {source}; write a secret there by \
         `(umask 077; openssl rand -hex 32 > {})`, the same on all hosts",
        path.display(), path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// There is something else than a file.
    #[error("launch.token_file: `{}` is no file; give a file with the secret of the run", path.display())]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// Others can read the file.
    #[error(
        "launch.token_file: others can read `{}` (its mode is {mode:04o}), so it may be no secret any more: \
         make a new one by `openssl rand -hex 32`, after `chmod 600 {}`",
        path.display(), path.display()
    )]
    OthersCanRead {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Without a secret, processes of other hosts would be let in.
    #[error(
        "{address} can be reached from other hosts, and the run has no secret: make one by \
         `openssl rand -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that \
         launch.token_file names; without one, all processes have to be on one host, at an address such as \
         127.0.0.1:29500"
    )]
    Needed {
        /// The address of process 0.
        address: String,
    },
    /// Process 0 does not take this process for one of its run.
    #[error("process 0 at {address} does not let this process in: {}", refused(*has_secret))]
    NotLetIn {
        /// Where process 0 listens.
        address: String,
        /// Whether this process has a secret.
        has_secret: bool,
    },
    /// What listens where process 0 should does not belong to the run.
    #[error(
        "what listens at {address} cannot prove that it is process 0 of this run: another run or a stranger \
         has that port; give all processes another MASTER_PORT or launch.address"
    )]
    Impostor {
        /// Where it listens.
        address: String,
    },
    /// Encryption without a secret.
    #[error(
        "launch.tls needs a secret, by which the processes know each other: make one by \
         `openssl rand -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that \
         launch.token_file names"
    )]
    NeededForTls,
    /// Encryption that this build does not have.
    #[error(
        "launch.tls is true, but this program was built without TLS: build it with \
         `cargo build --release --features tls`"
    )]
    NoTls,
    /// Encryption of what MPI carries.
    #[error(
        "launch.tls is true, but MPI connects the processes, and encrypts nothing that it is told to: set \
         launch.fabric = \"sockets\", or leave launch.tls out"
    )]
    TlsByMpi,
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretOf {
    /// A program.
    Given,
    /// `PIPEWRIGHT_TOKEN`.
    Variable,
    /// The file that `launch.token_file` names.
    File(PathBuf),
}

impl fmt::Display for SecretOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("the secret"),
            Self::Variable => f.write_str("PIPEWRIGHT_TOKEN"),
            Self::File(path) => write!(f, "launch.token_file: `{}`", path.display()),
        }
    }
}

/// Why a proof was not taken, as far as the process can know that made it.
fn refused(has_secret: bool) -> &'static str {
    match has_secret {
        true => {
            "it has another secret, or none; give all processes the same one (PIPEWRIGHT_TOKEN or \
             launch.token_file)"
        }
        false => {
            "it runs another build of the program, or it has a secret and this process has none; start the \
             same file everywhere, and give all the same secret (PIPEWRIGHT_TOKEN or launch.token_file)"
        }
    }
}
