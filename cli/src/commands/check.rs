//! `pipewright check`: checks a schedule from a file.

use std::path::PathBuf;

use crate::{Error, Result};
use pipewright::schedule::{FromCsv, LinkKind, PlacementSpec, Schedule};

/// Check a schedule from a file: accept it, or name the entry that is wrong and why.
///
/// The file is CSV in PyTorch's form, for example written by plan --format csv. Each row is a rank, and each
/// entry is an action: 2F0 is the forward of stage 2 on micro-batch 0. F is a forward and B a whole backward;
/// I and W are a backward's two halves (input and weights). SEND_F, RECV_F, SEND_B and RECV_B are transfers.
/// REDUCE_GRAD sums a stage's gradients over its replicas. In an empty entry the rank is idle.
///
/// If the file has no transfers, they are added, and the schedule then works on all links. If it has
/// transfers, they are checked as they are. Exit status: 0 accepted, 2 refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format csv > mine.csv
  pipewright check mine.csv

  pipewright plan --ranks 4 --micro-batches 8 --schedule zb-v --format csv --with-comms > vee.csv
  pipewright check vee.csv --placement vee --links ordered")]
pub(super) struct Args {
    /// The schedule, a CSV file
    file: PathBuf,
    /// The rank of each stage: looped (0,1,..,0,1,..), vee (0,1,..,1,0) or a list such as 0,1,1,0 [default:
    /// each stage is on the rank whose row has its actions]
    #[arg(long)]
    placement: Option<PlacementSpec>,
    /// For a file with transfers: what the links promise, buffered (transfers may overtake each other) or
    /// ordered (one queue a rank, as in NCCL)
    #[arg(long, default_value_t = LinkKind::Buffered)]
    links: LinkKind,
}

pub(super) fn run(args: Args) -> Result<()> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Error::not_begun(Error::io("read", &args.file)(error)))?;
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
    match Schedule::from_csv(&name, &text, args.placement.as_ref(), args.links) {
        Ok(read) => super::print(&format!("{file}: accepted\n{}", answer(&read, args.links))),
        Err(error) => Err(Error::refused(format!("{file}: {error}"))),
    }
}

fn answer(read: &FromCsv, links: LinkKind) -> String {
    let FromCsv { schedule, lowered, left_out } = read;
    let mut text = format!(
        "ranks {}, stages {} (placement {}), micro-batches {}\n",
        schedule.ranks(),
        schedule.stages(),
        schedule.placement(),
        schedule.micro_batches()
    );
    text += &if *lowered {
        format!("lowered: with its own transfers, checked as they are on {links} links\n")
    } else {
        "compute-only: transfers were added between its passes\n".into()
    };
    if !left_out.is_empty() {
        let words: Vec<_> = left_out.iter().map(|(word, count)| format!("{count} {word}")).collect();
        text += &format!("ignored, because a schedule here does not have them: {}\n", words.join(", "));
    }
    text += &match schedule.holds_on(LinkKind::Ordered) {
        Ok(()) => "ordered links: safe\n".into(),
        Err(error) => format!("ordered links: not safe: {error}\n"),
    };
    text
}
