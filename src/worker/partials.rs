//! The sums of a stage's earlier gradient groups, while it works on later ones.

use std::ops::Range;

use pipewright_stages::{Parameter, Stage, Together};

use crate::error::Result;
use crate::groups::Node;

/// Which sums of some parameters wait for a later one, in the order of their groups. Their numbers, and the
/// sum that is being made, are in the parameters.
#[derive(Debug)]
pub(super) struct Partials {
    /// The places of the parameters in the stage.
    parameters: Range<usize>,
    waiting: Vec<Node>,
    /// Whether each sum is rounded to 16 bits.
    are_short: bool,
}

/// What follows a gradient group on the same replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterGroup {
    /// Another group.
    Group,
    /// Nothing, and other replicas have further groups.
    Replicas,
    /// Nothing: this was the last group of the batch.
    Nothing,
}

impl Partials {
    /// Of the parameters at these places, before the first group.
    pub(super) fn of(parameters: Range<usize>, are_short: bool) -> Self {
        Self { parameters, waiting: Vec::new(), are_short }
    }

    /// Whether there are no parameters.
    pub(super) fn is_of_none(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The stage's next gradients are the last ones of a group. The sums that wait for this group are added
    /// to it, by the tree: where a layer can, while it adds its gradient.
    pub(super) fn expect_end<S: Stage>(&self, stage: &mut S, group: u32, next: AfterGroup) {
        let newest = self.waiting.len() - self.joined(group, next).1;
        if newest > 0 && !self.are_short {
            let mut places = 0..;
            stage.visit_gradients(&mut |parameter| {
                if places.next().is_some_and(|place| self.parameters.contains(&place)) {
                    parameter.expect_end(newest);
                }
            });
        }
    }

    /// The stage has added up the gradients of a group, over all shards.
    pub(super) fn end_group<S: Stage>(
        &mut self,
        stage: &mut S,
        (group, next): (u32, AfterGroup),
        together: &mut Together,
    ) -> Result<()> {
        let (node, left) = self.joined(group, next);
        let newest = self.waiting.len() - left;
        self.waiting.truncate(left);
        visit(stage, |place, parameter| {
            if !self.parameters.contains(&place) {
                return Ok(());
            }
            match self.are_short {
                true => parameter.end_rounded_group(newest)?,
                false => parameter.end_group()?,
            }
            match next {
                AfterGroup::Group => Ok(parameter.put_aside(together)?),
                AfterGroup::Replicas | AfterGroup::Nothing => Ok(()),
            }
        })?;
        together.launch()?;
        if next == AfterGroup::Group {
            self.waiting.push(node);
        }
        Ok(())
    }

    /// The stage has the gradient of one micro-batch, over all shards. It is kept apart until the end of the
    /// step.
    pub(super) fn keep_apart<S: Stage>(&self, stage: &mut S, together: &mut Together) -> Result<()> {
        visit(stage, |place, parameter| match self.parameters.contains(&place) {
            true => Ok(parameter.keep_apart(together)?),
            false => Ok(()),
        })
    }

    /// Adds the gradients of a group's micro-batches that were kept apart, each times its factor, and ends
    /// the group.
    pub(super) fn add_apart<S: Stage>(
        &mut self,
        stage: &mut S,
        ended: (u32, AfterGroup),
        factors: &[f32],
        together: &mut Together,
    ) -> Result<()> {
        let (group, next) = ended;
        self.expect_end(stage, group, next);
        visit(stage, |place, parameter| match self.parameters.contains(&place) {
            true => Ok(parameter.add_apart(factors)?),
            false => Ok(()),
        })?;
        self.end_group(stage, ended, together)
    }

    /// The sum that a group's end makes, and how many of the older ones are left.
    fn joined(&self, group: u32, next: AfterGroup) -> (Node, usize) {
        let mut node = Node::of_group(group);
        let mut left = self.waiting.len();
        while let Some(before) = left.checked_sub(1)
            && let Some(parent) = node.parent_after(self.waiting[before])
        {
            (node, left) = (parent, before);
        }
        match next {
            AfterGroup::Nothing => (node, 0),
            AfterGroup::Group | AfterGroup::Replicas => (node, left),
        }
    }

    /// Forgets the sums: they have been added up, or are of no use.
    pub(super) fn clear<S: Stage>(&mut self, stage: &mut S) {
        if !self.waiting.is_empty() {
            self.waiting.clear();
            stage.visit_gradients(&mut Parameter::forget_sums);
        }
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
