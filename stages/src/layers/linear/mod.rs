//! The linear layer.

pub(crate) mod adapter;
pub(crate) mod bias;
pub(crate) mod by_rows;
pub(crate) mod column_sums;
pub(crate) mod columns_on_gpu;
pub(crate) mod divided;
pub(crate) mod groups_on_gpu;
pub(crate) mod operands;
pub(crate) mod weight_matrix;

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::{Error, Result, check_positive, check_rows};
use crate::layers::linear::adapter::Adapter;
use crate::layers::linear::bias::{add_bias_grad, add_sums};
use crate::layers::linear::column_sums::ColumnSums;
use crate::layers::linear::divided::{Divided, Side};
use crate::layers::linear::operands::Layout;
use crate::layers::linear::weight_matrix::WeightMatrix;
use crate::loss::MicroBatchLoss;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::Shape;
use crate::shards::{Division, Team};
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::{ChooseLora, Layer, check_added, output_onto};
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// `y = x W + b` on the innermost dimension: numbers `[.., inputs]` to `[.., outputs]`.
///
/// Parameters: `{name}.weight`, `[outputs, inputs]` unless [`Linear::with_layout`] says otherwise, and
/// `{name}.bias`, `[outputs]`, unless the layer is [without](Linear::without_bias). It keeps its input,
/// unless its parameters are frozen and it has no adapter.
///
/// ```
/// use pipewright_stages::layers::{Layout, Linear};
/// use pipewright_stages::{Init, Layer};
///
/// // 3 numbers in, 2 out.
/// let mut usual = Linear::new("fc", [3, 2], Init::Uniform(0.5), 1);
/// let [weight, bias] = &usual.parameters()[..] else { unreachable!() };
/// assert_eq!((weight.name(), weight.dims()), ("fc.weight", &[2, 3][..]));
/// assert_eq!((bias.name(), bias.dims()), ("fc.bias", &[2][..]));
///
/// let init = Init::Normal(0.02);
/// let mut other = Linear::new("fc", [3, 2], init, 1).with_layout(Layout::InOut).without_bias();
/// assert_eq!(other.parameters().len(), 1);
/// assert_eq!(other.parameters()[0].dims(), [3, 2]);
/// ```
#[derive(Debug)]
pub struct Linear {
    name: String,
    matrix: WeightMatrix,
    bias: Option<Parameter>,
    input_gradient: bool,
    seed: u64,
    /// Columns of the output with names of their own.
    parts: Vec<(String, Range<usize>)>,
    adapters: Vec<Adapter>,
    divided: Option<Divided>,
    /// Who makes the sums for the bias, if the layer after this one can.
    sums: Option<ColumnSums>,
    /// Whether it is the head of a model, and [deferred](Layer::defer_head).
    is_deferred: bool,
}

/// What is between the two matrices of each adapter of a layer, or the gradients of that. None, if it is not
/// kept.
pub(crate) type Between = SmallVec<[Tensor; 3]>;

impl Linear {
    /// A layer whose weights start as `init` says, with random numbers from `seed`, and whose bias starts at
    /// zero. The sizes are `[inputs, outputs]`.
    pub fn new(name: &str, [inputs, outputs]: [usize; 2], init: Init, seed: u64) -> Self {
        let weight = Parameter::new(format!("{name}.weight"), &[outputs, inputs], init, seed);
        let layer = Self {
            name: name.to_owned(),
            matrix: WeightMatrix::new([inputs, outputs], weight),
            bias: None,
            input_gradient: true,
            seed,
            parts: vec![(name.to_owned(), 0..outputs)],
            adapters: Vec::new(),
            divided: None,
            sums: None,
            is_deferred: false,
        };
        layer.with_bias(Init::Zeros)
    }

