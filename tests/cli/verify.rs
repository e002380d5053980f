use super::*;

#[test]
fn verify_looks_at_every_checkpoint_of_a_run_and_names_what_is_damaged() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "4"]).done();
    let said = place.run(&["verify", "runs/small"]).done().stdout();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines[1].starts_with("runs/small/checkpoints/step-00000004: step 4, ")
            && lines[1].ends_with("every byte is as it was saved"),
        "{said}"
    );
    let model = place.path("runs/small/checkpoints/step-00000002/model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&model, bytes).unwrap();
    let output = place.command(&["verify", "runs/small"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        out.contains("step-00000004: step 4"),
        "the whole one is told too: {out}"
    );
    assert!(
        err.contains("step-00000002/model.safetensors: not a whole file: `wte.weight` has the checksum"),
        "{err}"
    );
}

#[test]
fn verify_of_what_is_no_checkpoint_is_refused() {
    let place = Place::new();
    let said = place.run(&["verify", "."]).refused();
    assert!(said.contains("no checkpoint"), "{said}");
}

#[test]
fn a_run_goes_on_with_other_data_only_when_that_is_asked_for() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let text = fs::read_to_string(place.path("text.txt")).unwrap();
    fs::write(place.path("text.txt"), text.replacen("lazy", "loud", 1)).unwrap();
    let output = place
        .command(&["train", "my.toml", "--resume", "--steps", "3"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("was trained on `text.txt`") && said.contains("--allow-other-data"),
        "{said}"
    );
    assert_eq!(place.steps("runs/small"), [0, 1]);
    place
        .run(&[
            "train",
            "my.toml",
            "--resume",
            "--allow-other-data",
            "--steps",
            "3",
        ])
        .done();
    assert_eq!(place.steps("runs/small"), [0, 1, 2]);
}
