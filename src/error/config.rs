//! A config, or a value that was set in one, that cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};

use super::ValueProblem;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// The file's name.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Set,
    /// The `config.json` of the folder that `model.path` names.
    Pretrained(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Set => write!(f, "--set"),
            Self::Pretrained(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A config, or a value in it, that cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A kind of layers of one's own that configs cannot name.
    #[error("\"{0}\" has no dot: name layers of your own such as \"my.{0}\"")]
    OwnLayer(String),
    /// A file that is not TOML. A key that occurs twice in a section is such a mistake too.
    #[error("{origin}: {}{}{}", source.message(), shown(text), looks_like(*form))]
    Syntax {
        /// The line.
        origin: Origin,
        /// The text there.
        text: String,
        /// The form that the whole file seems to have instead.
        form: Option<&'static str>,
        /// What is wrong with it.
        source: Box<toml::de::Error>,
    },
    /// A folder where a file should be.
    #[error("`{}` is a folder, and a config is a file{}", .0.display(), go_on(.0))]
    Folder(PathBuf),
    /// A section that does not exist.
    #[error(
        "{origin}: unknown section [{section}]{} (sections: {})",
        nearest.map_or(String::new(), |name| format!(": did you mean [{name}]?")),
        known.join(", ")
    )]
    UnknownSection {
        /// Where it is.
        origin: Origin,
        /// The section.
        section: String,
        /// The section that was probably meant.
        nearest: Option<&'static str>,
        /// All sections.
        known: Vec<&'static str>,
    },
    /// A key that its section does not have.
    #[error("{origin}: unknown key {section}.{key}: {meant}")]
    UnknownKey {
        /// Where it is.
        origin: Origin,
        /// The section.
        section: String,
        /// The key.
        key: String,
        /// What was probably meant.
        meant: Box<MeantKey>,
    },
    /// A key outside of all sections.
    #[error("{origin}: `{key}` is in no section: {}", in_a_section(meant))]
    NoSection {
        /// Where it is.
        origin: Origin,
        /// The key.
        key: String,
        /// The keys that may be meant, each with its section.
        meant: Vec<String>,
    },
    /// An argument of `--set` without a key or a value.
    #[error("--set {0}: expected section.key=value")]
    NotASetting(String),
    /// An environment variable that has no effect but looks as if it should.
    #[error(
        "environment variable {name} sets nothing: two underscores stand between section and key, write \
         {meant}"
    )]
    OneUnderscore {
        /// The variable.
        name: String,
        /// The variable that was probably meant.
        meant: String,
    },
    /// A key for another kind of model, data, optimizer, learning rate or fabric.
    #[error(
        "{origin}: {key} is for {by} = \"{}\", and this config has \"{chosen}\": remove one of the two",
        is.join("\" or \"")
    )]
    OtherKind {
        /// Where the key was set.
        origin: Origin,
        /// The key.
        key: String,
        /// The key that sets the kind.
        by: String,
        /// The kinds that the key is for.
        is: &'static [&'static str],
        /// The kind of this config.
        chosen: String,
    },
    /// A key that the folder of `model.path` or `lora.path` decides.
    #[error(
        "{origin}: {key} comes from the folder of {by}, `{}`: remove it, or remove {by}",
        folder.display()
    )]
    OfFolder {
        /// Where the key was set.
        origin: Origin,
        /// The key.
        key: String,
        /// The key that names the folder.
        by: &'static str,
        /// The folder.
        folder: PathBuf,
    },
    /// A value that does not fit its key, or does not fit other values.
    #[error("{}{key}: {problem}", origin.as_ref().map_or(String::new(), |origin| format!("{origin}: ")))]
    Value {
        /// Where the key was set. `None`: it has its default.
        origin: Option<Origin>,
        /// The section and the key, such as `model.dim`.
        key: String,
        /// What is wrong with the value.
        problem: Box<ValueProblem>,
    },
    /// Settings that cannot be written as TOML.
    #[error("cannot write the config: {0}")]
    NotWritten(#[from] toml::ser::Error),
    /// The environment variable `PIPEWRIGHT_MEMORY` is no size.
    #[error("PIPEWRIGHT_MEMORY is `{text}`: {problem}")]
    NoMemory {
        /// Its value.
        text: String,
        /// What was expected.
        problem: String,
    },
    /// Environment variables do not say which process of a run this is.
    #[error(transparent)]
    Processes(#[from] ProcessesProblem),
}

impl ConfigError {
    /// Whether training would need more memory than a device has.
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Value { problem, .. }
            if matches!(**problem, ValueProblem::TooMuchMemory { .. }))
    }
}

