//! Answers the requests of a queue, one after the other.

use super::queue::{Job, Told};
use super::request::{Manner, Prompt};
use super::scored::Scored;
use super::served::Served;
use crate::Result;
use crate::commands::sample::words::Words;
use crate::commands::sample::written::{Ended, Limits, write};
use pipewright::pipeline::Pipeline;
use pipewright::run::Generator;
use pipewright::stages::Sequential;

/// Answers requests until the queue is closed.
///
/// # Errors
/// When the model fails. Who waits for the answer is told why.
pub(super) fn answer_all(served: &Served, model: &mut Pipeline<Sequential>) -> Result<()> {
    while let Some(job) = served.queue.next() {
        if let Err(error) = answer(served, model, &job) {
            let _ = job.to.send(Told::Failed(error.to_string()));
            return Err(error);
        }
    }
    Ok(())
}

fn answer(served: &Served, model: &mut Pipeline<Sequential>, job: &Job) -> Result<()> {
    for (index, prompt) in job.request.prompts.iter().enumerate() {
        if !one(served, model, job, index, prompt)? {
            break;
        }
    }
    Ok(())
}

/// Writes one text. Returns `false` if nobody waits for it any more.
fn one(
    served: &Served,
    model: &mut Pipeline<Sequential>,
    job: &Job,
    index: usize,
    prompt: &Prompt,
) -> Result<bool> {
    let Manner { choice, seed, stop, ends, echo, likely } = &job.request.manner;
    let goes_on = || job.is_wanted() && !served.queue.is_closed();
    let mut read = 0;
    if let Some(most) = likely.filter(|_| *echo) {
        read = prompt.tokens.len() - 1;
        if !tell_prompt(model, job, index, &prompt.tokens, most, &goes_on)? {
            return Ok(false);
        }
    }
    let context = served.writing.context;
    let mut generator = Generator::new(context, *choice, *seed, prompt.tokens.clone()).after(read);
    let limits = Limits { most: prompt.most, tokens: ends, words: stop };
    let mut characters = Characters::default();
    let written = write(model, &mut generator, Words::of(&served.text), limits, &mut |piece| {
        if let (Some(most), Some(token)) = (likely, piece.token) {
            let _ = job.to.send(Told::Scored(index, Scored::of(token, piece.scores, *most)));
        }
        let text = characters.whole(piece.text, piece.token.is_none());
        if !text.is_empty() {
            let _ = job.to.send(Told::Text(index, text));
        }
        Ok(goes_on())
    })?;
    if written.ended == Ended::Unread {
        return Ok(false);
    }
    let _ = job.to.send(Told::End(index, written.ended == Ended::ByItself, written.count));
    Ok(true)
}

/// Tells how likely the tokens of a prompt are. The model reads them one by one, all but the last.
fn tell_prompt(
    model: &mut Pipeline<Sequential>,
    job: &Job,
    index: usize,
    tokens: &[u32],
    most: usize,
    goes_on: &dyn Fn() -> bool,
) -> Result<bool> {
    let _ = job.to.send(Told::Scored(index, Scored::first(tokens[0])));
    for (past, pair) in tokens.windows(2).enumerate() {
        if !goes_on() {
            return Ok(false);
        }
        let scores = model.next_scores(past, &pair[..1])?;
        let _ = job.to.send(Told::Scored(index, Scored::of(pair[1], &scores, most)));
    }
    Ok(true)
}

/// Bytes that become characters. A model of bytes writes a character in several parts.
#[derive(Default)]
struct Characters(Vec<u8>);

impl Characters {
    /// The characters that are whole with these bytes. What no character can begin with becomes U+FFFD, and
    /// at the end all that waits.
    fn whole(&mut self, bytes: &[u8], is_end: bool) -> String {
        self.0.extend_from_slice(bytes);
        let waits = match std::str::from_utf8(&self.0) {
            Err(error) if !is_end && error.error_len().is_none() => self.0.len() - error.valid_up_to(),
            // After what is no character, the last bytes may be the beginning of one.
            Err(_) if !is_end => beginning(&self.0),
            _ => 0,
        };
        let rest = self.0.split_off(self.0.len() - waits);
        String::from_utf8_lossy(&std::mem::replace(&mut self.0, rest)).into_owned()
    }
}

/// How many of the last bytes may be the beginning of a character.
fn beginning(bytes: &[u8]) -> usize {
    let last = (1..=bytes.len().min(3)).rev();
    last.into_iter()
        .find(|count| {
            let end = &bytes[bytes.len() - count..];
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_told_when_they_are_whole() {
        for (bytes, expected) in [
            (&b"ab"[..], vec!["a", "b", ""]),
            ("é日".as_bytes(), vec!["", "é", "", "", "日", ""]),
            (b"\xff\xe6\x97a", vec!["\u{fffd}", "", "", "\u{fffd}a", ""]),
            (b"a\xe6", vec!["a", "", "\u{fffd}"]),
        ] {
            let mut characters = Characters::default();
            let mut told: Vec<_> = bytes.iter().map(|byte| characters.whole(&[*byte], false)).collect();
            told.push(characters.whole(&[], true));
            assert_eq!(told, expected, "{bytes:?}");
        }
    }
}
