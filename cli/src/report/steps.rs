//! The numbers of a run's steps, as `metrics.jsonl` has them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use pipewright::draw::Series;
use pipewright::run::{MetricsLine, WholeLines};

/// The most metrics and sources that are kept. A run has few; a damaged file may have any number.
const METRICS: usize = 64;

/// The numbers of the steps that were read so far, in as little memory for many steps as for few.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) loss: Curves,
    /// The metrics of the loss, by their names.
    pub(super) metrics: BTreeMap<String, Curves>,
    /// How many sequences were taken from each source of data, if there are several.
    pub(super) sequences: BTreeMap<String, u64>,
    /// The sequences from all sources.
    pub(super) all_sequences: u64,
    pub(super) learning_rate: Series,
    pub(super) gradient_norm: Series,
    pub(super) rate: Series,
    /// In percent.
    pub(super) bubble: Series,
    /// How many lines were read.
    pub(super) count: u64,
    /// The number of the last step and one.
    pub(super) done: u64,
    /// The lowest validation loss, and the steps done then.
    pub(super) best: Option<(f64, u64)>,
    pub(super) seconds: f64,
    pub(super) targets: u64,
    bubbles: f64,
    pub(super) ranks: Ranks,
    /// The step from which on ranks are counted.
    counted_since: u64,
    /// Lines that could not be read.
    pub(super) damaged: u64,
    /// The bytes that were read, and the last line of them.
    bytes: u64,
    last_line: Vec<u8>,
}

/// A number of training and of validations.
#[derive(Clone, Debug, Default)]
pub(super) struct Curves {
    pub(super) training: Series,
    pub(super) validation: Series,
    /// The last value of training and of a validation.
    pub(super) last: [Option<f64>; 2],
}

/// What each rank did, since their number or their names last changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    /// The first of these steps.
    pub(super) since: u64,
    pub(super) seconds: f64,
    pub(super) busy: Vec<f64>,
    pub(super) waiting: Vec<f64>,
    /// The part of `waiting` for other shards. Empty: there are none.
    pub(super) shard_waiting: Vec<f64>,
    /// The most in any step.
    pub(super) peak_bytes: Vec<u64>,
}

impl Steps {
    /// Reads the whole lines that were added to a file since the last time. If what was read before is no
    /// longer there, because a run that was resumed repeats steps, the file is read anew. Ranks are counted
    /// from the step `since` on: if that is another step than the last time, the file is read anew too.
    pub(super) fn update(&mut self, path: &Path, since: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        if self.counted_since != since || !self.goes_on(&mut file)? {
            *self = Self { counted_since: since, ..Self::default() };
            file.rewind()?;
        }
        let mut lines = WholeLines::new(file);
        while let Some(line) = lines.next_line()? {
            self.bytes += line.len() as u64;
            self.last_line.clear();
            self.last_line.extend_from_slice(line);
            match serde_json::from_slice::<MetricsLine>(line) {
                Ok(line) => self.add(&line),
                Err(_) => self.damaged += 1,
            }
        }
        Ok(())
    }

    /// Whether the last line that was read is still where it was. Then the file is behind it.
    fn goes_on(&self, file: &mut File) -> io::Result<bool> {
        let mut there = vec![0; self.last_line.len()];
        file.seek(SeekFrom::Start(self.bytes - there.len() as u64))?;
        match file.read_exact(&mut there) {
            Ok(()) => Ok(there == self.last_line),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, line: &MetricsLine) {
        let step = line.step;
        if let Some(loss) = line.loss {
            self.loss.add(step, false, loss);
        }
        self.learning_rate.add(step, line.lr);
        self.gradient_norm.add(step, line.grad_norm);
        self.rate.add(step, line.targets_per_second);
        self.bubble.add(step, 100.0 * line.bubble);
        self.count += 1;
        self.done = step.saturating_add(1);
        if let Some(loss) = line.validation_loss {
            self.loss.add(step, true, loss);
            if self.best.is_none_or(|(best, _)| loss < best) {
                self.best = Some((loss, self.done));
            }
        }
        for (name, of_validation, value) in line.metrics() {
            if self.metrics.len() < METRICS || self.metrics.contains_key(&name) {
                let curves = self.metrics.entry(name).or_default();
                curves.add(step, of_validation, value);
            }
        }
        for (source, taken) in &line.sequences {
            self.all_sequences = self.all_sequences.saturating_add(*taken);
            if self.sequences.len() < METRICS || self.sequences.contains_key(source) {
                let all = self.sequences.entry(source.clone()).or_default();
                *all = all.saturating_add(*taken);
            }
        }
        self.seconds += line.seconds;
        self.targets = self.targets.saturating_add(line.targets);
        self.bubbles += line.bubble * line.seconds;
        if step >= self.counted_since {
            self.ranks.add(line);
        }
    }

    /// Targets a second, over all steps.
    pub(super) fn mean_rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.targets as f64 / self.seconds)
    }

    /// The bubble, over the time of all steps.
    pub(super) fn mean_bubble(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bubbles / self.seconds)
    }
}

impl Curves {
    fn add(&mut self, step: u64, of_validation: bool, value: f64) {
        let series = match of_validation {
            true => &mut self.validation,
            false => &mut self.training,
        };
        series.add(step, value);
        self.last[usize::from(of_validation)] = Some(value);
    }
}

impl Ranks {
    fn add(&mut self, line: &MetricsLine) {
        let count = line.peak_bytes.len();
        if self.peak_bytes.len() != count || (self.busy.is_empty() && !line.busy.is_empty()) {
            *self = Self {
                since: line.step,
                seconds: 0.0,
                busy: vec![0.0; line.busy.len()],
                waiting: vec![0.0; line.waiting.len()],
                shard_waiting: vec![0.0; line.shard_waiting.len()],
                peak_bytes: vec![0; count],
            };
        }
        self.seconds += line.seconds;
        for (sums, seconds) in [
            (&mut self.busy, &line.busy),
            (&mut self.waiting, &line.waiting),
            (&mut self.shard_waiting, &line.shard_waiting),
        ] {
            sums.iter_mut().zip(seconds).for_each(|(sum, seconds)| *sum += seconds);
        }
        for (most, bytes) in self.peak_bytes.iter_mut().zip(&line.peak_bytes) {
            *most = (*most).max(*bytes);
        }
    }
}
