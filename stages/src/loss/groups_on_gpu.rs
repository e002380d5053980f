//! Cross-entropy on a GPU, over classes that are in groups. A shard has some of the groups.

use super::divided_cross_entropy::Classes;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::shards::team::Each;
use crate::tensor::Tensor;

/// The most threads that share a group of a row.
const THREADS: usize = 512;
/// How many numbers the kernels have of a group of a row.
const NUMBERS: usize = 5;

/// How cross-entropy is added up in groups of classes.
#[derive(Debug)]
pub(super) struct InGroups<'a> {
    /// How many classes there are, in all shards.
    pub(super) all: usize,
    /// In how many groups.
    pub(super) groups: usize,
    /// The classes here, if there are several shards.
    pub(super) classes: Option<&'a Classes>,
    /// The class that does not count, or a number that no class has.
    pub(super) ignored: u64,
    pub(super) smoothing: f32,
}

impl InGroups<'_> {
    /// Writes three doubles for each row to `scores`: the loss, the weight, and whether it is right. If
    /// `gradient` is set, turns the logits into the gradient. `targets` are the classes of the rows.
    pub(super) fn run(
        &self,
        gpu: &Gpu,
        logits: &mut Tensor,
        [targets, scores]: [Ptr; 2],
        gradient: bool,
    ) -> Result<()> {
        let (rows, here, dtype) = (logits.shape().rows(), logits.shape().last(), logits.dtype());
        let (first, shard) = match self.classes {
            Some(classes) => (classes.first(), classes.team().shard()),
            None => (0, Default::default()),
        };
        let groups = self.groups / shard.of as usize;
        let found = Tensor::on_gpu(gpu, DType::F32, &[rows, NUMBERS * groups])?;
        // The same number of threads in each shard.
        let threads = self.all.div_ceil(8 * self.groups).next_multiple_of(32).min(THREADS) as u32;
        let first_group = shard.index as usize * groups;
        let sizes = args![here, first, self.all, self.groups, groups, first_group];
        let given = args![&*logits, targets, &found];
        let grid = Grid::row(rows * groups, threads);
        gpu.launch(kernel!(dtype, "cross_entropy_groups"), grid, &[&given[..], &sizes].concat())?;
        let found = match self.classes {
            Some(classes) => {
                let dims = [rows, NUMBERS * groups];
                together(classes.team().all(found, |_| dims)?, rows)?
            }
            None => found,
        };
        let at = if gradient { logits.at_mut(gpu)? } else { logits.at() };
        let given = args![at, targets, scores, &found];
        let settings = args![self.ignored, self.smoothing, u32::from(gradient)];
        let args = [&given[..], &sizes, &settings].concat();
        let threads = here.div_ceil(8).next_multiple_of(32).min(THREADS) as u32;
        gpu.launch(kernel!(dtype, "cross_entropy_of_groups"), Grid::row(rows, threads), &args)
    }
}

/// What each shard has found, one behind the other.
fn together(found: Each, rows: usize) -> Result<Tensor> {
    let mut all = found[0].beside(&[found.len() * rows, found[0].shape().last()])?;
    for (shard, part) in found.iter().enumerate() {
        all.put_rows(shard * rows..(shard + 1) * rows, part)?;
    }
    Ok(all)
}
