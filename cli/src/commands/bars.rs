//! Commands that work long show how far they are: measuring costs, fetching files, and encoding text.

use std::io::{IsTerminal, stderr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pipewright::data::{Encoded, Reference};
use pipewright::stages::Device;

use crate::compose::Work;
use crate::config::Config;
use crate::profile::{Measured, MemoryLimit};
use crate::{Result, compose};
use pipewright::stages::units::in_words;
use pipewright::store::Fetching;

const ENCODING: &str = "encoding  {bar:24} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";

/// A bar on the terminal, if standard error is one. It is shown when there is something to encode.
#[derive(Debug)]
pub(super) struct EncodingBar(ProgressBar);

impl EncodingBar {
    pub(super) fn new(shown: bool) -> Self {
        let bar = ProgressBar::new(0);
        if !shown || !stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar.with_style(ProgressStyle::with_template(ENCODING).expect("the template is fixed")))
    }

    pub(super) fn show(&self, encoded: Encoded) {
        self.0.set_length(encoded.all);
        self.0.set_position(encoded.bytes);
    }
}

impl Drop for EncodingBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

const COMPARING: &str = "reference {bar:24} {pos} of {len} pairs  {eta} left";

/// Shows on standard error how far it is known what the model gives answers before the training.
pub(super) fn show_reference(reference: &Reference) {
    let bar = OnceLock::new();
    reference.on_progress(move |begun, all| {
        if !stderr().is_terminal() {
            if bar.set(ProgressBar::hidden()).is_ok() {
                eprintln!("evaluating {all} pairs with the model as it is before the training");
            }
            return;
        }
        let style = || ProgressStyle::with_template(COMPARING).expect("the template is fixed");
        let bar = bar.get_or_init(|| ProgressBar::new(all).with_style(style()));
        // Several ranks read the same pairs, each at its own time.
        if begun > bar.position() && !bar.is_finished() {
            bar.set_position(begun);
            if begun == all {
                bar.finish_and_clear();
            }
        }
    });
}

const FETCHING: &str = "fetching  {bar:24} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";

/// How often it is told how far fetching is, where there is no terminal.
const TELL: Duration = Duration::from_secs(10);

/// A bar on the terminal, if standard error is one, and otherwise lines. It is shown when something is
/// fetched.
#[derive(Debug)]
pub(super) struct FetchingBar {
    bar: ProgressBar,
    /// Whether there are lines, and when the next one is due.
    line: Option<Instant>,
}

impl FetchingBar {
    pub(super) fn new(shown: bool) -> Self {
        let bar = ProgressBar::new(0);
        let lines = shown && !stderr().is_terminal();
        if !shown || lines {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let bar = bar.with_style(ProgressStyle::with_template(FETCHING).expect("the template is fixed"));
        Self { bar, line: lines.then(|| Instant::now() + TELL) }
    }

    pub(super) fn show(&mut self, fetching: Fetching<'_>) {
        let Fetching { url, bytes, all, .. } = fetching;
        self.bar.set_length(all);
        self.bar.set_position(bytes);
        if self.line.is_some_and(|due| Instant::now() >= due) {
            let [bytes, all] = [bytes, all].map(|bytes| in_words(bytes as f64));
            eprintln!("fetching {url}: {bytes} of {all}");
            self.line = Some(Instant::now() + TELL);
        }
    }
}

impl Drop for FetchingBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The bars for data that is opened.
#[derive(Debug)]
pub(super) struct WorkBars {
    fetching: FetchingBar,
    encoding: EncodingBar,
}

impl WorkBars {
    pub(super) fn new(shown: bool) -> Self {
        Self { fetching: FetchingBar::new(shown), encoding: EncodingBar::new(shown) }
    }

    pub(super) fn show(&mut self, work: Work<'_>) {
        match work {
            Work::Fetching(fetching) => self.fetching.show(fetching),
            Work::Encoding(encoded) => self.encoding.show(encoded),
        }
    }
}

const MEASURING: &str = "measuring {msg}  {bar:24} {pos}/{len}";

/// Measures the costs of a config's layers, within these limits. Its ranks will be on this number of hosts.
pub(super) fn measure(
    config: &Config,
    what: &str,
    limits: &[(Device, MemoryLimit)],
    hosts: u32,
) -> Result<Measured> {
    compose::check_measurable(config)?;
    compose::check_memory_to_measure(config, limits)?;
    let gpus = compose::kinds_of_gpus(config);
    if gpus.len() > 1 {
        eprintln!(
            "warning: the GPUs differ ({}), and each layer is measured on one of them: \
             on the others it may take another time",
            gpus.join(", ")
        );
    }
    if !stderr().is_terminal() {
        eprintln!("measuring {what}");
        return compose::measure(config, hosts, |_, _| ());
    }
    let style = ProgressStyle::with_template(MEASURING).expect("the template is fixed");
    let bar = ProgressBar::new(0).with_style(style).with_message(what.to_owned());
    let measured = compose::measure(config, hosts, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    measured
}
