//! Schedules as CSV: a row a rank, entries separated by commas, an empty one where the rank is idle.

use crate::Result;
use crate::checksum::Checksum;
use crate::error::ScheduleError;
use crate::id::{MicroBatch, Rank};
use crate::schedule::action::split;
use crate::schedule::pairs;
use crate::schedule::set::Expected;
use crate::schedule::{Action, Cell, LinkKind, Pass, Placement, PlacementSpec, Schedule};

/// Words of other systems that a schedule here does not have: sharding of parameters, and waits. A step waits
/// for its stage's reduction by itself, and a sender for its buffers.
const LEFT_OUT: [&str; 5] = ["UNSHARD", "RESHARD", "WAIT_REDUCE_GRAD", "WAIT_SEND_F", "WAIT_SEND_B"];

/// A schedule read from CSV, and what the text held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromCsv {
    /// The schedule.
    pub schedule: Schedule,
    /// Whether the text had transfers of its own.
    pub lowered: bool,
    /// For each word that was left out, such as `UNSHARD`, how many entries had it.
    pub left_out: Vec<(&'static str, usize)>,
}

impl Schedule {
    /// Reads and checks a schedule in PyTorch's CSV form. The text may have transfers or only passes, and
    /// reductions or none.
    ///
    /// A text with passes only is lowered and holds on all links. A text with transfers is checked as it is,
    /// on `links`. Without a `placement`, each stage is on the rank that has its actions.
    ///
    /// # Errors
    /// [`ScheduleError::Entry`] for an entry that is no action, with its rank and its place in the row. Other
    /// errors are as for [`Schedule::from_actions`]. Their places count actions: an empty entry counts as
    /// none, and a pair as two. All count from 0.
    pub fn from_csv(
        name: &str,
        text: &str,
        placement: Option<&PlacementSpec>,
        links: LinkKind,
    ) -> Result<FromCsv> {
        let Rows { rows, left_out, paired } = Rows::read(text)?;
        let placement = match placement {
            Some(spec) => spec.place(rows.len() as u32, stages(&rows))?,
            None => Placement::of(&rows)?,
        };
        let micro_batches = micro_batches(&rows, placement.stages())?;
        let lowered =
            rows.iter().flatten().any(|action| !matches!(action, Action::Compute(..) | Action::Reduce(_)));
        let schedule = if lowered {
            Self::from_actions(name, placement, micro_batches, rows, links)?
        } else {
            Self::lowered(name, placement, micro_batches, rows, Expected::Passes)?
        };
        Ok(FromCsv { schedule: schedule.with_pairs(paired)?, lowered, left_out })
    }

    /// The passes in PyTorch's CSV form: a row a rank. A pair is written `(0F7;7B3)OVERLAP_F_B`.
    pub fn csv(&self) -> String {
        self.write(|action| matches!(action, Action::Compute(..)))
    }

    /// The passes, transfers and reductions in PyTorch's CSV form: a row a rank. PyTorch has no word for
    /// steps, so they are left out; reading adds them again. A pair with a transfer between its two passes is
    /// written as three actions: the text says what the engine does, and the mark of the pair is lost.
    pub fn csv_with_comms(&self) -> String {
        self.write(|action| !matches!(action, Action::Step(_)))
    }

    /// The checksum of a rank's whole list: passes, transfers, reductions and steps, in their order.
    pub fn checksum(&self, rank: Rank) -> Checksum {
        let texts: Vec<String> = self.actions(rank).iter().map(ToString::to_string).collect();
        Checksum::of(texts.join(",").as_bytes())
    }

    fn write(&self, keep: impl Fn(&Action) -> bool) -> String {
        let mut text = String::new();
        for rank in (0..self.ranks()).map(Rank) {
            let mut entries = Vec::new();
            let mut kept = self.actions(rank).iter().filter(|action| keep(action)).peekable();
            while let Some(action) = kept.next() {
                let backward = match action {
                    Action::Compute(Pass::Forward, cell) if self.is_paired(*cell) => {
                        kept.next_if(|next| matches!(next, Action::Compute(Pass::Backward, _)))
                    }
                    _ => None,
                };
                entries.push(match backward {
                    Some(backward) => pairs::write(*action, *backward),
                    None => action.to_string(),
                });
            }
            text += &entries.join(",");
            text.push('\n');
        }
        text
    }
}

