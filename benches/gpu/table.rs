//! The table that the bench prints: what was predicted, what is measured, and how far they are apart.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use pipewright::Error;

use crate::sizes::Result;

/// What a number of the table counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Seconds, printed in microseconds.
    Time,
    /// Tokens a second.
    Tokens,
    /// Bytes a second.
    Bytes,
    /// A ratio of two times.
    Times,
    /// Units in the last place.
    LastPlaces,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Time => format!("{:.1} us", 1e6 * value),
            Self::Tokens => format!("{value:.0} tok/s"),
            Self::Bytes => format!("{:.1} GB/s", value / 1e9),
            Self::Times => format!("{value:.3}"),
            Self::LastPlaces => format!("{value:.1} ulp"),
        }
    }
}

/// What a row is about, and what was predicted of it, if anything was.
pub(crate) struct Guess<'a> {
    pub(crate) what: &'a str,
    pub(crate) unit: Unit,
    pub(crate) predicted: Option<f64>,
}

/// Where the rows go.
pub(crate) struct Table<'a> {
    out: Box<dyn Write + 'a>,
    /// Rows go there too.
    rows: Option<Box<dyn Write>>,
}

impl<'a> Table<'a> {
    /// Prints to `out`. Rows are also added to the end of the file, if one is given.
    pub(crate) fn new(out: impl Write + 'a, file: Option<&Path>) -> Result<Self> {
        let mut rows: Option<Box<dyn Write>> = None;
        if let Some(path) = file {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            rows = Some(Box::new(opened.map_err(Error::io("open", path))?));
        }
        Ok(Self { out: Box::new(out), rows })
    }

    /// A line that is no row.
    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "{line}")?;
        Ok(self.out.flush()?)
    }

    /// The heading of rows.
    pub(crate) fn heading(&mut self) -> Result<()> {
        self.say(&line("", ["predicted", "measured", "ratio"], "note"))
    }

    /// A measured row. The ratio is of what was measured to what was predicted.
    pub(crate) fn row(&mut self, guess: &Guess<'_>, measured: f64, note: &str) -> Result<()> {
        let ratio =
            guess.predicted.map_or("-".to_owned(), |predicted| format!("{:.3}", measured / predicted));
        self.add(guess, &guess.unit.text(measured), &ratio, note)
    }

    /// A row that cannot be measured here, and why not.
    pub(crate) fn unmeasured(&mut self, guess: &Guess<'_>, why: &str) -> Result<()> {
        self.add(guess, "-", "-", &format!("not measured: {why}"))
    }

    fn add(&mut self, guess: &Guess<'_>, measured: &str, ratio: &str, note: &str) -> Result<()> {
        let predicted = guess.predicted.map_or("-".to_owned(), |predicted| guess.unit.text(predicted));
        let line = line(guess.what, [&predicted, measured, ratio], note);
        if let Some(rows) = &mut self.rows {
            writeln!(rows, "{line}")?;
        }
        self.say(&line)
    }
}

/// Two spaces are between columns, however wide a number is: its unit is one space behind it.
fn line(what: &str, [predicted, measured, ratio]: [&str; 3], note: &str) -> String {
    let line = format!("{what:<49}  {predicted:>13}  {measured:>13}  {ratio:>8}  {note}");
    line.trim_end().to_owned()
}
