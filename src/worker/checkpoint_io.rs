//! A rank's weights: written to checkpoints, read from them, and hashed.

use std::sync::{Arc, Mutex, PoisonError};

use pipewright_stages::devices::name_and_memory;
use pipewright_stages::optimizer::{StateTensor, states_of};
use pipewright_stages::{Device, Parameter, Part, Shard, Stage};
use sha2::{Digest, Sha256};

use super::Worker;
use super::parameters::{Built, ParameterInfo, Site, Tie};
use super::progress::WaitsFor;
use super::strategy::Topic;
use crate::checkpoint::{Checkpoint, Copies, Draft, Held, Kept, Written, checksum};
use crate::error::Result;
use crate::fabric::{Call, Tag};
use crate::id::{Axis, StageId, WorldRank};

/// Is shown a parameter: its name, its weights and the tensors of the optimizer.
type Show<'a> = dyn FnMut(&str, Kept<'_>, &[&[u8]]) + 'a;

impl<S: Stage> Worker<S> {
    /// This rank's parameters, in layer order.
    ///
    /// # Errors
    /// Whatever a GPU reports.
    fn parameters(&mut self) -> Result<Vec<ParameterInfo>> {
        let rank = self.at.rank;
        let compared = self.share.replicas() > 1 || self.plan.shards() > 1;
        let mut all = Vec::new();
        for chunk in &mut self.chunks {
            let mut layers = chunk.stage.parameter_layers().into_iter();
            for (index, parameter) in chunk.stage.parameters().into_iter().enumerate() {
                if compared {
                    parameter.fetch(Part::Value)?;
                }
                all.push(ParameterInfo {
                    name: parameter.name().to_owned(),
                    shard: parameter.shard(),
                    is_tied: parameter.is_tied(),
                    is_trained: !parameter.is_frozen(),
                    is_optimized: parameter.is_optimized(),
                    is_quantised: parameter.quantisation().is_some(),
                    layer: layers.next(),
                    dims: parameter.whole_dims().to_vec(),
                    fused: parameter.whole_fused().to_vec(),
                    site: Site { rank, stage: chunk.id, index },
                    weights: compared.then(|| checksum(parameter)),
                });
            }
        }
        Ok(all)
    }

    /// What this rank has built.
    ///
    /// # Errors
    /// As for [`Worker::parameters`].
    pub(crate) fn built(&mut self) -> Result<Built> {
        let parameters = self.parameters()?;
        let layers = self.chunks.iter().map(|chunk| (chunk.id, chunk.stage.layer_names())).collect();
        let gpu = match self.plan.mesh.place(self.transport.rank()).device {
            Device::Cuda(index) if self.plan.shards() > 1 => Some(name_and_memory(index)?.0),
            _ => None,
        };
        Ok(Built { parameters, layers, gpu })
    }

    /// Writes this rank's parameters into a checkpoint and returns their checksums, or why they cannot be
    /// written. See [`Worker::each_whole`] for which these are.
    ///
    /// # Errors
    /// Whatever a GPU or the transport reports. Then other ranks may wait for this one, so it cannot
    /// continue.
    pub(crate) fn write(&mut self, call: Call, draft: &Draft) -> Result<Result<Vec<Written>>> {
        let mut writer = None;
        let mut written = Ok(());
        self.each_whole(call, &mut |name, value, states| {
            // After an error the others' parts are still taken: they wait until theirs are.
            if let (Ok(writer), Ok(())) = (writer.get_or_insert_with(|| draft.open()), &written) {
                written = writer.write(name, value, states);
            }
        })?;
        Ok(written.and_then(|()| match writer {
            Some(writer) => writer?.finish(),
            None => Ok(Vec::new()),
        }))
    }

    /// Copies this rank's parameters. See [`Worker::each_whole`] for which these are.
    ///
    /// # Errors
    /// Whatever a GPU or the transport reports.
    pub(crate) fn copy(&mut self, call: Call, copies: &Mutex<Copies>) -> Result<()> {
        let mut copies = copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.clear();
        self.each_whole(call, &mut |name, value, states| copies.add(name, value, states))
    }

