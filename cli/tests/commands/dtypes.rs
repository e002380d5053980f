//! `tune --dtype`.

use super::tune::measured;
use super::*;

/// The words after `best in TYPE: `.
fn best_in<'a>(said: &'a str, dtype: &str) -> &'a str {
    let start = format!("best in {dtype}: ");
    let line = said.lines().find_map(|line| line.strip_prefix(start.as_str()));
    line.unwrap_or_else(|| panic!("no line for {dtype}\n{said}"))
}

#[test]
fn tune_compares_number_types_only_if_asked_and_measures_each() {
    let place = Place::new();
    let tune = ["tune", "my.toml", "--ranks", "1", "--top", "1"];
    let run = place.run(&tune).done();
    let both = run.stdout() + &run.stderr();
    assert!(!both.contains("bf16") && !both.contains("best in"), "{both}");
    let run = place.run(&[&tune[..], &["--dtype", "any"]].concat()).done();
    let (said, told) = (run.stdout(), run.stderr());
    has(&told, &["devices cpu in bf16; products on the CPU "]);
    for measured in ["rows 6\n", "rows 6, in bf16\n"] {
        let line = format!("measuring ranks 1, micro-batches 1, {measured}");
        assert!(told.contains(&line), "costs are measured in each type: {told}");
    }
    for (dtype, end) in [("f32", ""), ("bf16", ", in bf16")] {
        let words = best_in(&said, dtype);
        assert!(words.contains(" s measured, peak ") && words.ends_with(end), "{said}");
    }
    assert!(!best_in(&said, "f32").contains("bf16"), "{said}");
    // The same micro-batches hold about half as much, in the same column of the table.
    let peaks = ["f32", "bf16"].map(|dtype| {
        let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.filter(|row| row.len() > 10 && row[9] == dtype).find(|row| row[5..7] == ["1", "6"]);
        let row = row.unwrap_or_else(|| panic!("no row for {dtype}\n{said}"));
        row[14].parse::<f64>().unwrap()
    });
    assert!((0.45..0.65).contains(&(peaks[1] / peaks[0])), "{peaks:?}\n{said}");
}

#[test]
fn the_number_type_that_fits_is_written_and_trains() {
    let place = Place::new();
    let tune = ["tune", "my.toml", "--ranks", "1", "--top", "0", "--memory", "18KiB"];
    let refused = place.run(&tune);
    assert_eq!(refused.0.status.code(), Some(2), "f32 needs more");
    let said = place.run(&[&tune[..], &["--dtype", "any", "--out", "tuned.toml"]].concat()).done().stdout();
    assert_eq!(best_in(&said, "f32"), "nothing fits", "{said}");
    let chosen = said.lines().last().unwrap();
    assert!(chosen.contains(", in bf16") && chosen.ends_with("; written to tuned.toml"), "{said}");
    let tuned = place.text("tuned.toml");
    has(&tuned, &["dtype = \"bf16\"\n"]);
    let run = place.run(&["train", "tuned.toml"]).done();
    assert!(!run.stderr().contains("warning"), "its costs are of bf16: {}", run.stderr());
    has(&run.stdout(), &["cpu in bf16"]);
}

#[test]
fn costs_in_a_file_are_of_one_number_type() {
    let place = measured();
    let tune = ["tune", "my.toml", "--ranks", "1", "--costs", "costs.json", "--dtype"];
    let said = place.run(&[&tune[..], &["any"]].concat()).refused();
    has(&said, &["--dtype any: the file of --costs is for one number type: leave "]);
    has(&place.run(&[&tune[..], &["bf16"]].concat()).refused(), &["(pipeline.devices cpu, now cpu in bf16)"]);
    place.run(&[&tune[..], &["f32"]].concat()).done();
}
