//! What `--out` writes, and which files it does not change.

use std::collections::BTreeSet;

use super::tune::measured;
use super::*;

#[test]
fn a_file_that_is_there_is_replaced_only_by_costs_where_it_has_costs() {
    let place = measured();
    let config = place.text("my.toml");
    place.write("other.json", "{ \"version\": 1 }");
    let refused = |args: &[&str], part: &str| {
        let said = place.run(args).refused();
        assert_eq!(said, format!("error: --out {part}: name another, or remove it\n"));
    };
    let no_costs = "this file exists and is no file of costs, so it is not replaced";
    for file in ["my.toml", "text.txt", "other.json"] {
        refused(&["profile", "my.toml", "--out", file], &format!("{file}: {no_costs}"));
    }
    refused(&["tune", "my.toml", "--out", "my.toml"], "my.toml: this file exists");
    place.write("tuned.costs.json", "mine");
    refused(&["tune", "my.toml", "--out", "tuned.toml"], &format!("tuned.costs.json: {no_costs}"));
    assert_eq!(place.text("my.toml"), config);
    let names = || fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    let before: BTreeSet<_> = names().collect();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    assert_eq!(names().collect::<BTreeSet<_>>(), before, "nothing is left beside it");
}

#[test]
fn what_was_measured_is_printed_even_where_it_cannot_be_written() {
    let place = Place::new();
    let run = |args: &str| {
        let program = cargo_bin("pipewright");
        // With this limit, files can be created but nothing can be written into them.
        let script = format!("trap '' XFSZ; ulimit -f 0; exec {} {args}", program.display());
        let run = Command::new("sh").args(["-c", &script]).current_dir(place.path(".")).output();
        let run = Run(run.unwrap());
        assert_eq!(run.0.status.code(), Some(1), "{}", run.stderr());
        run
    };
    let profile = run("profile my.toml");
    has(&profile.stdout(), &["\nh.1.mlp "]);
    has(&profile.stderr(), &["error: cannot write costs.json: "]);
    let tune = run("tune my.toml --ranks 1 --top 0 --out tuned.toml");
    let last = tune.stdout().lines().last().unwrap().to_owned();
    assert!(last.starts_with("chosen: 1f1b: ranks 1, "), "{last}");
    has(&tune.stderr(), &["error: cannot write tuned.costs.json: "]);
    let files = fs::read_dir(place.path(".")).unwrap().count();
    assert_eq!(files, 2, "the config and the text, and nothing half written");
}
