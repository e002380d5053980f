//! A low-rank adapter of a linear layer.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use super::columns_on_gpu::Scaled;
use super::divided::{Divided, Side};
use super::weight_matrix::WeightMatrix;
use crate::cuda::Gpu;
use crate::error::Result;
use crate::layers::Dropout;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shards::{Division, Team};
use crate::stage::layer::{Layer, Lora};
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// Adds `scale (dropout(x) A^T) B^T` to some columns of a linear layer's output: see [`Lora`].
#[derive(Debug)]
pub(crate) struct Adapter {
    /// The columns of the output.
    columns: Range<usize>,
    scale: f32,
    dropout: Option<Dropout>,
    /// `A^T`, `[inputs, rank]`.
    down: WeightMatrix,
    /// `B^T`, `[rank, columns]`.
    up: WeightMatrix,
    /// How the layer is divided.
    division: Option<(Side, Division)>,
    /// The shards, if there are several.
    shards: Option<Shards>,
}

impl Adapter {
    /// The adapter of these columns, for rows of `inputs` numbers, of a layer that is divided like this.
    pub(crate) fn new(
        target: &str,
        inputs: usize,
        columns: Range<usize>,
        lora: Lora,
        divided: Option<&Divided>,
    ) -> Result<Self> {
        // The matrices of all shards: then each keeps its part.
        let (rank, mut outputs, mut whole_inputs) = (lora.rank, columns.len(), inputs);
        match divided {
            Some(Divided { side: Side::Inputs, division, .. }) => whole_inputs = division.of_whole().len(),
            Some(Divided { side: Side::Outputs, division, .. }) => {
                outputs = division.part_at(&columns).of_whole().len();
            }
            None => {}
        }
        let parameter = |which: &str, dims: [usize; 2], init| {
            let name = format!("{target}.lora_{which}.weight");
            // Weights that are read right after belong to the layer, not to the adapter.
            Parameter::new(name, &dims, Init::Zeros, lora.seed).started(init, lora.seed)
        };
        let init = Init::Uniform(1.0 / (whole_inputs as f32).sqrt());
        let dropout = Dropout::new(&format!("{target}.lora_dropout"), lora.dropout, lora.seed)?;
        let mut down = WeightMatrix::new([whole_inputs, rank], parameter("a", [rank, whole_inputs], init));
        let mut up = WeightMatrix::new([rank, outputs], parameter("b", [outputs, rank], Init::Zeros));
        if let Some(Divided { side, division, .. }) = divided {
            match side {
                Side::Inputs => down.divide(Side::Inputs, false, division),
                Side::Outputs => up.divide(Side::Outputs, true, &division.part_at(&columns)),
            }
        }
        if let Some(divided) = divided {
            let [of_inputs, of_outputs] = divided.depth_groups_within(&columns);
            down.add_up_in(of_inputs, None);
            up.add_up_in(None, of_outputs);
        }
        let dropout = (lora.dropout > 0.0).then_some(dropout);
        let division = divided.map(|divided| (divided.side, divided.division.clone()));
        Ok(Self { down, up, dropout, scale: lora.scale(), columns, division, shards: None })
    }

    /// Works together with the same adapter of other shards from now on.
    pub(crate) fn join(&mut self, divided: &Divided) {
        self.shards = divided.team.as_ref().map(|team| Shards {
            side: divided.side,
            team: team.clone(),
            own: divided.division.own(),
            inputs: self.down.parameter().whole_dims()[1],
        });
    }

    /// The team, if this side of the layer is divided.
    fn team_of(&self, side: Side) -> Option<Team> {
        let shards = self.shards.as_ref().filter(|shards| shards.side == side)?;
        Some(shards.team.clone())
    }

    /// Whether what is between the matrices, and its gradient, are kept until backward-weight. They are
    /// narrow. Several shards make them again there: each has only its part of the one or the other.
    pub(super) fn keeps_between(&self) -> bool {
        self.shards.is_none()
    }