/// Which key was probably meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeantKey {
    /// Another key of this section.
    #[error("did you mean `{0}`?")]
    Nearest(&'static str),
    /// This key of another section.
    #[error("it belongs to [{0}]")]
    InSection(&'static str),
    /// Another key of another section.
    #[error("did you mean {section}.{key}{}?", in_brackets(note))]
    Elsewhere {
        /// The section.
        section: &'static str,
        /// The key.
        key: &'static str,
        /// How it differs from what was written. Empty if it does not.
        note: &'static str,
    },
    /// What another program sets so, and this one does not. The text says what to do instead.
    #[error("{0}")]
    Instead(&'static str),
    /// No key is similar. These are the keys of the section.
    #[error("keys of [{section}]: {}", known.join(", "))]
    None {
        /// The section.
        section: String,
        /// Its keys.
        known: Vec<&'static str>,
    },
}

/// Environment variables that do not say which process of a run this is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessesProblem {
    /// Text instead of a number.
    #[error("{name} is `{text}`, which is no number: give a whole number, 0 or more")]
    NoNumber {
        /// The variable.
        name: &'static str,
        /// Its value.
        text: String,
    },
    /// Seconds after which every process would be gone, or none.
    #[error("{name} is {seconds}: give 1 to {most} seconds, after which a silent process counts as gone")]
    NoSilence {
        /// The variable.
        name: &'static str,
        /// The seconds.
        seconds: u32,
        /// The most seconds.
        most: u32,
    },
    /// Text instead of a port.
    #[error("{name} is `{text}`, which is no port: give a number from 1 to 65535")]
    NoPort {
        /// The variable.
        name: &'static str,
        /// Its value.
        text: String,
    },
    /// Text instead of a list of hosts.
    #[error("{name} is `{text}`, which is no list of hosts such as node[01-04]: set launch.address")]
    NoHosts {
        /// The variable.
        name: &'static str,
        /// Its value.
        text: String,
    },
    /// A run without processes.
    #[error("{name} is 0: a run has 1 process or more")]
    NoProcesses {
        /// The variable with the number of processes.
        name: &'static str,
    },
    /// A number outside of the run's processes.
    #[error(
        "{} is {process}, but {} is {processes}: processes have the numbers 0 to {}",
        names[0], names[1], processes - 1
    )]
    OutOfRange {
        /// The variables with the process's number and the number of processes.
        names: [&'static str; 2],
        /// The number.
        process: u32,
        /// How many processes there are.
        processes: u32,
    },
    /// A process without a number.
    #[error(
        "{} is {processes}, but {} is not set: give each process its own, 0 to {}, or unset {} to run in one \
         process",
        names[1], names[0], processes - 1, names[1]
    )]
    NotNumbered {
        /// The variables with the process's number and the number of processes.
        names: [&'static str; 2],
        /// How many processes there are.
        processes: u32,
    },
    /// A process with a number, in a run without a number of processes.
    #[error(
        "RANK is {process}, but WORLD_SIZE is not set: say how many processes there are, or unset RANK to \
         run in one process"
    )]
    NotCounted {
        /// The number.
        process: u32,
    },
    /// Two launchers say different things.
    #[error(
        "{}, but {}: the launchers of this process contradict each other; start it with one of them, or \
         unset the variables of the other",
        assigned(first),
        assigned(second)
    )]
    Contradiction {
        /// The variables of the one, with their values.
        first: Vec<(&'static str, u32)>,
        /// The variables of the other.
        second: Vec<(&'static str, u32)>,
    },
    /// Sockets are asked for, but nothing says where this process is in the run.
    #[error(
        "launch.fabric is \"sockets\", but nothing says which of several processes this is: set WORLD_SIZE \
         and RANK, or leave launch.fabric out"
    )]
    NoPlace,
    /// MPI is asked for, but no MPI launcher has started the process.
    #[error(
        "launch.fabric is \"mpi\", but no MPI launcher has started several processes: start them with \
         `mpirun -n 4 pipewright train ...` or `srun --mpi=pmix pipewright train ...`"
    )]
    NotByMpi,
    /// MPI is asked for, but this build does not have it.
    #[error(
        "launch.fabric is \"mpi\", but this program was built without MPI: install Open MPI or MPICH with \
         its headers, and libclang, and build it with `cargo build --release --features mpi`"
    )]
    NoMpi,
    /// A spare for a run that replaces no process.
    #[error(
        "a spare takes the place of a process that is lost, but with train.restarts = 0 a lost process ends \
         the run"
    )]
    NoSpare,
    /// No setting says where process 0 listens.
    #[error(
        "{name} is {processes}, but nobody says where process 0 listens: set MASTER_ADDR and MASTER_PORT, or \
         launch.address = \"host:port\""
    )]
    NoAddress {
        /// The variable with the number of processes.
        name: &'static str,
        /// How many processes there are.
        processes: u32,
    },
}

/// Variables with their values, such as `RANK=1 and WORLD_SIZE=2`.
fn assigned(variables: &[(&str, u32)]) -> String {
    let words = variables.iter().map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" and ")
}

/// The text of a mistake, if it is short.
fn shown(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text if text.contains('\n') => String::new(),
        text => format!(": `{text}`"),
    }
}

/// How to go on with a run, if the folder is one.
fn go_on(folder: &Path) -> String {
    match folder.join("run.json").is_file() {
        true => format!(
            "; its run goes on by `pipewright train --resume --run-dir {}`",
            folder.display()
        ),
        false => String::new(),
    }
}

fn looks_like(form: Option<&str>) -> String {
    form.map_or(String::new(), |form| {
        format!(
            "; a config is TOML, with lines such as `[section]` and `key = value`, and this looks like {form}"
        )
    })
}

fn in_brackets(note: &str) -> String {
    match note {
        "" => String::new(),
        note => format!(" ({note})"),
    }
}

fn in_a_section(meant: &[String]) -> String {
    match meant {
        [] => "every key belongs to a section, as in train.steps".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    }
}
