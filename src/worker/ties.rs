//! Parameters that several layers hold.

use pipewright_stages::{AVec, Stage};

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

/// Which numbers of a tied parameter are meant.
#[derive(Clone, Copy)]
enum Part {
    Value,
    Gradient,
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
                let value = worker.numbers(first, Part::Value).to_vec();
                worker.spread(tie, Part::Value, &value)
            } else {
                worker.take_spread(tie, Part::Value)
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
                let mut total = std::mem::replace(worker.numbers(first, Part::Gradient), AVec::new(0));
                worker.add_gradients(tie, &mut total)?;
                worker.spread(tie, Part::Gradient, &total)?;
                *worker.numbers(first, Part::Gradient) = total;
                return Ok(());
            }
            let mut block = worker.empty_block();
            for site in tie.on(worker.rank) {
                block.extend_from_slice(bytemuck::cast_slice(worker.numbers(site, Part::Gradient)));
            }
            worker.transport.send_bytes(first.rank, block)?;
            worker.take_spread(tie, Part::Gradient)
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
    fn add_gradients(&mut self, tie: &Tie, total: &mut [f32]) -> Result<()> {
        let start = self.blocks.len();
        for peer in tie.others() {
            let transport = &mut self.transport;
            let block = self.meter.wait(|| transport.recv_bytes(peer))?;
            self.blocks.push(block);
        }
        for (index, &site) in tie.sites.iter().enumerate().skip(1) {
            match tie.place(index) {
                None => add(total, self.numbers(site, Part::Gradient).iter().copied()),
                Some((block, place)) => {
                    let size = size_of_val(total);
                    add(
                        total,
                        numbers_of(&self.blocks[start + block][place * size..][..size]),
                    );
                }
            }
        }
        Ok(())
    }

    /// Gives the first site's numbers to all other sites.
    fn spread(&mut self, tie: &Tie, part: Part, numbers: &[f32]) -> Result<()> {
        for site in tie.on(self.rank).skip(1) {
            self.numbers(site, part).copy_from_slice(numbers);
        }
        for peer in tie.others() {
            let mut block = self.empty_block();
            block.extend_from_slice(bytemuck::cast_slice(numbers));
            self.transport.send_bytes(peer, block)?;
        }
        Ok(())
    }

    fn take_spread(&mut self, tie: &Tie, part: Part) -> Result<()> {
        let transport = &mut self.transport;
        let block = self.meter.wait(|| transport.recv_bytes(tie.sites[0].rank))?;
        for site in tie.on(self.rank) {
            let numbers = self.numbers(site, part).iter_mut();
            numbers
                .zip(numbers_of(&block))
                .for_each(|(number, new)| *number = new);
        }
        self.blocks.push(block);
        Ok(())
    }

    fn empty_block(&mut self) -> Vec<u8> {
        let mut block = self.blocks.pop().unwrap_or_default();
        block.clear();
        block
    }

    fn numbers(&mut self, site: Site, part: Part) -> &mut AVec<f32> {
        let parameter = self.slot(site.stage).parameter(site.index);
        match part {
            Part::Value => &mut parameter.value,
            Part::Gradient => &mut parameter.grad,
        }
    }
}

fn add(total: &mut [f32], more: impl Iterator<Item = f32>) {
    for (number, other) in total.iter_mut().zip(more) {
        *number += other;
    }
}

fn numbers_of(block: &[u8]) -> impl Iterator<Item = f32> {
    block
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_ne_bytes(*bytes))
}
