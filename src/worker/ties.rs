//! Parameters that several layers hold.

use pipewright_stages::{Gradient, Parameter, Part, Stage};

use super::{Site, Worker};
use crate::error::Result;
use crate::id::Rank;

/// One parameter that several layers hold: gradients are summed over the sites in layer order, and the copies stay equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The name all sites share.
    pub(crate) name: String,
    /// Two or more sites, in layer order. The first one's rank adds up.
    pub(crate) sites: Vec<Site>,
}

impl Tie {
    /// The sites on one rank.
    fn on(&self, rank: Rank) -> impl Iterator<Item = Site> {
        self.sites.iter().copied().filter(move |site| site.rank == rank)
    }

    /// The ranks of the sites but the first one's, each once.
    fn others(&self) -> impl Iterator<Item = Rank> {
        let sites = self.sites.iter().enumerate();
        let new =
            sites.filter(|(index, site)| self.sites[..*index].iter().all(|other| other.rank != site.rank));
        new.skip(1).map(|(_, site)| site.rank)
    }

    /// Where the numbers of the site of this index are: the block of its rank among those of the others, and the place in it.
    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let rank = self.sites[index].rank;
        let block = self.others().position(|other| other == rank)?;
        let before = self.sites[..index].iter().filter(|site| site.rank == rank);
        Some((block, before.count()))
    }
}

impl<S: Stage> Worker<S> {
    /// Takes note of the tied parameters; their copies start from the first site's weights.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`].
    pub(crate) fn tie(&mut self, ties: Vec<Tie>) -> Result<()> {
        self.ties = ties;
        self.for_each_tie(|worker, tie| {
            let first = tie.sites[0];
            if first.rank == worker.rank {
                worker.spread_weights(tie)
            } else {
                worker.take_weights(tie)
            }
        })
    }

    /// Sums the gradients of each tied parameter over its sites. A rank sends one block of the gradients of its sites and gets one
    /// of their sum, so the memory of blocks is used again.
    pub(super) fn sum_tied_gradients(&mut self) -> Result<()> {
        self.for_each_tie(|worker, tie| {
            let first = tie.sites[0];
            if first.rank == worker.rank {
                // It is put back, or the rank stops.
                let mut total = Gradient::take(worker.parameter(first));
                worker.add_gradients(tie, &mut total)?;
                worker.spread_gradient(tie, &total)?;
                total.put_back(worker.parameter(first));
                return Ok(());
            }
            let mut block = worker.empty_block();
            for site in tie.on(worker.rank) {
                let gradient = Gradient::take(worker.parameter(site));
                gradient.append_to(&mut block)?;
                gradient.put_back(worker.parameter(site));
            }
            worker.transport.send_bytes(first.rank, block)?;
            worker.take_gradient(tie)
        })
    }

    /// Runs over the ties this rank has a part in, in the one order all ranks share.
    fn for_each_tie(&mut self, mut action: impl FnMut(&mut Self, &Tie) -> Result<()>) -> Result<()> {
        let ties = std::mem::take(&mut self.ties);
        let rank = self.rank;
        let mut mine = ties.iter().filter(|tie| tie.on(rank).next().is_some());
        let result = mine.try_for_each(|tie| action(self, tie));
        self.ties = ties;
        result
    }

    /// Adds the gradients of all sites after the first, in layer order.
    fn add_gradients(&mut self, tie: &Tie, total: &mut Gradient) -> Result<()> {
        let start = self.blocks.len();
        for peer in tie.others() {
            let block = self.block_from(peer)?;
            self.blocks.push(block);
        }
        for (index, &site) in tie.sites.iter().enumerate().skip(1) {
            match tie.place(index) {
                None => total.add(self.parameter(site))?,
                Some((block, place)) => {
                    let size =
                        size_of::<f32>() * self.parameter(tie.sites[0]).dims().iter().product::<usize>();
                    total.add_numbers(&self.blocks[start + block][place * size..][..size])?;
                }
            }
        }
        Ok(())
    }

    /// Gives the summed gradient to all other sites.
    fn spread_gradient(&mut self, tie: &Tie, total: &Gradient) -> Result<()> {
        for site in tie.on(self.rank).skip(1) {
            total.copy_to(self.parameter(site))?;
        }
        for peer in tie.others() {
            let mut block = self.empty_block();
            total.append_to(&mut block)?;
            self.transport.send_bytes(peer, block)?;
        }
        Ok(())
    }

    fn take_gradient(&mut self, tie: &Tie) -> Result<()> {
        let block = self.block_from(tie.sites[0].rank)?;
        for site in tie.on(self.rank) {
            self.parameter(site).set_grad(&block)?;
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Gives the first site's weights to all other sites.
    fn spread_weights(&mut self, tie: &Tie) -> Result<()> {
        let first = self.parameter(tie.sites[0]);
        first.fetch(Part::Value)?;
        let weights = bytemuck::cast_slice(&first.value).to_vec();
        for site in tie.on(self.rank).skip(1) {
            set_weights(self.parameter(site), &weights)?;
        }
        for peer in tie.others() {
            self.transport.send_bytes(peer, weights.clone())?;
        }
        Ok(())
    }

    fn take_weights(&mut self, tie: &Tie) -> Result<()> {
        let weights = self.block_from(tie.sites[0].rank)?;
        for site in tie.on(self.rank) {
            set_weights(self.parameter(site), &weights)?;
        }
        Ok(())
    }

    fn block_from(&mut self, peer: Rank) -> Result<Vec<u8>> {
        let transport = &mut self.transport;
        self.meter.wait(|| transport.recv_bytes(peer))
    }

    fn empty_block(&mut self) -> Vec<u8> {
        let mut block = self.blocks.pop().unwrap_or_default();
        block.clear();
        block
    }

    fn parameter(&mut self, site: Site) -> &mut Parameter {
        self.slot(site.stage).parameter(site.index)
    }
}

fn set_weights(parameter: &mut Parameter, bytes: &[u8]) -> Result<()> {
    let numbers = bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
    parameter
        .value
        .iter_mut()
        .zip(numbers)
        .for_each(|(number, new)| *number = new);
    Ok(parameter.store(Part::Value)?)
}
