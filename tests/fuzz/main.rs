//! Everything that is read, damaged in every way: it is read or refused, without a panic, and within a bound
//! on memory and on work that each target states. `CONTRIBUTING.md` says how to run it for hours, and one
//! input again.

mod data;
mod files;
mod memory;
mod models;
mod mutate;
mod reports;
mod saved;
mod settings;
mod watch;
mod wires;

#[path = "../common/alone.rs"]
mod alone;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/folders.rs"]
mod folders;
#[path = "../common/frame.rs"]
mod frame;
#[path = "../fabric/gate.rs"]
#[allow(dead_code, reason = "the tests of fabrics use all of it")]
mod gate;
#[path = "../common/gguf.rs"]
mod gguf;
#[path = "../common/worlds.rs"]
mod worlds;

use std::collections::HashSet;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use alone::alone;
use files::{contents, write};
use memory::taken;
use mutate::{Random, mutate};
use pipewright::tokenizer::Tokenizer;
use serde_json::{Value, json};
use tempfile::TempDir;
use watch::{Watch, panics};

/// What is read, and what it may take.
struct Target<'a> {
    name: &'static str,
    /// Whole inputs, which are changed at random.
    seeds: Vec<Vec<u8>>,
    /// Words that the reader knows, with `, ` between them.
    words: &'a str,
    /// How many inputs a test tries.
    inputs: u32,
    /// The most bytes that one input may take.
    bytes: usize,
    /// The most blocks of memory that one input may ask for.
    blocks: usize,
}

const MIB: usize = 1 << 20;

/// As many inputs as told keep what is new about them for later ones.
const KEPT: usize = 2000;

impl Target<'_> {
    /// Reads inputs until enough are read. `read` returns the message of a refusal.
    fn fuzz(mut self, mut read: impl FnMut(&[u8]) -> Result<(), String>) {
        let watch = Watch::begin(&files::kept().join(format!("{}.input", self.name)));
        if let Some(path) = env::var_os("PIPEWRIGHT_FUZZ_INPUT") {
            let said = self.read(&watch, &fs::read(path).expect("the input is there"), &mut read);
            println!("{}: {said:?}", self.name);
            return;
        }
        self.seeds.extend(files::found_before(self.name));
        let (mut fine, given) = (0, self.seeds.len());
        for whole in &self.seeds {
            // The first time also makes what later ones use again.
            let _ = read(whole);
            fine += u32::from(self.read(&watch, whole, &mut read).is_ok());
        }
        let minutes = env::var("PIPEWRIGHT_FUZZ_MINUTES").ok();
        let minutes = minutes.map(|minutes| minutes.parse::<f64>().expect("a number of minutes"));
        let seed = env::var("PIPEWRIGHT_FUZZ_SEED").map_or(15, |seed| seed.parse().expect("a number"));
        let (mut random, since) = (Random::new(seed, self.name), Instant::now());
        let words: Vec<&str> = self.words.split(", ").filter(|word| !word.is_empty()).collect();
        let (mut tried, mut refused, mut told) = (0, 0, HashSet::new());
        let goes_on = |tried| match minutes {
            None => tried < self.inputs,
            Some(minutes) => since.elapsed() < Duration::from_secs_f64(60.0 * minutes),
        };
        while goes_on(tried) {
            let input = mutate(&mut random, &self.seeds, given, &words);
            let said = self.read(&watch, &input, &mut read);
            tried += 1;
            refused += u32::from(said.is_err());
            // What is told in new words comes from another place: it is a seed from now on.
            if told.insert(without_values(&said)) && told.len() <= KEPT {
                self.seeds.push(input);
            }
        }
        let ways = told.len();
        println!(
            "{}: {fine} of {given} seeds read; {tried} inputs, {refused} refused in {ways} ways; seed {seed}",
            self.name
        );
    }

    /// Reads one input.
    fn read(
        &self,
        watch: &Watch,
        input: &[u8],
        read: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        watch.reads(input);
        let (result, taken) = taken(|| catch_unwind(AssertUnwindSafe(|| read(input))));
        watch.rests();
        let panicked = panics();
        let wrong = match &result {
            Err(_) => Some(format!("it panics: {}", panicked.join("; "))),
            // A crate that panics on damage is caught and told. We do not.
            Ok(_)
                if panicked
                    .iter()
                    .any(|panic| panic.contains("at src/") || panic.contains("at stages/src/")) =>
            {
                Some(format!("it hides a panic: {}", panicked.join("; ")))
            }
            Ok(_) if taken.bytes > self.bytes || taken.blocks > self.blocks => {
                Some(format!("it takes {taken:?}, and may {} bytes and {} blocks", self.bytes, self.blocks))
            }
            Ok(_) => None,
        };
        if let Some(wrong) = wrong {
            let path = self.keep(input);
            panic!(
                "{}: {wrong}\nagain: PIPEWRIGHT_FUZZ_INPUT={} cargo test --test fuzz {} -- --nocapture",
                self.name,
                path.display(),
                self.name
            );
        }
        result.unwrap_or_else(|_| unreachable!("told above"))
    }

    /// Keeps an input that fails in a file.
    fn keep(&self, input: &[u8]) -> PathBuf {
        let sum = pipewright::checksum::Checksum::of(input);
        let path = files::kept().join(format!("{}-{sum}", self.name));
        fs::write(&path, input).expect("it is kept");
        path
    }
}

/// A message without its numbers and quotations.
fn without_values(said: &Result<(), String>) -> String {
    let Err(said) = said else {
        return String::new();
    };
    let plain = said.split(['`', '"', '\'']).step_by(2).collect::<String>();
    plain.chars().filter(|letter| !letter.is_ascii_digit()).take(300).collect()
}

/// The message of an error.
fn told<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// A file of this repository.
fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
