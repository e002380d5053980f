//! The texts that a model wrote while it was trained.

use maud::{Markup, html};

use super::numbers::whole;
use pipewright::run::{Sample, WholeLines};

/// The most texts on a page. If there are more, every second one is left out until they fit.
const TEXTS: usize = 24;

/// The most characters of a text on a page.
const CHARACTERS: usize = 2000;

/// Texts over the steps, in as little memory for many as for few.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    shown: Vec<Sample>,
    /// The newest one, if it is not among them.
    newest: Option<Sample>,
    count: usize,
    /// One of this many is shown.
    each: usize,
    /// Lines that could not be read.
    pub(super) damaged: u64,
}

impl Samples {
    /// The texts of the lines of `samples.jsonl`.
    pub(super) fn of(text: &str) -> Self {
        let mut samples = Self { shown: Vec::new(), newest: None, count: 0, each: 1, damaged: 0 };
        let mut lines = WholeLines::new(text.as_bytes());
        while let Ok(Some(line)) = lines.next_line() {
            match serde_json::from_slice(line) {
                Ok(sample) => samples.add(sample),
                Err(_) => samples.damaged += 1,
            }
        }
        samples
    }

    fn add(&mut self, mut sample: Sample) {
        cut(&mut sample.prompt);
        cut(&mut sample.text);
        let is_shown = self.count.is_multiple_of(self.each);
        self.count += 1;
        if !is_shown {
            self.newest = Some(sample);
            return;
        }
        self.newest = None;
        self.shown.push(sample);
        if self.shown.len() == TEXTS {
            let mut index = 0;
            self.newest = self.shown.pop();
            self.shown.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.each *= 2;
        }
    }

    /// Whether there is a text.
    pub(super) fn has_some(&self) -> bool {
        self.count > 0
    }

    /// The texts as a table, the oldest first.
    pub(super) fn table(&self, name: &str) -> Option<Markup> {
        let texts: Vec<&Sample> = self.shown.iter().chain(&self.newest).collect();
        (!texts.is_empty()).then(|| {
            html! {
                @if texts.len() < self.count {
                    p.note { "Of " (whole(self.count as u64)) " texts, these are " (texts.len()) "." }
                }
                div.wide { table.samples aria-label={ "Samples of " (name) } {
                    thead { tr { th { "Steps" } th { "Text" } } }
                    tbody { @for sample in texts {
                        tr {
                            th scope="row" { (whole(sample.step)) }
                            td { span.given { (sample.prompt) } (sample.text) }
                        }
                    } }
                } }
            }
        })
    }
}

/// Cuts a text that is too long for a page.
fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(CHARACTERS) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_texts_the_first_the_last_and_even_ones_between_are_shown() {
        for count in [1, 23, 24, 25, 100, 1000] {
            let line = |step| format!("{{\"step\":{step},\"prompt\":\"\",\"text\":\"x\"}}\n");
            let samples = Samples::of(&(0..count).map(line).collect::<String>());
            let steps = samples.shown.iter().chain(&samples.newest);
            let steps: Vec<u64> = steps.map(|sample| sample.step).collect();
            assert_eq!((steps[0], steps[steps.len() - 1]), (0, count - 1));
            assert!(steps.len() <= TEXTS && steps.len() as u64 >= count.min(11), "{steps:?}");
            let gaps: Vec<u64> = samples.shown.windows(2).map(|pair| pair[1].step - pair[0].step).collect();
            assert!(gaps.iter().all(|gap| *gap == samples.each as u64), "{steps:?}");
        }
    }
}
