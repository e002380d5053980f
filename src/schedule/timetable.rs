//! A schedule as a picture in text.

use crate::id::Rank;
use crate::schedule::{Action, Costs, Links, Pass, Schedule, StageCost};

impl Schedule {
    /// A line a rank, a column a pass, for people: as if every pass took the same time and transfers none.
    ///
    /// ```text
    /// rank 0 | F0 F1 .. .. B0 .. B1
    /// rank 1 | .. F0 F1 B0 .. B1
    /// ```
    ///
    /// Where a rank has several stages the stage stands in front, as in `4F0`.
    pub fn timetable(&self) -> String {
        let split = (0..self.ranks()).any(|rank| {
            self.passes(Rank(rank))
                .any(|(pass, _)| pass == Pass::BackwardWeight)
        });
        let half = if split { 1.0 } else { 0.5 };
        let pass = StageCost {
            backward_input: half,
            backward_weight: half,
            ..StageCost::default()
        };
        let alike =
            Costs::each(vec![pass; self.stages() as usize], 0.0).expect("its costs are numbers from 0 on");
        let rows = self
            .timeline(&alike, Links::Buffered)
            .expect("checked: holds on buffered links")
            .ranks;
        let several = self.stages() > self.ranks();
        let text = |pass, cell| {
            let full = Action::Compute(pass, cell).to_string();
            if several {
                full
            } else {
                full.trim_start_matches(|c: char| c.is_ascii_digit()).to_string()
            }
        };
        let texts =
            |row: &[_]| -> Vec<_> { row.iter().map(|t: &super::Timed| text(t.pass, t.cell)).collect() };
        let texts: Vec<_> = rows.iter().map(|row| texts(row)).collect();
        let width = texts.iter().flatten().map(String::len).max().unwrap_or(0);
        let label = (self.ranks() - 1).to_string().len();
        let mut picture = String::new();
        for (rank, (row, texts)) in rows.iter().zip(&texts).enumerate() {
            picture += &format!("rank {rank:label$} |");
            let mut column = 0;
            for (timed, text) in row.iter().zip(texts) {
                let start = timed.start as usize;
                picture += &format!(" {:.<width$}", "").repeat(start - column);
                picture += &format!(" {text:width$}");
                column = start + 1;
            }
            picture.truncate(picture.trim_end().len());
            picture.push('\n');
        }
        picture
    }
}