/// The content of the rows of a text.
struct Rows {
    rows: Vec<Vec<Action>>,
    left_out: Vec<(&'static str, usize)>,
    /// The forwards of pairs.
    paired: Vec<Cell>,
}

impl Rows {
    fn read(text: &str) -> std::result::Result<Self, ScheduleError> {
        let mut all = Self {
            rows: Vec::new(),
            left_out: LEFT_OUT.iter().map(|&word| (word, 0)).collect(),
            paired: Vec::new(),
        };
        for (rank, line) in (0..).map(Rank).zip(text.trim_start_matches('\u{feff}').trim_end().lines()) {
            let mut actions = Vec::new();
            for (entry, text) in line.split(',').map(unquoted).enumerate() {
                all.read_entry(text, &mut actions).map_err(|error| ScheduleError::Entry {
                    rank,
                    entry,
                    source: Box::new(error),
                })?;
            }
            all.rows.push(actions);
        }
        all.left_out.retain(|&(_, count)| count > 0);
        if all.rows.iter().all(Vec::is_empty) {
            return Err(ScheduleError::new(
                "there is no action in it; a schedule has a row a rank, such as 0F0,0B0",
            ));
        }
        Ok(all)
    }

    fn read_entry(
        &mut self,
        entry: &str,
        actions: &mut Vec<Action>,
    ) -> std::result::Result<(), ScheduleError> {
        let (stage, word, _) = split(entry);
        let left_out = self.left_out.iter_mut().find(|(known, _)| *known == word);
        if let Some((_, count)) = left_out.filter(|_| !stage.is_empty()) {
            *count += 1;
        } else if let Some(pair) = pairs::read(entry)? {
            self.paired.extend(pair[0].cell());
            actions.extend(pair);
        } else if !entry.is_empty() {
            actions.push(entry.parse()?);
        }
        Ok(())
    }
}

/// A cell of CSV without the quotes that spreadsheets and Python's `csv` may put around it. No entry has a
/// comma or a quote in it, so a cell ends at each comma.
fn unquoted(cell: &str) -> &str {
    let cell = cell.trim();
    let inside = cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.map_or(cell, str::trim)
}

fn stages(rows: &[Vec<Action>]) -> u32 {
    rows.iter().flatten().map(|action| action.stage().0.saturating_add(1)).max().unwrap_or(0)
}

/// How many micro-batches the lists have. A number that fewer than half of the stages' forwards and backwards
/// have is a typing mistake, not a micro-batch.
fn micro_batches(rows: &[Vec<Action>], stages: u32) -> std::result::Result<u32, ScheduleError> {
    let passes = || rows.iter().flatten().filter_map(|action| action.compute());
    let halves = || passes().filter(|(pass, _)| *pass != Pass::BackwardWeight);
    let mut found = vec![0; halves().count()];
    for (_, cell) in halves() {
        if let Some(found) = found.get_mut(cell.micro_batch.index()) {
            *found += 1;
        }
    }
    let most = found.iter().rposition(|&found| found >= stages).map_or(0, |last| last + 1);
    let wanted = 2 * u64::from(stages);
    match found[..most].iter().position(|&found| found < stages) {
        Some(gap) => Err(ScheduleError::new(format!(
            "micro-batch {gap} has only {} of its {wanted} forwards and backwards, though there is a \
             micro-batch {}; number them from 0",
            found[gap],
            most - 1
        ))),
        None if most == 0 => {
            let first = passes().map(|(_, cell)| cell.micro_batch).min().unwrap_or(MicroBatch(0));
            Err(ScheduleError::new(format!(
                "the first micro-batch is {first}, and no micro-batch has half of its {wanted} forwards and \
                 backwards; number the micro-batches from 0, each with all its stages"
            )))
        }
        None => Ok(most as u32),
    }
}
