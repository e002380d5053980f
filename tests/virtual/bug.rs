//! What is told of a seed that shows a bug.

use super::*;

/// How many of the last lines of a timeline are printed.
const LINES: usize = 60;

/// A run that shows a bug.
pub(crate) struct Bug {
    /// The environment variable that runs it again.
    pub(crate) variable: &'static str,
    pub(crate) seed: u64,
    /// What was run.
    pub(crate) story: String,
    pub(crate) why: String,
    pub(crate) timeline: Timeline,
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, seed, story, why, timeline } = self;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{variable}-{seed}.txt"));
        let written = fs::write(&path, format!("{story}\n{why}\n{timeline}"));
        writeln!(f, "seed {seed}: {why}\n{story}")?;
        writeln!(f, "the faults, and the end of the timeline:\n{}", timeline.end(LINES))?;
        if written.is_ok() {
            writeln!(f, "the whole timeline: {}", path.display())?;
        }
        write!(f, "again: {variable}={seed} cargo test --test virtual")
    }
}
