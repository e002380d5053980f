//! Documents become tokens, on all cores.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use super::TokenWriter;
use super::file::wrong;
use super::parts::{Part, Parts};
use super::raw::{self, Document, Form, LossOn, Message, Piece, Rich};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{Error, Problem, Result};
use crate::tokenizer::{Chat, ChatTemplate, Date, Template, Tokenizer};

/// The bit of a token that is no target: it was not written by the assistant of a chat. No vocabulary is so
/// large.
pub(super) const NO_TARGET: u32 = 1 << 31;

/// How many bytes a thread encodes before its tokens are written.
const SHARE: u64 = 1 << 20;

/// How files become tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The form of the files.
    pub form: Form,
    /// The field of a line, or the column of a table, that has the text or the messages.
    pub field: String,
    /// How messages become text. `None` for the tokenizer's own template, or ChatML if it has none.
    pub template: Option<Template>,
    /// Which tokens are targets.
    pub loss_on: LossOn,
    /// Whether a record is a pair of answers, which stand in the fields `chosen` and `rejected`, with what
    /// stands before both in `prompt`. Then it becomes two documents, first the preferred one, and only the
    /// tokens of answers are targets: for [`Pairs`](super::Pairs).
    pub pairs: bool,
    /// The token that ends a document, by its text. `None` for the one that the tokenizer usually has.
    pub end_of_text: Option<String>,
    /// The date that templates may ask for. `None`: they are told that there is none, because the date of
    /// today would make other tokens on each day.
    pub date: Option<Date>,
}

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoded {
    /// The bytes of files that are encoded.
    pub bytes: u64,
    /// The bytes of all files.
    pub all: u64,
}

impl Recipe {
    /// The recipe for this form, with the field `text`, the tokenizer's own template, and all tokens as
    /// targets.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            field: "text".to_owned(),
            template: None,
            loss_on: LossOn::default(),
            pairs: false,
            end_of_text: None,
            date: None,
        }
    }

    /// Encodes files and the files of folders. A text has the tokens of [`Tokenizer::encode`], a chat has the
    /// tokens of its template; a token that ends documents follows, unless the tokenizer has added it. The
    /// result does not depend on the number of cores.
    ///
    /// A token that is no target has the highest bit; there are such only with [`LossOn::Answers`].
    ///
    /// A long text is encoded in parts of about a megabyte, which see what stands beside them. If that does
    /// not give the tokens of the whole text, it is encoded at once, which takes up to 400 bytes of
    /// memory for each byte of the text.
    ///
    /// # Errors
    /// When a file cannot be read or has a broken line, which is named. When the tokenizer has no token that
    /// ends a document, or cannot write a chat.
    pub fn encode(
        &self,
        paths: &[PathBuf],
        tokenizer: &Tokenizer,
        to: &mut TokenWriter,
        tell: &mut dyn FnMut(Encoded),
    ) -> Result<()> {
        let work = Work::new(self, tokenizer)?;
        to.made_by(tokenizer);
        let files = raw::find(paths, self.form)?;
        let all = files.iter().map(|(_, bytes)| bytes).sum();
        let mut done = 0;
        for (path, bytes) in files {
            let tell = &mut |read: u64| {
                let bytes = done + read.min(bytes);
                tell(Encoded { bytes, all });
            };
            work.file(&path, to, tell)?;
            done += bytes;
        }
        Ok(())
    }

    /// The field that is read.
    fn field(&self) -> &str {
        if self.pairs { raw::CHOSEN } else { &self.field }
    }

    /// Whether some tokens are no targets.
    pub(super) fn is_masked(&self) -> bool {
        self.pairs || self.loss_on == LossOn::Answers
    }

    /// The checksum of all that the tokens depend on: the files' contents, the tokenizer and this.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
    pub fn checksum(&self, paths: &[PathBuf], tokenizer: &Tokenizer) -> Result<Checksum> {
        let mut checksum = ChecksumBuilder::new();
        let (tokens, chats) = (tokenizer.checksum(), tokenizer.chat_checksum());
        let Self { form, template, pairs, end_of_text, date, .. } = self;
        // Of pairs, the fields are known, and which tokens are targets too.
        let (field, loss_on) = match pairs {
            true => ("pairs", LossOn::Answers),
            false => (self.field.as_str(), self.loss_on),
        };
        let recipe = format!(
            "Recipe {{ form: {form:?}, field: {field:?}, template: {template:?}, loss_on: {loss_on:?}, \
             end_of_text: {end_of_text:?}, date: {date:?} }}"
        );
        let pairs = if *pairs { ", pairs" } else { "" };
        checksum.add(format!("tokens 4, {recipe}{pairs}, {tokens}, {chats}").as_bytes());
        for (path, bytes) in raw::find(paths, self.form)? {
            checksum.add(&bytes.to_le_bytes());
            super::file::add_to(&mut checksum, &path)?;
        }
        Ok(checksum.checksum())
    }
}

