//! A rank's weights: written to checkpoints, read from them, and hashed.

use pipewright_stages::{Parameter, Part, Stage};
use sha2::{Digest, Sha256};

use super::Worker;
use super::parameters::{ParameterInfo, Site};
use crate::checkpoint::{Checkpoint, Draft, Written};
use crate::error::Result;

impl<S: Stage> Worker<S> {
    /// This rank's parameters, in layer order.
    pub(crate) fn parameters(&mut self) -> Vec<ParameterInfo> {
        let rank = self.rank;
        let mut all = Vec::new();
        for chunk in &mut self.chunks {
            let mut layers = chunk.stage.parameter_layers().into_iter();
            for (index, parameter) in chunk.stage.parameters().into_iter().enumerate() {
                all.push(ParameterInfo {
                    name: parameter.name().to_owned(),
                    shard: parameter.shard(),
                    is_tied: parameter.is_tied(),
                    layer: layers.next(),
                    dims: parameter.dims().to_vec(),
                    site: Site {
                        rank,
                        stage: chunk.id,
                        index,
                    },
                });
            }
        }
        all
    }

    /// Writes this rank's parameters into a checkpoint and returns their checksums. A tied parameter is
    /// written at its first site.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub(crate) fn write(&mut self, draft: &Draft) -> Result<Vec<Written>> {
        for chunk in &mut self.chunks {
            chunk.stage.try_visit_parameters(&mut |parameter| {
                parameter.fetch(Part::Value)?;
                parameter.fetch(Part::State)
            })?;
        }
        let ties = &self.ties;
        let copy = |site| ties.iter().any(|tie| tie.sites[1..].contains(&site));
        let rank = self.rank;
        let parameters = self.chunks.iter_mut().flat_map(|chunk| {
            let stage = chunk.id;
            let own = chunk.stage.parameters().into_iter().enumerate();
            own.filter(move |(index, _)| {
                !copy(Site {
                    rank,
                    stage,
                    index: *index,
                })
            })
        });
        draft.write(parameters.map(|(_, parameter)| &*parameter))
    }

    /// Compares all that [`Worker::read`] will read with its checksums. No weight changes.
    ///
    /// # Errors
    /// As for [`Worker::read`].
    pub(crate) fn verify(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let states = self.optimizer.state_names();
        let parameters = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        let names: Vec<&str> = parameters.map(|parameter| parameter.name()).collect();
        checkpoint.verify_parameters(&names, states)
    }

    /// Reads this rank's parameters from a checkpoint. It must hold exactly the model's parameters.
    ///
    /// # Errors
    /// [`crate::Error::Checkpoint`] for a tensor that has changed since it was saved, and
    /// [`crate::Error::Io`].
    pub(crate) fn read(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let states = self.optimizer.state_names();
        let parameters = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        checkpoint.read(parameters, states)?;
        for chunk in &mut self.chunks {
            chunk.stage.try_visit_parameters(&mut |parameter| {
                parameter.store(Part::Value)?;
                parameter.store(Part::State)
            })?;
        }
        Ok(())
    }

    /// Adds the weights at these sites to a hash, in the given order.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    pub(crate) fn hash(&mut self, mut hash: Sha256, sites: &[Site]) -> Result<Sha256> {
        for site in sites {
            let parameter: &mut Parameter = self.chunk(site.stage).parameter(site.index);
            parameter.fetch(Part::Value)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&parameter.value));
        }
        Ok(hash)
    }
}
