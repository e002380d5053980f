//! `pipewright report`: a run as a page.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::out::{Out, Replace};
use crate::report::{MOST_RUNS, Record, page, serve};
use crate::{Error, Result};

/// Show runs as a page: losses, metrics, speed, bubble, memory, the traced step, settings.
///
/// The page is one HTML file, which needs no network. It shows a run that still trains up to its last whole
/// line; with --serve it follows the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright report runs/gpt-text
  pipewright report runs/gpt-text runs/four --out both.html
  pipewright report runs/* --out all.html
  pipewright report runs/gpt-text --serve")]
pub(super) struct Args {
    /// The folder of a run, or of up to seven runs to compare
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Where the page goes, instead of report.html in the folder of the run
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write no file, but show the page in a browser while the run goes: on this port of this machine
    /// (without one: 6080), or on an address and port that others reach too
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "6080",
        value_parser = address, conflicts_with = "out"
    )]
    serve: Option<SocketAddr>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    if args.runs.len() > MOST_RUNS {
        let (most, named) = (MOST_RUNS, args.runs.len());
        return Err(Error::refused(format!(
            "a page compares at most {most} runs, and {named} are named: more lines cannot be told apart"
        )));
    }
    let mut runs: Vec<Record> = args.runs.iter().map(|path| Record::read(path)).collect::<Result<_>>()?;
    Record::distinguish(&mut runs);
    for notice in runs.iter().flat_map(Record::notices) {
        eprintln!("warning: {notice}");
    }
    if let Some(address) = args.serve {
        return serve(runs, address, told);
    }
    let path = args.out.clone().unwrap_or_else(|| runs[0].dir().report());
    let out = Out::check(&path, Replace::Page)?;
    out.write(&page(&runs, false))?;
    super::print(&format!("{}\n", path.display()))
}

/// Says where the page is.
fn told(address: SocketAddr) -> Result<()> {
    if !address.ip().is_loopback() {
        eprintln!("warning: whoever reaches {address} can read the run: its numbers, settings and history");
    }
    super::print(&format!("http://{address} shows the run; Ctrl-C ends this\n"))
}

/// An address and a port. A port alone can be reached from this machine only.
pub(super) fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse()).map_err(|_| {
        "expected a port such as 6080, or an address and a port such as 10.0.0.1:6080".to_owned()
    })
}
