//! Reading: files are checked whole against the model before a single weight changes.

use std::fs;
use std::path::{Path, PathBuf};

use pipewright_stages::Parameter;

use super::contents::Contents;
use super::folder::{self, ASIDE, beside};
use super::layout::{state_name, tensors};
use super::state::{State, damaged};
use super::{MODEL, OPTIMIZER, STATE, TensorInfo};
use crate::data::Fingerprint;
use crate::error::{CheckpointError, Damage, Error, KnownData, Result};

/// A checkpoint on disk whose files have the lengths and headers that they were saved with.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) folder: PathBuf,
    pub(super) state: State,
    pub(super) model: Contents,
    pub(super) optimizer: Contents,
}

impl Checkpoint {
    /// Opens a checkpoint's folder and checks its description and the lengths and headers of its files. The tensors
    /// themselves are checked where they are read, and all of them by [`Checkpoint::verify`].
    ///
    /// If replacing a checkpoint was cut short, the one that stood there before is opened.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] or [`Error::Io`], naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let aside = beside(folder, ASIDE);
        let found = if !folder.exists() && aside.exists() {
            &aside
        } else {
            folder
        };
        let path = found.join(STATE);
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let state = State::parse(&path, &bytes)?;
        folder::check_named(folder, state.step)?;
        let open = |name: &str| {
            let sums = state.files.get(name);
            if sums.is_none() && state.has_checksums() {
                return Err(damaged(&path, Damage::NoChecksum));
            }
            Contents::open(found.join(name), sums)
        };
        Ok(Self {
            folder: folder.to_owned(),
            model: open(MODEL)?,
            optimizer: open(OPTIMIZER)?,
            state,
        })
    }

    /// The optimizer steps it has behind it.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// The config of the run that saved it.
    pub fn config(&self) -> &str {
        &self.state.config
    }

    /// What the data was that it was trained on, where that was known.
    pub fn data(&self) -> Option<&Fingerprint> {
        self.state.data.as_ref()
    }

    /// Whether it has checksums of its tensors. Those of format 1, which earlier versions wrote, have none.
    pub fn has_checksums(&self) -> bool {
        self.state.has_checksums()
    }

    /// Refuses data other than what it was trained on. Where that data lies, and how micro-batches are taken from it,
    /// makes no difference. A checkpoint that does not know its data goes with any.
    ///
    /// # Errors
    /// [`CheckpointError::OtherData`].
    pub fn check_data(&self, given: &Fingerprint) -> Result<()> {
        match self.data() {
            Some(saved) if !saved.same_contents(given) => {
                let known = |data: &Fingerprint| {
                    Box::new(KnownData {
                        name: data.name.clone(),
                        contents: data.contents,
                    })
                };
                Err(Error::from(CheckpointError::OtherData {
                    folder: self.folder.clone(),
                    saved: known(saved),
                    given: known(given),
                }))
            }
            _ => Ok(()),
        }
    }

    /// Whether it holds exactly these parameters, with this optimizer's state.
    ///
    /// # Errors
    /// [`CheckpointError::OtherTensors`] naming the first parameter that is missing, left over or of other dimensions.
    pub fn check(&self, parameters: &[TensorInfo], states: &[&str]) -> Result<()> {
        let (model, optimizer) = tensors(parameters, states);
        self.model.check(&model, "the model")?;
        self.optimizer.check(&optimizer, "the optimizer")
    }

    /// Reads weights and optimizer state. The checkpoint has passed [`Checkpoint::check`].
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] naming a tensor that is not as it was saved, [`Error::Io`].
    pub fn read<'a>(
        &self,
        parameters: impl Iterator<Item = &'a mut Parameter>,
        states: &[&str],
    ) -> Result<()> {
        let mut model = self.model.file()?;
        let mut optimizer = self.optimizer.file()?;
        for parameter in parameters {
            let name = parameter.name().to_owned();
            self.model.read(&mut model, &name, &mut parameter.value)?;
            parameter.make_state(states.len());
            for (state, numbers) in states.iter().zip(&mut parameter.state) {
                self.optimizer
                    .read(&mut optimizer, &state_name(&name, state), numbers)?;
            }
        }
        Ok(())
    }

    /// Reads weights alone, as for making text with a model; the model must be the checkpoint's.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the parameters differ or a tensor is not as it was saved, [`Error::Io`].
    pub fn read_weights(&self, parameters: Vec<&mut Parameter>) -> Result<()> {
        let infos: Vec<TensorInfo> = parameters
            .iter()
            .map(|parameter| TensorInfo {
                name: parameter.name().to_owned(),
                dims: parameter.dims().to_vec(),
            })
            .collect();
        let (model, _) = tensors(&infos, &[]);
        self.model.check(&model, "the model")?;
        let mut file = self.model.file()?;
        parameters.into_iter().try_for_each(|parameter| {
            let name = parameter.name().to_owned();
            self.model.read(&mut file, &name, &mut parameter.value)
        })
    }
}
