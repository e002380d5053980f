//! The tensors of a folder, and reading them into parameters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use pipewright_stages::{Numbers, Parameter, Quantisation, Quantised};
use safetensors::tensor::Metadata;
use serde::Deserialize;

use super::architecture::Architecture;
use super::described::CONFIG;
use super::families::gpt2::PREFIX;
use super::fused::inside;
use super::head::{Head, SCORE};
use super::json;
use super::mapped::{LEFT_OVER, MISSING, Mapped, Part, other_shape};
use super::numbers::width;
use super::opened::{self, Opened, Place, same};
use super::quantised::{self, FORMAT, QUANTISED};
use crate::error::{Error, Result};

/// The one file of a model, and the list of several.
pub(super) const ONE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The output projection, in every family.
const HEAD: &str = "lm_head.weight";

/// How many numbers are rounded at a time.
const ROUNDED: usize = 1 << 20;

/// Tensors that older checkpoints have and that are no weights.
const BUFFERS: [&str; 3] = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];

/// The tensors of a folder. They are read when a parameter wants them, by the process that has it.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<(PathBuf, Opened)>,
    tensors: BTreeMap<String, Tensor>,
    table: Vec<Mapped>,
    /// The file that says which tensors there must be.
    described_in: &'static str,
    /// What the files are: see [`Weights::describe`].
    described: OnceLock<String>,
}

#[derive(Debug)]
struct Tensor {
    file: usize,
    dims: Vec<usize>,
    place: Place,
    /// In which blocks its numbers are, if they are quantised.
    kind: Option<Quantisation>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens a folder's files, and checks that they have exactly the tensors of the model. A reward model may
    /// start from a model of texts, which has another head: then its own [is not there](Self::has).
    ///
    /// # Errors
    /// When a file is missing or damaged. When tensors are missing, left over or of another shape: all of
    /// them are named. When the folder has a reward model, and the architecture is none.
    pub fn open(folder: &Path, architecture: &Architecture) -> Result<Self> {
        let weights = Self::listed(folder, files(folder)?)?;
        let (mut table, is_scored) = (architecture.table(), weights.lists(SCORE));
        match architecture.head() {
            Head::Tokens if is_scored => return Err(Error::a_reward_model(folder)),
            Head::Reward if !is_scored => table.retain(|mapped| mapped.name != SCORE),
            _ => {}
        }
        let weights = weights.checked(table, CONFIG)?;
        if architecture.head() == Head::Tokens {
            weights.check_head()?;
        }
        Ok(weights)
    }

    /// Opens these files of a folder, and checks that they have exactly the tensors of the table.
    pub(super) fn of(
        folder: &Path,
        files: Vec<String>,
        table: Vec<Mapped>,
        described_in: &'static str,
    ) -> Result<Self> {
        Self::listed(folder, files)?.checked(table, described_in)
    }

    /// Opens these files of a folder. No parameter can be read before they are [checked](Self::checked).
    pub(super) fn listed(folder: &Path, files: Vec<String>) -> Result<Self> {
        let mut weights = Self {
            folder: folder.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
            table: Vec::new(),
            described_in: "",
            described: OnceLock::new(),
        };
        for name in files {
            weights.add(folder.join(name))?;
        }
        Ok(weights)
    }

    /// The same tensors by other names. Two tensors that would have one name keep theirs.
    pub(super) fn renamed(mut self, rename: impl Fn(&str) -> String) -> Self {
        let (stay, change): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.tensors.into_iter().partition(|(name, _)| rename(name) == *name);
        self.tensors = stay;
        for (name, tensor) in change {
            let new = rename(&name);
            let is_free = !self.tensors.contains_key(&new);
            self.tensors.insert(if is_free { new } else { name }, tensor);
        }
        self
    }

