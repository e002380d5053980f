//! Chains beside each other, and what becomes of their outputs.

use std::iter::repeat_n;
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::{Error, Result, check_numbers};
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::stage::chain::Chain;
use crate::stage::kept::{Kept, List};
use crate::stage::layer::misfit;
use crate::tensor::Tensor;

/// What becomes of the outputs of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Sum,
    Product,
    Concat,
}

/// A block of at most this number of branches allocates nothing in a steady step.
const FEW: usize = 4;

/// Branches. Each has the whole input, or columns of its own.
#[derive(Debug)]
pub(super) struct Branches {
    chains: Vec<Chain>,
    join: Join,
    /// The width of each branch's columns of the input. `None`: all have the whole input.
    widths: Option<Vec<usize>>,
    /// Whether somebody uses the input gradient.
    input_gradient: bool,
}

impl Branches {
    pub(super) fn new(chains: Vec<Chain>, join: Join) -> Self {
        Self { chains, join, widths: None, input_gradient: true }
    }

    pub(super) fn set_columns(&mut self, widths: &[usize]) {
        self.widths = Some(widths.to_vec());
    }

    pub(super) fn drop_input_gradient(&mut self) {
        self.input_gradient = false;
        self.chains.iter_mut().for_each(Chain::drop_input_gradient);
    }

    pub(super) fn chains(&self) -> &[Chain] {
        &self.chains
    }

    pub(super) fn chains_mut(&mut self) -> &mut [Chain] {
        &mut self.chains
    }

    /// The shape of each branch's input.
    fn input_shapes(&self, input: &Shape) -> Result<impl Iterator<Item = Shape>> {
        if let Some(widths) = &self.widths {
            check_columns(widths, self.chains.len(), input)?;
        }
        let shape = |index| match &self.widths {
            Some(widths) => input.with_last(widths[index]),
            None => *input,
        };
        Ok((0..self.chains.len()).map(shape))
    }

    pub(super) fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let inputs = self.input_shapes(input)?;
        let outputs = self.chains.iter().zip(inputs);
        let outputs = outputs.map(|(chain, input)| chain.output_shape(&input));
        joined_shape(self.join, outputs)
    }

    /// The input of each branch.
    fn inputs(&self, input: Tensor) -> Result<SmallVec<[Tensor; FEW]>> {
        match &self.widths {
            None => Ok(repeat_n(input, self.chains.len()).collect()),
            Some(widths) => {
                check_columns(widths, self.chains.len(), input.shape())?;
                ranges(widths.iter().copied()).map(|range| input.columns(range, 1.0)).collect()
            }
        }
    }

    pub(super) fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let inputs = self.inputs(input)?;
        let mut kept = List::with_room(2 * self.chains.len());
        let mut outputs = SmallVec::<[Tensor; FEW]>::new();
        for (index, (chain, input)) in self.chains.iter_mut().zip(inputs).enumerate() {
            let shape = *input.shape();
            // Each branch adds to the sum of those before it, so a layer may add while it computes.
            let sum = match self.join {
                Join::Sum => outputs.pop(),
                Join::Product | Join::Concat => None,
            };
            if let Some(sum) = &sum {
                check_fit(self.join, sum.shape(), index, &chain.output_shape(&shape)?)?;
            }
            let (output, saved) = chain.forward(ctx, input, sum)?;
            kept.push_of(shape, saved);
            outputs.push(output);
        }
        if self.keeps_outputs() {
            let outputs = outputs.iter().cloned();
            outputs.for_each(|output| kept.push(Kept::new(ctx, [output])));
        }
        Ok((joined(self.join, outputs)?, Kept::listed(ctx, kept)))
    }

    /// Whether backward needs the outputs of the branches.
    fn keeps_outputs(&self) -> bool {
        self.join == Join::Product && self.chains.len() > 1
    }

    pub(super) fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        if self.keeps_outputs() {
            return Ok(self.forward(ctx, input)?.1);
        }
        let inputs = self.inputs(input)?;
        let mut kept = List::with_room(self.chains.len());
        for (chain, input) in self.chains.iter_mut().zip(inputs) {
            let shape = *input.shape();
            kept.push_of(shape, chain.forward_again(ctx, input)?);
        }
        Ok(Kept::listed(ctx, kept))
    }

    pub(super) fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let inputs = self.inputs(input)?;
        let outputs = self.chains.iter_mut().zip(inputs);
        let outputs = outputs.map(|(chain, input)| chain.forward_next(past, input));
        joined(self.join, outputs.collect::<Result<_>>()?)
    }

    pub(super) fn backward_input(&mut self, mut saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let count = self.chains.len();
        let mut entries = saved.take_entries();
        let mut branches = SmallVec::<[(Kept, Shape); FEW]>::new();
        for entry in entries.by_ref().take(count) {
            branches.push((entry.kept, entry.input.expect("forward kept it with its shape")));
        }
        let outputs = entries.map(|entry| entry.kept.into_tensors());
        let outputs: SmallVec<[Tensor; FEW]> = outputs.map(|[output]| output).collect();
        let shapes = branches.iter().map(|(_, input)| *input);
        let grads = self.output_grads(grad, &outputs, shapes)?;
        drop(outputs);
        let mut pending = List::with_room(count);
        let mut input_grads = SmallVec::<[Option<Tensor>; FEW]>::new();
        // As in forward, if all branches have the whole input.
        let adds = self.input_gradient && self.widths.is_none();
        for ((chain, (kept, _)), grad) in self.chains.iter_mut().zip(branches).zip(grads) {
            let sum = match adds {
                true => input_grads.pop().flatten(),
                false => None,
            };
            let (input_grad, weight) = chain.backward_input(kept, grad, sum)?;
            pending.push(weight);
            input_grads.push(input_grad);
        }
        Ok((self.input_grad(input_grads)?, Kept::listed(ctx, pending)))
    }

    /// The gradient of each branch's output.
    fn output_grads(
        &self,
        grad: Tensor,
        outputs: &[Tensor],
        inputs: impl Iterator<Item = Shape>,
    ) -> Result<SmallVec<[Tensor; FEW]>> {
        let count = self.chains.len();
        match self.join {
            Join::Concat if count > 1 => {
                let shapes = self.chains.iter().zip(inputs);
                let shapes = shapes.map(|(chain, input)| chain.output_shape(&input));
                let widths: SmallVec<[usize; FEW]> =
                    shapes.map(|shape| Ok(shape?.last())).collect::<Result<_>>()?;
                ranges(widths.iter().copied()).map(|range| grad.columns(range, 1.0)).collect()
            }
            Join::Product if count > 1 => {
                let of_branch = |branch: usize| {
                    let mut product = grad.clone();
                    let others = outputs.iter().enumerate().filter(|(other, _)| *other != branch);
                    others.map(|(_, output)| output).try_for_each(|output| product.multiply(output))?;
                    Ok(product)
                };
                (0..count).map(of_branch).collect()
            }
            _ => Ok(repeat_n(grad, count).collect()),
        }
    }

    /// The gradient of the input, from the gradients of the branches' inputs. A branch may have none, because
    /// its output does not depend on its input, or because nobody uses the gradient.
    fn input_grad(&self, grads: SmallVec<[Option<Tensor>; FEW]>) -> Result<Option<Tensor>> {
        if !self.input_gradient {
            return Ok(None);
        }
        let Some(widths) = &self.widths else {
            return Ok(grads.into_iter().next().flatten());
        };
        let Some(some) = grads.iter().flatten().next() else {
            return Ok(None);
        };
        let shape = *some.shape();
        let place = some.place();
        let mut all = some.beside(shape.with_last(widths.iter().sum()).dims())?;
        for (range, grad) in ranges(widths.iter().copied()).zip(&grads) {
            match grad {
                Some(grad) => all.put_columns(range, grad)?,
                None => {
                    let zeros = Tensor::zeros(shape.with_last(range.len()).dims());
                    all.put_columns(range, &zeros.to(place)?)?;
                }
            }
        }
        Ok(Some(all))
    }

    pub(super) fn backward_weight(&mut self, mut pending: Kept) -> Result<()> {
        let mut chains = self.chains.iter_mut().zip(pending.take_inner());
        chains.try_for_each(|(chain, kept)| chain.backward_weight(kept))
    }
}

