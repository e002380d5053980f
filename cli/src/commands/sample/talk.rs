//! A conversation: messages from standard input, and the model's answers.

use std::io::{self, BufRead, IsTerminal};

use super::chats::Chats;
use super::source::Text;
use super::words::Words;
use super::written::{Ended, Limits, Written, write};
use crate::compose::Writing;
use crate::error::{Error, Result};
use pipewright::pipeline::Pipeline;
use pipewright::run::{Choice, Generator};
use pipewright::stages::Sequential;
use pipewright::tokenizer::Chat;

const HELP: &str = "/reset begins a new conversation, /exit or Ctrl-D ends; a line that ends with \\ goes on";

/// How the model answers.
pub(super) struct Manner<'a> {
    pub(super) system: Option<&'a str>,
    pub(super) choice: Choice,
    pub(super) seed: u64,
    /// The most tokens of an answer.
    pub(super) most: usize,
    pub(super) stop: &'a [String],
    pub(super) timing: bool,
}

/// A line that was typed.
enum Line {
    Message(String),
    Reset,
    Exit,
    /// The input has ended.
    End,
    Unknown(String),
    Nothing,
}

/// A conversation, and what the model has read of it.
struct Talk<'a> {
    text: &'a Text,
    chats: Chats<'a>,
    context: usize,
    manner: Manner<'a>,
    ends: Vec<u32>,
    chat: Chat,
    known: Vec<u32>,
    /// How many answers were written. Each has a seed of its own.
    answers: u64,
}

/// Refuses a conversation that the template does not write, before the model is read.
pub(super) fn check(text: &Text, system: Option<&str>) -> Result<()> {
    let mut chat = begun(system);
    chat.push("user", "Hello");
    Chats::of(text)?.tokens(&chat).map(drop)
}

/// Talks until the input ends, or nobody reads the answers any more.
pub(super) fn talk(
    text: &Text,
    writing: Writing,
    manner: Manner,
    model: &mut Pipeline<Sequential>,
) -> Result<()> {
    let is_typed = io::stdin().is_terminal();
    if is_typed {
        crate::commands::print(&format!("{HELP}\n"))?;
    }
    let mut talk = Talk {
        text,
        chats: Chats::of(text)?,
        context: writing.context,
        chat: begun(manner.system),
        ends: text.ends_of_answer(),
        manner,
        known: Vec::new(),
        answers: 0,
    };
    let mut input = io::stdin().lock();
    loop {
        if is_typed {
            crate::commands::print("> ")?;
        }
        match read(&mut input)? {
            Line::Exit => return Ok(()),
            Line::End if is_typed => return crate::commands::print("\n"),
            Line::End => return Ok(()),
            Line::Nothing => {}
            Line::Reset => talk.chat = begun(talk.manner.system),
            Line::Unknown(word) => eprintln!("{word} is unknown: {HELP}; a message may begin with a space"),
            Line::Message(message) => {
                if !talk.answer(&message, model)? {
                    return Ok(());
                }
            }
        }
    }
}

impl Talk<'_> {
    /// Answers a message. Returns `false` if nobody reads the answer.
    fn answer(&mut self, message: &str, model: &mut Pipeline<Sequential>) -> Result<bool> {
        let before = self.chat.count();
        self.chat.push("user", message);
        let Some((tokens, room)) = self.asked() else {
            self.chat.truncate(before);
            return Ok(true);
        };
        let read = tokens.iter().zip(&self.known).take_while(|(new, known)| new == known).count();
        let (prompt, seed) = (tokens.len(), self.manner.seed.wrapping_add(self.answers));
        let mut generator = Generator::new(self.context, self.manner.choice, seed, tokens).after(read);
        let limits = Limits { most: self.manner.most.min(room), tokens: &self.ends, words: self.manner.stop };
        let mut answer = Vec::new();
        let written = write(model, &mut generator, Words::of(self.text), limits, &mut |piece| {
            answer.extend_from_slice(piece.text);
            crate::commands::write(piece.text)
        })?;
        self.known = generator.known().to_vec();
        self.answers += 1;
        self.chat.push("assistant", &String::from_utf8_lossy(&answer));
        if written.ended == Ended::Unread || !crate::commands::write(b"\n")? {
            return Ok(false);
        }
        self.tell(written, prompt, read, room);
        Ok(true)
    }

    /// The tokens of the conversation, and how many more the context has room for. If there are none, the
    /// reason is told.
    fn asked(&self) -> Option<(Vec<u32>, usize)> {
        let tokens = match self.chats.tokens(&self.chat) {
            Ok(tokens) => tokens,
            Err(error) => {
                eprintln!("error: {error}");
                return None;
            }
        };
        let (has, context) = (tokens.len(), self.context);
        if has > context {
            eprintln!(
                "error: with this message the conversation has {has} tokens, and the model's context is \
                 {context}: /reset begins a new one, or write less"
            );
            return None;
        }
        Some((tokens, context + 1 - has))
    }

    /// Says what an answer does not say itself.
    fn tell(&self, written: Written, prompt: usize, read: usize, room: usize) {
        if written.ended == Ended::AtLimit && written.count == room {
            let context = self.context;
            eprintln!(
                "warning: the model's context of {context} tokens is full, so this answer was cut: /reset \
                 begins a new conversation"
            );
        } else if written.ended == Ended::AtLimit {
            let most = self.manner.most;
            eprintln!("warning: this answer was cut after {most} tokens: --tokens N allows more");
        }
        if self.manner.timing {
            eprintln!("{}", written.timing(prompt - read));
        }
    }
}

/// A conversation in which nobody has asked yet.
fn begun(system: Option<&str>) -> Chat {
    let system: Vec<_> = system.map(|text| ("system", text)).into_iter().collect();
    Chat::of(&system)
}

/// Reads a message, which is a line, or several that end with a backslash.
fn read(input: &mut impl BufRead) -> Result<Line> {
    let mut message = String::new();
    loop {
        let mut line = String::new();
        let count = input.read_line(&mut line).map_err(Error::io("read", "standard input"))?;
        let line = line.trim_end_matches(['\r', '\n']);
        message += line.strip_suffix('\\').unwrap_or(line);
        match line.ends_with('\\') && count > 0 {
            true => message.push('\n'),
            false if count == 0 && message.is_empty() => return Ok(Line::End),
            false => break,
        }
    }
    Ok(match message.trim_end() {
        "/exit" => Line::Exit,
        "/reset" => Line::Reset,
        text if text.trim().is_empty() => Line::Nothing,
        text if text.starts_with('/') => {
            Line::Unknown(text.split_whitespace().next().unwrap_or_default().to_owned())
        }
        _ => Line::Message(message),
    })
}
