//! Where a parameter on a GPU has the tensors of its optimizer.

use std::ops::Range;

use smallvec::SmallVec;

use crate::cuda::driver::Event;
use crate::cuda::memory::offload::Direction;
use crate::cuda::memory::passage::{BAY, Passing};
use crate::cuda::{Gpu, Memory, Pinned, Ptr};
use crate::error::{Purpose, Result};
use crate::parameter::state_format::StateFormat;
use crate::tensor::numbers::Numbers;

/// The bytes of a word.
const WORD: usize = size_of::<f32>();

/// The numbers of a block of threads, which are whole words and whole blocks in every format. Parts of a
/// parameter that pass alone begin at a multiple of it.
const GRAIN: usize = 1024;

/// The optimizer's tensors for the numbers that are owned. Each has whole words of 32 bits.
#[derive(Debug)]
pub(crate) enum StateMemory {
    OnDevice(Vec<Words<Memory>>),
    OnHost(StateOnHost),
}

/// A tensor, and how many words it has.
#[derive(Debug)]
pub(crate) struct Words<M> {
    pub(crate) memory: M,
    words: usize,
}

/// Tensors in page-locked memory of the host. They pass through the device while they are updated.
#[derive(Debug)]
pub(crate) struct StateOnHost {
    tensors: Vec<Words<Pinned>>,
    /// The end of the last copy from the device.
    copied: Event,
}

impl Default for StateMemory {
    fn default() -> Self {
        Self::OnDevice(Vec::new())
    }
}

impl StateMemory {
    /// A tensor for each number of words, all zeros.
    pub(crate) fn new(gpu: &Gpu, on_host: bool, words: impl Iterator<Item = usize>) -> Result<Self> {
        if on_host {
            let zeros = |words| {
                let memory = Pinned::new(words * WORD).map_err(|error| error.wanted_for(Purpose::State))?;
                Ok(Words { memory, words })
            };
            let tensors = words.map(zeros).collect::<Result<_>>()?;
            return Ok(Self::OnHost(StateOnHost { tensors, copied: Event::new(false)? }));
        }
        let zeros = |words| {
            let memory = gpu.lasting_memory_of(words * WORD)?;
            gpu.clear(memory.at(), words * WORD)?;
            Ok(Words { memory, words })
        };
        Ok(Self::OnDevice(words.map(zeros).collect::<Result<_>>()?))
    }

    /// How many words each tensor has.
    pub(crate) fn words(&self) -> SmallVec<[usize; 2]> {
        match self {
            Self::OnDevice(tensors) => tensors.iter().map(|tensor| tensor.words).collect(),
            Self::OnHost(state) => state.tensors.iter().map(|tensor| tensor.words).collect(),
        }
    }

    /// Copies numbers of the host there.
    pub(crate) fn store(&mut self, gpu: &Gpu, numbers: &[Numbers]) -> Result<()> {
        match self {
            Self::OnDevice(tensors) => {
                let mut pairs = tensors.iter().zip(numbers);
                pairs.try_for_each(|(to, from)| gpu.upload_to(to.memory.at(), bytemuck::cast_slice(from)))
            }
            Self::OnHost(state) => {
                state.copied.synchronize()?;
                let pairs = state.tensors.iter_mut().zip(numbers);
                pairs.for_each(|(to, from)| to.memory.write(bytemuck::cast_slice(from)));
                Ok(())
            }
        }
    }

    /// Copies the numbers from there. Waits for all work queued before.
    pub(crate) fn fetch(&self, gpu: &Gpu, numbers: &mut [Numbers]) -> Result<()> {
        match self {
            Self::OnDevice(tensors) => {
                let mut pairs = tensors.iter().zip(numbers);
                pairs.try_for_each(|(from, to)| gpu.download(from.memory.at(), bytemuck::cast_slice_mut(to)))
            }
            Self::OnHost(state) => {
                state.copied.synchronize()?;
                let pairs = state.tensors.iter().zip(numbers);
                pairs.for_each(|(from, to)| from.memory.read(bytemuck::cast_slice_mut(to)));
                Ok(())
            }
        }
    }
}

impl StateOnHost {
    /// Brings the tensors of `count` numbers to the device and back, in parts. For each of them `act` gets
    /// which numbers it is for, and where its tensors are meanwhile, and queues its update.
    pub(crate) fn pass(
        &self,
        gpu: &Gpu,
        formats: &[StateFormat],
        count: usize,
        mut act: impl FnMut(Range<usize>, [Ptr; 2]) -> Result<()>,
    ) -> Result<()> {
        let (offloads, passage) = (gpu.offloads()?, gpu.passage()?);
        // What the update before has copied from the device.
        offloads.stream(Direction::Back).wait(&self.copied)?;
        let bytes = |numbers| formats.iter().map(|format| format.words(numbers) * WORD).sum::<usize>();
        let most = BAY / bytes(GRAIN) * GRAIN;
        for start in (0..count).step_by(most) {
            let part = start..count.min(start + most);
            let mut end = 0;
            let tensors = self.tensors.iter().zip(formats).map(|(tensor, format)| {
                let at = end;
                end += format.words(most) * WORD;
                let host = tensor.memory.at().offset(format.words(start) * WORD);
                Passing { host, start: at, bytes: format.words(part.len()) * WORD }
            });
            let tensors: SmallVec<[Passing; 2]> = tensors.collect();
            passage.pass(offloads, gpu.stream(), &tensors, |bay| {
                let at = |index: usize| tensors.get(index).map_or(Ptr::NONE, |one| bay.offset(one.start));
                act(part, [at(0), at(1)])
            })?;
        }
        self.copied.record(offloads.stream(Direction::Out))
    }
}