    /// Adds the adapter's part to the output. Gives what is between the matrices. `input` has all rows, or
    /// some from row `first` on.
    pub(crate) fn forward(
        &mut self,
        ctx: ForwardContext,
        first: usize,
        output: &mut Tensor,
        input: &Tensor,
    ) -> Result<Tensor> {
        let input = self.dropped_from(ctx, first, input.clone())?;
        let inner = self.inner(&input)?;
        self.add_output(output, &inner)?;
        Ok(inner)
    }

    /// What is between the matrices, for all rows of the input.
    pub(super) fn inner_of(&mut self, ctx: ForwardContext, input: &Tensor) -> Result<Tensor> {
        let input = self.dropped_from(ctx, 0, input.clone())?;
        self.inner(&input)
    }

    /// What is between the matrices, from the input after dropout: of all rows, or, if inputs are divided, of
    /// this shard's.
    fn inner(&mut self, input: &Tensor) -> Result<Tensor> {
        match self.team_of(Side::Inputs) {
            Some(team) => team.sum_in(input.dtype(), &self.down.forward_part(input)?, None),
            None => self.down.forward(input, None),
        }
    }

    /// Adds to the output what follows from what is between the matrices.
    fn add_output(&mut self, output: &mut Tensor, inner: &Tensor) -> Result<()> {
        if let Some(gpu) = self.gpu_of(inner)? {
            return self.up.add_to_columns(&gpu, inner, output, &self.scaled());
        }
        let more = self.by_rows(inner, true)?;
        output.add_columns(self.columns.clone(), &more, self.scale)
    }

    /// The GPU of a tensor, if the layer is not divided into groups: then no product needs rows of its own.
    fn gpu_of(&self, tensor: &Tensor) -> Result<Option<Rc<Gpu>>> {
        match self.division {
            Some(_) => Ok(None),
            None => tensor.gpu(),
        }
    }