    /// The same layer with its weights in another layout. `init` fills the matrix in memory order, so another
    /// layout starts with another matrix.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.matrix.set_layout(layout);
        self.fused()
    }

    /// The same layer without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// The same layer with a bias that starts as `init` says, with random numbers from the layer's seed.
    #[must_use]
    pub fn with_bias(mut self, init: Init) -> Self {
        let [_, outputs] = self.matrix.sizes();
        let name = format!("{}.bias", self.name);
        self.bias = Some(Parameter::new(name, &[outputs], init, self.seed));
        self.fused()
    }

    /// Replaces the layer's weight with `weight`, in the layer's layout. To share the weights of another
    /// layer, give a parameter with that weight's name and dimensions that is [`Parameter::tied`].
    ///
    /// # Errors
    /// When its dimensions differ from the layer's weight.
    pub fn with_weight(mut self, weight: Parameter) -> Result<Self> {
        let own = self.matrix.parameter();
        if weight.dims() != own.dims() {
            let (expected, name, got) = (own.dims(), weight.name(), weight.dims());
            let error = Error::new(format!("expected a weight of {expected:?}, got `{name}` of {got:?}"));
            return Err(error.at(&self.name));
        }
        self.matrix.set(weight);
        Ok(self.fused())
    }

    /// The same layer, whose output has several parts side by side. Each has a name and a width, and may get
    /// an adapter of its own: see [`Layer::adapt`]. In PyTorch's layout each has a matrix of its own for
    /// optimizers, and so has the bias: see [`Parameter::fuse`].
    ///
    /// # Panics
    /// When the widths do not add up to the layer's output.
    #[must_use]
    pub fn with_parts<const N: usize>(mut self, parts: [(String, usize); N]) -> Self {
        let mut start = 0;
        let part = |(name, width): (String, usize)| {
            let columns = start..start + width;
            start += width;
            (name, columns)
        };
        self.parts = parts.into_iter().map(part).collect();
        let [_, outputs] = self.matrix.sizes();
        assert_eq!(start, outputs, "{}: the parts' widths", self.name);
        self.fused()
    }

    /// The same layer, for which no adapter can be chosen: see [`Layer::adapt`].
    #[must_use]
    pub fn without_adapters(self) -> Self {
        Self { parts: Vec::new(), ..self }
    }

    /// The same layer, whose outputs are divided among shards. The gradient of its input is added up in the
    /// division's groups.
    ///
    /// # Panics
    /// When the division is not as wide as the output.
    #[must_use]
    pub fn with_divided_outputs(self, division: &Division) -> Self {
        let [_, outputs] = self.matrix.sizes();
        assert_eq!(division.of_whole().len(), outputs, "{}: the places of the division", self.name);
        self.divided(Side::Outputs, division)
    }

    /// The same layer, whose inputs are divided among shards. Its output is added up in the division's
    /// groups, and then the bias is added.
    ///
    /// # Panics
    /// When the division is not as wide as the input.
    #[must_use]
    pub fn with_divided_inputs(self, division: &Division) -> Self {
        let [inputs, _] = self.matrix.sizes();
        assert_eq!(division.of_whole().len(), inputs, "{}: the places of the division", self.name);
        self.divided(Side::Inputs, division)
    }

    fn divided(mut self, side: Side, division: &Division) -> Self {
        let divided = Divided::new(side, division);
        // Outputs come first in PyTorch's layout.
        let is_first = (side == Side::Inputs) == (self.matrix.layout() == Layout::InOut);
        self.matrix.divide(side, is_first, division);
        let [inputs, outputs] = divided.depth_groups();
        self.matrix.add_up_in(inputs, outputs);
        if side == Side::Outputs {
            self.bias.iter_mut().for_each(|bias| bias.divide(true, division));
            let own = division.own();
            // A layer without parts of its own is one part, whatever the division has.
            let lengths = match self.parts.len() {
                1 => vec![division.len()],
                _ => own.iter().map(Range::len).collect(),
            };
            let mut start = 0;
            for ((_, columns), length) in self.parts.iter_mut().zip(lengths) {
                *columns = start..start + length;
                start += length;
            }
        }
        self.divided = Some(divided);
        self
    }

    /// The same layer, with its weights divided into its parts.
    fn fused(mut self) -> Self {
        let widths: Vec<usize> = self.parts.iter().map(|(_, columns)| columns.len()).collect();
        if widths.len() > 1 {
            self.bias.iter_mut().for_each(|bias| bias.fuse(&widths));
            if self.matrix.layout() == Layout::OutIn {
                self.matrix.for_weights().fuse(&widths);
            }
        }
        self
    }

    /// The sums for its bias. The layer after it makes them: no other layer may be between the two.
    pub(crate) fn sums(&mut self) -> ColumnSums {
        self.sums.get_or_insert_default().clone()
    }

    /// Says whether sums for the bias are used: if it is trained, and the gradient is not gathered or cut
    /// before its columns are added up.
    fn ask_for_sums(&self) {
        if let Some(sums) = &self.sums {
            let is_trained = self.bias.as_ref().is_some_and(|bias| !bias.is_frozen());
            let is_whole =
                self.team_of(Side::Inputs).is_none() && self.matrix.apart_at(Side::Outputs).is_none();
            sums.set_used(is_trained && is_whole);
        }
    }

    /// The shards that the outputs, or the inputs, are divided among, if there are several.
    fn team_of(&self, side: Side) -> Option<&Team> {
        self.divided.as_ref()?.team_of(side)
    }

    /// All rows of the input, if the outputs are divided.
    fn whole_input<'a>(&self, input: &'a Tensor) -> Result<Cow<'a, Tensor>> {
        match self.team_of(Side::Outputs) {
            Some(team) => Ok(Cow::Owned(team.gather(input)?)),
            None => Ok(Cow::Borrowed(input)),
        }
    }

    /// All rows of the output's gradient, if the inputs are divided: for [`Linear::input_grad`] and
    /// backward-weight.
    pub(crate) fn whole_grad(&self, grad: Tensor) -> Result<Tensor> {
        match self.team_of(Side::Inputs) {
            Some(team) => team.gather(&grad),
            None => Ok(grad),
        }
    }

    /// Whether it is the head of a model, and deferred.
    pub(crate) fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Whether any of its parameters is trained.
    pub(crate) fn is_trained(&self) -> bool {
        let bias = self.bias.as_ref().is_some_and(|bias| !bias.is_frozen());
        bias || !self.adapters.is_empty() || !self.matrix.parameter().is_frozen()
    }

    /// Whether backward-weight of its adapters gets what is between their matrices.
    pub(crate) fn keeps_between(&self) -> bool {
        !self.is_deferred && self.adapters.first().is_some_and(Adapter::keeps_between)
    }

    /// Adds what the adapters add to the output of the rows. Gives what is between their matrices, if that is
    /// kept.
    fn add_adapters(&mut self, ctx: ForwardContext, output: &mut Tensor, rows: &Tensor) -> Result<Between> {
        let mut inners = Between::new();
        for adapter in &mut self.adapters {
            let inner = adapter.forward(ctx, 0, output, rows)?;
            inners.extend(adapter.keeps_between().then_some(inner));
        }
        Ok(inners)
    }

    /// The input gradient for this output gradient.
    pub(crate) fn input_grad(&mut self, ctx: ForwardContext, grad: &Tensor) -> Result<Tensor> {
        Ok(self.input_grads(ctx, grad, true)?.0.expect("it is used"))
    }

    /// The input gradient for this output gradient, if it `is_used`. Also the gradients of what is between
    /// the matrices of adapters, if these are kept.
    pub(crate) fn input_grads(
        &mut self,
        ctx: ForwardContext,
        grad: &Tensor,
        is_used: bool,
    ) -> Result<(Option<Tensor>, Between)> {
        let mut input_grad = match self.team_of(Side::Outputs).filter(|_| is_used).cloned() {
            Some(team) => Some(team.sum_in(grad.dtype(), &self.matrix.input_grad_part(grad)?, None)?),
            None => is_used.then(|| self.matrix.input_grad(grad)).transpose()?,
        };
        let mut inner_grads = Between::new();
        for adapter in &mut self.adapters {
            if is_used || adapter.keeps_between() {
                let inner_grad = adapter.backward_input(ctx, input_grad.as_mut(), grad)?;
                inner_grads.extend(adapter.keeps_between().then_some(inner_grad));
            }
        }
        Ok((input_grad, inner_grads))
    }

    /// Adds the gradients of weights and bias, from some rows of a micro-batch of `all` rows. `sums`: of the
    /// gradient's columns, if they are there.
    fn add_gradients(
        &mut self,
        rows: &Tensor,
        grad: &Tensor,
        sums: Option<Tensor>,
        all: usize,
    ) -> Result<()> {
        self.matrix.add_grad(rows, grad, all)?;
        match (self.bias.as_mut().filter(|bias| !bias.is_frozen()), sums) {
            (Some(bias), Some(sums)) => add_sums(bias, &sums),
            (Some(bias), None) => add_bias_grad(bias, grad, self.matrix.apart_at(Side::Outputs)),
            (None, _) => Ok(()),
        }
    }

    /// What backward-weight needs: the input, the output's gradient, and the sums of that, if they are there.
    /// Also what is between the matrices of adapters, and its gradients. If forward has not kept the former,
    /// it is made again.
    pub(crate) fn pending(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        grad: Tensor,
        [mut inners, inner_grads]: [Between; 2],
    ) -> Result<Kept> {
        if self.keeps_between() && inners.is_empty() {
            let adapters = self.adapters.iter_mut();
            inners = adapters.map(|adapter| adapter.inner_of(ctx, &input)).collect::<Result<_>>()?;
        }
        let sums = self.sums.as_ref().and_then(|sums| sums.take_of(&grad));
        let kept = Kept::new(ctx, [input, grad].into_iter().chain(sums));
        Ok(match inners.is_empty() {
            true => kept,
            false => kept.with_inner([inners, inner_grads].map(|tensors| Kept::new(ctx, tensors))),
        })
    }

    /// What forward keeps: the input, and what is between the matrices of adapters.
    fn kept(&self, ctx: ForwardContext, input: Tensor, inners: Between) -> Kept {
        let kept = Kept::new(ctx, self.is_trained().then_some(input));
        match inners.is_empty() {
            true => kept,
            false => kept.with_inner([Kept::new(ctx, inners)]),
        }
    }

    /// Takes apart what forward keeps: the input, which may be missing, and what adapters keep.
    pub(crate) fn take_kept(mut saved: Kept) -> (Option<Tensor>, Between) {
        let [inners, _] = take_between(&mut saved);
        let input = saved.take_tensors().next();
        (input, inners)
    }
}

