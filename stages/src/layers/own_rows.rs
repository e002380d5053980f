//! From all rows to a shard's own.

use std::ops::Range;

use crate::error::{Error, Result, check_rows};
use crate::shape::Shape;
use crate::shards::team::Each;
use crate::shards::{Division, Team};
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// A shard's own rows `[own rows, width]`, of all rows: those of the data, or those of a layer whose outputs
/// are divided, `[rows, own outputs]`. With one shard it gives what it is given. It keeps nothing.
#[derive(Debug)]
pub struct OwnRows {
    name: String,
    /// How many numbers a whole row has.
    width: usize,
    division: Option<Division>,
    shards: Option<Shards>,
}

#[derive(Debug)]
struct Shards {
    team: Team,
    /// The columns of each shard, if they are divided.
    columns: Vec<Range<usize>>,
}

impl OwnRows {
    /// A layer whose input is all rows, of this width: the same on every shard.
    pub fn of_data(name: &str, width: usize) -> Self {
        Self { name: name.to_owned(), width, division: None, shards: None }
    }

    /// A layer after one whose [outputs are divided](super::Linear::with_divided_outputs) in this way. They
    /// have one part.
    pub fn of_outputs(name: &str, division: &Division) -> Self {
        let width = division.of_whole().len();
        Self { division: Some(division.clone()), ..Self::of_data(name, width) }
    }
}

impl Shards {
    /// How many columns are here.
    fn own_columns(&self, width: usize) -> usize {
        self.columns.get(self.team.shard().index as usize).map_or(width, Range::len)
    }

    /// Gives each shard its rows of this shard's columns. Returns this shard's rows of all columns.
    fn to_rows(&self, all: &Tensor, width: usize) -> Result<Tensor> {
        let team = &self.team;
        let given: Result<Each> = (0..team.shard().of).map(|shard| all.rows(team.rows_of(shard))).collect();
        let mut rows = all.beside(&[team.own_rows().len(), width])?;
        let own = team.own_rows().len();
        let parts = team.each(given?, |shard| [own, self.columns[shard as usize].len()])?;
        for (columns, part) in self.columns.iter().zip(parts) {
            rows.put_columns(columns.clone(), &part)?;
        }
        Ok(rows)
    }

    /// The other way: gives each shard its columns of this shard's rows. Returns this shard's columns of all
    /// rows.
    fn to_columns(&self, rows: &Tensor, width: usize) -> Result<Tensor> {
        let team = &self.team;
        let given: Result<Each> =
            self.columns.iter().map(|columns| rows.columns(columns.clone(), 1.0)).collect();
        let own = self.own_columns(width);
        let mut all = rows.beside(team.all_rows(own).dims())?;
        let parts = team.each(given?, |shard| [team.rows_of(shard).len(), own])?;
        for (shard, part) in (0..).zip(parts) {
            all.put_rows(team.rows_of(shard), &part)?;
        }
        Ok(all)
    }
}

impl Layer for OwnRows {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        let columns = match &self.division {
            None => Vec::new(),
            Some(division) if division.shard() != team.shard() => {
                return Err(Error::new("the outputs before it are not divided: see `OwnRows::of_outputs`"));
            }
            Some(division) => {
                (0..team.shard().of).map(|shard| division.of_shard(shard).own()[0].clone()).collect()
            }
        };
        self.shards = Some(Shards { team: team.clone(), columns });
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        match &self.shards {
            Some(shards) => {
                shards.team.check_all(input, shards.own_columns(self.width))?;
                Ok(shards.team.own_shape(self.width))
            }
            None => {
                check_rows(input, self.width)?;
                Ok(*input)
            }
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        let output = match (&self.shards, &self.division) {
            (None, _) => input,
            (Some(shards), None) => shards.team.own_part(&input)?,
            (Some(shards), Some(_)) => shards.to_rows(&input, self.width)?,
        };
        Ok((output, Kept::new(ctx, [])))
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let input_grad = match (&self.shards, &self.division) {
            (None, _) => grad,
            (Some(shards), None) => shards.team.gather(&grad)?,
            (Some(shards), Some(_)) => shards.to_columns(&grad, self.width)?,
        };
        Ok((Some(input_grad), Kept::new(saved.ctx, [])))
    }
}
