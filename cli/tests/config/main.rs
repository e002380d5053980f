//! Configs: which source overrides which, what is built, and the error for every mistake.

use std::fs;
use std::path::{Path, PathBuf};

use has::has;
use pipewright::data::{Longer, Packing, Share};
use pipewright::id::MicroBatch;
use pipewright::stages::optimizer::LearningRate;
use pipewright::stages::{RecomputedStage, Sequential, StageBuilder};
use pipewright_cli::config::{Config, DataKind, ModelKind};
use pipewright_cli::{Error, Result, compose};

/// A config without contradictions.
fn parse(text: &str) -> Result<Config> {
    with_sets(text, &[])
}

fn with_sets(text: &str, sets: &[&str]) -> Result<Config> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let config = Config::parse("my.toml", text, &[], &sets)?;
    compose::check(&config)?;
    Ok(config)
}

fn stages(config: &Config) -> Vec<StageBuilder<RecomputedStage<Sequential>>> {
    let counts = compose::plan(config).unwrap().counts;
    compose::stages(config, &counts).unwrap()
}

fn refused(result: Result<Config>) -> String {
    let error = result.expect_err("a refusal");
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    error.to_string()
}

/// Each text is refused, and the message contains each of the parts.
fn all_refused(cases: &[(&str, &[&str])]) {
    for (text, parts) in cases {
        let said = refused(parse(text));
        for part in *parts {
            assert!(said.contains(part), "{text:?} said {said:?}, without {part:?}");
        }
    }
}

mod fabric;
#[path = "../../../tests/common/has.rs"]
mod has;

mod privacy;
mod sources;
mod stalls;

mod keys;

mod models;

mod launch;
mod mixed;

mod values;

mod building;

mod counts;

mod documents;

mod schedules;

mod devices;

mod training;
