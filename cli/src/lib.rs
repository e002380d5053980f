//! The `pipewright` command, and what it is made of: configs, measured costs and pages of runs.
//!
//! A program that has layers of its own registers them, and calls [`main`]. Then configs can name them, and
//! the program has all commands.
//!
//! | to | see |
//! | --- | --- |
//! | run the command in a program of one's own | [`main`], [`compose::register_layer`] |
//! | read a config as the command does | [`config::Config`], [`compose`] |
//! | measure what layers cost | [`profile`] |
//! | make a page of a run | [`report`] |
//! | handle an error by its kind | [`Error`], [`error`] |
//!
//! # How it is laid out
//!
//! Lowest first: [`error`]; [`profile`]; [`config`] and [`report`]; [`compose`]; the commands. No module
//! imports from one above it.

mod commands;
pub mod compose;
pub mod config;
pub mod error;
mod http;
pub mod profile;
pub mod report;

pub use commands::main;
pub use error::{Error, Result};

#[cfg(doctest)]
mod guide;
