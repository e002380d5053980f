//! The stages of a rank use the same memory for their gradients, if they do their backwards one after the
//! other: see [`Parameter::lend_gradient`].

use pipewright_stages::{Device, Parameter, Stage, UnusedGradients};

use crate::worker::chunk::Chunk;
use crate::worker::plan::Plan;

/// How many stages of a rank have whole gradients at a time: one that adds to them, and the one before, whose
/// sum over the replicas may still be under way.
const AT_ONCE: usize = 2;

/// Whether the stages of a rank lend each other the memory of their gradients, and what is free of it.
#[derive(Debug, Default)]
pub(in crate::worker) struct Lending {
    is_possible: bool,
    is_on: bool,
    unused: UnusedGradients,
}

impl Lending {
    /// Stages can lend only where all replicas do a rank's stages in the same order, later ones first. Then a
    /// stage can wait for the sum of a later one, and no two replicas wait for each other.
    pub(in crate::worker) fn new(plan: &Plan) -> Self {
        let mut places = plan.mesh.world().map(|rank| plan.mesh.place(rank));
        let is_possible = plan.is_sharded()
            && plan.max_staleness() == 0
            && plan.privacy.is_none()
            && plan.shards() == 1
            && places.all(|place| place.device == Device::Cpu)
            && plan.schedules.iter().all(|schedule| schedule.goes_back_by_stage());
        Self { is_possible, ..Self::default() }
    }

    /// The stages have been built, and it is known what the replica owns. `is_tied`: by stage, and place of
    /// the parameter. The gradients of tied parameters are added to each other as a whole.
    pub(in crate::worker) fn join<S: Stage>(&mut self, chunks: &mut [Chunk<S>], is_tied: &[Vec<bool>]) {
        *self = Self { is_possible: self.is_possible, ..Self::default() };
        if !self.is_possible {
            return;
        }
        let (mut lent, mut own) = (vec![0; chunks.len()], 0);
        let mut visit = |act: &mut dyn FnMut(usize, &mut Parameter)| {
            for (place, (chunk, is_tied)) in chunks.iter_mut().zip(is_tied).enumerate() {
                let mut is_tied = is_tied.iter();
                chunk.stage.visit_gradients(&mut |parameter| {
                    if is_tied.next() == Some(&false) && parameter.may_lend_gradient() {
                        act(place, parameter);
                    }
                });
            }
        };
        visit(&mut |place, parameter| {
            lent[place] += parameter.trained();
            own += parameter.owned().len();
        });
        let at_once = lent.windows(AT_ONCE).map(|stages| stages.iter().sum::<usize>()).max();
        self.is_on = at_once.is_some_and(|at_once| own + at_once < lent.iter().sum());
        if self.is_on {
            visit(&mut |_, parameter| parameter.lend_gradient());
            chunks.iter_mut().for_each(|chunk| chunk.has_whole_gradients = false);
        }
    }

    /// Whether so many stages have whole gradients that another one has to wait.
    pub(in crate::worker) fn is_full<S: Stage>(chunks: &[Chunk<S>]) -> bool {
        chunks.iter().filter(|chunk| chunk.has_whole_gradients).count() >= AT_ONCE
    }

    /// A stage's first weight gradient comes next.
    pub(in crate::worker) fn begin<S: Stage>(&mut self, chunk: &mut Chunk<S>) {
        let unused = &mut self.unused;
        chunk.stage.visit_gradients(&mut |parameter| parameter.want_whole_gradient(unused));
        unused.free_unwanted();
        chunk.stage.visit_gradients(&mut |parameter| parameter.take_whole_gradient(unused));
        chunk.has_whole_gradients = true;
    }

    /// The sum of a stage's gradients over the replicas is there.
    pub(super) fn end<S: Stage>(&mut self, chunk: &mut Chunk<S>) {
        if self.is_on && chunk.has_whole_gradients {
            let unused = &mut self.unused;
            chunk.stage.visit_gradients(&mut |parameter| parameter.keep_own_gradient(unused));
            chunk.has_whole_gradients = false;
        }
    }
}