    /// Shows this rank's parameters with their whole optimizer states, as a checkpoint has them: name,
    /// weights and states. A tied parameter is shown at its first site. Only the first replica shows them;
    /// with a sharded optimizer the others send it their parts of the state, one parameter at a time. Of
    /// several shards, only the first one shows them, and the others send it their parts.
    ///
    /// # Errors
    /// Whatever a GPU or the transport reports.
    fn each_whole(&mut self, call: Call, show: &mut Show<'_>) -> Result<()> {
        self.transport.begin(call)?;
        if self.share.replica > 0 && !self.plan.is_sharded() {
            return Ok(());
        }
        for chunk in &mut self.chunks {
            chunk.stage.try_visit_parameters(&mut |parameter| {
                parameter.fetch(Part::Value)?;
                parameter.fetch(Part::State)
            })?;
        }
        let sites = self.first_sites();
        if self.share.replica > 0 {
            return sites.into_iter().try_for_each(|site| self.give_state(site));
        }
        for site in sites {
            self.meter.progress.advance();
            let whole = self.whole_state(site)?;
            let tensors = self.state_tensors(site);
            let parameter = self.chunk(site.stage).parameter(site.index);
            let here = |whole: Option<Vec<Vec<u8>>>, parameter: &Parameter| {
                whole.unwrap_or_else(|| {
                    let stored = tensors.iter().enumerate();
                    stored.map(|(index, tensor)| parameter.stored_state(index, tensor).to_vec()).collect()
                })
            };
            if parameter.shard() != Shard::WHOLE {
                let formats = tensors.iter().map(|tensor| tensor.format);
                let states = formats.clone().zip(here(whole, parameter));
                let states = states.map(|(format, bytes)| format.numbers(&bytes));
                let own = std::iter::once(parameter.value.to_vec()).chain(states).collect();
                if let Some(all) = self.of_all_shards(site, own)? {
                    let [value, states @ ..] = &all[..] else { unreachable!("it has a value") };
                    let states: Vec<Vec<u8>> =
                        formats.zip(states).map(|(format, numbers)| format.stored(numbers)).collect();
                    let states: Vec<&[u8]> = states.iter().map(Vec::as_slice).collect();
                    let name = self.chunk(site.stage).parameter(site.index).name();
                    show(name, Kept::Numbers(value), &states);
                }
                continue;
            }
            if self.at.shard > 0 {
                continue;
            }
            let parameter = self.chunk(site.stage).parameter(site.index);
            let stored = tensors.iter().enumerate();
            let states: Vec<&[u8]> = match &whole {
                Some(whole) => whole.iter().map(Vec::as_slice).collect(),
                None => stored.map(|(index, tensor)| parameter.stored_state(index, tensor)).collect(),
            };
            show(parameter.name(), Kept::of(parameter), &states);
        }
        Ok(())
    }

    /// Tensors of a parameter that is divided, with the parts of all shards: on the first shard. The others
    /// send it theirs, one parameter at a time.
    fn of_all_shards(&mut self, site: Site, own: Vec<Vec<f32>>) -> Result<Option<Vec<Vec<f32>>>> {
        let ranks: Vec<WorldRank> = self.plan.mesh.group(Axis::Tensor, self.transport.rank()).collect();
        let tag = Topic::Shard.tag(site.stage);
        if self.at.shard > 0 {
            self.transport.send_bytes(ranks[0], tag, bytemuck::cast_slice(&own.concat()).to_vec())?;
            return self.await_block(ranks[0], tag).map(|_| None);
        }
        let parameter = self.chunk(site.stage).parameter(site.index);
        let count = parameter.whole_dims().iter().product();
        let mut all = vec![vec![0.0; count]; own.len()];
        for (whole, own) in all.iter_mut().zip(&own) {
            parameter.put_in_whole(0, own, whole);
        }
        for (shard, &peer) in (1..).zip(&ranks[1..]) {
            let block = self.await_block(peer, tag)?;
            self.transport.send_bytes(peer, tag, Vec::new())?;
            let numbers: Vec<f32> =
                block.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            let parts = numbers.chunks_exact((numbers.len() / all.len()).max(1));
            let parameter = self.chunk(site.stage).parameter(site.index);
            for (whole, part) in all.iter_mut().zip(parts) {
                parameter.put_in_whole(shard, part, whole);
            }
        }
        Ok(Some(all))
    }

    /// The whole weights of this rank's parameters that are divided, on its first shard: for
    /// [`Worker::hash`].
    ///
    /// # Errors
    /// Whatever the transport reports.
    pub(crate) fn gather_shards(&mut self, call: Call) -> Result<()> {
        self.transport.begin(call)?;
        self.gathered.clear();
        if self.share.replica > 0 {
            return Ok(());
        }
        for site in self.first_sites() {
            let parameter = self.chunk(site.stage).parameter(site.index);
            if parameter.shard() != Shard::WHOLE {
                parameter.fetch(Part::Value)?;
                let own = vec![parameter.value.to_vec()];
                if let Some(mut all) = self.of_all_shards(site, own)? {
                    self.gathered.insert((site.stage, site.index), all.swap_remove(0));
                }
            }
        }
        Ok(())
    }

    /// The sites of this rank's parameters. A tied parameter counts only at its first site.
    fn first_sites(&mut self) -> Vec<Site> {
        let (rank, ties) = (self.at.rank, &self.ties);
        let mut sites = Vec::new();
        for chunk in &mut self.chunks {
            let count = chunk.stage.parameters().len();
            let stage = chunk.id;
            let all = (0..count).map(|index| Site { rank, stage, index });
            sites.extend(all.filter(|site| ties.iter().all(|tie| !tie.sites[1..].contains(site))));
        }
        sites
    }

