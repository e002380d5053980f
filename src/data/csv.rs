//! Tables in files of comma-separated values.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use pipewright_stages::Tensor;

use super::file::wrong;
use super::{Table, look, seems};
use crate::error::{Error, Result};

/// Which columns of a file are targets. All others are inputs.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// Numbers, as for a regression: these columns.
    Numbers(&'a [&'a str]),
    /// A class from 0 on: this column.
    Class(&'a str),
}

impl Table {
    /// Reads a file of comma-separated values; of a `.tsv`, of values with tabs between them. The first line
    /// has the names of the columns. Inputs are `f32` of `[rows, columns]`, in the order of the file.
    /// Targets are `f32` of `[rows, columns]`, in the order of `targets`, or ids of `[rows]`.
    ///
    /// # Errors
    /// When the file cannot be read or does not have the columns. When a cell is no finite number, or no
    /// class: names the line and the column.
    pub fn csv(path: &Path, targets: Targets<'_>) -> Result<Self> {
        let (file, ..) = look::open_text(path)?;
        let delimiter = match seems::extension(path).as_deref() {
            Some("tsv") => b'\t',
            _ => b',',
        };
        let mut reader = ReaderBuilder::new().delimiter(delimiter).from_reader(file);
        let broken = |error: csv::Error| -> Error {
            wrong(path, format!("cannot be read as comma-separated values: {error}"))
        };
        let names = reader.headers().map_err(broken)?.clone();
        let of_targets = match targets {
            Targets::Numbers(columns) => columns.iter().map(|column| place(&names, column)).collect(),
            Targets::Class(column) => place(&names, column).map(|at| vec![at]),
        };
        let of_targets: Vec<usize> = of_targets.map_err(|problem| wrong(path, problem))?;
        let of_inputs: Vec<usize> = (0..names.len()).filter(|at| !of_targets.contains(at)).collect();
        let (mut numbers, mut wanted, mut classes, mut rows) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for record in reader.records() {
            let record = record.map_err(broken)?;
            let cell = |at: usize| Cell { path, record: &record, at, names: &names };
            for &at in &of_inputs {
                numbers.push(cell(at).number()?);
            }
            for &at in &of_targets {
                match targets {
                    Targets::Numbers(_) => wanted.push(cell(at).number()?),
                    Targets::Class(_) => classes.push(cell(at).class()?),
                }
            }
            rows += 1;
        }
        let inputs = Tensor::from_vec(&[rows, of_inputs.len()], numbers)?;
        let targets = match targets {
            Targets::Numbers(columns) => Tensor::from_vec(&[rows, columns.len()], wanted)?,
            Targets::Class(_) => Tensor::from_ids(&[rows], classes)?,
        };
        Self::named(&format!("`{}`", path.display()), &inputs, &targets)
    }
}

/// Where a column is.
fn place(names: &StringRecord, column: &str) -> std::result::Result<usize, String> {
    let found = names.iter().position(|name| name.trim() == column);
    found.ok_or_else(|| {
        format!(
            "has no column \"{column}\" for targets, only \"{}\"",
            names.iter().collect::<Vec<_>>().join("\", \"")
        )
    })
}

/// A cell of a file.
struct Cell<'a> {
    path: &'a Path,
    record: &'a StringRecord,
    at: usize,
    names: &'a StringRecord,
}

impl Cell<'_> {
    fn text(&self) -> &str {
        self.record.get(self.at).unwrap_or_default().trim()
    }

    fn number(&self) -> Result<f32> {
        let number = self.text().parse().ok().filter(|number: &f32| number.is_finite());
        number.ok_or_else(|| self.refuse("a finite number"))
    }

    fn class(&self) -> Result<u32> {
        self.text().parse().map_err(|_| self.refuse("a class, a whole number from 0 on,"))
    }

    fn refuse(&self, expected: &'static str) -> Error {
        let line = self.record.position().map_or(0, csv::Position::line);
        let problem = format!(
            "has \"{}\" in the column \"{}\", where {expected} was expected",
            self.text(),
            self.names.get(self.at).unwrap_or_default()
        );
        wrong(self.path, format!("line {line} {problem}"))
    }
}
