//! `pipewright check`: is this schedule right?

use std::path::PathBuf;

use crate::error::CommandError;
use crate::schedule::{FromCsv, Links, PlacementSpec, Schedule};
use crate::{Error, Result};

/// Check a schedule of your own, or another system's: accept it, or say which cell is wrong and why.
///
/// The file is CSV in PyTorch's form: a row a rank, cells such as 2F0 (stage, action, micro-batch); F is a
/// forward, B a backward, I and W its two halves; SEND_F, RECV_F, SEND_B and RECV_B are transfers; REDUCE_GRAD sums a
/// stage's gradients over its replicas; an empty cell is an idle rank. A file without transfers gets them and then holds on any links; one with transfers
/// is judged as it stands. Exit status 0 accepts, 2 refuses.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright check mine.csv
  pipewright check vee.csv --placement vee
  pipewright check lowered.csv --links ordered")]
pub(super) struct Args {
    /// The schedule
    file: PathBuf,
    /// The rank of each stage: looped (0,1,..,0,1,..), vee (0,1,..,1,0) or a list such as 0,1,1,0; left out,
    /// a stage lives where its cells stand
    #[arg(long)]
    placement: Option<PlacementSpec>,
    /// What the links promise, for a file with transfers: buffered (they may overtake each other) or ordered
    /// (one queue a rank, as NCCL)
    #[arg(long, default_value_t = Links::Buffered)]
    links: Links,
}

pub(super) fn run(args: Args) -> Result<()> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| CommandError::refused(Error::io("read", &args.file)(error)))?;
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
    match Schedule::from_csv(&name, &text, args.placement.as_ref(), args.links) {
        Ok(read) => super::print(&format!("{file}: accepted\n{}", answer(&read, args.links))),
        Err(error) => Err(CommandError::File {
            path: args.file.clone(),
            source: Box::new(error),
        }
        .into()),
    }
}

fn answer(read: &FromCsv, links: Links) -> String {
    let FromCsv {
        schedule,
        lowered,
        left_out,
    } = read;
    let mut text = format!(
        "ranks {}, stages {} (placement {}), micro-batches {}\n",
        schedule.ranks(),
        schedule.stages(),
        schedule.placement(),
        schedule.micro_batches()
    );
    text += &if *lowered {
        format!("lowered: with transfers of its own, judged as they stand on {links} links\n")
    } else {
        "compute-only: transfers were put between its passes\n".into()
    };
    if !left_out.is_empty() {
        let words: Vec<_> = left_out
            .iter()
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        text += &format!("left out, as no part of the pipeline: {}\n", words.join(", "));
    }
    text += &match schedule.holds_on(Links::Ordered) {
        Ok(()) => "ordered links: safe\n".into(),
        Err(error) => format!("ordered links: not safe: {error}\n"),
    };
    text
}