/// What encodes the files of a recipe.
struct Work<'a> {
    recipe: &'a Recipe,
    tokenizer: &'a Tokenizer,
    /// The token that ends a document.
    end: u32,
    threads: usize,
    /// Made for the first chat.
    template: OnceLock<ChatTemplate>,
}

impl<'a> Work<'a> {
    fn new(recipe: &'a Recipe, tokenizer: &'a Tokenizer) -> Result<Self> {
        Ok(Self {
            recipe,
            tokenizer,
            end: tokenizer.end_of_text(recipe.end_of_text.as_deref())?,
            threads: thread::available_parallelism().map_or(1, usize::from),
            template: OnceLock::new(),
        })
    }

    /// Encodes a file. `tell` hears how many bytes of it are done.
    fn file(&self, path: &Path, to: &mut TokenWriter, tell: &mut dyn FnMut(u64)) -> Result<()> {
        let mut parts = Parts::of(self.open(path)?);
        let (mut read, mut written) = (0, 0);
        loop {
            let batch = parts.batch(self.threads as u64 * SHARE)?;
            if batch.is_empty() {
                return Ok(());
            }
            read += batch.iter().map(|part| part.piece.bytes).sum::<u64>();
            for (part, documents) in batch.iter().zip(self.on_threads(&batch)?) {
                let Some(documents) = documents else {
                    return self.whole(path, written, to);
                };
                for tokens in documents {
                    written += tokens.len();
                    to.add(&tokens)?;
                    if part.piece.ends {
                        to.end_document();
                    }
                }
            }
            tell(read);
        }
    }

    fn open(&self, path: &Path) -> Result<raw::Pieces> {
        raw::open(path.to_owned(), self.recipe.form, self.recipe.field())
    }

    /// Encodes a file of text at once. Its first `written` tokens are already written.
    fn whole(&self, path: &Path, written: usize, to: &mut TokenWriter) -> Result<()> {
        let mut text = String::new();
        for piece in self.open(path)? {
            text += &piece?.text;
        }
        to.add(&self.text(&text)?[written..])?;
        to.end_document();
        Ok(())
    }