    /// Sends the first replica this replica's part of a parameter's optimizer state.
    fn give_state(&mut self, site: Site) -> Result<()> {
        let tensors = self.state_tensors(site);
        let parameter = self.chunk(site.stage).parameter(site.index);
        let stored = tensors.iter().enumerate();
        let parts: Vec<&[u8]> = stored.map(|(index, tensor)| parameter.stored_state(index, tensor)).collect();
        let block = parts.concat();
        let (first, tag) = (self.share.rank(0), Topic::State.tag(site.stage));
        self.transport.send_bytes(first, tag, block)?;
        // So the first replica has one parameter's state at a time.
        self.await_block(first, tag).map(drop)
    }

    /// The optimizer's tensors for a parameter: none before the first step.
    fn state_tensors(&mut self, site: Site) -> Vec<StateTensor> {
        let optimizer = Arc::clone(&self.plan.optimizer);
        let parameter = self.chunk(site.stage).parameter(site.index);
        match parameter.state.is_empty() {
            true => Vec::new(),
            false => states_of(&*optimizer, parameter),
        }
    }

    /// A parameter's optimizer state, as bytes, with the parts of all replicas. `None` if this replica has
    /// all of it.
    fn whole_state(&mut self, site: Site) -> Result<Option<Vec<Vec<u8>>>> {
        if !self.plan.is_sharded() {
            return Ok(None);
        }
        let tensors = self.state_tensors(site);
        let parameter = self.chunk(site.stage).parameter(site.index);
        let (owned, dims) = (parameter.owned(), parameter.dims().to_vec());
        let mut whole: Vec<Vec<u8>> = tensors.iter().map(|tensor| vec![0; tensor.bytes()]).collect();
        for (index, (whole, tensor)) in whole.iter_mut().zip(&tensors).enumerate() {
            whole[tensor.bytes_of(&owned, &dims)].copy_from_slice(parameter.stored_state(index, tensor));
        }
        for replica in self.share.others() {
            let (peer, tag) = (self.share.rank(replica), Topic::State.tag(site.stage));
            let block = self.await_block(peer, tag)?;
            self.transport.send_bytes(peer, tag, Vec::new())?;
            let theirs = self.chunk(site.stage).slices.owned(site.index, replica);
            let mut rest = &block[..];
            for (whole, tensor) in whole.iter_mut().zip(&tensors) {
                let places = tensor.bytes_of(&theirs, &dims);
                let (part, after) = rest.split_at(places.len());
                whole[places].copy_from_slice(part);
                rest = after;
            }
        }
        Ok(Some(whole))
    }

    fn await_block(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        let (progress, transport) = (&self.meter.progress, &mut self.transport);
        progress.during(WaitsFor::Rank(peer), || transport.recv_bytes(peer, tag))
    }

    /// Compares all that [`Worker::read`] will read with its checksums. No weight changes.
    ///
    /// # Errors
    /// As for [`Worker::read`].
    pub(crate) fn verify(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let parameters = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        let parameters: Vec<&Parameter> = parameters.map(|parameter| &*parameter).collect();
        checkpoint.verify_parameters(&parameters, &*self.plan.optimizer)
    }

    /// Reads this rank's parameters from a checkpoint. It must hold exactly the model's parameters.
    ///
    /// # Errors
    /// [`crate::Error::Checkpoint`] for a tensor that has changed since it was saved, and
    /// [`crate::Error::Io`].
    pub(crate) fn read(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let progress = &self.meter.progress;
        let parameters = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        checkpoint.read(parameters.inspect(|_| progress.advance()), &*self.plan.optimizer)?;
        self.store()
    }

    /// Takes the parameters of new stages from what all ranks had. `ties` and `first_trained` are theirs.
    ///
    /// # Errors
    /// [`crate::error::CallError`] for a parameter that no rank had. Whatever a GPU reports.
    pub(crate) fn take(&mut self, held: &Held, ties: Vec<Tie>, first_trained: StageId) -> Result<()> {
        self.join(ties, first_trained);
        let progress = &self.meter.progress;
        let parameters = self.chunks.iter_mut().flat_map(|chunk| chunk.stage.parameters());
        held.fill(parameters.inspect(|_| progress.advance()), &*self.plan.optimizer)?;
        self.store()?;
        self.follow_leaders(|_| true)
    }

    /// Brings weights and optimizer state to where they are used.
    fn store(&mut self) -> Result<()> {
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
            if let Some(whole) = self.gathered.remove(&(site.stage, site.index)) {
                hash.update(bytemuck::cast_slice::<f32, u8>(&whole));
                continue;
            }
            let parameter: &mut Parameter = self.chunk(site.stage).parameter(site.index);
            parameter.fetch(Part::Value)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&parameter.numbers()));
        }
        Ok(hash)
    }
}
