//! Reading: files are checked whole against the model before a single weight changes.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use pipewright_stages::Parameter;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::{ASIDE, FORMAT, MODEL, Named, OPTIMIZER, STATE, State, beside, state_name, tensors};
use crate::error::{Error, Result};
use crate::worker::ParameterInfo;

/// A checkpoint on disk whose files are whole.
#[derive(Debug)]
pub struct Checkpoint {
    state: State,
    model: Contents,
    optimizer: Contents,
}

/// Where the tensors of a safetensors file are.
#[derive(Debug)]
struct Contents {
    path: PathBuf,
    tensors: BTreeMap<String, (Vec<usize>, u64)>,
}

impl Checkpoint {
    /// Opens a checkpoint's folder and checks that its files are whole. If replacing it was cut short, the one that stood there
    /// before is opened.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] or [`Error::Io`], naming the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let aside = beside(folder, ASIDE);
        let folder = if !folder.exists() && aside.exists() {
            &aside
        } else {
            folder
        };
        let path = folder.join(STATE);
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let state: State = serde_json::from_str(&text).map_err(|error| damaged(&path, &error.to_string()))?;
        if state.format != FORMAT {
            let problem = format!("its format is {}, this program reads {FORMAT}", state.format);
            return Err(Error::Checkpoint(format!("{}: {problem}", path.display())));
        }
        let model = Contents::open(folder.join(MODEL))?;
        let optimizer = Contents::open(folder.join(OPTIMIZER))?;
        Ok(Self {
            state,
            model,
            optimizer,
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

    /// Whether it holds exactly these parameters, with this optimizer's state.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] naming the first parameter that is missing, left over or of other dimensions.
    pub fn check(&self, parameters: &[ParameterInfo], states: &[&str]) -> Result<()> {
        let (model, optimizer) = tensors(parameters, states);
        self.model.check(&model, "the model")?;
        self.optimizer.check(&optimizer, "the optimizer")
    }

    /// Reads weights and optimizer state. The checkpoint has passed [`Checkpoint::check`].
    ///
    /// # Errors
    /// [`Error::Io`].
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
    /// [`Error::Checkpoint`] when the parameters differ, [`Error::Io`].
    pub fn read_weights(&self, parameters: Vec<&mut Parameter>) -> Result<()> {
        let mut model: Vec<Named> = parameters
            .iter()
            .map(|parameter| (parameter.name().to_owned(), parameter.dims().to_vec()))
            .collect();
        model.sort();
        model.dedup();
        self.model.check(&model, "the model")?;
        let mut file = self.model.file()?;
        parameters.into_iter().try_for_each(|parameter| {
            let name = parameter.name().to_owned();
            self.model.read(&mut file, &name, &mut parameter.value)
        })
    }
}

impl Contents {
    fn open(path: PathBuf) -> Result<Self> {
        let mut file = File::open(&path).map_err(Error::io("open", &path))?;
        let size = file.metadata().map_err(Error::io("read", &path))?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| truncated(&path, size, 8))?;
        let length = u64::from_le_bytes(length);
        if length > size.saturating_sub(8) {
            return Err(truncated(&path, size, length.saturating_add(8)));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(Error::io("read", &path))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| damaged(&path, &error.to_string()))?;
        let start = 8 + length;
        let whole = start + metadata.data_len() as u64;
        if size != whole {
            return Err(truncated(&path, size, whole));
        }
        let mut tensors = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            if info.dtype != Dtype::F32 {
                return Err(damaged(
                    &path,
                    &format!("`{name}` is {:?}, F32 was expected", info.dtype),
                ));
            }
            tensors.insert(name, (info.shape.clone(), start + info.data_offsets.0 as u64));
        }
        Ok(Self { path, tensors })
    }

    fn check(&self, expected: &[Named], whose: &str) -> Result<()> {
        let fail = |problem: String| {
            let advice = "it was saved from another model or optimizer";
            Err(Error::Checkpoint(format!(
                "{}: {problem}; {advice}",
                self.path.display()
            )))
        };
        for (name, dims) in expected {
            match self.tensors.get(name) {
                None => {
                    return fail(format!(
                        "`{name}` is missing, {whose} has it with dimensions {dims:?}"
                    ));
                }
                Some((found, _)) if found != dims => {
                    return fail(format!("`{name}` has dimensions {found:?}, {whose} has {dims:?}"));
                }
                Some(_) => {}
            }
        }
        let known: HashSet<&String> = expected.iter().map(|(name, _)| name).collect();
        match self.tensors.keys().find(|name| !known.contains(name)) {
            Some(name) => fail(format!("`{name}` is in it, {whose} has no such tensor")),
            None => Ok(()),
        }
    }

    fn file(&self) -> Result<File> {
        File::open(&self.path).map_err(Error::io("open", &self.path))
    }

    fn read(&self, file: &mut File, name: &str, numbers: &mut [f32]) -> Result<()> {
        let failed = || Error::io("read", &self.path);
        file.seek(SeekFrom::Start(self.tensors[name].1))
            .map_err(failed())?;
        file.read_exact(bytemuck::cast_slice_mut(numbers))
            .map_err(failed())
    }
}

fn damaged(path: &Path, problem: &str) -> Error {
    Error::Checkpoint(format!(
        "{}: not a whole file: {problem}; use an earlier checkpoint",
        path.display()
    ))
}

fn truncated(path: &Path, size: u64, wanted: u64) -> Error {
    damaged(
        path,
        &format!("it has {size} bytes, its header calls for {wanted}"),
    )
}