    /// Whether the files have a tensor of this name.
    pub(super) fn lists(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    /// Checks that they have exactly the tensors of the table.
    pub(super) fn checked(mut self, table: Vec<Mapped>, described_in: &'static str) -> Result<Self> {
        self.table = table;
        self.described_in = described_in;
        self.check()?;
        Ok(self)
    }

    /// Whether a parameter of this name can be read.
    pub fn has(&self, parameter: &str) -> bool {
        self.table.iter().any(|mapped| mapped.name == parameter)
    }

    /// The parameters whose numbers are all in blocks in the files, with the kind that takes most memory.
    pub fn quantised(&self) -> impl Iterator<Item = (&str, Quantisation)> {
        self.table.iter().filter_map(|mapped| {
            let kinds = mapped.parts.iter().map(|part| self.tensor(part).kind);
            let kinds: Option<Vec<Quantisation>> = kinds.collect();
            let most = kinds?.into_iter().max_by_key(|kind| kind.bytes(1 << 20))?;
            Some((mapped.name.as_str(), most))
        })
    }

    /// Adds the tensors of a file.
    fn add(&mut self, path: PathBuf) -> Result<()> {
        let (file, size) = opened::open(&path)?;
        let damaged = |why: String| Error::damaged(&path, why);
        let mut start = [0; 8];
        let read = |bytes: &mut [u8], at| crate::system::read_at(&file, bytes, at);
        read(&mut start, 0).map_err(|_| damaged(format!("it has {size} bytes")))?;
        let length = u64::from_le_bytes(start);
        if length > size.saturating_sub(8) {
            return Err(damaged(format!("its header should have {length} bytes, the file has {size}")));
        }
        let mut header = vec![0; length as usize];
        read(&mut header, 8).map_err(Error::io("read", &path))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| damaged(format!("its header: {error}")))?;
        let (held, whole) = (size - 8 - length, metadata.data_len() as u64);
        if held != whole {
            return Err(damaged(format!("it has {held} bytes of numbers instead of {whole}")));
        }
        let about = metadata.metadata().clone().unwrap_or_default();
        let is_ours = about.get(FORMAT.0).is_some_and(|format| format == FORMAT.1);
        if path.ends_with(QUANTISED) && !is_ours {
            let why = format!("its header does not say that its {} is {}", FORMAT.0, FORMAT.1);
            return Err(damaged(why));
        }
        let kinds = if is_ours { about } else { HashMap::new() };
        for (name, info) in metadata.tensors() {
            if let Some(kind) = kinds.get(&name) {
                let (kind, dims) = quantised::described(kind, info)
                    .ok_or_else(|| damaged(format!("{name} is not what its header says of its blocks")))?;
                let offset = 8 + length + info.data_offsets.0 as u64;
                let place = Place { dtype: info.dtype, offset };
                self.tensors.insert(name, Tensor { file: self.files.len(), dims, place, kind: Some(kind) });
                continue;
            }
            let bytes = width(info.dtype).unwrap_or(0);
            for part in inside(&name, &info.shape) {
                let place = Place {
                    dtype: info.dtype,
                    offset: 8 + length + (info.data_offsets.0 + bytes * part.start) as u64,
                };
                let tensor = Tensor { file: self.files.len(), dims: part.dims, place, kind: None };
                self.tensors.insert(part.name, tensor);
            }
        }
        self.files.push((path, Opened::new(file, size)));
        Ok(())
    }

    /// Refuses tensors that differ from the table.
    fn check(&self) -> Result<()> {
        let mut problems = Vec::new();
        let mut wanted = HashSet::new();
        for part in self.table.iter().flat_map(|mapped| &mapped.parts) {
            let Some((name, tensor)) = self.find(&part.name) else {
                problems.push((part.name.clone(), MISSING.to_owned()));
                continue;
            };
            wanted.insert(name);
            if tensor.dims != part.dims {
                problems.push((name.to_owned(), other_shape(&tensor.dims, &part.dims)));
            } else if tensor.kind.is_none() && width(tensor.place.dtype).is_none() {
                let found = tensor.place.dtype;
                problems.push((name.to_owned(), format!("is in {found:?}; only F32, BF16 and F16 are read")));
            }
        }
        let has_head = self.mapped(HEAD).is_some();
        let is_known = |name: &&String| {
            let buffer = BUFFERS.iter().any(|end| name.ends_with(end));
            wanted.contains(name.as_str()) || buffer || (*name == HEAD && !has_head)
        };
        let left = self.tensors.keys().filter(|name| !is_known(name));
        problems.extend(left.map(|name| (name.clone(), LEFT_OVER.to_owned())));
        self.refuse(problems)
    }

    /// Refuses a head of its own in the files of a model whose head is the token embedding. transformers uses
    /// both then, and takes equal ones for one.
    fn check_head(&self) -> Result<()> {
        let (own, table) = (self.tensors.get(HEAD), self.mapped("wte.weight"));
        let (Some(head), Some(table), None) = (own, table, self.mapped(HEAD)) else {
            return Ok(());
        };
        let embedding = self.tensor(&table.parts[0]);
        let place = |tensor: &Tensor| (&self.files[tensor.file].1, tensor.place);
        let is_plain = |tensor: &Tensor| tensor.kind.is_none() && width(tensor.place.dtype).is_some();
        let can_be_same = head.dims == embedding.dims && is_plain(head) && is_plain(embedding);
        let count = table.parts[0].count();
        let read = Error::io("read", &self.files[head.file].0);
        if can_be_same && same(place(head), place(embedding), count).map_err(read)? {
            return Ok(());
        }
        self.refuse(vec![(
            HEAD.to_owned(),
            "is not the token embedding, although tie_word_embeddings is true: set that to false in \
             config.json to have both, as transformers does"
                .to_owned(),
        )])
    }

