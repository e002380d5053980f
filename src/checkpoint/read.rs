//! Reads checkpoints. All files are checked against the model before any weight changes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Parameter, Shard};
use safetensors::Dtype;

use super::contents::Contents;
use super::damage::damaged;
use super::fill::{Source, fill, take_own};
use super::folder::{self, ASIDE, MODEL, OPTIMIZER, STATE, beside};
use super::kept::checksum;
use super::layout::{TensorInfo, info, states, weights};
use super::state::State;
use crate::checksum::Checksum;
use crate::data::Fingerprint;
use crate::error::{CheckpointError, Error, KnownData, Result};

/// A checkpoint on disk. The lengths and headers of its files have been checked.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) folder: PathBuf,
    pub(super) state: State,
    /// The checksum of the whole description.
    description: Checksum,
    pub(super) model: Contents,
    pub(super) optimizer: Contents,
}

impl Checkpoint {
    /// Opens a checkpoint's folder and checks its description, and the lengths and headers of its files. Each
    /// tensor is checked when it is read. [`Checkpoint::verify`] checks all of them.
    ///
    /// If the process was killed while it replaced a checkpoint, the old one is opened.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] or [`Error::Io`], naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let aside = beside(folder, ASIDE);
        let found = if !folder.exists() && aside.exists() { &aside } else { folder };
        let path = found.join(STATE);
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let state = State::parse(&path, &bytes)?;
        folder::check_named(folder, state.step)?;
        let open = |name: &str, formats: &[Dtype]| {
            let sums = state.files.get(name);
            if sums.is_none() && state.has_checksums() {
                return Err(damaged(&path, "its checksum is missing"));
            }
            Contents::open(found.join(name), sums, formats)
        };
        Ok(Self {
            folder: folder.to_owned(),
            model: open(MODEL, &[Dtype::F32])?,
            optimizer: open(OPTIMIZER, &[Dtype::F32, Dtype::BF16, Dtype::U8])?,
            description: Checksum::of(&bytes),
            state,
        })
    }

    /// The number of optimizer steps done.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// The checksum of its description, `state.json`. Two checkpoints with equal descriptions have equal
    /// tensors, except checkpoints of format 1.
    pub fn description(&self) -> Checksum {
        self.description
    }

    /// The config of the run that saved it.
    pub fn config(&self) -> &str {
        &self.state.config
    }

    /// The fingerprint of the data that it was trained on, if known.
    pub fn data(&self) -> Option<&Fingerprint> {
        self.state.data.as_ref()
    }

    /// Whether it has checksums of its tensors. Checkpoints of format 1, from earlier versions, have none.
    pub fn has_checksums(&self) -> bool {
        self.state.has_checksums()
    }

    /// Refuses data with other contents than the data it was trained on, and a part of it that was not for
    /// training before. Where the data is stored, and how micro-batches are taken from it, makes no
    /// difference. A checkpoint without a fingerprint accepts any data.
    ///
    /// # Errors
    /// [`CheckpointError::OtherData`], [`CheckpointError::HeldBack`].
    pub fn check_data(&self, given: &Fingerprint) -> Result<()> {
        match self.data() {
            Some(saved) if !saved.same_contents(given) => {
                let known = |data: &Fingerprint| {
                    Box::new(KnownData { name: data.name.clone(), contents: data.contents })
                };
                Err(Error::from(CheckpointError::OtherData {
                    folder: self.folder.clone(),
                    saved: known(saved),
                    given: known(given),
                }))
            }
            Some(saved) => {
                let mut parts = given.parts_since(saved);
                let beyond = parts.find(|(_, before, now)| now.start < before.start || now.end > before.end);
                beyond.map_or(Ok(()), |(name, before, now)| {
                    Err(Error::from(CheckpointError::HeldBack {
                        folder: self.folder.clone(),
                        data: name.to_owned(),
                        before: before.clone(),
                        now: now.clone(),
                    }))
                })
            }
            None => Ok(()),
        }
    }

    /// Checks that it holds exactly these parameters, with this optimizer's state.
    ///
    /// # Errors
    /// [`CheckpointError`], which names the first parameter that is missing, not expected, or
    /// of other dimensions.
    pub fn check(&self, parameters: &[TensorInfo], optimizer: &dyn Optimizer) -> Result<()> {
        let model = weights(parameters);
        self.model.check(&model, "the model")?;
        self.optimizer.check(&states(&model, optimizer), "the optimizer")
    }

    /// Reads weights and optimizer state. Call [`Checkpoint::check`] first.
    ///
    /// # Errors
    /// [`CheckpointError`], which names a tensor that has changed since it was saved. [`Error::Io`].
    pub fn read<'a>(
        &self,
        parameters: impl Iterator<Item = &'a mut Parameter>,
        optimizer: &dyn Optimizer,
    ) -> Result<()> {
        let (model, state) = (self.model.file()?, self.optimizer.file()?);
        fill(parameters, optimizer, &mut Files { checkpoint: self, model, state })
    }

    /// Reads only the weights. The model must be the checkpoint's.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the parameters differ or a tensor has changed since it was saved.
    /// [`Error::Io`].
    pub fn read_weights(&self, parameters: Vec<&mut Parameter>) -> Result<()> {
        let infos: Vec<TensorInfo> = parameters.iter().map(|parameter| info(parameter)).collect();
        self.model.check(&weights(&infos), "the model")?;
        parameters.into_iter().try_for_each(|parameter| self.read_weight(parameter))
    }

    /// Reads the weights of one parameter, for example of one stage.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when it has no such tensor, or the tensor has changed since it was saved.
    /// [`Error::Io`].
    pub fn read_weight(&self, parameter: &mut Parameter) -> Result<()> {
        let tensor = info(parameter);
        self.model.check_one(&tensor, "the model")?;
        if tensor.is_elsewhere {
            return self.compare_elsewhere(parameter);
        }
        self.read_value(&mut self.model.file()?, parameter)
    }

    /// Refuses a parameter whose numbers stayed elsewhere if they are not what they were when it was saved.
    pub(super) fn compare_elsewhere(&self, parameter: &Parameter) -> Result<()> {
        self.model.compare_elsewhere(parameter.name(), checksum(parameter))
    }

    /// Reads the numbers that the parameter has of its tensor.
    fn read_value(&self, file: &mut File, parameter: &mut Parameter) -> Result<()> {
        if parameter.shard() == Shard::WHOLE {
            let name = parameter.name().to_owned();
            return self.model.read(file, &name, &mut parameter.value);
        }
        let mut whole = vec![0.0; parameter.whole_dims().iter().product()];
        self.model.read(file, parameter.name(), &mut whole)?;
        take_own(parameter, &whole);
        Ok(())
    }
}

/// The files of a checkpoint, from which parameters are filled.
struct Files<'a> {
    checkpoint: &'a Checkpoint,
    model: File,
    state: File,
}

impl Source for Files<'_> {
    fn compare_elsewhere(&mut self, parameter: &Parameter) -> Result<()> {
        self.checkpoint.compare_elsewhere(parameter)
    }

    fn has_state(&self, _parameter: &str) -> bool {
        true
    }

    fn value(&mut self, parameter: &mut Parameter) -> Result<()> {
        self.checkpoint.read_value(&mut self.model, parameter)
    }

    fn state(
        &mut self,
        _parameter: &str,
        _index: usize,
        tensor: &TensorInfo,
        bytes: &mut [u8],
    ) -> Result<()> {
        self.checkpoint.optimizer.read_bytes(&mut self.state, &tensor.name, bytes)
    }
}