    fn scaled(&self) -> Scaled<'_> {
        Scaled { columns: &self.columns, scale: self.scale }
    }

    /// The scaled gradient of the adapter's columns. If a GPU reads these where they are, it is the whole
    /// gradient.
    fn own_grad<'a>(&self, grad: &'a Tensor) -> Result<Cow<'a, Tensor>> {
        Ok(match self.gpu_of(grad)? {
            Some(_) => Cow::Borrowed(grad),
            None => Cow::Owned(grad.columns(self.columns.clone(), self.scale)?),
        })
    }

    /// The gradient of what is between the matrices, from [`Adapter::own_grad`]: of all rows, or, if outputs
    /// are divided, of this shard's.
    fn inner_grad(&mut self, own: &Tensor) -> Result<Tensor> {
        if let Some(gpu) = self.gpu_of(own)? {
            return self.up.input_grad_of_columns(&gpu, own, &self.scaled());
        }
        match self.team_of(Side::Outputs) {
            Some(team) => team.sum_in(own.dtype(), &self.up.input_grad_part(own)?, None),
            None => self.up.input_grad(own),
        }
    }

    /// Adds the gradient of the second matrix, from [`Adapter::own_grad`] of rows of a micro-batch of `all`
    /// rows.
    fn add_up_grad(&mut self, inner: &Tensor, own: &Tensor, all: usize) -> Result<()> {
        if let Some(gpu) = self.gpu_of(own)? {
            let scaled = Scaled { columns: &self.columns, scale: self.scale };
            return self.up.add_grad_of_columns(&gpu, inner, own, &scaled);
        }
        self.up.add_grad(inner, own, all)
    }

    /// As [`Adapter::forward`], when text is written.
    pub(crate) fn forward_next(&mut self, output: &mut Tensor, input: &Tensor) -> Result<()> {
        let input = self.dropped_from(WRITING, 0, input.clone())?;
        let inner = self.down.forward_next(&input, None)?;
        if inner.gpu()?.is_some() {
            return self.add_output(output, &inner);
        }
        let more = self.up.forward_next(&inner, None)?;
        output.add_columns(self.columns.clone(), &more, self.scale)
    }

    /// Adds the adapter's part to the input gradient, if there is such. Gives the gradient of what is between
    /// the matrices.
    pub(crate) fn backward_input(
        &mut self,
        ctx: ForwardContext,
        input_grad: Option<&mut Tensor>,
        grad: &Tensor,
    ) -> Result<Tensor> {
        let own = self.own_grad(grad)?;
        let inner_grad = self.inner_grad(&own)?;
        if let Some(input_grad) = input_grad {
            self.add_input_grad(ctx, input_grad, &inner_grad)?;
        }
        Ok(inner_grad)
    }

    /// Adds to the input gradient what follows from the gradient of what is between the matrices.
    fn add_input_grad(
        &mut self,
        ctx: ForwardContext,
        input_grad: &mut Tensor,
        inner_grad: &Tensor,
    ) -> Result<()> {
        if let (Some(gpu), None) = (self.gpu_of(inner_grad)?, &self.dropout) {
            return self.down.add_input_grad(&gpu, inner_grad, input_grad);
        }
        let first_row = self.team_of(Side::Outputs).map_or(0, |team| team.own_rows().start);
        let more = self.by_rows(inner_grad, false)?;
        let more = self.dropped_from(ctx, first_row, more)?;
        let all = 0..input_grad.shape().last();
        input_grad.add_columns(all, &more, 1.0)
    }

    /// Adds the gradients of both matrices. `between`: what is between them, and its gradient, if these are
    /// kept.
    pub(crate) fn backward_weight(
        &mut self,
        ctx: ForwardContext,
        input: &Tensor,
        grad: &Tensor,
        between: Option<[Tensor; 2]>,
    ) -> Result<()> {
        let (input, all) = (self.dropped_from(ctx, 0, input.clone())?, grad.shape().rows());
        let own = self.own_grad(grad)?;
        let [inner, inner_grad] = match between {
            Some(between) => between,
            None => self.between_again(&input, &own)?,
        };
        self.add_up_grad(&inner, &own, all)?;
        self.down.add_grad(&input, &inner_grad, all)
    }

    /// What is between the matrices and its gradient, of all rows, from the input after dropout and
    /// [`Adapter::own_grad`].
    fn between_again(&mut self, input: &Tensor, own: &Tensor) -> Result<[Tensor; 2]> {
        let mut between = [self.inner(input)?, self.inner_grad(own)?];
        for (tensor, side) in between.iter_mut().zip([Side::Inputs, Side::Outputs]) {
            if let Some(team) = self.team_of(side) {
                *tensor = team.gather(tensor)?;
            }
        }
        Ok(between)
    }

    /// Backward of some rows of `all`, from what is between the matrices: adds the second matrix's gradient,
    /// and gives the gradient of what is between the matrices. With several shards that is a part, in `f32`.
    pub(super) fn backward_some(&mut self, all: usize, inner: &Tensor, grad: &Tensor) -> Result<Tensor> {
        let own = self.own_grad(grad)?;
        self.add_up_grad(inner, &own, all)?;
        match self.team_of(Side::Outputs) {
            Some(_) => self.up.input_grad_part(&own),
            None => self.inner_grad(&own),
        }
    }

    /// What is left after [`Adapter::backward_some`] of all rows: the gradient of the first matrix, and the
    /// input gradient, if somebody uses it.
    pub(super) fn backward_rest(
        &mut self,
        ctx: ForwardContext,
        input: &Tensor,
        inner_grad: Tensor,
        input_grad: Option<&mut Tensor>,
    ) -> Result<()> {
        let team = self.team_of(Side::Outputs);
        let own = match &team {
            Some(team) => team.sum_in(input.dtype(), &inner_grad, None)?,
            None => inner_grad,
        };
        if let Some(input_grad) = input_grad {
            self.add_input_grad(ctx, input_grad, &own)?;
        }
        let inner_grad = match team {
            Some(team) => team.gather(&own)?,
            None => own,
        };
        let input = self.dropped_from(ctx, 0, input.clone())?;
        self.down.add_grad(&input, &inner_grad, input.shape().rows())
    }

    /// Adds what the adapter adds to the weights `[outputs, inputs]` of its layer: `at` is the place of one.
    pub(crate) fn merge(&self, weights: &mut [f32], at: impl Fn(usize, usize) -> usize) {
        let [inputs, rank] = self.down.sizes();
        let (down, up) = (&self.down.parameter().value, &self.up.parameter().value);
        let mut sums = vec![0.0_f32; inputs];
        for (row, column) in self.columns.clone().enumerate() {
            sums.fill(0.0);
            for (&b, a) in up[row * rank..][..rank].iter().zip(down.chunks_exact(inputs)) {
                sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
            }
            for (input, sum) in sums.iter().enumerate() {
                weights[at(column, input)] += self.scale * sum;
            }
        }
    }

    /// The product of rows, all or this shard's own, with the second matrix, or of gradients with the first.
    /// A GPU multiplies each group of rows by itself, so that a shard's rows have the same bits: see
    /// [`groups_on_gpu`](super::groups_on_gpu).
    fn by_rows(&mut self, rows: &Tensor, forward: bool) -> Result<Tensor> {
        let side = if forward { Side::Inputs } else { Side::Outputs };
        let divided =
            self.division.as_ref().filter(|(of, division)| *of == side && division.all_groups() > 1);
        let (Some((_, division)), Some(_)) = (divided, rows.gpu()?) else {
            return match forward {
                true => self.up.forward(rows, None),
                false => self.down.input_grad(rows),
            };
        };
        let all = self.shards.as_ref().map_or(rows.shape().rows(), |shards| shards.team.rows());
        let width = if forward { self.up.sizes()[1] } else { self.down.sizes()[0] };
        let mut out = rows.beside(rows.shape().with_last(width).dims())?;
        for range in division.groups_of_rows(all).filter(|range| !range.is_empty()) {
            match forward {
                true => self.up.forward_rows(&mut out, rows, &range)?,
                false => self.down.backward_rows(&mut out, rows, &range)?,
            }
        }
        Ok(out)
    }

    /// How many numbers a row has between the matrices.
    pub(super) fn rank(&self) -> usize {
        self.down.sizes()[1]
    }

    /// Both matrices.
    pub(crate) fn matrices(&mut self) -> [&mut WeightMatrix; 2] {
        [&mut self.down, &mut self.up]
    }

    /// Rows of the input, or of its gradient, from `first_row` on, after dropout.
    fn dropped_from(&mut self, ctx: ForwardContext, first_row: usize, rows: Tensor) -> Result<Tensor> {
        match (&mut self.dropout, &self.shards) {
            (None, _) => Ok(rows),
            (Some(dropout), None) if first_row == 0 => Ok(dropout.forward(ctx, rows)?.0),
            (Some(dropout), None) => {
                let width = rows.shape().last();
                let all = 0..width;
                dropout.apply_part(ctx, rows, (first_row, width), std::slice::from_ref(&all))
            }
            (Some(dropout), Some(shards)) => {
                let all = 0..shards.inputs;
                let columns = match shards.side {
                    Side::Inputs => &shards.own[..],
                    Side::Outputs => std::slice::from_ref(&all),
                };
                dropout.apply_part(ctx, rows, (first_row, shards.inputs), columns)
            }
        }
    }
}

/// What an adapter knows of several shards.
#[derive(Debug)]
struct Shards {
    side: Side,
    team: Team,
    /// The places of the divided dimension that this shard has.
    own: Vec<Range<usize>>,
    /// The inputs in all shards.
    inputs: usize,
}