    /// The documents of each part, in order.
    fn on_threads(&self, batch: &[Part]) -> Result<Vec<Option<Tokens>>> {
        let each = batch.len().div_ceil(self.threads).max(1);
        let encode =
            |share: &[Part]| -> Result<Vec<_>> { share.iter().map(|part| self.part(part)).collect() };
        let results: Vec<Result<Vec<_>>> = thread::scope(|scope| {
            let shares: Vec<_> = batch.chunks(each).collect();
            let started: Vec<_> = shares.iter().map(|share| scope.spawn(|| encode(share))).collect();
            let joined = started.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let shares: Vec<_> = results.into_iter().collect::<Result<_>>()?;
        Ok(shares.into_iter().flatten().collect())
    }

    /// The documents of a part, each with its end; or the one that it is a part of, with the end if it ends
    /// there. `None` if it is a part of a text that can only be encoded as a whole.
    fn part(&self, part: &Part) -> Result<Option<Tokens>> {
        let Part { piece, before, after } = part;
        if self.recipe.form != Form::Text {
            return self.documents(piece).map(Some);
        }
        let tokens = self.tokenizer.encode_between(before, &piece.text, after)?;
        Ok(tokens.map(|tokens| {
            let [begin, _] = self.tokenizer.around();
            let begin = if before.is_empty() { begin } else { &[] };
            let end = if piece.ends { self.end_of_text() } else { Vec::new() };
            vec![[begin, &tokens[..], &end].concat()]
        }))
    }

    /// The tokens of a text.
    fn text(&self, text: &str) -> Result<Vec<u32>> {
        let [begin, _] = self.tokenizer.around();
        Ok([begin, &self.tokenizer.encode_bare(text)?[..], &self.end_of_text()].concat())
    }

    /// What follows a text: what the tokenizer adds, and the token that ends a document, once.
    fn end_of_text(&self) -> Vec<u32> {
        let [_, end] = self.tokenizer.around();
        let more = (end.last() != Some(&self.end)).then_some(self.end);
        end.iter().copied().chain(more).collect()
    }

    /// The documents of a line or a row.
    fn documents(&self, piece: &Piece) -> Result<Tokens> {
        let refuse = |problem: String| -> Error {
            let unit = if self.recipe.form == Form::Jsonl { "line" } else { "row" };
            wrong(&piece.path, format!("{unit} {} {problem}", piece.line))
        };
        let template = || self.template().ok();
        if self.recipe.pairs {
            let answers = raw::answers(&piece.text, &template).map_err(refuse)?;
            return answers.into_iter().map(|one| self.document(one, piece, refuse)).collect();
        }
        let Recipe { field, loss_on, .. } = self.recipe;
        let document = raw::document(&piece.text, field, *loss_on, &template).map_err(refuse)?;
        Ok(vec![self.document(document, piece, refuse)?])
    }

    /// The tokens of a document of a line or a row.
    fn document(
        &self,
        document: Document,
        piece: &Piece,
        refuse: impl Fn(String) -> Error + Copy,
    ) -> Result<Vec<u32>> {
        match document {
            Document::Text(_) if self.recipe.is_masked() => Err(refuse(
                "is a text without answers, and data.loss_on is \"answers\": set it to \"all\", or name the \
                 field with the messages of a chat, or with what follows a prompt, as data.field"
                    .to_owned(),
            )),
            Document::Text(text) => self.text(&text),
            Document::Pair(parts) => self.pair(&parts),
            Document::Chat(messages, rich) => {
                let chat = given(&messages, &rich, piece).map_err(|problem| refuse(problem.to_string()))?;
                let chat = match self.recipe.date {
                    Some(date) => chat.dated(date),
                    None => chat,
                };
                let refuse = |problem: Problem| {
                    refuse(format!("is a chat, and the tokenizer's chat template {problem}"))
                };
                self.chat(&messages, &chat, self.template()?, refuse)
            }
        }
    }

    /// The tokens of a prompt and of what follows it, as of one text. The prompt is no answer.
    fn pair(&self, parts: &[String; 2]) -> Result<Vec<u32>> {
        let (text, start) = (parts.concat(), parts[0].len());
        if !self.recipe.is_masked() {
            return self.text(&text);
        }
        let [begin, _] = self.tokenizer.around();
        let begin = begin.iter().map(|token| token | NO_TARGET);
        let answer = start..text.len();
        let marked = self.marked(&text, std::slice::from_ref(&answer))?;
        Ok(begin.chain(marked).chain(self.end_of_text()).collect())
    }

    /// The tokens of a text, marked where they are in no answer.
    fn marked(&self, text: &str, answers: &[Range<usize>]) -> Result<Vec<u32>> {
        let marked = self.tokenizer.encode_with_places(text)?.into_iter().map(|(token, place)| {
            // A place may leave out white space at its ends, and be empty: then it is where that ended.
            let in_answer = |answer: &Range<usize>| place.end > answer.start && place.start < answer.end;
            match answers.iter().any(in_answer) {
                true => token,
                false => token | NO_TARGET,
            }
        });
        Ok(marked.collect())
    }

    fn template(&self) -> Result<&ChatTemplate> {
        if let Some(made) = self.template.get() {
            return Ok(made);
        }
        let made = self.tokenizer.chat(self.recipe.template)?;
        Ok(self.template.get_or_init(|| made))
    }

    fn chat(
        &self,
        messages: &[Message],
        chat: &Chat,
        template: &ChatTemplate,
        refuse: impl Fn(Problem) -> Error,
    ) -> Result<Vec<u32>> {
        if !self.recipe.is_masked() {
            let text = template.text(chat, false).map_err(refuse)?;
            let mut tokens = self.tokenizer.encode_bare(&text)?;
            // A template may write the end itself.
            if tokens.last() != Some(&self.end) {
                tokens.push(self.end);
            }
            return Ok(tokens);
        }
        let counts: Vec<bool> = messages.iter().map(|message| message.counts).collect();
        let (text, answers) = template.with_answers(chat, &counts).map_err(refuse)?;
        let mut tokens = self.marked(&text, &answers)?;
        if tokens.last().map(|token| token & !NO_TARGET) != Some(self.end) {
            tokens.push(self.end | NO_TARGET);
        }
        Ok(tokens)
    }
}

/// The tokens of documents.
type Tokens = Vec<Vec<u32>>;

/// What a template is given of a chat.
fn given(messages: &[Message], rich: &Rich, piece: &Piece) -> std::result::Result<Chat, Problem> {
    let Some(fields) = rich else {
        let usual = messages.iter().map(|one| (one.role.as_str(), one.content.as_str()));
        return Ok(Chat::of(&usual.collect::<Vec<_>>()));
    };
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let mut chat = Chat::read_fields(&piece.text, &fields)?;
    chat.join_parts()?;
    Ok(chat)
}
