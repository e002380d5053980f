//! Copies of checkpoints and data at places that are URLs, as a person names them.

use super::*;

#[test]
fn a_run_goes_on_in_an_empty_folder_from_its_copies_and_with_its_own_config() {
    let place = Place::new();
    let whole = place.run(&["train", "my.toml", "--run-dir", "whole", "--weights-hash"]).done().hash();
    let copies = place.path("copies");
    let (sets, url) = (["checkpoint.copy_to=copies"], format!("file://{}", copies.display()));
    let first = place.run_with(&["train", "my.toml", "--run-dir", "first", "--steps", "3"], &sets).done();
    has(&first.stdout(), &["copied the checkpoint after 2 steps to copies in", "after 3 steps to copies in"]);

    let resume = ["train", "--resume", &url, "--run-dir", "second", "--weights-hash"];
    let second = place.run(&resume).done();
    has(&second.stdout(), &["fetched   file://", "step-00000003.json", "resumed after 3 steps"]);
    assert_eq!(second.hash(), whole);
    assert_eq!(place.checkpoints("second").last().map(String::as_str), Some("step-00000006"));

    // The run directory has one that is newer than the first three: the same command again fetches nothing.
    let again = place.run(&resume).done();
    has(&again.stdout(), &["not fetched, since the run directory has it or a newer one"]);
    assert_eq!(again.hash(), whole);
}

#[test]
fn what_follows_resume_is_a_place_or_the_config() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "1"]).done();
    place.run(&["train", "--resume", "my.toml", "--steps", "2"]).done();
    let said = place.run(&["train", "my.toml", "--resume", "copies"]).refused();
    has(&said, &["--resume copies: this is neither a place of copies, such as s3://bucket/runs/a"]);
}

#[test]
fn a_place_without_a_checkpoint_is_refused_and_nothing_is_made() {
    let place = Place::new();
    let url = format!("file://{}", place.path("nothing").display());
    let said = place.run(&["train", "my.toml", "--resume", &url, "--run-dir", "run"]).refused();
    has(&said, &["there is no whole checkpoint in file://"]);
    assert!(!place.path("run").exists());
}

#[test]
fn places_that_cannot_be_are_refused_before_anything_begins() {
    let place = Place::new();
    for (set, problem) in [
        ("checkpoint.copy_to=ftp://host/a", "checkpoint.copy_to: `ftp://host/a` has a scheme"),
        ("data.path=s3://", "data.path: `s3://` names no bucket"),
        ("data.validation_path=s4://bucket/a", "data.validation_path: `s4://bucket/a` has a scheme"),
    ] {
        has(&place.run_with(&["train", "my.toml"], &[set]).refused(), &[problem]);
    }
    if cfg!(not(feature = "cloud")) {
        let said = place.run_with(&["train", "my.toml"], &["checkpoint.copy_to=s3://bucket/a"]).refused();
        has(
            &said,
            &["checkpoint.copy_to: s3://bucket/a: this program was built without", "--features cloud"],
        );
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn data_at_a_file_url_is_the_file() {
    let place = Place::new();
    let whole = place.run(&["train", "my.toml", "--weights-hash"]).done().hash();
    let set = [format!("data.path=file://{}", place.path("text.txt").display())];
    let url = place.run_with(&["train", "my.toml", "--run-dir", "url", "--weights-hash"], &set).done();
    assert_eq!(url.hash(), whole);
}
