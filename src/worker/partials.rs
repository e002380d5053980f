//! A stage's sums of earlier gradient groups, while it works on later ones.

use pipewright_stages::{Gradient, Parameter, Stage};

use crate::error::Result;
use crate::groups::Node;

/// The sums that wait for a later one, in the order of their groups. The sum that is being made is in the
/// parameters.
#[derive(Debug, Default)]
pub(super) struct Partials {
    waiting: Vec<(Node, Vec<Gradient>)>,
    /// Memory of sums that were added to a later one.
    spare: Vec<Vec<Gradient>>,
}

/// What follows a gradient group on the same replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another group.
    Group,
    /// Nothing, and other replicas have further groups.
    Replicas,
    /// Nothing: this was the last group of the batch.
    Nothing,
}

impl Partials {
    /// The stage has added up the gradients of a group. Adds the sums that wait for it, by the tree.
    pub(super) fn close<S: Stage>(&mut self, stage: &mut S, group: u32, next: Next) -> Result<()> {
        let mut node = Node::of_group(group);
        let mut from = self.waiting.len();
        while let Some(before) = from.checked_sub(1)
            && let Some(parent) = node.parent_after(self.waiting[before].0)
        {
            (node, from) = (parent, before);
        }
        if next == Next::Nothing {
            from = 0;
        }
        let earlier = &self.waiting[from..];
        visit(stage, |index, parameter| {
            let latest_first = earlier.iter().rev().map(|(_, sums)| &sums[index]);
            Ok(Gradient::add_in_turn(latest_first, parameter)?)
        })?;
        self.spare
            .extend(self.waiting.drain(from..).map(|(_, sums)| sums));
        if next == Next::Group {
            let sums = self.put_aside(stage)?;
            self.waiting.push((node, sums));
        }
        Ok(())
    }

    /// Takes the sums out of the parameters, which start again at zero.
    fn put_aside<S: Stage>(&mut self, stage: &mut S) -> Result<Vec<Gradient>> {
        let mut sums = self.spare.pop().unwrap_or_default();
        visit(stage, |index, parameter| {
            if sums.len() == index {
                sums.push(Gradient::beside(parameter)?);
            }
            Ok(sums[index].trade(parameter)?)
        })?;
        Ok(sums)
    }

    /// The sums that wait, in the order of their groups.
    pub(super) fn waiting(&self) -> &[(Node, Vec<Gradient>)] {
        &self.waiting
    }

    /// Forgets the sums: they have been added up, or are of no use.
    pub(super) fn clear(&mut self) {
        self.spare.extend(self.waiting.drain(..).map(|(_, sums)| sums));
    }
}

/// Calls `act` with each parameter and its place in the stage. Only gradients may change.
pub(super) fn visit<S: Stage>(
    stage: &mut S,
    mut act: impl FnMut(usize, &mut Parameter) -> Result<()>,
) -> Result<()> {
    let (mut index, mut result) = (0, Ok(()));
    stage.visit_gradients(&mut |parameter| {
        if result.is_ok() {
            result = act(index, parameter);
        }
        index += 1;
    });
    result
}