    fn refuse(&self, problems: Vec<(String, String)>) -> Result<()> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::other_tensors(&self.folder, self.described_in, &problems))
    }

    /// A parameter of the table.
    fn mapped(&self, name: &str) -> Option<&Mapped> {
        self.table.iter().find(|mapped| mapped.name == name)
    }

    /// Describes the files, a line each, so that the processes of a run can compare them: their lengths and
    /// the checksums of all their bytes. They are read once, when this is called first.
    pub fn describe(&self) -> &str {
        self.described.get_or_init(|| {
            let files: Vec<String> = thread::scope(|scope| {
                let reading: Vec<_> =
                    self.files.iter().map(|(path, file)| scope.spawn(|| described(path, file))).collect();
                let read = reading.into_iter().map(|file| file.join().expect("it does not panic"));
                read.collect()
            });
            files.join("\n")
        })
    }

    /// A tensor by its name in the table.
    fn find(&self, name: &str) -> Option<(&str, &Tensor)> {
        let found = self.tensors.get_key_value(name);
        let found = found.or_else(|| self.tensors.get_key_value(&format!("{PREFIX}{name}")));
        let found = found.or_else(|| self.tensors.get_key_value(name.strip_prefix(PREFIX)?));
        found.map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Gives a parameter its numbers. To one that is frozen they are lent, if they are in the file as they
    /// are used. The numbers of others are read, for they will change. A parameter that is divided among
    /// shards gets its own numbers, and no others are read.
    ///
    /// # Errors
    /// When the model has no such parameter, or a file cannot be read.
    pub fn read(&self, parameter: &mut Parameter) -> Result<()> {
        let mapped = self.mapped(parameter.name());
        let mapped = mapped.ok_or_else(|| {
            Error::pretrained(format!(
                "`{}` has no tensor for {}: it is a folder for another model",
                self.folder.display(),
                parameter.name()
            ))
        })?;
        if let Some(kind) = parameter.quantisation() {
            return Ok(parameter.hold(self.blocks(mapped, kind)?)?);
        }
        let own = parameter.own_places();
        if let ([all], true) = (&own[..], parameter.is_frozen())
            && let Some(numbers) = self.lend(mapped, all)
        {
            parameter.value = numbers;
            return Ok(());
        }
        let mut rest = &mut parameter.value[..];
        for (tensor, places) in own.iter().flat_map(|places| self.inside(mapped, places)) {
            let (numbers, after) = rest.split_at_mut(places.len());
            self.read_part(tensor, places, numbers)?;
            rest = after;
        }
        Ok(())
    }

    /// Reads numbers of a tensor.
    fn read_part(&self, tensor: &Tensor, places: Range<usize>, numbers: &mut [f32]) -> Result<()> {
        let (path, file) = &self.files[tensor.file];
        let Some(kind) = tensor.kind else {
            let from = tensor.place.after(places.start);
            return file.read(from, numbers).map_err(Error::io("read", path));
        };
        let [rows, columns] = tensor.dims[..] else { unreachable!("blocks are of matrices") };
        let mut matrix = Quantised::new(columns);
        let bytes = file.bytes(tensor.place.offset, kind.bytes(rows * columns));
        matrix.push(kind, bytes.map_err(Error::io("read", path))?);
        let (mut at, mut rest) = (places.start, numbers);
        while at < places.end {
            let (row, first) = (at / columns, at % columns);
            let count = (columns - first).min(places.end - at);
            let (here, after) = rest.split_at_mut(count);
            matrix.decode(row, first..first + count, here);
            (at, rest) = (at + count, after);
        }
        Ok(())
    }

    /// The numbers of a parameter in blocks: as they are in the file, or else rounded to blocks of this kind,
    /// as numbers of 32 and 16 bits can be.
    fn blocks(&self, mapped: &Mapped, kind: Quantisation) -> Result<Quantised> {
        let [_, columns] = mapped.dims[..] else { unreachable!("only matrices are quantised") };
        let mut blocks = Quantised::new(columns);
        for part in &mapped.parts {
            let tensor = self.tensor(part);
            let (path, file) = &self.files[tensor.file];
            let is_wide = matches!(tensor.kind, Some(Quantisation::F16 | Quantisation::Bf16));
            match tensor.kind.filter(|own| *own == kind || !is_wide || !kind.can_be_made()) {
                Some(kind) => {
                    let bytes = file.bytes(tensor.place.offset, kind.bytes(part.count()));
                    blocks.push(kind, bytes.map_err(Error::io("read", path))?);
                }
                None => blocks.push(kind, self.rounded(tensor, part, kind)?.into()),
            }
        }
        Ok(blocks)
    }

    /// The numbers of a part, rounded to blocks of this kind: some rows after the others, because in 32 bits
    /// all take several times the memory of their blocks.
    fn rounded(&self, tensor: &Tensor, part: &Part, kind: Quantisation) -> Result<Vec<u8>> {
        let (count, columns) = (part.count(), part.dims[1]);
        let at_once = (ROUNDED / columns).max(1) * columns;
        let mut numbers = vec![0.0; at_once.min(count)];
        let mut blocks = Vec::with_capacity(kind.bytes(count));
        for first in (0..count).step_by(at_once) {
            let places = first..count.min(first + at_once);
            let numbers = &mut numbers[..places.len()];
            self.read_part(tensor, places, numbers)?;
            kind.encode(numbers, &mut blocks).map_err(|error| {
                let (path, name) = (self.files[tensor.file].0.display(), &part.name);
                Error::pretrained(format!("`{path}`: {name} cannot be quantised: {error}"))
            })?;
        }
        Ok(blocks)
    }

    /// Where these numbers of a parameter are: tensors, and places in each.
    fn inside(
        &self,
        mapped: &Mapped,
        numbers: &Range<usize>,
    ) -> impl Iterator<Item = (&Tensor, Range<usize>)> {
        let mut before = 0;
        mapped.parts.iter().filter_map(move |part| {
            let first = before;
            before += part.count();
            let (start, end) = (numbers.start.max(first), numbers.end.min(before));
            (start < end).then(|| (self.tensor(part), start - first..end - first))
        })
    }

    /// These numbers of a parameter where they are in a file, if they follow one another there.
    fn lend(&self, mapped: &Mapped, numbers: &Range<usize>) -> Option<Numbers> {
        let mut inside = self.inside(mapped, numbers);
        let (first, places) = inside.next().filter(|(first, _)| first.kind.is_none())?;
        let start = first.place.after(places.start);
        let mut count = places.len();
        for (tensor, places) in inside {
            if tensor.kind.is_some() {
                return None;
            }
            let place = tensor.place.after(places.start);
            let follows = tensor.file == first.file
                && place.dtype == start.dtype
                && place.offset == start.after(count).offset;
            if !follows {
                return None;
            }
            count += places.len();
        }
        self.files[first.file].1.lend(start, count)
    }

    /// A tensor of the table.
    fn tensor(&self, part: &Part) -> &Tensor {
        self.find(&part.name).expect("checked when it was opened").1
    }
}

