//! Shows how far a tokenizer is.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use pipewright::data::Encoded;

const BAR: &str = "encoding  {bar:24} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";

/// A bar on the terminal, if standard error is one. It is shown when there is something to encode.
#[derive(Debug)]
pub(super) struct EncodingBar(ProgressBar);

impl EncodingBar {
    pub(super) fn new(shown: bool) -> Self {
        let bar = ProgressBar::new(0);
        if !shown || !stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar.with_style(ProgressStyle::with_template(BAR).expect("the template is fixed")))
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
