//! `tensorboard/`: the numbers of a run as TensorBoard reads them.
//!
//! A file is a sequence of records: its length and the checksum of that, an event, and the checksum of the
//! event. Integers are little-endian, checksums are masked CRC-32C. An event is a message of protocol
//! buffers:
//! `tensorboard/compat/proto/event.proto` and `summary.proto` in TensorBoard's repository.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crc::{CRC_32_ISCSI, Crc};
use prost::Message;

use super::files::restore;
use super::metrics::MetricsLine;
use crate::{Error, Result};

const CRC32C: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
const MASK: u32 = 0xa282_ead8;
/// What the first event of a file says.
const VERSION: &str = "brain.Event:2";

/// Writes a file of events, which is made with the first of them.
#[derive(Debug)]
pub(super) struct TensorBoard {
    folder: PathBuf,
    /// The first step of this file. TensorBoard forgets what earlier files say of it and of later ones.
    first: u64,
    open: Option<(File, PathBuf)>,
}

#[derive(Message)]
struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    what: Option<What>,
}

#[derive(prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Scalar>,
}

#[derive(Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// Optional, since a 0 would be left out otherwise.
    #[prost(float, optional, tag = "2")]
    value: Option<f32>,
}

#[derive(Message)]
struct SessionLog {
    /// 1: a session starts with the step of the event.
    #[prost(int32, tag = "1")]
    status: i32,
}

impl TensorBoard {
    /// For a run that goes on with the step `first`.
    pub(super) fn new(folder: PathBuf, first: u64) -> Self {
        let open = None;
        Self { folder, first, open }
    }

    /// Adds the numbers of a step.
    pub(super) fn add(&mut self, line: &MetricsLine) -> Result<()> {
        let mut records = Vec::new();
        if self.open.is_none() {
            self.open = Some(self.make()?);
            record(&mut records, 0, What::FileVersion(VERSION.to_owned()));
            record(&mut records, self.first, What::SessionLog(SessionLog { status: 1 }));
        }
        let values =
            scalars(line).into_iter().map(|(tag, value)| Scalar { tag, value: Some(value as f32) }).collect();
        record(&mut records, line.step, What::Summary(Summary { values }));
        match &mut self.open {
            Some((file, path)) => file.write_all(&records).map_err(Error::io("write", &*path)),
            None => Ok(()),
        }
    }

    /// Makes the file again if it was removed. Returns its path then.
    pub(super) fn restore(&mut self) -> Result<Option<PathBuf>> {
        let Some((file, path)) = &mut self.open else {
            return Ok(None);
        };
        fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        Ok(restore(file, path)?.then(|| path.clone()))
    }

    /// A new file. TensorBoard reads the files of a folder in the order of their names.
    fn make(&self) -> Result<(File, PathBuf)> {
        fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        let host = gethostname::gethostname();
        let name =
            format!("events.out.tfevents.{:010}.{}.{:010}", now() as u64, host.to_string_lossy(), self.first);
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        Ok((file.map_err(Error::io("create", &path))?, path))
    }
}

/// The values of a step, with their names in TensorBoard. What is before a slash is a group there.
fn scalars(line: &MetricsLine) -> Vec<(String, f64)> {
    let mut scalars = vec![
        ("learning_rate".to_owned(), line.lr),
        ("gradient_norm".to_owned(), line.grad_norm),
        ("targets_per_second".to_owned(), line.targets_per_second),
        ("bubble".to_owned(), line.bubble),
    ];
    scalars.extend(line.loss.map(|loss| ("loss/training".to_owned(), loss)));
    let validation = line.validation_loss.map(|loss| ("loss/validation".to_owned(), loss));
    scalars.extend(validation);
    let metrics = line.metrics();
    scalars.extend(metrics.map(|(name, of_validation, value)| match of_validation {
        true => (format!("{name}/validation"), value),
        false => (format!("{name}/training"), value),
    }));
    let memory = line.peak_bytes.iter().enumerate();
    scalars.extend(memory.map(|(rank, bytes)| (format!("memory_bytes/rank_{rank}"), *bytes as f64)));
    scalars
}

/// Adds a record to others.
fn record(to: &mut Vec<u8>, step: u64, what: What) {
    let event = Event { wall_time: now(), step: step as i64, what: Some(what) };
    let (event, begin) = (event.encode_to_vec(), to.len());
    to.extend((event.len() as u64).to_le_bytes());
    to.extend(masked(&to[begin..]).to_le_bytes());
    to.extend(&event);
    to.extend(masked(&event).to_le_bytes());
}

fn masked(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes).rotate_right(15).wrapping_add(MASK)
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
