//! A tokenizer, read from the file of a model.

use std::fmt::{self, Display};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use tokenizers::{DecoderWrapper, Encoding, Token, Tokenizer as Inner};

use super::about::About;
use super::chat::{Chat, ChatTemplate, Date, Template};
use super::decoder::Decoder;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{DataError, Error, Problem, Result, panic_message};

/// The name of the file in a model's folder.
pub(super) const FILE: &str = "tokenizer.json";

/// The tokens by which models mark the end of a document, in the order in which they are looked for: GPT-2's,
/// Qwen's and SmolLM2's, then Llama 3's, then Llama 2's and Mistral's, and then Gemma's.
const ENDS: [&str; 4] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"];

/// A token that stands for a text where the tokenizer says what it adds around one.
const ANY: u32 = u32::MAX;

/// A tokenizer: it turns text into tokens and tokens into text.
pub struct Tokenizer {
    inner: Inner,
    path: PathBuf,
    checksum: Checksum,
    about: About,
    /// The number of tokens without those that only the files beside it add.
    own: usize,
    /// The tokens with which a text begins, and those with which it ends.
    around: [Vec<u32>; 2],
    decoder: Decoder,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or the one in a folder, and what the files beside it say of tokens and of
    /// chats: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`, `chat_template.jinja`
    /// and `chat_template.json`. Tokens that they name and the file does not have are added, as transformers
    /// does. Every text is encoded whole: it is neither cut nor filled up with padding, whatever the file
    /// says.
    ///
    /// # Errors
    /// When the file is missing, or is no tokenizer. When a file beside it is not JSON, or lists what is no
    /// token.
    pub fn read(path: &Path) -> Result<Self> {
        let is_folder = path.is_dir();
        let path = if is_folder { path.join(FILE) } else { path.to_owned() };
        if is_folder && !path.exists() {
            let folder = path.parent().unwrap_or(&path);
            return Err(refuse(
                folder,
                "has no tokenizer.json; if the model has a tokenizer of another form, let Python's \
                 transformers write one: \
                 AutoTokenizer.from_pretrained(\"MODEL\").save_pretrained(\"FOLDER\")",
            ));
        }
        let unreadable = |source| -> Error { DataError::unreadable(&path, source).into() };
        // A pipe is refused before it is opened: that would wait until somebody writes into it.
        if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(refuse(
                &path,
                "is not a regular file: name a tokenizer.json, or a folder that has one",
            ));
        }
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        let no_tokenizer = |error: tokenizers::Error| refuse(&path, broken(&error));
        let mut inner = parsed(&bytes).map_err(no_tokenizer)?;
        inner.with_truncation(None).map_err(no_tokenizer)?;
        let padding = inner.get_padding().map(|padding| padding.pad_token.clone());
        inner.with_padding(None);
        let about = About::read(path.parent().unwrap_or(&path), &bytes, padding.as_deref())?;
        let own = vocabulary(&inner);
        let has: Vec<_> = inner.get_added_tokens_decoder().into_iter().collect();
        let added = about.listed.missing(&has, about.has_decoder);
        inner.add_tokens(added.iter().cloned()).map_err(no_tokenizer)?;
        inner.set_encode_special_tokens(about.splits_special);
        let around = around(&inner).map_err(|problem| refuse(&path, problem))?;
        let mut checksum = ChecksumBuilder::new();
        checksum.add(&bytes);
        checksum.add(format!("{around:?} {added:?} {}", about.splits_special).as_bytes());
        let decoder = serde_json::to_value(inner.get_decoder()).unwrap_or_default();
        Ok(Self {
            decoder: Decoder::of(&decoder),
            checksum: checksum.checksum(),
            inner,
            path,
            about,
            own,
            around,
        })
    }

    /// The file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checksum of all that the tokens of a text depend on: the file, and the tokens that the files
    /// beside it add.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// The checksum of all that the text of a chat depends on, if no ready template writes it.
    pub(crate) fn chat_checksum(&self) -> Checksum {
        let template = self.about.template.as_ref().map(|own| (&own.usual, &own.with_tools));
        let mut checksum = ChecksumBuilder::new();
        checksum.add(format!("{:?} {template:?}", self.about.special()).as_bytes());
        checksum.checksum()
    }

    /// The tokens of a text, with those that the tokenizer adds at its beginning and its end: what
    /// `tokenizer(text)` of transformers gives. Special tokens that the text spells out are recognised.
    ///
    /// # Errors
    /// When the tokenizer has no token for a part of the text, not even an unknown one.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let [begin, end] = self.around();
        Ok([begin, &self.encode_bare(text)?[..], end].concat())
    }

    /// The tokens of a text, and no others. A chat is encoded so: its template writes all special tokens.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_bare(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.inner.encode_fast(text, false);
        let encoded = encoded.map_err(|error| self.cannot_encode(&error))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// The tokens that [`Tokenizer::encode`] adds before a text, and those that it adds behind it.
    pub fn around(&self) -> [&[u32]; 2] {
        self.around.each_ref().map(Vec::as_slice)
    }

    /// The tokens of [`Tokenizer::encode_bare`], each with the bytes of the text that it stands for.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let encoded = self.inner.encode(text, false);
        let encoded = encoded.map_err(|error| self.cannot_encode(&error))?;
        let places = encoded.get_offsets().iter().map(|&(start, end)| start..end);
        Ok(encoded.get_ids().iter().copied().zip(places).collect())
    }

    /// The text of tokens, with special tokens spelled out. Bytes that are not a whole character become
    /// U+FFFD, and tokens that do not exist become nothing.
    ///
    /// # Errors
    /// When the tokenizer's decoder refuses them.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        // Some decoders panic if there is no token at all.
        if tokens.iter().all(|&token| self.name(token).is_none()) {
            return Ok(String::new());
        }
        // `Strip` panics where it has more to take from the end than there is.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.inner.decode(tokens, false)));
        let decoded = decoded.unwrap_or_else(|panic| Err(panic_message(panic.as_ref()).into()));
        decoded.map_err(|error| refuse(&self.path, format!("cannot decode tokens: {error}")))
    }

    /// The number of tokens that a model has to know: one more than the highest token of the file. Tokens
    /// that only the files beside it add may be beyond: many models have a padding token that they never
    /// see.
    pub fn vocabulary(&self) -> usize {
        self.own
    }

    /// One more than the highest token, with those that the files beside it add.
    pub fn all_tokens(&self) -> usize {
        vocabulary(&self.inner)
    }

    /// The text that stands for a token in the file.
    pub(super) fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    pub(super) fn decoder(&self) -> Decoder {
        self.decoder
    }

    /// How a chat becomes text: by a ready template, or else by the tokenizer's own one. A tokenizer without
    /// one gets ChatML, if it has its tokens.
    ///
    /// # Errors
    /// When the tokenizer has not all tokens of the ready template, or when its own cannot be used.
    pub fn chat(&self, ready: Option<Template>) -> Result<ChatTemplate> {
        let (usual, with_tools) = match (ready, &self.about.template) {
            (None, Some(own)) => {
                let usual = own.usual.as_deref().ok_or_else(|| {
                    refuse(
                        &own.path,
                        "has several chat templates and none of the name \"default\": put the right one \
                         beside it as chat_template.jinja, or set data.template",
                    )
                })?;
                (usual, own.with_tools.as_deref())
            }
            (ready, _) => {
                let template = ready.unwrap_or_default();
                let mut marks = template.marks().iter();
                if let Some(&mark) = marks.find(|mark| self.inner.token_to_id(mark).is_none()) {
                    let template = template.name();
                    return Err(refuse(
                        &self.path,
                        format!(
                            "has no token `{mark}`, which the template \"{template}\" writes into a chat: \
                             set data.template to the model's own, put the model's chat_template.jinja \
                             beside the tokenizer, or take the model's tokenizer"
                        ),
                    ));
                }
                (template.source(), None)
            }
        };
        let special = self.special_tokens().into_iter().map(|(_, text)| text);
        let chat = ChatTemplate::new(usual, with_tools, self.about.special(), special.collect());
        chat.map_err(|problem| self.refuse_chat(problem))
    }

    /// The token with which an answer ends, as this ready template, or else the tokenizer's own, writes it.
    pub fn end_of_answer(&self, ready: Option<Template>) -> Option<u32> {
        let chat = self.chat(ready).ok()?;
        self.inner.token_to_id(chat.end_of_answer()?)
    }

    /// Whether it has a template for chats of its own.
    pub fn has_template(&self) -> bool {
        self.about.template.is_some()
    }

    /// The error for a chat that a template does not write.
    pub fn refuse_chat(&self, problem: Problem) -> Error {
        let path = self.about.template.as_ref().map_or(&self.path, |own| &own.path);
        refuse(path, format!("has a chat template that {problem}"))
    }

    /// The file with the tokenizer's own template for chats, if this ready template writes other text than
    /// it.
    pub fn other_template(&self, ready: Template) -> Option<&Path> {
        let path = &self.about.template.as_ref()?.path;
        let chat = Chat::of(&[("user", "a"), ("assistant", "b"), ("user", "c")]).dated(Date::now());
        let text = |ready| self.chat(ready).ok()?.text(&chat, true).ok();
        (text(None) != text(Some(ready))).then_some(path)
    }

    /// The special tokens and their texts, in the order of the tokens.
    pub fn special_tokens(&self) -> Vec<(u32, String)> {
        let added = self.inner.get_added_tokens_decoder();
        let special = added.into_iter().filter(|(_, token)| token.special);
        let mut special: Vec<_> = special.map(|(token, text)| (token, text.content)).collect();
        special.sort();
        special
    }

    /// The token that ends a document: the one with this text, or else the first that exists of
    /// `<|endoftext|>`, `<|end_of_text|>`, `</s>` and `<eos>`.
    ///
    /// # Errors
    /// When the tokenizer has no such token.
    pub fn end_of_text(&self, named: Option<&str>) -> Result<u32> {
        let token = match named {
            Some(name) => self.inner.token_to_id(name),
            None => ENDS.into_iter().find_map(|name| self.inner.token_to_id(name)),
        };
        token.ok_or_else(|| {
            let problem = match named {
                Some(name) => format!(
                    "has no token `{name}`: name one that it has as data.end_of_text, or with --end-of-text"
                ),
                None => format!(
                    "has none of the tokens {}: name the one that ends a document as data.end_of_text, or \
                     with --end-of-text",
                    ENDS.join(", ")
                ),
            };
            refuse(&self.path, problem)
        })
    }

    /// Whether another tokenizer makes the same tokens of every text, by the same rules.
    pub fn has_tokens_of(&self, other: &Self) -> bool {
        let rules = |one: &Self| {
            let mut inner = one.inner.clone();
            inner.with_decoder(None::<DecoderWrapper>);
            (inner.to_string(false).ok(), one.around.clone(), one.about.splits_special)
        };
        self.checksum == other.checksum || rules(self) == rules(other)
    }

    /// Refuses a model that does not know all tokens of the [vocabulary](Tokenizer::vocabulary).
    ///
    /// # Errors
    /// [`DataError`].
    pub fn check_vocabulary(&self, known: usize) -> Result<()> {
        let needed = self.vocabulary();
        if needed <= known {
            return Ok(());
        }
        Err(refuse(
            &self.path,
            format!(
                "has {needed} tokens, and model.vocab is {known}: set model.vocab to {needed} or more, or \
                 take the tokenizer of this model"
            ),
        ))
    }

    fn cannot_encode(&self, error: &tokenizers::Error) -> Error {
        refuse(&self.path, format!("cannot encode a text: {error}"))
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("path", &self.path).finish_non_exhaustive()
    }
}