/// Columns of these widths, from left to right.
fn ranges(widths: impl Iterator<Item = usize>) -> impl Iterator<Item = Range<usize>> {
    widths.scan(0, |end, width| {
        let start = *end;
        *end += width;
        Some(start..*end)
    })
}

/// Fails unless each branch has columns, and all together have as many as the input.
fn check_columns(widths: &[usize], branches: usize, input: &Shape) -> Result<()> {
    check_numbers(input)?;
    let all: usize = widths.iter().sum();
    let wrong = if widths.len() != branches {
        format!("there are {branches} branches and {} widths", widths.len())
    } else if widths.contains(&0) {
        "a width is 0".to_owned()
    } else if input.dims().is_empty() || all != input.last() {
        format!("the widths add up to {all}")
    } else {
        return Ok(());
    };
    Err(Error::new(format!("the branches get columns {widths:?} of {input}: {wrong}")))
}

/// Fails unless the output of branch `index` can be joined with the output of the first branch.
fn check_fit(join: Join, first: &Shape, index: usize, other: &Shape) -> Result<()> {
    check_numbers(first)?;
    check_numbers(other)?;
    let (fits, how) = match join {
        Join::Sum => (other == first, "what is added must have one shape"),
        Join::Product => (other == first, "what is multiplied must have one shape"),
        Join::Concat => {
            let rows = |shape: &Shape| !shape.dims().is_empty() && shape.with_last(0) == first.with_last(0);
            (!first.dims().is_empty() && rows(other), "what is put side by side must have the same rows")
        }
    };
    if fits {
        return Ok(());
    }
    Err(misfit(how, first, index, other))
}

/// The shape of joined outputs of these shapes.
fn joined_shape(join: Join, shapes: impl IntoIterator<Item = Result<Shape>>) -> Result<Shape> {
    let mut shapes = shapes.into_iter();
    let Some(first) = shapes.next().transpose()? else {
        return Err(Error::new("a block needs a branch; one without layers gives its input"));
    };
    let mut all = first;
    for (index, other) in (1..).zip(shapes) {
        let other = other?;
        check_fit(join, &first, index, &other)?;
        if join == Join::Concat {
            all = all.with_last(all.last() + other.last());
        }
    }
    Ok(all)
}

/// The outputs of branches as one tensor.
fn joined(join: Join, outputs: SmallVec<[Tensor; FEW]>) -> Result<Tensor> {
    let shape = joined_shape(join, outputs.iter().map(|output| Ok(*output.shape())))?;
    if join == Join::Concat && outputs.len() > 1 {
        let mut all = outputs[0].beside(shape.dims())?;
        let widths = outputs.iter().map(|output| output.shape().last());
        let mut outputs = ranges(widths).zip(&outputs);
        outputs.try_for_each(|(range, output)| all.put_columns(range, output))?;
        return Ok(all);
    }
    let mut outputs = outputs.into_iter();
    let mut all = outputs.next().expect("checked: a block has a branch");
    outputs.try_for_each(|output| match join {
        Join::Product => all.multiply(&output),
        Join::Sum | Join::Concat => all.add(&output),
    })?;
    Ok(all)
}