/// In which blocks the weights of a folder are, by our names. Empty for a folder of plain numbers.
///
/// # Errors
/// As for [`Weights::open`].
pub fn quantised(folder: &Path, architecture: &Architecture) -> Result<BTreeMap<String, Quantisation>> {
    if !folder.join(QUANTISED).is_file() {
        return Ok(BTreeMap::new());
    }
    let weights = Weights::open(folder, architecture)?;
    Ok(weights.quantised().map(|(name, kind)| (name.to_owned(), kind)).collect())
}

/// A file in words.
fn described(path: &Path, file: &Opened) -> String {
    let path = path.display();
    match file.checksum() {
        Ok(checksum) => format!("{path} ({} bytes, checksum {checksum})", file.size()),
        Err(error) => format!("{path}, which cannot be read: {error}"),
    }
}

/// The names of a folder's files.
fn files(folder: &Path) -> Result<Vec<String>> {
    if let Some(one) = [ONE, QUANTISED].into_iter().find(|name| folder.join(name).is_file()) {
        return Ok(vec![one.to_owned()]);
    }
    let path = folder.join(INDEX);
    if !path.is_file() {
        let folder = folder.display();
        return Err(Error::pretrained(format!(
            "`{folder}` has no weights: neither model.safetensors nor model.safetensors.index.json is there \
             (files of PyTorch, pytorch_model.bin, are not read)"
        )));
    }
    let index: Index = json::read(&path)?;
    let mut names: Vec<String> = index.weight_map.into_values().collect();
    names.sort();
    names.dedup();
    // A name with a folder in it would lead out of this one.
    let is_here =
        |name: &String| Path::new(name).file_name() == Some(name.as_ref()) && folder.join(name).exists();
    match names.iter().find(|name| !is_here(name)) {
        Some(name) => Err(Error::pretrained(format!(
            "`{}` names `{name}`, which is not in its folder: fetch all files again",
            path.display()
        ))),
        None => Ok(names),
    }
}