/// One more than the highest token.
fn vocabulary(inner: &Inner) -> usize {
    let highest = inner.get_vocab(true).into_values().max();
    highest.map_or(0, |token| token as usize + 1)
}

/// The tokens that the post-processor adds around a text. It alone counts: transformers does not look at
/// `add_bos_token` and `add_eos_token` of the settings beside a `tokenizer.json`.
fn around(inner: &Inner) -> std::result::Result<[Vec<u32>; 2], String> {
    let text = Encoding::from_tokens(vec![Token::new(ANY, String::new(), (0, 0))], 0);
    let whole = inner.post_process(text, None, true);
    let whole = whole.map_err(|error| broken(&error))?;
    let mut sides = whole.get_ids().split(|&token| token == ANY);
    let mut side = || sides.next().unwrap_or_default().to_vec();
    Ok([side(), side()])
}

/// The crate panics on some files that are no tokenizers, so a file that is cut off is found before.
fn parsed(bytes: &[u8]) -> tokenizers::Result<Inner> {
    serde_json::from_slice::<IgnoredAny>(bytes)?;
    catch_unwind(|| Inner::from_bytes(bytes)).unwrap_or_else(|_| Err("a part of it has no known form".into()))
}

fn refuse(path: &Path, problem: impl Display) -> Error {
    DataError::new(format!("the tokenizer `{}` {problem}", path.display())).into()
}

fn broken(error: &tokenizers::Error) -> String {
    format!("is no tokenizer in the form of Hugging Face's tokenizer.json: {error}")
}
