use super::*;

#[test]
fn verify_looks_at_every_checkpoint_of_a_run_and_names_what_is_damaged() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "4"]).done();
    let said = place.run(&["verify", "runs/small"]).done().stdout();
    // Steps 2 and 4 are saved because of the config, step 3 because it is the best so far.
    for (line, step) in said.lines().zip(2..=4) {
        let expected = format!("runs/small/checkpoints/step-0000000{step}: step {step}, ");
        assert!(line.starts_with(&expected) && line.ends_with("every byte is as it was saved"), "{said}");
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    let model = place.path("runs/small/checkpoints/step-00000002/model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&model, bytes).unwrap();
    let output = place.command(&["verify", "runs/small"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("step-00000004: step 4"), "the whole one is told too: {out}");
    has(&err, &["step-00000002/model.safetensors: not a whole file: `wte.weight` has the checksum"]);
}

#[test]
fn verify_of_what_is_no_checkpoint_is_refused() {
    let place = Place::new();
    has(&place.run(&["verify", "."]).refused(), &["neither a checkpoint nor a run"]);
}
