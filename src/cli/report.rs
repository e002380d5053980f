//! `pipewright report`: a run as a page.

use std::path::{Path, PathBuf};

use super::out::{Out, Replace};
use crate::Result;
use crate::report::{Record, page};

/// Show a run as a page: losses, speed, bubble, memory, the traced step, settings.
///
/// The page is one HTML file, which needs no network. It shows a run that still trains up to its last whole
/// line; write it again for the steps since then.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright report runs/gpt-text
  pipewright report runs/gpt-text runs/four --out both.html")]
pub(super) struct Args {
    /// The folder of a run
    run: PathBuf,
    /// The folder of another run, to compare both
    other: Option<PathBuf>,
    /// Where the page goes, instead of report.html in the folder of the run
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let runs = read([Some(&args.run), args.other.as_ref()])?;
    let path = args.out.clone().unwrap_or_else(|| runs[0].dir().report());
    let out = Out::check(&path, Replace::Page)?;
    for notice in runs.iter().flat_map(Record::notices) {
        eprintln!("warning: {notice}");
    }
    out.write(&page(&runs, false))?;
    super::print(&format!("{}\n", path.display()))
}

fn read(paths: [Option<&PathBuf>; 2]) -> Result<Vec<Record>> {
    paths
        .into_iter()
        .flatten()
        .map(|path| Record::read(Path::new(path)))
        .collect()
}
