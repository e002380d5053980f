//! A schedule as a picture in text.

use crate::id::Rank;
use crate::plan::{Costs, StageCost};
use crate::schedule::{Action, LinkKind, Pass, Schedule, Timed};

impl Schedule {
    /// A timetable for people: a line for each rank and a column for each pass. All passes are drawn with the
    /// same time, and transfers with none.
    ///
    /// ```text
    /// rank 0 | F0 F1 .. .. B0 .. B1
    /// rank 1 | .. F0 F1 B0 .. B1
    /// ```
    ///
    /// Where a rank has several stages, the stage is in front, as in `4F0`. Where some backwards are split, a
    /// whole one takes two columns, `B0 --`. A plus joins the two passes of a pair, `0F7+7B3`.
    pub fn timetable(&self) -> String {
        self.timetable_within(usize::MAX).expect("no line is longer than this")
    }

    /// The same, or `None` when a line would be longer than this many characters.
    pub fn timetable_within(&self, longest: usize) -> Option<String> {
        let split = (0..self.ranks())
            .any(|rank| self.passes(Rank(rank)).any(|(pass, _)| pass == Pass::BackwardWeight));
        let half = if split { 1.0 } else { 0.5 };
        let pass = StageCost { backward_input: half, backward_weight: half, ..StageCost::default() };
        let alike =
            Costs::each(vec![pass; self.stages() as usize], 0.0).expect("its costs are numbers from 0 on");
        let rows = self.timeline(&alike, LinkKind::Buffered).expect("checked: holds on buffered links").ranks;
        let texts = |row: &Vec<Timed>| row.iter().map(|timed| self.short(timed)).collect();
        let texts: Vec<Vec<_>> = rows.iter().map(texts).collect();
        let width = texts.iter().flatten().map(String::len).max().unwrap_or(0);
        let columns = rows.iter().flatten().map(|timed| timed.end as usize).max();
        if columns.is_some_and(|columns| columns > longest) {
            return None;
        }
        let label = (self.ranks() - 1).to_string().len();
        let mut picture = String::new();
        for (rank, (row, texts)) in rows.iter().zip(&texts).enumerate() {
            picture += &format!("rank {rank:label$} |");
            picture += self.line(row, texts, width).trim_end();
            picture.push('\n');
        }
        picture.lines().all(|line| line.len() <= longest).then_some(picture)
    }

    /// A pass as text, without its stage where the rank has only one.
    fn short(&self, timed: &Timed) -> String {
        let full = Action::Compute(timed.pass, timed.cell).to_string();
        if self.stages() > self.ranks() {
            return full;
        }
        full.trim_start_matches(|c: char| c.is_ascii_digit()).to_string()
    }

    /// A rank's columns, each with a sign in front.
    fn line(&self, row: &[Timed], texts: &[String], width: usize) -> String {
        let mut line = String::new();
        let (mut column, mut sign) = (0, ' ');
        for (timed, text) in row.iter().zip(texts) {
            let (start, end) = (timed.start as usize, timed.end as usize);
            for _ in column..start {
                line += &format!("{sign}{:.<width$}", "");
                sign = ' ';
            }
            line += &format!("{sign}{text:width$}");
            line += &format!(" {:-<width$}", "").repeat(end - start - 1);
            let paired = timed.pass == Pass::Forward && self.is_paired(timed.cell);
            (column, sign) = (end, if paired { '+' } else { ' ' });
        }
        line
    }
}