/// Takes what is between the matrices of adapters, and its gradients.
fn take_between(kept: &mut Kept) -> [Between; 2] {
    let mut lists = kept.take_inner().map(|mut list| list.take_tensors().collect());
    std::array::from_fn(|_| lists.next().unwrap_or_default())
}

impl Layer for Linear {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let [inputs, outputs] = self.matrix.sizes();
        check_positive(&[("outputs", outputs)])?;
        if let Some(team) = self.team_of(Side::Outputs) {
            team.check_own(input, inputs)?;
            return Ok(team.all_rows(outputs));
        }
        if let Some(team) = self.team_of(Side::Inputs) {
            team.check_all(input, inputs)?;
            return Ok(team.own_shape(outputs));
        }
        check_rows(input, inputs)?;
        Ok(input.with_last(outputs))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        self.ask_for_sums();
        let rows = self.whole_input(&input)?;
        let mut output = match self.team_of(Side::Inputs).cloned() {
            Some(team) => {
                let sum = self.matrix.forward_part(&rows)?;
                team.sum_in(rows.dtype(), &sum, self.bias.as_ref().map(Parameter::row))?
            }
            None => self.matrix.forward(&rows, self.bias.as_ref())?,
        };
        let inners = self.add_adapters(ctx, &mut output, &rows)?;
        drop(rows);
        Ok((output, self.kept(ctx, input, inners)))
    }

    fn forward_onto(&mut self, ctx: ForwardContext, input: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        let joined = self.divided.as_ref().is_some_and(|divided| divided.team.is_some());
        let gpu = input.gpu()?.filter(|_| !joined && !self.matrix.is_apart());
        let Some(gpu) = gpu else {
            let (output, kept) = self.forward(ctx, input)?;
            return Ok((output_onto(output, &onto)?, kept));
        };
        check_added(&self.output_shape(input.shape())?, &onto)?;
        self.ask_for_sums();
        let mut output = self.matrix.forward_on(&gpu, &input, self.bias.as_ref(), Some(&onto), 0)?;
        let inners = self.add_adapters(ctx, &mut output, &input)?;
        Ok((output, self.kept(ctx, input, inners)))
    }

    fn defer_head(&mut self, rows: usize) -> usize {
        self.is_deferred = self.can_defer(rows);
        if !self.is_deferred {
            return 0;
        }
        self.matrix.expect_many_rows();
        self.parameters().len()
    }

    fn forward_before_head(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        Ok((input, Kept::new(ctx, [])))
    }

    fn head_and_loss(
        &mut self,
        ctx: ForwardContext,
        input: Tensor,
        loss: &mut MicroBatchLoss<'_, Tensor>,
    ) -> Result<Option<Tensor>> {
        self.run_by_rows(ctx, &input, loss)
    }

    fn forward_next(&mut self, _past: usize, input: Tensor) -> Result<Tensor> {
        if self.divided.as_ref().is_some_and(|divided| divided.team.is_some()) {
            return Ok(self.forward(WRITING, input)?.0);
        }
        self.output_shape(input.shape())?;
        let mut output = self.matrix.forward_next(&input, self.bias.as_ref())?;
        for adapter in &mut self.adapters {
            adapter.forward_next(&mut output, &input)?;
        }
        Ok(output)
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        match self.is_deferred {
            true => Ok(Kept::new(ctx, [])),
            false => Ok(self.kept(ctx, input, Between::new())),
        }
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        self.is_deferred.then(|| Kept::new(ctx, []))
    }

    fn splits_backward(&mut self) -> bool {
        !self.is_deferred && self.is_trained()
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        if self.is_deferred {
            return Ok((self.input_gradient.then_some(grad), Kept::new(ctx, [])));
        }
        let grad = self.whole_grad(grad)?;
        let (input_grad, inner_grads) = self.input_grads(ctx, &grad, self.input_gradient)?;
        if !self.is_trained() {
            return Ok((input_grad, Kept::new(ctx, [])));
        }
        let (input, inners) = Self::take_kept(saved);
        let input = input.expect("forward keeps the input of a layer that is trained");
        Ok((input_grad, self.pending(ctx, input, grad, [inners, inner_grads])?))
    }

    fn backward_weight(&mut self, mut pending: Kept) -> Result<()> {
        if !self.is_trained() || self.is_deferred {
            return Ok(());
        }
        let ctx = pending.ctx;
        let [inners, inner_grads] = take_between(&mut pending);
        let ([input, grad], sums) = pending.into_tensors_and_one();
        let input = self.whole_input(&input)?.into_owned();
        self.add_gradients(&input, &grad, sums, input.shape().rows())?;
        let mut between = inners.into_iter().zip(inner_grads);
        let mut adapters = self.adapters.iter_mut();
        adapters.try_for_each(|adapter| {
            let between = between.next().map(|(inner, inner_grad)| [inner, inner_grad]);
            adapter.backward_weight(ctx, &input, &grad, between)
        })
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(self.matrix.for_weights());
        self.bias.iter_mut().for_each(&mut *visit);
        let matrices = self.adapters.iter_mut().flat_map(Adapter::matrices);
        matrices.for_each(|matrix| visit(matrix.for_weights()));
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(self.matrix.for_gradients());
        self.bias.iter_mut().for_each(&mut *visit);
        let matrices = self.adapters.iter_mut().flat_map(Adapter::matrices);
        matrices.for_each(|matrix| visit(matrix.for_gradients()));
    }

    fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        let [inputs, _] = self.matrix.sizes();
        if self.matrix.parameter().is_tied() {
            return Ok(());
        }
        for (target, columns) in &self.parts {
            if let Some(lora) = choose(target) {
                let adapter = Adapter::new(target, inputs, columns.clone(), lora, self.divided.as_ref())?;
                self.adapters.push(adapter);
            }
        }
        Ok(())
    }

    fn merge_adapters(&mut self) {
        if self.matrix.parameter().quantisation().is_some() {
            return;
        }
        let [inputs, outputs] = self.matrix.sizes();
        let layout = self.matrix.layout();
        for adapter in self.adapters.drain(..) {
            let weights = &mut self.matrix.for_weights().value;
            match layout {
                Layout::OutIn => adapter.merge(weights, |output, input| output * inputs + input),
                Layout::InOut => adapter.merge(weights, |output, input| input * outputs + output),
            }
        }
    }

    fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
    }

    fn divided_output(&self) -> Option<&Division> {
        let divided = self.divided.as_ref().filter(|divided| divided.team_of(Side::Outputs).is_some())?;
        Some(&divided.division)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        match &mut self.divided {
            Some(divided) => {
                divided.team = Some(team.clone());
                self.adapters.iter_mut().for_each(|adapter| adapter.join(divided));
                Ok(())
            }
            None => Err(Error::new(
                "neither its inputs nor its outputs are divided: see `Linear::with_divided_outputs`",
            )),
        }
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn hold_in_bf16(&mut self) {
        self.merge_adapters();
        self.matrix.for_weights().hold_in_bf16();
    }
}
